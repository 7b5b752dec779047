"""Statistics of measured cases as plain functions of a frame; compared with a bound, they give verdicts.

    frame = pooled(read_frame(store))
    ratio(frame, "time", workers=(0, 4), workload=PAPERS, device="orin-agx") < 1

`frame` has a row for each case (`harness.judge.case_frame.pooled`); a `Cases` of such a frame is accepted too. Keyword
arguments are conditions (`harness.judge.query`). Each function returns `CaseFigures` (`harness.judge.verdict`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.boards import load_board
from harness.core.cases import INSTANCE_MARK, TRAINING, Case
from harness.core.errors import InvalidValueError
from harness.core.mode_texts import DEFAULT
from harness.core.power_modes import PowerMode
from harness.core.terminal import available_hint
from harness.core.units import mw_to_w
from harness.judge.case_frame import COLD, MEASURED, QUANTITIES, SIMULATED, WARM, Row, case_of, estimate_of
from harness.judge.published_figures import PrintedRatio, comparisons
from harness.judge.query import CasesOfDevice, Frame, Query, describe_change, field, label_of
from harness.judge.verdict import CaseFigures, Cell, exactly
from harness.stats.estimates import DRAWS, Drawn, Estimate, drawn, quotient
from harness.stats.experiments import LENGTHS

REPEATED = 5  # with fewer epochs, their variation cannot be estimated
LEAST_BOARDS = 3  # with fewer boards, the variation between boards of a type cannot be estimated
ENOUGH_MODES = 20  # fewer modes do not represent the range of all
SHORT, USUAL = LENGTHS[0], LENGTHS[-1]


def _figures(
    query: Query,
    cells: Sequence[Cell],
    meaning: str,
    is_unmeasured: bool = False,
    quantity: str = "",
    against: str = "",
) -> CaseFigures:
    """The cells of a query; without any, why there are none."""
    missing = ""
    if not cells:
        name = query.device or "no device"
        missing = f"{name} has no profiles of the compared cases"
        if is_unmeasured:
            missing = f"no verdict without a sensor: the profiles of {name} have no {quantity}"
    return CaseFigures(cells, meaning, missing, query.named, quantity, against, board=query.board)


# -- values and ratios -------------------------------------------------------------------------------------------------


def value(frame: Frame, quantity: str, **conditions: Any) -> CaseFigures:
    """A quantity of each case that satisfies the conditions, in the unit of `harness.judge.case_frame.QUANTITIES`."""
    query = Query(frame, conditions)
    rows = [row for device in query.devices for row in query.rows(device)]
    figures = [(row, estimate_of(row, _checked_quantity(quantity), query.phases[1])) for row in rows]
    cells = [Cell(label_of(row), figure, (row,)) for row, figure in figures if figure is not None]
    return _figures(query, cells, QUANTITIES[quantity], bool(rows), quantity)


def _checked_quantity(quantity: str) -> str:
    if quantity not in QUANTITIES:
        raise InvalidValueError(f"{quantity!r} is not a quantity", available_hint(quantity, QUANTITIES))
    return quantity


def ratio(
    frame: Frame,
    *quantities: str,
    per_sample: bool = False,
    against: Union[str, Sequence[str]] = (),
    **conditions: Any,
) -> CaseFigures:
    """The second case over the first, for all pairs that differ by the given change and agree in everything else.

    `per_sample` divides times by the batch size. `against` compares with the case of another board instead of with a
    change: `against="orin-agx"` is the time on this device over that on Orin AGX, each in its default power mode.
    """
    query = Query(frame, conditions)
    boards = (against,) if isinstance(against, str) else tuple(against)
    is_across = bool(boards)
    pairs = [
        pair
        for device in query.devices
        for pair in (query.pairs_against(device, boards) if is_across else query.pairs(device))
    ]
    cells = []
    for quantity, (row, other) in itertools.product(map(_checked_quantity, quantities), pairs):
        ratio = _ratio(row, other, quantity, query.phases)
        if ratio is not None:
            shown = _per_sample(ratio, row, other) if per_sample else ratio
            cells.append(Cell(label_of(other), shown, (row, other)))
    what = f"{' and '.join(quantities)}{' per sample' * per_sample}"
    meaning = f"{what}, {f'here / on {boards[0]}' if is_across else describe_change(query)}"
    return _figures(query, cells, meaning, bool(pairs), " or ".join(quantities), boards[0] if is_across else "")


def _ratio(row: Row, other: Row, quantity: str, phases: Tuple[str, str]) -> Optional[Estimate]:
    first, second = estimate_of(row, quantity, phases[0]), estimate_of(other, quantity, phases[1])
    return None if first is None or second is None or not first.value else quotient(first, second)


def _per_sample(figure: Estimate, row: Row, other: Row) -> Estimate:
    return figure._replace(value=figure.value * row.case.batch_size / other.case.batch_size)


def time_over_data_sizes(frame: Frame, **conditions: Any) -> CaseFigures:
    """Time with one size of the data set over time with another; a simulated board has only the papers' cases."""
    query = Query(frame, conditions)
    cells: List[Cell] = []
    for device in query.devices:
        own = {**conditions, "device": device.name}
        rows = query.rows(device)
        scales = sorted({field(row, "data_scale") for row in rows} - {None})
        if device.provenance == SIMULATED:
            own.update(workload="mobilenetv3-gld23k", workers=4, power_mode=DEFAULT)
            scales = [scale for scale in (1.0, 0.25, 4.0) if scale in scales]
        if len(scales) > 1:
            cells += ratio(query.cases, "time", data_scale=[(scales[0], other) for other in scales[1:]], **own).cells
    return _figures(query, cells, "time per minibatch / with another size of the data set", quantity="time")


