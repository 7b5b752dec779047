"""Profiles judged by requirements: PASS if a figure's interval keeps the limit, FAIL if it lies beyond, else undecided.

Intervals are two-sided, 95 %: of quantiles and of miss ratios those of `harness.stats.tails`, of power, energy, memory
and throughput those of a baseline, with the noise between runs. A temperature reaches from the highest sample to what
it may still become: higher by as much as it rose in the last quarter of the profile, which is at least as much as it
has yet to rise if the profile is 2.3 times as long as the time constant of the heat-up.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import Case
from harness.core.channels import follows_heat
from harness.core.profiles import DISQUALIFYING, Profile, Series, flag_kinds, flagged_in_words
from harness.core.terminal import counted, format_table, wrap
from harness.judge.case_frame import SOFTWARE
from harness.judge.comparison import exit_code_of
from harness.judge.quantities import MEMORY, POWER, GatedQuantity
from harness.judge.requirements import LEAST, RANGES, Limit, Origin, read_requirements
from harness.judge.sides import comparable_profiles, counted_series, runs_of_cases
from harness.stats import noise
from harness.stats.comparison import median_of_runs
from harness.stats.estimates import CONFIDENCE, Interval
from harness.stats.noise import prior
from harness.stats.tails import EXPECTED_LENGTH, MOST_NEEDED, design_effect, miss_ratio, quantile, values_needed
from harness.store.frames import common_conditions, labelled, telemetry
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd

PASS, FAIL, INCONCLUSIVE, NO_CASE = "PASS", "FAIL", "INCONCLUSIVE", "NO CASE"
"""Verdicts; the last one on a requirement that no case met."""

LENGTH = ("minibatches", "epochs", "seed")
"""Conditions that do not change whether a case keeps its limits: further minibatches make its tail better known."""

FEWEST_SAMPLES = 8  # of a temperature, two in each quarter of the profile; fewer do not show whether it still rises
_NAMED_CASES = 3  # below the table, for each note

ENERGY = GatedQuantity(
    "energy per sample",
    "energy_per_sample_mws",
    "mJ",
    "energy",
    worse="more energy",
    better="less energy",
    tolerance=POWER.tolerance,
    unsure_flags=POWER.unsure_flags,
)
PEAK_POWER = POWER._replace(name="peak power", column="power_peak_mw")
THROUGHPUT = GatedQuantity(
    "throughput",
    "samples_per_s",
    "samples/s",
    noise.TIME,
    worse="slower",
    better="faster",
    tolerance=0.05,
    more_is_worse=False,
)

ESTIMATED: Dict[str, GatedQuantity] = {
    "samples_per_s": THROUGHPUT,
    "energy_per_sample_mj": ENERGY,
    "power_w": POWER,
    "peak_power_w": PEAK_POWER,
    "memory_mib": MEMORY,
}
"""Figures with one value a run."""

QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}
TEMPERATURE = "temperature_c"


class RequirementVerdict(NamedTuple):
    """The verdict on one figure of a case."""

    case: str  # its id; empty if no case met the requirement
    requirement: str  # where it stands, and which cases it selects
    figure: str  # `p99_ms`, `miss_ratio at 33 ms`; empty if no case met the requirement
    status: str  # `PASS`, `FAIL`, `INCONCLUSIVE` or `NO CASE`
    limit: Optional[float]  # in the unit that ends the figure's name; of a miss ratio a share
    value: Optional[float] = None  # in the same unit; None if it was not measured
    low: Optional[float] = None  # its interval
    high: Optional[float] = None  # None too if it is not bounded
    runs: int = 0
    minibatches: int = 0  # that count, in all runs
    missing: Optional[int] = None  # how many minibatches more would decide; None if it is decided or not known
    provenance: str = ""
    notes: Tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The verdict in one line."""
        if not self.case:
            return f"{self.requirement}: {self.status}: {'; '.join(self.notes)}"
        value, interval, limit = _figure_cells(self)
        figure = "" if self.value is None else f", {value} ({interval}), required {limit}"
        return f"{self.case}: {self.figure}: {self.status}{figure}" + "".join(f"; {note}" for note in self.notes)


