"""`prior`: learn what workloads and boards have in common from their tables, and test it on held-out ones."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import options_of, output_file
from predictors.cli.evaluate import add_run_arguments, parse_counts, print_evaluation
from predictors.cli.options import runs_of
from predictors.contest.prior import LEFT_OUT, evaluate_prior, learn_prior
from predictors.sampling import SAMPLERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    learn = actions.add_parser("learn", help="learn the prior of physical-gp from corpora")
    learn.add_argument(
        "corpora", nargs="+", type=Path, metavar="CORPUS", help="profiles: CSV or Parquet, or a measured table by name"
    )
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
    add("corpora", nargs="+", type=Path, metavar="CORPUS", help="profiles: CSV or Parquet, or a measured table by name")
    add("--leave-out", choices=tuple(LEFT_OUT), default="network", help="left out of each prior (default: %(default)s)")
    add("--references", action="store_true", help="also use the board's other workloads as references")
    add("--modes", default="5,10,20,50", metavar="N[,N]", help="modes to fit on (default: %(default)s)")
    add("--sampling", choices=tuple(SAMPLERS), default="random", help="how modes are chosen (default: %(default)s)")
    add_run_arguments(test, repeats=10)
    test.set_defaults(act=run_evaluate)


def run(arguments: argparse.Namespace) -> int:
    return arguments.act(arguments)


def run_learn(arguments: argparse.Namespace) -> int:
    learned = learn_prior(arguments.corpora, out=arguments.out)
    print(f"learned the prior from {learned.workloads} workloads on {', '.join(learned.boards)}")
    print(f"wrote {arguments.out}")
    return 0


def run_evaluate(arguments: argparse.Namespace) -> int:
    options = options_of(evaluate_prior, arguments)
    options.update(modes=parse_counts(arguments.modes), runs=runs_of(arguments))
    return print_evaluation(evaluate_prior(arguments.corpora, **options), arguments)
