"""Flags of profiles, doubts about their figures: disturbance, lost samples, a page cache in the wrong state."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.board import fan
from harness.board.socket_meter import SOCKET
from harness.board.throttling import PREFIX, throttled_times
from harness.core.cases import (
    COMMAND,
    CONCURRENT,
    DISTURBED_CORES,
    IDLE,
    STATIC,
    Case,
    Mix,
    case_duration_s,
    parse_storage,
    workers_and_storage,
)
from harness.core.files import read_toml
from harness.core.metrics import MIN_POWER_SAMPLES, POWER_CHANNEL, STABLE_TOLERANCE, between, end_s
from harness.core.profiles import CALLER, CLEAN, NO_SERIES, TRAINED_BY, Minibatch, Profile, Telemetry
from harness.core.units import bytes_to_mb
from harness.workloads.data.data_set import IN_MEMORY

ACCOUNTING_S = 0.03
"""Error of the kernel's CPU accounting, which counts ticks of 10 ms; a large share of a short profile."""

KINDS = ("ssd", "hdd", "sd", "emmc", "ram")  # names of storage that state the kind of medium
NOISY_SHARE = 0.2  # an interquartile range above this share of the median is flagged
BATCHES_WAITING = 2  # one batch may fill up while another waits for a training minibatch; more is a growing queue
CAPPED = "gpu_power_capped_share"  # of a discrete GPU: its power limit holds it down
UNSYNCHRONISED_SHARE = 0.1  # of the minibatches of a loop; more are flagged
RPM_SHARE = 0.1  # nvfancontrol's own tolerance is 100 turns of some 1,000 to 3,000
COLD_SHARE, WARM_SHARE = 0.05, 0.95  # residency that still counts as cold and as warm

_QUOTA = "the container used up its CPU quota in {} periods and had to wait for the next"
_LEFT = "{} processes that the command had started ran on after its end, and were killed"
_SCALED = "this workload was never measured; it is scaled from {} and may be off by a factor of 2.2"
_NO_HEAT = "the run must end above {:g} C, and there is no temperature sensor"
_NOT_CLEAN = "not-clean: this process had loaded torch and may have kept the GPU awake; run test_baseload.py by itself"


class FlagMeaning(NamedTuple):
    """What the documentation says of a kind of flag."""

    raised: str  # when the flag is raised
    remedy: str  # what to do; empty if there is nothing to do


def flag_meanings() -> Dict[str, FlagMeaning]:
    """The meaning of every kind of flag, also of those that devices and `results prune` add, from `flags.toml`."""
    path = Path(__file__).with_name("flags.toml")
    return {kind: FlagMeaning(*texts) for kind, texts in read_toml(path).items()}


