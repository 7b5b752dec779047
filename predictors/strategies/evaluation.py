"""How good strategies are: the papers' sweep over power budgets, on tables where every mode is known.

For a table, budget and strategy, with t and p the observed minibatch time and power of the chosen mode, and t* the
least observed time of all modes whose observed power is within the budget (the observed Pareto front, 001 sec. 5):

- time penalty = (t - t*) / t* in %; below 0 where the choice breaks the limit (001 sec. 5.2).
- Area = mean over choices of max(p - budget, 0), in W: the area of the power above the budget, divided by the number of
  choices, since the paper gives it as "W per solution".
- A/L = share of choices with p > budget; A/L+1 = share with p > budget + 1 W, both in % (001 sec. 5.2).

A choice that says that no mode keeps the limit, where there is one, counts as `infeasible`; its mode still counts in
the figures above, because a person would have to run something. Budgets that no mode of the table meets are left out of
all figures but `unmeetable`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from harness.core.units import S_PER_HOUR, ms_to_s, mw_to_w, w_to_mw
from predictors.strategies.goals import Goal, power_budget
from predictors.strategies.profilers import TableProfiler
from predictors.strategies.protocol import Choice, History, Strategy
from predictors.tables import Table

TOLERANCE_MW = 1000.0  # 001 sec. 5.2: A/L+1
DIGITS = 3
"""Decimal places of the figures of single choices: a thousandth of a percent, or of a watt."""


class Outcome(NamedTuple):
    """One choice held against the truth.

    Attributes:
        goal: what was asked.
        choice: what the strategy answered.
        optimum: the place of the best candidate; None where none keeps the limits.
        penalty_pct: see the module; None without an optimum.
        over_mw: power above the budget, 0 or more; 0 for goals without a power limit.
    """

    goal: Goal
    choice: Choice
    optimum: Optional[int]
    penalty_pct: Optional[float]
    over_mw: float


@dataclasses.dataclass(frozen=True)
class Summary:
    """Figures over the choices of a strategy; the module says what each is.

    `profiles` and `profiling_seconds` are what one answer cost: the mean over choices, or over sweeps where one set of
    profiles served all budgets.
    """

    penalty_median: Optional[float]
    penalty_mean: Optional[float]
    penalty_max: Optional[float]
    over_limit_pct: Optional[float]
    over_limit_plus1_pct: Optional[float]
    area_w: Optional[float]
    infeasible: int
    unmeetable: int
    choices: int
    profiles: float
    profiling_seconds: float

    def as_dict(self) -> Dict[str, Any]:
        """The figures by name."""
        return dataclasses.asdict(self)


def optimum(table: Table, goal: Goal) -> Optional[int]:
    """The place of the best row within the goal's limits; None where there is none."""
    columns = (table.time_ms, table.power_mw, table.batch_size)
    within = goal.excess(*columns) <= 0
    return int(np.where(within, goal.objective(*columns), np.inf).argmin()) if within.any() else None


def judge(table: Table, goal: Goal, choice: Choice) -> Outcome:
    """Hold a choice against the table that it was made for."""
    best = optimum(table, goal)
    objective = goal.objective(table.time_ms, table.power_mw, table.batch_size)
    penalty = None if best is None else float(100 * (objective[choice.index] / objective[best] - 1))
    over_mw = max(float(table.power_mw[choice.index]) - goal.limits.get("power_mw", np.inf), 0.0)
    return Outcome(goal, choice, best, penalty, over_mw)


