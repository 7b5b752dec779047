"""`export`: the profiles of a results file as a corpus, or with the sensors as metrics for monitoring."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import add_include_flagged, add_results, output_file
from harness.core.configuration import DEFAULT_RESULTS
from harness.core.corpus import SUFFIXES, pyarrow
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.profiles import flagged_in_words
from harness.core.terminal import counted
from harness.openmetrics import openmetrics
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
    parser.add_argument(
        "--period-ms",
        type=float,
        metavar="MS",
        help="with --out: add the column miss_ratio, the share of minibatches that took longer than this",
    )
    add_include_flagged(parser)
    parser.add_argument(
        "--openmetrics",
        type=output_file,
        metavar="FILE.prom",
        help="also write the newest profile of each case and what the sensors show now, as OpenMetrics' text: "
        "for node_exporter's textfile collector",
    )
    parser.add_argument(
        "--device",
        help="with --openmetrics: the device whose sensors are read (default: the board if this is one, else host)",
    )
    parser.add_argument(
        "--require",
        type=Path,
        metavar="FILE",
        help="with --openmetrics: a requirements file, whose verdicts on the profiles are written too",
    )
    parser.add_argument("--no-sensors", action="store_true", help="with --openmetrics: profiles only")


def run(arguments: argparse.Namespace) -> int:
    tables = (arguments.out, arguments.minibatches, arguments.telemetry)
    if arguments.require is not None and arguments.openmetrics is None:
        raise InvalidValueError("--require was given without --openmetrics", "jetwatt check judges profiles by itself")
    if arguments.period_ms is not None and arguments.out is None:
        raise InvalidValueError("--period-ms was given without --out", "its misses are a column of the corpus")
    if arguments.openmetrics is not None:
        there_are_none = arguments.results == DEFAULT_RESULTS and not arguments.results.exists()
        text = openmetrics(
            None if there_are_none else arguments.results,
            arguments.device,
            sensors=not arguments.no_sensors,
            include_flagged=arguments.include_flagged,
            require=arguments.require,
        )
        write_output(arguments.openmetrics, text.encode("utf-8"))
        count = sum(not line.startswith("#") for line in text.splitlines())
        print(f"{arguments.openmetrics}: {count} values" + (" of sensors, no profiles" if there_are_none else ""))
    elif tables == (None, None, None):
        raise InvalidValueError(
            "there is nothing to write",
            "--out FILE for a corpus, --minibatches FILE for every minibatch, --telemetry FILE for every sample, "
            "--openmetrics FILE for monitoring",
        )
    if tables == (None, None, None):
        return 0
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
                print(f"{path}: {len(raw)} {what} of {counted(raw['profile_id'].nunique(), 'profile')}")
        if arguments.out is None:
            return 0
        done = export(store, arguments.out, arguments.all_runs, arguments.include_flagged, arguments.period_ms)
    print(f"{arguments.out}: {counted(done.rows, 'row')} from {arguments.results}")
    if done.older:
        print(f"left out: {counted(done.older, 'older profile')} of the same conditions (--all-runs keeps them)")
    if done.without_time:
        print(f"left out: {counted(done.without_time, 'profile')} without a clean minibatch")
    if done.mixed:
        print(f"left out: {counted(done.mixed, 'profile')} of training with inference, for which a corpus has no task")
    if done.flagged:
        print(f"left out: {flagged_in_words(done.flagged)}")
    return 0
