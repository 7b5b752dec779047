"""A case: one point of the six axes and the settings it is measured with; names of storage and of mixes."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Dict, Mapping, NamedTuple, Optional, Protocol, Tuple

from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.power_modes import NamedMode
from harness.core.terminal import available_hint
from harness.core.units import mb_to_bytes

_LIMIT = re.compile(r"[1-9]\d*|(?:0|[1-9]\d*)\.\d{0,2}[1-9]")
"""A limit has exactly one spelling, so that it has one name; the smallest is a thousand bytes per second."""


class StorageName(NamedTuple):
    """A storage's name: `ssd` at full speed, or `ssd@20`, which the kernel limits to 20 MB/s."""

    medium: str  # the key of `storage` in `jetwatt.toml`: `ssd`
    # read limit; None for full speed
    limit_bytes_per_s: Optional[int] = None


def parse_storage(name: str) -> StorageName:
    """Parse `MEDIUM` or `MEDIUM@MB_PER_S`; a megabyte is 10^6 bytes."""
    medium, at, limit = name.partition("@")
    if not at:
        return StorageName(name)
    if not medium:
        raise InvalidValueError(f"storage {name!r} has no medium", f"write the medium before the @: ssd{name}")
    if not _LIMIT.fullmatch(limit):
        raise InvalidValueError(
            f"storage {name!r} is not of the form MEDIUM@MB_PER_S",
            "write ssd@20 or ssd@2.5: a number above 0, at most three decimals, no leading or trailing zeros",
        )
    return StorageName(medium, mb_to_bytes(float(limit)))


WAYS = (INTERLEAVED, PROCESSES, STREAMS) = ("interleaved", "processes", "streams")
"""How two workloads share a device: they alternate by minibatch in one process (000 sec. 4.1), or run at the same time,
each in its own process or on its own CUDA stream."""

_FORM = re.compile(
    r"(?P<training>[^+]+)\+(?P<inference>.+)-bs(?P<batch_size>\d+)@(?P<arrivals_per_s>\d+(\.\d+)?)"
    rf"(-(?P<way>{PROCESSES}|{STREAMS})|-in-(?P<inference_mode>.+))?"
)


class Mix(NamedTuple):
    training: str  # workload that is trained
    inference: str  # workload that serves requests
    batch_size: int  # requests per inference batch
    arrivals_per_s: float  # requests per second
    way: str = INTERLEAVED  # one of `WAYS`
    inference_mode: str = ""  # power mode of inference if it differs, which only interleaving allows

    @property
    def name(self) -> str:
        """`resnet18-cifar10+lenet-mnist-bs4@20`, followed by `-processes`, `-streams` or `-in-MODE` (of inference)."""
        name = f"{self.training}+{self.inference}-bs{self.batch_size}@{self.arrivals_per_s:g}"
        name += "" if self.way == INTERLEAVED else f"-{self.way}"
        return f"{name}-in-{self.inference_mode}" if self.inference_mode else name

    @property
    def workloads(self) -> Tuple[str, str]:
        return self.training, self.inference

    @classmethod
    def parse(cls, text: str) -> Mix:
        match = _FORM.fullmatch(text)
        if match is None or int(match["batch_size"]) < 1 or not float(match["arrivals_per_s"]) > 0:
            raise InvalidValueError(
                f"workload {text!r} is not of the form TRAINING+INFERENCE-bsREQUESTS@PER_SECOND",
                "write it like resnet18-cifar10+lenet-mnist-bs4@20, optionally followed by -processes, -streams or "
                "-in-MODE",
            )
        numbers = int(match["batch_size"]), float(match["arrivals_per_s"])
        way, mode = match["way"] or INTERLEAVED, match["inference_mode"] or ""
        return cls(match["training"], match["inference"], *numbers, way, mode)


def inference_mode_name(workload: str) -> str:
    """The name of the power mode of inference, if a mix has one of its own; else empty."""
    match = _FORM.fullmatch(workload)
    return "" if match is None else match["inference_mode"] or ""


class NamedWorkload(Protocol):
    """A workload, for what needs its name only."""

    @property
    def name(self) -> str:
        """As in results and reports."""


