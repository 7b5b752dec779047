"""What profiles say to the papers' claims: means with their noise, warm and cold, one evidence for each case.

Evidence is made of a profile once; raw series are not needed after that.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import AXES, CONCURRENT, IDLE, TRAINING, Case, Settings
from harness.core.metrics import CONCURRENT_AGGREGATES, POWER_CHANNEL, integral
from harness.core.profiles import FIRST, Minibatches, Profile, Series
from harness.core.units import ms_to_s
from harness.stats.estimates import Estimate, product, quotient, series_mean
from harness.stats.experiments import LENGTHS, LONG, Stretches, stretches_of
from harness.stats.noise import RunNoise, noise_of, over_runs
from harness.store.conditions import comparable_conditions, is_disqualified, kinds
from harness.store.frames import FOLLOWS_IN_CLAIMS, profiles

if TYPE_CHECKING:
    from harness.store.results import ResultsStore

WARM, COLD = "warm", "cold"
"""Epochs 1 and later, or a profile without epochs; and epoch 0 of a profile with epochs (A3)."""

MEASURED, SIMULATED = "measured", "simulated"
SOFTWARE = ("jetpack", "l4t", "torch", "cuda", "python")  # comparable conditions that may differ between runs

# Channels that figures are made of.
POWER, GPU_LOAD, READS, MEMORY = POWER_CHANNEL, "gpu_load_share", "disk_read_bytes_per_s", "memory_used_bytes"

_OF_NO_MINIBATCH = {"time": "minibatch_time_ms", "power": "power_mw", **{name: name for name in CONCURRENT_AGGREGATES}}
"""Quantities of a replayed, an idle or a concurrent profile, and the aggregates that they are."""

_SETTINGS = ("cache", "data_scale", "clocks")
FIELDS = (*(axis for axis in AXES if axis != "device"), *_SETTINGS, "task")  # what tells the cases of a device apart

REPEATS = {"minibatches", "epochs", "idle_s", "duration_s", "seed"}
"""Comparable conditions in which runs of one case may differ."""

Figures = Dict[Tuple[str, str], Estimate]  # (quantity, phase) to its estimate


class Evidence(NamedTuple):
    """What one profile says; or, pooled, the runs of a case."""

    case: Case  # what was asked for
    provenance: str
    board: str  # the kind of device, instances alike: `xavier-agx`; the device's name where nothing tells
    conditions: Mapping[str, Any]
    comparable: Mapping[str, Any]  # those that must agree where nobody named them
    flags: Tuple[str, ...]  # their kinds
    # `time`, `stall`, `compute` in ms per minibatch, `stall_share`, `power` in mW, `energy` in mWs per minibatch,
    # `gpu_load`, `memory` in bytes; phases are `WARM` and `COLD`
    figures: Mapping[Tuple[str, str], Estimate]
    # figures without noise: `read_again`, what later epochs read of what the first one did; `cached_share` of the data
    # set when later epochs begin
    exact: Mapping[str, float]
    epochs_s: Tuple[float, ...]  # duration of epochs 1 and later
    stretches: Mapping[int, Stretches]  # by length, what shorter profiles would have said; of one meant to be long
    channels: Tuple[str, ...]  # of its telemetry
    profile_ids: Tuple[int, ...] = ()  # the profiles that it is made of
    run_noise: Mapping[str, RunNoise] = {}  # between runs of its device, for each quantity, once it is pooled

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
    """The evidence of every profile of a results file, oldest first; raw series are read one profile at a time.

    Where the file has several instances of a board, each is a device of its own: `orin-agx@orin3`.
    """
    for number, label in profiles(store, include_flagged=True)["device_label"].items():
        one = evidence_of(store.profile(int(number)), int(number))
        yield one._replace(case=dataclasses.replace(one.case, device=label))


def evidence_of(profile: Profile, number: int = 0) -> Evidence:
    """The evidence of a profile with its raw series; `number` is its id in the results file, if it is in one."""
    case, conditions, minibatches = profile.case, profile.conditions, Minibatches.of(profile.minibatches)
    epochs, times_ms = minibatches.columns["epoch"], minibatches.columns["e2e_ms"]
    whole_epochs = case.settings.epochs is not None
    counted = minibatches.counted(whole_epochs)
    figures, exact = _figures(minibatches, counted, profile, WARM), {}
    if whole_epochs and (epochs != epochs[:1]).any():
        figures.update(_figures(minibatches, epochs == 0, profile, COLD))
        exact.update(_reading(profile))
    if not len(minibatches):
        figures.update(_of_aggregates(profile.aggregates))
    elif case.task == CONCURRENT:
        of_both = {name: profile.aggregates.get(name) for name in CONCURRENT_AGGREGATES}
        figures.update(_of_aggregates(of_both))
    later = counted & (epochs > 0) & whole_epochs
    stretches: Dict[int, Stretches] = {}
    if (case.settings.minibatches or 0) >= LONG and counted.sum() >= LONG:
        power = profile.telemetry.series.get(POWER, Series((), ()))
        stretches = {length: stretches_of(profile.counted, power, length) for length in (LENGTHS[0], LENGTHS[-1])}
    return Evidence(
        case=case,
        provenance=profile.provenance,
        board=str(conditions.get("board") or case.device),
        conditions=conditions,
        comparable=comparable_conditions(conditions, case, profile.provenance),
        flags=tuple(kinds(profile.flags)),
        figures=figures,
        exact=exact,
        epochs_s=tuple(ms_to_s(float(times_ms[later & (epochs == each)].sum())) for each in np.unique(epochs[later])),
        stretches=stretches,
        channels=tuple(profile.telemetry.series),
        profile_ids=(number,),
    )


def _figures(minibatches: Minibatches, chosen: np.ndarray, profile: Profile, phase: str) -> Figures:
    """Estimates of some minibatches, but of the first of a profile (C12) and of each epoch.

    The first of an epoch waits for the workers to start. That is paid once an epoch, however long the epoch is: in the
    papers' epochs of thousands of minibatches it is nothing, in a small data set it would hide all else.
    """
    if chosen.sum() < 2:
        return {}
    own = {name: column[chosen] for name, column in minibatches.columns.items()}
    kept = (own["phase"] != FIRST) & (np.diff(own["epoch"], prepend=own["epoch"][0]) == 0)
    time, stall, compute = (own[name][kept] for name in ("e2e_ms", "stall_ms", "compute_ms"))
    found = {
        "time": series_mean(time),
        "stall": series_mean(stall),
        "compute": series_mean(compute),
        "stall_share": series_mean(stall, time),
    }
    start_s, end_s = own["start_s"][0], own["start_s"][-1] + ms_to_s(own["e2e_ms"][-1])
    for quantity, channel in (("power", POWER), ("gpu_load", GPU_LOAD), ("memory", MEMORY)):
        times_s, values = map(np.asarray, profile.telemetry.series.get(channel, Series((), ())))
        found[quantity] = series_mean(values[(start_s <= times_s) & (times_s <= end_s)])
    if found["power"] is not None and found["time"] is not None:
        per_minibatch = found["time"]._replace(value=ms_to_s(found["time"].value))
        found["energy"] = product(found["power"], per_minibatch)
    return {(name, phase): estimate for name, estimate in found.items() if estimate is not None}


def _reading(profile: Profile) -> Dict[str, float]:
    """What later epochs read of what the first one did, and how much of the data set is cached as they begin."""
    reads = [np.asarray(each) for each in profile.telemetry.series.get(READS, Series((), ()))]
    columns = Minibatches.of(profile.minibatches if len(reads[0]) else []).columns
    epochs, starts_s, times_ms = (columns[name] for name in ("epoch", "start_s", "e2e_ms"))
    ends_s = starts_s + ms_to_s(times_ms)
    read_bytes = [
        integral(*reads, starts_s[epochs == epoch].min(), ends_s[epochs == epoch].max()) for epoch in np.unique(epochs)
    ]
    found = {}
    later = [read for read in read_bytes[1:] if read is not None]
    if later and read_bytes[0]:
        found["read_again"] = sum(later) / len(later) / read_bytes[0]
    shares = [share for share in profile.conditions.get("cache_residency_by_epoch", [])[1:] if share is not None]
    if shares:
        found["cached_share"] = sum(shares) / len(shares)
    return found


def _of_aggregates(aggregates: Mapping[str, Optional[float]]) -> Figures:
    values = {quantity: aggregates.get(name) for quantity, name in _OF_NO_MINIBATCH.items()}
    found = {(name, WARM): Estimate(float(value), 0.0, 1) for name, value in values.items() if value and value > 0}
    if {("time", WARM), ("power", WARM)} <= set(found):
        time = found["time", WARM]
        found["energy", WARM] = product(found["power", WARM], time._replace(value=ms_to_s(time.value)))
    return found


def pooled(found: Iterable[Evidence]) -> List[Evidence]:
    """One evidence for each device, case and size of the data set: runs of the same case together, with their noise.

    Of each device only what was measured with the software of its latest profile counts. Runs that differ in seed,
    length or telemetry interval are runs of the same case; where a run has a figure for a case that others lack, it
    stands alone. What is left out stays by itself. The oldest is given first.
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
    asked = case.settings
    length = {"minibatches": None, "epochs": 1} if asked.cache == "drop-each-epoch" else {"minibatches": 1}
    settings = Settings(
        **length,
        cache=asked.cache,
        data_scale=asked.data_scale,
        clocks=asked.clocks,
        disturbance_cores=asked.disturbance_cores,
    )
    return dataclasses.replace(case, settings=settings)


