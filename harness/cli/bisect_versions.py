"""`bisect-versions`: find the package version that made training slower, by measuring in installed environments."""

from __future__ import annotations

import argparse

from harness.cli.options import add_board_threshold, options_of, output_folder
from harness.judge.bisection import MOST_RUNS, bisect_versions
from harness.judge.comparison import DEFAULT_SHARE

FOUND_CODE, NOTHING_CODE = 0, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.description = (
        "Find the package version that made training slower. Install environments with the versions beforehand, with"
        " this suite in each; they are bisected like commits by `git bisect`. Good and bad are measured alternately, as"
        " often as the noise of the device requires, then those in between, against the good one."
    )
    parser.epilog = (
        "exit code: 0 the version was found; 2 bad is not slower than good. Example: jetwatt bisect-versions --good"
        " torch==2.8 --bad torch==2.9.1 --among ~/envs/*/bin/python --device orin-agx -- --workload resnet18-imagenet"
    )
    for name, text in (("good", "fast"), ("bad", "slow")):
        add(
            f"--{name}",
            required=True,
            metavar="PYTHON|NAME==VERSION",
            help=f"the {text} environment: an interpreter, or the version that one of --among has",
        )
    add("--among", nargs="+", default=[], metavar="PYTHON", help="interpreters of the environments in between")
    add("--package", help="the package to bisect (default: that of --good or --bad, or torch)")
    add("--device", default="host", help="the device to measure on, as for pytest benchmarks (default: %(default)s)")
    add_board_threshold(parser, "smaller slowdowns are ignored", DEFAULT_SHARE)
    add(
        "--repetitions",
        type=int,
        metavar="N",
        help=f"runs of each environment (default: as the noise requires, {MOST_RUNS} at most)",
    )
    add("--keep", type=output_folder, metavar="DIR", help="keep the results file of each environment there")
    add("arguments", nargs="*", metavar="ARGUMENT", help="for pytest benchmarks, after --: test files, axes, settings")


def run(arguments: argparse.Namespace) -> int:
    options = options_of(bisect_versions, arguments)
    bisection = bisect_versions(arguments.good, arguments.bad, **options)
    print(bisection)
    return NOTHING_CODE if bisection.first_bad is None else FOUND_CODE
