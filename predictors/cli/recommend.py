"""`recommend`: profile a few power modes on a device and name the one to train with."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from harness.cli.fleet import LAB_VARIABLE
from harness.cli.nvpmodel_conf import make_conf, off_board_conf, on_board_conf
from harness.cli.options import output_file, whole_numbers, write_json
from harness.core.boards import load_board
from harness.core.cases import Case, Settings
from harness.core.configuration import load_configuration
from harness.core.device import Device
from harness.core.errors import CannotRunError, HarnessError, InvalidValueError
from harness.core.files import write_output
from harness.core.power_modes import PowerMode
from harness.core.terminal import Countdown, Progress
from harness.core.units import S_PER_HOUR, mw_to_w, s_to_ms, w_to_mw
from harness.devices.board_record import root_of
from harness.devices.registry import open_device
from harness.fleet.lab import Fleet
from harness.fleet.pool import PoolDevice
from harness.store.results import ResultsStore
from predictors.cli.options import add_search_arguments, numbers, refuse_below
from predictors.cli.strategies import minibatches_of_training
from predictors.models.base import DEFAULT_BATCH_SIZE, TASKS
from predictors.models.tables import Table, find_table
from predictors.search.corpora import load_tables
from predictors.search.device_profiler import (
    MEDIAN,
    DeviceProfiler,
    PowerPeak,
    board_of,
    power_sampler,
    workers_of,
    workload_name,
)
from predictors.search.recommendation_report import (
    format_recommendation,
    format_shared,
    plain_mode,
    plain_recommendation,
    plain_spent,
)
from predictors.strategies.fixed import presets_of
from predictors.strategies.goals import OBJECTIVES, Goal
from predictors.strategies.protocol import Choice, History, Strategy
from predictors.strategies.recommendation import Recommendation, SharedMode, recommend, shared_mode
from predictors.strategies.registry import STRATEGIES, StrategySetting, strategy_on_device, unfitted

LEAST_GAIN = 0.002  # the search ends where another profile promises less than this share of the time

ON_DEVICE = "closed-loop"
RISK = 0.05  # of `one-shot`, where none is given

PICTURES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what to train, and where").add_argument
    add("--device", help="a board, sim:orin-agx, replay:CORPUS.csv, host")
    add("--pool", help="instead: boards of a fleet (docs/fleet.md), each next mode on whichever is free")
    add("--lab", type=Path, default=Path(os.environ.get(LAB_VARIABLE, "lab.toml")), help="of that fleet: lab.toml")
    add("--workload", required=True, metavar="W[,W]", help="mobilenetv3-gld23k, ..., or your own, as module:NAME")
    add("--task", choices=TASKS, default=TASKS[0], help="what to do with it (default: %(default)s)")
    add(
        "--batch-size", default=str(DEFAULT_BATCH_SIZE), metavar="N[,N]", help="or several to choose from (default: 16)"
    )
    add("--workers", type=int, help="num_workers of the DataLoader (default: as the papers ran it: 4, or 0 for YOLO)")
    add("--storage", default="ssd", help="storage medium of the data set (default: ssd)")
    add("--epochs", type=float, help="of the training, for hours and watt-hours saved")
    add = parser.add_argument_group("the goal").add_argument
    add("--goal", choices=tuple(OBJECTIVES), help="default: time; throughput, the time of a sample, for several sizes")
    add("--power-budget", metavar="W[,W]", help="greatest module power; several share one set of profiles")
    add("--peak-budget", type=float, metavar="W", help="greatest sample of module power in the chosen mode's profile")
    add("--time-limit", type=float, metavar="MS", help="greatest minibatch time")
    add("--percentile", type=float, default=MEDIAN, metavar="P", help="of times, those of limits too (default: 50)")
    add("--deadline", type=float, metavar="HOURS", help="greatest time of the whole training")
    add("--energy-budget", type=float, metavar="WH", help="greatest energy of the whole training")
    search = parser.add_argument_group("the search")
    add_search_arguments(search, profiles=15)
    add = search.add_argument
    listed = ", ".join(STRATEGIES)
    add("--strategy", choices=tuple(STRATEGIES), metavar="NAME", help=f"{listed} (default: {ON_DEVICE})")
    add("--risk", type=float, metavar="P", help="pick unmeasured, from random modes, at this chance to break a limit")
    add("--unprofiled", action="store_true", help="pick and show modes with settings that no profile tells of, too")
    add("--batch", type=int, help="modes chosen at once, run from high to low (default: 1, of a pool one a board)")
    add("--corpus", type=Path, metavar="FILE", help="profiles of other workloads to start from")
    add("--reference", metavar="W[,W]", help="which of its workloads (default: all but this one)")
    add(
        "--max-temperature",
        type=float,
        metavar="CELSIUS",
        help="a mode in which a sensor rises above it is left out (default: what the board's trip points say)",
    )
    add("--resume", action="store_true", help="use what --results holds of the same conditions")
    add("--device-root", type=Path, default=Path("/"), help="an emulated board: a tree with its /sys, or its record")
    add = parser.add_argument_group("what comes out").add_argument
    add("--json", type=output_file, metavar="OUT", help="write the goal, the choice, the front and what failed")
    add("--write-conf", type=output_file, metavar="FILE", help="an nvpmodel conf with the mode")
    add("--plot", type=output_file, metavar="FILE", help="time and power of all modes as a picture (matplotlib)")


def run(arguments: argparse.Namespace) -> int:
    sizes = whole_numbers("--batch-size", arguments.batch_size, "8,16,32")
    _refuse(arguments)
    arguments.device_root = root_of(arguments.device_root)
    device = _opened(arguments)
    if arguments.percentile != MEDIAN and device.provenance == "replayed":
        raise InvalidValueError("a corpus holds medians alone", "leave --percentile out")
    workloads = [workload_name(name, device) for name in arguments.workload.split(",")]
    lengths = [minibatches_of_training(name, sizes[0], arguments.epochs) for name in workloads]
    goals = [goals_of(arguments, length, sizes) for length in lengths]
    if (len(workloads) > 1 or len(goals[0]) > 1) and (arguments.write_conf or arguments.plot):
        raise InvalidValueError(
            "--write-conf and --plot are of one mode", "give one --power-budget and one --workload with them"
        )
    if arguments.write_conf and not board_of(device):
        raise InvalidValueError(f"{arguments.device} has no nvpmodel", "leave --write-conf out")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a closed pipe must not end this before the device is put back
    peak_mw = None if arguments.peak_budget is None else w_to_mw(arguments.peak_budget)
    found = _search(arguments, device, sizes, workloads, lengths, goals, peak_mw)
    shared = [shared_mode(some, RISK) for some in zip(*found)] if len(workloads) > 1 else []
    for some, mode in zip(zip(*found), shared):
        print("\n" + format_shared(some, mode))
    if arguments.json:
        write_json(arguments.json, _plain(device, found, shared, peak_mw))
    if arguments.plot:
        from predictors.strategies.plots import draw_recommendation

        draw_recommendation(found[0][0], arguments.plot, device.provenance)
        print(f"wrote {arguments.plot}")
    if arguments.write_conf:
        _write_conf(arguments, device, found[0][0].choice.power_mode)
    missed = [one for some in found for one in some if not one.choice.feasible]
    if missed:
        near = missed[0].mode
        figures = f"{near.time_ms.value:.4g} ms at {mw_to_w(near.power_mw.value):.4g} W"
        raise CannotRunError(
            f"no mode is known for the {' or the '.join(one.goal.describe() for one in missed)}",
            f"the nearest has {figures}: allow that, or more --profiles",
        )
    return 0


def _search(
    arguments: argparse.Namespace,
    device: Device,
    sizes: Sequence[int],
    workloads: Sequence[str],
    lengths: Sequence[Optional[float]],
    goals: Sequence[Sequence[Goal]],
    peak_mw: Optional[float],
) -> List[List[Recommendation]]:
    """Search for each workload's goals, starting from what those before it found, and tell what came of it."""
    references = _references(arguments, workloads)
    given = vars(arguments)
    settings = Settings(
        minibatches=arguments.minibatches, seed=arguments.seed, max_temperature_c=arguments.max_temperature
    )
    same = {name: given[name] for name in ("profiles", "risk", "batch", "unprofiled", "percentile", "resume")}
    same["strategy"] = arguments.strategy or (ON_DEVICE if arguments.risk is None else "one-shot")
    found: List[List[Recommendation]] = []
    with contextlib.nullcontext() if arguments.pool else ResultsStore(arguments.results) as store:
        for workload, length, wanted in zip(workloads, lengths, goals):
            where = arguments.storage, sizes[0], settings, arguments.task
            case = Case(arguments.device, workload, "maxn", workers_of(workload, arguments.workers), *where)
            one = recommend_mode(
                device,
                case,
                wanted,
                batch_sizes=sizes,
                references=(*references, *(profiles_of(some[0], device) for some in found)),
                samples=None if length is None else length * sizes[0],
                peak_mw=peak_mw,
                store=store,
                progress=Progress(sys.stderr),
                **same,
            )
            found.append(one)
            _tell(device, workload, one, peak_mw)
            if arguments.pool:
                print(device.describe())
    return found


