"""A budget: the limits that a power mode has to keep, in the units of users, and the goals that follow from it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from harness.core.errors import InvalidValueError
from harness.core.units import S_PER_HOUR, s_to_ms, w_to_mw
from predictors.goals import OBJECTIVES, Goal, budget_in_mw, check_objective
from predictors.models.base import CallSettings, check_numbers, checks_names, numbers_in


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class Budget(CallSettings):
    """The limits that a power mode has to keep; None for no limit.

    Attributes:
        power_w: maximum module power in W; several share one set of profiles.
        time_ms: maximum minibatch time in ms.
        peak_w: maximum power sample in W in the chosen mode's profile.
        deadline_h: maximum time of the whole training in hours.
        energy_wh: maximum energy of the whole training in Wh.
        require: a requirements file, whose limits on such cases are kept too.
    """

    power_w: Union[float, Sequence[float], None] = None
    time_ms: Optional[float] = None
    peak_w: Optional[float] = None
    deadline_h: Optional[float] = None
    energy_wh: Optional[float] = None
    require: Union[str, Path, None] = None

    def __post_init__(self) -> None:
        """Refuse numbers out of range, among them powers that look like mW."""
        check_numbers(above=True, power_w=numbers_in(self.power_w), time_ms=self.time_ms, peak_w=self.peak_w)
        check_numbers(above=True, deadline_h=self.deadline_h, energy_wh=self.energy_wh)
        for power_w in numbers_in(self.power_w):
            budget_in_mw(power_w)
        if self.peak_w is not None:
            budget_in_mw(self.peak_w, "peak budget")


NO_BUDGET = Budget()
"""The default of calls."""

NOTHING_REQUIRED: Mapping[str, float] = {}


def peak_mw_of(budget: Budget) -> Optional[float]:
    """The greatest power sample in mW; None for any."""
    return None if budget.peak_w is None else w_to_mw(budget.peak_w)


def limits_training(budget: Budget) -> bool:
    """Whether the whole training has a limit."""
    return budget.deadline_h is not None or budget.energy_wh is not None


def joined(
    budget: Budget,
    power_w: Union[float, Sequence[float], None],
    time_ms: Optional[float],
    require: Union[str, Path, None] = None,
) -> Budget:
    """A budget with the limits that a call takes besides it; refused if it has them already."""
    given: Dict[str, Any] = {"power_w": power_w, "time_ms": time_ms, "require": require}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if getattr(budget, name) is not None:
            raise InvalidValueError(f"{name}= was given twice, once in budget=", "omit one of them")
    return dataclasses.replace(budget, **given)


def goals_of(
    budget: Budget,
    goal: Union[str, Goal, None],
    minibatches: Optional[float],
    sizes: Sequence[int],
    arguments: str = "power_w=, peak_w=, time_ms=, deadline_h= or energy_wh=",
    required: Mapping[str, float] = NOTHING_REQUIRED,
) -> List[Goal]:
    """The goals of a search within a budget, one for each power.

    With several batch sizes to choose from, the time of a sample replaces that of a minibatch.

    Args:
        budget: the limits.
        goal: what to minimise, by its name in `OBJECTIVES`, or a goal whose limits are joined with the budget's; None
            for the time.
        minibatches: of the whole training; None if unknown.
        sizes: the batch sizes to choose from.
        arguments: those of the call that set a limit, for an error.
        required: further limits, by quantity.
    """
    quantity, limits = _objective(goal, len(sizes) > 1)
    if budget.time_ms is not None:
        limits["time_ms"] = min(budget.time_ms, limits.get("time_ms", math.inf))
    for name, limit in (*_of_a_minibatch(budget, minibatches, sizes).items(), *required.items()):
        limits[name] = min(limit, limits.get(name, math.inf))
    powers_w = numbers_in(budget.power_w)
    if powers_w:
        power_mw = limits.pop("power_mw", math.inf)
        return [Goal(quantity, {"power_mw": min(w_to_mw(power_w), power_mw), **limits}) for power_w in powers_w]
    peak_mw = peak_mw_of(budget)
    if peak_mw is not None:
        limits["power_mw"] = min(peak_mw, limits.get("power_mw", math.inf))  # a peak is no less than the power
    if not limits and quantity in ("time_ms", "power_mw"):
        extreme, name = ("greatest", "time") if quantity == "time_ms" else ("least", "power")
        raise InvalidValueError(
            f"the least {name} without any limit is always that of the {extreme} mode",
            f"give {arguments}",
        )
    return [Goal(quantity, limits)]


def _of_a_minibatch(budget: Budget, minibatches: Optional[float], sizes: Sequence[int]) -> Dict[str, float]:
    """The limits of the whole training as those of a minibatch, or of a sample if there are several sizes."""
    limits: Dict[str, float] = {}
    if not limits_training(budget):
        return limits
    if minibatches is None:
        name = "deadline_h" if budget.deadline_h is not None else "energy_wh"
        raise InvalidValueError(f"{name}= limits the whole training, whose length is unknown", "give epochs=")
    several = len(sizes) > 1
    samples = sizes[0] if several else 1
    if budget.deadline_h is not None:
        total_ms = s_to_ms(budget.deadline_h * S_PER_HOUR)
        limits["sample_time_ms" if several else "time_ms"] = total_ms / minibatches / samples
    if budget.energy_wh is not None:
        total_mws = w_to_mw(budget.energy_wh * S_PER_HOUR)
        limits["sample_energy_mws" if several else "energy_mws"] = total_mws / minibatches / samples
    return limits


def _objective(goal: Union[str, Goal, None], several: bool) -> Tuple[str, Dict[str, float]]:
    """The quantity to minimise, and the limits that the goal has itself."""
    if isinstance(goal, Goal):
        return goal.minimise, dict(goal.limits)
    name = goal or ("throughput" if several else "time")
    check_objective(name)
    if several and name in ("time", "energy", "edp"):
        raise InvalidValueError(
            f"goal={name!r} is per minibatch, so the smallest batch size always wins",
            "use throughput, sample-energy, or one batch_size=",
        )
    return OBJECTIVES[name], {}
