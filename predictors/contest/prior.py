"""The prior of physical-gp: what workloads and boards have in common, learned from tables and tested on others."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.files import write_output
from harness.core.measured_tables import corpus_file
from harness.core.notes import note
from harness.core.terminal import available_hint
from predictors.choose.corpora import load_all_tables
from predictors.choose.learning import count_networks
from predictors.contest.evaluate import Evaluation, numbers_of_modes, run_evaluation
from predictors.contest.runs import USUAL_RUNS, Runs, repeats_of
from predictors.contest.trials import TrialPlan, in_processes
from predictors.evaluation import Target, make_target
from predictors.models.base import check_kind
from predictors.models.registry import DEFAULT
from predictors.profiles import Profiles
from predictors.sampling import check_sampling

if TYPE_CHECKING:
    from predictors.models.physical_gp.prior import Hierarchy

LEFT_OUT = {"network": "workload", "board": "device"}  # to the corpus column


class LearnedPrior(NamedTuple):
    """A prior of physical-gp and what it was learned from."""

    hierarchy: Hierarchy  # means and covariances of the parameters
    toml: str  # the text of its file, for `prior=` and `--prior`
    workloads: int  # how many, each on one board
    boards: Tuple[str, ...]  # that it was learned from


def learn_prior(corpora: Sequence[Union[str, Path]], *, out: Union[str, Path, None] = None) -> LearnedPrior:
    """Learn the prior of physical-gp from corpora, as `jetwatt prior learn` does.

    Args:
        corpora: files of profiles: CSV or Parquet, results files, or names of `jetwatt.load_table`.
        out: a TOML file to write, for `prior=` of other calls; None writes none.

    Raises:
        HarnessError: a corpus cannot be read or is invalid, or has nothing to learn from.
    """
    from predictors.models.physical_gp.learning import as_toml, learn_hierarchy

    tables = load_all_tables(corpora)
    hierarchy = learn_hierarchy(tables)
    units = {(table.device, table.workload) for table in tables}
    learned = LearnedPrior(
        hierarchy, as_toml(hierarchy, tables), len(units), tuple(sorted({table.device for table in tables}))
    )
    if len(learned.boards) == 1:
        note("one board does not show how boards differ; that part keeps its manual prior")
    if out is not None:
        write_output(Path(out), learned.toml.encode("utf-8"))
    return learned


def evaluate_prior(
    corpora: Sequence[Union[str, Path]],
    *,
    leave_out: str = "network",
    references: bool = False,
    modes: Union[int, Sequence[Optional[int]], None] = (5, 10, 20, 50),
    sampling: str = "random",
    runs: Runs = USUAL_RUNS,
) -> Evaluation:
    """Test physical-gp on each table, under a prior learned from the others, as `jetwatt prior evaluate` does.

    Args:
        corpora: files of profiles: CSV or Parquet, results files, or names of `jetwatt.load_table`.
        leave_out: of each prior: the target's `network`, or its `board`.
        references: also use the board's other workloads as references.
        modes: how many modes to fit on, one or several numbers; None for all but a held-out tenth.
        sampling: how the modes are chosen.
        runs: how often, from which seed, and in how many processes.

    Returns:
        An evaluation; its `table()` is a DataFrame with errors in %.

    Raises:
        HarnessError: a corpus is invalid, or there is only one network or board.
    """
    check_kind(Runs, runs=runs)
    check_sampling(sampling)
    tables, column = load_all_tables(corpora), left_out_column(leave_out)
    priors = priors_without(tables, leave_out, runs.jobs)
    numbers = numbers_of_modes(modes)
    counts = count_networks(tables) if 0 in numbers else None
    targets: List[Target] = []
    for table in tables:
        here = [other.usable() for other in tables if other.device == table.device and other.workload != table.workload]
        target = make_target(table, here if references else (), priors[getattr(table, column)], counts)
        targets.append(dataclasses.replace(target, label=f"{table.device}/{table.workload}/{table.task}"))
    plan = TrialPlan((DEFAULT,), tuple(targets), numbers, repeats=repeats_of(runs), sampling=sampling, seed=runs.seed)
    title = f"prior without the target's {leave_out}"
    return run_evaluation(plan, runs, title=title, files=list(map(corpus_file, corpora)))


def left_out_column(leave_out: str) -> str:
    """The corpus column of what is left out; UnknownNameError if it is neither network nor board."""
    if leave_out not in LEFT_OUT:
        raise UnknownNameError(f"leave_out is {leave_out!r}", available_hint(leave_out, LEFT_OUT))
    return LEFT_OUT[leave_out]


def priors_without(tables: Sequence[Profiles], what: str, jobs: int) -> Dict[str, Hierarchy]:
    """For each network or board, the prior learned from the tables of all others, in up to `jobs` processes."""
    from predictors.models.physical_gp.learning import learn_hierarchy

    column = left_out_column(what)
    names = sorted({getattr(table, column) for table in tables})
    if len(names) < 2:
        raise InvalidValueError(
            f"the corpora have only one {what}, {', '.join(names)}: nothing is left to learn from",
            f"give corpora of several {what}s",
        )
    others = [([table for table in tables if getattr(table, column) != name],) for name in names]
    return dict(zip(names, in_processes(learn_hierarchy, others, min(jobs, len(names)))))
