"""`nvpmodel-conf`: the modes of an nvpmodel conf, or a conf with a mode for any power mode."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

from harness.board import nvpmodel_modes as nvpmodels
from harness.board.nvpmodel_conf import Conf, read_conf
from harness.board.nvpmodel_making import COPIED, make_conf, mode_in_effect, off_board_conf
from harness.cli.modes import format_caps
from harness.cli.options import output_file, print_or_write
from harness.core.boards import load_board
from harness.core.errors import InvalidValueError
from harness.core.mode_texts import only_mode
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, parse_power_mode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--parse", type=Path, metavar="FILE", help="print the modes of a conf")
    what.add_argument("--power-mode", metavar="MODE", help="write a conf with this power mode: 8c-1728-612-3199")
    parser.add_argument("--json", action="store_true", help="with --parse: JSON instead of a table")
    making = parser.add_argument_group("with --power-mode")
    base = making.add_mutually_exclusive_group()
    base.add_argument("--base", type=Path, metavar="FILE", help="add to this conf (default: this board's own)")
    base.add_argument("--board", help="write it off-board from the specification of a board: orin-agx, ...")
    making.add_argument("--variant", default="", help="the board's module: 32gb, super, ...")
    making.add_argument("--name", default="CUSTOM", help="the new mode's name (default: CUSTOM)")
    making.add_argument(
        "--booted-mode",
        metavar="NAME",
        help="the mode to copy masks and caps from (default: the current mode; with a FILE its default)",
    )
    making.add_argument("--alone", action="store_true", help="leave out the other modes")
    making.add_argument("--out", type=output_file, metavar="FILE", help="write to a file instead")
    parser.add_argument("--root", type=Path, default=Path("/"), help="the folder with /etc and /usr")


def run(arguments: argparse.Namespace) -> int:
    if arguments.parse is not None:
        modes = describe_modes(_read(arguments.parse), str(arguments.parse))
        print(json.dumps(modes, indent=2) if arguments.json else format_caps(modes))
        return 0
    conf, booted, mode, origin = (_from_board if arguments.board else _from_file)(arguments)
    _, text = make_conf(conf, booted, mode, origin, arguments.name, arguments.alone)
    print(f"note: {COPIED} {booted}", file=sys.stderr)
    print_or_write(text, arguments.out)
    return 0


def describe_modes(conf: Conf, source: str) -> List[Dict[str, Any]]:
    """The modes of a conf as plain values; None is a clock without a cap."""
    try:
        return [
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
        raise InvalidValueError(f"{source}: {error.what}", error.hint) from error


def _from_board(arguments: argparse.Namespace) -> Tuple[Conf, str, PowerMode, str]:
    spec = load_board(arguments.board, arguments.variant)
    mode = only_mode(arguments.power_mode, spec.power_modes(arguments.power_mode)).mode
    return off_board_conf(spec, mode, arguments.booted_mode)


def _from_file(arguments: argparse.Namespace) -> Tuple[Conf, str, PowerMode, str]:
    if arguments.variant:
        raise InvalidValueError("--variant selects a module of a board", "give --board with it")
    path = arguments.base or arguments.root / "etc/nvpmodel.conf"
    if arguments.base is None and not path.exists():
        raise InvalidValueError(f"there is no {path}", "give --board NAME to make a conf off-board, or --base FILE")
    conf = _read(path)
    booted = arguments.booted_mode or (_default_of(conf, path) if arguments.base else mode_in_effect(arguments.root))
    limits = nvpmodels.to_power_mode(conf, conf.model(booted))
    mode = parse_power_mode(arguments.power_mode, PowerMode(*(value or UNKNOWN_KHZ for value in limits)))
    return conf, booted, mode, f"Made from {path}."


def _default_of(conf: Conf, path: Path) -> str:
    for model in conf.models:
        if model.id == conf.default:
            return model.name
    raise InvalidValueError(f"{path} has no default mode", "name the mode to copy masks from with --booted-mode")


def _read(path: Path) -> Conf:
    parsed = read_conf(path)
    for line, text in parsed.notes:
        print(f"note: {path}{f', line {line}' if line else ''}: {text}", file=sys.stderr)
    return parsed.conf
