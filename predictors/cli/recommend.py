"""`recommend`: profile a few power modes on a device and name the one to train with."""

from __future__ import annotations

import argparse
import functools
import math
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Optional, Tuple

from harness.cli.nvpmodel_conf import off_board_conf, on_board_conf
from harness.cli.options import write_json
from harness.core.boards import BOARDS, load_board
from harness.core.cases import DEFAULT_MINIBATCHES, Case, Settings
from harness.core.configuration import DEFAULT_RESULTS, FILE_NAME, load_configuration
from harness.core.device import Device
from harness.core.environment import describe_environment
from harness.core.errors import CannotRunError, HarnessError, InvalidValueError
from harness.core.files import write_output
from harness.core.power_modes import PowerMode
from harness.core.terminal import Countdown, Progress
from harness.core.units import S_PER_HOUR, mw_to_w, s_to_ms, w_to_mw
from harness.devices.registry import open_device
from harness.store.results import ResultsStore
from predictors.cli.device_profiler import DeviceProfiler
from predictors.cli.recommendation_report import format_recommendation, plain_recommendation
from predictors.cli.strategies import minibatches_of_training, presets_of
from predictors.models.base import make_predictor, predictor_class
from predictors.models.tables import Table, find_table, load_tables
from predictors.strategies.closed_loop import ClosedLoop, OneShot, design_for
from predictors.strategies.goals import Goal
from predictors.strategies.protocol import History, Strategy
from predictors.strategies.recommendation import recommend
from predictors.strategies.registry import OURS

OBJECTIVES = {"time": "time_ms", "power": "power_mw", "energy": "energy_mws", "edp": "energy_delay_mws_ms"}
"""Values of `--goal`."""

LEAST_GAIN = 0.002
"""The search ends where another profile promises less than this share of the time."""

PICTURES = (".png", ".svg", ".pdf")

