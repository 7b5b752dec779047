"""Makes an nvpmodel conf with a mode for a power mode, from a board's own conf or from the board's specification."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from harness.board import nvpmodel_modes as nvpmodels
from harness.board.nvpmodel import Nvpmodel
from harness.board.nvpmodel_conf import Conf, read_conf, write
from harness.core.boards import BoardSpec, load_board
from harness.core.errors import InvalidValueError
from harness.core.mode_texts import only_mode
from harness.core.notes import note
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, parse_power_mode
from harness.devices.jetson_board import foreign_conf, read_board

COPIED = "power-gating masks and the limits of other engines are copied from"


def make_conf(conf: Conf, booted: str, mode: PowerMode, origin: str, name: str, alone: bool = False) -> Tuple[int, str]:
    """A conf with a mode for a power mode, as text, and the mode's number."""
    extended = nvpmodels.custom_conf(conf, booted, mode, name, alone=alone)
    return extended.model(name).id, write(extended, f"{name}: power mode {mode.name}, {COPIED} {booted}.\n{origin}")


def off_board_conf(spec: BoardSpec, mode: PowerMode, booted: str = "") -> Tuple[Conf, str, PowerMode, str]:
    """The inputs of `make_conf` from the specification of a board, without the board."""
    conf = nvpmodels.stock_conf(spec)
    booted = booted or spec.papers_mode or spec.default_preset or conf.models[0].name
    return conf, booted, mode, f"Made off-board, for {spec.product} ({spec.variant}): {nvpmodels.STOCK_GAPS}."


class MadeConf(NamedTuple):
    """An nvpmodel conf with a mode for a power mode; printed, it is the conf's text."""

    text: str  # of the conf
    number: int  # of the mode, as `nvpmodel -m` takes it
    notes: Tuple[str, ...]  # on the conf that was read, and whose masks and other caps the mode has

    def __repr__(self) -> str:
        return self.text


def nvpmodel_conf(
    board: Optional[str],
    power_mode: str,
    *,
    variant: str = "",
    base: Union[str, Path, None] = None,
    name: str = "CUSTOM",
    booted_mode: str = "",
    alone: bool = False,
    root: Union[str, Path] = "/",
) -> MadeConf:
    """An nvpmodel conf with a mode for a power mode, as `jetwatt nvpmodel-conf` makes it.

    Args:
        board: write it off-board, from the specification of a board: `orin-agx`, ... None adds to a conf.
        power_mode: as for `jetwatt modes --power-mode`; clocks in MHz: `8c-1728-612-3199`.
        variant: the board's module: `32gb`, `super`, ...
        base: the conf to add to; None for this board's own.
        name: of the mode in the conf.
        booted_mode: the mode to copy masks and caps from; empty for the current one, with `base` its default, and with
            `board` the papers' or the default one.
        alone: leave out the other modes.
        root: the folder with the board's /etc and /usr.

    Raises:
        HarnessError: a name is unknown, `power_mode` means several modes, the board does not allow it, or there is no
            conf.
    """
    if board is not None:
        spec = load_board(board, variant)
        mode = only_mode(power_mode, spec.power_modes(power_mode)).mode
        given = off_board_conf(spec, mode, booted_mode)
        notes: List[str] = []
    else:
        if variant:
            raise InvalidValueError("variant= selects a module of a board", "give board= with it")
        path = Path(root) / "etc/nvpmodel.conf" if base is None else Path(base)
        if base is None and not path.exists():
            raise InvalidValueError(f"there is no {path}", "give board= to make a conf off-board, or base=")
        conf, notes = _conf_and_notes(path)
        if base is None:
            _refuse_foreign(Path(root), conf)
        booted = booted_mode or (mode_in_effect(Path(root)) if base is None else _default_of(conf, path))
        limits = nvpmodels.to_power_mode(conf, conf.model(booted))
        mode = parse_power_mode(power_mode, PowerMode(*(value or UNKNOWN_KHZ for value in limits)))
        given = conf, booted, mode, f"Made from {path}."
    number, text = make_conf(*given, name, alone)
    notes.append(f"{COPIED} {given[1]}")
    for remark in notes:
        note(remark)
    return MadeConf(text, number, tuple(notes))


def _refuse_foreign(root: Path, conf: Conf) -> None:
    """InvalidValueError if the conf below `root` is that of another board than the one below it."""
    board = read_board(root)
    why = "" if board is None else foreign_conf(root, board, conf)
    if why:
        link = f"link {root / 'etc/nvpmodel.conf'} to this board's own file in /etc/nvpmodel"
        raise InvalidValueError(why, f"{link}, or give board= to make a conf off-board")


def _conf_and_notes(path: Path) -> Tuple[Conf, List[str]]:
    """A conf, and a note on each line that was not read."""
    parsed = read_conf(path)
    return parsed.conf, [f"{path}{f', line {line}' if line else ''}: {text}" for line, text in parsed.notes]


def _default_of(conf: Conf, path: Path) -> str:
    for model in conf.models:
        if model.id == conf.default:
            return model.name
    raise InvalidValueError(f"{path} has no default mode", "name the mode to copy masks from with booted_mode=")


class ConfModes(NamedTuple):
    """The modes of an nvpmodel conf."""

    modes: List[Dict[str, Any]]  # what `--json` prints of each
    notes: Tuple[str, ...]  # on lines that were not read


def nvpmodel_modes(file: Union[str, Path]) -> ConfModes:
    """The modes of an nvpmodel conf, as `jetwatt nvpmodel-conf --parse FILE --json` prints them.

    Returns:
        For each mode its `id`, `name`, the fields of its power mode (clocks in kHz, None without a cap), `tpc_mask`,
        whether it is the `default`, `online_cores` and `masks`.

    Raises:
        HarnessError: the file cannot be read, or is not a conf.
    """
    conf, notes = _conf_and_notes(Path(file))
    try:
        modes = [
            {
                "id": model.id,
                "name": model.name,
                **nvpmodels.to_power_mode(conf, model)._asdict(),
                "tpc_mask": nvpmodels.tpc_mask(model),
                "default": model.id == conf.default,
                "online_cores": nvpmodels.online_cores(conf, model),
                "masks": nvpmodels.masks(model),
            }
            for model in conf.models
        ]
    except InvalidValueError as error:
        raise InvalidValueError(f"{file}: {error.what}", error.hint) from error
    for remark in notes:
        note(remark)
    return ConfModes(modes, tuple(notes))


def on_board_conf(root: Path, mode: PowerMode) -> Tuple[Conf, str, PowerMode, str]:
    """The inputs of `make_conf` from the conf of the board below `root`, with masks and caps of its current mode."""
    knob = Nvpmodel(str(root))
    _refuse_foreign(root, knob.read_conf())
    conf = knob.own_conf()
    return conf, mode_in_effect(root), mode, f"Made from {root / 'etc/nvpmodel.conf'}."


def mode_in_effect(root: Path) -> str:
    """The name of the board's current mode, which must be one of its own conf."""
    knob = Nvpmodel(str(root))
    mode_name = knob.read()["mode"]
    if any(model.name == mode_name for model in knob.own_conf().models):
        return mode_name
    raise InvalidValueError(
        f"the current mode, {mode_name}, was made by a run", "name the mode the board booted with by booted_mode="
    )
