"""`run`: measure a command from outside, as it is, in one power mode or in several."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from pathlib import Path

from harness.cli.options import add_by, add_include_flagged, output_file
from harness.command_runs import CommandRuns, compare_command, run_command, write_command_table
from harness.core.cases import CLOCKS, DISTURBED_CORES, STATIC
from harness.core.configuration import DEFAULT_RESULTS, FILE_NAME, load_configuration
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.mode_texts import MAXN
from harness.core.terminal import counted
from harness.devices.board_record import root_of
from harness.devices.registry import open_device
from harness.judge.compare import format_result, to_plain
from harness.measure.command import CommandFailedError
from harness.workloads.command import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] -- COMMAND ..."
    parser.epilog = (
        "exit code: that of the command if it is not 0, in the first power mode in which it failed, and 128 + N if "
        "signal N ended it; else as of compare with --compare; else 0. 130: interrupted"
    )
    add = parser.add_argument
    add("argv", nargs="+", metavar="COMMAND", help="the command with its arguments, after --")
    add("--name", help="its name in results (default: that of its script, module or program)")
    add("--device", default="host", help="a board, on that board; host; sim:orin-agx to rehearse (default: host)")
    add(
        "--clocks",
        choices=CLOCKS,
        default=STATIC,
        help="static holds the mode's, dvfs lets them fall (default: static)",
    )
    add("--repeat", type=int, default=1, metavar="N", help="runs in each power mode; shows medians with intervals")
    add("--interval", dest="interval_s", type=float, default=1.0, metavar="S", help="between samples (default: 1)")
    add(
        "--disturbance",
        dest="disturbance_cores",
        type=float,
        metavar="CORES",
        help=f"how many cores others may use before a profile is flagged disturbed (default: {DISTURBED_CORES:g})",
    )
    add("--results", type=Path, metavar="FILE", help=f"keep the profiles in a results file, such as {DEFAULT_RESULTS}")
    add("--root", type=Path, default=Path("/"), metavar="TREE", help="an emulated board's /sys, /proc and /etc")
    add(
        "--minibatch-pattern",
        metavar="REGEX",
        help="lines of the output that end a minibatch; a group (?P<ms>...) or (?P<s>...) has its time, else it is the "
        "time since the line before",
    )
    add(
        "--rehearse-as",
        metavar="W",
        help="on a simulated board: the workload whose 40 minibatches stand for the command",
    )
    which = parser.add_argument_group("power modes").add_mutually_exclusive_group()
    which.add_argument("--power-mode", default=MAXN, metavar="TEXT", help="a mode (default: maxn)")
    which.add_argument("--sweep", metavar="FILE", help="each mode of a text file, one a line, or of a .csv; resumes")
    which.add_argument("--sample", type=int, metavar="N", help="N modes drawn from all; resumes")
    add = parser.add_argument_group("what to do with them").add_argument
    add("--table", type=output_file, metavar="FILE", help="of several modes, also a corpus for `fit` (.csv, .parquet)")
    add("--compare", type=Path, metavar="BASELINE", help="compare with a baseline or a results file")
    add_by(parser)
    add_include_flagged(parser)
    add("--json", action="store_true", help="print JSON on standard output, after the command's own")
    add("--write-json", type=output_file, metavar="FILE", help="write the JSON to a file")


def run(arguments: argparse.Namespace) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a closed pipe must not end this before the device is restored
    is_sweep = arguments.sweep is not None or arguments.sample is not None
    if arguments.sample is not None and arguments.sample < 1:
        raise InvalidValueError(f"--sample is {arguments.sample}", "draw 1 mode or more")
    if is_sweep and arguments.results is None:
        raise InvalidValueError(
            "several power modes are kept and resumed in a file", f"give --results {DEFAULT_RESULTS}"
        )
    if arguments.table is not None and not is_sweep:
        raise InvalidValueError("--table is of several power modes", "give --sweep or --sample")
    if arguments.compare is not None and not arguments.compare.is_file():
        raise InvalidValueError(
            f"--compare is {arguments.compare}, which is no file", "name a baseline or results file"
        )
    power_mode = arguments.sweep or (f"sample:{arguments.sample}" if is_sweep else arguments.power_mode)
    command = Command(arguments.argv, arguments.name, arguments.minibatch_pattern, arguments.rehearse_as)
    with contextlib.ExitStack() as stack:
        results = arguments.results
        if results is None:  # --compare reads what was stored
            results = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "results.sqlite"
        try:
            done = run_command(
                command,
                device=open_device(arguments.device, load_configuration(Path(FILE_NAME)), root_of(arguments.root)),
                power_mode=power_mode,
                clocks=arguments.clocks,
                repeat=arguments.repeat,
                resume=is_sweep,
                results=results,
                interval_s=arguments.interval_s,
                disturbance_cores=arguments.disturbance_cores,
                report=_report,
            )
        except CommandFailedError as error:
            print(f"jetwatt run: {error}", file=sys.stderr)
            return error.exit_code
        exit_code = _told(arguments, done, results)
        if arguments.table is not None and done.modes:
            rows = write_command_table(results, done, arguments.table)
            unit = "the command" if arguments.minibatch_pattern is None else "its minibatches"
            left_out = len(done.modes) - rows
            print(
                f"wrote {arguments.table}: {counted(rows, 'power mode')}; its minibatch_time_ms is that of {unit}"
                + (f"; {left_out} disturbed or without minibatches left out" if left_out else ""),
                file=sys.stderr,
            )
        return exit_code


def _report(line: str) -> None:
    """One line before each run, and of a failure; while it runs, the terminal is the command's."""
    if sys.stderr.isatty():
        print(f"jetwatt run: {line}", file=sys.stderr, flush=True)


def _told(arguments: argparse.Namespace, done: CommandRuns, results: Path) -> int:
    """Print what was measured, compare it if that was asked for, and return the exit code."""
    plain = done.plain()
    print(done, file=sys.stderr)
    for mode, _, reason in done.failed:
        print(f"jetwatt run: in {mode.name}, {reason}; the sweep, run again, tries it again", file=sys.stderr)
    exit_code = done.failed[0].exit_code if done.failed else 0
    if arguments.compare is not None and done.modes:
        comparison = compare_command(arguments.compare, results, done, arguments.by, arguments.include_flagged)
        plain["comparison"] = to_plain(comparison)
        print(format_result(comparison), file=sys.stderr)
        exit_code = exit_code or comparison.exit_code
    document = json.dumps(plain, indent=1, allow_nan=False)
    if arguments.json:
        print(document)
    if arguments.write_json is not None:
        write_output(arguments.write_json, f"{document}\n".encode())
    return exit_code
