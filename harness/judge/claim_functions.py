"""What claims are about, as figures of a device's evidence: ratios and values, and a few statistics over several cases.

Each function takes a claim, what a device says, and what all devices say, and gives a cell for each case or pair of
cases; without cells the profiles that it needs are not there.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.boards import BOARDS, load_board
from harness.core.cases import DEFAULT_MINIBATCHES, INSTANCE_MARK, TRAINING, Case
from harness.core.mode_texts import DEFAULT, MAXN
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import S_PER_MINUTE, ms_to_s, mw_to_w, w_to_mw
from harness.judge.claim_list import ANY, BOARD, ENOUGH_CORES, HELD_DOWN, Claim, Conditions
from harness.judge.evidence import COLD, MEASURED, SIMULATED, WARM, Evidence, View
from harness.judge.published_figures import PrintedRatio, comparisons
from harness.stats.estimates import DRAWS, Drawn, Estimate, drawn, quotient
from harness.stats.experiments import LENGTHS

Views = Mapping[str, View]  # name of a device to what it says; of the device that is asked first
REPEATED = 5  # fewer epochs than that say nothing of how much they vary
LEAST_BOARDS = 3  # fewer boards than that say nothing of how much boards of a type vary
ENOUGH_MODES = 20  # fewer modes say little about the range of all
SETTLING_S = 2.5  # of the power, after a change of mode (001 sec. 2.5: 2 to 3 s)
BUDGETS_W = np.arange(17, 51)  # 001 sec. 5.2
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


@functools.lru_cache(maxsize=None)
def default_mode(board: str) -> str:
    """The papers' mode of a board, by the name that cases have; any other machine's is its greatest."""
    return load_board(board).power_modes(DEFAULT)[0][0] if board in BOARDS and load_board(board).papers_mode else MAXN


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
            yield from _across_boards(view, views, before[BOARD], resolve(view, where))
            continue
        for one in view.where({**resolve(view, where), **resolve(view, before)}):
            for change in _changes(view, one, resolve(view, after)):
                other = view.like(one, change)
                # The papers' boards have four cores or more; with fewer than workers these suffer (004 sec. 5.6.5).
                if other is not None and (
                    ENOUGH_CORES not in where or other.case.workers <= other.conditions["power_mode"]["cpu_cores"]
                ):
                    yield one, other


def _changes(view: View, one: Evidence, after: Conditions) -> Iterator[Dict[str, Any]]:
    """Every combination of what the second case has instead; any other value is one that this device has."""
    options = []
    for name, values in after.items():
        if values == (ANY,):
            values = tuple(sorted({fields[name] for fields in view.fields} - {None, one.fields[name]}))
        if after[name] == (ANY,) and name == "storage":
            values = tuple(found for found in values if found not in view.held_down)  # slower than any medium may be
        options.append([(name, found) for found in values])
    return (dict(change) for change in itertools.product(*options))


def _across_boards(
    view: View, views: Views, boards: Sequence[str], where: Conditions
) -> Iterator[Tuple[Evidence, Evidence]]:
    """Cases of the first device of other boards, and the same of this one, each in its default mode."""
    others = [other for other in views.values() if other.board in boards]
    if others and view.board not in boards:
        for mine in view.where(where):
            theirs = others[0].like(mine, {"power_mode": default_mode(others[0].board)}, ["device"])
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
    """A device's ratios over the printed ones of its board: 1 within a printed range, else over the nearer end."""
    cells = []
    for fact in claim.facts:
        for found in comparisons(fact):
            if found.after.device == view.board:
                for cell in _seen(claim, found, view, views):
                    printed = min(max(cell.figure.value, found.least), found.greatest)
                    own = cell.figure._replace(value=cell.figure.value / printed)
                    cells.append(Cell(f"{fact}, {cell.label}", own, cell.evidence))
    return cells


PER_EPOCH = {"epoch_time": "time", "stall_time": "stall", "compute_time": "compute", "energy": "energy"}
PER_MINIBATCH = {
    "minibatch_stall": "stall",
    "minibatch_compute": "compute",
    "power": "power",
    "gpu_utilisation": "gpu_load",
}
"""Metric of a figure to quantity of evidence."""


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


