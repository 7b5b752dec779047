"""Figures for monitoring: the newest profile of each case and the sensors of a device, as OpenMetrics' text.

Every metric is a gauge in base units (seconds, watts, joules, hertz, celsius, bytes), so that the text is also valid in
the older format that node_exporter's textfile collector reads. Every profile has its provenance as a label.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from harness.board.sampler import Sampler
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import is_real
from harness.core.errors import InvalidValueError
from harness.core.metrics import AGGREGATES, CONCURRENT_AGGREGATES
from harness.core.units import khz_to_hz, ms_to_s, mw_to_w, mwh_to_j, mws_to_j
from harness.devices.board_record import root_of
from harness.measure.doctor import device_to_examine
from harness.store.archive import open_stored
from harness.store.frames import profiles

PathLike = Union[str, Path]
Labels = Tuple[Tuple[str, str], ...]

LABELS = {
    "device": "device_name", "board_instance": "board_instance", "workload": "workload", "task": "task",
    "power_mode": "power_mode", "workers": "workers", "storage": "storage", "batch_size": "batch_size",
    "cache": "cache", "clocks": "clocks", "power_limit_mw": "power_limit_mw", "provenance": "provenance",
}  # fmt: skip
"""Labels of a profile's metrics, and the columns of `harness.store.frames.profiles` that have their values."""

FIGURES = (
    "minibatch_time_ms", "fetch_stall_ms", "compute_ms", "samples_per_s", "tokens_per_s", "epoch_time_s", "power_mw",
    "power_peak_mw", "socket_power_mw", "energy_mwh", "energy_per_sample_mws", "memory_peak_bytes", "clean_minibatches",
    "latency_median_ms", "latency_p95_ms", "inference_per_s", "energy_per_request_mws",
)  # fmt: skip
"""Aggregates of a profile that become metrics."""

SAME = float
UNITS: Dict[str, Tuple[str, Callable[[float], float]]] = {
    "_per_s": ("per_second", SAME),
    "_ms": ("seconds", ms_to_s),
    "_mws": ("joules", mws_to_j),
    "_mwh": ("joules", mwh_to_j),
    "_mw": ("watts", mw_to_w),
    "_khz": ("hertz", khz_to_hz),
    "_bytes": ("bytes", SAME),
    "_share": ("ratio", SAME),
    "_cores": ("cores", SAME),
    "_rpm": ("rpm", SAME),
    "_pwm": ("pwm", SAME),
    "_c": ("celsius", SAME),
    "_s": ("seconds", SAME),
}
"""The unit that ends one of our names: its name in OpenMetrics, and the conversion. The first that fits counts."""


class Metric(NamedTuple):
    name: str  # with its unit, without the prefix `jetwatt_`
    unit: str  # empty if it has none
    help: str
    samples: Dict[Labels, float]


def openmetrics(
    results: Optional[PathLike] = None,
    device: Optional[str] = None,
    *,
    sensors: bool = True,
    seconds: float = 1.0,
    include_flagged: bool = False,
    root: PathLike = "/",
    config: PathLike = FILE_NAME,
    require: Optional[PathLike] = None,
) -> str:
    """The newest profile of each case and the present values of a device's sensors, as OpenMetrics' text.

    Args:
        results: a results file; None for no profiles.
        device: the device whose sensors are read; None for the board if there is one, else `host`.
        sensors: whether to read any.
        seconds: how long to watch them; rates, such as CPU use, are means over this time.
        include_flagged: include profiles flagged disturbed or throttled.
        root: the folder of /sys, /proc and /etc; or a file of `doctor --record`.
        config: file with the directories of storage media and data sets.
        require: a requirements file, whose verdicts on the results become metrics.

    Raises:
        HarnessError: the results file cannot be read, the device does not exist, or there is nothing to write.
    """
    if results is None and not sensors:
        raise InvalidValueError("there is nothing to write", "give results, or have the sensors read")
    if not seconds > 0:
        raise InvalidValueError(f"seconds is {seconds:g}", "give a time above 0, such as 1")
    metrics = [] if results is None else list(_of_profiles(Path(results), include_flagged))
    if require is not None:
        if results is None:
            raise InvalidValueError("requirements were given without results", "give both, or omit the requirements")
        metrics += _of_requirements(Path(results), Path(require), include_flagged)
    if sensors:
        metrics += _of_sensors(device, Path(root), Path(config), seconds)
    return formatted(metrics)


