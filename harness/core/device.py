"""What the suite needs of a device, be it a board, this machine, a simulated board or a replayed corpus."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ContextManager,
    Dict,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from harness.core.capability import Capability
from harness.core.cases import Case
from harness.core.configuration import Configuration
from harness.core.mode_texts import MAXN, only_mode
from harness.core.power_modes import NamedMode, PowerMode, PowerModeSpace
from harness.core.profiles import Profile

if TYPE_CHECKING:
    from typing_extensions import TypeGuard
Report = Callable[[str], None]  # takes one line of progress: what is being done now


@dataclasses.dataclass(frozen=True)
class Identity:
    model: str  # the product in words (`NVIDIA Jetson AGX Orin`, a CPU model, ...)
    specification: Dict[str, Any]  # plain values that identify it: part number, cores, memory, GPU, ..


class Device(Protocol):
    """One device. Nothing touches hardware before `session` is entered."""

    name: str  # as given to `--device`
    board_instance: Optional[str]  # which of several devices of its type; None if it has no serial number or name
    provenance: str  # of every profile it yields: `measured`, `simulated` or `replayed`
    # whether its CPU and GPU clocks may not rise during a run (C11): its cases are then run in an order in which they
    # do not
    clocks_only_fall: bool

    def identity(self) -> Identity:
        """Product and specification of this device."""

    def power_mode_space(self) -> PowerModeSpace:
        """The values that each dimension of a power mode can take now."""

    def power_modes(self, text: str, workload: str = "") -> List[Tuple[str, PowerMode]]:
        """The modes of a `--power-mode` value, each with its name in a case's id.

        `workload` matters for a replayed corpus, which has different modes of each; errors list what is available.
        """

    def capabilities(self) -> List[Capability]:
        """What can be measured and controlled here, and what the rest would need."""

    def check(self, case: Case) -> None:
        """Raise `CannotRunError`, before anything is changed, if this device cannot run the case now."""

    def session(self) -> ContextManager[None]:
        """Hold the device: lock it and save its state; on exit, restore what was changed."""

    def apply(self, mode: PowerMode) -> PowerMode:
        """Set a power mode and return it as read back; `ControlError` if it did not take effect."""

    def conditions(self, case: Case) -> Dict[str, Any]:
        """A case's conditions before it is measured, as plain values; may raise `CannotRunError`."""


class RealDevice(Device, Protocol):
    """A device on which workloads really run: `harness/measure` has the loops, this its sensors and its power mode."""

    root: Path  # where `/sys` and `/proc` are of the machine that the loops run on
    configuration: Configuration  # where storage media and data sets lie
    power_source: str  # the telemetry source that measures power
    gpu_uuid: str  # of the discrete GPU to train on, whose power limit can be set; empty for none
    remarks: Sequence[str]  # flags that every profile carries

    def telemetry_sources(self, data_directory: Path) -> Sequence[Any]:
        """The telemetry of a profile, as `SourceSpec`s; block I/O is that of the medium of `data_directory`."""

    def sampler_cpus(self, mode: PowerMode) -> Sequence[int]:
        """CPUs for the sampler, if possible not those of training."""

    def temperature_limits_c(self, most_c: Optional[float]) -> Mapping[str, float]:
        """Temperature channel to the limit that ends the run; `most_c` is the limit requested by the case."""

    def set_case(self, case: Case) -> Dict[str, Any]:
        """Set a case's power mode and clocks; return the device's conditions with what was read back."""

    def as_found(self, case: Case) -> Dict[str, Any]:
        """Set nothing; return the device's conditions with the power mode and the DVFS state that are in effect."""


class SelfProfiling(Device, Protocol):
    """A device that has minibatches of its own: a simulated board, a replayed corpus."""

    def profile(self, case: Case) -> Profile:
        """The profile of a case."""


class RehearsesMemory(SelfProfiling, Protocol):
    """A device whose profiles have no memory, and that estimates what a case would take, to rehearse a limit."""

    def peak_memory_bytes(self, case: Case) -> float:
        """An estimate of the peak memory of a case."""


class Pool(SelfProfiling, Protocol):
    """Boards of a type that share the cases of a search, each with its own scale of time and power."""

    boards: List[str]  # their names

    def measured_scales(self) -> Dict[str, Tuple[str, Optional[Tuple[float, float]], str]]:
        """The device of each board and its scales of time and power; None and a reason without a first profile."""

    def describe(self) -> str:
        """The scales in words."""


def named_mode(device: Device, text: str, workload: str = "") -> NamedMode:
    """The power mode that a text names on a device, to make a case in it; the text is as of `Device.power_modes`.

    An unknown name is an UnknownNameError, a text that means several modes an InvalidValueError.
    """
    return only_mode(text, device.power_modes(text, workload))


def name_mode(device: Device, mode: PowerMode) -> NamedMode:
    """A mode in effect under its name on a device: `maxn` if it is that, else its values."""
    greatest = named_mode(device, MAXN)
    return greatest if greatest.mode == mode else NamedMode(mode.name, mode)


def limits_of(device: Device) -> Tuple[int, ...]:
    """The power limits in mW that a device can be set to, ascending: of a discrete GPU; empty for any other."""
    return getattr(device, "settable_limits_mw", ())


def is_self_profiling(device: Device) -> TypeGuard[SelfProfiling]:
    return hasattr(device, "profile")


def rehearses_memory(device: Device) -> TypeGuard[RehearsesMemory]:
    return hasattr(device, "peak_memory_bytes")


def is_pool(device: Device) -> TypeGuard[Pool]:
    return hasattr(device, "measured_scales")


def is_real(device: Device) -> TypeGuard[RealDevice]:
    """Whether workloads really run on it; a simulated board, a corpus or a board that is not here has no sensors."""
    return hasattr(device, "telemetry_sources")
