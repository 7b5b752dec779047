"""What profiles say to the papers' claims: means with their noise, warm and cold, one evidence for each case.

Evidence is made of a profile once, from the frames of `harness.store`; raw series are not needed after that.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import AXES, IDLE, TRAINING, Case
from harness.core.metrics import POWER_CHANNEL, integral
from harness.core.profiles import FIRST, Minibatch, Profile, Series
from harness.core.units import ms_to_s
from harness.stats.estimates import Estimate, product, quotient, series_mean
from harness.stats.experiments import LENGTHS, LONG, Stretches, stretches_of
from harness.stats.noise import RunNoise, noise_of, over_runs
from harness.store.conditions import comparable_conditions, is_disqualified, kinds
from harness.store.frames import FOLLOWS

if TYPE_CHECKING:
    import pandas as pd

    from harness.store.results import ResultsStore

WARM, COLD = "warm", "cold"
"""Epochs 1 and later, or a profile without epochs; and epoch 0 of a profile with epochs (A3)."""

MEASURED, SIMULATED = "measured", "simulated"
"""Provenances."""

SOFTWARE = ("torch", "cuda", "l4t", "jetpack", "python")

_OF_NO_MINIBATCH = {
    "time": "minibatch_time_ms",
    "power": "power_mw",
    **{name: name for name in ("latency_median_ms", "latency_p95_ms", "training_samples_per_s", "inference_per_s")},
}
"""Quantities of a replayed, an idle or a concurrent profile, and the aggregates that they are."""

_SETTINGS = ("cache", "data_scale", "clocks")
FIELDS = (*(axis for axis in AXES if axis != "device"), *_SETTINGS, "task")
"""What tells the cases of a device apart."""

REPEATS = {"minibatches", "epochs", "idle_s", "duration_s", "seed"}
"""Comparable conditions in which runs of one case may differ."""

_FOLLOWS = {
    **FOLLOWS,
    "workload": ("device_specification", "data_source", "data_samples"),
    "data_scale": ("data_samples", "data_source"),
    "task": (
        *("workload", "workers", "batch_size", "cache", "storage_medium", "accelerator", "threads", "torch", "cuda"),
        *("python", "device_specification", "data_source", "data_samples"),
    ),
}
"""What else may differ where two cases differ in a field; parameters of its workload are part of a simulated board."""


Raw = Mapping[str, np.ndarray]
"""The minibatches of a profile, column by column."""

Channels = Mapping[str, Tuple[np.ndarray, np.ndarray]]
"""Telemetry of a profile: channel to when it was sampled, in monotonic seconds, and to what it said; empty without."""

POWER, GPU_LOAD, READS = POWER_CHANNEL, "gpu_load_share", "disk_read_bytes_per_s"
"""Channels that figures are made of."""


class Frames(NamedTuple):
    """Profiles with their raw series, as `harness.store.frames` has them."""

    profiles: pd.DataFrame
    minibatches: pd.DataFrame
    telemetry: pd.DataFrame


class Evidence(NamedTuple):
    """What one profile says; or, pooled, the runs of a case.

    Attributes:
        case: what was asked for.
        provenance: of the profile.
        board: what kind of device it is, instances alike: `xavier-agx`; the device's name where nothing tells.
        conditions: as of the profile.
        comparable: those of them that must agree where nobody named them.
        flags: their kinds.
        figures: (quantity, phase) to its estimate: `time`, `stall`, `compute` in ms per minibatch, `stall_share`,
            `power` in mW, `energy` in mWs per minibatch, `gpu_load`; phases are `WARM` and `COLD`.
        exact: figures without noise: `read_again`, what later epochs read of what the first one did;
            `cached_share` of the data set when later epochs begin.
        epochs_s: duration of epochs 1 and later.
        stretches: by their length, what shorter profiles would have said; of one that was asked to be long.
        channels: of its telemetry.
        profile_ids: the profiles that it is made of.
        run_noise: between runs of its device, for each quantity, once it is pooled.
    """

    case: Case
    provenance: str
    board: str
    conditions: Mapping[str, Any]
    comparable: Mapping[str, Any]
    flags: Tuple[str, ...]
    figures: Mapping[Tuple[str, str], Estimate]
    exact: Mapping[str, float]
    epochs_s: Tuple[float, ...]
    stretches: Mapping[int, Stretches]
    channels: Tuple[str, ...]
    profile_ids: Tuple[int, ...] = ()
    run_noise: Mapping[str, RunNoise] = {}

    @property
    def fields(self) -> Dict[str, Any]:
        """What tells the case from others of its device."""
        case = self.case
        return {name: getattr(case.settings if name in _SETTINGS else case, name) for name in FIELDS}

    @property
    def label(self) -> str:
        """The case's id without its device."""
        return self.case.id[len(self.case.device) + 1 :]

    @property
    def software(self) -> Tuple[Any, ...]:
        """The versions that it was measured with."""
        return tuple(self.conditions.get(name) for name in SOFTWARE)

    @property
    def is_left_out(self) -> bool:
        """Whether other processes or heat made its figures wrong: it says nothing of time and power then."""
        return self.provenance == MEASURED and is_disqualified(self.flags)

    def figure(self, quantity: str, phase: str = WARM) -> Optional[Estimate]:
        """A quantity, or None where nothing told it."""
        if quantity == "stall_per_compute":
            stall, compute = (self.figures.get((name, phase)) for name in ("stall", "compute"))
            return None if stall is None or compute is None else quotient(compute, stall)
        if quantity == "busy_share":
            parts = [self.figures.get((name, phase)) for name in ("stall", "compute", "time")]
            if None in parts:
                return None
            stall, compute, time = (part.value for part in parts)
            return Estimate((stall + compute) / time, 0.0, 1)  # of the same minibatches: their noise cancels
        if quantity in self.exact and phase == WARM:
            return Estimate(self.exact[quantity], 0.0, 1)
        return self.figures.get((quantity, phase))


