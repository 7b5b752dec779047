"""The forms of `--power-mode`, and lists of power modes in CSV files."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.files import read_csv
from harness.core.power_modes import NamedMode, PowerMode, PowerModeSpace, parse_power_mode
from harness.core.terminal import available_hint

COLUMNS = PowerMode._fields


def read_power_modes(path: Path) -> List[Tuple[int, PowerMode]]:
    """The modes in a CSV file or a corpus; each once, with the number of its first line."""
    header, rows = read_csv(path)
    header = [name.strip() for name in header]
    missing = ", ".join(name for name in COLUMNS if name not in header)
    if missing:
        raise InvalidValueError(f"{path} line 1 has no column {missing}", f"needed: {','.join(COLUMNS)}")
    lines: Dict[PowerMode, int] = {}
    for line, cells in rows:
        lines.setdefault(_mode(header, cells, f"{path} line {line}"), line)
    if not lines:
        raise InvalidValueError(f"{path} holds no power mode")
    return [(line, mode) for mode, line in lines.items()]


def _mode(header: Sequence[str], cells: Sequence[str], where: str) -> PowerMode:
    if len(cells) != len(header):
        raise InvalidValueError(f"{where}: {len(cells)} cells, expected {len(header)} as in the header")
    texts = {name: text.strip() for name, text in zip(header, cells)}
    for name in COLUMNS:
        if not texts[name].isdecimal():
            raise InvalidValueError(f"{where}: {name} is {texts[name]!r}, expected a whole number, 0 or more")
    mode = PowerMode(*(int(texts[name]) for name in COLUMNS))
    if mode.cpu_cores == 0:
        raise InvalidValueError(f"{where}: cpu_cores is 0, expected 1 or more")
    return mode


def format_power_modes(rows: Iterable[Tuple[PowerMode, Mapping[str, object]]], further: Sequence[str] = ()) -> str:
    """A list of power modes as CSV text; `further` names the columns after the four of a mode."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *further])
    writer.writerows([*mode, *(values[name] for name in further)] for mode, values in rows)
    return text.getvalue()


MAXN = "maxn"  # the name of the mode with the greatest value of every dimension, on every device
DEFAULT = "default"  # what the papers take as the mode of a board where they name none
ALL = "all"
GRIDS: Dict[str, Callable[[PowerModeSpace], PowerModeSpace]] = {"paper": PowerModeSpace.paper_grid}  # parts by name

NamedModes = List[Tuple[str, PowerMode]]

_RANGE = re.compile(r"(\w)\.\.(\w)")
_BEGINS_AS_A_MODE = re.compile(r"\d+c(-|$)")


def parse_power_modes(
    text: str,
    space: PowerModeSpace,
    named: Mapping[str, PowerMode],
    allowed: Optional[PowerModeSpace] = None,
    seed: int = 0,
) -> NamedModes:
    """The modes of a `--power-mode` text, each with its name in a case's id: its own, or that of its values.

    - `maxn`: the greatest value of every dimension;
    - `default`: the papers' mode of this board, `maxn` where it is that or they had none;
    - a name in `named`, in upper or lower case; `a..n` for all names of one letter from `a` to `n`;
    - `12c-2201.6-1300.5-3199` (clocks in MHz, `x` for the greatest), or `12c`, a core count at the greatest clocks;
    - `sample:50`: as many drawn uniformly, with `seed`;
    - `grid:paper`: a grid by its name;
    - `all`: every mode of the space;
    - `FILE.csv`: a list of modes, or a corpus.

    `allowed` is the space for modes given in full or in a file, by default `space`.
    """
    kind, _, rest = text.partition(":")
    allowed = allowed or space
    if kind == "sample":
        if not rest.isdecimal():
            raise InvalidValueError(f"power mode {text!r}: a sample needs a count", "write it like sample:50")
        return _by_values(space.sample(int(rest), seed))
    if kind == "grid":
        if rest not in GRIDS:
            raise UnknownNameError(f"grid {rest!r} is unknown", available_hint(rest, GRIDS))
        return _by_values(GRIDS[rest](space))
    if text == ALL:
        return _by_values(space)
    if text == DEFAULT:
        mode = named.get(DEFAULT, space.greatest)
        return [(MAXN, mode)] if mode == space.greatest else _by_values([mode])
    if text.lower().endswith(".csv"):
        modes = read_power_modes(Path(text))
        for line, mode in modes:
            if mode not in allowed:
                wrong = f"{text} line {line}: power mode {mode.name} is not allowed here"
                raise InvalidValueError(wrong, f"the nearest is {allowed.nearest(mode).name}")
        return _by_values(mode for _, mode in modes)
    if _BEGINS_AS_A_MODE.match(text):
        mode = parse_power_mode(text, space.greatest)
        try:
            allowed.check(mode)
        except InvalidValueError as error:
            nearest = f"the nearest is {allowed.nearest(mode).name}"
            raise InvalidValueError(error.what, f"{error.hint}; {nearest}") from error
        return [(text, mode)]
    # nvpmodel's own MAXN is the same mode: one name, so that a case has one id.
    others = {name: mode for name, mode in named.items() if name.lower() not in (MAXN, DEFAULT)}
    return _by_name(text, {MAXN: space.greatest, **others})


def only_mode(text: str, modes: NamedModes) -> NamedMode:
    """The mode that a text names; InvalidValueError if these, the modes of that text, are several."""
    if len(modes) != 1:
        raise InvalidValueError(f"power mode {text!r} means {len(modes)} modes", "name one mode")
    return NamedMode(*modes[0])


def _by_values(modes: Iterable[PowerMode]) -> NamedModes:
    return [(mode.name, mode) for mode in modes]


def _by_name(text: str, named: Mapping[str, PowerMode]) -> NamedModes:
    ends = _RANGE.fullmatch(text.lower())
    names = [name for name in named if name.lower() == text.lower()][-1:]
    if not names and ends:
        names = sorted(name for name in named if len(name) == 1 and ends[1] <= name.lower() <= ends[2])
    if not names:
        raise UnknownNameError(
            f"power mode {text!r} is unknown",
            f"{available_hint(text, named)}; "
            f"or {DEFAULT}, CORESc-CPU-GPU-MEM in MHz, sample:COUNT, grid:{'|'.join(GRIDS)}, {ALL}, FILE.csv",
        )
    return [(name, named[name]) for name in names]
