"""`import`: tables of any origin into one corpus; assumptions are printed, bad rows are listed and refused."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Dict

from harness.cli.options import add_include_flagged, output_file
from harness.core.corpus import SUFFIXES, TASKS
from harness.core.errors import InvalidValueError
from harness.core.profiles import flagged_in_words
from harness.core.terminal import counted
from harness.store.foreign_tables import DECIMALS, TableOptions, explicit_options
from harness.store.recorded_log import FORM
from harness.table_import import SOURCE_SUFFIXES, BadRowsError, RecordedLog, import_tables, write_imported

OF_A_LOG = ("device", "workload", "power_mode", "batch_size")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write one corpus from tables of measured power modes, results files, or tegrastats logs with minibatch times."
        " Columns and units of a table are recognised by name and by size, what was assumed is printed with the options"
        " that state it, and what can be read in two ways is refused. Rows with NaN, with a time or power of 0 or less,"
        " with clocks that the named board does not have, with units wrong by a factor of 1,000, and duplicate cases"
        " are reported with their lines, and nothing is written."
    )
    suffixes = ", ".join(SOURCE_SUFFIXES)
    parser.add_argument(
        "sources", type=Path, nargs="*", metavar="SOURCE",
        help=f"tables, results files ({suffixes}), or a folder of tegrastats logs with the power mode in their names",
    )  # fmt: skip
    parser.add_argument("--out", type=output_file, required=True, help=f"the corpus to write, {' or '.join(SUFFIXES)}")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad rows out, and count them")
    add_include_flagged(parser)
    table = parser.add_argument_group("what is not recognised, or wrongly; each may be repeated")
    table.add_argument(
        "--rename", action="append", default=[], metavar="NAME=COLUMN",
        help="a column of the table is this column of a corpus: 'Time (s)=minibatch_time_ms'",
    )  # fmt: skip
    table.add_argument(
        "--unit",
        action="append",
        default=[],
        metavar="NAME=UNIT",
        help="the unit of a column, such as cpu=MHz",
    )
    table.add_argument(
        "--set", action="append", default=[], metavar="COLUMN=VALUE", dest="values",
        help="the same value in all rows, for a column that the table lacks: batch_size=16",
    )  # fmt: skip
    table.add_argument("--decimal", choices=DECIMALS, default="", help="what separates the decimals of its numbers")
    log = parser.add_argument_group("one profile from a recorded tegrastats log")
    log.add_argument("--tegrastats", type=Path, metavar="LOG", help="the output of tegrastats")
    log.add_argument("--minibatch-times", type=Path, metavar="FILE.csv", help=f"the minibatches' times: {FORM}")
    log.add_argument("--interval", type=float, metavar="SECONDS", help="of tegrastats, if its log has no dates")
    log.add_argument("--device", help="the measured board: orin-agx, ...")
    log.add_argument("--workload", help="the trained workload: resnet18-imagenet, ...")
    log.add_argument("--power-mode", metavar="MODE", help="12c-2201.6-1300.5-3199, or a preset of the board")
    log.add_argument("--batch-size", type=int, metavar="N", help="samples per minibatch")
    log.add_argument("--task", choices=TASKS, help=f"default: {TASKS[0]}")
    log.add_argument("--workers", type=int, metavar="N", help="num_workers, if known")
    log.add_argument("--storage", metavar="NAME", help="medium of the data set, if known")


def run(arguments: argparse.Namespace) -> int:
    has_log = arguments.tegrastats or arguments.minibatch_times
    logs = [_recorded_log(arguments)] if has_log else []
    stated = explicit_options(arguments.rename, arguments.unit, arguments.values, arguments.decimal)
    if not has_log:
        stated = _with_case(arguments, stated)
    try:
        imported = import_tables(
            list(dict.fromkeys(arguments.sources)),
            stated,
            logs=logs,
            interval_s=arguments.interval,
            skip_bad=arguments.skip_bad,
            include_flagged=arguments.include_flagged,
        )
    except BadRowsError as error:
        for line in error.lines:
            print(line, file=sys.stderr)
        raise
    for line in imported.bad_lines:
        print(line, file=sys.stderr)
    write_imported(arguments.out, imported.table)
    print(f"{arguments.out}: {counted(len(imported.table), 'row')}")
    for note in imported.notes:
        print(f"note: {note}")
    _print_explicit(imported.explicit, arguments)
    if imported.bad_rows:
        print(f"left out: {counted(imported.bad_rows, 'bad row')}")
    if imported.flagged:
        print(f"left out: {flagged_in_words(imported.flagged)}")
    return 0


def _print_explicit(explicit: Dict[str, TableOptions], arguments: argparse.Namespace) -> None:
    """The command that states what was assumed, for each table that needed assumptions."""
    out = shlex.quote(str(arguments.out))
    for source, options in explicit.items():
        if options.as_words():
            print("to state this:")
            print(f"  jetwatt import {shlex.quote(source)} --out {out} {options.as_words()}")


def _with_case(arguments: argparse.Namespace, stated: TableOptions) -> TableOptions:
    """`--device`, `--workload` and the like without a log: values for all rows, as `--set` takes them."""
    names = ("device", "workload", "task", "batch_size", "power_mode", "workers", "storage")
    given = {name: str(getattr(arguments, name)) for name in names if getattr(arguments, name) is not None}
    return TableOptions(stated.rename, stated.unit, {**given, **stated.values}, stated.decimal)


def _recorded_log(arguments: argparse.Namespace) -> RecordedLog:
    needed = ("tegrastats", "minibatch_times", *OF_A_LOG)
    missing = [f"--{name.replace('_', '-')}" for name in needed if getattr(arguments, name) is None]
    if missing:
        raise InvalidValueError(f"a profile from a log also needs {', '.join(missing)}")
    if arguments.batch_size < 1:
        raise InvalidValueError(f"--batch-size is {arguments.batch_size}, expected 1 or more")
    case = {
        name: getattr(arguments, name) for name in ("device", "workload", "task", "batch_size", "workers", "storage")
    }
    case["task"] = case["task"] or TASKS[0]
    case["power_mode"] = arguments.power_mode
    return RecordedLog(arguments.tegrastats, arguments.minibatch_times, case, arguments.interval)