def _pool(case: Case, members: Sequence[Evidence], noise: Mapping[str, RunNoise]) -> Evidence:
    names = {name for member in members for name in member.figures}
    figures = {}
    for name in names:
        told = [member.figures[name] for member in members if name in member.figures]
        figures[name] = over_runs(told, noise[name[0]]) if name[0] in noise else told[-1]  # of runs left out alone
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
    """The pooled evidence of one device, as claims ask for it: cases that differ in one thing and agree in others."""

    def __init__(self, device: str, found: Iterable[Evidence]) -> None:
        """Take the evidence of `device`; that of others is not looked at.

        Where a workload was run with a data set of a size that was asked for, cases with the small default set say
        nothing more: their epochs are so short that how they begin and end is much of them.
        """
        self.device = device
        every = [one for one in found if one.case.device == device]
        self.provenance, self.board = every[0].provenance, every[0].board
        self.left_out = [one for one in every if one.is_left_out]  # disturbed or throttled: no figure is taken from it
        own = [one for one in every if not one.is_left_out]
        sized = {_kind(one.case) for one in own if one.case.settings.data_scale is not None} - {None}
        self.evidence = [one for one in own if one.case.settings.data_scale is not None or _kind(one.case) not in sized]
        self.run_noise = self.evidence[0].run_noise if self.evidence else {}
        # Storage whose reads were held to a limit: slow media that were made of fast ones, for want of a disk.
        limited = {one.case.storage for one in self.evidence if one.conditions.get("storage_limit_bytes_per_s")}
        self.held_down = tuple(sorted(limited))
        self.fields = [one.fields for one in self.evidence]
        self._by_fields: Dict[Tuple[Any, ...], List[Evidence]] = {}
        for one, fields in zip(self.evidence, self.fields):
            self._by_fields.setdefault(tuple(fields.values()), []).append(one)

    def where(self, wanted: Mapping[str, Sequence[Any]]) -> List[Evidence]:
        """Evidence whose cases have one of these values in each field; training unless another task is asked for."""
        asked = {"task": (TRAINING,), **wanted}
        return [
            one
            for one, fields in zip(self.evidence, self.fields)
            if all(fields[name] in values for name, values in asked.items())
        ]

    def like(self, one: Evidence, changes: Mapping[str, Any], named: Iterable[str] = ()) -> Optional[Evidence]:
        """The case that agrees in all but what changes or is named; the size of the data set agrees above all."""
        differing = {*changes, *named}
        open_ones = REPEATS | differing | {name for thing in differing for name in FOLLOWS_IN_CLAIMS.get(thing, ())}
        for other in self._by_fields.get(tuple({**one.fields, **changes}.values()), ()):
            names = {*one.comparable, *other.comparable} - open_ones
            if all(one.comparable.get(name) == other.comparable.get(name) for name in names):
                return other
        return None


def _kind(case: Case) -> Optional[Tuple[str, str, str]]:
    """Cases that a data set's size matters to alike; None where the cache is warm and it does not matter."""
    return None if case.settings.cache == WARM else (case.task, case.workload, case.settings.cache)
