"""What claims are about, as figures of a device's evidence: ratios and values, and a few statistics over several cases.

Each function takes a claim, what a device says, and what all devices say, and gives a cell for each case or pair of
cases; without cells the profiles that it needs are not there.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.boards import load_board
from harness.core.cases import TRAINING
from harness.core.pareto import pareto_front
from harness.core.units import mw_to_w
from harness.judge.claim_list import ANY, BOARD, DEFAULT, ENOUGH_CORES, HELD_DOWN, Claim, Conditions
from harness.judge.evidence import COLD, MEASURED, SIMULATED, WARM, Evidence, View
from harness.judge.published_figures import CHANGE, Condition, PublishedFigure, figures_by_fact
from harness.stats.estimates import DRAWS, Drawn, Estimate, drawn, quotient
from harness.stats.experiments import LENGTHS

Views = Mapping[str, View]
"""Name of a device to what it says; of the device that is asked first."""

DEFAULT_MODES = {"xavier-nx": "6c-1420.8-1109.25-1600"}
"""What 004 takes as a board's default where it is not the greatest: 15 W of NX (sec. 4.4 and Table 3)."""

INSTANCE_MARK = "@"
"""Between a simulated board and the number of its instance."""

REPEATED = 5
"""Fewer epochs than that say nothing of how much they vary."""

LEAST_BOARDS = 3
"""Fewer boards than that say nothing of how much boards of a type vary."""

ENOUGH_MODES = 20
"""Fewer modes say little about the range of all."""

SHORT, USUAL = LENGTHS[0], LENGTHS[-1]

QUICK_S = 0.8
"""Ten minibatches that take less than this share of the papers' interval of 1 s (001 sec. 2.5) meet no sample often."""


class Cell(NamedTuple):
    """One place where a claim is looked for: which case, in short, its figure, and the evidence that it is of."""

    label: str
    figure: Union[Estimate, Drawn]
    evidence: Tuple[Evidence, ...] = ()


ClaimFunction = Callable[[Claim, View, Views], List[Cell]]


def exactly(label: str, found: float, *evidence: Evidence) -> Cell:
    """A cell without noise."""
    return Cell(label, Drawn(float(found), ()), evidence)


def default_mode(board: str) -> str:
    """The power mode that 004 takes as a board's default."""
    return DEFAULT_MODES.get(board, "maxn")


def resolve(view: View, conditions: Conditions) -> Dict[str, Tuple[Any, ...]]:
    """Conditions with the values that depend on the device; what is no field of a case is left out."""
    found = {name: values for name, values in conditions.items() if name not in (BOARD, ENOUGH_CORES)}
    if found.get("power_mode") == (DEFAULT,):
        found["power_mode"] = (default_mode(view.board),)
    if found.get("storage") == (HELD_DOWN,):
        found["storage"] = view.held_down
    return found


def value(claim: Claim, view: View, views: Views) -> List[Cell]:
    """A quantity in every case that is as the claim says."""
    return [
        Cell(one.label, figure, (one,))
        for where in claim.where
        for one in view.where(resolve(view, where))
        for quantity in claim.quantities
        for figure in [one.figure(quantity, claim.phases[1])]
        if figure is not None
    ]


def ratio_of_cases(claim: Claim, view: View, views: Views) -> List[Cell]:
    """The second case over the first, of every two that agree in all that is not named."""
    return [cell for where in claim.where for cell in _ratios(claim, view, views, where)]


def _ratios(claim: Claim, view: View, views: Views, where: Conditions) -> List[Cell]:
    cells = []
    for quantity in claim.quantities:
        for one, other in _pairs(claim, view, views, where):
            first, second = one.figure(quantity, claim.phases[0]), other.figure(quantity, claim.phases[1])
            if first is None or second is None or not first.value:
                continue
            found = quotient(first, second)
            if claim.per_sample:
                found = found._replace(value=found.value * one.case.batch_size / other.case.batch_size)
            cells.append(Cell(other.label, found, (one, other)))
    return cells


def _pairs(claim: Claim, view: View, views: Views, where: Conditions) -> Iterator[Tuple[Evidence, Evidence]]:
    for before, after in claim.pairs:
        if BOARD in before:
            yield from _across_boards(view, views, before[BOARD][0], resolve(view, where))
            continue
        for one in view.where({**resolve(view, where), **resolve(view, before)}):
            for change in _changes(view, one, resolve(view, after)):
                other = view.like(one, change)
                if other is not None and (ENOUGH_CORES not in where or _has_enough_cores(other)):
                    yield one, other


