"""The evaluation of strategies: the papers' contest under power budgets, on tables with a profile of every mode.

With t and p the observed minibatch time (or another objective) and power of the chosen mode, and t* the least observed
time of all modes within the limits (001 sec. 5.2):

- time penalty = (t - t*) / t* in %; below 0 only if the choice breaks the limit.
- Area = mean over choices of max(p - budget, 0), in W; the paper gives it as "W per solution".
- A/L = share of choices with p > budget; A/L+1 = share with p > budget + 1 W, both in %.
- violations = share of choices that break any limit, as `Goal.breaks` has it.

A choice that reports that no mode keeps the limit, although one does, counts as `infeasible`; its mode still counts in
the figures above, because the user would run it. Budgets that no mode of the table meets count only in `unmeetable`.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.units import S_PER_HOUR, ms_to_s, mw_to_w, share_to_percent
from predictors.contest.trials import in_processes
from predictors.evaluation import spread
from predictors.goals import Goal
from predictors.profiles import Profiles
from predictors.strategies.fixed import Presets, VendorPreset
from predictors.strategies.protocol import Choice, History, Strategy, TableProfiler
from predictors.strategies.registry import STRATEGIES, StrategySetting

PAPERS_TOLERANCE_MW = 1000.0  # 001 sec. 5.2: A/L+1
DIGITS = 3  # decimal places of the figures of single choices: a thousandth of a percent, or of a watt


class JudgedChoice(NamedTuple):
    """A choice compared with the truth."""

    goal: Goal
    choice: Choice  # of the strategy
    optimum: Optional[int]  # the best candidate; None if none keeps the limits
    time_ms: float  # observed, of the chosen mode
    power_mw: float
    penalty_pct: Optional[float]  # see the module; None without an optimum
    breaks: bool  # whether it breaks a limit of the goal

    @property
    def sample_time_ms(self) -> float:
        return self.time_ms / self.choice.batch_size

    @property
    def over_mw(self) -> float:
        """Power above the budget, 0 or more; 0 for goals without a power limit."""
        return max(self.power_mw - self.goal.limits.get("power_mw", np.inf), 0.0)


class ContestRun(NamedTuple):
    strategy: str
    target: Profiles
    profiles: int
    repeat: int  # its seed


JudgedChoices = Dict[Tuple[str, str, int], List[JudgedChoice]]  # by strategy, target and number of profiles


def optimum(table: Profiles, goal: Goal) -> Optional[int]:
    """The best row within the goal's limits; None if there is none."""
    columns = (table.time_ms, table.power_mw, table.batch_size)
    within = goal.excess(*columns) <= 0
    return int(np.where(within, goal.objective(*columns), np.inf).argmin()) if within.any() else None


def judge(table: Profiles, goal: Goal, choice: Choice) -> JudgedChoice:
    """Compare a choice with the table that it was made for."""
    best, place = optimum(table, goal), choice.index
    columns = (table.time_ms, table.power_mw, table.batch_size)
    objective, breaks = goal.objective(*columns), bool(goal.breaks(*columns)[place])
    penalty = None if best is None else share_to_percent(float(objective[place] / objective[best] - 1))
    time_ms, power_mw = float(table.time_ms[place]), float(table.power_mw[place])
    return JudgedChoice(goal, choice, best, time_ms, power_mw, penalty, breaks)


def sweep(
    table: Profiles,
    make_strategy: Callable[[int], Strategy],
    goals: Sequence[Goal],
    profiles: int,
    seed: int,
    together: bool = False,
) -> List[JudgedChoice]:
    """The judged choices of a strategy for several goals on a table, which also is the truth.

    With `together` one set of profiles serves all goals; otherwise each goal has its own set and its own seed.
    """
    groups = [goals] if together else [[goal] for goal in goals]
    choices: List[Choice] = []
    for place, group in enumerate(groups):
        history = History(TableProfiler(table), profiles)
        choices += make_strategy(seed * len(groups) + place).choose_all(history, group)
    return [judge(table, goal, choice) for goal, choice in zip(goals, choices)]


def summarise(outcomes: Sequence[JudgedChoice]) -> Dict[str, Any]:
    """The figures over judged choices; None if no budget can be met. `missed` lists the goals reported as infeasible.

    `profiles_spent` and `profiling_seconds` are the cost of one answer: the mean over choices, or over sweeps if one
    set of profiles served all budgets.
    """
    met = [outcome for outcome in outcomes if outcome.penalty_pct is not None]
    penalties, over_mw, broken = (
        np.array([getattr(outcome, name) for outcome in met] or [np.nan], dtype=float)
        for name in ("penalty_pct", "over_mw", "breaks")
    )
    figures = {
        "penalty_median": np.median(penalties),
        "penalty_mean": np.mean(penalties),
        "penalty_max": np.max(penalties),
        "over_limit_pct": share_to_percent(float(np.mean(over_mw > 0))),
        "over_limit_plus1_pct": share_to_percent(float(np.mean(over_mw > PAPERS_TOLERANCE_MW))),
        "violations_pct": share_to_percent(float(np.mean(broken))),
        "area_w": mw_to_w(np.mean(over_mw)),
    }
    return {
        **{name: float(value) if met else None for name, value in figures.items()},
        "infeasible": sum(not outcome.choice.feasible for outcome in met),
        "missed": list(dict.fromkeys(outcome.goal.describe() for outcome in met if not outcome.choice.feasible)),
        "unmeetable": len(outcomes) - len(met),
        "choices": len(met),
        "profiling_seconds": float(np.mean([outcome.choice.spent.seconds for outcome in outcomes])),
        "profiles_spent": float(np.mean([outcome.choice.spent.profiles for outcome in outcomes])),
    }