class RequiredRun(NamedTuple):
    """What requirements need of a profile."""

    times_ms: Sequence[float]  # of the minibatches that count
    figures: Mapping[str, Any]  # aggregates by name; None or NaN without a sensor
    flags: Sequence[str]
    temperatures: Sequence[Series] = ()  # of sensors that follow the heat


class RequiredCase(NamedTuple):
    """What requirements need of a case."""

    name: str
    axes: Mapping[str, Sequence[str]]  # the names that its value of each axis goes by
    device: str
    provenance: str
    runs: Sequence[RequiredRun]
    doubt: str = ""  # why nothing is decided by its figures


class _Judged(NamedTuple):
    """A figure with its interval, in the unit of its limit; None if it was not measured, and the reason."""

    interval: Optional[Interval]
    note: str = ""  # if the interval decides nothing
    missing: Optional[int] = None


def judge_case(case: RequiredCase, origins: Sequence[Origin]) -> List[RequirementVerdict]:
    """The verdicts on a case: one for each limit of each requirement that selects it."""
    verdicts = []
    for origin in origins:
        if not origin.requirement.selects(case.axes):
            continue
        for limit in origin.requirement.limits:
            judged = _judge(case, limit)
            status = _status(judged.interval, limit)
            notes = [case.doubt] if case.doubt else []
            if status == INCONCLUSIVE and judged.note:
                notes.append(judged.note)
            verdict = RequirementVerdict(
                case.name,
                str(origin),
                limit.figure,
                INCONCLUSIVE if case.doubt else status,
                limit.value,
                runs=len(case.runs),
                minibatches=sum(len(run.times_ms) for run in case.runs),
                missing=judged.missing if status == INCONCLUSIVE else None,
                provenance=case.provenance,
                notes=tuple(notes),
            )
            if judged.interval is not None:
                value, low, high = judged.interval
                verdict = verdict._replace(value=value, low=low, high=high if math.isfinite(high) else None)
            verdicts.append(verdict)
    return verdicts


def _status(interval: Optional[Interval], limit: Limit) -> str:
    if interval is None:
        return INCONCLUSIVE
    if limit.is_least:
        return PASS if interval.low >= limit.value else FAIL if interval.high < limit.value else INCONCLUSIVE
    return PASS if interval.high <= limit.value else FAIL if interval.low > limit.value else INCONCLUSIVE


def _judge(case: RequiredCase, limit: Limit) -> _Judged:
    if limit.key in ESTIMATED:
        return _estimated(case, limit)
    return _tail(case, limit) if is_of_tail(limit) else _temperature(case)


def _tail(case: RequiredCase, limit: Limit) -> _Judged:
    """A quantile, or a miss ratio; a quantile keeps its limit if the share beyond that does."""
    series = [run.times_ms for run in case.runs if len(run.times_ms)]
    if not series:
        return _Judged(None, "no minibatch counts")
    beyond_ms, most = tail_of(limit)
    if limit.period_ms is None:
        interval = quantile(series, QUANTILES[limit.key], beyond_ms)
    else:
        interval = miss_ratio(series, beyond_ms)
    if _status(interval, limit) != INCONCLUSIVE:
        return _Judged(interval)
    count = sum(map(len, series))
    needed = values_needed(miss_ratio(series, beyond_ms).value, most, design_effect(series, beyond_ms))
    if needed is None:
        return _Judged(interval, f"{count} minibatches; the share beyond the limit is too near to it")
    missing = max(1, needed - count)
    return _Judged(interval, f"{count} minibatches, about {missing} more would decide", missing)


def tail_of(limit: Limit) -> Tuple[float, float]:
    """The time of a limit on a tail, and the share of minibatches that may take longer."""
    if limit.period_ms is not None:
        return limit.period_ms, limit.value
    return limit.value, 1 - QUANTILES[limit.key]