def _changes(view: View, one: Evidence, after: Conditions) -> Iterator[Dict[str, Any]]:
    """Every combination of what the second case has instead; any other value is one that this device has."""
    options = []
    for name, values in after.items():
        if values == (ANY,):
            values = tuple(sorted({other.fields[name] for other in view.evidence} - {None, one.fields[name]}))
        if after[name] == (ANY,) and name == "storage":
            values = tuple(found for found in values if found not in view.held_down)  # slower than any medium may be
        options.append([(name, found) for found in values])
    return (dict(change) for change in itertools.product(*options))


def _has_enough_cores(one: Evidence) -> bool:
    """Boards of the papers have four cores or more; with fewer than workers, 004 sec. 5.6.5 says, these suffer."""
    return one.case.workers <= one.conditions["power_mode"]["cpu_cores"]


def _across_boards(view: View, views: Views, board: str, where: Conditions) -> Iterator[Tuple[Evidence, Evidence]]:
    """Cases of the first device of another board, and the same of this one, each in its default mode."""
    others = [other for other in views.values() if other.board == board]
    if others and view.board != board:
        for mine in view.where(where):
            theirs = others[0].like(mine, {"power_mode": default_mode(board)}, ["device"])
            if theirs is not None:
                yield theirs, mine


def ratio_of_ratios(claim: Claim, view: View, views: Views) -> List[Cell]:
    """The ratio of the cases that each alternative names over that of the alternative before it, others equal."""
    names = {name for where in claim.where for name in where}
    groups = [_ratios(claim, view, views, where) for where in claim.where]
    cells = []
    for earlier, later in zip(groups, groups[1:]):
        for first, second in itertools.product(earlier, later):
            one, other = (cell.evidence[-1].fields for cell in (first, second))
            if all(one[name] == other[name] for name in one if name not in names):
                cells.append(Cell(second.label, quotient(first.figure, second.figure), second.evidence))
    return cells


def extremes(claim: Claim, view: View, views: Views) -> List[Cell]:
    """The least of several ratios over the greatest."""
    cells = sorted(ratio_of_cases(claim, view, views), key=lambda cell: cell.figure.value)
    if len(cells) < 2:
        return []
    least, greatest = cells[0], cells[-1]
    both = quotient(greatest.figure, least.figure)
    return [Cell(f"{least.label} against {greatest.label}", both, least.evidence)]


def as_printed(claim: Claim, view: View, views: Views) -> List[Cell]:
    """The ratios of a device over those that the papers print of its board.

    A ratio within a printed range counts as 1; outside of it, it is compared with the nearer end.
    """
    cells = []
    for fact in claim.facts:
        for found in comparisons(fact):
            if found.after.device == view.board:
                for cell in _seen(claim, found, view, views):
                    printed = min(max(cell.figure.value, found.least), found.greatest)
                    own = cell.figure._replace(value=cell.figure.value / printed)
                    cells.append(Cell(f"{fact}, {cell.label}", own, cell.evidence))
    return cells


class PrintedRatio(NamedTuple):
    """A quantity in one condition over the same in another one, as printed: from least to greatest."""

    metric: str
    before: Condition
    after: Condition
    least: float
    greatest: float


PER_EPOCH = {"epoch_time": "time", "stall_time": "stall", "compute_time": "compute", "energy": "energy"}
PER_MINIBATCH = {
    "minibatch_stall": "stall",
    "minibatch_compute": "compute",
    "power": "power",
    "gpu_utilisation": "gpu_load",
}
"""Metric of a figure to quantity of evidence."""


def comparisons(fact: str) -> List[PrintedRatio]:
    """What is printed.

    Args:
        fact: id of a ratio or a change; or two ids of values, `F919/F918`: the first over the second.
    """
    numerator, _, denominator = fact.partition("/")
    figures = figures_by_fact()
    if denominator:
        (after,), (before,) = figures[numerator], figures[denominator]
        ends = (after.least / before.greatest, after.greatest / before.least)
        return [PrintedRatio(after.metric, before.condition, after.condition, *ends)]
    return [
        PrintedRatio(figure.metric, figure.versus, figure.condition, *_ends(figure))
        for figure in figures[fact]
        if figure.versus is not None
    ]


def _ends(figure: PublishedFigure) -> Tuple[float, float]:
    """The least and the greatest ratio that the figure stands for."""
    ends = (figure.least, figure.greatest)
    low, high = (1.0 + end / 100.0 for end in ends) if figure.relation == CHANGE else ends
    if figure.comparator in ("<", "<="):
        return 0.0, high
    return (low, math.inf) if figure.comparator in (">", ">=") else (low, high)


