"""A case: what is asked of a device, from its six axes and the settings of the run; names of storage and of mixes."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from harness.core.errors import InvalidValueError
from harness.core.power_modes import NamedMode
from harness.core.units import mb_to_bytes

_LIMIT = re.compile(r"[1-9]\d*|(?:0|[1-9]\d*)\.\d{0,2}[1-9]")
"""There is one way to write a number, so that one limit has one name; the least is a thousand bytes per second."""


class StorageName(NamedTuple):
    """A storage's name: `ssd`, as fast as it is, or `ssd@20`, of which the kernel lets 20 MB/s through."""

    medium: str  # which medium, as places are known by it: `ssd`
    # what may be read from it in a second; None where it may be as fast as it is
    limit_bytes_per_s: Optional[int] = None


def parse_storage(name: str) -> StorageName:
    """The parts of a storage's name, `MEDIUM` or `MEDIUM@MB_PER_S`, a megabyte being 10^6 bytes."""
    medium, at, limit = name.partition("@")
    if not at:
        return StorageName(name)
    if not medium:
        raise InvalidValueError(f"storage {name!r} names no medium", f"one stands before the @: ssd{name}")
    if not _LIMIT.fullmatch(limit):
        raise InvalidValueError(
            f"storage {name!r} is no MEDIUM@MB_PER_S",
            "write ssd@20 or ssd@2.5: a number above 0, at most three decimals, no zeros that could be left out",
        )
    return StorageName(medium, mb_to_bytes(float(limit)))


WAYS = (INTERLEAVED, PROCESSES, STREAMS) = ("interleaved", "processes", "streams")
"""How two workloads run on one device: minibatch by minibatch in one process (000 sec. 4.1), or at once, in a process
or on a CUDA stream each."""

_FORM = re.compile(
    r"(?P<training>[^+]+)\+(?P<inference>.+)-bs(?P<batch_size>\d+)@(?P<arrivals_per_s>\d+(\.\d+)?)"
    rf"(-(?P<way>{PROCESSES}|{STREAMS})|-in-(?P<inference_mode>.+))?"
)


class Mix(NamedTuple):
    training: str  # name of the workload that is trained
    inference: str  # name of the one that answers
    batch_size: int  # requests that are answered together
    arrivals_per_s: float  # requests per second
    way: str = INTERLEAVED  # one of `WAYS`
    inference_mode: str = ""  # power mode of the inference where it has its own, which only interleaving allows

    @property
    def name(self) -> str:
        """`resnet18-cifar10+lenet-mnist-bs4@20`, then `-processes`, `-streams` or, of its inference, `-in-MODE`."""
        name = f"{self.training}+{self.inference}-bs{self.batch_size}@{self.arrivals_per_s:g}"
        name += "" if self.way == INTERLEAVED else f"-{self.way}"
        return f"{name}-in-{self.inference_mode}" if self.inference_mode else name

    @property
    def workloads(self) -> Tuple[str, str]:
        return self.training, self.inference

    @classmethod
    def parse(cls, text: str) -> Mix:
        found = _FORM.fullmatch(text)
        if found is None or int(found["batch_size"]) < 1 or not float(found["arrivals_per_s"]) > 0:
            raise InvalidValueError(
                f"workload {text!r} does not say what is trained beside what answers",
                "TRAINING+INFERENCE-bsREQUESTS@PER_SECOND, such as resnet18-cifar10+lenet-mnist-bs4@20, then nothing, "
                "-processes, -streams or -in-MODE",
            )
        numbers = int(found["batch_size"]), float(found["arrivals_per_s"])
        way, mode = found["way"] or INTERLEAVED, found["inference_mode"] or ""
        return cls(found["training"], found["inference"], *numbers, way, mode)


AXES = ("device", "workload", "power_mode", "workers", "storage", "batch_size")
"""The parametrized axes, in the order in which they stand in a case's id."""

INSTANCE_MARK = "@"  # between the type of a device and which one of them it is: `sim:orin-agx@2`, `orin-agx@orin3`
CACHE_STATES = ("cold", "evicted", "warm", "as-is", "drop-each-epoch")
"""What is done to the page cache before a case: `cold` drops all of it (privileged), `evicted` the data set's own pages
(any user may), `warm` reads the data set once, `as-is` does nothing, `drop-each-epoch` is `cold` before every epoch."""

DROPPED = ("cold", "drop-each-epoch")  # cache states that need the right to drop the whole page cache
STATIC, DVFS = "static", "dvfs"
CLOCKS = (STATIC, DVFS)
"""What clocks do while a case runs (A7): `static`, held at the power mode's (004 sec. 4.4); `dvfs`, free below them."""

