"""Fitting the free parameters of simulated boards to the papers' figures and to measured tables: `simulation fit`.

Each free parameter has a log-normal prior; the fit is the most likely set (maximum a posteriori). Residuals are
logarithms of model over measurement, in units of what such a deviation is worth, and robust: the tables hold slices
from other measuring sessions, and the papers contradict themselves in places.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.corpus import Row, read_corpus
from harness.core.errors import DependencyError, InvalidValueError
from harness.core.files import read_toml, write_output
from harness.core.power_modes import PowerMode
from harness.core.terminal import format_table
from harness.core.units import share_to_percent
from harness.judge.published_figures import CLOSE, Figure, load_figures
from harness.simulation.model import Load, cached_share, simulate
from harness.simulation.parameters import BOARD_FILES, PHYSICS_FILE, WORKLOAD_FILES
from tools.published import Evaluator, Parameters

PHYSICS, BOARD, WORKLOAD = "physics", "board", "workload"
DIGITS = 4
"""Significant digits of a fitted value; more would say nothing."""

_REACH = 8.0
"""Greatest distance from the prior, in spreads."""

Owner = Tuple[str, str]
"""What a parameter belongs to: its kind and name."""


class FreeParameter(NamedTuple):
    """An entry with a prior: log-normal, around `prior`, with standard deviation `spread` of the logarithm."""

    owner: Owner
    key: str
    prior: float
    spread: float

    def value(self, distance: float) -> float:
        """The value at a distance from the prior, in spreads."""
        return float(self.prior * np.exp(np.clip(distance, -_REACH, _REACH) * self.spread))


class Tie(NamedTuple):
    """An entry that follows from the same entry of another board or workload, times a factor."""

    owner: Owner
    key: str
    source: str
    times: float


def parameter_files() -> Dict[Owner, Path]:
    """The file of each owner."""
    return {
        (PHYSICS, PHYSICS): PHYSICS_FILE,
        **{(BOARD, name): path for name, path in BOARD_FILES.items()},
        **{(WORKLOAD, name): path for name, path in WORKLOAD_FILES.items()},
    }


def read_free_parameters() -> Tuple[List[FreeParameter], List[Tie]]:
    """The entries of all files with a prior, and those that follow from others."""
    free, ties = [], []
    files = parameter_files()
    for owner, path in files.items():
        for key, entry in read_toml(path).items():
            if "prior" in entry:
                free.append(FreeParameter(owner, key, float(entry["prior"]), float(entry["spread"])))
            elif "same_as" in entry:
                if (owner[0], entry["same_as"]) not in files:
                    raise InvalidValueError(f"{path}: {key} is the same as that of {entry['same_as']!r}, which is none")
                ties.append(Tie(owner, key, entry["same_as"], float(entry.get("times", 1.0))))
    return free, [_to_its_root(tie, ties) for tie in ties]


def _to_its_root(tie: Tie, ties: Sequence[Tie]) -> Tie:
    """A tie to what its source, itself tied, follows from."""
    by_place = {(one.owner, one.key): one for one in ties}
    seen = {tie.owner[1]}
    while ((tie.owner[0], tie.source), tie.key) in by_place:
        if tie.source in seen:
            raise InvalidValueError(f"{tie.key} of {tie.owner[1]} follows from itself", "give one of them a value")
        seen.add(tie.source)
        further = by_place[(tie.owner[0], tie.source), tie.key]
        tie = tie._replace(source=further.source, times=tie.times * further.times)
    return tie


def with_values(
    fixed: Parameters, free: Sequence[FreeParameter], ties: Sequence[Tie], distances: np.ndarray
) -> Parameters:
    """A set of parameters with free ones moved to some distances from their priors, and the ties drawn.

    Distances are in spreads, shape (n,).
    """
    changes: Dict[Owner, Dict[str, float]] = {}
    for parameter, distance in zip(free, distances):
        changes.setdefault(parameter.owner, {})[parameter.key] = parameter.value(distance)
    moved = _replaced(fixed, changes)
    followers: Dict[Owner, Dict[str, float]] = {}
    for tie in ties:
        source = _owners(moved)[tie.owner[0], tie.source]
        followers.setdefault(tie.owner, {})[tie.key] = getattr(source, tie.key) * tie.times
    return _replaced(moved, followers)


def _owners(parameters: Parameters) -> Dict[Owner, Any]:
    return {
        (PHYSICS, PHYSICS): parameters.physics,
        **{(BOARD, name): board for name, board in parameters.boards.items()},
        **{(WORKLOAD, name): workload for name, workload in parameters.workloads.items()},
    }


def _replaced(parameters: Parameters, changes: Mapping[Owner, Mapping[str, float]]) -> Parameters:
    def all_of(kind: str, owned: Mapping[str, Any]) -> Dict[str, Any]:
        return {name: dataclasses.replace(one, **changes.get((kind, name), {})) for name, one in owned.items()}

    return Parameters(
        dataclasses.replace(parameters.physics, **changes.get((PHYSICS, PHYSICS), {})),
        all_of(BOARD, parameters.boards),
        all_of(WORKLOAD, parameters.workloads),
    )


def file_texts(parameters: Parameters) -> Dict[Path, str]:
    """The parameter files as text, with the values of a set in those entries that are free or follow."""
    owners = _owners(parameters)
    free, ties = read_free_parameters()
    moving: Dict[Owner, List[str]] = {}
    for one in [*free, *ties]:
        moving.setdefault(one.owner, []).append(one.key)
    texts = {}
    for owner, path in parameter_files().items():
        text = path.read_text(encoding="utf-8")
        for key in moving.get(owner, []):
            value = repr(float(f"{getattr(owners[owner], key):.{DIGITS}g}"))
            text, count = re.subn(rf"(?m)^({key} = {{ value = )[^,]+", rf"\g<1>{value}", text)
            if count != 1:
                raise InvalidValueError(f"{path}: {key} does not begin its line as `{key} = {{ value = `")
        texts[path] = text
    return texts


TABLE_DEVIATION = 0.03
"""Deviation of a table's row from the model that counts as one."""

