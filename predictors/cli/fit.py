"""`fit`: fit a predictor to some profiles of a workload and save it."""

from __future__ import annotations

import argparse

from harness.cli.options import options_of, output_file
from harness.core.errors import InvalidValueError
from harness.core.measured_tables import corpus_file
from predictors.choose.fitting import fit
from predictors.cli.evaluate import add_learning_arguments, parse_counts
from predictors.cli.options import conditions_of
from predictors.models.base import ALL
from predictors.models.registry import DEFAULT, known_predictors, make_predictor, predictor_class


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--corpus", type=corpus_file, required=True, metavar="FILE", help="a corpus or results file with the workload")
    add("--target", required=True, metavar="W", help="the workload")
    add("--out", type=output_file, required=True, metavar="M", help="where to save the predictor")
    add("--predictor", choices=known_predictors(), default=DEFAULT, help=f"default: {DEFAULT}")
    add_learning_arguments(parser, modes=ALL, several=False)
    add("--seed", type=int, default=0, help="the same seed gives the same predictor (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    count, *more = parse_counts(arguments.modes)
    if more:
        raise InvalidValueError(f"--modes is {arguments.modes!r}", f"fit takes one number, or {ALL}")
    options = {**options_of(fit, arguments), **conditions_of(arguments)}
    options.update(modes=count, reference=arguments.reference)
    if arguments.loss is not None:
        options["predictor"] = make_predictor(predictor_class(arguments.predictor), loss=arguments.loss)
    model = fit(arguments.corpus, workload=arguments.target, **options)
    model.save(arguments.out)
    print(model.summary())
    print(f"wrote {arguments.out}")
    return 0
