"""`import`: external profiles into a corpus; bad rows are listed and refused."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional

from harness.board.tegrastats import parse_line, parse_log
from harness.cli.options import add_include_flagged, output_file
from harness.core.boards import board_names, is_board, load_board
from harness.core.corpus import CORPUS_COLUMNS, SUFFIXES, TASKS, Column, Row, described, rows_of, write_corpus
from harness.core.errors import InvalidValueError
from harness.core.metrics import POWER_CHANNEL
from harness.core.mode_texts import only_mode
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, parse_power_mode
from harness.core.terminal import counted
from harness.simulation import model
from harness.simulation.model import Load
from harness.simulation.parameters import (
    SIMULATED_BOARDS,
    SIMULATED_WORKLOADS,
    load_board_parameters,
    load_workload_parameters,
)
from harness.store.conditions import flagged_in_words
from harness.store.corpora import Expected, check_rows, placed, read_rows
from harness.store.frames import FURTHER, STORES
from harness.store.recorded_log import FORM, read_text, recorded_row

if TYPE_CHECKING:
    import pandas as pd

OF_A_LOG = ("device", "workload", "power_mode", "batch_size")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write one corpus from corpora, results files, or a tegrastats log with minibatch times. Rows with NaN, with a"
        " time or power of 0 or less, with clocks that the named board does not have, with units wrong by a factor of"
        " 1,000, and duplicate cases are reported with their lines, and nothing is written."
    )
    suffixes = ", ".join([*SUFFIXES, *STORES])
    parser.add_argument("sources", type=Path, nargs="*", metavar="SOURCE", help=f"corpora, results files: {suffixes}")
    parser.add_argument("--out", type=output_file, required=True, help=f"the corpus to write, {' or '.join(SUFFIXES)}")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad rows out, and count them")
    add_include_flagged(parser)
    log = parser.add_argument_group("one profile from a recorded tegrastats log")
    log.add_argument("--tegrastats", type=Path, metavar="LOG", help="the output of tegrastats")
    log.add_argument("--minibatch-times", type=Path, metavar="FILE.csv", help=f"the minibatches' times: {FORM}")
    log.add_argument("--interval", type=float, metavar="SECONDS", help="of tegrastats, if its log has no dates")
    log.add_argument("--device", help="the measured board: orin-agx, ...")
    log.add_argument("--workload", help="the trained workload: resnet18-imagenet, ...")
    log.add_argument("--power-mode", metavar="MODE", help="12c-2201.6-1300.5-3199, or a preset of the board")
    log.add_argument("--batch-size", type=int, metavar="N", help="samples per minibatch")
    log.add_argument("--task", choices=TASKS, default=TASKS[0], help="default: %(default)s")
    log.add_argument("--workers", type=int, metavar="N", help="num_workers, if known")
    log.add_argument("--storage", metavar="NAME", help="medium of the data set, if known")


def run(arguments: argparse.Namespace) -> int:
    import pandas as pd

    sources = [read_rows(path, arguments.include_flagged) for path in dict.fromkeys(arguments.sources)]
    if arguments.tegrastats or arguments.minibatch_times:
        sources.append(placed([_from_log(arguments)], [str(arguments.tegrastats)]))
    flagged = sum(source.flagged for source in sources)
    left_out = f"left out: {flagged_in_words(flagged)}" if flagged else ""
    table = pd.concat([source.table for source in sources]) if sources else pd.DataFrame()
    if table.empty:
        why = f": {left_out}" if left_out else ""
        raise InvalidValueError(f"there is nothing to import{why}", "name a SOURCE with rows, or --tegrastats LOG")
    known_faults = {place: fault for source in sources for place, fault in source.faults.items()}
    faults = check_rows(table, known_faults, _of_model)
    for line in described(faults, len(table)):
        print(line, file=sys.stderr)
    kept = rows_of(table.drop(list(faults)))
    if not kept:
        raise InvalidValueError("every row is bad, nothing was written", "fix the source")
    if faults and not arguments.skip_bad:
        raise InvalidValueError(
            f"bad rows: {len(faults)} of {len(table)}; nothing was written",
            "fix them, or leave them out with --skip-bad",
        )
    named_columns = {column.name: column for column in FURTHER}
    further = [named_columns.get(name, Column(name, str, "")) for name in table.columns if name not in CORPUS_COLUMNS]
    rows = [{**row, **{column.name: _cell(row[column.name], column) for column in further}} for row in kept]
    write_corpus(arguments.out, rows, further)
    print(f"{arguments.out}: {counted(len(kept), 'row')}")
    for device in sorted({str(row["device"]) for row in kept}):
        meant = "" if is_board(device) else _board_meant(device)
        if meant:
            print(f"note: no board is named {device!r}; if you mean {meant}, use that name")
    if faults:
        print(f"left out: {counted(len(faults), 'bad row')}")
    if left_out:
        print(left_out)
    return 0


def _board_meant(device: str) -> str:
    """The board that has the words of a name, in any order: `Jetson AGX Orin` is orin-agx; empty if there is none."""
    words = set(re.findall(r"[a-z0-9]+", device.lower())) - {"jetson", "nvidia"}
    return next((board for board in board_names() if set(board.split("-")) == words), "")


def _from_log(arguments: argparse.Namespace) -> Row:
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
    of_board: Dict[str, Any] = {}
    if is_board(arguments.device):
        board = load_board(arguments.device)
        of_board = {"total": board.rails.total or None, "remark": board.rails.note, "most_mw": board.most_mw}
    try:
        telemetry = parse_log(lines, interval_s=arguments.interval, **of_board)
    except InvalidValueError as error:
        raise InvalidValueError(f"{log}: {error.what}", error.hint) from error
    if POWER_CHANNEL in telemetry.series and POWER_CHANNEL in telemetry.missing:
        print(f"note: {log}: left out of {POWER_CHANNEL}: {telemetry.missing[POWER_CHANNEL]}", file=sys.stderr)
    began = next((line.at for line in map(parse_line, lines) if not line.is_empty), None)
    return recorded_row(case, telemetry, log, arguments.minibatch_times, began)


def _of_model(rows: pd.DataFrame) -> Optional[Expected]:
    """Figures of the physical model for rows of one device, workload, task and batch size; None if it has not both."""
    first = rows.iloc[0]
    if first["device"] not in SIMULATED_BOARDS or first["workload"] not in SIMULATED_WORKLOADS:
        return None
    modes = rows[list(PowerMode._fields)].to_numpy(int)
    if not (modes > UNKNOWN_KHZ).all():
        return None
    board, workload = load_board_parameters(first["device"]), load_workload_parameters(first["workload"])
    load = Load(batch_size=int(first["batch_size"]), workers=workload.default_workers, task=first["task"])
    response = model.simulate(board, workload, modes, load, rough=False)
    return {"minibatch_time_ms": response.minibatch_time_ms, "power_mw": response.power_mw}


def _mode(device: str, text: str) -> PowerMode:
    if not is_board(device):
        return parse_power_mode(text, PowerMode(1, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ))
    return only_mode(text, load_board(device).power_modes(text)).mode


def _cell(value: Any, column: Column) -> Optional[Any]:
    if value is None or value == "":
        return None
    try:
        return column.kind(float(value)) if column.kind is int else column.kind(value)
    except ValueError:
        raise InvalidValueError(f"column {column.name} holds {value!r}, expected {column.kind.__name__}") from None
