"""`modes`: the power modes of a board, counted, drawn, ordered and written, without the board."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from harness.cli.options import print_or_write
from harness.core.boards import BoardSpec, load_board
from harness.core.errors import InvalidValueError
from harness.core.mode_orders import AS_GIVEN, ORDERS, count_switches, order_passes
from harness.core.mode_texts import ALL, GRIDS, NamedModes, format_power_modes
from harness.core.power_modes import PowerMode, PowerModeSpace, format_mhz
from harness.core.terminal import format_table

Passes = List[NamedModes]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--board", required=True, help="which board: orin-agx, xavier-agx, ...; an unknown one lists all"
    )
    parser.add_argument(
        "--variant", default="", help="which of its modules: 32gb, super, ...; an unknown one lists all"
    )
    which = parser.add_argument_group("which modes (default: all)")
    which.add_argument(
        "--grid", choices=tuple(GRIDS), help="a part of the space: paper, as the PowerTrain paper's 4,368"
    )
    which.add_argument("--sample", type=int, metavar="N", help="draw N modes uniformly from these, none twice")
    which.add_argument(
        "--seed", type=int, default=0, help="of the sample: the same seed draws the same modes (default: 0)"
    )
    which.add_argument(
        "--power-mode",
        metavar="TEXT",
        help="maxn, a to n, a preset's name, 12c-2201.6-1300.5-3199, sample:N, a FILE.csv",
    )
    which.add_argument("--presets", action="store_true", help="list the stock nvpmodel modes instead")
    how = parser.add_argument_group("how to write them")
    how.add_argument(
        "--order",
        choices=ORDERS,
        default=AS_GIVEN,
        help="safe: in as few passes as can be, within which neither CPU nor GPU clock rises and few settings change; "
        f"descending: plainly from high to low (default: {AS_GIVEN})",
    )
    how.add_argument("--count", action="store_true", help="print only how many modes there are")
    how.add_argument("--format", choices=tuple(FORMATS), default="names", help="default: names")
    how.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead")


def run(arguments: argparse.Namespace) -> int:
    spec = load_board(arguments.board, arguments.variant)
    if arguments.presets:
        text = str(len(spec.presets)) if arguments.count else format_presets(spec)
    else:
        text = _modes_text(spec, arguments)
    print_or_write(f"{text}\n", arguments.out)
    if spec.gap:
        print(f"note: {spec.gap}", file=sys.stderr)
    return 0


def _modes_text(spec: BoardSpec, arguments: argparse.Namespace) -> str:
    if arguments.count and arguments.power_mode is None and arguments.sample is None:
        return str(len(_space(spec, arguments.grid)))
    modes = choose_modes(spec, arguments.power_mode, arguments.grid, arguments.sample, arguments.seed)
    if arguments.count:
        return str(len(modes))
    passes = order_passes(modes, arguments.order, mode_of=lambda named: named[1])
    if len(passes) > 1 and arguments.order != AS_GIVEN:
        print(_describe_passes(spec, passes), file=sys.stderr)
    return FORMATS[arguments.format](passes)


def _space(spec: BoardSpec, grid: Optional[str]) -> PowerModeSpace:
    space = spec.power_mode_space()
    return GRIDS[grid](space) if grid else space


def choose_modes(
    spec: BoardSpec, text: Optional[str] = None, grid: Optional[str] = None, sample: Optional[int] = None, seed: int = 0
) -> NamedModes:
    """The modes that the options stand for, each with its name.

    `text` is a `--power-mode` value and excludes `grid` and `sample`.
    """
    if text is not None:
        if grid is not None or sample is not None:
            raise InvalidValueError(
                "--power-mode was given with --grid or --sample", "write grid:paper or sample:50 alone"
            )
        return spec.power_modes(text, seed)
    if grid is None and sample is None:
        return spec.power_modes(ALL)
    space = _space(spec, grid)
    return [(mode.name, mode) for mode in (space if sample is None else space.sample(sample, seed))]


def _describe_passes(spec: BoardSpec, passes: Passes) -> str:
    needed = {
        True: "between passes the board has to return to its top (a reboot): its clocks can only be lowered",
        False: "this board was seen to take rising clocks: no reboot between passes",
        None: "whether this board needs a reboot between passes is not known: try to raise a clock once",
    }[spec.clocks_only_fall]
    switches = sum(count_switches([mode for _, mode in one]) for one in passes)
    return f"note: {len(passes)} passes, {switches} changes of a setting within them; {needed}"


def format_presets(spec: BoardSpec) -> str:
    """The stock nvpmodel modes of a board as a table: their caps, and the modes that these come to."""

    def cap(khz: Optional[int]) -> str:
        return "-" if khz is None else format_mhz(khz)

    rows = []
    for preset in spec.presets:
        mask = "-" if preset.tpc_pg_mask is None else str(preset.tpc_pg_mask)
        caps = (cap(preset.cpu_khz), cap(preset.gpu_khz), cap(preset.mem_khz))
        default = "default" if preset.name == spec.default_preset else ""
        rows.append(
            [str(preset.id), preset.name, str(preset.cpu_cores), *caps, mask, spec.preset_mode(preset).name, default]
        )
    if not rows:
        return f"the stock power modes of {spec.name} are not known off-board"
    return format_table([">id", "name", ">cores", ">CPU MHz", ">GPU MHz", ">memory MHz", ">TPC mask", "mode", ""], rows)


def _numbered(passes: Passes) -> Iterator[Tuple[int, str, PowerMode]]:
    for number, modes in enumerate(passes, start=1):
        for name, mode in modes:
            yield number, name, mode


def _as_names(passes: Passes) -> str:
    return "\n".join(name for _, name, _ in _numbered(passes))


def _as_csv(passes: Passes) -> str:
    rows = ((mode, {"pass": number, "name": name}) for number, name, mode in _numbered(passes))
    return format_power_modes(rows, ("pass", "name")).rstrip("\n")


def _as_table(passes: Passes) -> str:
    rows = [
        [str(number), name, str(mode.cpu_cores), *map(format_mhz, mode[1:])] for number, name, mode in _numbered(passes)
    ]
    return format_table([">pass", "name", ">cores", ">CPU MHz", ">GPU MHz", ">memory MHz"], rows)


FORMATS: Dict[str, Callable[[Passes], str]] = {"names": _as_names, "csv": _as_csv, "table": _as_table}
"""How passes of named modes are written."""