TABLE_ROWS = 1000.0
"""Rows that a table counts as, however many it has: rows of a grid are not independent."""

FIGURE_DEVIATIONS = {"=": 0.05, "~": 0.1, "range": 0.05}
"""The same of a figure with a comparator; 0.1 where it is a bound."""

COMPARISON_DEVIATION = 0.08
"""The same of a figure that compares two conditions: each of them deviates."""

MOST_STEPS = 40


class MeasuredTable(NamedTuple):
    """Rows of a corpus that were run alike."""

    device: str  # as in the corpus
    workload: str
    load: Load  # how they were run
    modes: np.ndarray  # shape (n, 4)
    log_time: np.ndarray  # natural logarithms of ms and mW, shape (n,); NaN where there is no power
    log_power: np.ndarray
    weight: float  # of a row in the fit


class Fitted(NamedTuple):
    """What a fit found."""

    parameters: Parameters  # the set
    distances: Dict[Tuple[str, str], float]  # of each free parameter from its prior, in spreads, by owner and key
    cost: float  # half the sum of squares at the end
    steps: int  # evaluations of the model without those for derivatives


def tables_of(rows: Sequence[Row]) -> List[MeasuredTable]:
    """The measured rows of a corpus, grouped by how they were run; workers as the papers ran each workload."""
    fitted = Parameters.fitted()
    groups: Dict[Tuple[str, str, str], Dict[int, List[Row]]] = {}
    for row in rows:
        known = row["device"] in fitted.boards and row["workload"] in fitted.workloads
        if known and row["provenance"] != "simulated":
            key = (row["device"], row["workload"], row["task"])
            groups.setdefault(key, {}).setdefault(row["batch_size"], []).append(row)
    tables = []
    for (device, workload_name, task), sizes in groups.items():
        workload, board = fitted.workloads[workload_name], fitted.boards[device]
        workers = workload.default_workers
        count = sum(map(len, sizes.values()))
        for batch_size, group in sizes.items():
            power = [np.nan if row["power_mw"] is None else row["power_mw"] for row in group]
            tables.append(
                MeasuredTable(
                    device,
                    workload_name,
                    Load(
                        batch_size=batch_size,
                        workers=workers,
                        cached_share=cached_share(board, workload, workers=workers),
                        task=task,
                    ),
                    np.array([[row[name] for name in PowerMode._fields] for row in group], dtype=float),
                    np.log([row["minibatch_time_ms"] for row in group]),
                    np.log(power),
                    float(np.sqrt(TABLE_ROWS / max(count, TABLE_ROWS))),
                )
            )
    return tables


def table_residuals(table: MeasuredTable, parameters: Parameters) -> Tuple[np.ndarray, np.ndarray]:
    """Logarithm of model over measurement, of time and of power, for each row."""
    board, workload = parameters.boards[table.device], parameters.workloads[table.workload]
    response = simulate(board, workload, table.modes, table.load, rough=False, physics=parameters.physics)
    return np.log(response.minibatch_time_ms) - table.log_time, np.log(response.power_mw) - table.log_power


