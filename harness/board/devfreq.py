"""The GPU clock limits, one pair for each GPU that devfreq knows.

The node moves with every JetPack (`57000000.gpu`, `17000000.ga10b`, `17000000.gpu`, ...): it is found by what the
device tree calls it, never by its path.
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Tuple

from harness.board import devfreq_sensor as devfreq
from harness.board.cpufreq import Limits, write_order
from harness.board.kernel_file import read_int_setting, read_setting, why_closed, write
from harness.board.knob import Knob, KnobSpec
from harness.core.capability import Capability
from harness.core.errors import InvalidValueError
from harness.core.units import HZ_PER_KHZ, hz_to_khz

DIRECTORY = "sys/class/devfreq"
MINIMUM, MAXIMUM = "min_freq", "max_freq"


class Gpu(NamedTuple):
    """A GPU and the clocks that it can have.

    Attributes:
        name: its folder's name, `17000000.ga10b`.
        levels_hz: the clocks that it can have, ascending; empty where that is not told.
        shows_clocks: whether its limits may be read: on Thor that is reported to deadlock.
    """

    name: str
    levels_hz: Tuple[int, ...]
    shows_clocks: bool


def find_gpus(root: str) -> List[Gpu]:
    """The GPUs that devfreq knows below `root`; none before the GPU was powered for the first time."""
    return [
        Gpu(os.path.basename(directory), _levels_hz(directory) if shows_clocks else (), shows_clocks)
        for directory, shows_clocks in devfreq.find_gpus(root)
    ]


def none_found(root: str) -> Tuple[str, str]:
    """What is said where there is no GPU, and what to do."""
    return (
        f"{os.path.join(root, DIRECTORY)} shows no GPU",
        "some releases show it only once it is powered: run something on the GPU first (`sudo jetson_clocks` does too)",
    )


class GpuFrequency(Knob):
    """GPU name to [lowest, highest] clock in Hz, as the kernel has it, so that it comes back to the digit."""

    spec = KnobSpec("devfreq")
    name = "GPU frequency limits"

    def __init__(self, root: str) -> None:
        """The GPUs below `root`."""
        self._root = root

    def gpus(self) -> List[Gpu]:
        """Those whose limits can be read."""
        return [gpu for gpu in find_gpus(self._root) if gpu.shows_clocks]

    def available(self) -> Capability:
        """Needs a GPU that devfreq knows, and the right to write its limits."""
        topic = "set GPU clocks"
        hidden = [gpu.name for gpu in find_gpus(self._root) if not gpu.shows_clocks]
        gpus = self.gpus()
        if not gpus and hidden:
            return Capability(
                topic, False, f"reading the clock limits of {', '.join(hidden)} may hang the kernel", "set its governor"
            )
        if not gpus:
            return Capability(topic, False, *none_found(self._root))
        files = [self._file(gpu.name, limit) for gpu in gpus for limit in (MINIMUM, MAXIMUM)]
        closed = why_closed(files)
        if closed:
            return Capability(topic, False, *closed)
        return Capability(topic, True, f"devfreq limits of {', '.join(gpu.name for gpu in gpus)}")

    def pinned(self, khz: int) -> Dict[str, Limits]:
        """The setting that holds every GPU at one clock; where the clocks are not told, reading back decides.

        Raises:
            InvalidValueError: a GPU does not have the clock; says what it has.
        """
        hz = khz * HZ_PER_KHZ
        for gpu in self.gpus():
            if gpu.levels_hz and hz not in gpu.levels_hz:
                able = ", ".join(str(hz_to_khz(level)) for level in gpu.levels_hz)
                raise InvalidValueError(f"{gpu.name} does not run at {khz} kHz", f"allowed: {able}")
        return {gpu.name: [hz, hz] for gpu in self.gpus()}

    def read(self) -> Dict[str, Limits]:
        """The limits of every GPU."""
        return {gpu.name: self._limits(gpu.name) for gpu in self.gpus()}

    def apply(self, value: Dict[str, Limits]) -> None:
        """Set the GPUs that `value` names; one that stands right is not written."""
        for name, target in value.items():
            now = self._limits(name)
            if now == target:
                continue
            for limit, hz in write_order(now, target, MINIMUM, MAXIMUM):
                path = self._file(name, limit)
                write(path, hz)

    def _limits(self, gpu: str) -> Limits:
        return [read_int_setting(self._file(gpu, limit)) for limit in (MINIMUM, MAXIMUM)]

    def _file(self, gpu: str, limit: str) -> str:
        return os.path.join(self._root, DIRECTORY, gpu, limit)


def _levels_hz(directory: str) -> Tuple[int, ...]:
    path = os.path.join(directory, "available_frequencies")
    return tuple(sorted(map(int, read_setting(path).split()))) if os.path.exists(path) else ()


def open_knob(root: str) -> GpuFrequency:
    """The GPUs below `root`."""
    return GpuFrequency(root)
