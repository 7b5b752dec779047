"""`strategies evaluate`: the papers' contest of strategies under power budgets."""

from __future__ import annotations

import argparse

from harness.cli.options import comma_separated, output_file, output_folder, whole_numbers, write_json
from harness.core.corpus import TASKS
from harness.core.measured_tables import corpus_file
from predictors.choose.learning import Learning
from predictors.cli.options import fields_in, numbers, runs_of
from predictors.contest.prior import LEFT_OUT
from predictors.contest.strategies import SPREAD, BudgetSweep, evaluate_strategies
from predictors.goals import OBJECTIVES
from predictors.models.base import ALL
from predictors.strategies.registry import STRATEGIES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "choose power modes under power budgets, and compare the choices with the best modes"
    evaluate = actions.add_parser("evaluate", help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = "\n".join(f"  {name:<12} {kind.meaning}" for name, kind in STRATEGIES.items())
    evaluate.description = f"{text}.\n\nstrategies:\n{listed}"
    add = evaluate.add_argument
    add("--corpus", type=corpus_file, nargs="+", required=True, metavar="FILE", help="CSV or Parquet, with all modes")
    add("--reference-corpus", type=corpus_file, metavar="FILE", help="the file with --reference, if another")
    add(
        "--reference",
        type=comma_separated,
        default=(),
        metavar="W[,W]",
        help="the workloads that transfer predictors start from",
    )
    add("--leave-out", choices=tuple(LEFT_OUT), help="use a prior learned without the target's network or board")
    add("--target", type=comma_separated, default=(), metavar="W[,W]", help="workloads to choose for (default: all)")
    add("--task", choices=(*TASKS, ALL), default=TASKS[0], help="tables of this task (default: %(default)s)")
    add(
        "--goal",
        choices=tuple(OBJECTIVES),
        help="what to minimise (default: time; throughput for tables with several batch sizes)",
    )
    add(
        "--latency-limits",
        dest="latencies_ms",
        metavar="MS[,MS]",
        help="of the minibatch time, each with each budget; with --task all, for inference",
    )
    add("--strategies", default=ALL, metavar="LIST", help="comma list, or all (default)")
    add(
        "--budgets",
        default="17:50:1",
        metavar="A:B:STEP",
        help="in W; spread:N for N budgets over the powers of each table; none (default: 17:50:1, 001 5.2)",
    )
    add("--profiles", default="15", metavar="N[,N]", help="modes that may be profiled (default: 15)")
    add("--repeats", type=int, default=5, metavar="N", help="runs with other seeds (default: 5)")
    add(
        "--risk",
        type=float,
        metavar="P",
        default=0.05,
        help="of one-shot: probability of breaking a limit (default: 0.05)",
    )
    add("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    add("--json", type=output_file, metavar="OUT", help="write all figures")
    add("--plots", type=output_folder, metavar="DIR", help="draw the papers' plots (needs matplotlib)")


def run(arguments: argparse.Namespace) -> int:
    profiles = whole_numbers("--profiles", arguments.profiles, "10,15,50")
    kind, _, count = arguments.budgets.partition(":")
    if kind == SPREAD:
        whole_numbers("--budgets", count, f"{SPREAD}:8")
    limits = arguments.latencies_ms
    latencies_ms = numbers("--latency-limits", limits, "50,200") if limits else ()
    contest = evaluate_strategies(
        arguments.corpus,
        strategies=arguments.strategies,
        target=arguments.target,
        task=arguments.task,
        budgets=fields_in(BudgetSweep, arguments, latencies_ms=latencies_ms),
        profiles=profiles,
        risk=arguments.risk,
        learning=fields_in(Learning, arguments),
        leave_out=arguments.leave_out,
        runs=runs_of(arguments),
    )
    print(contest)
    if arguments.json:
        write_json(arguments.json, contest.plain())
    if arguments.plots:
        for path in contest.plot(arguments.plots):
            print(f"wrote {path}")
    return 0
