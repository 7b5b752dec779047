"""Requirements as limits of a search for a power mode, and the verdicts on the mode that it chose.

A requirement limits figures of a profile, such as the p99; a search predicts time and power. Such a figure is a ratio
times a quantity that is predicted: the p99 is a multiple of the median time, the highest sample one of the power. The
ratio of a mode that was not profiled is predicted from those of the profiles so far, with an interval, and the search
keeps a limit that is lower by the upper end. What it chose is then profiled once more, as long as the verdicts take,
and judged by them (`harness.judge.requirement_verdicts`). A mode that fails teaches its ratio, and another is chosen.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from harness.core.cases import Case
from harness.core.device import Device, rehearses_memory
from harness.core.errors import CannotRunError, ControlError, OverheatedError
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.profiles import Profile
from harness.core.units import MS_PER_S, ms_to_s, s_to_ms, w_to_mw
from harness.judge.requirement_verdicts import (
    ESTIMATED,
    FAIL,
    PASS,
    QUANTILES,
    TEMPERATURE,
    RequirementVerdict,
    axes_of,
    case_of_profile,
    device_names,
    format_requirements,
    is_of_tail,
    judge_case,
    run_of_profile,
    tail_of,
    to_plain,
    unmet,
)
from harness.judge.requirements import Limit, Origin
from harness.stats.comparison import median_of_runs
from harness.stats.estimates import Interval, student_quantile
from harness.stats.noise import prior
from harness.stats.tails import design_effect, miss_ratio, quantile, values_needed
from predictors.forecast import LEVEL
from predictors.goals import QUANTITIES, Goal, value_of
from predictors.strategies.closed_loop import ClosedLoop
from predictors.strategies.protocol import Choice, History, MeasuredMode, Strategy

if TYPE_CHECKING:
    from predictors.choose.device_profiler import DeviceProfiler

Report = Callable[[str], None]
MEMORY = "memory_mib"
CHECKS = 3  # modes that are checked for a goal, at most
ROUND = 3  # profiles of a closed loop from which the ratios are predicted anew


class RequiredFigure(NamedTuple):
    """A figure that a requirement limits, as a ratio to a quantity that a search predicts."""

    name: str  # as in verdicts
    quantity: str  # of `predictors.goals.QUANTITIES`
    most: float  # of the figure, in the quantity's unit
    share: Optional[float] = None  # of minibatches that take no longer; None if the figure is no quantile
    key: str = ""  # of the requirement, if it is none

    def of(self, profile: Observation) -> Optional[float]:
        """The figure of a profile, in the quantity's unit; None if it was not measured."""
        if self.share is not None:
            return float(np.quantile(profile.times_ms, self.share)) if len(profile.times_ms) else None
        value = profile.figures.get(ESTIMATED[self.key].column)
        if value is None or not value > 0:
            return None
        return s_to_ms(1 / value) if self.key == "samples_per_s" else float(value)

    @property
    def words(self) -> str:
        """The figure in words, of a miss ratio the quantile that has to keep the period."""
        return self.name if self.share is None or self.name in QUANTILES else f"p{100 * self.share:g} ({self.name})"

    def margin(self, device: str, profiles: Sequence[Observation]) -> float:
        """The upper end of a verdict's interval as a multiple of the figure; 1 if too few minibatches bound it."""
        if self.share is None:
            return median_of_runs([[1.0]], prior(device, ESTIMATED[self.key].noise)).interval().high
        multiples = multiples_of_time(profiles)
        if not multiples:
            return 1.0
        pooled = np.concatenate(multiples)
        interval = quantile(multiples, self.share, float(np.quantile(pooled, self.share)))
        return interval.high / interval.value if math.isfinite(interval.high) else 1.0


_LIMITED = {
    "samples_per_s": "sample_time_ms",
    "energy_per_sample_mj": "sample_energy_mws",
    "power_w": "power_mw",
    "peak_power_w": "power_mw",
}