def _opened(arguments: argparse.Namespace) -> Device:
    """The device to search on; with `--pool` its boards, whose type is the device then."""
    if (arguments.device is None) == (arguments.pool is None):
        raise InvalidValueError("--device or --pool says where to search", "give one of the two")
    configuration = load_configuration(arguments.config)
    if arguments.pool is None:
        arguments.batch = arguments.batch or 1
        return open_device(arguments.device, configuration, arguments.device_root)
    if arguments.resume:
        raise InvalidValueError("--resume is of one board", "leave it out with --pool")
    report = Progress(sys.stderr).update
    pool = PoolDevice(Fleet(arguments.lab), arguments.pool, arguments.results, configuration, report)
    arguments.device, arguments.batch = pool.name, arguments.batch or len(pool.boards)
    return pool


def _refuse(arguments: argparse.Namespace) -> None:
    """Refuse options that make no sense, or none together."""
    refuse_below(0, arguments, "seed", "workers")
    refuse_below(
        0, arguments, "profiles", "batch", "minibatches", "epochs", "max_temperature",
        "time_limit", "deadline", "energy_budget", "peak_budget", "percentile", above=True,
    )  # fmt: skip
    if arguments.percentile >= 100:
        raise InvalidValueError(f"--percentile is {arguments.percentile:g}, expected less than 100")
    if arguments.risk is not None and not 0 < arguments.risk < 1:
        raise InvalidValueError(f"--risk is {arguments.risk:g}, expected a probability between 0 and 1")
    if arguments.risk is not None and arguments.strategy not in (None, "one-shot"):
        raise InvalidValueError(
            f"--risk is of one-shot, and --strategy is {arguments.strategy}", "leave one of them out"
        )
    if arguments.reference and arguments.corpus is None:
        raise InvalidValueError("--reference names a workload of a corpus", "give --corpus FILE with it")
    if arguments.plot and arguments.plot.suffix.lower() not in PICTURES:
        raise InvalidValueError(f"--plot is {arguments.plot}", f"a picture ends in {', '.join(PICTURES)}")


