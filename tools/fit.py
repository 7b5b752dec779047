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
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.corpus import read_corpus
from harness.core.errors import InvalidValueError
from harness.core.files import read_toml, write_output
from harness.core.terminal import format_table
from harness.core.units import share_to_percent
from harness.judge.published_figures import CLOSE, PublishedFigure, load_figures
from harness.simulation.parameters import BOARD_FILES, PHYSICS_FILE, WORKLOAD_FILES
from tools.measured_tables import MeasuredTable, simulated_like, split_tables
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


class Fitted(NamedTuple):
    """What a fit found."""

    parameters: Parameters  # the set
    distances: Dict[Tuple[str, str], float]  # of each free parameter from its prior, in spreads, by owner and key
    cost: float  # half the sum of squares at the end
    steps: int  # evaluations of the model without those for derivatives


def table_residuals(table: MeasuredTable, parameters: Parameters) -> Tuple[np.ndarray, np.ndarray]:
    """Logarithm of model over measurement, of time and of power, for each row; NaN where there is no power."""
    simulated = simulated_like(table, parameters, rough=False)
    return np.log(simulated.time_ms / table.time_ms), np.log(simulated.power_mw / table.power_mw)


def figure_residuals(evaluator: Evaluator, parameters: Parameters) -> np.ndarray:
    """Deviation of each figure in units of what is worth one."""
    found = []
    for figure, answered in zip(evaluator.figures, evaluator.answers(parameters, rough=False)):
        worth = FIGURE_DEVIATIONS.get(figure.comparator, 0.1)
        if figure.versus is not None:
            worth = max(worth, COMPARISON_DEVIATION)
        found.append(figure.deviation(answered) / worth)
    return np.array(found)


def robust(residuals: np.ndarray) -> np.ndarray:
    """Residuals whose squares grow like the residuals' size beyond 1 (soft L1)."""
    return np.sign(residuals) * np.sqrt(2.0 * (np.sqrt(1.0 + residuals**2) - 1.0))


def fit(figures: Sequence[PublishedFigure], tables: Sequence[MeasuredTable], most_steps: int = MOST_STEPS) -> Fitted:
    """Fit all free parameters, from their priors."""
    from scipy.optimize import least_squares

    free, ties = read_free_parameters()
    fixed = Parameters.fitted()
    evaluator = Evaluator(figures)

    def residuals(distances: np.ndarray) -> np.ndarray:
        parameters = with_values(fixed, free, ties, distances)
        found = [distances, robust(figure_residuals(evaluator, parameters))]
        for table in tables:
            weight = np.sqrt(min(TABLE_ROWS / len(table.modes), 1.0))
            for logarithms in table_residuals(table, parameters):
                known = logarithms[~np.isnan(logarithms)]
                found.append(weight * robust(known / TABLE_DEVIATION))
        return np.concatenate(found)

    result = least_squares(residuals, np.zeros(len(free)), max_nfev=most_steps, ftol=1e-5, xtol=1e-5)
    return Fitted(
        with_values(fixed, free, ties, result.x),
        {(parameter.owner[1], parameter.key): float(at) for parameter, at in zip(free, result.x)},
        float(result.cost),
        int(result.nfev),
    )


def run(arguments: argparse.Namespace) -> int:
    tables, _ = split_tables([row for path in arguments.corpus for row in read_corpus(path)])
    figures = load_figures()
    found = fit(figures, tables, arguments.most_steps)
    print(_describe_parameters(found))
    print()
    for table in sorted(tables, key=lambda table: table[:3]):
        errors = (np.abs(np.expm1(logarithms)) for logarithms in table_residuals(table, found.parameters))
        time, power = (share_to_percent(float(np.nanmedian(each))) for each in errors)
        print(f"{' '.join(table[:3])}: median error of the time {time:.1f} %, of the power {power:.1f} %")
    print(_describe_figures(Evaluator(figures), found))
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


def _describe_figures(evaluator: Evaluator, found: Fitted) -> str:
    answers = evaluator.answers(found.parameters, rough=False)
    deviations = [abs(figure.deviation(said)) for figure, said in zip(evaluator.figures, answers)]
    close = sum(deviation <= CLOSE for deviation in deviations)
    median = share_to_percent(float(np.median(deviations)))
    return (
        f"{close} of {len(deviations)} figures of the papers within {share_to_percent(CLOSE):g} %, "
        f"median {median:.1f} %; cost {found.cost:.1f} after {found.steps} steps"
    )