TRAINING, INFERENCE, CONCURRENT, IDLE = "training", "inference", "concurrent", "idle"
"""Tasks of a case: a network is trained; it only answers (forward passes); one is trained while another answers
requests (E21); nothing runs and power is measured (E10)."""

LOGGING, QUIET = "idle", "idle-quiet"
IDLE_STATES = ((LOGGING, STATIC), (QUIET, STATIC), (QUIET, DVFS))
"""The idle states that a device can tell by itself, each as a case's workload and clocks (004 sec. 5.6): all telemetry
is recorded as while training, or the power sensor alone is read, `QUIET_READINGS` times in all."""

QUIET_READINGS = 10
DEFAULT_IDLE_S = 60.0  # the paper watches for 30 min; a board's own sensors give in one what a meter gives in twenty

PREFETCH_FACTOR = 2  # batches that each DataLoader worker has ready (004 sec. 4.2)
CUT_MINIBATCHES = 10  # what is left of a profile that takes too long: 10 are the fewest that 001 sec. 2.5 tried
DISTURBED_CORES = 0.1
"""Other processes may use this much of one core: a single busy neighbour slows two-thread training several times."""

NO_LIMIT_C = 0.0  # stands for no limit of the temperature
DEFAULT_MINIBATCHES = 40  # PowerTrain sec. 2.5: fewer give no 1-s power sample in fast modes


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a case is measured; the same for all cases of a sweep."""

    minibatches: Optional[int] = DEFAULT_MINIBATCHES  # clean ones to record; None where whole epochs are asked for
    epochs: Optional[int] = None  # epochs to run, epoch 0 included; None where minibatches are asked for
    cache: str = "warm"  # one of `CACHE_STATES`
    data_scale: Optional[float] = None  # samples as a share of the real data set's; None for its own small default
    interval_s: float = 1.0  # telemetry interval asked for, in seconds
    seed: int = 0  # seeds weights, sampling order and the written data sets
    clocks: str = STATIC  # one of `CLOCKS`
    max_temperature_c: Optional[float] = None  # ends the run; None for the device's trip points, or `NO_LIMIT_C`
    idle_s: Optional[float] = None  # seconds to do nothing for, in a case of the task `idle`; None in all others
    duration_s: Optional[float] = None  # seconds to go on for, in a case of the task `concurrent`; None in all others
    limit_s: Optional[float] = None  # after so many seconds `CUT_MINIBATCHES` clean ones suffice; None for no limit
    disturbance_cores: Optional[float] = None  # that others may use, more is `disturbed`; None for `DISTURBED_CORES`
    power_limit_w: Optional[float] = None  # of a discrete GPU; None for the limit that it has
    switching_ms: Optional[float] = None  # what a simulated board charges for a change of mode; others take their time

    def __post_init__(self) -> None:
        if [self.minibatches, self.epochs, self.idle_s, self.duration_s].count(None) != 3:
            raise InvalidValueError("a case is measured for a number of minibatches or of epochs, one of the two")
        for name in ("minibatches", "epochs", "idle_s", "duration_s"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidValueError(f"{name} must be at least 1, got {value}")
        if self.seed < 0:
            raise InvalidValueError(f"seed must be 0 or more, got {self.seed}")
        if self.cache not in CACHE_STATES:
            raise InvalidValueError(f"cache state {self.cache!r} is unknown", f"available: {', '.join(CACHE_STATES)}")
        above_0 = ("data_scale", "interval_s", "limit_s", "disturbance_cores", "power_limit_w", "switching_ms")
        for name in (*above_0, "max_temperature_c"):
            value = getattr(self, name)
            if value is not None and not value > 0 and (name, value) != ("max_temperature_c", NO_LIMIT_C):
                raise InvalidValueError(f"{name} must be above 0, got {value}")
        if self.cache == "drop-each-epoch" and self.epochs is None:
            raise InvalidValueError("cache state drop-each-epoch needs epochs", "give epochs, or the cache state cold")
        if self.clocks not in CLOCKS:
            raise InvalidValueError(f"clocks {self.clocks!r} are unknown", f"available: {', '.join(CLOCKS)}")


@dataclasses.dataclass(frozen=True)
class Case:
    """One point of device x workload x power mode x workers x storage x batch size, and how it is measured."""

    device: str  # name of a device as given to `--device`
    workload: str  # name of a workload
    power_mode: str  # the power mode as the device names it (`maxn`, `2c`, `12c-2201.6-1300.5-3199`)
    workers: Optional[int]  # `num_workers` of the DataLoader; None where a replayed corpus does not tell
    storage: Optional[str]  # name of a storage medium; None where a replayed corpus does not tell
    batch_size: int  # samples per minibatch
    settings: Settings = Settings()  # how it is measured
    task: str = TRAINING  # `training`, `inference`, `concurrent` or `idle`
    # what `power_mode` names on `device`, resolved when the cases were planned; None in a case from a results file, or
    # made by hand, which `named_mode` looks up
    resolved_mode: Optional[NamedMode] = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.resolved_mode is not None and self.resolved_mode.name != self.power_mode:
            raise InvalidValueError(
                f"a case in power mode {self.power_mode} carries the values of {self.resolved_mode.name}",
                "replace power_mode and resolved_mode together: case.in_mode(named_mode)",
            )
        if self.workers is not None and self.workers < 0:
            raise InvalidValueError(f"workers must be 0 or more, got {self.workers}")
        if self.batch_size < 1:
            raise InvalidValueError(f"batch_size must be at least 1, got {self.batch_size}")

    def in_mode(self, named: NamedMode) -> Case:
        """The same case in another power mode of its device."""
        return dataclasses.replace(self, power_mode=named.name, resolved_mode=named)

    @property
    def id(self) -> str:
        """Stable and readable: `host-resnet18-cifar10-maxn-w4-ssd-bs16`.

        `-CACHE` follows where the cache state is not warm, `-xSCALE` where a data scale was asked for, `-inference` or
        `-concurrent` where that is the task, `-dvfs` where clocks are free, `-250w` where a power limit was asked for.
        A case of the task `idle` has neither workers, storage nor batch: `orin-agx-idle-maxn`.
        """
        parts = [self.device, self.workload, self.power_mode]
        if self.task != IDLE:
            parts += [] if self.workers is None else [f"w{self.workers}"]
            parts += [] if self.storage is None else [self.storage]
            parts.append(f"bs{self.batch_size}")
            if self.settings.cache != "warm":
                parts.append(self.settings.cache)
            if self.settings.data_scale is not None:
                parts.append(f"x{self.settings.data_scale:g}")
        if self.task in (INFERENCE, CONCURRENT):
            parts.append(self.task)
        if self.settings.clocks != STATIC:
            parts.append(self.settings.clocks)
        if self.settings.power_limit_w is not None:
            parts.append(f"{self.settings.power_limit_w:g}w")
        return "-".join(parts)


def concurrent_case(
    training: Case,
    inference: Case,
    arrivals_per_s: float,
    duration_s: float,
    way: str = INTERLEAVED,
    switching_ms: Optional[float] = None,
) -> Case:
    """The case of training one workload while another one serves requests, which goes on for `duration_s`.

    `switching_ms` is what a simulated board charges for a change of mode, where each has its own.
    """
    own_mode = "" if inference.power_mode == training.power_mode else inference.power_mode
    settings = dataclasses.replace(
        training.settings,
        minibatches=None,
        epochs=None,
        duration_s=duration_s,
        switching_ms=switching_ms if own_mode else None,
    )
    mix = Mix(training.workload, inference.workload, inference.batch_size, arrivals_per_s, way, own_mode)
    if way not in WAYS or (own_mode and way != INTERLEAVED):
        raise InvalidValueError(
            f"training and inference cannot run as {mix.name}",
            f"a way is one of {', '.join(WAYS)}; modes of their own go with {INTERLEAVED} alone",
        )
    return dataclasses.replace(training, workload=mix.name, task=CONCURRENT, settings=settings)


def parts_of(case: Case) -> Tuple[Case, Case]:
    """The training and the inference in a concurrent case, each as a case of its own; requests come without workers."""
    mix = Mix.parse(case.workload)
    settings = dataclasses.replace(case.settings, minibatches=DEFAULT_MINIBATCHES, duration_s=None, switching_ms=None)
    training = dataclasses.replace(case, workload=mix.training, task=TRAINING, settings=settings)
    return training, dataclasses.replace(
        training,
        workload=mix.inference,
        task=INFERENCE,
        batch_size=mix.batch_size,
        workers=0,
        power_mode=mix.inference_mode or case.power_mode,
        resolved_mode=None if mix.inference_mode else case.resolved_mode,
    )


def concurrent_conditions(training: Mapping[str, Any], inference: Mapping[str, Any]) -> Dict[str, Any]:
    """The conditions of a concurrent case: those of its training, and of its inference what differs, the data set."""
    kept = ("data_source", "data_samples", "data_bytes")
    return {**training, "inference": {name: inference[name] for name in kept if name in inference}}