def _plain(
    device: Device,
    found: Sequence[Sequence[Recommendation]],
    shared: Sequence[Optional[SharedMode]],
    peak_mw: Optional[float],
) -> Dict[str, Any]:
    """What is written as JSON: a recommendation, or a list of several with what they cost together."""
    plain = [plain_recommendation(one) for some in found for one in some]
    if peak_mw is not None:
        for told, one in zip(plain, (one for some in found for one in some)):
            peak = _peak_of(one)
            told["peak"] = {"budget_mw": peak_mw, **(peak._asdict() if peak else {})}
    if len(plain) == 1:
        return plain[0]
    if not shared:
        return {"recommendations": plain, "spent": plain[0]["spent"]}
    modes = [
        one and {"modes": [plain_mode(mode, device.provenance) for mode in one.modes], "longer": one.longer}
        for one in shared
    ]
    return {"recommendations": plain, "spent": plain_spent([some[0] for some in found]), "shared": modes}


def _tell(device: Device, workload: str, found: Sequence[Recommendation], peak_mw: Optional[float]) -> None:
    print(format_recommendation(*found))
    for one in found:
        peak = _peak_of(one)
        if peak and (peak_mw is not None or peak.exceeded):
            apart = "" if peak.window_s is None else f" in samples {peak.window_s:.2g} s apart"
            allowed = "" if peak_mw is None else f", {mw_to_w(peak_mw):.4g} W are allowed"
            exceeded = f"; {peak.exceeded}" if peak.exceeded else ""
            print(f"peak:        {mw_to_w(peak.peak_mw):.4g} W{apart}{allowed}{exceeded}")
    history = found[0].history
    case = history.profiler.case(found[0].choice.index)
    scaled_from = device.conditions(case).get("scaled_from") if device.provenance == "simulated" else None
    if scaled_from:
        print(f"rough:       {device.name} has not seen {workload}: scaled from {scaled_from}, to a factor of 2.2")


