"""`import`: profiles from elsewhere into a corpus; bad rows are named and refused."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any, Optional, Sequence

import numpy as np

from harness.board.tegrastats import parse_line, parse_log
from harness.cli.options import add_include_flagged, output_file
from harness.core.boards import BOARDS, load_board
from harness.core.corpus import CORPUS_COLUMNS, SUFFIXES, TASKS, Column, Row, described, write_corpus
from harness.core.errors import InvalidValueError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, parse_power_mode
from harness.simulation import model
from harness.simulation.model import Load
from harness.simulation.parameters import SIMULATED_BOARDS, SIMULATED_WORKLOADS, load_workload
from harness.simulation.parameters import load_board as load_parameters
from harness.store.conditions import LEFT_OUT
from harness.store.corpora import STORES, Entry, read_entries
from harness.store.frames import FURTHER
from harness.store.import_checks import Expected, check_entries
from harness.store.recorded_log import FORM, read_text, recorded_row

OF_A_LOG = ("device", "workload", "power_mode", "batch_size")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write one corpus from corpora, results files, or a tegrastats log with minibatch times. Rows with NaN, with a"
        " time or power that is not above 0, with clocks that the named board does not have, with units wrong by a"
        " factor of 1,000, and cases that are there already are reported with their lines, and nothing is written."
    )
    suffixes = ", ".join([*SUFFIXES, *STORES])
    parser.add_argument("sources", type=Path, nargs="*", metavar="SOURCE", help=f"corpora, results files: {suffixes}")
    parser.add_argument("--out", type=output_file, required=True, help=f"the corpus to write, {' or '.join(SUFFIXES)}")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad rows out, and count them")
    add_include_flagged(parser)
    log = parser.add_argument_group("one profile from a recorded tegrastats log")
    log.add_argument("--tegrastats", type=Path, metavar="LOG", help="what tegrastats printed")
    log.add_argument("--minibatch-times", type=Path, metavar="FILE.csv", help=f"the minibatches' times: {FORM}")
    log.add_argument("--interval", type=float, metavar="SECONDS", help="of tegrastats, where its log has no dates")
    log.add_argument("--device", help="what was measured: orin-agx, ...")
    log.add_argument("--workload", help="what it trained: resnet18-imagenet, ...")
    log.add_argument("--power-mode", metavar="MODE", help="12c-2201.6-1300.5-3199, or a named board's preset")
    log.add_argument("--batch-size", type=int, metavar="N", help="samples per minibatch")
    log.add_argument("--task", choices=TASKS, default=TASKS[0], help="default: %(default)s")
    log.add_argument("--workers", type=int, metavar="N", help="num_workers, where it is known")
    log.add_argument("--storage", metavar="NAME", help="medium of the data set, where it is known")


def run(arguments: argparse.Namespace) -> int:
    found = [entry for path in arguments.sources for entry in read_entries(path, arguments.include_flagged)]
    entries = [entry for entry in found if not entry.is_flagged]
    left_out = f"left out: {len(found) - len(entries)} {LEFT_OUT}" if len(entries) < len(found) else ""
    if arguments.tegrastats or arguments.minibatch_times:
        entries.append(_from_log(arguments))
    if not entries:
        why = f": {left_out}" if left_out else ""
        raise InvalidValueError(f"there is nothing to import{why}", "name a SOURCE with rows, or --tegrastats LOG")
    checked = check_entries(entries, _of_model)
    faults = {entry.place: entry.fault for entry in checked if entry.fault}
    for line in described(faults, len(checked)):
        print(line, file=sys.stderr)
    bad = len(faults)
    if bad and not arguments.skip_bad:
        raise InvalidValueError(
            f"{bad} of {len(checked)} rows are bad, nothing was written", "mend them, or --skip-bad leaves them out"
        )
    kept = [entry.row for entry in checked if not entry.fault]
    if not kept:
        raise InvalidValueError("every row is bad, nothing was written", "mend the source")
    known = {column.name: column for column in FURTHER}
    names = dict.fromkeys(name for row in kept for name in row if name not in CORPUS_COLUMNS)
    further = [known.get(name, Column(name, str, "")) for name in names]
    rows = [{**row, **{column.name: _cell(row.get(column.name), column) for column in further}} for row in kept]
    write_corpus(arguments.out, rows, further)
    print(f"{arguments.out}: {len(kept)} rows")
    if bad:
        print(f"left out: {bad} bad rows")
    if left_out:
        print(left_out)
    return 0


def _from_log(arguments: argparse.Namespace) -> Entry:
    """The entry of the log."""
    needed = ("tegrastats", "minibatch_times", *OF_A_LOG)
    missing = [f"--{name.replace('_', '-')}" for name in needed if getattr(arguments, name) is None]
    if missing:
        raise InvalidValueError(f"a profile from a log also needs {', '.join(missing)}")
    if arguments.batch_size < 1:
        raise InvalidValueError(f"--batch-size is {arguments.batch_size}, expected 1 or more")
    case = {
        **{
            name: getattr(arguments, name)
            for name in ("device", "workload", "task", "batch_size", "workers", "storage")
        },
        **_mode(arguments.device, arguments.power_mode)._asdict(),
    }
    log = arguments.tegrastats
    lines = read_text(log).splitlines()
    rails = load_board(arguments.device).rails if arguments.device in BOARDS else None
    total, remark = (rails.total or None, rails.note) if rails else (None, "")
    try:
        telemetry = parse_log(lines, interval_s=arguments.interval, total=total, remark=remark)
    except InvalidValueError as error:
        raise InvalidValueError(f"{log}: {error.what}", error.hint) from error
    began = next((line.at for line in map(parse_line, lines) if not line.is_empty), None)
    return Entry(str(log), recorded_row(case, telemetry, log, arguments.minibatch_times, began))


def _of_model(rows: Sequence[Row]) -> Optional[Expected]:
    """What the physical model says of rows of one device, workload, task and batch size, where it knows both."""
    first = rows[0]
    if first["device"] not in SIMULATED_BOARDS or first["workload"] not in SIMULATED_WORKLOADS:
        return None
    modes = np.array([[row[field] for field in PowerMode._fields] for row in rows])
    if not (modes > UNKNOWN_KHZ).all():
        return None
    board, workload = load_parameters(first["device"]), load_workload(first["workload"])
    load = Load(batch_size=first["batch_size"], workers=workload.default_workers, task=first["task"])
    response = model.simulate(board, workload, modes, load, rough=False)
    return {"minibatch_time_ms": response.minibatch_time_ms, "power_mw": response.power_mw}


def _mode(device: str, text: str) -> PowerMode:
    if device not in BOARDS:
        return parse_power_mode(text, PowerMode(1, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ))
    named = load_board(device).power_modes(text)
    if len(named) != 1:
        raise InvalidValueError(f"--power-mode {text} is {len(named)} modes", "name the one that was measured")
    return named[0][1]


def _cell(value: Any, column: Column) -> Optional[Any]:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        return column.kind(float(value)) if column.kind is int else column.kind(value)
    except ValueError:
        raise InvalidValueError(f"column {column.name} holds {value!r}, expected {column.kind.__name__}") from None
