"""Fitting the free parameters of simulated boards to the papers' figures and to measured tables: `simulation fit`.

Each free parameter has a log-normal prior; the fit is the most likely set (maximum a posteriori). Residuals are
logarithms of model over measurement, in units of what such a deviation is worth, and robust: the tables hold slices
from other measuring sessions, and the papers contradict themselves in places.
"""

from __future__ import annotations

import argparse
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import msgspec
import numpy as np

from harness.core.corpus import read_corpus, rows_of
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.terminal import format_table
from harness.core.units import share_to_percent
from harness.judge.published_figures import CLOSE, PublishedFigure, load_figures
from harness.simulation.parameters import BOARD_FILES, PHYSICS_FILE, WORKLOAD_FILES, read_entries
from predictors.profiles import Profiles
from tools.measured_tables import simulated_like, split_tables
from tools.simulated_answers import BOARD, PHYSICS, WORKLOAD, Owner, Parameters, answers, fitted_parameters

DIGITS = 4  # significant digits of a fitted value; more would say nothing
_REACH = 8.0  # greatest distance from the prior, in spreads


class FreeParameter(NamedTuple):
    """An entry with a prior: log-normal, around `prior`, with standard deviation `spread` of the logarithm."""

    owner: Owner
    key: str
    prior: float
    spread: float

    def value(self, distance: float) -> float:
        return float(self.prior * np.exp(np.clip(distance, -_REACH, _REACH) * self.spread))


class Tie(NamedTuple):
    """An entry that follows from the same entry of another board or workload, times a factor."""

    owner: Owner
    key: str
    source: Owner
    times: float


def parameter_files() -> Dict[Owner, Path]:
    return {
        PHYSICS: PHYSICS_FILE,
        **{(BOARD, name): path for name, path in BOARD_FILES.items()},
        **{(WORKLOAD, name): path for name, path in WORKLOAD_FILES.items()},
    }


def read_free_parameters() -> Tuple[List[FreeParameter], List[Tie]]:
    free, ties, files = [], [], parameter_files()
    entries = {owner: read_entries(path) for owner, path in files.items()}
    for owner, own in entries.items():
        for key, entry in own.items():
            if entry.prior is not None and entry.spread is not None:
                free.append(FreeParameter(owner, key, entry.prior, entry.spread))
            elif entry.same_as is not None:
                source = (owner[0], entry.same_as)
                if source not in files or entries[source][key].same_as is not None:
                    hint = "name one that is there and does not itself follow from another"
                    raise InvalidValueError(f"{files[owner]}: {key} is the same as that of {source[1]!r}", hint)
                ties.append(Tie(owner, key, source, entry.times))
    return free, ties


def with_values(
    fixed: Parameters, free: Sequence[FreeParameter], ties: Sequence[Tie], distances: np.ndarray
) -> Parameters:
    """The parameters with free ones moved from their priors by `distances` in spreads, shape (n,), and ties applied."""
    moved = _replaced(fixed, [(one.owner, one.key, one.value(distance)) for one, distance in zip(free, distances)])
    return _replaced(moved, [(tie.owner, tie.key, getattr(moved[tie.source], tie.key) * tie.times) for tie in ties])


def _replaced(parameters: Parameters, values: Iterable[Tuple[Owner, str, float]]) -> Dict[Owner, Any]:
    changes: Dict[Owner, Dict[str, float]] = {}
    for owner, key, value in values:
        changes.setdefault(owner, {})[key] = value
    return {
        **parameters,
        **{owner: msgspec.structs.replace(parameters[owner], **own) for owner, own in changes.items()},
    }


def file_texts(parameters: Parameters) -> Dict[Path, str]:
    """The parameter files as text, with the values of a set in those entries that are free or follow."""
    free, ties = read_free_parameters()
    files = parameter_files()
    texts = {path: path.read_text(encoding="utf-8") for path in files.values()}
    for owner, key, *_ in (*free, *ties):
        path, value = files[owner], repr(float(f"{getattr(parameters[owner], key):.{DIGITS}g}"))
        texts[path], count = re.subn(rf"(?m)^({key} = {{ value = )[^,]+", rf"\g<1>{value}", texts[path])
        if count != 1:
            raise InvalidValueError(f"{path}: {key} does not begin its line as `{key} = {{ value = `")
    return texts


TABLE_DEVIATION = 0.03  # deviation of a table's row from the model that counts as one
TABLE_ROWS = 1000.0  # rows that a table counts as, however many it has: rows of a grid are not independent
FIGURE_DEVIATIONS = {"=": 0.05, "~": 0.1, "range": 0.05}
"""The same of a figure with a comparator; 0.1 where it is a bound."""

COMPARISON_DEVIATION = 0.08  # the same of a figure that compares two conditions: each of them deviates
MOST_STEPS = 40


