"""Which devices there are, by name, how one is opened, and what stands for a board that is not this machine."""

from __future__ import annotations

from pathlib import Path
from typing import List, NoReturn, Tuple, Union

from harness.core.boards import BOARDS, BoardSpec, load_board
from harness.core.cases import INSTANCE_MARK
from harness.core.configuration import FILE_NAME, Configuration
from harness.core.device import Capability, Device, Identity, RealDevice
from harness.core.environment import cpu_model
from harness.core.errors import CannotRunError, UnknownNameError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace
from harness.devices.host import THIS_MACHINE, HostDevice
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board
from harness.devices.nvidia_gpu import NAME as NVIDIA_GPU
from harness.devices.nvidia_gpu import NvidiaGpuDevice
from harness.devices.raspberry_pi import NAME as RASPBERRY_PI
from harness.devices.raspberry_pi import RaspberryPi, is_raspberry_pi
from harness.devices.replay import PREFIX as REPLAY
from harness.devices.replay import ReplayDevice
from harness.devices.simulated import PREFIX as SIMULATED
from harness.devices.simulated import SimulatedDevice
from harness.simulation.parameters import SIMULATED_BOARDS


class AbsentBoard:
    """Stands for a board off-board: what its spec file says is answered, the rest is refused with a hint."""

    provenance = "measured"
    board_instance = None
    clocks_only_fall = False  # nothing runs

    def __init__(self, spec: BoardSpec, root: Path) -> None:
        self.name, self._spec, self._root = spec.name, spec, root

    def _refuse(self, *asked: object) -> NoReturn:
        here = cpu_model(self._root) or "of unknown make"
        stand_in = SIMULATED + self.name
        simulated = f"`--device {stand_in}` simulates it, " if self.name in SIMULATED_BOARDS else ""
        there = "`--device nvidia-gpu` where there is one" if self._spec.memory.host_bytes else "run on the board"
        what = f"{self.name} is not this machine ({self._spec.product} is asked for, this CPU is {here})"
        raise CannotRunError(what, f"{there}; {simulated}`--device host` measures this machine")

    def identity(self) -> Identity:
        return Identity(self._spec.product, {})

    def power_mode_space(self) -> PowerModeSpace:
        return self._spec.power_mode_space()

    def power_modes(self, text: str, workload: str = "") -> List[Tuple[str, PowerMode]]:
        """The modes known off-board that `text` stands for; where no clocks are known, any text names a mode."""
        try:
            self._spec.power_mode_space()
        except CannotRunError:
            return [(text, PowerMode(0, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ))]
        return self._spec.power_modes(text)

    def capabilities(self) -> List[Capability]:
        return [Capability("device", False, f"{self.name} is not this machine", "run on the board")]

    check = session = apply = conditions = _refuse


def known_devices() -> List[str]:
    return [
        "host",
        NVIDIA_GPU,
        *(board for board in BOARDS if load_board(board).is_jetson or board == RASPBERRY_PI),
        *(SIMULATED + board for board in SIMULATED_BOARDS),
        f"{REPLAY}CORPUS.csv",
    ]


def local_board(configuration: Configuration, root: Path = THIS_MACHINE) -> Union[JetsonDevice, HostDevice, None]:
    """The board that `root` is of, or the machine that a tree there stands for; None for neither."""
    board = read_board(root)
    if board is not None:
        return JetsonDevice(board, configuration, root)
    is_tree = root.resolve() != THIS_MACHINE and (root / "proc/cpuinfo").is_file()
    if is_raspberry_pi(root):
        return RaspberryPi(configuration, root, is_tree)
    return HostDevice(configuration, root, is_emulated=True) if is_tree else None


def open_device(name: str, configuration: Configuration, root: Path = Path("/")) -> Device:
    """A device by its name; touches nothing yet.

    The name is `host`, `nvidia-gpu` or what such a GPU calls itself, a board, what the board below `root` calls itself,
    `sim:BOARD`, or `replay:CORPUS.csv`, behind `@` the one board instance that is meant.
    """
    if name.startswith(SIMULATED):
        return SimulatedDevice(name[len(SIMULATED) :])
    if name.startswith(REPLAY):
        return ReplayDevice(name[len(REPLAY) :])
    name, _, instance = name.partition(INSTANCE_MARK)
    kind, _, which = name.partition(":")
    board = local_board(configuration, root)
    here: Union[RealDevice, None] = None
    if name == "host":
        here = HostDevice(configuration, root)
    elif board is not None and board.name == name:
        here = board
    elif kind == NVIDIA_GPU or (kind.startswith("nvidia-") and kind not in BOARDS):
        here = NvidiaGpuDevice(which or ("" if kind == NVIDIA_GPU else kind), configuration, root)
    if here is not None:
        name = here.name
        if instance not in ("", here.board_instance):
            own = f"is instance {here.board_instance}" if here.board_instance else "does not tell which one it is"
            raise CannotRunError(
                f"this {name} {own}, not {instance}",
                f'run on {instance}, or leave out @{instance}; board_instance = "NAME" in {FILE_NAME} names a board',
            )
        return here
    if name in BOARDS:
        return AbsentBoard(load_board(name), root)
    known = [*known_devices(), *([board.name] if board is not None and board.name not in BOARDS else [])]
    raise UnknownNameError(f"device {name!r} is unknown", f"known: {', '.join(known)}")
