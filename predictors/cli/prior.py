"""`prior`: learn what workloads and boards have in common from their tables, and test it on held-out ones."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Sequence

from harness.cli.options import output_file
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from predictors.cli.evaluate import add_run_arguments, parse_counts, run_and_report
from predictors.cli.options import processes, refuse_below
from predictors.evaluation import Target, make_target
from predictors.models.base import DEFAULT
from predictors.models.tables import Table
from predictors.sampling import SAMPLERS
from predictors.search.corpora import load_tables
from predictors.search.targets import count_networks
from predictors.trials import TrialPlan, in_processes

if TYPE_CHECKING:
    from predictors.models.physical_gp.prior import Hierarchy

LEFT_OUT = {"network": "workload", "board": "device"}  # to the corpus column


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    learn = actions.add_parser("learn", help="learn the prior of physical-gp from corpora")
    learn.add_argument("corpora", nargs="+", type=Path, metavar="CORPUS", help="profiles: CSV or Parquet")
    learn.add_argument(
        "--out",
        type=output_file,
        required=True,
        metavar="P",
        help="a TOML file, for the option --prior of other commands",
    )
    learn.set_defaults(act=run_learn)
    test = actions.add_parser("evaluate", help="test physical-gp on each table, under a prior learned from the others")
    add = test.add_argument
    add("corpora", nargs="+", type=Path, metavar="CORPUS", help="profiles: CSV or Parquet")
    add("--leave-out", choices=tuple(LEFT_OUT), default="network", help="left out of each prior (default: %(default)s)")
    add("--references", action="store_true", help="also use the board's other workloads as references")
    add("--modes", default="5,10,20,50", metavar="N[,N]", help="modes to fit on (default: %(default)s)")
    add("--sampling", choices=tuple(SAMPLERS), default="random", help="how modes are chosen (default: %(default)s)")
    add_run_arguments(test, repeats=10)
    test.set_defaults(act=run_evaluate)


def run(arguments: argparse.Namespace) -> int:
    return arguments.act(arguments)


def run_learn(arguments: argparse.Namespace) -> int:
    from predictors.models.physical_gp.learning import as_toml, learn_hierarchy

    tables = _tables(arguments.corpora)
    boards = sorted({table.device for table in tables})
    write_output(arguments.out, as_toml(learn_hierarchy(tables), tables).encode("utf-8"))
    units = {(table.device, table.workload) for table in tables}
    print(f"learned the prior from {len(units)} workloads on {', '.join(boards)}")
    if len(boards) == 1:
        print("note: one board does not show how boards differ; that part keeps its manual prior")
    print(f"wrote {arguments.out}")
    return 0


def run_evaluate(arguments: argparse.Namespace) -> int:
    refuse_below(1, arguments, "repeats", "jobs")
    tables, column = _tables(arguments.corpora), LEFT_OUT[arguments.leave_out]
    priors = priors_without(tables, arguments.leave_out, processes(arguments))
    modes = parse_counts(arguments.modes)
    counts = count_networks(tables) if 0 in modes else None
    targets: List[Target] = []
    for table in tables:
        here = [other.usable() for other in tables if other.device == table.device and other.workload != table.workload]
        target = make_target(table, here if arguments.references else (), priors[getattr(table, column)], counts)
        targets.append(dataclasses.replace(target, label=f"{table.device}/{table.workload}/{table.task}"))
    plan = TrialPlan(
        (DEFAULT,),
        tuple(targets),
        modes,
        repeats=arguments.repeats,
        sampling=arguments.sampling,
        seed=arguments.seed,
    )
    return run_and_report(plan, arguments, arguments.corpora, f"prior without the target's {arguments.leave_out}")


def priors_without(tables: Sequence[Table], what: str, jobs: int) -> Dict[str, Hierarchy]:
    """For each network or board, the prior learned from the tables of all others, in up to `jobs` processes."""
    from predictors.models.physical_gp.learning import learn_hierarchy

    column = LEFT_OUT[what]
    names = sorted({getattr(table, column) for table in tables})
    if len(names) < 2:
        raise InvalidValueError(
            f"the corpora have only one {what}, {', '.join(names)}: nothing is left to learn from",
            f"give corpora of several {what}s",
        )
    others = [([table for table in tables if getattr(table, column) != name],) for name in names]
    return dict(zip(names, in_processes(learn_hierarchy, others, min(jobs, len(names)))))


def _tables(paths: Sequence[Path]) -> List[Table]:
    return [table for path in paths for table in load_tables(path)]