def is_of_tail(limit: Limit) -> bool:
    return limit.key in QUANTILES or limit.period_ms is not None


def minibatches_needed(axes: Mapping[str, Sequence[str]], origins: Sequence[Origin]) -> int:
    """How many minibatches show that a case keeps the limits of its tails, if none is beyond; 0 without such limits."""
    own = [origin.requirement for origin in origins if origin.requirement.selects(axes)]
    shares = [tail_of(limit)[1] for requirement in own for limit in requirement.limits if is_of_tail(limit)]
    counts = [values_needed(0.0, share, EXPECTED_LENGTH) or MOST_NEEDED for share in shares]
    return max(counts, default=0)


def _estimated(case: RequiredCase, limit: Limit) -> _Judged:
    """A figure with one value a run, with the noise between runs."""
    quantity = ESTIMATED[limit.key]
    values = [quantity.sure(run.flags, run.figures.get(quantity.column)) for run in case.runs]
    there = [value for value in values if value is not None]
    if not there:
        return _Judged(None, f"{quantity.name}: there was no sensor for it, or it is not reliable")
    estimate = median_of_runs([[value] for value in there], prior(case.device, quantity.noise))
    interval = Interval(*map(quantity.to_shown, estimate.interval()))
    return _Judged(interval, f"the interval over {counted(len(there), 'run')} includes the limit; measure more runs")


def _temperature(case: RequiredCase) -> _Judged:
    """The highest temperature of any sensor in any run, and what it may become."""
    greatest_c, later_c = -math.inf, -math.inf
    for run in case.runs:
        for series in run.temperatures:
            values = np.asarray(series.values, dtype=float)
            greatest_c = max(greatest_c, float(values.max()))
            rise_c = math.inf
            if len(values) >= FEWEST_SAMPLES:
                quarter = len(values) // 4
                rise_c = float(np.mean(values[-quarter:]) - np.mean(values[-2 * quarter : -quarter]))
            later_c = max(later_c, float(values.max()) + max(0.0, rise_c))
    if not math.isfinite(greatest_c):
        return _Judged(None, "no temperature was recorded")
    interval = Interval(greatest_c, greatest_c, later_c)
    if not math.isfinite(later_c):
        return _Judged(interval, f"fewer than {FEWEST_SAMPLES} samples of a temperature; measure longer")
    return _Judged(interval, "the temperature still rises; measure longer")


def case_of_profile(profile: Profile) -> RequiredCase:
    """A single profile as a case of one run; nothing is decided by a disturbed or throttled one."""
    case = profile.case
    axes = axes_of(case, device_names(case, profile.conditions))
    distorting = [kind for kind in flag_kinds(profile.flags) if kind in DISQUALIFYING]
    doubt = f"the profile is flagged {' and '.join(distorting)}" if distorting else ""
    return RequiredCase(case.id, axes, case.device, profile.provenance, [run_of_profile(profile)], doubt)


def run_of_profile(profile: Profile) -> RequiredRun:
    temperatures = [
        series for channel, series in profile.telemetry.series.items() if follows_heat(channel) and series.values
    ]
    times_ms = [minibatch.e2e_ms for minibatch in profile.counted]
    return RequiredRun(times_ms, profile.aggregates, profile.flags, temperatures)


def device_names(case: Case, conditions: Mapping[str, Any]) -> Sequence[str]:
    """The names that the device of a case goes by, with the conditions of its profile."""
    return case.device, str(conditions.get("board", case.device))


def axes_of(case: Any, device_names: Sequence[str]) -> Dict[str, Sequence[str]]:
    """The names that each axis of a case goes by, for `Requirement.selects`."""
    names = {axis: (str(getattr(case, axis)),) for axis in ("workload", "task", "workers", "storage", "batch_size")}
    return {**names, "device": device_names, "power_mode": (case.power_mode.name,), "cache": (case.settings.cache,)}


