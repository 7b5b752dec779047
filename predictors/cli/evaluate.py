"""`evaluate`: errors of predictors, by the papers' protocol and the stricter one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Tuple

from harness.cli.options import comma_separated, output_file, output_folder, write_json
from harness.core.errors import InvalidValueError
from harness.core.measured_tables import corpus_file
from predictors.choose.learning import Learning
from predictors.cli.options import add_conditions, conditions_of, fields_in, runs_of
from predictors.contest.evaluate import Evaluation, evaluate
from predictors.contest.trials import format_results, format_skipped
from predictors.models.base import ALL
from predictors.models.networks import LOSSES
from predictors.models.registry import predictor_names
from predictors.sampling import SAMPLERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--corpus", type=corpus_file, required=True, metavar="FILE", help="a corpus or a results file with the targets")
    add("--target", type=comma_separated, required=True, metavar="W[,W]", help="workloads to predict")
    add("--predictors", default=ALL, metavar="LIST", help=f"comma-separated names, or {ALL} (default)")
    add_learning_arguments(parser, modes="50")
    add(
        "--grid", nargs="*", metavar="NAME=V[,V]",
        help="search the hyperparameters of nn or powertrain: test all combinations and name the best; parameters take "
        "the given values (epochs=100,200), the others their defaults",
    )  # fmt: skip
    add_run_arguments(parser, repeats=10)


def add_learning_arguments(parser: argparse.ArgumentParser, modes: str, several: bool = True) -> None:
    """Options on what a predictor learns from; `several` numbers of modes, or one."""
    add = parser.add_argument
    add(
        "--reference",
        type=comma_separated,
        default=(),
        metavar="W[,W]",
        help="reference workloads; a target is never its own reference",
    )
    add("--reference-corpus", type=corpus_file, metavar="FILE", help="the file with their profiles (default: --corpus)")
    add("--loss", choices=LOSSES, help="training loss of networks (default: mse, as in most of the paper)")
    add("--prior", type=Path, metavar="FILE", help="a file written by `prior learn` (default: the suite's prior)")
    add_conditions(parser)
    add(
        "--modes", default=modes, metavar="N[,N]" if several else "N",
        help=f"modes to fit on: {'10,20,50,100,all' if several else 'a number, or all'} (default: %(default)s); for 0, "
        "torch counts the networks' operations",
    )  # fmt: skip
    add("--sampling", choices=tuple(SAMPLERS), default="random", help="how modes are chosen (default: %(default)s)")


def add_run_arguments(parser: argparse.ArgumentParser, repeats: int, plots: bool = True) -> None:
    add = parser.add_argument
    add("--repeats", type=int, default=repeats, help="number of repeats, each with other modes (default: %(default)s)")
    add("--seed", type=int, default=0, help="the same seed draws the same modes (default: 0)")
    add("--jobs", type=int, metavar="N", help="parallel processes (default: the number of CPUs)")
    add("--json", type=output_file, metavar="OUT", help="write the results")
    if plots:
        add("--plots", type=output_folder, metavar="DIR", help="write the papers' plots (needs matplotlib)")


def run(arguments: argparse.Namespace) -> int:
    evaluation = evaluate(
        arguments.corpus,
        target=arguments.target,
        predictors=predictor_names(arguments.predictors),
        modes=parse_counts(arguments.modes),
        learning=fields_in(Learning, arguments),
        grid=arguments.grid,
        runs=runs_of(arguments),
        **conditions_of(arguments),
    )
    return print_evaluation(evaluation, arguments)


def print_evaluation(evaluation: Evaluation, arguments: argparse.Namespace) -> int:
    """Print results, with skipped trials on standard error, and write the files of `add_run_arguments`."""
    skipped, results = evaluation.trials.skipped, evaluation.trials.results
    if skipped and results:
        print(format_skipped(skipped), file=sys.stderr)
    if evaluation.title:
        print(evaluation.title)
    if results:
        print(format_results(results))
        print(evaluation.best, end="")
    if arguments.json:
        write_json(arguments.json, evaluation.plain())
    if arguments.plots is not None and results:
        for path in evaluation.plot(arguments.plots):
            print(f"wrote {path}")
    evaluation.refuse_untested()
    return 0


def parse_counts(text: str) -> Tuple[Optional[int], ...]:
    """Numbers of modes from a comma-separated list; None for `all`."""
    counts: List[Optional[int]] = []
    for word in text.split(","):
        if word != ALL and not word.isdecimal():
            raise InvalidValueError(f"--modes contains {word!r}", f"write it like 0,10,20,50,{ALL}")
        counts.append(None if word == ALL else int(word))
    return tuple(dict.fromkeys(counts))