def read_evidence(store: ResultsStore) -> Iterator[Evidence]:
    """The evidence of every profile of a results file, oldest first; raw series are read one profile at a time."""
    from harness.store.frames import minibatches, profiles, telemetry

    frame = profiles(store, include_flagged=True)
    for number in frame.index:
        yield from evidence(Frames(frame.loc[[number]], minibatches(store, [number]), telemetry(store, [number])))


def evidence_of(profile: Profile) -> Evidence:
    """The evidence of a profile that is in no results file."""
    return next(evidence(frames_of([profile])))


def frames_of(found: Sequence[Profile]) -> Frames:
    """Profiles that are in no results file as frames, with the columns that evidence is made of; numbered from 0."""
    import pandas as pd

    rows: List[Dict[str, Any]] = []
    raw: List[pd.DataFrame] = []
    samples: Dict[str, List[Any]] = {"profile_id": [], "channel": [], "time_s": [], "value": []}
    for number, profile in enumerate(found):
        comparable = comparable_conditions(profile.conditions, profile.case, profile.provenance)
        rows.append(
            {
                "case": profile.case,
                "provenance": profile.provenance,
                "conditions": profile.conditions,
                "comparable": comparable,
                "flag_kinds": tuple(kinds(profile.flags)),
                **{name: profile.aggregates.get(name) for name in _OF_NO_MINIBATCH.values()},
            }
        )
        counted = set(map(id, profile.counted))
        columns = map(np.array, zip(*profile.minibatches)) if profile.minibatches else [np.array([])] * 7
        own = pd.DataFrame(dict(zip(Minibatch._fields, columns)))
        raw.append(own.assign(profile_id=number, counted=[id(one) in counted for one in profile.minibatches]))
        for channel, series in profile.telemetry.series.items():
            samples["profile_id"] += [number] * len(series.values)
            samples["channel"] += [channel] * len(series.values)
            samples["time_s"] += series.times_s
            samples["value"] += series.values
    index = pd.RangeIndex(len(rows), name="profile_id")
    return Frames(pd.DataFrame(rows, index=index), pd.concat(raw, ignore_index=True), pd.DataFrame(samples))


def evidence(frames: Frames) -> Iterator[Evidence]:
    """The evidence of each profile of some frames, in their order."""
    raw = dict(tuple(frames.minibatches.groupby("profile_id", sort=False)))
    samples = dict(tuple(frames.telemetry.groupby("profile_id", sort=False)))
    for number, row in zip(frames.profiles.index, frames.profiles.to_dict("records")):
        own = raw.get(number, frames.minibatches.iloc[:0])
        minibatches = {name: own[name].to_numpy() for name in (*Minibatch._fields, "counted")}
        own = samples.get(number, frames.telemetry.iloc[:0])
        names, times_s, values = own["channel"].to_numpy(object), own["time_s"].to_numpy(), own["value"].to_numpy()
        channels = {name: (times_s[names == name], values[names == name]) for name in (POWER, GPU_LOAD, READS)}
        yield _reduced(number, row, minibatches, channels)._replace(channels=tuple(dict.fromkeys(names)))