def _seen(claim: Claim, printed: PrintedRatio, view: View, views: Views) -> List[Cell]:
    """The ratio in profiles of a device, from every two cases that are as in the paper."""
    axes = ("workers", "storage", "batch_size", "power_mode", "clocks")
    conditions = (printed.before, printed.after)
    cold = [condition.cache == COLD for condition in conditions]
    where: Dict[str, Tuple[Any, ...]] = {
        "workload": (printed.after.workload,),
        "cache": (COLD,) if any(cold) else (WARM, COLD),
    }
    before, after = ({name: (getattr(condition, name),) for name in axes} for condition in conditions)
    scales = [condition.data_scale for condition in conditions]
    if scales[0] != scales[1]:
        before["data_scale"], after["data_scale"] = (scales[0],), (scales[1],)
    else:
        where["data_scale"] = (None, 1.0) if scales[0] == 1.0 else (scales[0],)
    per_epoch = printed.metric in PER_EPOCH
    own = claim._replace(
        quantities=((PER_EPOCH if per_epoch else PER_MINIBATCH)[printed.metric],),
        phases=tuple(COLD if is_cold else WARM for is_cold in cold),
        pairs=((before, {name: values for name, values in after.items() if values != before[name]}),),
    )
    scale = scales[1] / scales[0] if per_epoch else 1.0
    return [
        cell._replace(figure=cell.figure._replace(value=cell.figure.value * scale))
        for cell in _ratios(own, view, views, where)
    ]