class Fitted(NamedTuple):
    parameters: Parameters  # the set
    distances: Dict[FreeParameter, float]  # of each free parameter from its prior, in spreads
    cost: float  # half the sum of squares at the end
    steps: int  # evaluations of the model without those for derivatives


def table_residuals(table: Profiles, parameters: Parameters) -> Tuple[np.ndarray, np.ndarray]:
    """Logarithm of model over measurement, of time and of power, for each row; NaN if there is no power."""
    simulated = simulated_like(table, parameters, rough=False)
    return np.log(simulated.time_ms / table.time_ms), np.log(simulated.power_mw / table.power_mw)


def figure_deviations(figures: Sequence[PublishedFigure], parameters: Parameters) -> np.ndarray:
    said = answers(figures, parameters, rough=False)
    return np.array([figure.deviation(answer) for figure, answer in zip(figures, said)])


def robust(residuals: np.ndarray) -> np.ndarray:
    """Residuals whose squares grow like the residuals' size beyond 1 (soft L1)."""
    return np.sign(residuals) * np.sqrt(2.0 * (np.sqrt(1.0 + residuals**2) - 1.0))


def fit(
    figures: Sequence[PublishedFigure],
    tables: Sequence[Profiles],
    most_steps: int = MOST_STEPS,
    only: Sequence[str] = ("*",),
) -> Fitted:
    """Fit the free parameters that match `only`, from their priors; the others stay as they are in the files.

    A pattern is held against `OWNER.KEY`, as in `orin-nano.*` or `physics.inference_*`.
    """
    from scipy.optimize import least_squares

    free, ties = read_free_parameters()
    free = [one for one in free if any(fnmatchcase(f"{one.owner[1]}.{one.key}", pattern) for pattern in only)]
    if not free:
        raise InvalidValueError(f"no free parameter matches {', '.join(only)}", "write OWNER.KEY, as in orin-nano.*")
    moved = {(one.owner, one.key) for one in free}
    ties = [tie for tie in ties if (tie.source, tie.key) in moved]
    fixed = fitted_parameters()
    worth = np.array([FIGURE_DEVIATIONS.get(figure.comparator, 0.1) for figure in figures])
    compares = [figure.versus is not None for figure in figures]
    worth[compares] = np.maximum(worth[compares], COMPARISON_DEVIATION)

    def residuals(distances: np.ndarray) -> np.ndarray:
        parameters = with_values(fixed, free, ties, distances)
        found = [distances, robust(figure_deviations(figures, parameters) / worth)]
        for table in tables:
            weight = np.sqrt(min(TABLE_ROWS / len(table), 1.0))
            for logarithms in table_residuals(table, parameters):
                known = logarithms[~np.isnan(logarithms)]
                found.append(weight * robust(known / TABLE_DEVIATION))
        return np.concatenate(found)

    result = least_squares(residuals, np.zeros(len(free)), max_nfev=most_steps, ftol=1e-5, xtol=1e-5)
    parameters = with_values(fixed, free, ties, result.x)
    return Fitted(parameters, dict(zip(free, result.x.tolist())), float(result.cost), int(result.nfev))


def run(arguments: argparse.Namespace) -> int:
    tables, _ = split_tables([row for path in arguments.corpus for row in rows_of(read_corpus(path))])
    figures = load_figures()
    found = fit(figures, tables, arguments.most_steps, arguments.only or ("*",))
    rows = [
        [free.owner[1], free.key, f"{free.value(at):.4g}", f"{free.prior:.4g}", f"{at:+.1f}"]
        for free, at in found.distances.items()
    ]
    print(format_table(["of", "parameter", ">fitted", ">prior", ">spreads away"], rows))
    print()
    for table in sorted(tables, key=lambda table: (table.device, table.workload, table.task)):
        errors = (np.abs(np.expm1(logarithms)) for logarithms in table_residuals(table, found.parameters))
        time, power = (share_to_percent(float(np.nanmedian(each))) for each in errors)
        name = f"{table.device} {table.workload} {table.task}"
        print(f"{name}: median error of the time {time:.1f} %, of the power {power:.1f} %")
    deviations = np.abs(figure_deviations(figures, found.parameters))
    print(
        f"{np.sum(deviations <= CLOSE)} of {len(deviations)} figures of the papers within "
        f"{share_to_percent(CLOSE):g} %, median {share_to_percent(np.median(deviations)):.1f} %; "
        f"cost {found.cost:.1f} after {found.steps} steps"
    )
    if arguments.out is not None:
        root = PHYSICS_FILE.parent
        for path, text in file_texts(found.parameters).items():
            target = arguments.out / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_output(target, text.encode("utf-8"))
        print(f"wrote {arguments.out}")
    return 0
