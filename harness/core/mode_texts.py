"""What `--power-mode` may say, a name, a mode in full, a sample, a grid, a file, and the modes that it stands for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.mode_lists import read_power_modes
from harness.core.power_modes import PowerMode, PowerModeSpace, parse_power_mode

MAXN = "maxn"
"""The name of the mode with the greatest value of every dimension, on every device."""

ALL = "all"
GRIDS: Dict[str, Callable[[PowerModeSpace], PowerModeSpace]] = {"paper": PowerModeSpace.paper_grid}
"""Parts of a space that have a name, and what makes them."""

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
    """The modes that a text stands for.

    - `maxn`: the greatest value of every dimension;
    - a name in `named`, in upper or lower case; `a..n` for all names of one letter from `a` to `n`;
    - `12c-2201.6-1300.5-3199` (clocks in MHz, `x` for the greatest), or `12c`, a core count at the greatest clocks;
    - `sample:50`: as many drawn uniformly;
    - `grid:paper`: a grid by its name;
    - `all`: every mode of the space;
    - `FILE.csv`: a list of modes, or a corpus.

    Args:
        text: one of these.
        space: what is enumerated and drawn from.
        named: modes by the names they have on this device.
        allowed: what a mode in full or in a file may be; `space` where that is the same.
        seed: of a sample.

    Returns:
        The modes, each with the name it has in a case's id: its own, or that of its values.

    Raises:
        UnknownNameError: there is no such name; lists what there is.
        InvalidValueError: a mode is not allowed, or a sample or file is none; says what would be.
    """
    kind, _, rest = text.partition(":")
    if kind == "sample":
        return _by_values(space.sample(_count(rest, text), seed))
    if kind == "grid":
        if rest not in GRIDS:
            raise UnknownNameError(f"grid {rest!r} is unknown", f"known: {', '.join(GRIDS)}")
        return _by_values(list(GRIDS[rest](space)))
    if text == ALL:
        return _by_values(list(space))
    if text.lower().endswith(".csv"):
        return _from_file(Path(text), allowed or space)
    if _BEGINS_AS_A_MODE.match(text):
        mode = parse_power_mode(text, space.greatest)
        _check(mode, allowed or space)
        return [(text, mode)]
    # nvpmodel's own MAXN is the same mode: one name, so that a case has one id.
    others = {name: mode for name, mode in named.items() if name.lower() != MAXN}
    return _by_name(text, {MAXN: space.greatest, **others})


def _by_values(modes: List[PowerMode]) -> NamedModes:
    return [(mode.name, mode) for mode in modes]


def _count(text: str, whole: str) -> int:
    if not text.isdecimal():
        raise InvalidValueError(f"power mode {whole!r}: a sample needs a count", "write it like sample:50")
    return int(text)


def _by_name(text: str, named: Mapping[str, PowerMode]) -> NamedModes:
    spelled = {name.lower(): name for name in named}
    ends = _RANGE.fullmatch(text.lower())
    if text.lower() in spelled:
        names = [spelled[text.lower()]]
    elif ends:
        names = sorted(name for name in named if len(name) == 1 and ends.group(1) <= name.lower() <= ends.group(2))
    else:
        names = []
    if not names:
        raise UnknownNameError(
            f"power mode {text!r} is unknown",
            f"known: {', '.join(named)}; "
            f"or CORESc-CPU-GPU-MEM in MHz, sample:COUNT, grid:{'|'.join(GRIDS)}, {ALL}, FILE.csv",
        )
    return [(name, named[name]) for name in names]


def _from_file(path: Path, allowed: PowerModeSpace) -> NamedModes:
    modes = read_power_modes(path)
    for line, mode in modes:
        if mode not in allowed:
            raise InvalidValueError(
                f"{path} line {line}: power mode {mode.name} is not allowed here", _nearest(mode, allowed)
            )
    return _by_values([mode for _, mode in modes])


def _check(mode: PowerMode, allowed: PowerModeSpace) -> None:
    try:
        allowed.check(mode)
    except InvalidValueError as error:
        raise InvalidValueError(error.what, f"{error.way_out}; {_nearest(mode, allowed)}") from error


def _nearest(mode: PowerMode, allowed: PowerModeSpace) -> str:
    return f"the nearest is {allowed.nearest(mode).name}"
