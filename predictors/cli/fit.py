"""`fit`: learn a workload from some of its profiles and keep the fitted predictor in a file."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from harness.cli.options import output_file
from harness.core.errors import InvalidValueError
from predictors.cli.evaluate import add_learning_arguments, load_references, make_target, parse_counts
from predictors.models.base import ALL, DEFAULT, MODULES, make_predictor, predictor_class
from predictors.models.persistence import describe_origin, file_sha256, save_model
from predictors.models.tables import find_table, load_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--corpus", type=Path, required=True, metavar="FILE", help="profiles of the workload")
    add("--target", required=True, metavar="W", help="the workload")
    add("--out", type=output_file, required=True, metavar="M", help="where to save the predictor")
    add("--predictor", choices=tuple(MODULES), default=DEFAULT, help=f"default: {DEFAULT}")
    add_learning_arguments(parser, modes=ALL)
    add("--seed", type=int, default=0, help="the same seed gives the same predictor (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    tables = load_tables(arguments.corpus)
    target = make_target(find_table(tables, arguments.target, arguments.task), load_references(arguments, tables))
    table = target.table
    count, *more = parse_counts(arguments.modes)
    if more:
        raise InvalidValueError(f"--modes is {arguments.modes!r}", f"fit takes one number, or {ALL}")
    rows = np.arange(len(table)) if count is None else target.rows(count, arguments.sampling, 0, arguments.seed)
    # No space: the corpus need not hold every mode that the device allows, and predictions are wanted of all.
    predictor = make_predictor(
        predictor_class(arguments.predictor), references=target.references, board=table.device, seed=arguments.seed
    )
    score = target.judge(predictor, rows)
    origin = describe_origin(
        arguments.corpus,
        table,
        table.take(rows),
        sampling=arguments.sampling if count else ALL,
        seed=arguments.seed,
        references=[f"{one.device}/{one.workload}" for one in target.references],
        reference_corpus_sha256=file_sha256(arguments.reference_corpus) if arguments.reference_corpus else None,
    )
    save_model(arguments.out, predictor, origin)
    print(
        f"{predictor.name} learned {table.workload} on {table.device} ({table.provenance}) "
        f"from {len(rows)} of {len(table)} profiles in {score['fit_seconds']:.2f} s"
    )
    errors = {what: score[f"{what}_mape"] for what in ("time", "power")}
    said = ", ".join(f"{what} {value:.2f} %" for what, value in errors.items() if np.isfinite(value))
    print(f"MAPE on the profiles that it did not learn from: {said}" if said else "no profile is left to test it on")
    print(f"wrote {arguments.out}")
    return 0