def find_flags(profile: Profile) -> List[str]:
    """All flags of a measured or simulated profile, each `kind: text`; a replayed one has those of its corpus."""
    if profile.provenance == "replayed":
        return []
    case, conditions, minibatches = profile.case, profile.conditions, profile.minibatches
    telemetry, aggregates = profile.telemetry, profile.aggregates
    start, end = stretch(profile)
    if case.task == IDLE:
        return [
            *_socket(telemetry, aggregates),
            *_peaks(conditions, telemetry, start, end),
            *(_disturbance(case, start, end, telemetry) if conditions["logging"] == "on" else ()),
            *_throttling(start, end, telemetry),
            *_fan(conditions, telemetry, start, end),
            *_clocks(case, conditions, between(telemetry.series.get(CAPPED, NO_SERIES), start, end).values),
            *_telemetry_gaps(telemetry),
            *idle_power_flags(telemetry, start, end),
            *([] if conditions["clean_process"] else [_NOT_CLEAN]),
        ]
    slowdown = conditions.get("injected_slowdown")
    periods, watched = conditions.get("cpu_quota_throttled_periods"), conditions.get("temperature_limits_c")
    most_c = case.settings.max_temperature_c
    common = [
        *([f"injected: every minibatch was made {slowdown:.1%} slower on purpose (--slowdown)"] if slowdown else []),
        *_disturbance(case, start, end, telemetry),
        *_throttling(start, end, telemetry),
        *_fan(conditions, telemetry, start, end),
        *_socket(telemetry, aggregates),
        *_peaks(conditions, telemetry, start if case.task == COMMAND else minibatches[0].start_s, end),
        *([f"cpu-quota: {_QUOTA.format(periods)}"] if periods else []),
        *_clocks(case, conditions, between(telemetry.series.get(CAPPED, NO_SERIES), start, end).values),
        *([f"temperature-unwatched: {_NO_HEAT.format(most_c)}"] if most_c and not watched else []),
    ]
    if case.task == COMMAND:
        rehearsed_as, left = conditions.get("rehearsed_as"), conditions.get("left_behind_processes")
        return [
            *([f"rehearsed: the command was not started; {rehearsed_as} stands for it"] if rehearsed_as else []),
            *_pattern(conditions, aggregates),
            *([f"left-behind: {_LEFT.format(left)}"] if left else []),
            *common,
            *_cut_and_noise(case, conditions, minibatches, aggregates),
            *_telemetry_gaps(telemetry),
            *_power_gaps(telemetry),
        ]
    if case.task == CONCURRENT:
        flags = [*common, *_telemetry_gaps(telemetry), *_power_gaps(telemetry), *_power_scope(conditions, telemetry)]
        waiting = aggregates["waiting"] or 0.0
        if waiting > BATCHES_WAITING * Mix.parse(case.workload).batch_size:
            flags.append(f"overloaded: {waiting:.0f} requests were waiting at the end")
        return flags
    return [
        *common,
        *_cut_and_noise(case, conditions, minibatches, aggregates),
        *_telemetry_gaps(telemetry),
        *_power(conditions, telemetry, aggregates),
        *(_own_loop(case, conditions, telemetry, aggregates) if conditions.get(TRAINED_BY) == CALLER else ()),
        *(() if conditions.get(TRAINED_BY) else _data(case, conditions, minibatches)),
        *(() if conditions.get(TRAINED_BY) else _storage(workers_and_storage(case)[1], conditions)),
        *([f"rough: {_SCALED.format(conditions['scaled_from'])}"] if conditions.get("scaled_from") else []),
        # inference and simulated boards have no loss
        *(["diverged: the loss is not a finite number any more"] if conditions.get("last_loss", 0.0) is None else []),
    ]


def _pattern(conditions: Mapping[str, Any], aggregates: Mapping[str, Optional[float]]) -> Iterator[str]:
    """A pattern of a command's minibatches that gave none."""
    lines, buffered = conditions.get("pattern_lines"), conditions.get("buffered_lines")
    if lines is None or aggregates["minibatch_time_ms"] is not None:
        return
    if buffered:
        yield f"no-minibatches: {buffered} of {lines} lines came with the line before: the program buffers its output"
    elif lines:
        yield f"no-minibatches: {lines} lines matched the pattern, and no minibatch counts"
    else:
        yield "no-minibatches: no line of the output matched the pattern"


def _peaks(conditions: Mapping[str, Any], telemetry: Telemetry, start: float, end: float) -> Iterator[str]:
    """Samples above the limits of supply and board; shorter peaks may be higher still."""
    peaks = []
    for channel, limit_mw, words in conditions.get("power_limits") or ():
        peak_mw = max(between(telemetry.series.get(channel, NO_SERIES), start, end).values, default=0.0)
        if peak_mw > limit_mw:
            peaks.append(f"{channel} was {peak_mw:.0f} in a sample, above {limit_mw:.0f}, {words}")
    if peaks:
        yield f"power-peak: {'; '.join(peaks)}"


