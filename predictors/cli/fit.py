"""`fit`: fit a predictor to some profiles of a workload and save it."""

from __future__ import annotations

import argparse
import dataclasses
import sys

import numpy as np

from harness.cli.options import output_file
from harness.core.errors import InvalidValueError
from harness.core.measured_tables import corpus_file
from harness.core.power_modes import PowerMode
from predictors.cli.evaluate import (
    add_learning_arguments,
    load_prior,
    load_references,
    network_params,
    parse_counts,
)
from predictors.evaluation import make_target
from predictors.models.base import ALL, DEFAULT, MODULES
from predictors.models.persistence import describe_origin, file_sha256, save_model
from predictors.models.tables import find_table
from predictors.search.corpora import load_tables, note_on_medians
from predictors.search.targets import unprofiled_target

SHOWN = 5  # profiles of a kind listed by name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--corpus", type=corpus_file, required=True, metavar="FILE", help="a corpus or results file with the workload")
    add("--target", required=True, metavar="W", help="the workload")
    add("--out", type=output_file, required=True, metavar="M", help="where to save the predictor")
    add("--predictor", choices=tuple(MODULES), default=DEFAULT, help=f"default: {DEFAULT}")
    add_learning_arguments(parser, modes=ALL)
    add("--seed", type=int, default=0, help="the same seed gives the same predictor (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    tables = load_tables(arguments.corpus)
    references = load_references(arguments, tables)
    count, *more = parse_counts(arguments.modes)
    if more:
        raise InvalidValueError(f"--modes is {arguments.modes!r}", f"fit takes one number, or {ALL}")
    if count == 0:
        target = unprofiled_target(arguments.target, references, load_prior(arguments))
    else:
        profiled = find_table(tables, arguments.target, arguments.task)
        target = make_target(profiled, references, load_prior(arguments))
    target, table = dataclasses.replace(target, params=network_params(arguments)), target.table
    rows = np.arange(len(table)) if count is None else target.rows(count, arguments.sampling, 0, arguments.seed)
    # No space: the corpus may lack modes of the device, and predictions cover all of them.
    predictor = target.make(arguments.predictor, arguments.seed, within_table=False)
    note_on_medians([arguments.predictor], [table])
    score = target.judge(predictor, rows)
    origin = describe_origin(
        arguments.corpus,
        table,
        table.take(rows),
        sampling=arguments.sampling if count else ALL,
        seed=arguments.seed,
        references=[f"{reference.device}/{reference.workload}" for reference in target.references],
        reference_corpus_sha256=file_sha256(arguments.reference_corpus) if arguments.reference_corpus else None,
    )
    save_model(arguments.out, predictor, origin)
    print(
        f"{predictor.name} learned {table.workload} on {table.device} ({table.provenance}) "
        f"from {len(rows)} of {len(table)} profiles in {score['fit_seconds']:.2f} s"
    )
    errors = {what: score[f"{what}_mape"] for what in ("time", "power")}
    errors_text = ", ".join(f"{what} {value:.2f} %" for what, value in errors.items() if np.isfinite(value))
    print(
        f"MAPE on the profiles left out of the fit: {errors_text}"
        if errors_text
        else "no profile is left to test it on"
    )
    learned, doubtful = predictor.training_rows_, predictor.doubtful()
    if len(doubtful):
        _list("contradict all others and carry almost no weight", learned.inputs.modes[doubtful])
    if len(table.unapplied()):
        what = (
            "are left out: faster and drawing more than at the next higher GPU clock, so probably not run at their own"
        )
        _list(what, table.modes[table.unapplied()])
    idle = [
        reference
        for reference in target.references
        if reference.device != table.device and reference.workload != table.workload
    ]
    if idle and predictor.name == DEFAULT:
        named = ", ".join(f"{reference.workload} on {reference.device}" for reference in idle)
        print(f"note: {named} is not used: it differs in both workload and board", file=sys.stderr)
    print(f"wrote {arguments.out}")
    return 0


def _list(what: str, modes: np.ndarray) -> None:
    names = [PowerMode(*map(int, mode)).name for mode in modes]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    print(f"note: {len(names)} profiles {what}: {', '.join(names[:SHOWN])}{more}", file=sys.stderr)
