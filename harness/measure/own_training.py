"""A training of the user's own on a device: its case and conditions, the device held or as found, or a rehearsal.

The case has the name that the user gives it. What the suite does not know of such a training (its data set, storage,
workers, seed) is not in the record; `TRAINED_BY` marks it, and it compares with its like only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import numbers
import os
import platform
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

from harness.board.containers import container_facts
from harness.board.source import SourceSpec
from harness.core import metrics
from harness.core.boards import default_medium, type_of
from harness.core.cases import DEFAULT_MINIBATCHES, DVFS, STATIC, Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import Device, RealDevice, is_real, named_mode
from harness.core.errors import CannotRunError, HarnessError, InvalidValueError, UnknownNameError
from harness.core.mode_texts import MAXN
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.profiles import CALLER, TRAINED_BY, Minibatches, Profile, Telemetry
from harness.devices.simulated import SimulatedDevice
from harness.measure.contention import wait_policy
from harness.measure.flags import find_flags
from harness.measure.holding import held
from harness.measure.own_loop import CountedLoop, MeasuredLoop, OwnLoop, StepFigures, figures_of
from harness.measure.peak_memory import PeakMemory
from harness.measure.recording import Instruments, Recorder, attribute, own_threshold
from harness.measure.run import check
from harness.workloads import get_workload

RANKS = ("RANK", "LOCAL_RANK")  # of a process in a distributed training, as torchrun and others set them
REHEARSED_WORKERS = 4  # of a rehearsed workload without a usual number (003 II.B, 004 4.4)


class OwnTraining(NamedTuple):
    """What a user says of a training of their own."""

    workload: str  # the name that profiles of it have
    batch_size: int
    identity: Dict[str, str]  # fingerprints of its model and data, as far as given
    is_held: bool  # whether the device is locked, set to `power_mode` and restored
    power_mode: Optional[str]  # None for maxn if held, else for the mode as found
    clocks: str  # `static` or `dvfs`, if held
    simulated_workload: Optional[str] = None  # what a simulated board runs in its place
    model: Any = None  # as given; a torch module shows its GPU

    def check(self) -> None:
        """InvalidValueError for what cannot be."""
        if not self.workload.strip() or not self.workload.isprintable():
            what = f"workload={self.workload!r} is not a name"
            raise InvalidValueError(what, 'name your training: workload="my-run"')
        if not isinstance(self.batch_size, numbers.Integral) or self.batch_size < 1:
            raise InvalidValueError(f"batch_size must be a whole number, at least 1, got {self.batch_size!r}")
        if not self.is_held and (self.power_mode is not None or self.clocks != STATIC):
            raise InvalidValueError("power_mode= and clocks= set the device", "give hold=True, which restores it too")

    def case(self, device: Device, mode: NamedMode, clocks: str) -> Case:
        settings = CaseSettings(cache="as-is", clocks=clocks)
        return Case(device.name, self.workload, mode, None, None, self.batch_size, settings)


class FurtherProcess(NamedTuple):
    """A process that does not measure its training, because another one does."""

    reason: str
    is_certain: bool  # else it is by a variable of the environment, which something else may have set


def further_process() -> Optional[FurtherProcess]:
    """What this process is if it is a DataLoader worker, or not the first of a distributed training; else None."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank = distributed.get_rank()
        return FurtherProcess(f"its rank is {rank}", is_certain=True) if rank else None
    if multiprocessing.current_process().daemon:  # as workers of a DataLoader or a pool are
        return FurtherProcess("it is a worker", is_certain=True)
    for name in RANKS:
        value = os.environ.get(name, "0")
        if value not in ("", "0"):
            return FurtherProcess(f"{name}={value} in its environment", is_certain=False)
    return None


@contextlib.contextmanager
def measured_training(
    training: OwnTraining, device: Device, configuration: Configuration, data_directory: Path
) -> Iterator[OwnLoop]:
    """Measure what the block trains: the loop's `profile` is there once the block has ended, however it ends.

    Raises:
        CannotRunError: the device does not run the user's loop, or lacks what the training needs.
        ControlError: a device to hold is in use, or its power mode could not be set.
    """
    if isinstance(device, SimulatedDevice):
        loop = RehearsedLoop(training, device, configuration)
        with _profile_kept(loop):
            yield loop
        return
    if not is_real(device):
        device.check(training.case(device, named_mode(device, MAXN), STATIC))  # says what it lacks
        raise CannotRunError(f"{device.name} does not run your training", "measure on host, on a board, or sim:BOARD")
    with contextlib.ExitStack() as stack:
        if training.is_held:
            mode = named_mode(device, training.power_mode or MAXN)
            case = training.case(device, mode, training.clocks)
            device.check(case)
            stack.enter_context(held(device))
            in_effect = device.set_case(case)
        else:
            in_effect = device.as_found(training.case(device, named_mode(device, MAXN), STATIC))
            mode = NamedMode(in_effect["power_mode_name"], PowerMode(**in_effect["power_mode"]))
            case = training.case(device, mode, DVFS if in_effect.get("dvfs") == "on" else STATIC)
        sources = [_of_whole_training(source) for source in device.telemetry_sources(data_directory)]
        instruments = Instruments.of(device, sources, in_effect["power_mode"], {})
        recorder = Recorder(instruments, case.settings.interval_s, PeakMemory(None, device.root, resets=False))
        stack.enter_context(recorder)
        measured = DeviceLoop(training, device, case, in_effect, recorder)
        stack.enter_context(_profile_kept(measured))
        yield measured


def _of_whole_training(source: SourceSpec) -> SourceSpec:
    """In a distributed training, the processes of this machine's other ranks are no others: they share their parent."""
    if "LOCAL_RANK" not in os.environ or "pid" not in source.options:
        return source
    return source._replace(options={**source.options, "pid": os.getppid()})


