"""`evaluate_strategies`: the papers' contest of strategies under power budgets."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.corpus import TASKS, listed
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.notes import note
from harness.core.terminal import format_table
from harness.core.units import mw_to_w, s_to_minutes
from predictors.choose.corpora import load_all_tables, load_tables
from predictors.choose.learning import USUAL_LEARNING, Learning, load_prior
from predictors.choose.request import minibatches_of_training
from predictors.contest.judged_choices import ContestRun, JudgedChoices, contest_runs, results, run_contest
from predictors.contest.prior import left_out_column, priors_without
from predictors.contest.runs import USUAL_RUNS, Runs, repeats_of, tell
from predictors.goals import OBJECTIVES, Goal, budget_goals, check_objective
from predictors.models.base import (
    ALL,
    CallSettings,
    check_kind,
    check_numbers,
    check_probability,
    checks_names,
    numbers_in,
    refuse_unread,
)
from predictors.models.vendor_estimate import estimated_boards
from predictors.profiles import Profiles, find_reference
from predictors.settings import DEFAULT_BATCH_SIZE
from predictors.strategies.fixed import VendorPreset, presets_of
from predictors.strategies.registry import StrategySetting, strategy_names

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: Tuple[Tuple[str, str], ...] = (
    ("penalty_median", "median"),
    ("penalty_mean", "mean"),
    ("penalty_max", "max"),
    ("over_limit_pct", "A/L %"),
    ("over_limit_plus1_pct", "A/L+1 %"),
    ("violations_pct", "viol %"),
    ("area_w", "area W"),
)

SPREAD, SPREAD_OVER = "spread", (0.05, 0.95)
"""Budgets spread over a table's powers, between these quantiles."""
USUAL_BUDGETS = "17:50:1"  # 001 sec. 5.2
NO_POWER_BUDGET = "none"
REPEATS_OF_CONTEST = 5  # unless given


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class BudgetSweep(CallSettings):
    """The goals that strategies are tested on: each power budget, with each maximum minibatch time if there are any.

    Attributes:
        budgets: in W as `A:B:STEP`; `spread:N` for N budgets over the powers of each table; `none`.
        latencies_ms: maximum minibatch times in ms, one or several; with `task="all"`, for inference.
        goal: what to minimise, by a name as of `recommend`; None for time, or throughput for tables with several batch
            sizes.
    """

    budgets: str = USUAL_BUDGETS
    latencies_ms: Union[float, Sequence[float]] = ()
    goal: Optional[str] = None

    def __post_init__(self) -> None:
        """Refuse an unknown goal, latencies that are not numbers above 0, and budgets that are no text."""
        if self.goal is not None:
            check_objective(self.goal)
        check_numbers(above=True, latencies_ms=numbers_in(self.latencies_ms))
        if not isinstance(self.budgets, str):
            raise InvalidValueError(f"budgets is {self.budgets!r}, expected a text", f"such as {USUAL_BUDGETS!r}")


USUAL_SWEEP = BudgetSweep()
"""The papers' budgets."""


