"""`corpus simulate`: write profiles of simulated boards in many power modes as a corpus."""

from __future__ import annotations

import argparse

from harness.cli.modes import add_sampling_arguments, choose_modes
from harness.cli.options import output_file, whole_numbers
from harness.core.boards import load_board as load_spec
from harness.core.corpus import SUFFIXES, TASKS, Column, write_corpus
from harness.core.errors import InvalidValueError
from harness.simulation.corpus import simulate_corpus
from harness.simulation.parameters import SIMULATED_BOARDS, SIMULATED_WORKLOADS

FURTHER = (Column("workers", int, "num_workers of the DataLoader"), Column("storage", str, "medium of the data set"))
"""Columns that follow those of the schema."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    simulate = actions.add_parser(
        "simulate", help="profile workloads on a simulated board", description="Profile workloads on a simulated board."
    )
    add = simulate.add_argument
    add("--device", required=True, metavar="BOARD", help=f"one of {', '.join(SIMULATED_BOARDS)}")
    add("--workload", required=True, metavar="LIST", help=f"comma list, or all: {', '.join(SIMULATED_WORKLOADS)}")
    add("--task", choices=TASKS, default=TASKS[0], help="default: %(default)s")
    add("--batch-size", default="16", metavar="LIST", help="comma list (default: %(default)s)")
    add("--workers", type=int, metavar="N", help="default: as in the papers, 4, or 0 for yolov8n-coco")
    add("--storage", default="ssd", help="ssd, sd, hdd or emmc (default: %(default)s)")
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
    named = choose_modes(load_spec(device), arguments)
    workloads = SIMULATED_WORKLOADS if arguments.workload == "all" else arguments.workload.split(",")
    rows = [
        row
        for workload in workloads
        for batch_size in whole_numbers("--batch-size", arguments.batch_size, "8,16,32")
        for row in simulate_corpus(
            device,
            workload.strip(),
            [mode for _, mode in named],
            batch_size=batch_size,
            workers=arguments.workers,
            storage=arguments.storage,
            task=arguments.task,
            seed=arguments.seed,
            noise=not arguments.no_noise,
        )
    ]
    write_corpus(arguments.out, rows, FURTHER)
    print(f"{arguments.out}: {len(rows)} rows, simulated")
    return 0
