"""Runs an evaluation: every predictor on every target, number of modes and repeat, on several processes at once."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.core.errors import HarnessError
from harness.core.terminal import format_table
from harness.core.units import s_to_minutes
from predictors.evaluation import Target, summarise
from predictors.models.base import one_blas_thread

if TYPE_CHECKING:
    import pandas as pd

HEADER = (
    *("predictor", "target", ">modes", ">time MAPE %", ">Q1-Q3", ">power MAPE %", ">Q1-Q3", ">all modes"),
    *(">without slice", ">80 % holds", ">profiling min", ">fit s", ">predict s"),
)

LEGEND = """\
time and power MAPE: on the modes that were not used to fit, median over repeats
all modes: time / power with those used to fit included, as the papers have it
without slice: time / power on modes not used to fit, without the odd slice of the table
80 % holds: share of the observed times / powers that lie within the 80 % interval
profiling: 3 s and 41 minibatches for each mode"""


class Group(NamedTuple):
    """The trials behind one result: a predictor, the index of a target, and the number of fitted modes."""

    predictor: str
    target: int
    count: Optional[int]  # type: ignore[assignment]  # hides a tuple's method that nothing calls


@dataclasses.dataclass(frozen=True)
class TrialPlan:
    predictors: Tuple[str, ...]  # names
    targets: Tuple[Target, ...]
    counts: Tuple[Optional[int], ...] = (50,)  # numbers of fitted modes; None for all but a held-out tenth
    repeats: int = 10  # each with other modes
    sampling: str = "random"  # a name of `predictors.sampling.SAMPLERS`
    seed: int = 0  # of all trials
    # the groups to run; by default every predictor on every target at every count
    chosen: Optional[Tuple[Group, ...]] = None

    def groups(self) -> List[Group]:
        if self.chosen is not None:
            return list(self.chosen)
        return [
            Group(*combination)
            for combination in itertools.product(self.predictors, range(len(self.targets)), self.counts)
        ]


class Results(NamedTuple):
    by_group: Dict[Group, Dict[str, Any]]  # plain values by name, in the order of the plan's groups
    skipped: List[Dict[str, Any]]  # groups that could not be run, with their reasons
    trials: Dict[Group, pd.DataFrame]  # for each group a row per repeat, as of `Target.judge`

    @property
    def results(self) -> List[Dict[str, Any]]:
        return list(self.by_group.values())


def run_plan(
    plan: TrialPlan, jobs: int = 1, report: Callable[[int, int, str], None] = lambda done, total, what: None
) -> Results:
    """Run all trials, on `jobs` processes of one thread each, or in this one.

    A predictor that cannot be fitted to the modes of a target, or lacks a package, is skipped there with the reason.
    `report` receives the number of finished trials, their total, and the name of the last one.
    """
    import pandas as pd

    groups = plan.groups()
    arguments = [
        (group.predictor, plan.targets[group.target], group.count, plan.sampling, repeat, plan.seed)
        for group in groups
        for repeat in range(plan.repeats)
    ]
    outcomes = []
    for outcome, (predictor, target, *_) in zip(in_processes(run_trial, arguments, jobs), arguments):
        outcomes.append(outcome)
        report(len(outcomes), len(arguments), f"{predictor} on {target.name}")
    results: Dict[Group, Dict[str, Any]] = {}
    trials: Dict[Group, pd.DataFrame] = {}
    skipped = []
    for number, group in enumerate(groups):
        target, mine = plan.targets[group.target], outcomes[number * plan.repeats : (number + 1) * plan.repeats]
        what = {
            "predictor": group.predictor,
            "target": target.name,
            "device": target.table.device,
            "task": target.table.task,
            "references": [f"{table.device}/{table.workload} ({table.provenance})" for table in target.references],
            "modes": "given" if target.fitted is not None else "all" if group.count is None else group.count,
            "sampling": "given" if target.fitted is not None else plan.sampling,
        }
        reasons = [outcome["reason"] for outcome in mine if "reason" in outcome]
        if reasons:
            skipped.append({**what, "reason": reasons[0]})
        else:
            trials[group] = pd.DataFrame(mine)
            results[group] = {**what, **summarise(trials[group]), "provenance": target.table.provenance}
    return Results(results, skipped, trials)


def run_trial(
    predictor: str, target: Target, count: Optional[int], sampling: str, repeat: int, seed: int
) -> Dict[str, Any]:
    """Fit and test a predictor once: the figures of `Target.judge`, or the `reason` why it cannot be tested."""
    try:
        with one_blas_thread():
            return target.judge(target.make(predictor, seed + repeat), target.rows(count, sampling, repeat, seed))
    except HarnessError as error:
        return {"reason": str(error)}


def in_processes(function: Callable[..., Any], arguments: Sequence[Tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Map a function over tuples of arguments, in their order, on `jobs` processes, or in this one for 1."""
    if jobs == 1:
        yield from itertools.starmap(function, arguments)
        return
    # Processes are spawned, not forked: a fork of a process in which torch runs threads may hang.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(function, *zip(*arguments))


def format_results(results: Sequence[Mapping[str, Any]]) -> str:
    def join_figures(values: Mapping[str, Any], *names: str, digits: int = 2, between: str = " / ") -> str:
        figures = [values.get(name) for name in names]
        return between.join("-" if figure is None else f"{figure:.{digits}f}" for figure in figures)

    rows, medians = [], ("time_mape_median", "power_mape_median")
    for result in results:
        row = [result["predictor"], result["target"], str(result["n_modes"])]
        for what in ("time_mape", "power_mape"):
            has_median = result[f"{what}_median"] is not None
            quartiles = join_figures(result, f"{what}_q1", f"{what}_q3", digits=1, between="-") if has_median else "-"
            row += [join_figures(result, f"{what}_median"), quartiles]
        row += [join_figures(result["all_modes"], *medians), join_figures(result["without_slice"] or {}, *medians)]
        row += [
            join_figures(result["coverage"], "time_80", "power_80", digits=0),
            f"{s_to_minutes(result['profiling_seconds']):.1f}",
        ]
        rows.append([*row, join_figures(result, "fit_seconds"), join_figures(result, "predict_seconds")])
    kinds = ", ".join(sorted({result["provenance"] for result in results}))
    return f"tested on {kinds} corpora\n{format_table(HEADER, rows)}\n{LEGEND}"


def format_skipped(skipped: Sequence[Mapping[str, Any]]) -> str:
    reasons: Dict[str, List[str]] = {}
    for trial in skipped:
        where = reasons.setdefault(f"{trial['predictor']}: {trial['reason']}", [])
        where.append(f"{trial['target']} at {trial['modes']} modes")
    return "\n".join(f"skipped {reason} ({', '.join(where)})" for reason, where in reasons.items())
