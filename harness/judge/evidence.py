"""What a profile has to say to the papers' findings: means with their noise, warm and cold, one evidence for each case.

Evidence is made of a profile once; its minibatches and telemetry are not needed after that.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.core.cases import IDLE, Case
from harness.core.metrics import POWER_CHANNEL, between, end_s, epoch_sums
from harness.core.profiles import Minibatch, Profile, Series
from harness.core.units import ms_to_s
from harness.stats.breakdown import mean_times
from harness.stats.estimates import Estimate, product, series_mean
from harness.stats.noise import RunNoise, noise_of, over_runs
from harness.stats.profile_length import LENGTHS, LONG, Stretches, stretches_of
from harness.stats.reading import reading_by_epoch
from harness.store.conditions import is_disqualified

WARM, COLD = "warm", "cold"
"""Epochs 1 and later, or a profile without epochs; and epoch 0 of a profile with epochs (A3)."""

MEASURED, SIMULATED = "measured", "simulated"
"""Provenances."""

DROP_EACH = "drop-each-epoch"

SOFTWARE = ("torch", "cuda", "l4t", "jetpack", "python")

_LATENCIES = ("latency_median_ms", "latency_p95_ms", "training_samples_per_s", "inference_per_s")


class Evidence(NamedTuple):
    """What one profile says.

    Attributes:
        case: what was asked for.
        provenance: of the profile.
        board: what kind of device it is, instances alike: `xavier-agx`; the device's name where nothing tells.
        conditions: as of the profile.
        flags: as of the profile.
        figures: (quantity, phase) to its mean: `time`, `stall`, `compute` in ms per minibatch, `stall_share`, `power`
            in mW, `energy` in mWs per minibatch, `gpu_load`; phases are `WARM` and `COLD`.
        epochs_s: duration of epochs 1 and later.
        aggregates: as of the profile.
        stretches: by their length, what shorter profiles would have said; of one that was asked to be long.
        read_bytes: from the disk in each epoch, 0 and later; None where nothing told.
        run_noise: between runs of its device, for each quantity, once it is pooled.
    """

    case: Case
    provenance: str
    board: str
    conditions: Mapping[str, Any]
    flags: Tuple[str, ...]
    figures: Mapping[Tuple[str, str], Estimate]
    epochs_s: Tuple[float, ...]
    aggregates: Mapping[str, Optional[float]]
    stretches: Mapping[int, Stretches]
    read_bytes: Tuple[Optional[float], ...]
    run_noise: Mapping[str, RunNoise]

    @property
    def software(self) -> Tuple[Any, ...]:
        """The versions that it was measured with."""
        return tuple(self.conditions.get(name) for name in SOFTWARE)

    @property
    def is_left_out(self) -> bool:
        """Whether other processes or heat made its figures wrong: it says nothing of time and power then."""
        return self.provenance == MEASURED and is_disqualified(self.flags)


def evidence_of(profile: Profile) -> Evidence:
    """The evidence of a profile; a quantity that it has nothing to say of is left out."""
    cold = [minibatch for minibatch in profile.minibatches if minibatch.epoch == 0]
    warm = profile.counted
    has_cold = profile.case.settings.epochs is not None and len({one.epoch for one in profile.minibatches}) > 1
    figures = {**_figures(warm, profile, WARM), **(_figures(cold, profile, COLD) if has_cold else {})}
    if not profile.minibatches:
        figures.update(_of_aggregates(profile))
    later = [epoch for epoch in epoch_sums(warm) if epoch.epoch > 0]
    return Evidence(
        case=profile.case,
        provenance=profile.provenance,
        board=str(profile.conditions.get("board") or profile.case.device),
        conditions=profile.conditions,
        flags=tuple(profile.flags),
        figures=figures,
        epochs_s=tuple(epoch.e2e_s for epoch in later) if profile.case.settings.epochs is not None else (),
        aggregates=profile.aggregates,
        stretches=_stretches(warm, profile),
        read_bytes=tuple(epoch.read_bytes for epoch in reading_by_epoch(profile)) if has_cold else (),
        run_noise={},
    )


def _figures(minibatches: Sequence[Minibatch], profile: Profile, phase: str) -> Dict[Tuple[str, str], Estimate]:
    if len(minibatches) < 2:
        return {}
    found: Dict[str, Optional[Estimate]] = dict(mean_times(minibatches)._asdict())
    series = profile.telemetry.series
    stretch = (minibatches[0].start_s, end_s(minibatches[-1]))
    nothing = Series((), ())
    found["power"] = series_mean(between(series.get(POWER_CHANNEL, nothing), *stretch).values)
    found["gpu_load"] = series_mean(between(series.get("gpu_load_share", nothing), *stretch).values)
    if found["power"] is not None and found["time"] is not None:
        per_minibatch = found["time"]._replace(value=ms_to_s(found["time"].value))
        found["energy"] = product(found["power"], per_minibatch)
    return {(name, phase): mean for name, mean in found.items() if mean is not None}


def _stretches(counted: Sequence[Minibatch], profile: Profile) -> Dict[int, Stretches]:
    if (profile.case.settings.minibatches or 0) < LONG or len(counted) < LONG:
        return {}
    power = profile.telemetry.series.get(POWER_CHANNEL, Series((), ()))
    return {length: stretches_of(counted, power, length) for length in (LENGTHS[0], LENGTHS[-1])}


def _of_aggregates(profile: Profile) -> Dict[Tuple[str, str], Estimate]:
    """Of a profile without minibatches: a replayed, an idle or a concurrent one."""
    figures = {"time": profile.aggregates.get("minibatch_time_ms"), "power": profile.aggregates.get("power_mw")}
    figures.update({name: profile.aggregates.get(name) for name in _LATENCIES})
    found = {
        (name, WARM): Estimate(value, 0.0, 1) for name, value in figures.items() if value is not None and value > 0
    }
    if {("time", WARM), ("power", WARM)} <= set(found):
        time = found["time", WARM]
        found["energy", WARM] = product(found["power", WARM], time._replace(value=ms_to_s(time.value)))
    return found


def pooled(evidence: Iterable[Evidence]) -> List[Evidence]:
    """One evidence for each device and case: runs of the same case together, with the noise between them.

    Of each device only what was measured with the software of its latest profile counts. Runs that differ in seed,
    length or telemetry interval are runs of the same case; where a run has a figure for a case that others lack, it
    stands alone. What is left out stays by itself.

    Args:
        evidence: oldest first.
    """
    known = list(evidence)
    latest: Dict[str, Tuple[Any, ...]] = {}
    for one in sorted(known, key=lambda one: not one.is_left_out):  # the later ones replace earlier and left-out ones
        if one.case.task != IDLE:
            latest[one.case.device] = one.software
    groups: Dict[Tuple[Case, bool], List[Evidence]] = {}
    for one in known:
        if one.case.task == IDLE or one.software == latest[one.case.device]:
            groups.setdefault((same_case(one.case), one.is_left_out), []).append(one)
    noises = {device: _noise(device, groups) for device in {case.device for case, _ in groups}}
    return [_pool(case, members, noises[case.device]) for (case, _), members in groups.items()]


def _noise(device: str, groups: Mapping[Tuple[Case, bool], Sequence[Evidence]]) -> Dict[str, RunNoise]:
    """The noise between runs of a device; what is left out does not tell it."""
    own = [members for (case, left_out), members in groups.items() if case.device == device and not left_out]
    return noise_of(own[0][0].board, [[member.figures for member in members] for members in own]) if own else {}


def same_case(case: Case) -> Case:
    """The case without what does not change what is asked: seed, length, interval and the limit of temperature."""
    each = case.settings.cache == DROP_EACH  # is nothing without epochs
    settings = dataclasses.replace(
        case.settings,
        minibatches=None if each else 1,
        epochs=1 if each else None,
        idle_s=None,
        duration_s=None,
        seed=0,
        interval_s=1.0,
        max_temperature_c=None,
        limit_s=None,
    )
    return dataclasses.replace(case, settings=settings)


def _pool(case: Case, members: Sequence[Evidence], noise: Mapping[str, RunNoise]) -> Evidence:
    names = {name for member in members for name in member.figures}
    figures = {
        name: over_runs([member.figures[name] for member in members if name in member.figures], noise.get(name[0]))
        for name in names
    }
    return members[-1]._replace(
        case=case,
        figures=figures,
        run_noise=noise,
        epochs_s=tuple(time_s for member in members for time_s in member.epochs_s),
        flags=tuple(dict.fromkeys(flag for member in members for flag in member.flags)),
        stretches=next((member.stretches for member in reversed(members) if member.stretches), {}),
    )
