"""The search of the papers' networks' hyperparameters: `evaluate` with every combination of a grid, and the best.

001 sec. 3.1 found its networks by scikit-learn's GridSearchCV and prints what it found, not the grid. The grids here
lie around that, with what the paper leaves open. Combinations are ranked by errors on modes not used to fit.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Dict, List, Sequence

import numpy as np

from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from predictors.models.networks import HIDDEN, LOSSES
from predictors.models.regression import SCALES
from predictors.trials import Results, TrialPlan

TRAINING = {"epochs": (50, 100, 200), "learning_rate": (3e-4, 1e-3, 3e-3), "dropout": (0.0, 0.1, 0.2)}
GRIDS: Dict[str, Dict[str, Sequence[Any]]] = {
    "nn": {**TRAINING, "hidden": ((128, 64), HIDDEN, (512, 256, 128)), "scaling": SCALES},
    "powertrain": {**TRAINING, "loss": LOSSES, "frozen": (0, 1, 2)},
}
Combination = Dict[str, Any]


def grid_of(plan: TrialPlan, words: Sequence[str]) -> List[Combination]:
    """All combinations of the grid of a plan's predictor; `NAME=V,V` gives a parameter other values."""
    name = plan.predictors[0]
    if len(plan.predictors) > 1 or name not in GRIDS:
        raise InvalidValueError(f"--grid searches one predictor of {', '.join(GRIDS)}", "as in --predictors nn --grid")
    grid = dict(GRIDS[name])
    for word in words:
        param, _, texts = word.partition("=")
        if param not in grid:
            raise UnknownNameError(f"the grid of {name} has no {param!r}", f"it has {', '.join(grid)}")
        of = type(grid[param][0])
        try:
            grid[param] = [tuple(map(int, one.split("x"))) if of is tuple else of(one) for one in texts.split(",")]
        except ValueError as error:
            hint = f"write it like {param}={','.join(map(shown, grid[param]))}"
            raise InvalidValueError(f"--grid {word} cannot be read: {error}", hint) from error
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def with_params(plan: TrialPlan, combinations: Sequence[Combination]) -> TrialPlan:
    """The plan with each target once for each combination, which its label tells."""
    targets = [
        dataclasses.replace(one, params={**one.params, **params}, label=f"{one.name}, {described(params)}")
        for one in plan.targets
        for params in combinations
    ]
    return dataclasses.replace(plan, targets=tuple(targets))


def best_of(combinations: Sequence[Combination], found: Results) -> str:
    """A line on the combination of least error: the geometric mean of all its median errors, of time and of power."""
    errors: Dict[int, List[float]] = {}
    for group, one in found.by_group.items():
        known = [one[f"{what}_mape_median"] for what in ("time", "power")]
        errors.setdefault(group.target % len(combinations), []).extend(value for value in known if value is not None)
    if not any(errors.values()):
        raise CannotRunError("no combination has an error on modes that were not used to fit", "fit on fewer --modes")
    means = {number: float(np.exp(np.mean(np.log(values)))) for number, values in errors.items()}
    best = min(means, key=lambda number: means[number])
    said = f"{described(combinations[best])}, geometric mean of its errors {means[best]:.2f} %"
    return f"best of {len(means)}: {said}. It was chosen by these errors: elsewhere it errs more\n"


def described(params: Combination) -> str:
    return " ".join(f"{name}={shown(value)}" for name, value in params.items())


def shown(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
