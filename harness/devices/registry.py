"""The available devices by name, how one is opened, and boards that are not this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ContextManager, Dict, List, Optional, Tuple

from harness.board.nvml import find_gpus
from harness.core.boards import BoardSpec, board_names, is_board, load_board
from harness.core.capability import Capability
from harness.core.cases import INSTANCE_MARK, Case
from harness.core.configuration import FILE_NAME, Configuration
from harness.core.device import Device, Identity
from harness.core.device_types import (
    EMULATED,
    DeviceType,
    Opener,
    brought_type,
    brought_types,
    declared_devices,
    is_brought,
    package_of,
    warn_of,
)
from harness.core.environment import short_cpu_model
from harness.core.errors import CannotRunError, DependencyError, HarnessError, InvalidValueError, UnknownNameError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace, is_in_full
from harness.core.terminal import available_hint
from harness.devices.host import THIS_MACHINE, HostDevice
from harness.devices.jetson import is_jetson, open_jetson
from harness.devices.jetson_board import UNKNOWN_BOARD
from harness.devices.nvidia_gpu import NAME as NVIDIA_GPU
from harness.devices.nvidia_gpu import NvidiaGpuDevice
from harness.devices.raspberry_pi import NAME as RASPBERRY_PI
from harness.devices.raspberry_pi import RaspberryPi, is_raspberry_pi
from harness.devices.replay import PREFIX as REPLAY
from harness.devices.replay import ReplayDevice
from harness.devices.simulated import PREFIX as SIMULATED
from harness.devices.simulated import SimulatedDevice
from harness.simulation.parameters import SIMULATED_BOARDS

SUITE_TYPES: Dict[str, DeviceType] = {
    RASPBERRY_PI: DeviceType(RaspberryPi, is_raspberry_pi),
    UNKNOWN_BOARD: DeviceType(open_jetson, is_jetson),  # any Jetson: its facts, or the lack of them, give the name
    "host": DeviceType(HostDevice),
}
"""The suite's own device types that are opened at a root; packages add theirs by `jetwatt.devices`."""


class AbsentBoard:
    """A board that is not this machine: has its facts and power modes, refuses everything else with a hint."""

    provenance = "measured"
    board_instance: Optional[str] = None
    clocks_only_fall = False  # nothing runs

    def __init__(self, spec: BoardSpec, root: Path) -> None:
        self.name, self._spec, self._root = spec.name, spec, root

    def _error(self) -> CannotRunError:
        simulated = f"device='{SIMULATED}{self.name}' simulates it, " if self.name in SIMULATED_BOARDS else ""
        there = "device='nvidia-gpu' on a machine with one" if self._spec.memory.host_bytes else "run on the board"
        what = f"{self.name} is not this machine ({short_cpu_model(self._root)})"
        return CannotRunError(what, f"{there}; {simulated}device='host' measures this machine")

    def identity(self) -> Identity:
        return Identity(self._spec.product, {})

    def power_mode_space(self) -> PowerModeSpace:
        return self._spec.power_mode_space()

    def power_modes(self, text: str, workload: str = "") -> List[Tuple[str, PowerMode]]:
        """The modes of a text by the board's facts; if these list no clocks, any text but a mode in full is a name."""
        if not self._spec.lists_every_clock and not is_in_full(text):
            return [(text, PowerMode(0, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ))]
        return self._spec.power_modes(text)

    def capabilities(self) -> List[Capability]:
        return [Capability("device", False, f"{self.name} is not this machine", "run on the board")]

    def check(self, case: Case) -> None:
        raise self._error()

    def session(self) -> ContextManager[None]:
        raise self._error()

    def apply(self, mode: PowerMode) -> PowerMode:
        raise self._error()

    def conditions(self, case: Case) -> Dict[str, Any]:
        raise self._error()


def known_devices() -> List[str]:
    boards = [name for name in board_names() if name in SUITE_TYPES or load_board(name).is_jetson]
    return [
        "host",
        NVIDIA_GPU,
        *dict.fromkeys([*boards, *brought_types()]),
        *(SIMULATED + board for board in SIMULATED_BOARDS),
        f"{REPLAY}CORPUS.csv",
    ]


def local_board(configuration: Configuration, root: Path = THIS_MACHINE) -> Optional[Device]:
    """The board at `root`, or the machine whose files a tree there has; None for neither."""
    for name, kind in {**brought_types(), **SUITE_TYPES}.items():
        if kind.device is not None and _is_here(name, kind, root):
            return _opened(name, kind.device, configuration, root)
    return HostDevice(configuration, root, is_emulated=True) if _is_tree(root) else None