def formatted(metrics: List[Metric]) -> str:
    """The text of some metrics; one without samples is left out."""
    lines = []
    for metric in metrics:
        name = f"jetwatt_{metric.name}"
        if metric.samples:
            lines += [f"# TYPE {name} gauge"]
            lines += [f"# UNIT {name} {metric.unit}"] if metric.unit else []
            lines += [f"# HELP {name} {_escaped(metric.help, quotes=False)}"]
        for labels, value in metric.samples.items():
            text = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels)
            lines.append(f"{name}{{{text}}} {value!r}")
    return "\n".join([*lines, "# EOF", ""])


def in_base_unit(name: str) -> Tuple[str, str, Callable[[float], float]]:
    """A name without its unit, the unit in OpenMetrics, empty if it has none, and the conversion of its values."""
    for suffix, (unit, convert) in UNITS.items():
        if name.endswith(suffix):
            return name[: -len(suffix)], unit, convert
    return name, "", SAME


def _of_profiles(results: Path, include_flagged: bool) -> Iterator[Metric]:
    import pandas as pd

    with open_stored(results) as store:
        frame = profiles(store, include_flagged=include_flagged)
    rows: Dict[Labels, pd.Series] = {}  # profiles of a case have the same labels: the newest, which is last, stays
    for _, row in frame.iterrows():
        values = {label: row[column] for label, column in LABELS.items()}
        rows[tuple((label, "" if pd.isna(value) else str(value)) for label, value in values.items())] = row
    meanings = {**AGGREGATES, **CONCURRENT_AGGREGATES}
    for figure in FIGURES:
        name, unit, convert = in_base_unit(figure)
        samples = {labels: convert(float(row[figure])) for labels, row in rows.items() if not pd.isna(row[figure])}
        yield Metric(f"{name}_{unit}" if unit else name, _declared(unit), meanings[figure], samples)
    created = {labels: datetime.fromisoformat(row["created_at"]).timestamp() for labels, row in rows.items()}
    yield Metric("profile_created_seconds", "seconds", "when the profile was stored, in seconds since 1970", created)


def _of_requirements(results: Path, requirements: Path, include_flagged: bool) -> List[Metric]:
    """For each limit of each case whether it is kept, and whether it is not: neither, if that is inconclusive."""
    from harness.judge.requirement_verdicts import FAIL, PASS, check_file

    kept: Dict[Labels, float] = {}
    broken: Dict[Labels, float] = {}
    names = ("case", "requirement", "figure", "provenance")
    for verdict in check_file(results, requirements, include_flagged):
        if verdict.case:
            labels = tuple((name, str(getattr(verdict, name))) for name in names)
            # Cases that differ in further conditions have the same labels: kept if all are, broken if one is.
            kept[labels] = min(kept.get(labels, 1.0), float(verdict.status == PASS))
            broken[labels] = max(broken.get(labels, 0.0), float(verdict.status == FAIL))
    return [
        Metric("requirement_kept", "", "whether the interval of the figure keeps its limit", kept),
        Metric("requirement_broken", "", "whether the interval of the figure lies beyond its limit", broken),
    ]


def _of_sensors(device_name: Optional[str], root: Path, config: Path, seconds: float) -> List[Metric]:
    device = device_to_examine(device_name, load_configuration(config), root_of(root))
    own = ("device", device.name)
    states: Dict[Labels, float] = {}
    for capability in device.capabilities():  # several sensors may measure the same
        labels = (own, ("capability", capability.name))
        states[labels] = max(states.get(labels, 0.0), float(capability.available))
    metrics = [Metric("capability_available", "", "whether it can be measured or set here, as in doctor", states)]
    if not is_real(device):
        return metrics
    with Sampler(device.telemetry_sources(Path.cwd()), seconds, root=str(device.root)) as sampler:
        time.sleep(seconds)
    by_unit: Dict[str, Dict[Labels, float]] = {}
    for channel, series in sampler.stop().series.items():
        name, unit, convert = in_base_unit(channel)
        if len(series.values):
            value = convert(float(series.values[-1]))
            by_unit.setdefault(unit or "value", {})[own, ("sensor", name)] = value
    for unit in sorted(by_unit):
        meaning = f"newest value of each sensor, in {unit}"
        metrics.append(Metric(f"sensor_{unit}", _declared(unit), meaning, by_unit[unit]))
    return metrics


def _declared(unit: str) -> str:
    """A unit as metadata; what is a rate or has no unit of OpenMetrics is declared by the name alone."""
    return "" if unit in ("per_second", "value", "rpm", "pwm", "cores") else unit


def _escaped(text: str, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
