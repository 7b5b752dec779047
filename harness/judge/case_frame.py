"""The quantities of profiles as a frame, for statistics: means with their noise, warm and cold.

`frame_of` extends the frame of `harness.store.frames.profiles` by three columns for each quantity: its value under the
quantity's name, the standard error of its logarithm (`time_error`) and its degrees of freedom (`time_dof`). Those of
epoch 0 begin with `cold_`. Quantities without a sensor are NaN. `pooled` turns rows of profiles into rows of cases.

This frame has no raw series: those are rows of a second one, `harness.store.frames.minibatches` and `telemetry`, which
figures, exports and predictors read for the profiles that they show or learn. Of the series, claims need a few values
of each case: `epochs_s`, `stretches` and `channels`, in columns of objects. As a long frame these would have to be made
for profiles in memory too, and be pooled and joined again for every claim that reads them, for three values a case.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import CONCURRENT, IDLE, Case, CaseSettings
from harness.core.metrics import CONCURRENT_AGGREGATES, POWER_CHANNEL, integral
from harness.core.profiles import FIRST, NO_SERIES, Minibatches, Profile
from harness.core.units import ms_to_s
from harness.stats.estimates import Estimate, product, quotient, series_mean
from harness.stats.experiments import LENGTHS, LONG, Stretches, stretches_of
from harness.stats.noise import PEAK_MEMORY, RunNoise, noise_of, over_runs
from harness.store.conditions import CHOSEN_BY
from harness.store.frames import framed, framed_of
from harness.store.rows import Record

if TYPE_CHECKING:
    import pandas as pd

    from harness.store.results import ResultsStore

WARM, COLD = "warm", "cold"
"""Epochs 1 and later, or a profile without epochs; and epoch 0 of a profile with epochs (A3)."""

MEASURED, SIMULATED = "measured", "simulated"
SOFTWARE = ("jetpack", "l4t", "torch", "cuda", "python")  # comparable conditions that may differ between runs

# Channels that quantities are made of.
POWER, GPU_LOAD, READS, MEMORY = POWER_CHANNEL, "gpu_load_share", "disk_read_bytes_per_s", "memory_used_bytes"

NOISY: Dict[str, str] = {
    "time": "ms per minibatch",
    "stall": "ms of stall per minibatch",
    "compute": "ms of compute per minibatch",
    "stall_share": "stall's share of time",
    "power": "mW",
    "energy": "mWs per minibatch",
    "gpu_load": "use of the GPU",
    "memory": "bytes of RAM in use",
    PEAK_MEMORY: "bytes of peak memory",
    **CONCURRENT_AGGREGATES,
}
"""Quantities with noise, and their meanings."""

OTHERS: Dict[str, str] = {
    "stall_per_compute": "stall / compute",
    "busy_share": "stall and compute / time",
    "read_again": "bytes read in later epochs / in the cold one",
    "cached_share": "share of the data set in the page cache",
}
"""Quantities derived from those, and some without noise: the shares of the data set read and cached in later epochs."""

QUANTITIES: Dict[str, str] = {**NOISY, **OTHERS}

_OF_NO_MINIBATCH = {"time": "minibatch_time_ms", "power": "power_mw", **{name: name for name in CONCURRENT_AGGREGATES}}
"""Quantities of a replayed, an idle or a concurrent profile, and their aggregates."""

Estimates = Dict[Tuple[str, str], Estimate]  # (quantity, phase) to its estimate

Row = Any
"""A row of such a frame, its columns as attributes."""


class Quantities(NamedTuple):
    """Quantities computed from the raw series of a profile, which are not needed afterwards."""

    estimates: Estimates
    epochs_s: Tuple[float, ...]  # duration of epochs 1 and later
    # by length, errors of shorter profiles; for profiles that were requested to be long
    stretches: Mapping[int, Stretches]
    channels: Tuple[str, ...]  # of its telemetry


def quantities_of(profile: Profile) -> Quantities:
    case, minibatches = profile.case, Minibatches.of(profile.minibatches)
    epochs, times_ms = minibatches.columns["epoch"], minibatches.columns["e2e_ms"]
    whole_epochs = case.settings.epochs is not None
    counted = minibatches.counted(whole_epochs)
    estimates = _of_minibatches(minibatches, counted, profile, WARM)
    if whole_epochs and (epochs != epochs[:1]).any():
        estimates.update(_of_minibatches(minibatches, epochs == 0, profile, COLD))
        estimates.update({(name, WARM): Estimate(share, 0.0, 1) for name, share in _reading(profile).items()})
    if not len(minibatches):
        estimates.update(_of_aggregates(profile.aggregates))
    elif case.task == CONCURRENT:
        of_both = {name: profile.aggregates.get(name) for name in CONCURRENT_AGGREGATES}
        estimates.update(_of_aggregates(of_both))
    peak_bytes = profile.aggregates.get("memory_peak_bytes")
    if peak_bytes:
        estimates[PEAK_MEMORY, WARM] = Estimate(float(peak_bytes), 0.0, 1)
    later = counted & (epochs > 0) & whole_epochs
    stretches: Dict[int, Stretches] = {}
    if (case.settings.minibatches or 0) >= LONG and counted.sum() >= LONG:
        power = profile.telemetry.series.get(POWER, NO_SERIES)
        stretches = {length: stretches_of(profile.counted, power, length) for length in (LENGTHS[0], LENGTHS[-1])}
    epochs_s = tuple(ms_to_s(float(times_ms[later & (epochs == each)].sum())) for each in np.unique(epochs[later]))
    return Quantities(estimates, epochs_s, stretches, tuple(profile.telemetry.series))


def _of_minibatches(minibatches: Minibatches, chosen: np.ndarray, profile: Profile, phase: str) -> Estimates:
    """Estimates of some minibatches, but of the first of a profile (C12) and of each epoch.

    The first minibatch of an epoch waits for the workers to start. This cost per epoch is negligible in the papers'
    epochs of thousands of minibatches, and would dominate in a small data set.
    """
    if chosen.sum() < 2:
        return {}
    own = {name: column[chosen] for name, column in minibatches.columns.items()}
    kept = (own["phase"] != FIRST) & (np.diff(own["epoch"], prepend=own["epoch"][0]) == 0)
    time, stall, compute = (own[name][kept] for name in ("e2e_ms", "stall_ms", "compute_ms"))
    estimates = {
        "time": series_mean(time),
        "stall": series_mean(stall),
        "compute": series_mean(compute),
        "stall_share": series_mean(stall, time),
    }
    start_s, end_s = own["start_s"][0], own["start_s"][-1] + ms_to_s(own["e2e_ms"][-1])
    for quantity, channel in (("power", POWER), ("gpu_load", GPU_LOAD), ("memory", MEMORY)):
        times_s, values = map(np.asarray, profile.telemetry.series.get(channel, NO_SERIES))
        estimates[quantity] = series_mean(values[(start_s <= times_s) & (times_s <= end_s)])
    if estimates["power"] is not None and estimates["time"] is not None:
        per_minibatch = estimates["time"]._replace(value=ms_to_s(estimates["time"].value))
        estimates["energy"] = product(estimates["power"], per_minibatch)
    return {(name, phase): estimate for name, estimate in estimates.items() if estimate is not None}


def _reading(profile: Profile) -> Dict[str, float]:
    """Bytes read in later epochs relative to the first one, and the share of the data set cached at their start."""
    read_s, reads = (np.asarray(each) for each in profile.telemetry.series.get(READS, NO_SERIES))
    columns = Minibatches.of(profile.minibatches if len(read_s) else []).columns
    epochs, starts_s, times_ms = (columns[name] for name in ("epoch", "start_s", "e2e_ms"))
    ends_s = starts_s + ms_to_s(times_ms)
    read_bytes = [
        integral(read_s, reads, starts_s[epochs == epoch].min(), ends_s[epochs == epoch].max())
        for epoch in np.unique(epochs)
    ]
    values = {}
    later = [read for read in read_bytes[1:] if read is not None]
    if later and read_bytes[0]:
        values["read_again"] = sum(later) / len(later) / read_bytes[0]
    shares = [share for share in profile.conditions.get("cache_residency_by_epoch", [])[1:] if share is not None]
    if shares:
        values["cached_share"] = sum(shares) / len(shares)
    return values


def _of_aggregates(aggregates: Mapping[str, Optional[float]]) -> Estimates:
    values = {quantity: aggregates.get(name) for quantity, name in _OF_NO_MINIBATCH.items()}
    estimates = {(name, WARM): Estimate(float(value), 0.0, 1) for name, value in values.items() if value and value > 0}
    if {("time", WARM), ("power", WARM)} <= set(estimates):
        time = estimates["time", WARM]
        estimates["energy", WARM] = product(estimates["power", WARM], time._replace(value=ms_to_s(time.value)))
    return estimates


def column_of(quantity: str, phase: str = WARM) -> str:
    """The column of a quantity's value; `_error` and `_dof` follow that name."""
    return quantity if phase == WARM else f"{phase}_{quantity}"


