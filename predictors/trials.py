"""Runs an evaluation: every predictor on every target, number of modes and repeat, on several processes at once."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.core.errors import HarnessError
from harness.core.terminal import format_table
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
without slice: time / power on modes not used to fit, outside the part of the table that is known to be odd
80 % holds: share of the observed times / powers that lie within the 80 % interval
profiling: 3 s and 41 minibatches for each mode"""


class Group(NamedTuple):
    """The trials that one result is made of: a predictor, the place of a target, and how many modes are fitted."""

    predictor: str
    target: int
    count: Optional[int]


@dataclasses.dataclass(frozen=True)
class TrialPlan:
    predictors: Tuple[str, ...]  # names
    targets: Tuple[Target, ...]  # on which tables
    counts: Tuple[Optional[int], ...] = (50,)  # how many modes are fitted; None for all but a held-out tenth
    repeats: int = 10  # how often, each time with other modes
    sampling: str = "random"  # how modes are chosen
    seed: int = 0  # of all
    # the groups to run where these are not every predictor on every target at every count
    chosen: Optional[Tuple[Group, ...]] = None

    def groups(self) -> List[Group]:
        if self.chosen is not None:
            return list(self.chosen)
        return [Group(*one) for one in itertools.product(self.predictors, range(len(self.targets)), self.counts)]


class Results(NamedTuple):
    by_group: Dict[Group, Dict[str, Any]]  # plain values by name, in the order of the plan's groups
    skipped: List[Dict[str, Any]]  # what could not be run, each with its reason
    trials: Dict[Group, pd.DataFrame]  # of each group a row for each repeat, as of `Target.judge`

    @property
    def results(self) -> List[Dict[str, Any]]:
        return list(self.by_group.values())


def run_plan(
    plan: TrialPlan, jobs: int = 1, report: Callable[[int, int, str], None] = lambda done, total, what: None
) -> Results:
    """Run all trials, on `jobs` processes of one thread each, or in this one.

    A predictor that cannot learn from a target's modes, or lacks a package, is skipped there with the reason. `report`
    is told how many trials are done, of how many, and which was the last.
    """
    import pandas as pd

    groups = plan.groups()
    asked = [
        (group.predictor, plan.targets[group.target], group.count, plan.sampling, repeat, plan.seed)
        for group in groups
        for repeat in range(plan.repeats)
    ]
    outcomes = []
    for outcome, (predictor, target, *_) in zip(in_processes(run_trial, asked, jobs), asked):
        outcomes.append(outcome)
        report(len(outcomes), len(asked), f"{predictor} on {target.name}")
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
    """Fit and test one predictor once: what `Target.judge` finds, or the `reason` why that cannot be done."""
    try:
        with one_blas_thread():
            return target.judge(target.make(predictor, seed + repeat), target.rows(count, sampling, repeat, seed))
    except HarnessError as error:
        return {"reason": str(error)}


def in_processes(function: Callable[..., Any], asked: Sequence[Tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """What a function returns for each of some arguments, in their order, by so many processes, or by this one."""
    if jobs == 1:
        yield from itertools.starmap(function, asked)
        return
    # Processes are spawned, not forked: a fork of a process in which torch runs threads may hang.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(function, *zip(*asked))


def format_results(results: Sequence[Mapping[str, Any]]) -> str:
    def shown(values: Mapping[str, Any], *names: str, digits: int = 2, between: str = " / ") -> str:
        figures = [values.get(name) for name in names]
        return between.join("-" if one is None else f"{one:.{digits}f}" for one in figures)

    rows, medians = [], ("time_mape_median", "power_mape_median")
    for one in results:
        row = [one["predictor"], one["target"], str(one["n_modes"])]
        for what in ("time_mape", "power_mape"):
            known = one[f"{what}_median"] is not None
            quartiles = shown(one, f"{what}_q1", f"{what}_q3", digits=1, between="-") if known else "-"
            row += [shown(one, f"{what}_median"), quartiles]
        row += [shown(one["all_modes"], *medians), shown(one["without_slice"] or {}, *medians)]
        row += [shown(one["coverage"], "time_80", "power_80", digits=0), f"{one['profiling_seconds'] / 60:.1f}"]
        rows.append([*row, shown(one, "fit_seconds"), shown(one, "predict_seconds")])
    kinds = ", ".join(sorted({one["provenance"] for one in results}))
    return f"tested on {kinds} corpora\n{format_table(HEADER, rows)}\n{LEGEND}"


def format_skipped(skipped: Sequence[Mapping[str, Any]]) -> str:
    reasons: Dict[str, List[str]] = {}
    for one in skipped:
        where = reasons.setdefault(f"{one['predictor']}: {one['reason']}", [])
        where.append(f"{one['target']} at {one['modes']} modes")
    return "\n".join(f"skipped {reason} ({', '.join(where)})" for reason, where in reasons.items())
