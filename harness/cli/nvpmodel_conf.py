"""`nvpmodel-conf`: the modes of an nvpmodel conf, or a conf with a mode for any power mode."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from harness.cli.modes import format_caps
from harness.cli.options import options_of, output_file, print_or_write
from harness.devices.nvpmodel_making import nvpmodel_conf, nvpmodel_modes


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
        default="",
        metavar="NAME",
        help="the mode to copy masks and caps from (default: the current mode; with a FILE its default)",
    )
    making.add_argument("--alone", action="store_true", help="leave out the other modes")
    making.add_argument("--out", type=output_file, metavar="FILE", help="write to a file instead")
    parser.add_argument("--root", type=Path, default=Path("/"), help="the folder with /etc and /usr")


def run(arguments: argparse.Namespace) -> int:
    if arguments.parse is not None:
        parsed = nvpmodel_modes(arguments.parse)
        text = json.dumps(parsed.modes, indent=2) if arguments.json else format_caps(parsed.modes)
    else:
        options = options_of(nvpmodel_conf, arguments)
        made = nvpmodel_conf(arguments.board, arguments.power_mode, **options)
        text = made.text
    print_or_write(text if text.endswith("\n") else f"{text}\n", arguments.out)
    return 0