def _socket(telemetry: Telemetry, aggregates: Mapping[str, Optional[float]]) -> Iterator[str]:
    if SOCKET in telemetry.missing:
        yield f"socket-meter: {telemetry.missing[SOCKET]}"
    elif SOCKET in telemetry.series and None in (aggregates["socket_power_mw"], aggregates["socket_energy_mwh"]):
        yield "socket-meter: its samples have gaps, or are too rare for such a short case"


def stretch(profile: Profile) -> Tuple[float, float]:
    """Start and end of the time that a profile's figures cover, in monotonic seconds."""
    if profile.case.task in (IDLE, COMMAND):  # the sampler takes its last sample at their end
        last = max((series.times_s[-1] for series in profile.telemetry.series.values() if series.times_s), default=0.0)
        lasted_s = profile.aggregates["wall_time_s"] if profile.case.task == COMMAND else case_duration_s(profile.case)
        assert lasted_s is not None, "`summarise_command` measures it"
        return last - lasted_s, last
    if profile.case.task == CONCURRENT:
        start, lasted_s = profile.minibatches[0].start_s, profile.aggregates["e2e_s"]
        assert lasted_s is not None, "`summarise_concurrent` measures it"
        return start, start + lasted_s
    counted = profile.counted or profile.minibatches  # a loop of the user's own may end before any counts
    return counted[0].start_s, end_s(counted[-1])


def _disturbance(case: Case, start: float, end: float, telemetry: Telemetry) -> Iterator[str]:
    if "cpu_other_cores" not in telemetry.series:
        yield "disturbance-unknown: what other processes used could not be measured"
        return
    allowed, used = case.settings.disturbance_cores or DISTURBED_CORES, []
    for channel, who in (("cpu_other_cores", "other processes"), ("cpu_steal_cores", "the hypervisor's other guests")):
        series = telemetry.series.get(channel, NO_SERIES)
        # A sample is the mean since the previous one. If none ends within the clean minibatches, the next covers them.
        values = between(series, start, end).values or between(series, end, math.inf).values[:1]
        if values and sum(values) / len(values) > allowed + ACCOUNTING_S / (end - start):
            used.append(f"{who} used {sum(values) / len(values):.2f} cores")
    beside = between(telemetry.series.get("gpu_other_processes", NO_SERIES), start, end).values
    if any(beside):
        used.append(f"{max(beside):.0f} other processes used the GPU")
    if used:
        yield f"disturbed: {' and '.join(used)} meanwhile"


def _throttling(start: float, end: float, telemetry: Telemetry) -> Iterator[str]:
    """When and how long heat or over-current lowered clocks, relative to the first minibatch that counts."""
    if not any(channel.startswith(PREFIX) for channel in telemetry.series):
        return
    times = [time for time in throttled_times(telemetry.series) if time.start_s < end and time.end_s > start]
    if times:
        yield f"throttled: {'; '.join(time.text(start) for time in times)}"


def _fan(conditions: Mapping[str, Any], telemetry: Telemetry, start: float, end: float) -> Iterator[str]:
    """Fans that did not keep the speed to which the run set them, or whose speed changed."""
    moved = []
    for channel, series in telemetry.series.items():
        named, values = fan.CHANNEL.fullmatch(channel), between(series, start, end).values
        if not named or not values:
            continue
        unit = named["unit"]
        lowest, highest, held = min(values), max(values), conditions.get("fan_set_pwm")
        if unit == "pwm" and held is not None and (lowest, highest) != (held, held):
            off = sum(value != held for value in values)
            moved.append(f"{channel} was {lowest:g} to {highest:g}, not {held}, in {off} of {len(values)} samples")
        elif (unit == "pwm" and held is None and lowest < highest) or lowest < (1 - RPM_SHARE) * highest:
            moved.append(f"{channel} went from {lowest:g} to {highest:g}")
    if moved:
        yield f"fan-moved: {'; '.join(moved)}"