def sweep(
    table: Table,
    make_strategy: Callable[[int], Strategy],
    goals: Sequence[Goal],
    profiles: int,
    seed: int,
    together: bool = False,
) -> List[Outcome]:
    """The outcomes of a strategy for several goals on one table.

    Args:
        table: what the strategy may profile, and the truth.
        make_strategy: makes the strategy from a seed.
        goals: what is asked.
        profiles: how many modes may be profiled, for each goal or for all of them.
        seed: of the strategy; another one for each goal unless `together`.
        together: whether one set of profiles serves all goals.
    """
    if together:
        choices = make_strategy(seed).choose_all(History(TableProfiler(table), profiles), goals)
    else:
        choices = [
            make_strategy(seed * len(goals) + place).choose(History(TableProfiler(table), profiles), goal)
            for place, goal in enumerate(goals)
        ]
    return [judge(table, goal, choice) for goal, choice in zip(goals, choices)]


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """The figures over outcomes."""
    met = [outcome for outcome in outcomes if outcome.penalty_pct is not None]
    penalties = np.array([outcome.penalty_pct for outcome in met])
    over = np.array([outcome.over_mw for outcome in met])

    def figure(reduce: Callable[[np.ndarray], Any], values: np.ndarray) -> Optional[float]:
        return float(reduce(values)) if len(values) else None

    return Summary(
        penalty_median=figure(np.median, penalties),
        penalty_mean=figure(np.mean, penalties),
        penalty_max=figure(np.max, penalties),
        over_limit_pct=figure(lambda values: 100 * np.mean(values > 0), over),
        over_limit_plus1_pct=figure(lambda values: 100 * np.mean(values > TOLERANCE_MW), over),
        area_w=figure(lambda values: mw_to_w(np.mean(values)), over),
        infeasible=sum(not outcome.choice.feasible for outcome in met),
        unmeetable=len(outcomes) - len(met),
        choices=len(met),
        profiles=float(np.mean([outcome.choice.spent.profiles for outcome in outcomes])),
        profiling_seconds=float(np.mean([outcome.choice.spent.seconds for outcome in outcomes])),
    )


def by_choice(table: Table, outcomes: Sequence[Outcome]) -> Dict[str, List[float]]:
    """What each choice under a power budget came to, in the order of the outcomes; those that `summarise` counts.

    Args:
        table: what was chosen from.
        outcomes: of goals that have a power limit.

    Returns:
        As many values each, with as many digits as a plot shows: `budget_w`; `penalty_pct`; `power_error_w`, observed
        power less the budget, below 0 where the budget is not used up.
    """
    found: Dict[str, List[float]] = {"budget_w": [], "penalty_pct": [], "power_error_w": []}
    for outcome in outcomes:
        if outcome.penalty_pct is not None:
            budget_mw = outcome.goal.limits["power_mw"]
            error_mw = float(table.power_mw[outcome.choice.index]) - budget_mw
            values = (mw_to_w(budget_mw), outcome.penalty_pct, mw_to_w(error_mw))
            for column, value in zip(found.values(), values):
                column.append(round(value, DIGITS))
    return found


def hours_saved(
    table: Table, outcomes: Sequence[Outcome], others: Sequence[Choice], minibatches: float
) -> Optional[float]:
    """Hours that the choices save over a whole training against other choices for the same goals, on average (Q5).

    001 sec. 1.4 counts them as epochs x the gain of an epoch. Goals for which either choice breaks a power limit by
    more than the tolerance are left out: what is not allowed saves nothing.

    Args:
        table: what both chose from.
        outcomes: of a strategy.
        others: of another one, one for each outcome.
        minibatches: of the whole training.

    Returns:
        None where no goal is left.
    """
    saved = [
        ms_to_s(float(table.time_ms[other.index] - table.time_ms[outcome.choice.index]) * minibatches) / S_PER_HOUR
        for outcome, other in zip(outcomes, others)
        if max(outcome.over_mw, judge(table, outcome.goal, other).over_mw) <= TOLERANCE_MW
    ]
    return float(np.mean(saved)) if saved else None


def budgets_mw(text: str) -> List[float]:
    """Power budgets from `17:50:1` (first, last, step, in W) or a comma list of W, in mW.

    Raises:
        InvalidValueError: the text is neither.
    """
    from harness.core.errors import InvalidValueError

    try:
        if ":" in text:
            first, last, step = (float(part) for part in text.split(":"))
            values = np.arange(first, last + step / 1e6, step)
        else:
            values = np.array([float(part) for part in text.split(",")])
    except (ValueError, ZeroDivisionError):
        values = np.array([])
    if not len(values) or not (values > 0).all():
        raise InvalidValueError(f"budgets {text!r} are none", "write FIRST:LAST:STEP or a comma list, in W: 17:50:1")
    return [w_to_mw(float(value)) for value in values]


def budget_goals(text: str) -> List[Goal]:
    """The papers' goals for budgets written as `budgets_mw` reads them."""
    return [power_budget(budget) for budget in budgets_mw(text)]