def _is_tree(root: Path) -> bool:
    return root.resolve() != THIS_MACHINE and (root / "proc/cpuinfo").is_file()


def _is_here(name: str, kind: DeviceType, root: Path) -> bool:
    """Whether the machine at a root is such a device; not if the check of a package fails."""
    if kind.is_here is None:
        return False
    if name in SUITE_TYPES:
        return kind.is_here(root)
    try:
        return bool(kind.is_here(root))
    except Exception as error:
        warn_of(_failed(name, "is_here", error))
        return False


def _failed(name: str, what: str, error: Exception) -> DependencyError:
    text = f"device {name!r} of package {package_of(name)}: {what} failed: {type(error).__name__}: {error}"
    return DependencyError(text, "fix or uninstall that package")


def _opened(name: str, opener: Opener, configuration: Configuration, root: Path) -> Device:
    if name in SUITE_TYPES:
        return opener(configuration, root, _is_tree(root))
    try:
        device = opener(configuration, root, _is_tree(root))
        own_name = device.name
    except HarnessError:
        raise
    except Exception as error:
        raise _failed(name, "opening it", error) from error
    if own_name not in (name, EMULATED + name):
        what = f"device {name!r} of package {package_of(name)} calls itself {own_name!r}"
        raise InvalidValueError(what, f"its attribute name must be that of its entry point: name = {name!r}")
    return device


def open_device(name: str, configuration: Configuration, root: Path = THIS_MACHINE) -> Device:
    """Open a device by its name; touches nothing yet.

    The name is `host`, `nvidia-gpu` or the name of such a GPU, a board, a package's device, the name of the board below
    `root`, `sim:BOARD`, or `replay:CORPUS.csv`; `@INSTANCE` after a name requires that board instance.
    """
    if name.startswith(SIMULATED):
        return SimulatedDevice(name[len(SIMULATED) :])
    if name.startswith(REPLAY):
        return ReplayDevice(name[len(REPLAY) :])
    name, _, instance = name.partition(INSTANCE_MARK)
    device = _open_here(name, configuration, root)
    if device is not None:
        if instance not in ("", device.board_instance):
            own = f"is instance {device.board_instance}" if device.board_instance else "has no instance name"
            raise CannotRunError(
                f"this {device.name} {own}, not {instance}",
                f'run on {instance}, or leave out @{instance}; board_instance = "NAME" in {FILE_NAME} names a board',
            )
        return device
    if is_board(name):
        return AbsentBoard(load_board(name), root)
    if is_brought(name):
        what = f"{name} of package {package_of(name)} is not this machine"
        raise CannotRunError(what, "run on the device; planning elsewhere needs facts in its package")
    board = local_board(configuration, root)
    here = [board.name] if board is not None and not is_board(board.name) else []
    raise UnknownNameError(f"device {name!r} is unknown", available_hint(name, [*known_devices(), *here]))


def _open_here(name: str, configuration: Configuration, root: Path) -> Optional[Device]:
    """The device of that name on this machine, or at `root`; None if there is none."""
    if name == "host":
        return HostDevice(configuration, root)
    if is_brought(name):
        kind = brought_type(name)
        if kind.device is not None:
            is_opened = kind.is_here is None or _is_here(name, kind, root)
            return _opened(name, kind.device, configuration, root) if is_opened else None
    board = local_board(configuration, root)
    if board is not None and board.name == name:
        return board
    kind_of_gpu, _, which = name.partition(":")
    if kind_of_gpu == NVIDIA_GPU or kind_of_gpu.startswith("nvidia-"):
        if board is not None and all(gpu.is_jetsons for gpu in find_gpus()):
            what = f"NVML's {find_gpus()[0].name} is the GPU of this board, {board.name}"
            raise CannotRunError(what, f"device='{board.name}' measures it, with the board's own sensors")
        return NvidiaGpuDevice(which or ("" if kind_of_gpu == NVIDIA_GPU else kind_of_gpu), configuration, root)
    return None


def capabilities_of_packages() -> List[Capability]:
    """For each device of an installed package whether it can be loaded, and the error if not."""
    capabilities = []
    for name in declared_devices():
        topic = f"device {name}"
        try:
            kind = brought_type(name)
            if kind.facts is not None:
                load_board(name)
            capabilities.append(Capability(topic, True, f"of package {package_of(name)}"))
        except HarnessError as error:
            capabilities.append(Capability(topic, False, error.what, error.hint))
    return capabilities