def _clocks(case: Case, conditions: Mapping[str, Any], capped: Sequence[float]) -> Iterator[str]:
    """Clocks that should have been static: DVFS stayed on, or readings differ from what was set (C3).

    A power limit lowers the GPU clock on purpose: where it did, by the samples `capped`, the clock is not flagged.
    """
    if case.settings.clocks != STATIC or "dvfs" not in conditions:
        return  # clocks cannot be held on this device
    reasons = ["DVFS is on"] if conditions["dvfs"] == "on" else []
    if conditions.get("memory_clock_free"):
        reasons.append(f"the memory clock is not held: {conditions['memory_clock_free']}")
    for channel, use in (conditions.get("clock_use") or {}).items():
        if use["off"] and not (channel == "gpu_khz" and any(capped)):
            reasons.append(f"{channel} was not {use['set_khz']} in {use['off']} of {use['samples']} samples")
    if reasons:
        yield f"not-static: {'; '.join(reasons)}"


def _cut_and_noise(
    case: Case,
    conditions: Mapping[str, Any],
    minibatches: Sequence[Minibatch],
    aggregates: Mapping[str, Optional[float]],
) -> Iterator[str]:
    median, q1, q3 = (aggregates.get(f"minibatch_time_{part}ms") for part in ("", "q1_", "q3_"))
    if median and q1 is not None and q3 is not None and (q3 - q1) / median > NOISY_SHARE:
        yield f"noisy: the interquartile range is {(q3 - q1) / median:.0%} of the median"
    wanted, limit_s, share_s = case.settings.minibatches, case.settings.limit_s, conditions.get("time_share_s")
    clean = sum(minibatch.phase == CLEAN for minibatch in minibatches)
    if wanted is not None and clean < wanted and (limit_s or share_s) is not None:
        reason = f"they took longer than {limit_s or share_s:g} s"
        if share_s is not None and (limit_s is None or share_s < limit_s):
            reason = f"they took longer than {share_s:g} s, their share of the run's time budget"
        yield f"cut: {clean} of {wanted} minibatches, because {reason}"


def _own_loop(
    case: Case, conditions: Mapping[str, Any], telemetry: Telemetry, aggregates: Mapping[str, Optional[float]]
) -> Iterator[str]:
    """What a loop of the user's own may lack: it decides itself how long it runs, and when it waits for the GPU."""
    ended_by = conditions.get("ended_by")
    if ended_by is not None:
        yield f"ended-early: {ended_by} ended the block"
    clean, wanted = aggregates.get("clean_minibatches") or 0.0, case.settings.minibatches or 0
    if clean < wanted:
        yield f"few-minibatches: {clean:.0f} of at least {wanted} came after the first one and after power had settled"
    elif POWER_CHANNEL in telemetry.series and (aggregates.get("power_samples") or 0.0) < MIN_POWER_SAMPLES:
        samples = aggregates.get("power_samples") or 0.0
        yield f"few-minibatches: they have {samples:.0f} power samples, at least {MIN_POWER_SAMPLES} make a median"
    share = conditions.get("unsynchronised_share") or 0.0
    if share > UNSYNCHRONISED_SHARE:
        yield (
            f"unsynchronised: in {share:.0%} of the minibatches the loop went on before the GPU had computed them; "
            "their ends are those of the GPU's kernels"
        )
    dropped = conditions.get("dropped_minibatches")
    if dropped:
        yield f"dropped-minibatches: the GPU had not computed the last {dropped} by the end; they are left out"
    other = conditions.get("other_gpu")
    if other:
        yield f"other-gpu: the training ran on {other[0]}; power, clocks and heat are those of {other[1]}"
    untimed = conditions.get("untimed_gpus")
    if untimed:
        names = ", ".join(f"cuda:{gpu}" for gpu in untimed)
        yield f"untimed-gpus: this process used {names} too, whose kernels were not timed"


def _telemetry_gaps(telemetry: Telemetry) -> Iterator[str]:
    if telemetry.died_at_s is not None:
        yield "telemetry-lost: the sampler died during the profile"
    if telemetry.lost_samples:
        yield f"lost-samples: {telemetry.lost_samples} telemetry samples were not taken in time"