def figure_of(limit: Limit) -> Optional[RequiredFigure]:
    """What a search makes of a limit; None if it predicts nothing of it."""
    if is_of_tail(limit):
        beyond_ms, most = tail_of(limit)
        return RequiredFigure(limit.figure, "time_ms", beyond_ms, 1 - most)
    if limit.key not in _LIMITED:
        return None
    in_its_unit = {"samples_per_s": MS_PER_S / limit.value, "energy_per_sample_mj": limit.value}
    at_most = in_its_unit.get(limit.key, w_to_mw(limit.value))
    return RequiredFigure(limit.figure, _LIMITED[limit.key], at_most, key=limit.key)


class Observation(NamedTuple):
    """What ratios are learned from: a profile, and the figures that a search has of it."""

    times_ms: np.ndarray  # of the minibatches that count
    figures: Dict[str, Any]  # the profile's aggregates
    measured: MeasuredMode
    batch_size: int

    def quantity(self, name: str) -> float:
        return float(value_of(name, self.measured.time_ms, self.measured.power_mw, self.batch_size))


def predicted_ratio(figure: RequiredFigure, profiles: Sequence[Observation]) -> Optional[Interval]:
    """The ratio of a figure to its quantity in a mode that was not profiled, with an interval of `LEVEL`.

    The logarithms of the ratios of modes are taken to be normal. A quantile's value is that of the minibatches of all
    profiles, each as a multiple of its own time: those of one profile are too few for a tail. None without a profile
    that has the figure; of a single one there is no interval.
    """
    observed = [(profile, figure.of(profile)) for profile in profiles]
    logs = np.array([math.log(value / profile.quantity(figure.quantity)) for profile, value in observed if value])
    if not len(logs):
        return None
    mean = float(logs.mean())
    if figure.share is not None:
        mean = math.log(float(np.quantile(np.concatenate(multiples_of_time(profiles)), figure.share)))
    reach = 0.0
    if len(logs) > 1:
        sd = float(logs.std(ddof=1)) * math.sqrt(1 + 1 / len(logs))
        reach = student_quantile(len(logs) - 1, (1 + LEVEL) / 2) * sd
    return Interval(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def multiples_of_time(profiles: Sequence[Observation]) -> List[List[float]]:
    """The times of the minibatches of each profile that has some, as multiples of its minibatch time."""
    with_times = [profile for profile in profiles if len(profile.times_ms)]
    return [(profile.times_ms / profile.measured.time_ms).tolist() for profile in with_times]


@dataclasses.dataclass(frozen=True)
class Required:
    """The requirements on a search: those that its candidates meet, as limits, and what is no limit."""

    origins: Tuple[Origin, ...] = ()  # that limit every candidate
    partial: Tuple[Origin, ...] = ()  # that limit some candidates only
    figures: Tuple[RequiredFigure, ...] = ()
    memory_mib: Optional[float] = None
    notes: Tuple[str, ...] = ()
    of_no_case: Tuple[RequirementVerdict, ...] = ()  # on the requirements that no candidate meets

    @property
    def limits(self) -> Dict[str, float]:
        """The limits by quantity, before ratios are known: a tail is longer than the median, a peak above the power."""
        limits: Dict[str, float] = {}
        for figure in self.figures:
            limits[figure.quantity] = min(figure.most, limits.get(figure.quantity, math.inf))
        return limits


def required_of(
    origins: Sequence[Origin], cases: Sequence[Case], modes: Sequence[Tuple[str, PowerMode]], device: Device
) -> Required:
    """What requirements ask of a search on a device among cases, one for each batch size, in each of some modes."""
    whole, partial, figures, notes = [], [], [], []
    memory_mib: Optional[float] = None
    for origin in origins:
        selected = _selected(origin, cases, modes, device)
        if any(selected) and not all(selected):
            partial.append(origin)
            notes.append(f"{origin} limits some of the modes only: it is judged, but no limit of the search")
        if not all(selected):
            continue
        whole.append(origin)
        for limit in origin.requirement.limits:
            figure = figure_of(limit)
            if limit.key == MEMORY and (device.provenance == "measured" or rehearses_memory(device)):
                memory_mib = min(limit.value, math.inf if memory_mib is None else memory_mib)
            elif figure is None:
                more = "; --max-temperature leaves hot modes out" if limit.key == TEMPERATURE else ""
                notes.append(f"{limit.figure} of {origin} is not predicted: it is judged in the chosen mode only{more}")
            elif device.provenance == "replayed" and figure.share not in (None, 0.5):
                notes.append(f"{limit.figure} of {origin} is no limit: {device.name} has medians only")
            else:
                figures.append(figure)
    met = {str(origin) for origin in (*whole, *partial)}
    of_no_case = unmet(
        [origin for origin in origins if str(origin) not in met], [], "no mode of this search is such a case"
    )
    return Required(tuple(whole), tuple(partial), tuple(figures), memory_mib, tuple(notes), tuple(of_no_case))


def _selected(
    origin: Origin, cases: Sequence[Case], modes: Sequence[Tuple[str, PowerMode]], device: Device
) -> List[bool]:
    """Whether a requirement is about each case, in each mode if it selects by that."""
    selected = []
    for case in cases:
        names = device_names(case, device.conditions(case))
        in_modes = (
            [case.in_mode(NamedMode(*mode)) for mode in modes] if origin.requirement.power_mode is not None else [case]
        )
        selected += [origin.requirement.selects(axes_of(each, names)) for each in in_modes]
    return selected


class WithinRequirements(Strategy):
    """A strategy whose limits follow the ratios learned so far, and whose choice is profiled once more and judged."""

    def __init__(
        self, strategy: Strategy, required: Required, profiler: DeviceProfiler, check_s: float, report: Report
    ) -> None:
        """Check choices of `strategy` on `profiler`, each by a run whose minibatches take `check_s` at most."""
        self.required = required
        self.verdicts: Dict[int, List[RequirementVerdict]] = {}  # by candidate that was checked
        self._strategy = strategy
        self._profiler = profiler
        self._check_s = check_s
        self._report = report
        self._profiles: List[Observation] = []
        self._least_ratios: Dict[RequiredFigure, float] = {}  # that a failed check showed
        profiler.required = self

    def learn(self, profile: Profile, measured: MeasuredMode) -> None:
        """Take a profile into account; `measured` are its figures in the search."""
        run = run_of_profile(profile)
        times_ms = np.asarray(run.times_ms, dtype=float)
        self._profiles.append(Observation(times_ms, dict(run.figures), measured, profile.case.batch_size))

    def ratios(self) -> Dict[RequiredFigure, Optional[Interval]]:
        """The ratio of each figure in a mode that was not profiled, as predicted now."""
        return {figure: predicted_ratio(figure, self._profiles) for figure in self.required.figures}

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        choices = self._search(history, goals)
        return [self._checked(history, *each) for each in zip(goals, choices)]

    def _search(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        """Choices within limits that follow the ratios, until no profile is left or wanted."""
        while True:
            spent = history.spent.profiles
            is_staged = isinstance(self._strategy, ClosedLoop)
            with history.holding_back(max(history.left - ROUND, 0) if is_staged else 0):
                choices = self._strategy.choose_all(history, [self._tightened(goal) for goal in goals])
            if history.spent.profiles == spent:
                return choices

    def _tightened(self, goal: Goal) -> Goal:
        """The goal with the limits that make every required figure keep its own."""
        limits = dict(goal.limits)
        for figure, ratio in self.ratios().items():
            margin = figure.margin(self._profiler.template.device, self._profiles)
            known = Interval(1.0, 1.0, 1.0) if ratio is None else ratio
            # What is not known of the ratio, and what the verdict will not know, are independent.
            factor = known.value * math.exp(math.hypot(math.log(known.high / known.value), math.log(margin)))
            factor = max(factor, self._least_ratios.get(figure, 0.0))
            limits[figure.quantity] = min(limits.get(figure.quantity, math.inf), figure.most / factor)
        return Goal(goal.minimise, limits)

    def _checked(self, history: History, goal: Goal, choice: Choice) -> Choice:
        """The choice after its check, or another if it failed."""
        failed: Set[int] = set()
        while self._profiler.device.provenance != "replayed":
            try:
                if choice.index not in self.verdicts:
                    self._check(choice.index)
            except (CannotRunError, ControlError, OverheatedError) as error:
                reason = f"{choice.reason}; it could not be checked: {error.what}"
                return dataclasses.replace(choice, feasible=False, reason=reason)
            statuses = [verdict.status for verdict in self.verdicts[choice.index]]
            if FAIL not in statuses:
                is_kept = bool(statuses) and set(statuses) == {PASS}
                return dataclasses.replace(choice, feasible=choice.feasible or is_kept)
            reason = f"{choice.reason}; it does not keep the requirements"
            refused = dataclasses.replace(choice, feasible=False, reason=reason)
            if not choice.feasible or choice.index in failed or len(failed) + 1 >= CHECKS:
                return refused
            failed.add(choice.index)
            [choice] = self._search(history, [goal])
        return choice

    def _check(self, index: int) -> None:
        """Profile a candidate for as long as its verdicts take, and judge it."""
        candidates = self._profiler.candidates
        self._report(f"    checking {candidates.name(index)} by the requirements")
        time_ms = self._time_ms(index)
        profile, measured = self._profiler.check(index, self._minibatches(time_ms))
        self.learn(profile, measured)
        case = case_of_profile(profile)
        verdicts = judge_case(case, [*self.required.origins, *self.required.partial])
        self.verdicts[index] = verdicts
        broken = {verdict.figure for verdict in verdicts if verdict.status == FAIL}
        for figure in self.required.figures:
            value = figure.of(self._profiles[-1])
            if figure.name in broken and value is not None:
                chosen_by = self._profiler.taken.get(index)
                known = chosen_by if isinstance(chosen_by, MeasuredMode) else measured
                quantity = self._profiles[-1]._replace(measured=known).quantity(figure.quantity)
                least = self._least_ratios.get(figure, 0.0)
                self._least_ratios[figure] = max(least, value / quantity)

    def _time_ms(self, index: int) -> float:
        """The minibatch time of a candidate: as profiled, or else the greatest so far."""
        taken = self._profiler.taken.get(index)
        if isinstance(taken, MeasuredMode):
            return taken.time_ms
        return max((profile.measured.time_ms for profile in self._profiles), default=MS_PER_S)

    def _minibatches(self, time_ms: float) -> int:
        """How many minibatches decide about each tail in a mode of such a time; at least as many as a profile has."""
        usual = self._profiler.template.settings.minibatches or 1
        most = max(usual, math.ceil(self._check_s / ms_to_s(time_ms)))
        multiples = multiples_of_time(self._profiles)
        needed = usual
        for figure in self.required.figures:
            if figure.share is None or not multiples:
                continue
            beyond = figure.most / time_ms
            share = miss_ratio(multiples, beyond).value
            count = values_needed(share, 1 - figure.share, design_effect(multiples, beyond))
            needed = max(needed, most if count is None else count)
        return min(needed, most)

    def lines(self, chosen: Sequence[int]) -> List[str]:
        """What a recommendation shows of requirements: ratios, what is no limit, and the verdicts on its choices."""
        lines = []
        for figure, ratio in self.ratios().items():
            if ratio is not None and figure.key != "power_w":
                interval = f"(80 %: {ratio.low:.3g} to {ratio.high:.3g})"
                quantity = QUANTITIES[figure.quantity].words
                lines.append(f"ratio:       {figure.words} to {quantity}: {ratio.value:.3g} {interval}")
        lines += [f"note:        {note}" for note in self.required.notes]
        verdicts = self.verdicts_on(chosen)
        return [*lines, "", format_requirements(verdicts)] if verdicts else lines

    def verdicts_on(self, chosen: Sequence[int]) -> List[RequirementVerdict]:
        """The verdicts on chosen candidates, and on the requirements that no candidate meets."""
        of_choices = [verdict for index in dict.fromkeys(chosen) for verdict in self.verdicts.get(index, ())]
        return [*of_choices, *self.required.of_no_case]

    def plain(self, chosen: int) -> Dict[str, Any]:
        """The same on one choice as plain values, for JSON."""
        ratios = [
            {"figure": figure.name, "quantity": figure.quantity, **ratio._asdict(), "profiles": len(self._profiles)}
            for figure, ratio in self.ratios().items()
            if ratio is not None
        ]
        return {**to_plain(self.verdicts_on([chosen])), "ratios": ratios, "notes": list(self.required.notes)}