def profiles_of(found: Recommendation, device: Device) -> Table:
    """What was profiled for a recommendation, as a table that others may start from."""
    history, candidates = found.history, found.history.profiler.candidates
    return Table(
        board_of(device),
        history.profiler.template.workload,
        history.profiler.task,
        device.provenance,
        candidates.known_modes[history.places],
        candidates.batch_size[history.places],
        history.time_ms,
        history.power_mw,
    )


def recommend_mode(
    device: Device,
    case: Case,
    goals: Sequence[Goal],
    *,
    batch_sizes: Sequence[int] = (),
    strategy: str = ON_DEVICE,
    profiles: int = 15,
    risk: Optional[float] = None,
    batch: int = 1,
    unprofiled: bool = False,
    percentile: float = MEDIAN,
    references: Tuple[Table, ...] = (),
    store: Optional[ResultsStore] = None,
    resume: bool = False,
    samples: Optional[float] = None,
    progress: Progress,
    peak_mw: Optional[float] = None,
) -> List[Recommendation]:
    """Hold a device, profile up to `profiles` of its modes, and name for each goal the one that meets it best.

    `case` is what is profiled, its power mode and, where there are `batch_sizes`, its batch size replaced; the other
    parameters are the command's options. `samples` are those of the whole training; None counts savings over an hour.
    """
    if hasattr(device, "telemetry_sources"):
        with power_sampler(device, 1.0, device.root):
            pass  # a device without power is refused now, not after a profile
    if device.clocks_only_fall and device.provenance == "measured":
        progress.line(
            f"note: some releases of {device.name} can only lower clocks; if a mode is refused, reboot and --resume"
        )
    board = board_of(device)
    presets, modes = presets_of(board), device.power_modes("all", case.workload)
    if strategy == "presets" and device.provenance != "replayed":
        # By name they are the vendor's modes in full: clusters of the GPU that a preset switches off are off.
        presets = tuple(preset._replace(has_less_gpu=False) for preset in presets)
        modes = [mode for preset in presets for mode in device.power_modes(preset.name, case.workload)]
    setting = StrategySetting(board, references, presets, RISK if risk is None else risk, unprofiled)
    seed = case.settings.seed
    chooses = strategy_on_device(strategy, setting, seed, LEAST_GAIN, batch)
    with device.session():
        profiler = DeviceProfiler(
            device,
            case,
            modes,
            batch_sizes=batch_sizes,
            store=store,
            resume=resume,
            percentile=percentile,
            report=progress.update,
        )
        countdown = Countdown(min(profiles, len(profiler.candidates.modes)))
        countdown.start_one()

        def show(line: str) -> None:
            countdown.finish_one()
            left = countdown.start_one().strip("[]").partition(", ")[2]
            progress.line(f"{line}{left and f' ({left})'}")

        history = History(profiler, profiles, show)
        try:
            predictor = unfitted(setting, seed)()
            if peak_mw is not None:
                chooses = WithinPeak(chooses, peak_mw, profiler.peaks)
            found = recommend(history, goals, chooses, predictor, setting.presets, samples, unprofiled)
        except (KeyboardInterrupt, HarnessError):
            if history.taken and store is not None:
                progress.line(f"{len(history.taken)} profiles are kept in {store.path}: --resume goes on with them")
            raise
    progress.clear()
    return found


