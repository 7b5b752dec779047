"""Makes an nvpmodel conf with a mode for a power mode, from a board's own conf or from the board's specification."""

from __future__ import annotations

from pathlib import Path
from typing import Tuple

from harness.board import nvpmodel_modes as nvpmodels
from harness.board.nvpmodel import Nvpmodel
from harness.board.nvpmodel_conf import Conf, write
from harness.core.boards import BoardSpec, load_board
from harness.core.errors import InvalidValueError
from harness.core.mode_texts import only_mode
from harness.core.power_modes import PowerMode

COPIED = "masks and other caps are those of"


def make_conf(conf: Conf, booted: str, mode: PowerMode, origin: str, name: str, alone: bool = False) -> Tuple[int, str]:
    """A conf with a mode for a power mode, as text, and the mode's number."""
    extended = nvpmodels.custom_conf(conf, booted, mode, name, alone=alone)
    return extended.model(name).id, write(extended, f"{name}: power mode {mode.name}, {COPIED} {booted}.\n{origin}")


def off_board_conf(spec: BoardSpec, mode: PowerMode, booted: str = "") -> Tuple[Conf, str, PowerMode, str]:
    """The inputs of `make_conf` from the specification of a board, without the board."""
    conf = nvpmodels.stock_conf(spec)
    booted = booted or spec.papers_mode or spec.default_preset or conf.models[0].name
    return conf, booted, mode, f"Made off-board, for {spec.product} ({spec.variant}): {nvpmodels.STOCK_GAPS}."


def nvpmodel_conf(
    board: str, power_mode: str, *, variant: str = "", name: str = "CUSTOM", booted_mode: str = "", alone: bool = False
) -> str:
    """An nvpmodel conf with a mode, from a board's specification, as `jetwatt nvpmodel-conf --board` prints it.

    Args:
        board: `orin-agx`, ...
        power_mode: as for `jetwatt modes --power-mode`; clocks in MHz: `8c-1728-612-3199`.
        variant: the board's module: `32gb`, `super`, ...
        name: of the mode in the conf.
        booted_mode: the stock mode to copy masks and caps from; empty for the papers' or the default one.
        alone: leave out the other modes.

    Raises:
        HarnessError: a name is unknown, `power_mode` means several modes, or the board does not allow it.
    """
    spec = load_board(board, variant)
    mode = only_mode(power_mode, spec.power_modes(power_mode)).mode
    return make_conf(*off_board_conf(spec, mode, booted_mode), name, alone)[1]


def on_board_conf(root: Path, mode: PowerMode) -> Tuple[Conf, str, PowerMode, str]:
    """The inputs of `make_conf` from the conf of the board below `root`, with masks and caps of its current mode."""
    conf = Nvpmodel(str(root)).own_conf()
    return conf, mode_in_effect(root), mode, f"Made from {root / 'etc/nvpmodel.conf'}."


def mode_in_effect(root: Path) -> str:
    """The name of the board's current mode, which must be one of its own conf."""
    knob = Nvpmodel(str(root))
    mode_name = knob.read()["mode"]
    if any(model.name == mode_name for model in knob.own_conf().models):
        return mode_name
    raise InvalidValueError(
        f"the current mode, {mode_name}, was made by a run", "name the mode the board booted with by --booted-mode"
    )
