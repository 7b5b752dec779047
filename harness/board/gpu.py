"""The GPU as devfreq knows it: its clock limits, its clock and load, and beside them the memory's clock.

    sys/class/devfreq/17000000.ga10b/min_freq, max_freq, cur_freq    Hz
    sys/class/devfreq/17000000.ga10b/device/load                     busy time in thousandths

The folder moves with every JetPack (`57000000.gpu`, `17000000.ga10b`, `17000000.gpu`, ...): its name in the device tree
identifies it, never its path. On Thor, reading a clock of the GPU or of bwmgr was once reported to hang for ever:
`kernel_file` reads them in a process of its own, and they are set only on request.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from harness.board import emc, privileged
from harness.board.bounded_reads import unread
from harness.board.kernel_file import LimitFiles, Limits, check_writable, left_alone, numbers_in, read_setting
from harness.board.knob import Knob, KnobSpec
from harness.board.privileged import hides_clocks, is_gpu
from harness.board.source import Source, file_source
from harness.core.errors import ControlError, InvalidValueError, SourceUnavailableError
from harness.core.units import HZ_PER_KHZ, hz_to_khz, permille_to_share

DIRECTORY = "sys/class/devfreq"
CLOCK = "cur_freq"


class GpuNode(NamedTuple):
    directory: str
    is_thors: bool  # whether its clocks are set only on request

    @property
    def name(self) -> str:
        return os.path.basename(self.directory)

    @property
    def is_media(self) -> bool:
        """Whether it drives the media engines: Thor's NVD, whose table of clocks is another than that of the GPCs."""
        return self.name.startswith("gpu-nvd-")

    @property
    def levels_hz(self) -> Tuple[int, ...]:
        """The available clocks, ascending; empty if the driver does not list them, or its list cannot be read."""
        path = os.path.join(self.directory, "available_frequencies")
        try:
            return tuple(numbers_in(read_setting(path))) if os.path.exists(path) else ()
        except ControlError as error:
            unread[path] = error.what
            return ()


def find_gpus(root: str) -> List[GpuNode]:
    """The GPUs that devfreq knows below `root`; none before the GPU was powered for the first time."""
    folder = os.path.join(root, DIRECTORY)
    nodes = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    clocks = [os.path.join(folder, node, CLOCK) for node in nodes]
    gpus = [GpuNode(os.path.dirname(clock), hides_clocks(clock)) for clock in clocks if is_gpu(clock)]
    unread.update(privileged.unread)
    return gpus


def computing(gpus: Sequence[GpuNode]) -> List[GpuNode]:
    """The nodes that have the GPU's clock; what is left stands apart: media engines, and what has another table."""
    cores = [gpu for gpu in gpus if not gpu.is_media] or list(gpus)
    return [gpu for gpu in cores if len(cores) == 1 or gpu.levels_hz == cores[0].levels_hz]


def none_found(root: str) -> ControlError:
    return ControlError(
        f"{os.path.join(root, DIRECTORY)} shows no GPU",
        "some releases show it only once it is powered: run something on the GPU first (`sudo jetson_clocks` does too)",
    )


class GpuFrequency(Knob):
    """GPU name to [lowest, highest] clock in Hz, as the kernel has it, so that it comes back to the digit."""

    spec = KnobSpec("devfreq")
    name = "GPU frequency limits"
    topic = "set GPU clocks"

    def __init__(self, root: str, holds_thor: bool = False) -> None:
        """`holds_thor`: set a Thor's clocks too. What was saved of them is put back without."""
        self._root, self._holds_thor = root, holds_thor

    def gpus(self) -> List[GpuNode]:
        """Those that have the GPU's clock, if it may be set."""
        return computing(self._settable())

    def _settable(self) -> List[GpuNode]:
        return [gpu for gpu in find_gpus(self._root) if self._holds_thor or not gpu.is_thors]

    def usable(self) -> str:
        gpus = self._settable()
        if not gpus:
            raise left_alone(find_gpus(self._root)[0].directory) if find_gpus(self._root) else none_found(self._root)
        check_writable([file for gpu in gpus for file in self._files(gpu.name)])
        return f"devfreq limits of {', '.join(gpu.name for gpu in computing(gpus))}"

    def pinned(self, khz: int) -> Dict[str, Limits]:
        """The setting that holds the GPU at one clock; if the driver lists no clocks, reading back decides."""
        hz = khz * HZ_PER_KHZ
        for gpu in self.gpus():
            if gpu.levels_hz and hz not in gpu.levels_hz:
                able = ", ".join(str(hz_to_khz(level)) for level in gpu.levels_hz)
                raise InvalidValueError(f"{gpu.name} does not run at {khz} kHz", f"allowed: {able}")
        return {gpu.name: [hz, hz] for gpu in self.gpus()}

    def read(self) -> Dict[str, Limits]:
        """Of every node, media engines too: jetson_clocks changes them all, and they are put back."""
        return {gpu.name: self._files(gpu.name).read() for gpu in self._settable()}

    def limits(self) -> Dict[str, Limits]:
        """Of the nodes that have the GPU's clock."""
        return {gpu.name: self._files(gpu.name).read() for gpu in self.gpus()}

    def read_back(self, value: Dict[str, Limits]) -> Dict[str, Limits]:
        """Also of a Thor's that `read` leaves alone: those were set."""
        return {name: self._files(name).read() for name in value}

    def apply(self, value: Dict[str, Limits]) -> None:
        there = [gpu.name for gpu in find_gpus(self._root)]
        for name, target in value.items():
            if name not in there:
                raise ControlError(f"there is no GPU {name} with clocks", f"available: {', '.join(there) or 'none'}")
            files = self._files(name)
            if files.read() != target:
                files.write(target)

    def _files(self, gpu: str) -> LimitFiles:
        return LimitFiles(*(os.path.join(self._root, DIRECTORY, gpu, limit) for limit in ("min_freq", "max_freq")))


def open_source(root: str) -> Source:
    sensors: Dict[str, Tuple[str, Callable[[float], float]]] = {}
    missing: Dict[str, str] = {}
    gpus = find_gpus(root)
    directories = [gpu.directory for gpu in sorted(gpus, key=lambda gpu: gpu not in computing(gpus))]
    for number, directory in enumerate(directories):
        name = f"gpu{number or ''}"
        sensors[f"{name}_khz"] = (os.path.join(directory, CLOCK), hz_to_khz)
        load = os.path.join(directory, "device/load")
        if os.path.exists(load):
            sensors[f"{name}_load_share"] = (load, permille_to_share)
        else:
            missing[f"{name}_load_share"] = f"{load} does not exist"
    if not directories:
        missing["gpu_khz"] = (
            f"no GPU is registered in {os.path.join(root, DIRECTORY)}; "
            "on some releases it is only once the GPU was used since the boot"
        )
    rate, why_not = emc.readable_rate(root)
    if rate:
        sensors["emc_khz"] = (rate, hz_to_khz)
    else:
        missing["emc_khz"] = why_not
    if not sensors:
        raise SourceUnavailableError("; ".join(f"{channel}: {why}" for channel, why in missing.items()))
    return file_source(sensors, missing=missing)
