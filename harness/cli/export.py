"""`export`: the profiles of a results file as a corpus."""

from __future__ import annotations

import argparse

from harness.cli.options import add_include_flagged, add_results, output_file
from harness.core.corpus import SUFFIXES, pyarrow
from harness.core.errors import InvalidValueError
from harness.store.conditions import LEFT_OUT
from harness.store.corpora import export
from harness.store.frames import minibatches, profiles, telemetry
from harness.store.results import ResultsStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write the profiles of a results file as a corpus: a row per device, workload, power mode, ..."
    add_results(parser)
    parser.add_argument("--out", type=output_file, help=f"the corpus to write, {' or '.join(SUFFIXES)}")
    for name, text in (("minibatches", "minibatch"), ("telemetry", "sample of every sensor")):
        parser.add_argument(
            f"--{name}",
            type=output_file,
            metavar="FILE",
            help=f"also write every {text}, one row each: CSV or .parquet",
        )
    parser.add_argument(
        "--all-runs", action="store_true", help="one row per profile, not only the newest of the same conditions"
    )
    add_include_flagged(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is None and arguments.minibatches is None and arguments.telemetry is None:
        raise InvalidValueError(
            "there is nothing to write",
            "--out FILE for a corpus, --minibatches FILE for every minibatch, --telemetry FILE for every sample",
        )
    with ResultsStore(arguments.results, read_only=True) as store:
        for path, what, read in (
            (arguments.minibatches, "minibatches", minibatches),
            (arguments.telemetry, "samples", telemetry),
        ):
            if path is not None:
                ids = profiles(store, arguments.include_flagged)[["case_id", "provenance"]]
                raw = ids.join(read(store, ids.index).set_index("profile_id"), how="inner").reset_index()
                if path.suffix == ".parquet":
                    pyarrow()  # refuses if it is not installed
                    raw.to_parquet(path, index=False, compression="zstd")
                else:
                    raw.to_csv(path, index=False)
                print(f"{path}: {len(raw)} {what} of {raw['profile_id'].nunique()} profiles")
        if arguments.out is None:
            return 0
        done = export(store, arguments.out, arguments.all_runs, arguments.include_flagged)
    print(f"{arguments.out}: {done.rows} rows")
    if done.older:
        print(f"left out: {done.older} older profiles of the same conditions (--all-runs keeps them)")
    if done.without_time:
        print(f"left out: {done.without_time} profiles without a clean minibatch")
    if done.mixed:
        print(f"left out: {done.mixed} profiles of training and inference together, for which a corpus has no task")
    if done.flagged:
        print(f"left out: {done.flagged} {LEFT_OUT}")
    return 0