class WithinPeak(Strategy):
    """A strategy whose choice is profiled and keeps a limit of peaks; else it is asked again for less power.

    How much less, the profile says that broke it: no predictor knows peaks.
    """

    def __init__(self, strategy: Strategy, limit_mw: float, peaks: Mapping[int, PowerPeak]) -> None:
        self._strategy = strategy
        self._limit_mw = limit_mw
        self._peaks = peaks

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        goals = [self._at_most(goal, self._limit_mw) for goal in goals]
        return [self._checked(history, *each) for each in zip(goals, self._strategy.choose_all(history, goals))]

    def _checked(self, history: History, goal: Goal, choice: Choice) -> Choice:
        refused: Set[int] = set()
        while choice.feasible:
            if history.profile(choice.index) is None:
                raise CannotRunError(f"{choice.power_mode.name} cannot be profiled: {history.failed[choice.index]}")
            if choice.index not in self._peaks:
                raise CannotRunError(
                    f"the profile of {choice.power_mode.name} tells no peak", "leave --peak-budget out"
                )
            is_within = choice.index not in refused and history.figures(choice.index, goal)[1] <= 0
            choice = history.choice(choice.index, choice.reason, is_within)
            peak_mw = self._peaks[choice.index].peak_mw
            if peak_mw <= self._limit_mw or not is_within:
                break
            refused.add(choice.index)
            goal = self._at_most(goal, choice.measured.power_mw * self._limit_mw / peak_mw)
            choice = self._strategy.choose(history, goal)
        return choice

    @staticmethod
    def _at_most(goal: Goal, power_mw: float) -> Goal:
        return Goal(goal.minimise, {**goal.limits, "power_mw": min(power_mw, goal.limits.get("power_mw", math.inf))})


def _peak_of(found: Recommendation) -> Optional[PowerPeak]:
    return found.history.profiler.peaks.get(found.choice.index)


def goals_of(arguments: argparse.Namespace, minibatches: Optional[float], sizes: Sequence[int]) -> List[Goal]:
    """The goals that the options ask for, one a budget; `minibatches` of the whole training, None where unknown.

    Where there are several batch sizes to choose from, the time of a sample takes the place of a minibatch's.
    """
    limits, several = {}, len(sizes) > 1
    name = arguments.goal or ("throughput" if several else "time")
    if several and name in ("time", "energy", "edp"):
        raise InvalidValueError(
            f"--goal {name} is of a minibatch, which is the least at the least batch size",
            "throughput, sample-energy, or one --batch-size",
        )
    if arguments.time_limit is not None:
        limits["time_ms"] = arguments.time_limit
    whole = {"deadline": ("time_ms", "sample_time_ms"), "energy-budget": ("energy_mws", "sample_energy_mws")}
    for option, value in (("deadline", arguments.deadline), ("energy-budget", arguments.energy_budget)):
        if value is None:
            continue
        if minibatches is None:
            raise InvalidValueError(f"--{option} is for the whole training, whose length is not known", "give --epochs")
        total = s_to_ms(value * S_PER_HOUR) if option == "deadline" else w_to_mw(value * S_PER_HOUR)
        quantity, least = whole[option][several], total / minibatches / (sizes[0] if several else 1)
        limits[quantity] = min(limits.get(quantity, math.inf), least)
    if arguments.power_budget is not None:
        budgets = numbers("--power-budget", arguments.power_budget, "20,30")
        return [Goal(OBJECTIVES[name], {"power_mw": w_to_mw(budget), **limits}) for budget in budgets]
    if arguments.peak_budget is not None:
        limits["power_mw"] = w_to_mw(arguments.peak_budget)  # a peak is no less than the power
    if not limits and name in ("time", "power"):
        extreme = "greatest" if name == "time" else "least"
        raise InvalidValueError(
            f"the least {name} without any limit is that of the {extreme} mode",
            "give --power-budget, --peak-budget, --time-limit, --deadline or --energy-budget",
        )
    return [Goal(OBJECTIVES[name], limits)]


def _references(arguments: argparse.Namespace, workloads: Sequence[str]) -> Tuple[Table, ...]:
    if arguments.corpus is None:
        return ()
    tables = load_tables(arguments.corpus)
    if arguments.reference:
        return tuple(find_table(tables, name) for name in arguments.reference.split(","))
    return tuple(table for table in tables if table.workload not in workloads)


def _write_conf(arguments: argparse.Namespace, device: Device, mode: PowerMode) -> None:
    """Write an nvpmodel conf with the mode: from the board's own on the board, else from what is known of it."""
    name, board = "JETWATT", board_of(device)
    on_board = device.name in (board, f"emulated-{board}")
    base = on_board_conf(arguments.device_root, mode) if on_board else off_board_conf(load_board(board), mode)
    number, text = make_conf(*base, name)
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