_ABOVE_0 = (
    *("batch_size", "profiles", "batch", "minibatches", "epochs", "max_temperature"),
    *("power_budget", "time_limit", "deadline", "energy_budget"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to train, and where")
    what.add_argument("--device", required=True, help="a board, sim:orin-agx, replay:CORPUS.csv, host")
    what.add_argument("--workload", required=True, help="what to train: mobilenetv3-gld23k, ...")
    what.add_argument("--batch-size", type=int, default=16, help="samples per minibatch (default: 16)")
    what.add_argument("--workers", type=int, default=4, help="num_workers of the DataLoader (default: 4)")
    what.add_argument("--storage", default="ssd", help="storage medium of the data set (default: ssd)")
    what.add_argument("--epochs", type=float, help="of the training, for hours and watt-hours saved")
    goal = parser.add_argument_group("the goal")
    goal.add_argument("--goal", choices=tuple(OBJECTIVES), default="time", help="what to make small (default: time)")
    goal.add_argument("--power-budget", type=float, metavar="W", help="greatest module power")
    goal.add_argument("--time-limit", type=float, metavar="MS", help="greatest minibatch time")
    goal.add_argument("--deadline", type=float, metavar="HOURS", help="greatest time of the whole training")
    goal.add_argument("--energy-budget", type=float, metavar="WH", help="greatest energy of the whole training")
    search = parser.add_argument_group("the search")
    search.add_argument("--profiles", type=int, default=15, help="modes that may be profiled (default: 15)")
    search.add_argument(
        "--risk",
        type=float,
        metavar="P",
        help="pick without measuring, from random modes, at most at this chance of more than 1 W too much",
    )
    search.add_argument("--batch", type=int, default=1, help="modes chosen at once, run from high to low (default: 1)")
    search.add_argument("--corpus", type=Path, metavar="FILE", help="profiles of other workloads to start from")
    search.add_argument("--reference", metavar="W[,W]", help="which of its workloads (default: all but this one)")
    search.add_argument("--minibatches", type=int, default=DEFAULT_MINIBATCHES, help="per profile (default: 40)")
    search.add_argument(
        "--max-temperature",
        type=float,
        metavar="CELSIUS",
        help="a mode in which a sensor rises above it is left out (default: what the board's trip points say)",
    )
    search.add_argument("--seed", type=int, default=0)
    search.add_argument("--results", type=Path, default=DEFAULT_RESULTS, metavar="FILE", help="keeps the profiles")
    search.add_argument("--resume", action="store_true", help="use what --results holds of the same conditions")
    search.add_argument("--config", type=Path, default=Path(FILE_NAME), help="places of storage media and data sets")
    search.add_argument("--device-root", type=Path, default=Path("/"), help="a tree with an emulated board's /sys")
    out = parser.add_argument_group("what comes out")
    out.add_argument("--json", type=Path, metavar="OUT", help="write the goal, the choice, the front and what failed")
    out.add_argument("--write-conf", type=Path, metavar="FILE", help="an nvpmodel conf with the mode")
    out.add_argument("--plot", type=Path, metavar="FILE", help="time and power of all modes as a picture (matplotlib)")


def run(arguments: argparse.Namespace) -> int:
    _refuse_wrong_options(arguments)
    minibatches = minibatches_of_training(arguments.workload, arguments.batch_size, arguments.epochs)
    goal = goal_of(arguments, minibatches)
    device = open_device(arguments.device, load_configuration(arguments.config), arguments.device_root)
    case = Case(
        arguments.device,
        arguments.workload,
        "maxn",
        arguments.workers,
        arguments.storage,
        arguments.batch_size,
        Settings(minibatches=arguments.minibatches, seed=arguments.seed, max_temperature_c=arguments.max_temperature),
    )
    references = _references(arguments)
    board = _board_name(device)
    if arguments.write_conf and not board:
        raise InvalidValueError(f"{arguments.device} has no nvpmodel", "leave --write-conf out")
    progress = Progress(sys.stderr)
    if device.clocks_only_fall and device.provenance == "measured":
        progress.line(
            f"note: some releases of {device.name} can only lower clocks; if a mode is refused, reboot and --resume"
        )
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a closed pipe must not end this before the device is put back
    with ResultsStore(arguments.results) as store, device.session():
        profiler = DeviceProfiler(
            device,
            case,
            device.power_modes("all", arguments.workload),
            store=store,
            environment=describe_environment(),
            run_id=uuid.uuid4().hex,
            resume=arguments.resume,
            report=progress.update,
        )
        countdown = Countdown(min(arguments.profiles, len(profiler.candidates.modes)))
        countdown.start_one()

        def show(line: str) -> None:
            countdown.finish_one()
            left = countdown.start_one().strip("[]").partition(", ")[2]
            progress.line(f"{line}{left and f' ({left})'}")

        history = History(profiler, arguments.profiles, show)

        make = functools.partial(
            make_predictor, predictor_class(OURS), references=references, board=board or None, seed=arguments.seed
        )

        strategy: Strategy = ClosedLoop(
            make, design_for(references, board or None, arguments.seed), least_gain=LEAST_GAIN, batch=arguments.batch
        )
        if arguments.risk is not None:
            strategy = OneShot(make, risk=arguments.risk, seed=arguments.seed)
        try:
            found = recommend(history, goal, strategy.choose, make(), presets_of(board), minibatches)
        except (KeyboardInterrupt, HarnessError):
            if history.taken:
                kept = f"{len(history.taken)} profiles are kept in {arguments.results}"
                progress.line(f"{kept}: --resume goes on with them")
            raise
    progress.clear()
    print(format_recommendation(found, device, history, profiler, minibatches))
    if arguments.json:
        plain = plain_recommendation(found, device, arguments.workload, history, profiler, minibatches)
        write_json(arguments.json, plain)
    if arguments.plot:
        from predictors.strategies.plots import draw_recommendation

        draw_recommendation(found, arguments.plot, device.provenance)
        print(f"wrote {arguments.plot}")
    if arguments.write_conf:
        _write_conf(arguments, device, board, found.choice.power_mode)
    if not found.choice.feasible:
        near = found.mode
        figures = f"{near.time_ms.value:.4g} ms at {mw_to_w(near.power_mw.value):.4g} W"
        raise CannotRunError(
            f"no mode is known for the {goal.describe()}", f"the nearest has {figures}: allow that, or more --profiles"
        )
    return 0


def goal_of(arguments: argparse.Namespace, minibatches: Optional[float]) -> Goal:
    """The goal that the options ask for; `minibatches` of the whole training, None where unknown."""
    limits = {}
    if arguments.power_budget is not None:
        limits["power_mw"] = w_to_mw(arguments.power_budget)
    if arguments.time_limit is not None:
        limits["time_ms"] = arguments.time_limit
    whole = {"deadline": arguments.deadline, "energy-budget": arguments.energy_budget}
    for option, value in whole.items():
        if value is not None and minibatches is None:
            raise InvalidValueError(f"--{option} is for the whole training, whose length is not known", "give --epochs")
    if arguments.deadline is not None and minibatches is not None:
        limits["time_ms"] = min(limits.get("time_ms", math.inf), s_to_ms(arguments.deadline * S_PER_HOUR) / minibatches)
    if arguments.energy_budget is not None and minibatches is not None:
        limits["energy_mws"] = w_to_mw(arguments.energy_budget * S_PER_HOUR) / minibatches
    if not limits and arguments.goal in ("time", "power"):
        extreme = "greatest" if arguments.goal == "time" else "least"
        raise InvalidValueError(
            f"the least {arguments.goal} without any limit is that of the {extreme} mode",
            "give --power-budget, --time-limit, --deadline or --energy-budget",
        )
    return Goal(OBJECTIVES[arguments.goal], limits)


def _refuse_wrong_options(arguments: argparse.Namespace) -> None:
    """Refuse numbers that make no goal or no search, and files that cannot be written, before anything is profiled."""
    for name in _ABOVE_0:
        value = getattr(arguments, name)
        if value is not None and not 0 < value < math.inf:
            raise InvalidValueError(f"--{name.replace('_', '-')} is {value:g}, expected a number above 0")
    for name in ("seed", "workers"):
        if getattr(arguments, name) < 0:
            raise InvalidValueError(f"--{name} is {getattr(arguments, name)}, expected 0 or more")
    if arguments.risk is not None and not 0 < arguments.risk < 1:
        raise InvalidValueError(f"--risk is {arguments.risk:g}, expected a probability between 0 and 1")
    for name in ("json", "write_conf", "plot"):
        path = getattr(arguments, name)
        if path is not None:
            folder = next((parent for parent in path.absolute().parents if parent.exists()), path)
            if path.is_dir() or not folder.is_dir() or not os.access(str(folder), os.W_OK):
                problem = f"--{name.replace('_', '-')} is {path}, a folder or nothing to write in {folder}"
                raise InvalidValueError(problem, "name another file")
    if arguments.reference and arguments.corpus is None:
        raise InvalidValueError("--reference names a workload of a corpus", "give --corpus FILE with it")
    suffix = arguments.plot.suffix.lower() if arguments.plot else ".png"
    if suffix not in PICTURES:
        raise InvalidValueError(f"--plot ends in {suffix!r}", f"a picture ends in {', '.join(PICTURES)}")


def _references(arguments: argparse.Namespace) -> Tuple[Table, ...]:
    if arguments.corpus is None:
        return ()
    tables = load_tables(arguments.corpus)
    if arguments.reference:
        return tuple(find_table(tables, name) for name in arguments.reference.split(","))
    return tuple(table for table in tables if table.workload != arguments.workload)


def _board_name(device: Device) -> str:
    """The board that a device is or stands for; empty where it is none."""
    name = getattr(device, "board", None) or device.name.rpartition(":")[2].partition("@")[0]
    name = name[len("emulated-") :] if name.startswith("emulated-") else name
    return name if name in BOARDS else ""


def _write_conf(arguments: argparse.Namespace, device: Device, board: str, mode: PowerMode) -> None:
    """Write an nvpmodel conf with the mode: from the board's own on the board, else from what is known of it."""
    name = "JETWATT"
    on_board = device.name in (board, f"emulated-{board}")
    if on_board:
        number, text = on_board_conf(arguments.device_root, mode, name)
    else:
        number, text = off_board_conf(load_board(board), mode, name)
    origin = (
        f"# Chosen by `python -m predictors recommend --device {arguments.device}`: {device.provenance} profiles.\n"
    )
    write_output(arguments.write_conf, (origin + text).encode())
    print(f"wrote {arguments.write_conf}: the mode is number {number}, {name}")
    print(f"  install, on the board:  sudo nvpmodel -f {arguments.write_conf} -m {number}")
    print("  undo:                   sudo nvpmodel -f /etc/nvpmodel.conf -m NUMBER, as `nvpmodel -q` gave it before")
    if not on_board:
        board_command = f"python -m harness nvpmodel-conf --power-mode {mode.name} --name {name} --out FILE"
        print(f"  better made there, from the board's own conf: {board_command}")