@checks_names
def evaluate_strategies(
    corpus: Union[str, Path, Sequence[Union[str, Path]]],
    *,
    strategies: Union[str, Sequence[str]] = ALL,
    target: Union[str, Sequence[str]] = (),
    task: str = TASKS[0],
    budgets: Union[str, BudgetSweep] = USUAL_SWEEP,
    profiles: Union[int, Sequence[int]] = 15,
    risk: float = 0.05,
    learning: Learning = USUAL_LEARNING,
    leave_out: Optional[str] = None,
    runs: Runs = USUAL_RUNS,
) -> StrategyContest:
    """Choose power modes under power budgets and compare with the best, as `jetwatt strategies evaluate` does.

    A warning names each strategy that cannot run on a table, with the reason.

    Args:
        corpus: one or several files with a profile of every mode, or names of `jetwatt.load_table`.
        strategies: names, or `all`.
        target: workloads to choose for; empty for all.
        task: `training`, `inference` or `all`.
        budgets: in W as `A:B:STEP`; `spread:N` for N budgets over the powers of each table; `none`; or a `BudgetSweep`,
            which also has latencies and what to minimise.
        profiles: modes that may be profiled, one or several numbers.
        risk: of `one-shot`: probability of breaking a limit.
        learning: the workloads that transfer predictors start from, and another prior.
        leave_out: use a prior learned without the target's `network` or `board`; None for that of `learning`.
        runs: how often, from which seed, and in how many processes.

    Returns:
        The contest; its `table()` is a DataFrame with penalties and shares in %, areas in W.

    Raises:
        HarnessError: a corpus is invalid, a name is unknown, or no strategy is left to run.
    """
    check_kind(Learning, learning=learning)
    check_kind(Runs, runs=runs)
    refuse_unread(learning, "evaluate_strategies", "loss", "sampling")
    check_probability("risk", risk, certain=False)
    sweep = budgets if isinstance(budgets, BudgetSweep) else BudgetSweep(budgets)
    names = strategy_names(strategies if isinstance(strategies, str) else ",".join(strategies))
    numbers = [profiles] if isinstance(profiles, int) else list(profiles)
    files = [corpus] if isinstance(corpus, (str, Path)) else list(corpus)
    tables = load_all_tables(files)
    elsewhere = load_tables(learning.reference_corpus) if learning.reference_corpus else tables
    names_of_references = listed(learning.reference)
    tasks_of_reference = {table.task for table in elsewhere if table.workload in names_of_references}
    column = None if leave_out is None else left_out_column(leave_out)
    priors = {} if leave_out is None else priors_without(tables, leave_out, runs.jobs)
    usual_prior = load_prior(learning.prior)
    contests = []
    objectives = set()
    for table in _targets(tables, listed(target), task):
        references: Tuple[Profiles, ...] = ()
        if names_of_references and (task != ALL or table.task in tasks_of_reference):
            others = [find_reference(elsewhere, name, table.task, table.device) for name in names_of_references]
            own = table.fingerprint
            references = tuple(other for other in others if other.fingerprint != own)
        setting = StrategySetting(
            device=table.device,
            references=references,
            presets=presets_of(table.device),
            risk=risk,
            hierarchy=priors[getattr(table, column)] if column else usual_prior,
        )
        left_out = _left_out(setting, table.power_limit_mw is not None)
        for name in (name for name in names if name in left_out):
            note(f"{name} is skipped for {table.workload}: {left_out[name]}")
        kept = [name for name in names if name not in left_out]
        repeats = contest_runs(kept, [table], numbers, repeats_of(runs, REPEATS_OF_CONTEST), runs.seed)
        objective = sweep.goal or ("throughput" if len(set(table.batch_size.tolist())) > 1 else "time")
        objectives.add(objective)
        latencies_ms = () if task == ALL and table.task == TASKS[0] else numbers_in(sweep.latencies_ms)
        contests.append((table, _goals(table, sweep.budgets, objective, latencies_ms), setting, repeats))
    total = sum(len(repeats) for *_, repeats in contests)
    if not total:
        raise CannotRunError("no strategy is left to run", "see the reasons above")
    done = 0

    def count(run: ContestRun) -> None:
        nonlocal done
        done += 1
        tell(runs, done, total, f"{run.strategy}, {run.target.workload}, {run.profiles} profiles")

    rows: List[Dict[str, Any]] = []
    outcomes: Dict[Tuple[str, str], JudgedChoices] = {}
    for table, goals, setting, repeats in contests:
        here = run_contest(repeats, goals, setting, runs.jobs, count)
        minibatches = minibatches_of_training(table.workload, DEFAULT_BATCH_SIZE)
        samples = {}
        if minibatches is not None and table.task == TASKS[0]:
            samples[table.workload] = minibatches * DEFAULT_BATCH_SIZE
        rows += results(here, [table], len(goals), setting.presets, samples)
        outcomes.setdefault((table.device, table.task), {}).update(here)
    notes = list(dict.fromkeys(note for _, _, setting, _ in contests for note in notes_on(setting.presets)))
    about = {
        "corpus": " ".join(map(str, files)),
        "reference": ",".join(names_of_references) or None,
        "budgets_w": sweep.budgets,
        "repeats": repeats_of(runs, REPEATS_OF_CONTEST),
        "risk": risk,
        "notes": notes,
        "task": task,
        "goal": ", ".join(sorted(objectives)),
    }
    return StrategyContest(rows, about, outcomes, tuple(table for table, *_ in contests))


