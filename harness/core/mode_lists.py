"""Lists of power modes in CSV files: `cpu_cores,cpu_khz,gpu_khz,mem_khz` and whatever columns follow."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from harness.core.errors import InvalidValueError, StoreError
from harness.core.power_modes import PowerMode

COLUMNS = PowerMode._fields


def read_power_modes(path: Path) -> List[Tuple[int, PowerMode]]:
    """Read a list of power modes; a corpus file is one, too.

    Args:
        path: a CSV file with at least the columns of a power mode, in any order.

    Returns:
        Each mode with the number of the line that it stands on; one that stands there several times comes once.

    Raises:
        StoreError: the file cannot be read.
        InvalidValueError: it is no such list, or holds no mode; names file, line, column and value.
    """
    lines: Dict[PowerMode, int] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for line, mode in _read(csv.reader(file, strict=True), path):
                lines.setdefault(mode, line)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name a CSV file of power modes") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path} is no CSV text in UTF-8: {error}") from error
    if not lines:
        raise InvalidValueError(f"{path} holds no power mode")
    return [(line, mode) for mode, line in lines.items()]


def _read(reader: Iterator[List[str]], path: Path) -> Iterator[Tuple[int, PowerMode]]:
    header = [name.strip() for name in next(reader, [])]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InvalidValueError(f"{path} line 1 has no column {', '.join(missing)}", f"needed: {','.join(COLUMNS)}")
    places = [header.index(name) for name in COLUMNS]
    for cells in reader:
        if not cells:
            continue
        where = f"{path} line {reader.line_num}"
        if len(cells) != len(header):
            raise InvalidValueError(f"{where}: {len(cells)} cells, expected {len(header)} as in the header")
        numbers = [_number(cells[place], name, where) for name, place in zip(COLUMNS, places)]
        if numbers[0] == 0:
            raise InvalidValueError(f"{where}: cpu_cores is 0, expected 1 or more")
        yield reader.line_num, PowerMode(*numbers)


def _number(text: str, name: str, where: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidValueError(f"{where}: {name} is {text!r}, expected a whole number, 0 or more")
    return int(text)


def format_power_modes(rows: Iterable[Tuple[PowerMode, Mapping[str, object]]], further: Sequence[str] = ()) -> str:
    """The CSV text of a list of power modes.

    Args:
        rows: modes, each with the values of its further columns.
        further: the names of the columns that follow the four of a mode.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *further])
    writer.writerows([*mode, *(values[name] for name in further)] for mode, values in rows)
    return text.getvalue()