def record_of(profile: Profile, number: int = 0) -> Record:
    """A profile without its raw series, as a results file would have it."""
    return Record(
        number, "", profile.case.id, "", profile.started_at, profile.case, profile.provenance,
        dict(profile.conditions), dict(profile.aggregates), list(profile.flags), {},
    )  # fmt: skip


def frame_of(records: Sequence[Record], quantities: Sequence[Quantities]) -> pd.DataFrame:
    """A row for each profile: the columns of `harness.store.frames.profiles`, and its quantities.

    Besides: `profile_ids`, the profiles of a row; `epochs_s`, how long epochs 1 and later took; `stretches`, what
    shorter profiles would have said; `channels` of the telemetry; `run_noise`, how much runs of a case differ.
    """
    return _with_quantities(framed(records), quantities)


def frame_of_profiles(some: Iterable[Profile]) -> pd.DataFrame:
    """The same of profiles in memory."""
    kept = [(record_of(profile, number), quantities_of(profile)) for number, profile in enumerate(some)]
    return frame_of([record for record, _ in kept], [quantities for _, quantities in kept])


def read_frame(store: ResultsStore, numbers: Optional[Sequence[int]] = None) -> pd.DataFrame:
    """The same of a results file, oldest first, or of some of its profiles in their order.

    Each profile is read once, and its raw series are not kept. Of several instances of a board each is a device of its
    own: `orin-agx@orin3`.
    """
    records, quantities = [], []
    for number in store.numbers() if numbers is None else numbers:
        record, profile = store.whole(number)
        records.append(record)
        quantities.append(quantities_of(profile))
    frame = _with_quantities(framed_of(store, records), quantities)
    return frame.sort_values("created_at", kind="stable") if numbers is None else frame


