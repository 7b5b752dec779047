"""Which Jetson board a root belongs to: device tree, module part number, L4T release, JetPack."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

from harness.core.boards import BoardSpec, find_board
from harness.core.environment import l4t_release

UNKNOWN_BOARD = "jetson"
"""The name of a Tegra board that no spec file describes: it runs with what discovery finds."""

EMULATED = "emulated-"
"""Begins the name of a board that is a tree of files: its figures never look like a board's."""

JETPACKS = {
    "32.1.0": "4.2", "32.2.0": "4.2.1", "32.2.1": "4.2.2", "32.2.3": "4.2.3", "32.3.1": "4.3",
    "32.4.3": "4.4", "32.4.4": "4.4.1", "32.5.0": "4.5", "32.5.1": "4.5.1", "32.6.1": "4.6",
    "32.7.1": "4.6.1", "32.7.2": "4.6.2", "32.7.3": "4.6.3", "32.7.4": "4.6.4", "32.7.5": "4.6.5", "32.7.6": "4.6.6",
    "35.1.0": "5.0.2", "35.2.1": "5.1", "35.3.1": "5.1.1", "35.4.1": "5.1.2", "35.5.0": "5.1.3", "35.6.0": "5.1.4",
    "35.6.1": "5.1.5",
    "36.3.0": "6.0", "36.4.0": "6.1", "36.4.3": "6.2", "36.4.4": "6.2.1",
    "38.2.0": "7.0",
}  # fmt: skip
"""L4T release to the JetPack that brought it (NVIDIA's JetPack archive); no guess for a release that is not here."""

_PART_NUMBER = re.compile(r"p\d{4}-\d{4}")


class Board(NamedTuple):
    """A board as it calls itself.

    Attributes:
        compatible: of the device tree: `nvidia,p3737-0000+p3701-0005`, ..., `nvidia,tegra234`.
        model: of the device tree; empty where it has none.
        l4t: the release of Jetson Linux, `36.4.3`; None where it is not told.
        spec: what is known of such boards; None where that is nothing.
    """

    compatible: Tuple[str, ...]
    model: str
    l4t: Optional[str]
    spec: Optional[BoardSpec]

    @property
    def name(self) -> str:
        """The name in the corpus."""
        return self.spec.name if self.spec else UNKNOWN_BOARD

    @property
    def product(self) -> str:
        """In words."""
        return self.spec.product if self.spec else self.model or "Tegra board of unknown make"

    @property
    def part_number(self) -> Optional[str]:
        """Of the module, `p3701-0005`; None where the device tree names none.

        A string of `compatible` is carrier and module, `nvidia,p3737-0000+p3701-0005`, or the module alone.
        """
        found = [_PART_NUMBER.findall(text) for text in self.compatible]
        with_carrier = [numbers[-1] for text, numbers in zip(self.compatible, found) if "+" in text and numbers]
        alone = [numbers[-1] for numbers in found if numbers]
        return next(iter(with_carrier or alone), None)

    @property
    def jetpack(self) -> Optional[str]:
        """The JetPack that brought this release of L4T; None where that is not known."""
        return JETPACKS.get(self.l4t or "")


def read_board(root: Path) -> Optional[Board]:
    """The board under `root`; None where that is no Tegra board."""
    compatible = _strings(root / "proc/device-tree/compatible")
    if not any(text.startswith("nvidia,tegra") for text in compatible):
        return None
    model = next(iter(_strings(root / "proc/device-tree/model")), "")
    return Board(compatible, model, l4t_release(root), find_board(compatible, model))


def _strings(path: Path) -> Tuple[str, ...]:
    """The strings of a device-tree property, each of which ends in NUL."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return ()
    return tuple(part for part in text.rstrip("\n").split("\0") if part)