AXES = ("device", "workload", "power_mode", "workers", "storage", "batch_size")
"""The parametrized axes, in the order of a case's id."""

INSTANCE_MARK = "@"  # between device type and instance: `sim:orin-agx@2`, `orin-agx@orin3`
CACHE_STATES = ("cold", "evicted", "warm", "as-is", "drop-each-epoch")
"""What happens to the page cache before a case: `cold` drops all of it (privileged), `evicted` drops the pages of the
data set (any user), `warm` reads the data set once, `as-is` does nothing, `drop-each-epoch` is `cold` every epoch."""

DROPPED = ("cold", "drop-each-epoch")  # cache states that need permission to drop the whole page cache
STATIC, DVFS = "static", "dvfs"
CLOCKS = (STATIC, DVFS)
"""Clocks while a case runs (A7): `static` holds the power mode's (004 sec. 4.4), `dvfs` leaves them free below."""

TRAINING, INFERENCE, CONCURRENT, IDLE = "training", "inference", "concurrent", "idle"
COMMAND = "command"
"""Tasks of a case: training; inference (forward passes only); training while another network serves requests (E21);
idle, which measures power while nothing runs (E10); a command, any program from its start to its end."""

LOGGING, QUIET = "idle", "idle-quiet"
IDLE_STATES = ((LOGGING, STATIC), (QUIET, STATIC), (QUIET, DVFS))
"""Idle states that a device can measure by itself, as workload and clocks of a case (004 sec. 5.6): `LOGGING` records
all telemetry as in training, `QUIET` reads only the power sensor, `QUIET_READINGS` times in total."""

QUIET_READINGS = 10
DEFAULT_IDLE_S = 60.0  # the paper takes 30 min; a board's own sensors sample about twenty times as often as its meter

PREFETCH_FACTOR = 2  # batches that each DataLoader worker prefetches (004 sec. 4.2)
CUT_MINIBATCHES = 10  # length of a profile that would take too long: the fewest that 001 sec. 2.5 tried
DISTURBED_CORES = 0.1
"""Other processes may use this much of one core: a single busy neighbour slows two-thread training several times."""

NO_LIMIT_C = 0.0  # disables the temperature limit
DEFAULT_MINIBATCHES = 40  # PowerTrain sec. 2.5: fewer give no 1-s power sample in fast modes