def _bootstrapped(one: Evidence, found: Sequence[float], statistic: Callable[..., np.ndarray]) -> Cell:
    """A statistic of values that are independent, drawn with replacement."""
    values, generator = np.array(found), np.random.default_rng(len(found))
    draws = statistic(values[generator.integers(len(values), size=(DRAWS, len(values)))], axis=1)
    return Cell(one.case.id, Drawn(float(statistic(values, axis=0)), tuple(draws.tolist())), (one,))


def _coefficient(values: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.std(values, axis=axis, ddof=1) / np.mean(values, axis=axis)


def over_epochs(claim: Claim, view: View, views: Views, statistic: Callable[..., np.ndarray]) -> List[Cell]:
    """A statistic of the epoch times of each case that ran often enough."""
    return [
        _bootstrapped(one, one.epochs_s, statistic)
        for one in view.where(resolve(view, claim.where[0]))
        if len(one.epochs_s) >= REPEATED
    ]


def _three_over_all(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """The median of three epochs (003) over the mean of all (004)."""
    return np.median(np.take(values, range(3), axis=axis), axis=axis) / np.mean(values, axis=axis)


def over_boards(claim: Claim, view: View, views: Views, statistic: Callable[..., float]) -> List[Cell]:
    """A statistic of a figure over the boards of a type; asked of the first of them, where there are three or more.

    It is of the one case that the most boards have run.
    """
    name = view.device.partition(INSTANCE_MARK)[0]
    family = [other for device, other in views.items() if device.partition(INSTANCE_MARK)[0] == name]
    told: Dict[Case, List[Tuple[Evidence, Estimate]]] = {}
    for member in family if family[0] is view else ():
        for one in member.where(resolve(member, claim.where[0])):
            figure = one.figure(claim.quantities[0])
            if figure is not None and len(one.epochs_s) >= REPEATED:
                told.setdefault(dataclasses.replace(one.case, device=name), []).append((one, figure))
    found = max(told.values(), key=len, default=[])
    if len(found) < LEAST_BOARDS:
        return []
    label = f"{found[0][0].case.workload} on {len(found)} boards"
    return [Cell(label, drawn(label, [[figure for _, figure in found]], statistic), tuple(one for one, _ in found))]


def throttled_share(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Share of throttled cases of training, among those with a sensor that would have told; left-out ones count."""
    trained = [*view.where({}), *(one for one in view.left_out if one.case.task == TRAINING)]
    watched = [one for one in trained if any(name.startswith("throttle_") for name in one.channels)]
    throttled = {one.case for one in trained if "throttled" in one.flags}
    cases = {one.case for one in watched} | throttled
    if view.provenance != MEASURED or not cases:
        return []
    return [exactly(f"{len(cases)} cases", len(throttled) / len(cases), *watched)]


class ModesOfClaim(NamedTuple):
    """The power modes that a statistic is taken over."""

    names: List[str]
    settings: np.ndarray  # cores and clocks, shape (modes, 4)

    @property
    def cpu_khz(self) -> np.ndarray:
        return self.settings[:, PowerMode._fields.index("cpu_khz")]


def over_modes(
    claim: Claim, view: View, views: Views, statistic: Callable[..., float], least_cpu_khz: int = 0
) -> List[Cell]:
    """A statistic over the power modes of each workload: the claim's, if all were profiled, or all, if enough."""
    (where,) = claim.where
    cells = []
    for workload in where["workload"]:
        by_mode = {
            one.case.power_mode: one
            for one in view.where({**where, "workload": (workload,)})
            if one.conditions["power_mode"]["cpu_khz"] >= least_cpu_khz
        }
        names = where.get("power_mode", tuple(by_mode))
        if set(by_mode) != set(names) or ("power_mode" not in where and len(names) < ENOUGH_MODES):
            continue
        found = [by_mode[name] for name in names]
        series = [[one.figure(quantity) for one in found] for quantity in claim.quantities]
        if not any(None in figures for figures in series):
            mode_of = [[one.conditions["power_mode"][field] for field in PowerMode._fields] for one in found]
            modes = ModesOfClaim(list(names), np.array(mode_of, dtype=float))
            figure = drawn(f"{view.device} {workload}", series, functools.partial(statistic, modes))
            cells.append(Cell(workload, figure, tuple(found)))
    return cells


def _best_of_both_over_maxn(modes: ModesOfClaim, times: np.ndarray, energies: np.ndarray) -> float:
    """Of the mode that comes closest to MAXN (g) or beats it in both quantities, the worse of its two ratios."""
    place = modes.names.index("g")
    worse = np.maximum(times / times[place], energies / energies[place])
    return float(np.delete(worse, place).min())


def _slowest_at_fast_cpu_over_fastest_at_slow(modes: ModesOfClaim, times: np.ndarray) -> float:
    """The slowest power mode at the greatest CPU clock over the fastest at 1,200 MHz or less."""
    return float(times[modes.cpu_khz == modes.cpu_khz.max()].max() / times[modes.cpu_khz <= 1_200_000].min())


def _linear_error(
    modes: ModesOfClaim,
    times: np.ndarray,
    fitted_to: Optional[str] = None,
    statistic: Callable[[np.ndarray], np.floating] = np.mean,
) -> float:
    """A statistic of absolute errors, of a linear regression on cores and clocks fitted to some modes or all."""
    inputs = np.column_stack([modes.settings / modes.settings.max(axis=0), np.ones(len(times))])
    known = np.array([fitted_to is None or name in fitted_to for name in modes.names])
    weights = np.linalg.lstsq(inputs[known], times[known], rcond=None)[0]
    return float(statistic(np.abs(inputs @ weights / times - 1.0)))


def over_papers_modes(claim: Claim, view: View, views: Views, statistic: Callable[..., float]) -> List[Cell]:
    """A statistic over the profiled modes whose CPU clock is within the papers' range."""
    least = min(mode.cpu_khz for _, mode in load_board("orin-agx").power_modes("grid:paper"))
    cells = over_modes(claim, view, views, statistic, least)
    return [cell._replace(label=f"{cell.label}, {len(cell.evidence)} modes") for cell in cells]


def best_at_greatest_cpu_clock(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Least at the greatest CPU clock over least of all power modes, of each quantity."""

    def best(modes: ModesOfClaim, values: np.ndarray) -> float:
        return float(values[modes.cpu_khz == modes.cpu_khz.max()].min() / values.min())

    alone = [claim._replace(quantities=(quantity,)) for quantity in claim.quantities]
    return [cell for one in alone for cell in over_modes(one, view, views, best)]


def points_on_front(claim: Claim, view: View, views: Views) -> List[Cell]:
    """How many modes are on the front of two quantities; a draw by their noise would only add some."""
    cells = over_modes(claim, view, views, lambda modes, x, y: float(len(pareto_front(x, y))))
    return [exactly(cell.label, cell.figure.value, *cell.evidence) for cell in cells]


def _of_each_workload(claim: Claim, cells: List[Cell]) -> List[Cell]:
    """Cells of all workloads of a claim that compares them; none where one is missing."""
    return cells if len(cells) == len(claim.where[0]["workload"]) else []


def points_more_than_first(claim: Claim, view: View, views: Views) -> List[Cell]:
    """How many more modes are on the front of each workload than on that of the claim's first."""
    cells = _of_each_workload(claim, points_on_front(claim, view, views))
    return [exactly(cell.label, cell.figure.value - cells[0].figure.value, *cell.evidence) for cell in cells[1:]]


def first_over_others(claim: Claim, view: View, views: Views, cells_of: ClaimFunction) -> List[Cell]:
    """A figure of the claim's first workload over that of each other."""
    cells = _of_each_workload(claim, cells_of(claim, view, views))
    return [exactly(one.label, cells[0].figure.value / one.figure.value, *cells[0].evidence) for one in cells[1:]]


def linear_errors_below_a_tenth(claim: Claim, view: View, views: Views) -> List[Cell]:
    """Of all predictions by that regression, of each workload in each mode, the share that errs by less than 10 %."""
    share = functools.partial(_linear_error, fitted_to="efij", statistic=lambda errors: np.mean(errors < 0.1))
    cells = _of_each_workload(claim, over_modes(claim, view, views, share))
    if not cells:
        return []
    mean = float(np.mean([cell.figure.value for cell in cells]))
    return [exactly(f"{len(cells)} networks", mean, *(one for cell in cells for one in cell.evidence))]


def error_of_ten_minibatches(claim: Claim, view: View, views: Views) -> List[Cell]:
    """The mean error of stretches of ten that have no minibatch in common, of each long profile; bootstrap draws."""
    cells = []
    for one in view.where({}):
        if SHORT in one.stretches:
            errors = np.array(getattr(one.stretches[SHORT], f"{claim.quantities[0]}_errors")[::SHORT])
            errors = errors[~np.isnan(errors)]
            if len(errors) > 1:
                cells.append(_bootstrapped(one, errors, np.mean))
    return cells


def without_power_sample(claim: Claim, view: View, views: Views, length: int, most_s: float = math.inf) -> List[Cell]:
    """Share of the stretches of some length that hold no power sample, of profiles where they take less than this."""
    return [
        exactly(one.case.id, one.stretches[length].without_power, one)
        for one in view.where(resolve(view, claim.where[0]))
        if one.figure("power") is not None
        and length in one.stretches
        and np.median(one.stretches[length].seconds) < most_s
    ]


def maxn_penalty(claim: Claim, view: View, views: Views) -> List[Cell]:
    """What MAXN takes longer than the best mode within a budget (Q1), on average over budgets that some mode meets."""

    def penalty(modes: ModesOfClaim, times: np.ndarray, powers: np.ndarray) -> float:
        best = np.where(powers <= w_to_mw(BUDGETS_W)[:, None], times, np.inf).min(axis=1)
        at_maxn = times[np.array(modes.names) == MAXN]
        return float(np.mean(at_maxn / best[np.isfinite(best)] - 1.0)) if len(at_maxn) else math.nan

    return [cell for cell in over_modes(claim, view, views, penalty) if not math.isnan(cell.figure.value)]


def _minutes_of_fifty_profiles(modes: ModesOfClaim, times: np.ndarray) -> float:
    """Of 50 random ones of the modes: each settles, trains a minibatch that does not count, and 40 that do."""
    return float(50 * np.mean(SETTLING_S + ms_to_s((1 + DEFAULT_MINIBATCHES) * times)) / S_PER_MINUTE)


def _of_modes(statistic: Callable[..., float]) -> ClaimFunction:
    return functools.partial(over_modes, statistic=statistic)


range_of_papers_modes = functools.partial(
    over_papers_modes, statistic=lambda modes, values: float(values.max() / values.min())
)

FUNCTIONS: Mapping[str, ClaimFunction] = {
    "value": value,
    "ratio": ratio_of_cases,
    "ratio_of_ratios": ratio_of_ratios,
    "extremes": extremes,
    "as_printed": as_printed,
    "over_data_sizes": over_data_sizes,
    "watts_saved": watts_saved,
    "variation_of_epochs": functools.partial(over_epochs, statistic=_coefficient),
    "three_epochs_over_all": functools.partial(over_epochs, statistic=_three_over_all),
    "range_of_boards": functools.partial(over_boards, statistic=lambda values: float(values.max() / values.min())),
    "variation_of_boards": functools.partial(over_boards, statistic=lambda values: float(_coefficient(values))),
    "throttled_share": throttled_share,
    "best_of_both_over_maxn": _of_modes(_best_of_both_over_maxn),
    "correlation": _of_modes(lambda modes, x, y: float(np.corrcoef(np.log(x), np.log(y))[0, 1])),
    "points_on_front": points_on_front,
    "points_more_than_first": points_more_than_first,
    "first_mode_on_front": _of_modes(lambda modes, x, y: float(0 in pareto_front(x, y))),
    "share_saved": _of_modes(lambda modes, values: float(1.0 - values.min() / values.max())),
    "range_of_papers_modes": range_of_papers_modes,
    "first_range_over_others": functools.partial(first_over_others, cells_of=range_of_papers_modes),
    "minutes_of_fifty_profiles": functools.partial(over_papers_modes, statistic=_minutes_of_fifty_profiles),
    "best_at_greatest_cpu_clock": best_at_greatest_cpu_clock,
    "slowest_at_fast_cpu_over_fastest_at_slow": _of_modes(_slowest_at_fast_cpu_over_fastest_at_slow),
    "error_of_linear_model": _of_modes(_linear_error),
    "first_linear_error_over_others": functools.partial(  # fitted to the papers' four modes (004 sec. 5.7)
        first_over_others, cells_of=_of_modes(functools.partial(_linear_error, fitted_to="efij"))
    ),
    "maxn_penalty": maxn_penalty,
    "linear_errors_below_a_tenth": linear_errors_below_a_tenth,
    "error_of_ten_minibatches": error_of_ten_minibatches,
    "ten_without_power_sample": functools.partial(without_power_sample, length=SHORT, most_s=QUICK_S),
    "forty_without_power_sample": functools.partial(without_power_sample, length=USUAL),
}
"""By the names that `claims.csv` has for them."""