def over_data_sizes(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Time with one size of the data set over that with another one; of a simulated board as the papers ran it."""
    where = resolve(view, claim.where[0])
    scales = sorted({one.fields["data_scale"] for one in view.where(where)} - {None})
    if view.provenance == SIMULATED:
        where.update(workload=("mobilenetv3-gld23k",), workers=(4,), power_mode=(default_mode(view.board),))
        scales = [scale for scale in (1.0, 0.25, 4.0) if scale in scales]
    pairs = tuple(({"data_scale": (scales[0],)}, {"data_scale": (other,)}) for other in scales[1:])
    return _ratios(claim._replace(pairs=pairs), view, views, where)


def watts_saved(claim: Claim, view: View, views: Views) -> List[Cell]:
    """What the second case draws less than the first, in W."""
    cells = []
    for one, other in _pairs(claim, view, views, claim.where[0]):
        powers = [found for found in (case.figure("power") for case in (one, other)) if found is not None]
        if len(powers) == 2:
            label = f"{view.device} {one.case.power_mode}"
            saved = drawn(label, [[power] for power in powers], lambda held, free: mw_to_w(float(held[0] - free[0])))
            cells.append(Cell(label, saved, (one, other)))
    return cells


def _bootstrapped(
    label: str, values: np.ndarray, seed: int, statistic: Callable[..., np.ndarray], one: Evidence
) -> Cell:
    """A statistic of values that are independent, drawn with replacement."""
    generator = np.random.default_rng(seed)
    draws = statistic(values[generator.integers(len(values), size=(DRAWS, len(values)))], axis=1)
    return Cell(label, Drawn(float(statistic(values, axis=0)), tuple(draws.tolist())), (one,))


def _coefficient(values: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.std(values, axis=axis, ddof=1) / np.mean(values, axis=axis)


def variation_of_epochs(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Coefficient of variation of the epoch times of each case that ran often enough."""
    return [
        _bootstrapped(one.case.id, np.array(one.epochs_s), len(one.epochs_s), _coefficient, one)
        for one in view.where(resolve(view, claim.where[0]))
        if len(one.epochs_s) >= REPEATED
    ]


def _over_boards(claim: Claim, view: View, views: Views, statistic: Callable[..., float]) -> List[Cell]:
    """A statistic of a figure over the boards of a type; asked of the first of them, where there are three or more."""
    name = view.device.partition(INSTANCE_MARK)[0]
    family = [other for device, other in views.items() if device.partition(INSTANCE_MARK)[0] == name]
    found: List[Tuple[Evidence, Estimate]] = []
    for member in family if family[0] is view else ():
        repeated = [one for one in member.where(claim.where[0]) if len(one.epochs_s) >= REPEATED]
        told = [(one, one.figure(claim.quantities[0])) for one in repeated]
        found += [(one, figure) for one, figure in told if figure is not None][:1]
    if len(found) < LEAST_BOARDS:
        return []
    label = f"{found[0][0].case.workload} on {len(found)} boards"
    return [Cell(label, drawn(label, [[figure for _, figure in found]], statistic), tuple(one for one, _ in found))]


def range_of_boards(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Greatest over least of the boards of a type."""
    return _over_boards(claim, view, views, lambda values: float(values.max() / values.min()))


def variation_of_boards(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Coefficient of variation between the boards of a type."""
    return _over_boards(claim, view, views, lambda values: float(_coefficient(values)))


def throttled_share(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Share of throttled cases of training, among those with a sensor that would have told; left-out ones count."""
    trained = [*view.where({}), *(one for one in view.left_out if one.case.task == TRAINING)]
    watched = [one for one in trained if any(name.startswith("throttle_") for name in one.channels)]
    throttled = {one.case for one in trained if "throttled" in one.flags}
    cases = {one.case for one in watched} | throttled
    if view.provenance != MEASURED or not cases:
        return []
    return [exactly(f"{len(cases)} cases", len(throttled) / len(cases), *watched)]


Statistic = Callable[..., float]


def _by_workload(claim: Claim, view: View) -> Dict[str, List[Evidence]]:
    """The cases of each workload in the power modes of the claim, in their order; none where one of them is missing."""
    (where,) = claim.where
    found: Dict[str, List[Evidence]] = {}
    for workload in where["workload"]:
        by_mode = {one.case.power_mode: one for one in view.where({**where, "workload": (workload,)})}
        modes = where.get("power_mode", tuple(by_mode))
        if set(by_mode) == set(modes) and (len(modes) >= ENOUGH_MODES or "power_mode" in where):
            found[workload] = [by_mode[mode] for mode in modes]
    return found


def _over_modes(claim: Claim, view: View, of: Callable[[List[Evidence]], Statistic]) -> List[Cell]:
    """A statistic of the claim's quantities over the power modes of each workload."""
    cells = []
    for workload, found in _by_workload(claim, view).items():
        series = [[one.figure(quantity) for one in found] for quantity in claim.quantities]
        if not any(None in figures for figures in series):
            cells.append(Cell(workload, drawn(f"{view.device} {workload}", series, of(found)), tuple(found)))
    return cells


def _cpu_khz(found: Sequence[Evidence]) -> np.ndarray:
    return np.array([one.conditions["power_mode"]["cpu_khz"] for one in found])


def best_of_both_over_maxn(claim: Claim, view: View, views: Views) -> List[Cell]:
    """The mode that comes closest to MAXN (g) or beats it in both quantities: the worse of its two ratios."""

    def of(found: List[Evidence]) -> Statistic:
        place = [one.case.power_mode for one in found].index("g")

        def best(times: np.ndarray, energies: np.ndarray) -> float:
            worse = np.maximum(times / times[place], energies / energies[place])
            return float(np.delete(worse, place).min())

        return best

    return _over_modes(claim, view, of)


def correlation(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Correlation of the logarithms of two quantities over power modes."""
    return _over_modes(claim, view, lambda _: lambda x, y: float(np.corrcoef(np.log(x), np.log(y))[0, 1]))


def _points(times: np.ndarray, energies: np.ndarray) -> float:
    return float(len(pareto_front(times, energies)))


def points_on_front(claim: Claim, view: View, views: Views) -> List[Cell]:
    """How many modes no other one beats in both quantities."""
    cells = _over_modes(claim, view, lambda _: _points)
    return [exactly(cell.label, cell.figure.value, *cell.evidence) for cell in cells]


def points_more_than_first(claim: Claim, view: View, views: Views) -> List[Cell]:
    """How many more modes are on the front of each workload than on that of the claim's first."""
    cells = points_on_front(claim, view, views)
    if len(cells) < len(claim.where[0]["workload"]):
        return []
    first, *others = cells
    return [exactly(cell.label, cell.figure.value - first.figure.value, *cell.evidence) for cell in others]


def first_mode_on_front(claim: Claim, view: View, views: Views) -> List[Cell]:
    """1 where the first of the power modes is on the front of two quantities, 0 where not."""
    return _over_modes(claim, view, lambda _: lambda x, y: float(0 in pareto_front(x, y)))


def share_saved(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Greatest less least over power modes, over the greatest."""
    return _over_modes(claim, view, lambda _: lambda values: float(1.0 - values.min() / values.max()))


def range_of_papers_modes(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Greatest over least of the profiled modes whose CPU clock is within the papers' range."""
    least = min(mode.cpu_khz for _, mode in load_board("orin-agx").power_modes("grid:paper"))
    found = [
        (one, figure)
        for one in view.where(resolve(view, claim.where[0]))
        for figure in [one.figure(claim.quantities[0])]
        if figure is not None and one.conditions["power_mode"]["cpu_khz"] >= least
    ]
    if len(found) < ENOUGH_MODES:
        return []
    label = f"{found[0][0].case.workload}, {len(found)} modes"
    statistic = drawn(label, [[figure for _, figure in found]], lambda values: float(values.max() / values.min()))
    return [Cell(label, statistic, tuple(one for one, _ in found))]


def best_at_greatest_cpu_clock(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Least at the greatest CPU clock over least of all power modes, of each quantity."""

    def of(found: List[Evidence]) -> Statistic:
        clocks = _cpu_khz(found)
        return lambda values: float(values[clocks == clocks.max()].min() / values.min())

    return [
        cell for quantity in claim.quantities for cell in _over_modes(claim._replace(quantities=(quantity,)), view, of)
    ]


def slowest_at_fast_cpu_over_fastest_at_slow(claim: Claim, view: View, views: Views) -> List[Cell]:
    """The slowest power mode at the greatest CPU clock over the fastest at 1,200 MHz or less."""

    def of(found: List[Evidence]) -> Statistic:
        clocks = _cpu_khz(found)
        return lambda times: float(times[clocks == clocks.max()].max() / times[clocks <= 1_200_000].min())

    return _over_modes(claim, view, of)


def _linear_errors(claim: Claim, view: View, fitted_to: Optional[str] = None) -> List[Cell]:
    """Mean absolute error, over all power modes, of a linear regression of a quantity on cores and clocks.

    Args:
        claim: names the modes.
        view: of the device.
        fitted_to: names of the modes that it is fitted to; all of them where None.
    """

    def of(found: List[Evidence]) -> Statistic:
        modes = np.array([list(one.conditions["power_mode"].values()) for one in found], dtype=float)
        inputs = np.column_stack([modes / modes.max(axis=0), np.ones(len(modes))])
        known = np.array([fitted_to is None or one.case.power_mode in fitted_to for one in found])

        def error(times: np.ndarray) -> float:
            weights = np.linalg.lstsq(inputs[known], times[known], rcond=None)[0]
            return float(np.mean(np.abs(inputs @ weights / times - 1.0)))

        return error

    return _over_modes(claim, view, of)


def error_of_linear_model(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Mean absolute error of a linear regression over all modes, fitted to all of them."""
    return _linear_errors(claim, view)


def first_linear_error_over_others(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Error of a regression fitted to the papers' four modes (004 sec. 5.7): the first workload's over each other's."""
    cells = _linear_errors(claim, view, "efij")
    if len(cells) < len(claim.where[0]["workload"]):
        return []
    first, *others = cells
    return [exactly(cell.label, first.figure.value / cell.figure.value, *first.evidence) for cell in others]


def error_of_ten_minibatches(claim: Claim, view: View, views: Views) -> List[Cell]:
    """The mean error of stretches of ten that have no minibatch in common, of each long profile; bootstrap draws."""
    cells = []
    for one in view.where({}):
        if SHORT in one.stretches:
            errors = np.array(getattr(one.stretches[SHORT], f"{claim.quantities[0]}_errors")[::SHORT])
            errors = errors[~np.isnan(errors)]
            if len(errors) > 1:
                cells.append(_bootstrapped(one.case.id, errors, len(errors), np.mean, one))
    return cells


def _without_power(claim: Claim, view: View, length: int, most_s: float = math.inf) -> List[Cell]:
    return [
        exactly(one.case.id, one.stretches[length].without_power, one)
        for one in view.where(resolve(view, claim.where[0]))
        if one.figure("power") is not None
        and length in one.stretches
        and np.median(one.stretches[length].seconds) < most_s
    ]


def ten_without_power_sample(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Share of the stretches of ten quick minibatches that hold no power sample."""
    return _without_power(claim, view, SHORT, QUICK_S)


def forty_without_power_sample(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Share of the stretches of forty minibatches that hold no power sample."""
    return _without_power(claim, view, USUAL)


FUNCTIONS: Mapping[str, ClaimFunction] = {
    "value": value,
    "ratio": ratio_of_cases,
    **{
        function.__name__: function
        for function in (
            *(
                ratio_of_ratios,
                extremes,
                as_printed,
                over_data_sizes,
                watts_saved,
                variation_of_epochs,
                range_of_boards,
            ),
            *(variation_of_boards, throttled_share, best_of_both_over_maxn, correlation, points_on_front),
            *(points_more_than_first, first_mode_on_front, share_saved, range_of_papers_modes),
            *(best_at_greatest_cpu_clock, slowest_at_fast_cpu_over_fastest_at_slow, error_of_linear_model),
            *(first_linear_error_over_others, error_of_ten_minibatches, ten_without_power_sample),
            forty_without_power_sample,
        )
    },
}
"""By the names that `claims.csv` has for them."""