def of_experiments(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame without the profiles of searches, which no claim is judged by."""
    return frame[[CHOSEN_BY not in conditions for conditions in frame["conditions"]]]


def _with_quantities(frame: pd.DataFrame, quantities: Sequence[Quantities]) -> pd.DataFrame:
    import pandas as pd

    objects = {
        "profile_ids": [(int(number),) for number in frame.index],
        "epochs_s": [each.epochs_s for each in quantities],
        "stretches": [each.stretches for each in quantities],
        "channels": [each.channels for each in quantities],
        "run_noise": [{} for _ in quantities],
    }
    columns = {name: pd.Series(values, frame.index, dtype=object) for name, values in objects.items()}
    columns.update(_estimate_columns([each.estimates for each in quantities], frame.index))
    return pd.concat([frame.drop(columns=[name for name in columns if name in frame]), pd.DataFrame(columns)], axis=1)


def _estimate_columns(estimates: Sequence[Estimates], index: Any) -> Dict[str, pd.Series]:
    import pandas as pd

    columns = {}
    for quantity in QUANTITIES:
        for phase in (WARM, COLD):
            own = [each.get((quantity, phase)) for each in estimates]
            name = column_of(quantity, phase)
            for place, part in enumerate(("", "_error", "_dof")):
                values = [np.nan if estimate is None else float(estimate[place]) for estimate in own]
                columns[name + part] = pd.Series(values, index, dtype=float)
    return columns


def estimate_of(row: Row, quantity: str, phase: str = WARM) -> Optional[Estimate]:
    """A quantity of a row, or None if it was not measured."""
    if quantity == "stall_per_compute":
        stall, compute = (estimate_of(row, name, phase) for name in ("stall", "compute"))
        return None if stall is None or compute is None else quotient(compute, stall)
    if quantity == "busy_share":
        stall, compute, time = (estimate_of(row, name, phase) for name in ("stall", "compute", "time"))
        if stall is None or compute is None or time is None:
            return None
        share = (stall.value + compute.value) / time.value
        return Estimate(share, 0.0, 1)  # of the same minibatches: their noise cancels
    name = column_of(quantity, phase)
    value = getattr(row, name)
    if value != value:
        return None
    return Estimate(value, getattr(row, f"{name}_error"), int(getattr(row, f"{name}_dof")))


def estimates_of(row: Row) -> Estimates:
    """The quantities of a row that have noise, by quantity and phase."""
    pairs = ((quantity, phase) for quantity in NOISY for phase in (WARM, COLD))
    estimates = {pair: estimate_of(row, *pair) for pair in pairs}
    return {pair: estimate for pair, estimate in estimates.items() if estimate is not None}


def is_left_out(row: Row) -> bool:
    """Whether a row's figures are distorted by other processes or heat: only this fact counts."""
    return row.provenance == MEASURED and not row.usable


def board_of(row: Row) -> str:
    """The type of device, without the instance: `xavier-agx`; the device's name if unknown."""
    return str(row.conditions.get("board") or row.case.device)


def case_of(row: Row) -> Case:
    """The row's case, with its device as labelled in the frame."""
    return dataclasses.replace(row.case, device=row.device_label)


def pooled(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each device, case and size of the data set: runs of the same case together, with their noise.

    For each device only profiles with the software of its latest one count. Runs that differ in seed, length or
    telemetry interval are runs of the same case. Left-out profiles have separate rows. The oldest comes first.
    """
    frame = frame.reset_index(drop=True)
    rows = list(frame.itertuples())
    latest: Dict[str, Tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda row: not is_left_out(row)):  # the later ones replace earlier and left-out ones
        if row.task != IDLE:
            latest[row.device_label] = _software(row)
    groups: Dict[Tuple[Case, Any, bool], List[Row]] = {}
    for row in rows:
        if row.task == IDLE or _software(row) == latest[row.device_label]:
            # Threads that sleep while they wait take other times than threads that spin.
            setting = (row.conditions.get("data_samples"), row.conditions.get("omp_wait_policy"))
            place = (same_case(case_of(row)), setting, is_left_out(row))
            groups.setdefault(place, []).append(row)
    by_device: Dict[str, List[List[Row]]] = {}
    for (case, _, left_out), members in groups.items():
        by_device.setdefault(case.device, []).extend([] if left_out else [members])
    noises: Dict[str, Mapping[str, RunNoise]] = {}
    for device, cases in by_device.items():
        estimates = [[estimates_of(row) for row in members] for members in cases]
        noises[device] = noise_of(board_of(cases[0][0]), estimates) if cases else {}
    return _pooled_frame(frame, list(groups.items()), noises)


def _software(row: Row) -> Tuple[Any, ...]:
    return tuple(row.conditions.get(name) for name in SOFTWARE)


def same_case(case: Case) -> Case:
    """The case without settings that do not change the question: seed, length, interval and temperature limit."""
    asked = case.settings
    length = {"minibatches": None, "epochs": 1} if asked.cache == "drop-each-epoch" else {"minibatches": 1}
    settings = CaseSettings(
        **length,
        cache=asked.cache,
        data_scale=asked.data_scale,
        clocks=asked.clocks,
        disturbance_cores=asked.disturbance_cores,
        power_limit_w=asked.power_limit_w,
        switching_ms=asked.switching_ms,
    )
    return dataclasses.replace(case, settings=settings)


def _pooled_frame(frame: pd.DataFrame, groups: Sequence[Any], noises: Mapping[str, Mapping[str, RunNoise]]) -> Any:
    import pandas as pd

    newest = frame.iloc[[members[-1].Index for _, members in groups]].reset_index(drop=True)
    objects: Dict[str, List[Any]] = {
        "case": [case for (case, _, _), _ in groups],
        "run_noise": [noises[case.device] for (case, _, _), _ in groups],
        "profile_ids": [tuple(number for row in members for number in row.profile_ids) for _, members in groups],
        "epochs_s": [tuple(time_s for row in members for time_s in row.epochs_s) for _, members in groups],
        "flag_kinds": [_each_once(row.flag_kinds for row in members) for _, members in groups],
        "channels": [_each_once(row.channels for row in members) for _, members in groups],
        "stretches": [next((row.stretches for row in reversed(members) if row.stretches), {}) for _, members in groups],
    }
    columns = {name: pd.Series(values, newest.index, dtype=object) for name, values in objects.items()}
    estimates = [_over_runs(members, noises[case.device]) for (case, _, _), members in groups]
    columns.update(_estimate_columns(estimates, newest.index))
    return newest.assign(**columns)


def _over_runs(members: Sequence[Row], noise: Mapping[str, RunNoise]) -> Estimates:
    runs = [estimates_of(row) for row in members]
    over_all_runs = {}
    for pair in {pair for run in runs for pair in run}:
        own = [run[pair] for run in runs if pair in run]
        over_all_runs[pair] = over_runs(own, noise[pair[0]]) if pair[0] in noise else own[-1]  # of runs left out alone
    exact = {(name, WARM): estimate_of(members[-1], name) for name in ("read_again", "cached_share")}
    return {**over_all_runs, **{pair: estimate for pair, estimate in exact.items() if estimate is not None}}


def _each_once(lists: Iterable[Iterable[str]]) -> Tuple[str, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))


def noise_by_device(frame: pd.DataFrame) -> Iterator[Tuple[str, Mapping[str, RunNoise]]]:
    """The noise between runs of each device of a pooled frame."""
    for row in frame.itertuples():
        if row.run_noise:
            yield row.device_label, row.run_noise