def _reduced(number: int, row: Mapping[str, Any], raw: Raw, series: Channels) -> Evidence:
    case, conditions = row["case"], row["conditions"]
    whole_epochs = case.settings.epochs is not None
    epochs, counted = raw["epoch"], raw["counted"].astype(bool)
    figures, exact = _figures(raw, counted, series, WARM), {}
    if whole_epochs and len(np.unique(epochs)) > 1:
        figures.update(_figures(raw, epochs == 0, series, COLD))
        exact.update(_reading(raw, series[READS], conditions))
    if not len(epochs):
        figures.update(_of_aggregates(row))
    later = [epoch for epoch in np.unique(epochs[counted]) if epoch > 0] if whole_epochs else []
    stretches: Dict[int, Stretches] = {}
    if (case.settings.minibatches or 0) >= LONG and counted.sum() >= LONG:
        minibatches = [Minibatch(*one) for one in zip(*(raw[name][counted] for name in Minibatch._fields))]
        power = Series(*map(tuple, series[POWER]))
        stretches = {length: stretches_of(minibatches, power, length) for length in (LENGTHS[0], LENGTHS[-1])}
    return Evidence(
        case=case,
        provenance=row["provenance"],
        board=str(conditions.get("board") or case.device),
        conditions=conditions,
        comparable=row["comparable"],
        flags=tuple(row["flag_kinds"]),
        figures=figures,
        exact=exact,
        epochs_s=tuple(ms_to_s(float(raw["e2e_ms"][counted & (epochs == epoch)].sum())) for epoch in later),
        stretches=stretches,
        channels=(),
        profile_ids=(number,),
    )


def _figures(raw: Raw, chosen: np.ndarray, series: Channels, phase: str) -> Dict[Tuple[str, str], Estimate]:
    """Estimates of some minibatches, but of the first of a profile (C12) and of each epoch.

    The first of an epoch waits for the workers to start. That is paid once an epoch, however long the epoch is: in the
    papers' epochs of thousands of minibatches it is nothing, in a small data set it would hide all else.
    """
    one = {name: raw[name][chosen] for name in ("epoch", "phase", "start_s", "stall_ms", "compute_ms", "e2e_ms")}
    if len(one["epoch"]) < 2:
        return {}
    begins = np.concatenate([[False], np.diff(one["epoch"]) != 0])
    kept = (one["phase"] != FIRST) & ~begins
    time, stall, compute = (one[name][kept] for name in ("e2e_ms", "stall_ms", "compute_ms"))
    found = {
        "time": series_mean(time),
        "stall": series_mean(stall),
        "compute": series_mean(compute),
        "stall_share": series_mean(stall, time),
    }
    start_s, end_s = one["start_s"][0], one["start_s"][-1] + ms_to_s(one["e2e_ms"][-1])
    for quantity, channel in (("power", POWER), ("gpu_load", GPU_LOAD)):
        times_s, values = series[channel]
        found[quantity] = series_mean(values[(start_s <= times_s) & (times_s <= end_s)])
    if found["power"] is not None and found["time"] is not None:
        per_minibatch = found["time"]._replace(value=ms_to_s(found["time"].value))
        found["energy"] = product(found["power"], per_minibatch)
    return {(name, phase): estimate for name, estimate in found.items() if estimate is not None}


def _reading(raw: Raw, reads: Tuple[np.ndarray, np.ndarray], conditions: Mapping[str, Any]) -> Dict[str, float]:
    """What later epochs read of what the first one did, and how much of the data set is cached as they begin."""
    read_bytes = []
    for epoch in np.unique(raw["epoch"]):
        own = raw["epoch"] == epoch
        starts_s = raw["start_s"][own]
        end_s = float((starts_s + ms_to_s(raw["e2e_ms"][own])).max())
        read_bytes.append(integral(*reads, float(starts_s.min()), end_s))
    found = {}
    later = [read for read in read_bytes[1:] if read is not None]
    if later and read_bytes[0]:
        found["read_again"] = sum(later) / len(later) / read_bytes[0]
    shares = [share for share in conditions.get("cache_residency_by_epoch", [])[1:] if share is not None]
    if shares:
        found["cached_share"] = sum(shares) / len(shares)
    return found


def _of_aggregates(row: Mapping[str, Any]) -> Dict[Tuple[str, str], Estimate]:
    values = {quantity: row.get(name) for quantity, name in _OF_NO_MINIBATCH.items()}
    found = {(name, WARM): Estimate(float(value), 0.0, 1) for name, value in values.items() if value and value > 0}
    if {("time", WARM), ("power", WARM)} <= set(found):
        time = found["time", WARM]
        found["energy", WARM] = product(found["power", WARM], time._replace(value=ms_to_s(time.value)))
    return found