@contextlib.contextmanager
def _profile_kept(loop: ProfiledLoop) -> Iterator[None]:
    """Make the loop's profile at the end of the block, also after an error of the block, which goes on."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(HarnessError):  # the error of the user's own is what they must see
            loop.close(type(error).__name__)
        raise
    else:
        loop.close(None)
    finally:
        loop.has_ended = True


class ProfiledLoop(CountedLoop):
    """A loop that has a profile at its end."""

    def close(self, ended_by: Optional[str]) -> None:
        """Make the profile, with what ended the block early: the name of an exception; None if nothing did."""


class DeviceLoop(ProfiledLoop, MeasuredLoop):
    """A loop on a device, with its conditions as set or found."""

    def __init__(
        self, training: OwnTraining, device: RealDevice, case: Case, in_effect: Dict[str, Any], recorder: Recorder
    ) -> None:
        super().__init__(recorder, training.batch_size, training.model, device.gpu_uuid)
        self._training, self._device, self._case, self._in_effect = training, device, case, in_effect

    def close(self, ended_by: Optional[str]) -> None:
        if not self.is_owner:
            return
        self.finish(waits=ended_by is None)  # after an error the device must not wait for kernels that may hang
        conditions = {
            **{name: value for name, value in self._in_effect.items() if name != "threads"},
            **own_threshold(self._device),
            **conditions_of_process(str(self._device.root), self.gpu),
            **marks(self._training, ended_by),
        }
        profile = self.profile_of(self._case, conditions)
        self._profile = None if profile is None else attribute(profile, self._device)


def marks(training: OwnTraining, ended_by: Optional[str]) -> Dict[str, Any]:
    """The conditions that tell an own training from the suite's."""
    own = {TRAINED_BY: CALLER, "device_held": training.is_held, **training.identity}
    return own if ended_by is None else {**own, "ended_by": ended_by}


def conditions_of_process(root: str, gpu: Optional[int]) -> Dict[str, Any]:
    """What this process shows of its training: torch if it is loaded, threads, accelerator; `gpu` is None for a CPU."""
    container = container_facts(root)
    conditions = {
        "python": platform.python_version(),
        **wait_policy(),
        **({"container": container} if container else {}),
    }
    torch = sys.modules.get("torch")
    if torch is None:
        return conditions
    return {
        **conditions,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "accelerator": "cpu" if gpu is None else torch.cuda.get_device_name(gpu),
    }


class RehearsedLoop(ProfiledLoop):
    """A loop that runs as it is: each of its minibatches counts as one of a workload on a simulated board."""

    def __init__(self, training: OwnTraining, board: SimulatedDevice, configuration: Configuration) -> None:
        super().__init__()
        self._training, self._board = training, board
        name = training.simulated_workload or training.workload
        try:
            workload = get_workload(name).name
        except UnknownNameError as error:
            if training.simulated_workload is not None:
                raise
            hint = 'name one of the suite\'s that it resembles: simulated_workload="resnet18-imagenet"'
            raise InvalidValueError(f"{board.name} cannot simulate your own training {name!r}", hint) from error
        mode = named_mode(board, training.power_mode or MAXN)
        storage = default_medium(type_of(board.name), configuration)
        settings = CaseSettings(clocks=training.clocks)
        self._case = Case(board.name, workload, mode, REHEARSED_WORKERS, storage, training.batch_size, settings)
        check(self._case, board)
        self._simulated: Optional[Profile] = None

    def _run_up_to(self, count: int) -> Profile:
        """A profile of the board with `count` minibatches or more."""
        if self._simulated is None or len(self._simulated.minibatches) < count:
            length = max(DEFAULT_MINIBATCHES, 2 * count)
            settings = dataclasses.replace(self._case.settings, minibatches=length)
            self._simulated = self._board.profile(dataclasses.replace(self._case, settings=settings))
        return self._simulated

    def close(self, ended_by: Optional[str]) -> None:
        if not self.is_owner or not self.minibatches:
            return
        simulated = self._run_up_to(self.minibatches)
        minibatches, telemetry = _first(simulated, self.minibatches)
        case = self._training.case(self._board, self._case.power_mode, self._training.clocks)
        conditions = {
            **simulated.conditions,
            **marks(self._training, ended_by),
            "simulated_workload": self._case.workload,
        }
        aggregates = metrics.summarise(minibatches, telemetry, self._training.batch_size)
        started_at = simulated.started_at
        profile = Profile(case, simulated.provenance, conditions, minibatches, telemetry, aggregates, [], started_at)
        self._profile = dataclasses.replace(profile, flags=find_flags(profile))

    def figures(self, since: int = 0) -> Optional[StepFigures]:
        if not self.minibatches:
            return None
        minibatches, telemetry = _first(self._run_up_to(self.minibatches), self.minibatches)
        chosen = Minibatches({name: column[since:] for name, column in minibatches.columns.items()})
        return figures_of(chosen, telemetry.series.get(metrics.POWER_CHANNEL))


def _first(profile: Profile, count: int) -> Tuple[Minibatches, Telemetry]:
    """The first minibatches of a profile, and its telemetry up to the sample after their end."""
    columns = Minibatches.of(profile.minibatches).columns
    minibatches = Minibatches({name: column[:count] for name, column in columns.items()})
    telemetry = profile.telemetry
    end_s = metrics.end_s(minibatches[-1]) + telemetry.interval_s
    series = {channel: metrics.between(each, -math.inf, end_s) for channel, each in telemetry.series.items()}
    return minibatches, dataclasses.replace(telemetry, series=series)