@dataclasses.dataclass(frozen=True)
class CaseSettings:
    """How a case is measured; the same for all cases of a sweep."""

    minibatches: Optional[int] = DEFAULT_MINIBATCHES  # clean minibatches to record; None for another length
    epochs: Optional[int] = None  # epochs to run, epoch 0 included; None to run a number of minibatches
    cache: str = "warm"  # page cache before a case: cold, evicted, warm, as-is or drop-each-epoch
    data_scale: Optional[float] = None  # samples as a share of the real data set's; None for its own small default
    interval_s: float = 1.0  # requested telemetry interval in seconds
    seed: int = 0  # seed of weights, sampling order and generated data sets
    clocks: str = STATIC  # `static` holds the power mode's, `dvfs` lets them go lower
    max_temperature_c: Optional[float] = None  # ends the run; None for the device's trip points, 0 for no limit
    idle_s: Optional[float] = None  # duration of a case of the task `idle`; None in all others
    duration_s: Optional[float] = None  # duration of a case of the task `concurrent`; None in all others
    limit_s: Optional[float] = None  # after this time 10 clean minibatches suffice; None for no limit
    disturbance_cores: Optional[float] = None  # other processes may use this many; None for 0.1
    power_limit_w: Optional[float] = None  # of a discrete GPU; None leaves its limit as it is
    switching_ms: Optional[float] = None  # cost of a mode change on a simulated board; real boards take what it takes

    def __post_init__(self) -> None:
        if [self.minibatches, self.epochs, self.idle_s, self.duration_s].count(None) < 3:
            raise InvalidValueError("a case runs for a number of minibatches or of epochs, not both")
        for name in ("minibatches", "epochs", "idle_s", "duration_s"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidValueError(f"{name} must be at least 1, got {value}")
        for name in ("seed", "switching_ms"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InvalidValueError(f"{name} must be 0 or more, got {value}")
        if self.cache not in CACHE_STATES:
            raise InvalidValueError(f"cache state {self.cache!r} is unknown", available_hint(self.cache, CACHE_STATES))
        above_0 = ("data_scale", "interval_s", "limit_s", "disturbance_cores", "power_limit_w")
        for name in (*above_0, "max_temperature_c"):
            value = getattr(self, name)
            if value is not None and not value > 0 and (name, value) != ("max_temperature_c", NO_LIMIT_C):
                raise InvalidValueError(f"{name} must be above 0, got {value}")
        if self.cache == "drop-each-epoch" and self.epochs is None:
            raise InvalidValueError("cache state drop-each-epoch needs epochs", "give epochs, or the cache state cold")
        if self.clocks not in CLOCKS:
            raise InvalidValueError(f"clocks {self.clocks!r} are unknown", available_hint(self.clocks, CLOCKS))

    def describe(self) -> str:
        """How a case is measured, in a few words: cache, length, and settings that are not the usual ones."""
        if self.idle_s is not None:
            return f"idle for {self.idle_s:g} s, {self.clocks} clocks"
        length = f"{self.minibatches} minibatches" if self.epochs is None else f"{self.epochs} epochs"
        if self.duration_s is not None:
            length = f"{self.duration_s:g} s"
        usual = CaseSettings()
        numbers = (
            "data_scale",
            "interval_s",
            "seed",
            "limit_s",
            "max_temperature_c",
            "disturbance_cores",
            "power_limit_w",
        )
        others = [f"{name} {getattr(self, name):g}" for name in numbers if getattr(self, name) != getattr(usual, name)]
        clocks = [] if self.clocks == STATIC else [f"{self.clocks} clocks"]
        return ", ".join([f"{self.cache} cache", length, *clocks, *others])


@dataclasses.dataclass(frozen=True)
class Case:
    """One point of device x workload x power mode x workers x storage x batch size, and how it is measured."""

    device: str  # name of a device as given to `--device`
    workload: str  # name of a workload
    power_mode: NamedMode  # as `device` names it (`maxn`, `2c`, `12c-2201.6-1300.5-3199`), with its values
    workers: Optional[int]  # `num_workers` of the DataLoader; None if a replayed corpus has no such column
    storage: Optional[str]  # name of a storage medium; None if a replayed corpus has no such column
    batch_size: int  # samples per minibatch
    settings: CaseSettings = CaseSettings()  # how it is measured
    task: str = TRAINING  # `training`, `inference`, `concurrent`, `idle` or `command`
    inference_mode: Optional[NamedMode] = None  # of a concurrent case whose `workload` ends in `-in-MODE`

    def __post_init__(self) -> None:
        carried = "" if self.inference_mode is None else self.inference_mode.name
        if carried != (inference_mode_name(self.workload) if self.task == CONCURRENT else ""):
            raise InvalidValueError(
                f"inference of {self.workload} carries the power mode {self.inference_mode}",
                "make the case with concurrent_case(), or replace workload and inference_mode together",
            )
        if self.has_no_length and self.task != COMMAND:
            raise InvalidValueError(f"{self.task} of {self.workload} has no length", "give minibatches or epochs")
        if self.workers is not None and self.workers < 0:
            raise InvalidValueError(f"workers must be 0 or more, got {self.workers}")
        if self.batch_size < 1:
            raise InvalidValueError(f"batch_size must be at least 1, got {self.batch_size}")

    @property
    def has_no_length(self) -> bool:
        """Whether what runs decides when it ends, as a command does."""
        asked = self.settings
        return asked.minibatches is asked.epochs is asked.idle_s is asked.duration_s is None

    def in_mode(self, named: NamedMode) -> Case:
        """The same case in another power mode of its device."""
        return dataclasses.replace(self, power_mode=named)

    @property
    def id(self) -> str:
        """Stable and readable: `host-resnet18-cifar10-maxn-w4-ssd-bs16`.

        Suffixes: `-CACHE` if the cache state is not warm, `-xSCALE` for a data scale, `-inference` or `-concurrent` for
        these tasks, `-dvfs` for free clocks, `-250w` for a power limit. Cases of the tasks `idle` and `command` have no
        workers, storage or batch size: `orin-agx-idle-maxn`, `orin-agx-train-maxn-command`.
        """
        parts = [self.device, self.workload, self.power_mode.name]
        if self.task not in (IDLE, COMMAND):
            parts += [] if self.workers is None else [f"w{self.workers}"]
            parts += [] if self.storage is None else [self.storage]
            parts.append(f"bs{self.batch_size}")
            if self.settings.cache != "warm":
                parts.append(self.settings.cache)
            if self.settings.data_scale is not None:
                parts.append(f"x{self.settings.data_scale:g}")
        if self.task in (INFERENCE, CONCURRENT, COMMAND):
            parts.append(self.task)
        if self.settings.clocks != STATIC:
            parts.append(self.settings.clocks)
        if self.settings.power_limit_w is not None:
            parts.append(f"{self.settings.power_limit_w:g}w")
        return "-".join(parts)


def workers_and_storage(case: Case) -> Tuple[int, str]:
    """What loads the data of a case that is measured or simulated.

    CannotRunError: it is a case of a replayed corpus without these columns.
    """
    if case.workers is None or case.storage is None:
        lacking = "number of workers" if case.workers is None else "storage"
        raise CannotRunError(
            f"case {case.id} has no {lacking}, as in a corpus without that column: it can only be replayed",
            "make a case with both: workers=0, storage='ssd'",
        )
    return case.workers, case.storage


def case_duration_s(case: Case) -> float:
    """The duration of an idle or a concurrent case; InvalidValueError if its settings have none."""
    setting, duration_s = "duration_s", case.settings.duration_s
    if case.task == IDLE:
        setting, duration_s = "idle_s", case.settings.idle_s
    if duration_s is None:
        what = f"case {case.id} of the task {case.task} has no duration"
        raise InvalidValueError(what, f"make it with CaseSettings(minibatches=None, {setting}=60)")
    return duration_s


def concurrent_case(
    training: Case,
    inference: Case,
    arrivals_per_s: float,
    duration_s: float,
    way: str = INTERLEAVED,
    switching_ms: Optional[float] = None,
) -> Case:
    """The case of training one workload while another one serves requests, for `duration_s`.

    `switching_ms` is the cost of a mode change on a simulated board, if training and inference have different modes.
    """
    own_mode = None if inference.power_mode == training.power_mode else inference.power_mode
    settings = dataclasses.replace(
        training.settings,
        minibatches=None,
        epochs=None,
        duration_s=duration_s,
        switching_ms=None if own_mode is None else switching_ms,
    )
    mode_name = "" if own_mode is None else own_mode.name
    mix = Mix(training.workload, inference.workload, inference.batch_size, arrivals_per_s, way, mode_name)
    if way not in WAYS or (own_mode is not None and way != INTERLEAVED):
        raise InvalidValueError(
            f"training and inference cannot run as {mix.name}",
            f"{available_hint(way, WAYS)}; different power modes need {INTERLEAVED}",
        )
    return dataclasses.replace(training, workload=mix.name, task=CONCURRENT, settings=settings, inference_mode=own_mode)


def parts_of(case: Case) -> Tuple[Case, Case]:
    """Training and inference of a concurrent case, as a case each; inference has no DataLoader workers."""
    mix = Mix.parse(case.workload)
    settings = dataclasses.replace(case.settings, minibatches=DEFAULT_MINIBATCHES, duration_s=None, switching_ms=None)
    training = dataclasses.replace(case, workload=mix.training, task=TRAINING, settings=settings, inference_mode=None)
    return training, dataclasses.replace(
        training,
        workload=mix.inference,
        task=INFERENCE,
        batch_size=mix.batch_size,
        workers=0,
        power_mode=case.inference_mode or case.power_mode,
    )


def concurrent_conditions(training: Mapping[str, Any], inference: Mapping[str, Any]) -> Dict[str, Any]:
    """The conditions of a concurrent case: those of training, plus the data set of inference."""
    kept = ("data_source", "data_samples", "data_bytes")
    return {**training, "inference": {name: inference[name] for name in kept if name in inference}}
