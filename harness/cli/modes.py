"""`modes`: counts, samples, orders and writes the power modes of a board, without the board."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Callable, Mapping, Optional, Sequence

from harness.cli.options import output_file, print_or_write
from harness.core.boards import BoardSpec, load_board
from harness.core.errors import InvalidValueError
from harness.core.mode_orders import AS_GIVEN, ORDERS, SAFE, count_switches, order_passes
from harness.core.mode_texts import GRIDS, NamedModes, format_power_modes
from harness.core.power_modes import PowerMode, PowerModeSpace, format_mhz
from harness.core.terminal import format_table

FORMATS = ("names", "csv", "table")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--board", required=True, help="the board: orin-agx, xavier-agx, ...; an unknown one lists all")
    add("--variant", default="", help="its module: 32gb, super, ...; an unknown one lists all")
    which = parser.add_argument_group("which modes (default: all)")
    add_sampling_arguments(which)
    which.add_argument("--presets", action="store_true", help="list the stock nvpmodel modes instead")
    add = parser.add_argument_group("how to write them").add_argument
    add(
        "--order",
        choices=ORDERS,
        default=AS_GIVEN,
        help="safe: in the fewest passes within which neither CPU nor GPU clock rises, with few changes of settings; "
        f"descending: simply from high to low (default: {AS_GIVEN})",
    )
    add("--count", action="store_true", help="print only the number of modes")
    add("--format", choices=FORMATS, default="names", help="default: names")
    add("--out", type=output_file, metavar="FILE", help="write to a file instead")


def add_sampling_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--grid", choices=tuple(GRIDS), help="a part of the space: paper is the PowerTrain paper's grid of 4,368 modes")
    add("--sample", type=int, metavar="N", help="draw N distinct modes uniformly from these")
    add("--seed", type=int, default=0, help="seed of all random choices (default: 0)")
    selections = "`maxn`, `a..n`, a preset, `12c-2201.6-1300.5-3199`, `sample:N`, a FILE.csv"
    add("--power-mode", metavar="TEXT", help=selections)


def run(arguments: argparse.Namespace) -> int:
    spec = load_board(arguments.board, arguments.variant)
    is_drawn = arguments.power_mode is not None or arguments.sample is not None
    if arguments.presets:
        text = str(len(spec.presets)) if arguments.count else format_presets(spec)
    elif arguments.count and not is_drawn:
        text = str(len(_space(spec, arguments.grid)))  # without listing them
    else:
        modes = choose_modes(spec, arguments)
        text = str(len(modes)) if arguments.count else format_modes(spec, modes, arguments.order, arguments.format)
    print_or_write(f"{text}\n", arguments.out)
    if spec.gap:
        print(f"note: {spec.gap}", file=sys.stderr)
    return 0


def _space(spec: BoardSpec, grid: Optional[str]) -> PowerModeSpace:
    space = spec.power_mode_space()
    return GRIDS[grid](space) if grid else space


def choose_modes(spec: BoardSpec, arguments: argparse.Namespace) -> NamedModes:
    """The modes that the options of `add_sampling_arguments` select, each with its name."""
    text, grid, sample = arguments.power_mode, arguments.grid, arguments.sample
    if text is not None:
        if grid is not None or sample is not None:
            raise InvalidValueError(
                "--power-mode was given with --grid or --sample", "write grid:paper or sample:50 alone"
            )
        return spec.power_modes(text, arguments.seed)
    space = _space(spec, grid)
    return [(mode.name, mode) for mode in (space if sample is None else space.sample(sample, arguments.seed))]


def format_modes(spec: BoardSpec, modes: NamedModes, order: str, form: str) -> str:
    """Named modes in an order, as one of `FORMATS`; several passes are noted on standard error, and apart in `safe`."""
    passes = order_passes(modes, order, mode_of=lambda named: named[1])
    is_apart = order == SAFE and form == "names"
    if len(passes) > 1 and order != AS_GIVEN:
        needed = {
            True: "between passes the board must return to its top (a reboot): its clocks can only be lowered",
            False: "clocks of this board can be raised: no reboot between passes",
            None: "it is unknown whether this board needs a reboot between passes: try to raise a clock once",
        }[spec.clocks_only_fall]
        switches = sum(count_switches([mode for _, mode in ordered]) for ordered in passes)
        apart = ", with an empty line between them" if is_apart else ""
        counts = f"{len(passes)} passes{apart}, {switches} changes of a setting within them"
        print(f"note: {counts}; {needed}", file=sys.stderr)
    numbered = [(number, name, mode) for number, ordered in enumerate(passes, start=1) for name, mode in ordered]
    if form == "names":  # an empty line keeps the names readable by xargs and a shell's `for`
        blocks = ["\n".join(name for name, _ in ordered) for ordered in passes]
        return ("\n\n" if is_apart else "\n").join(blocks)
    if form == "csv":
        rows = ((mode, {"pass": number, "name": name}) for number, name, mode in numbered)
        return format_power_modes(rows, ("pass", "name")).rstrip("\n")
    cells = [[str(number), name, str(mode.cpu_cores), *map(format_mhz, mode[1:])] for number, name, mode in numbered]
    return format_table([">pass", "name", ">cores", ">CPU MHz", ">GPU MHz", ">memory MHz"], cells)


def format_presets(spec: BoardSpec) -> str:
    rows = [
        {
            **{name: getattr(preset, name) for name in ("id", "name", *PowerMode._fields)},
            "tpc_mask": preset.tpc_pg_mask,
            "mode": spec.preset_mode(preset).name,
            "default": preset.name == spec.default_preset,
        }
        for preset in spec.presets
    ]
    return format_caps(rows) if rows else f"the stock power modes of {spec.name} are not known off-board"


def format_caps(modes: Sequence[Mapping[str, Any]]) -> str:
    """Modes of nvpmodel as a table, clocks in MHz; a missing cap is None."""

    def cell(value: Optional[int], text: Callable[[int], str] = str) -> str:
        return "-" if value is None else text(value)

    with_mode = ["mode"] if modes and "mode" in modes[0] else []
    rows = [
        [
            str(mode["id"]),
            mode["name"],
            cell(mode["cpu_cores"]),
            *(cell(mode[clock], format_mhz) for clock in PowerMode._fields[1:]),
            cell(mode["tpc_mask"]),
            *(mode[name] for name in with_mode),
            "default" if mode["default"] else "",
        ]
        for mode in modes
    ]
    clocks = (">CPU MHz", ">GPU MHz", ">memory MHz")
    return format_table([">id", "name", ">cores", *clocks, ">TPC mask", *with_mode, ""], rows)
