"""Profiles for the tests of the results package: one made by hand, and Hypothesis strategies for any that can be."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Sequence

from hypothesis import strategies as st

from harness.core.cases import CACHE_STATES, Case, CaseSettings
from harness.core.metrics import POWER_CHANNEL, summarise
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.profiles import CLEAN, FIRST, SETTLING, Minibatch, Profile, Series, Telemetry
from harness.store.frames import _PLACES
from tests.named_modes import mode_on

ENVIRONMENT: Dict[str, Any] = {"kernel": "6.1.0", "host_name": "bench", "packages": {"torch": "2.15.0"}}

CONDITIONS: Dict[str, Any] = {
    "device_model": "Example CPU",
    "device_specification": {"cpus": 2, "memory_gib": 24},
    "power_mode": {"cpu_cores": 2, "cpu_khz": 0, "gpu_khz": 0, "mem_khz": 0},
    "power_mode_name": "maxn",
    "accelerator": "cpu",
    "torch": "2.15.0",
    "python": "3.11.2",
    "storage_medium": {"mount_point": "/", "kind": "ssd", "transport": "nvme", "rotational": False, "free_bytes": 10},
    "data_source": "written",
    "data_samples": 640,
    "threads": 2,
    "power_definition": "sum of the domains package-0",
}


def make_profile(
    times_ms: Sequence[float] = (100.0,) * 40,
    power_mw: Optional[float] = 9000.0,
    case: Optional[Dict[str, Any]] = None,
    settings: Optional[Dict[str, Any]] = None,
    conditions: Optional[Dict[str, Any]] = None,
    provenance: str = "measured",
    flags: Sequence[str] = (),
) -> Profile:
    """A profile of LeNet whose clean minibatches took `times_ms`, with one slow first minibatch before them."""
    settings_made = CaseSettings(**{"minibatches": len(times_ms), **(settings or {})})
    usual = Case("host", "lenet-mnist", mode_on(), 0, "ssd", 16, settings_made)
    case_made = dataclasses.replace(usual, **(case or {}))
    minibatches = [Minibatch(0, 0, FIRST, 1000.0, 5.0, 400.0, 410.0)]
    for index, time_ms in enumerate(times_ms, start=1):
        start_s = minibatches[-1].start_s + minibatches[-1].e2e_ms / 1000
        minibatches.append(Minibatch(0, index, CLEAN, start_s, 0.1 * time_ms, 0.8 * time_ms, time_ms))
    series = {"cpu_own_cores": Series((999.5, 1000.5), (0.5, 2.0))}
    if power_mw is not None:
        ticks = range(int(sum(times_ms) / 1000) + 4)
        series[POWER_CHANNEL] = Series(tuple(999.5 + tick for tick in ticks), tuple(power_mw for _ in ticks))
    telemetry = Telemetry(1.0, 1.0, 0, series, notes={POWER_CHANNEL: "a sum"})
    return Profile(
        case=case_made,
        provenance=provenance,
        conditions={**CONDITIONS, **(conditions or {})},
        minibatches=minibatches,
        telemetry=telemetry,
        aggregates=summarise(minibatches, telemetry, case_made.batch_size),
        flags=list(flags),
        started_at="2026-01-31T12:00:00.000+00:00",
    )


names = st.text(min_size=1, max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
"""What may stand in conditions and in an environment."""

plain_dicts = st.dictionaries(names, plain_values, max_size=5)

RECORDED_CONDITIONS = {field for _, source, field in _PLACES if source == "conditions"}
OF_ONE_KIND = {*RECORDED_CONDITIONS, "storage_medium", "power_mode"}
"""Conditions that may not have any value: frames have a column for each."""

phases = st.sampled_from([FIRST, SETTLING, CLEAN])
minibatches = st.builds(Minibatch, st.integers(0, 10**6), st.integers(0, 10**9), phases, *[numbers] * 4)


@st.composite
def series(draw: st.DrawFn) -> Series:
    """A telemetry channel of up to 20 samples; sensors may say infinity."""
    times: List[float] = draw(st.lists(numbers, max_size=20))
    values = draw(st.lists(st.floats(allow_nan=False), min_size=len(times), max_size=len(times)))
    return Series(tuple(times), tuple(values))


telemetries = st.builds(
    Telemetry,
    interval_s=numbers,
    real_interval_s=st.none() | numbers,
    lost_samples=st.integers(0, 10**6),
    series=st.dictionaries(names, series(), max_size=3),
    missing=st.dictionaries(names, st.text(max_size=20), max_size=2),
    notes=st.dictionaries(names, st.text(max_size=20), max_size=2),
    died_at_s=st.none() | numbers,
    sampler_cpu_share=st.none() | numbers,
)

further = {
    "data_scale": st.none() | st.floats(1e-6, 4), "interval_s": st.floats(1e-3, 60), "seed": st.integers(0, 2**32),
}  # fmt: skip
counts = st.integers(1, 10**6)
without_epochs = st.sampled_from([state for state in CACHE_STATES if state != "drop-each-epoch"])
settings_of_minibatches = st.builds(CaseSettings, minibatches=counts, cache=without_epochs, **further)
settings_of_epochs = st.builds(
    CaseSettings, minibatches=st.none(), epochs=counts, cache=st.sampled_from(CACHE_STATES), **further
)

named_modes = st.builds(NamedMode, names, st.just(PowerMode(2, 0, 0, 0)))
cases = st.builds(
    Case, names, names, named_modes, st.integers(0, 64), names, st.integers(1, 4096),
    settings=settings_of_minibatches | settings_of_epochs, task=st.sampled_from(["training", "inference"]),
)  # fmt: skip

profiles = st.builds(
    Profile,
    case=cases,
    provenance=st.sampled_from(["measured", "simulated", "replayed"]),
    conditions=plain_dicts.filter(lambda conditions: not conditions.keys() & OF_ONE_KIND),
    minibatches=st.lists(minibatches, max_size=6),
    telemetry=telemetries,
    aggregates=st.dictionaries(names, st.none() | numbers, max_size=5),
    flags=st.lists(st.text(max_size=20), max_size=3),
    started_at=st.text(max_size=30),
)
"""Any profile, also one that makes no sense."""