def watts_saved(frame: Frame, **conditions: Any) -> CaseFigures:
    """Power that the second case saves compared with the first, in W."""
    query, cells = Query(frame, conditions), []
    pairs = [(device, pair) for device in query.devices for pair in query.pairs(device)]
    for device, (row, other) in pairs:
        powers = [
            estimate for estimate in (estimate_of(each, "power") for each in (row, other)) if estimate is not None
        ]
        if len(powers) == 2:
            label = f"{device.name} {row.case.power_mode.name}"
            saved = drawn(label, [[power] for power in powers], lambda held, free: mw_to_w(float(held[0] - free[0])))
            cells.append(Cell(label, saved, (row, other)))
    return _figures(query, cells, f"W saved, {describe_change(query)}", bool(pairs), "power")


# -- what the papers print ---------------------------------------------------------------------------------------------


def as_printed(frame: Frame, *facts: str, device: Optional[str] = None) -> CaseFigures:
    """A device's ratios over those printed for its board: 1 within a printed range, else over its nearer end.

    `facts` are ids in `baselines/published/figures.csv` of a ratio or a change, or `F919/F918`, one value over another.
    """
    query = Query(frame, {"device": device})
    cells = []
    for own in query.devices:
        for fact in facts:
            for printed in comparisons(fact):
                if printed.after.device == own.board:
                    cells += [_over_printed(fact, printed, cell) for cell in _measured_ratio(query, own, printed)]
    return _figures(query, cells, "ratio / the paper's")


def _over_printed(fact: str, printed: PrintedRatio, cell: Cell) -> Cell:
    nearest = min(max(cell.figure.value, printed.least), printed.greatest)
    return Cell(f"{fact}, {cell.label}", cell.figure._replace(value=cell.figure.value / nearest), cell.cases)


PER_EPOCH = {"epoch_time": "time", "stall_time": "stall", "compute_time": "compute", "energy": "energy"}
PER_MINIBATCH = {
    "minibatch_stall": "stall",
    "minibatch_compute": "compute",
    "power": "power",
    "gpu_utilisation": "gpu_load",
}
"""Metric of a printed figure to quantity."""


def _measured_ratio(query: Query, device: CasesOfDevice, printed: PrintedRatio) -> List[Cell]:
    """The ratio in profiles of a device, from all pairs of cases that match the paper."""
    axes = ("workers", "storage", "batch_size", "power_mode", "clocks")
    conditions = (printed.before, printed.after)
    cold = [condition.cache == COLD for condition in conditions]
    before, after = ({name: getattr(condition, name) for name in axes} for condition in conditions)
    shared: Dict[str, Any] = {"workload": printed.after.workload, "cache": COLD if any(cold) else [WARM, COLD]}
    scales = [condition.data_scale for condition in conditions]
    if scales[0] == scales[1]:
        shared["data_scale"] = [None, 1.0] if scales[0] == 1.0 else scales[0]
    else:
        before["data_scale"], after["data_scale"] = scales
    shared.update((name, before[name]) for name in before if before[name] == after[name])
    changes: Dict[str, Any] = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    epochs = tuple(COLD if is_cold else WARM for is_cold in cold)
    quantity = {**PER_EPOCH, **PER_MINIBATCH}[printed.metric]
    measured = ratio(query.cases, quantity, device=device.name, epochs=epochs, **shared, **changes)
    if printed.metric not in PER_EPOCH:
        return measured.cells
    factor = scales[1] / scales[0]
    return [cell._replace(figure=cell.figure._replace(value=cell.figure.value * factor)) for cell in measured.cells]