def _power(
    conditions: Mapping[str, Any], telemetry: Telemetry, aggregates: Mapping[str, Optional[float]]
) -> Iterator[str]:
    yield from _power_gaps(telemetry)
    if POWER_CHANNEL in telemetry.series and aggregates.get("power_settled_s") is None:
        yield "power-unsettled: power never became stable"
    yield from _power_scope(conditions, telemetry)


def _power_gaps(telemetry: Telemetry) -> Iterator[str]:
    if POWER_CHANNEL in telemetry.missing:
        yield f"power-gaps: {telemetry.missing[POWER_CHANNEL]}"


def _power_scope(conditions: Mapping[str, Any], telemetry: Telemetry) -> Iterator[str]:
    """Whether a GPU that the case uses is outside of the total."""
    accelerator = conditions.get("accelerator", "cpu")
    if POWER_CHANNEL in telemetry.series and conditions.get("power_source") == "rapl" and accelerator != "cpu":
        yield f"power-without-gpu: the power of {accelerator} is not in the total"


def idle_power_flags(telemetry: Telemetry, start: float, end: float) -> Iterator[str]:
    """As `_power`. Nothing changes while a device idles, so both halves of the time must have the same power."""
    yield from _power_gaps(telemetry)
    power = between(telemetry.series.get(POWER_CHANNEL, NO_SERIES), start, end)
    half = len(power.values) // 2
    if half < 2:
        return
    early_mw, late_mw = statistics.median(power.values[:half]), statistics.median(power.values[-half:])
    if abs(late_mw - early_mw) > STABLE_TOLERANCE * abs(statistics.median(power.values)):
        change = f"from {early_mw:.0f} mW in the first half to {late_mw:.0f} mW in the second"
        yield f"power-unsettled: power went {change}"


def _data(case: Case, conditions: Mapping[str, Any], minibatches: Sequence[Minibatch]) -> Iterator[str]:
    """Whether the page cache had the requested state, and whether the data set was read more than once."""
    state, share = case.settings.cache, conditions.get("cache_residency_before")
    if state != "as-is" and conditions.get("cache_method") != IN_MEMORY:
        if share is None:
            yield "cache-unknown: the data set's residency in the page cache could not be measured"
        elif state == "warm" and share < WARM_SHARE:
            yield f"not-warm: {share:.0%} of the data set was in the page cache at the start"
        elif state != "warm" and share > COLD_SHARE:
            yield f"not-cold: {share:.0%} of the data set was in the page cache at the start"
    if conditions["data_in_memory"]:
        yield "in-memory: the data set is not read from files while training, so storage and page cache play no part"
        return
    samples = conditions["data_samples"]
    passes = len(minibatches) * case.batch_size / samples
    if case.settings.epochs is None and passes > 1 and (share is None or share < WARM_SHARE):
        yield f"data-reread: the {samples} samples were read {passes:.1f} times, so later minibatches were warm"


def _storage(storage: str, conditions: Mapping[str, Any]) -> Iterator[str]:
    medium, limit_bytes_per_s = conditions["storage_medium"], conditions.get("storage_limit_bytes_per_s")
    kind, name = medium.get("kind"), parse_storage(storage).medium
    if kind == IN_MEMORY:
        return
    where = f"the data set is on {medium.get('mount_point') or 'an unknown medium'}"
    if limit_bytes_per_s is not None:
        limit = f"{bytes_to_mb(limit_bytes_per_s):g} MB/s"
        yield f"storage-throttled: reads from the disk were limited to {limit} by a control group"
    if name in KINDS and kind is not None and kind != name:
        yield f"storage-mislabelled: {where}, whose kind is {kind}"
    elif kind is None and conditions["storage_is_default_place"]:
        transport = medium.get("transport") or "transport unknown"
        yield f"storage-unverified: {where} ({transport}), which may not be {name!r}"