def pooled(found: Iterable[Evidence]) -> List[Evidence]:
    """One evidence for each device, case and size of the data set: runs of the same case together, with their noise.

    Of each device only what was measured with the software of its latest profile counts. Runs that differ in seed,
    length or telemetry interval are runs of the same case; where a run has a figure for a case that others lack, it
    stands alone. What is left out stays by itself.

    Args:
        found: oldest first.
    """
    known = list(found)
    latest: Dict[str, Tuple[Any, ...]] = {}
    for one in sorted(known, key=lambda one: not one.is_left_out):  # the later ones replace earlier and left-out ones
        if one.case.task != IDLE:
            latest[one.case.device] = one.software
    groups: Dict[Tuple[Case, Any, bool], List[Evidence]] = {}
    for one in known:
        if one.case.task == IDLE or one.software == latest[one.case.device]:
            place = (same_case(one.case), one.conditions.get("data_samples"), one.is_left_out)
            groups.setdefault(place, []).append(one)
    noises: Dict[str, Dict[str, RunNoise]] = {}
    for device in {case.device for case, _, _ in groups}:
        own = [of for (case, _, left_out), of in groups.items() if case.device == device and not left_out]
        noises[device] = noise_of(own[0][0].board, [[one.figures for one in of] for of in own]) if own else {}
    return [_pool(case, members, noises[case.device]) for (case, _, _), members in groups.items()]


def same_case(case: Case) -> Case:
    """The case without what does not change what is asked: seed, length, interval and the limit of temperature."""
    each = case.settings.cache == "drop-each-epoch"  # is nothing without epochs
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
        name: over_runs([member.figures[name] for member in members if name in member.figures], noise[name[0]])
        if noise
        else members[-1].figures[name]
        for name in names
    }
    return members[-1]._replace(
        case=case,
        figures=figures,
        run_noise=noise,
        epochs_s=tuple(time_s for member in members for time_s in member.epochs_s),
        flags=tuple(dict.fromkeys(flag for member in members for flag in member.flags)),
        stretches=next((member.stretches for member in reversed(members) if member.stretches), {}),
        channels=tuple(dict.fromkeys(channel for member in members for channel in member.channels)),
        profile_ids=tuple(number for member in members for number in member.profile_ids),
    )


class View:
    """The pooled evidence of one device, as claims ask for it: cases that differ in one thing and agree in all others.

    Attributes:
        device: its name.
        evidence: one for each case.
        left_out: the same of what was disturbed or throttled; no figure is taken from it.
    """

    def __init__(self, device: str, found: Iterable[Evidence]) -> None:
        """Take the evidence of `device`; that of others is not looked at.

        Where a workload was run with a data set of a size that was asked for, cases with the small default set say
        nothing more: their epochs are so short that how they begin and end is much of them.
        """
        self.device = device
        every = [one for one in found if one.case.device == device]
        self.left_out = [one for one in every if one.is_left_out]
        own = [one for one in every if not one.is_left_out]
        sized = {_kind(one.case) for one in own if one.case.settings.data_scale is not None} - {None}
        self.evidence = [one for one in own if one.case.settings.data_scale is not None or _kind(one.case) not in sized]
        self._by_fields: Dict[Tuple[Any, ...], List[Evidence]] = {}
        for one in self.evidence:
            self._by_fields.setdefault(tuple(one.fields.values()), []).append(one)

    @property
    def provenance(self) -> str:
        """Of its profiles."""
        return (self.evidence or self.left_out)[0].provenance

    @property
    def board(self) -> str:
        """What kind of device it is, instances alike."""
        return (self.evidence or self.left_out)[0].board

    @property
    def held_down(self) -> Tuple[str, ...]:
        """The storage whose reads were held to a limit: slow media that were made of fast ones, for want of a disk."""
        limited = {one.case.storage for one in self.evidence if one.conditions.get("storage_limit_bytes_per_s")}
        return tuple(sorted(limited))

    @property
    def run_noise(self) -> Mapping[str, RunNoise]:
        """How much runs differ, for each quantity."""
        return self.evidence[0].run_noise if self.evidence else {}

    def where(self, wanted: Mapping[str, Sequence[Any]]) -> List[Evidence]:
        """Evidence whose cases have one of these values in each field; training unless another task is asked for."""
        asked = {"task": (TRAINING,), **wanted}
        return [one for one in self.evidence if all(one.fields[name] in values for name, values in asked.items())]

    def like(self, one: Evidence, changes: Mapping[str, Any], named: Iterable[str] = ()) -> Optional[Evidence]:
        """The case that agrees in all but what changes or is named; the size of the data set agrees above all."""
        differing = {*changes, *named}
        open_ones = REPEATS | differing | {name for thing in differing for name in _FOLLOWS.get(thing, ())}
        for other in self._by_fields.get(tuple({**one.fields, **changes}.values()), ()):
            names = {*one.comparable, *other.comparable} - open_ones
            if all(one.comparable.get(name) == other.comparable.get(name) for name in names):
                return other
        return None


def _kind(case: Case) -> Optional[Tuple[str, str, str]]:
    """Cases that a data set's size matters to alike; None where the cache is warm and it does not matter."""
    return None if case.settings.cache == WARM else (case.task, case.workload, case.settings.cache)