# -- repetitions, boards, heat -----------------------------------------------------------------------------------------


def over_epochs(frame: Frame, statistic: Callable[..., Any], **conditions: Any) -> CaseFigures:
    """A statistic of the epoch times of each case with at least `REPEATED`; `statistic(times, axis)`, as in NumPy."""
    query = Query(frame, conditions)
    rows = [row for device in query.devices for row in query.rows(device)]
    cells = [_bootstrapped(row, row.epochs_s, statistic) for row in rows if len(row.epochs_s) >= REPEATED]
    return _figures(query, cells, f"{_in_words(statistic)} of epoch times")


def _in_words(function: Callable[..., Any]) -> str:
    return function.__name__.strip("_").replace("_", " ")


def _bootstrapped(row: Row, values: Sequence[float], statistic: Callable[..., Any]) -> Cell:
    """A statistic of independent values, with draws by bootstrap."""
    array, generator = np.array(values), np.random.default_rng(len(values))
    draws = statistic(array[generator.integers(len(array), size=(DRAWS, len(array)))], axis=1)
    return Cell(case_of(row).id, Drawn(float(statistic(array, axis=0)), tuple(draws.tolist())), (row,))


def coefficient_of_variation(values: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.std(values, axis=axis, ddof=1) / np.mean(values, axis=axis)


def greatest_over_least(values: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.max(values, axis=axis) / np.min(values, axis=axis)


def over_boards(frame: Frame, statistic: Callable[..., Any], quantity: str, **conditions: Any) -> CaseFigures:
    """A statistic of a quantity over the boards of a type, with at least `LEAST_BOARDS`: a cell of the first board.

    It uses the case that most of the boards have run.
    """
    query, cells = Query(frame, conditions), []
    for device in query.devices:
        name = device.name.partition(INSTANCE_MARK)[0]
        family = [own for own in query.cases.devices.values() if own.name.partition(INSTANCE_MARK)[0] == name]
        runs: Dict[Case, List[Tuple[Row, Estimate]]] = {}
        for member in family if family[0] is device else ():
            for row in query.rows(member):
                estimate = estimate_of(row, _checked_quantity(quantity))
                if estimate is not None and len(row.epochs_s) >= REPEATED:
                    runs.setdefault(dataclasses.replace(row.case, device=name), []).append((row, estimate))
        boards = max(runs.values(), key=len, default=[])
        if len(boards) >= LEAST_BOARDS:
            label = f"{boards[0][0].case.workload} on {len(boards)} boards"
            figure = drawn(label, [[estimate for _, estimate in boards]], lambda values: float(statistic(values)))
            cells.append(Cell(label, figure, tuple(row for row, _ in boards)))
    return _figures(query, cells, f"{_in_words(statistic)} {quantity} between boards")


def throttled_share(frame: Frame, **conditions: Any) -> CaseFigures:
    """Share of throttled training cases among those with a throttling sensor, left-out profiles included."""
    query, cells = Query(frame, conditions), []
    for device in query.devices:
        trained = [*query.rows(device), *(row for row in device.left_out if row.case.task == TRAINING)]
        watched = [row for row in trained if any(name.startswith("throttle_") for name in row.channels)]
        throttled = {case_of(row) for row in trained if "throttled" in row.flag_kinds}
        cases = {case_of(row) for row in watched} | throttled
        if device.provenance == MEASURED and cases:
            cells.append(exactly(f"{len(cases)} cases", len(throttled) / len(cases), *watched))
    return _figures(query, cells, "share of throttled cases", True, "sensor of throttling")


# -- over power modes --------------------------------------------------------------------------------------------------


class ProfiledModes(NamedTuple):
    """The power modes of a statistic."""

    names: List[str]
    settings: np.ndarray  # cores and clocks, shape (modes, 4)

    @property
    def cpu_khz(self) -> np.ndarray:
        return self.settings[:, PowerMode._fields.index("cpu_khz")]


def over_modes(
    frame: Frame,
    statistic: Callable[..., float],
    *quantities: str,
    papers_range: bool = False,
    complete: bool = False,
    **conditions: Any,
) -> CaseFigures:
    """A statistic over power modes, a cell for each workload.

    It covers the given modes, all of which must be profiled, or by default all profiled modes, at least `ENOUGH_MODES`.
    `statistic(modes, values, ...)` takes `ProfiledModes` and an array of each quantity; NaN gives no cell.
    `papers_range` leaves out modes below the CPU clocks of the papers' grid. With `complete` there are cells of all
    workloads or none.
    """
    query, cells = Query(frame, conditions), []
    least = min(mode.cpu_khz for _, mode in load_board("orin-agx").power_modes("grid:paper")) if papers_range else 0
    is_unmeasured = False
    for device, workload in itertools.product(query.devices, query.alternatives[0][0]["workload"]):
        rows = [row for row in query.rows(device) if row.case.workload == workload]
        by_mode = {row.case.power_mode.name: row for row in rows if row.conditions["power_mode"]["cpu_khz"] >= least}
        wanted = query.alternatives[0][0].get("power_mode", tuple(by_mode))
        if set(by_mode) != set(wanted) or ("power_mode" not in query.named and len(wanted) < ENOUGH_MODES):
            continue
        own = [by_mode[name] for name in wanted]
        series: List[List[Estimate]] = []
        for quantity in quantities:
            estimates = [estimate_of(row, _checked_quantity(quantity)) for row in own]
            series.append([estimate for estimate in estimates if estimate is not None])
        if any(len(estimates) < len(own) for estimates in series):
            is_unmeasured = True
            continue
        settings = [[row.conditions["power_mode"][name] for name in PowerMode._fields] for row in own]
        modes = ProfiledModes(list(wanted), np.array(settings, dtype=float))
        figure = drawn(f"{device.name} {workload}", series, functools.partial(statistic, modes))
        label = f"{workload}, {len(own)} modes" if papers_range else workload
        cells += [Cell(label, figure, tuple(own))] if not math.isnan(figure.value) else []
    if complete and len(cells) < len(query.alternatives[0][0]["workload"]):
        cells = []
    meaning = f"{_in_words(statistic)} of {' and '.join(quantities)} over power modes"
    return _figures(query, cells, meaning, is_unmeasured, " or ".join(quantities))


def correlation(frame: Frame, first: str, second: str, **conditions: Any) -> CaseFigures:
    """The correlation of the logarithms of two quantities over power modes."""

    def correlation_of_logarithms(modes: ProfiledModes, first: np.ndarray, second: np.ndarray) -> float:
        return float(np.corrcoef(np.log(first), np.log(second))[0, 1])

    return over_modes(frame, correlation_of_logarithms, first, second, **conditions)


# -- the length of a profile -------------------------------------------------------------------------------------------


def error_of_short_profiles(frame: Frame, quantity: str, **conditions: Any) -> CaseFigures:
    """The mean error of the time or power of disjoint stretches of ten minibatches, for each long profile."""
    query, cells = Query(frame, conditions), []
    for row in (row for device in query.devices for row in query.rows(device) if SHORT in row.stretches):
        errors = np.array(getattr(row.stretches[SHORT], f"{quantity}_errors")[::SHORT])
        errors = errors[~np.isnan(errors)]
        if len(errors) > 1:
            cells.append(_bootstrapped(row, errors, np.mean))
    return _figures(query, cells, f"error of the {quantity} of ten minibatches")


def share_without_power_sample(
    frame: Frame, length: int, shorter_than_s: float = math.inf, **conditions: Any
) -> CaseFigures:
    """Share of the stretches of a length without a power sample, for profiles whose stretches take less than a time."""
    query = Query(frame, conditions)
    rows = [row for device in query.devices for row in query.rows(device) if length in row.stretches]
    cells = [
        exactly(case_of(row).id, row.stretches[length].without_power, row)
        for row in rows
        if estimate_of(row, "power") is not None and np.median(row.stretches[length].seconds) < shorter_than_s
    ]
    is_blind = bool(rows) and all(estimate_of(row, "power") is None for row in rows)
    return _figures(query, cells, f"share of {length} minibatches without a power sample", is_blind, "power")


STATISTICS: Dict[str, Callable[..., CaseFigures]] = {
    statistic.__name__: statistic
    for statistic in (
        *(value, ratio, time_over_data_sizes, watts_saved, as_printed, over_epochs, over_boards, throttled_share),
        *(over_modes, correlation, error_of_short_profiles, share_without_power_sample),
    )
}
"""The statistics that are fixtures of a claim's test, by name."""