def check(
    store: ResultsStore, origins: Sequence[Origin], include_flagged: bool = False, last: Optional[int] = None
) -> List[RequirementVerdict]:
    """The verdicts on the profiles of a results file, case by case, then on requirements that no case met.

    Runs of a case that differ in software, seed and number of minibatches are one case, and those with the software of
    the newest one count. `last` takes the newest runs of each case. Replayed profiles are left out.
    """
    frame = comparable_profiles(store)
    verdicts: List[RequirementVerdict] = []
    if len(frame):
        verdicts = _check(store, frame, origins, include_flagged, last)
    return [*verdicts, *unmet(origins, verdicts, f"no profile in {store.path} is of such a case")]


def _check(
    store: ResultsStore, frame: pd.DataFrame, origins: Sequence[Origin], include_flagged: bool, last: Optional[int]
) -> List[RequirementVerdict]:
    frame = frame.assign(key=common_conditions(frame, ignore=(*SOFTWARE, *LENGTH)))
    frame = _with_newest_software(frame, include_flagged)
    columns = ["case", "device", "provenance", *(quantity.column for quantity in ESTIMATED.values())]
    verdicts = []
    for runs in runs_of_cases(frame, include_flagged, last, columns):
        newest = runs.profiles[-1]
        axes = axes_of(newest.case, (newest.device_name, newest.device_label, newest.device))
        own = [origin for origin in origins if origin.requirement.selects(axes)]
        if not own:
            continue
        numbers = [row.Index for row in runs.chosen]
        [times_ms] = counted_series(store, numbers, "e2e_ms")
        is_heat_limited = any(origin.requirement.temperature_c is not None for origin in own)
        temperatures = _stored_temperatures(store, numbers if is_heat_limited else [])
        required = [
            RequiredRun(times_ms.get(row.Index, ()), row._asdict(), row.flag_list, temperatures.get(row.Index, ()))
            for row in runs.chosen
        ]
        name = labelled(newest.case_id, newest.device_name, newest.device_label)
        doubt = "" if required else f"left out: {flagged_in_words(len(runs.profiles))}"
        case = RequiredCase(name, axes, newest.device_name, newest.provenance, required, doubt)
        verdicts += judge_case(case, own)
    return verdicts


def _with_newest_software(frame: pd.DataFrame, include_flagged: bool) -> pd.DataFrame:
    """The rows, oldest first, with the versions of the newest one of their `key` that counts, if one does."""
    versions = frame["comparable"].map(lambda comparable: str([comparable.get(name) for name in SOFTWARE]))
    counts = frame["usable"].astype(bool) | include_flagged
    newest = versions[counts].groupby(frame["key"][counts]).last()
    wanted = frame["key"].map(newest)
    return frame[wanted.isna() | (versions == wanted)]


def _stored_temperatures(store: ResultsStore, numbers: Sequence[int]) -> Dict[int, List[Series]]:
    temperatures: Dict[int, List[Series]] = {}
    samples = telemetry(store, numbers)
    for (number, channel), group in samples.groupby(["profile_id", "channel"]):
        if follows_heat(channel):
            series = Series(tuple(group["time_s"]), tuple(group["value"]))
            temperatures.setdefault(int(number), []).append(series)
    return temperatures


def unmet(origins: Sequence[Origin], verdicts: Sequence[RequirementVerdict], why: str) -> List[RequirementVerdict]:
    """A verdict on each requirement that no case met."""
    met = {verdict.requirement for verdict in verdicts}
    return [
        RequirementVerdict("", str(origin), "", NO_CASE, None, notes=(why,))
        for origin in origins
        if str(origin) not in met
    ]


def check_file(
    results: Path, requirements: Path, include_flagged: bool = False, last: Optional[int] = None
) -> List[RequirementVerdict]:
    """The verdicts of a requirements file on a results file, as in `check`; HarnessError if one cannot be read."""
    origins = read_requirements(requirements)
    with ResultsStore(results, read_only=True) as store:
        return check(store, origins, include_flagged, last)