class StrategyContest(NamedTuple):
    """What strategies chose, compared with the best modes; printed, it is the text of `jetwatt strategies evaluate`."""

    rows: List[Dict[str, Any]]  # of each strategy, target and number of profiles, as `strategies.evaluation.results`
    about: Dict[str, Any]  # the options of the contest
    outcomes: Dict[Tuple[str, str], JudgedChoices]  # by device and task
    targets: Tuple[Profiles, ...]  # the tables that were chosen from

    def __repr__(self) -> str:
        return "\n".join([format_results(self.rows), *(f"note: {note}" for note in self.about["notes"])])

    def table(self) -> pd.DataFrame:
        """A row for each strategy, target and number of profiles."""
        import pandas as pd

        return pd.json_normalize(self.rows, sep="_")

    def plain(self) -> Dict[str, Any]:
        """What `--json` writes."""
        return {**self.about, "results": self.rows}

    def plot(self, folder: Union[str, Path]) -> List[Path]:
        """Draw the papers' plots, in a folder for each device and task if there are several; needs matplotlib."""
        from predictors.contest.strategy_plots import draw

        paths: List[Path] = []
        for (device, task), of_group in self.outcomes.items():
            targets = [table for table in self.targets if (table.device, table.task) == (device, task)]
            own = Path(folder) if len(self.outcomes) == 1 else Path(folder) / f"{device}-{task}"
            paths += draw(of_group, targets, own)
        return paths


def _targets(tables: Sequence[Profiles], names: Sequence[str], task: str) -> List[Profiles]:
    """The tables to choose in, reduced to rows with measured power."""
    tasks = TASKS if task == ALL else (task,)
    targets = [
        table for table in tables if table.task in tasks and table.has_power and (not names or table.workload in names)
    ]
    lacking = [name for name in names if name not in {table.workload for table in targets}]
    if lacking or not targets:
        of = ", ".join(lacking) or "any workload"
        raise CannotRunError(f"the corpora have no {' or '.join(tasks)} of {of} with power")
    return [table.complete() for table in targets]


def _goals(table: Profiles, budgets: str, objective: str, latencies_ms: Sequence[float]) -> List[Goal]:
    kind, _, count = budgets.partition(":")
    if kind == SPREAD:
        if not count.isdecimal() or not int(count):
            raise InvalidValueError(f"the budgets are {budgets!r}", f"write a number of budgets: {SPREAD}:8")
        low, high = np.quantile(table.power_mw, SPREAD_OVER)
        budgets = ",".join(f"{mw_to_w(value):.2f}" for value in np.linspace(low, high, int(count)))
    if budgets == NO_POWER_BUDGET:
        return [Goal(OBJECTIVES[objective])]
    return budget_goals(budgets, OBJECTIVES[objective], latencies_ms)


def _left_out(setting: StrategySetting, has_limits: bool) -> Dict[str, str]:
    """The strategies that cannot run here, and why."""
    reasons = {}
    if not setting.presets:
        reasons["presets"] = f"the presets of {setting.device} are unknown"
    if setting.device not in estimated_boards():
        reasons["npe"] = f"the figures of the module {setting.device} are unknown"
    if not setting.references:
        reasons["powertrain"] = "it needs a reference workload other than the target"
    if not has_limits:
        reasons["zeus"] = "it profiles power limits, and the table has none"
    return reasons


def notes_on(presets: Sequence[VendorPreset]) -> List[str]:
    """Caveats of figures with presets; empty if all use the whole GPU."""
    smaller = [preset.name for preset in presets if preset.has_less_gpu]
    note = "switch a part of the GPU off at boot; here they are represented by their clocks with the whole GPU"
    return [f"{', '.join(smaller)} {note}, which is faster and draws more"] if smaller else []


def format_results(rows: Sequence[Dict[str, Any]]) -> str:
    """The contest as a table: penalties in %, shares in %, area in W, profiling time."""
    figures = (f">{title}" for _, title in _COLUMNS)
    several = len({(row["device"], row["task"]) for row in rows}) > 1
    header = ["strategy", "target", ">profiles", *figures, ">infeasible", ">time spent", ">hours saved"]
    body = [
        [
            row["strategy"],
            f"{row['device']}/{row['target']}/{row['task']}" if several else row["target"],
            str(row["profiles"]),
            *("-" if row[name] is None else f"{row[name]:.1f}" for name, _ in _COLUMNS),
            f"{row['infeasible']}/{row['choices']}",
            f"{s_to_minutes(row['profiling_seconds']):.1f} min",
            "-" if row["hours_saved_vs_presets"] is None else f"{row['hours_saved_vs_presets']:.1f}",
        ]
        for row in rows
    ]
    provenance = ", ".join(sorted({row["provenance"] for row in rows}))
    legend = "hours saved: over the papers' training, against the best preset for the same budget"
    title = f"time penalty in % (median, mean, max), tables {provenance}"
    missed = [
        f"missed by {row['strategy']} with {row['profiles']} profiles, {row['target']}: {', '.join(row['missed'])}"
        for row in rows
        if row["missed"]
    ]
    return "\n".join([title, format_table(header, body), legend, *missed])
