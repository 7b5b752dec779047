"""`corpus simulate`: write profiles of simulated boards in many power modes as a corpus."""

from __future__ import annotations

import argparse

from harness.cli.modes import add_sampling_arguments, choose_modes
from harness.cli.options import comma_separated, options_of, output_file, whole_numbers
from harness.core.boards import load_board
from harness.core.corpus import SUFFIXES, TASKS
from harness.core.errors import InvalidValueError
from harness.core.terminal import counted
from harness.simulation.corpus import ALL, simulate_corpus
from harness.simulation.parameters import SIMULATED_BOARDS, SIMULATED_WORKLOADS, board_and_instance


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    simulate = actions.add_parser(
        "simulate", help="profile workloads on a simulated board", description="Profile workloads on a simulated board."
    )
    add = simulate.add_argument
    add("--device", required=True, metavar="BOARD", help=f"one of {', '.join(SIMULATED_BOARDS)}")
    add(
        "--workload",
        type=comma_separated,
        required=True,
        metavar="LIST",
        help=f"comma list, or all: {', '.join(SIMULATED_WORKLOADS)}",
    )
    add("--task", choices=TASKS, default=TASKS[0], help="default: %(default)s")
    add("--batch-size", default="16", metavar="LIST", help="comma list (default: %(default)s)")
    add("--workers", type=int, metavar="N", help="default: as in the papers, 4, or 0 for yolov8n-coco")
    add("--storage", help="`ssd`, `sd`, `hdd` or `emmc` (default: ssd; on boards without one, their own medium)")
    add("--power-limit", metavar="LIST", help="of a discrete GPU, in W: comma list, or all (default: the greatest)")
    which = simulate.add_argument_group("which modes (default: all)")
    which.add_argument("--all", action="store_true", help="all modes of the board; this is the default")
    add_sampling_arguments(which)
    add("--no-noise", action="store_true", help="without measurement noise")
    add("--out", type=output_file, required=True, metavar="FILE", help=f"{' or '.join(SUFFIXES)}")


def run(arguments: argparse.Namespace) -> int:
    is_prefixed = arguments.device.startswith("sim:")  # as a simulated device is named elsewhere
    device = arguments.device[len("sim:") :] if is_prefixed else arguments.device
    if arguments.all and (arguments.grid or arguments.sample or arguments.power_mode):
        raise InvalidValueError("--all was given with --grid, --sample or --power-mode", "give one of them")
    named = choose_modes(load_board(board_and_instance(device)[0]), arguments)
    options = options_of(simulate_corpus, arguments)
    options["batch_size"] = whole_numbers("--batch-size", arguments.batch_size, "8,16,32")
    if arguments.power_limit not in (None, ALL):
        options["power_limit"] = whole_numbers("--power-limit", arguments.power_limit, "100,150")
    options["seed"] = None if arguments.no_noise else arguments.seed
    rows = simulate_corpus(
        device,
        arguments.workload,
        [mode for _, mode in named],
        **options,
    )
    print(f"{arguments.out}: {counted(len(rows), 'row')}, simulated")
    return 0