def exit_code(verdicts: Sequence[RequirementVerdict], strict: bool = False) -> int:
    """1 if a requirement is not kept; else 2 if nothing was decided, or with `strict` not everything; else 0."""
    statuses = [verdict.status for verdict in verdicts]
    is_open = PASS not in statuses or (strict and (INCONCLUSIVE in statuses or NO_CASE in statuses))
    return exit_code_of(FAIL in statuses, is_open)


def count_verdicts(verdicts: Sequence[RequirementVerdict]) -> Dict[str, int]:
    """How many verdicts there are of each kind; kinds without one are left out."""
    counts = Counter(verdict.status for verdict in verdicts)
    return {status: counts[status] for status in (FAIL, INCONCLUSIVE, NO_CASE, PASS) if counts[status]}


HEADER = ("case", "figure", ">value", f">{CONFIDENCE:.0%} interval", ">required", ">minibatches", "verdict")
"""Of `verdict_rows`; `>` begins the name of a column of figures."""


def verdict_rows(verdicts: Sequence[RequirementVerdict]) -> List[List[str]]:
    """A row for each verdict on a case, those that are not kept first."""
    of_cases = sorted((verdict for verdict in verdicts if verdict.case), key=_urgency)
    rows = []
    for verdict in of_cases:
        count = str(verdict.minibatches or "-")
        rows.append([verdict.case, verdict.figure, *_figure_cells(verdict), count, verdict.status])
    return rows


def describe_counts(verdicts: Sequence[RequirementVerdict]) -> str:
    """`FAIL: 1; PASS: 7`."""
    return "; ".join(f"{status}: {count}" for status, count in count_verdicts(verdicts).items())


def format_requirements(verdicts: Sequence[RequirementVerdict], markdown: bool = False) -> str:
    """The table of verdicts, those that are not kept first; below it the notes, and how many there are of each kind."""
    rows = verdict_rows(verdicts)
    parts = ["## Requirements"] if markdown else []
    if rows:
        parts.append(format_table(HEADER, rows, markdown))
    lines = [*note_lines(verdicts), describe_counts(verdicts)]
    parts.append("\n".join(wrap(f"- {line}" if markdown else line, "  ") for line in lines))
    return "\n\n".join(parts)


def _urgency(verdict: RequirementVerdict) -> int:
    return (FAIL, INCONCLUSIVE, PASS).index(verdict.status)


def note_lines(verdicts: Sequence[RequirementVerdict]) -> List[str]:
    """A line for each note, with the figures that have it, and for each requirement that no case met."""
    figures: Dict[str, List[str]] = {}
    for verdict in verdicts:
        for note in verdict.notes if verdict.case else ():
            figures.setdefault(note, []).append(f"{verdict.case} ({verdict.figure})")
    lines = []
    for note, names in figures.items():
        more = len(names) - _NAMED_CASES
        lines.append(f"{', '.join(names[:_NAMED_CASES])}{f' and {more} more' if more > 0 else ''}: {note}")
    return [*lines, *(verdict.text for verdict in verdicts if not verdict.case)]


def _figure_cells(verdict: RequirementVerdict) -> Tuple[str, str, str]:
    """The value, its interval and the limit of a verdict on a case, in words."""
    key = verdict.figure.partition(" ")[0]
    limit = f"{'at least' if key in LEAST else 'at most'} {_number(verdict.limit)}"
    unit = RANGES[key].unit
    limit += "" if unit.startswith("as ") else f" {unit}"
    if verdict.value is None:
        return "-", "-", limit
    high = "?" if verdict.high is None else _number(verdict.high)
    return _number(verdict.value), f"{_number(verdict.low)} to {high}", limit


def _number(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.4g}"


def to_plain(verdicts: Sequence[RequirementVerdict]) -> Dict[str, Any]:
    """The verdicts as plain values, each with the fields of `RequirementVerdict`."""
    return {
        "confidence": CONFIDENCE,
        "counts": count_verdicts(verdicts),
        "verdicts": [{**verdict._asdict(), "notes": list(verdict.notes)} for verdict in verdicts],
    }
