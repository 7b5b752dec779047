"""`recommend`: profile a few power modes on a device and recommend one to train with."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Sequence

from harness.cli.fleet import LAB_VARIABLE
from harness.cli.options import comma_separated, output_file, whole_numbers, write_json
from harness.core.corpus import TASKS
from harness.core.errors import InvalidValueError
from harness.core.terminal import Progress
from harness.devices.board_record import root_of
from harness.workloads.command import Command
from predictors.choose.answer import Answer
from predictors.choose.recommend import POOL, recommend
from predictors.choose.request import MEDIAN, ON_DEVICE, Budget, Job, Search
from predictors.cli.options import add_search_arguments, fields_in, numbers
from predictors.goals import OBJECTIVES
from predictors.settings import DEFAULT_BATCH_SIZE
from predictors.strategies.registry import STRATEGIES

PICTURES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit code: 0 a mode meets the goal, on a pool of any board; 2 none does, and the nearest one is named"
    )
    add = parser.add_argument_group("what to train, and where").add_argument
    add("--device", help="a board, sim:orin-agx, replay:CORPUS.csv, host")
    add("--pool", help="instead: boards of a fleet (docs/fleet.md), each mode on the next free board")
    add("--lab", type=Path, default=Path(os.environ.get(LAB_VARIABLE, "lab.toml")), help="lab.toml of that fleet")
    what = parser.add_mutually_exclusive_group(required=True).add_argument
    what("--workload", metavar="W[,W]", help="mobilenetv3-gld23k, ..., or your own, as module:NAME")
    what("--command", dest="program", metavar="TEXT", help="instead: any program, whose wall time is the time")
    add("--minibatch-pattern", metavar="REGEX", help="lines of its output that end a minibatch, as for jetwatt run")
    add("--rehearse-as", metavar="W", help="on a simulated board: the workload whose 40 minibatches stand for it")
    add("--task", choices=TASKS, default=TASKS[0], help="default: %(default)s")
    add(
        "--batch-size",
        default=str(DEFAULT_BATCH_SIZE),
        metavar="N[,N]",
        help="one, or several to choose from (default: 16)",
    )
    add("--workers", type=int, help="num_workers of the DataLoader (default: as in the papers: 4, or 0 for YOLO)")
    add("--storage", help="storage medium of the data set (default: ssd; on boards without one, their own medium)")
    add("--epochs", type=float, help="of the training, for hours and watt-hours saved")
    add = parser.add_argument_group("the goal").add_argument
    add("--goal", choices=tuple(OBJECTIVES), help="default: time; throughput, the time of a sample, for several sizes")
    add(
        "--power-budget",
        dest="power_w",
        metavar="W[,W]",
        help="maximum module power; several share one set of profiles",
    )
    add(
        "--peak-budget", dest="peak_w", type=float, metavar="W",
        help="maximum sample of module power in the chosen mode's profile",
    )  # fmt: skip
    add(
        "--require",
        type=Path,
        metavar="FILE",
        help="requirements, a TOML file: their limits are kept at the least energy, and the mode is judged by them",
    )
    add(
        "--check-time", dest="check_s", type=float, default=30.0, metavar="S",
        help="with --require: maximum time of the run that the mode is judged by (default: 30)",
    )  # fmt: skip
    add("--time-limit", dest="time_ms", type=float, metavar="MS", help="maximum minibatch time")
    add(
        "--percentile",
        type=float,
        default=MEDIAN,
        metavar="P",
        help="percentile of minibatch times, also for limits (default: 50)",
    )
    add(
        "--deadline", dest="deadline_h", type=float, metavar="HOURS",
        help="maximum time of the whole training, in hours; lists the boards that keep it, with mode and risk",
    )  # fmt: skip
    add(
        "--energy-budget",
        dest="energy_wh",
        type=float,
        metavar="WH",
        help="maximum energy of the whole training, in Wh; lists the boards too",
    )
    search = parser.add_argument_group("the search")
    add_search_arguments(search, profiles=15)
    add = search.add_argument
    listed = ", ".join(STRATEGIES)
    add("--strategy", choices=tuple(STRATEGIES), metavar="NAME", help=f"{listed} (default: {ON_DEVICE})")
    add(
        "--risk",
        type=float,
        metavar="P",
        help="choose by prediction, from random profiles, at this probability of breaking a limit",
    )
    add("--unprofiled", action="store_true", help="also choose and show modes outside the profiled settings")
    add("--batch", type=int, help="modes chosen at once, run from high to low (default: 1, or one per board of a pool)")
    add("--corpus", type=Path, metavar="FILE", help="profiles of other workloads to start from")
    add(
        "--reference",
        type=comma_separated,
        default=(),
        metavar="W[,W]",
        help="which of its workloads (default: all but this one)",
    )
    add(
        "--max-temperature",
        dest="max_temperature_c",
        type=float,
        metavar="CELSIUS",
        help="exclude modes in which a sensor exceeds it (default: from the board's trip points)",
    )
    add(
        "--memory-limit",
        dest="memory_limit_mib",
        type=float,
        metavar="MIB",
        help="maximum peak memory; a batch size that needs more, as predicted from smaller ones, is never started",
    )
    add("--resume", action="store_true", help="use profiles of the same conditions from --results")
    add(
        "--device-root",
        dest="root",
        type=Path,
        default=Path("/"),
        help="root of an emulated board: a tree with its /sys, or its record",
    )
    add = parser.add_argument_group("output").add_argument
    add("--json", type=output_file, metavar="OUT", help="write goal, choice, front and failed modes")
    add(
        "--write-conf",
        dest="writes_conf",
        type=output_file,
        metavar="FILE",
        help="write an nvpmodel conf with the mode",
    )
    add("--plot", type=output_file, metavar="FILE", help="plot time and power of all modes (needs matplotlib)")


def run(arguments: argparse.Namespace) -> int:
    _refuse(arguments)
    workloads = [] if arguments.workload is None else arguments.workload.split(",")
    power_w = None if arguments.power_w is None else numbers("--power-budget", arguments.power_w, "20,30")
    if (len(workloads) > 1 or len(power_w or ()) > 1) and (arguments.writes_conf or arguments.plot):
        raise InvalidValueError(
            "--write-conf and --plot take a single mode", "give one --power-budget and one --workload with them"
        )
    if arguments.plot:
        from predictors.plots import pyplot

        pyplot()  # a missing matplotlib is said before any mode is profiled
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a closed pipe must not end this before the device is restored
    root = root_of(arguments.root)
    answer = recommend(
        arguments.device or f"{POOL}{arguments.pool}@{arguments.lab}",
        workload=_job(arguments, workloads),
        goal=arguments.goal,
        budget=fields_in(Budget, arguments, power_w=power_w),
        search=fields_in(Search, arguments, root=root),
        writes_conf=arguments.writes_conf is not None,
        progress=Progress(sys.stderr, show=print),
    )
    if arguments.json:
        write_json(arguments.json, answer.plain())
    if arguments.plot:
        answer.plot(arguments.plot)
        print(f"wrote {arguments.plot}")
    if arguments.writes_conf:
        _write_conf(arguments.writes_conf, root, answer)
    answer.refuse_missed()
    return 0


def _job(arguments: argparse.Namespace, workloads: Sequence[str]) -> Job:
    if arguments.program is None:
        if arguments.minibatch_pattern is not None or arguments.rehearse_as is not None:
            raise InvalidValueError("--minibatch-pattern and --rehearse-as are of a program", "give it with --command")
        sizes = whole_numbers("--batch-size", arguments.batch_size, "8,16,32")
        return fields_in(Job, arguments, workload=workloads, batch_size=sizes)
    command = Command(
        arguments.program, minibatch_pattern=arguments.minibatch_pattern, rehearse_as=arguments.rehearse_as
    )
    if arguments.batch_size != str(DEFAULT_BATCH_SIZE):
        raise InvalidValueError(f"--batch-size is {arguments.batch_size}", "write it into the --command")
    return fields_in(Job, arguments, workload=command, batch_size=DEFAULT_BATCH_SIZE)


def _refuse(arguments: argparse.Namespace) -> None:
    """Refuse two places to search, or none, and a picture that cannot be drawn."""
    if (arguments.device is None) == (arguments.pool is None):
        raise InvalidValueError("the search needs either --device or --pool", "give one of the two")
    if arguments.plot and arguments.plot.suffix.lower() not in PICTURES:
        raise InvalidValueError(f"--plot is {arguments.plot}", f"a picture ends in {', '.join(PICTURES)}")


def _write_conf(path: Path, root: Path, answer: Answer) -> None:
    """Write an nvpmodel conf with the mode: from the board's own conf on the board, else from the board's data."""
    name = "JETWATT"
    number, on_board = answer.write_conf(path, root, name)
    print(f"wrote {path}: the mode is number {number}, {name}")
    print(f"  install, on the board:  sudo nvpmodel -f {path} -m {number}")
    print("  undo:                   sudo nvpmodel -f /etc/nvpmodel.conf -m NUMBER, as shown by `nvpmodel -q` before")
    if not on_board:
        board_command = f"jetwatt nvpmodel-conf --power-mode {answer.power_mode.name} --name {name} --out FILE"
        print(f"  better: make it on the board, from its own conf: {board_command}")