def figure_residuals(evaluator: Evaluator, parameters: Parameters) -> np.ndarray:
    """Deviation of each figure in units of what is worth one."""
    answers = evaluator.answers(parameters, rough=False)
    return np.array(
        [figure.deviation(answered) / _worth(figure) for figure, answered in zip(evaluator.figures, answers)]
    )


def _worth(figure: Figure) -> float:
    deviation = FIGURE_DEVIATIONS.get(figure.comparator, 0.1)
    return max(deviation, COMPARISON_DEVIATION) if figure.versus is not None else deviation


def robust(residuals: np.ndarray) -> np.ndarray:
    """Residuals whose squares grow like the residuals' size beyond 1 (soft L1)."""
    return np.sign(residuals) * np.sqrt(2.0 * (np.sqrt(1.0 + residuals**2) - 1.0))


def fit(figures: Sequence[Figure], tables: Sequence[MeasuredTable], most_steps: int = MOST_STEPS) -> Fitted:
    """Fit all free parameters, from their priors."""
    least_squares = _least_squares()
    free, ties = read_free_parameters()
    fixed = Parameters.fitted()
    evaluator = Evaluator(figures)

    def residuals(distances: np.ndarray) -> np.ndarray:
        parameters = with_values(fixed, free, ties, distances)
        found = [distances, robust(figure_residuals(evaluator, parameters))]
        for table in tables:
            for logarithms in table_residuals(table, parameters):
                known = logarithms[~np.isnan(logarithms)]
                found.append(table.weight * robust(known / TABLE_DEVIATION))
        return np.concatenate(found)

    result = least_squares(residuals, np.zeros(len(free)), max_nfev=most_steps, ftol=1e-5, xtol=1e-5)
    return Fitted(
        with_values(fixed, free, ties, result.x),
        {(parameter.owner[1], parameter.key): float(at) for parameter, at in zip(free, result.x)},
        float(result.cost),
        int(result.nfev),
    )


def _least_squares() -> Callable[..., Any]:
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise DependencyError("fitting needs scipy, which is not installed", "pip install scipy") from error
    return least_squares


def run(arguments: argparse.Namespace) -> int:
    tables = tables_of([row for path in arguments.corpus for row in read_corpus(path)])
    figures = load_figures()
    found = fit(figures, tables, arguments.most_steps)
    print(_describe_parameters(found))
    print()
    print("\n".join([*_describe_tables(tables, found.parameters), _describe_figures(Evaluator(figures), found)]))
    if arguments.out is not None:
        root = PHYSICS_FILE.parent
        for path, text in file_texts(found.parameters).items():
            target = arguments.out / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_output(target, text.encode("utf-8"))
        print(f"wrote {arguments.out}")
    return 0


def _describe_parameters(found: Fitted) -> str:
    free, _ = read_free_parameters()
    rows = []
    for parameter in free:
        at = found.distances[parameter.owner[1], parameter.key]
        value, prior = (f"{number:.4g}" for number in (parameter.value(at), parameter.prior))
        rows.append([parameter.owner[1], parameter.key, value, prior, f"{at:+.1f}"])
    return format_table(["of", "parameter", ">fitted", ">prior", ">spreads away"], rows)


def _describe_tables(tables: Sequence[MeasuredTable], parameters: Parameters) -> List[str]:
    kinds = sorted({(table.device, table.workload, table.load.task) for table in tables})
    lines = []
    for kind in kinds:
        residuals = [
            table_residuals(table, parameters)
            for table in tables
            if (table.device, table.workload, table.load.task) == kind
        ]
        time, power = (_median_percent(np.concatenate(parts)) for parts in zip(*residuals))
        lines.append(f"{' '.join(kind)}: median error of the time {time:.1f} %, of the power {power:.1f} %")
    return lines


def _median_percent(logarithms: np.ndarray) -> float:
    return share_to_percent(float(np.nanmedian(np.abs(np.expm1(logarithms)))))


def _describe_figures(evaluator: Evaluator, found: Fitted) -> str:
    answers = evaluator.answers(found.parameters, rough=False)
    deviations = [abs(figure.deviation(said)) for figure, said in zip(evaluator.figures, answers)]
    close = sum(deviation <= CLOSE for deviation in deviations)
    median = share_to_percent(float(np.median(deviations)))
    return (
        f"{close} of {len(deviations)} figures of the papers within {share_to_percent(CLOSE):g} %, "
        f"median {median:.1f} %; cost {found.cost:.1f} after {found.steps} steps"
    )
