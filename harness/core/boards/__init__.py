"""The boards: a TOML file each with what is known of it off-board, for planning, for test trees and to tell one by."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from harness.core.boards.parsing import parse_board, variants_of
from harness.core.boards.spec import BoardSpec, ClockLists, CpuCluster, Gpu, Memory, Preset, Rails
from harness.core.errors import HarnessError, InvalidValueError, UnknownNameError
from harness.core.files import read_toml

__all__ = [
    "BOARDS",
    "BoardSpec",
    "ClockLists",
    "CpuCluster",
    "Gpu",
    "Memory",
    "Preset",
    "Rails",
    "find_board",
    "known_boards",
    "known_variants",
    "load_board",
]

BOARDS: Dict[str, Path] = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
"""The spec file of each board, by the board's name in the corpus."""


def known_boards() -> List[str]:
    """The names of all boards."""
    return list(BOARDS)


def known_variants(name: str) -> List[str]:
    """The variants of a board, the default one first.

    Raises:
        UnknownNameError: there is no such board; lists the known ones.
    """
    return variants_of(_content(name))


@functools.lru_cache(maxsize=None)
def load_board(name: str, variant: str = "") -> BoardSpec:
    """What is known of a board.

    Args:
        name: as in the corpus: `orin-agx`.
        variant: which of its modules, `32gb`; empty for the one that the papers' counts of power modes are of.

    Raises:
        UnknownNameError: there is no such board or variant; lists the known ones.
        InvalidValueError: the board's file is wrong; names file, key and value.
    """
    content = _content(name)
    if variant and variant not in variants_of(content):
        raise UnknownNameError(f"variant {variant!r} of {name} is unknown", f"known: {', '.join(variants_of(content))}")
    try:
        return parse_board(name, content, variant)
    except HarnessError as error:
        raise InvalidValueError(f"board file {BOARDS[name]}: {error.what}", error.hint) from error


def find_board(compatible: Sequence[str], model: str = "") -> Optional[BoardSpec]:
    """Which board it is that calls itself so; None where it is none of these.

    The part number decides: one carrier takes several modules, and the device tree's model was seen to name another
    module than the one that is there. Only without a known part number does the model count.

    Args:
        compatible: the strings of `/proc/device-tree/compatible` (`nvidia,p3737-0000+p3701-0005`, ...).
        model: `/proc/device-tree/model`, without its closing NUL.
    """
    here = " ".join(compatible).lower()
    marks = f"{here} {model}".lower()
    modules = [load_board(name, variant) for name in BOARDS for variant in known_variants(name)]
    exact = [
        spec
        for spec in modules
        if any(number in here for number in spec.part_numbers) and all(mark in marks for mark in spec.marks)
    ]
    if exact:
        return max(exact, key=lambda spec: len(spec.marks))
    families = [load_board(name) for name in BOARDS]
    by_prefix = [spec for spec in families if spec.part_number_prefix and spec.part_number_prefix in here]
    by_model = [spec for spec in families if any(part.lower() in model.lower() for part in spec.models)]
    return next(iter([*by_prefix, *by_model]), None)


@functools.lru_cache(maxsize=None)
def _content(name: str) -> Dict[str, Any]:
    if name not in BOARDS:
        raise UnknownNameError(f"board {name!r} is unknown", f"known: {', '.join(BOARDS)}")
    return read_toml(BOARDS[name])