def by_choice(outcomes: Sequence[JudgedChoice]) -> Dict[str, List[float]]:
    """The figures of each choice under a power budget that `summarise` counts, in order, rounded.

    `power_error_w` is observed power less the budget: below 0 if the budget is not used up.
    """
    met = [
        (outcome.goal.limits["power_mw"], outcome.penalty_pct, outcome.power_mw)
        for outcome in outcomes
        if outcome.penalty_pct is not None and "power_mw" in outcome.goal.limits
    ]
    return {
        "budget_w": [round(mw_to_w(budget_mw), DIGITS) for budget_mw, _, _ in met],
        "penalty_pct": [round(penalty_pct, DIGITS) for _, penalty_pct, _ in met],
        "power_error_w": [round(mw_to_w(power_mw - budget_mw), DIGITS) for budget_mw, _, power_mw in met],
    }


def hours_saved(outcomes: Sequence[JudgedChoice], others: Sequence[JudgedChoice], samples: float) -> Optional[float]:
    """Mean hours that the choices save over others for the same goals, in a training of so many samples (Q5).

    001 sec. 1.4 counts them as epochs x the gain of an epoch. Goals for which either choice breaks a limit are left
    out, because such a choice is not allowed. None if no goal is left.
    """
    saved = [
        ms_to_s((other.sample_time_ms - outcome.sample_time_ms) * samples) / S_PER_HOUR
        for outcome, other in zip(outcomes, others)
        if not (outcome.breaks or other.breaks)
    ]
    return float(np.mean(saved)) if saved else None


def contest_runs(
    strategies: Sequence[str], targets: Sequence[Profiles], profiles: Sequence[int], repeats: int, first: int = 0
) -> List[ContestRun]:
    """The runs of a contest, whose seeds begin with `first`.

    A strategy that does not depend on the number of profiles or the seed runs once.
    """
    runs = []
    for target in targets:
        for name in strategies:
            kind = STRATEGIES[name]
            numbers = {"given": tuple(profiles), "none": (0,), "all": (len(target),)}[kind.profiles]
            seeds = 1 if kind.deterministic or kind.profiles != "given" else repeats
            repeated = range(first, first + seeds)
            runs += [ContestRun(name, target, number, repeat) for number in numbers for repeat in repeated]
    return runs


def run_contest(
    runs: Sequence[ContestRun],
    goals: Sequence[Goal],
    setting: StrategySetting,
    jobs: int = 1,
    done: Callable[[ContestRun], None] = lambda run: None,
) -> JudgedChoices:
    """Run a contest on `jobs` processes; `done` is called after each run. The choices of all repeats are joined."""
    judged: JudgedChoices = {}
    for run, outcomes in zip(runs, in_processes(_run_one, [(run, goals, setting) for run in runs], jobs)):
        judged.setdefault((run.strategy, run.target.workload, run.profiles), []).extend(outcomes)
        done(run)
    return judged


def _run_one(run: ContestRun, goals: Sequence[Goal], setting: StrategySetting) -> List[JudgedChoice]:
    """The judged choices of one run; a table is never a reference of itself."""
    others = tuple(table for table in setting.references if table.fingerprint != run.target.fingerprint)
    fitting = setting._replace(device=run.target.device, references=others)
    if run.target.power_limit_mw is not None:
        fitting = fitting._replace(workload=run.target.workload, space=run.target.space())
    kind = STRATEGIES[run.strategy]
    return sweep(run.target, lambda seed: kind.make(fitting, seed), goals, run.profiles, run.repeat, kind.together)


def results(
    judged: JudgedChoices,
    targets: Sequence[Profiles],
    goals: int,
    presets: Sequence[VendorPreset] = (),
    samples: Optional[Mapping[str, float]] = None,
) -> List[Dict[str, Any]]:
    """The figures of each strategy, target and number of profiles, as plain values.

    `by_repeat` holds median and quartiles, over repeats, of mean penalty, A/L+1 and violations of one repeat, in %;
    `by_choice` every single choice, repeat after repeat. `goals` is the number of goals of a sweep;
    `hours_saved_vs_presets` needs `presets` and the `samples` of a whole training, by workload.
    """
    tables = {table.workload: table for table in targets}
    rows = []
    for (strategy, target, profiles), outcomes in judged.items():
        table = tables[target]
        sweeps = [summarise(outcomes[start : start + goals]) for start in range(0, len(outcomes), goals)]
        by_repeat = {
            "penalty": spread([figures["penalty_mean"] for figures in sweeps]),
            "over_limit_plus1": spread([figures["over_limit_plus1_pct"] for figures in sweeps]),
            "violations": spread([figures["violations_pct"] for figures in sweeps]),
        }
        trained = (samples or {}).get(target)
        saved = None
        if presets and trained is not None:
            idle = History(TableProfiler(table), 0)
            others = [judge(table, outcome.goal, Presets(presets).choose(idle, outcome.goal)) for outcome in outcomes]
            saved = hours_saved(outcomes, others, trained)
        rows.append(
            {
                "strategy": strategy,
                "target": target,
                "device": table.device,
                "task": table.task,
                "profiles": profiles,
                "repeats": len(sweeps),
                **summarise(outcomes),
                "hours_saved_vs_presets": saved,
                "by_repeat": {name: quartiles and quartiles._asdict() for name, quartiles in by_repeat.items()},
                "by_choice": by_choice(outcomes),
                "provenance": table.provenance,
            }
        )
    return rows
