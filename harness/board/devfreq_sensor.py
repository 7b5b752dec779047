"""Clock and load of a Jetson board's GPU, and the clock of its memory (EMC).

    sys/class/devfreq/17000000.ga10b/cur_freq           Hz; the directory's name moves with each JetPack
    sys/class/devfreq/17000000.ga10b/device/load        busy time in thousandths
    sys/kernel/debug/bpmp/debug/clk/emc/rate            Hz, for root only; Nano: debug/tegra_bwmgr/emc_rate

On Thor, reading a clock of the GPU or of bwmgr through devfreq is reported to hang for ever: it is not tried there.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from harness.board.kernel_file import KeptFile
from harness.board.privileged import hides_clocks, is_gpu
from harness.board.source import Reading
from harness.core.errors import SourceUnavailableError
from harness.core.units import hz_to_khz, permille_to_share

CLOCK = "cur_freq"

EMC_RATES = (
    "sys/kernel/debug/bpmp/debug/clk/emc/rate",
    "sys/kernel/debug/tegra_bwmgr/emc_rate",
    "sys/kernel/debug/clk/override.emc/clk_rate",
    "sys/kernel/debug/clk/emc/clk_rate",
)
"""Where the clock of the memory stands: TX2 and later; Nano, in three releases' ways. In Hz."""


class Sensor(NamedTuple):
    """One channel: its file and the conversion of the number that it holds."""

    path: str
    convert: Callable[[float], float]


class DevfreqSource:
    """Clocks and load, each by itself.

    Args:
        sensors: channel to what is read for it.
        missing: channel to why there is nothing to read for it; it fails at every reading.
    """

    def __init__(self, sensors: Dict[str, Sensor], missing: Dict[str, str]) -> None:
        """The files are opened at the first reading and stay open."""
        self._sensors = [(channel, KeptFile(path), convert) for channel, (path, convert) in sensors.items()]
        self._missing = missing
        self.notes = {channel: path for channel, (path, _) in sensors.items()}

    def read(self, now_s: float) -> Reading:
        """Every channel; a GPU that is asleep may fail."""
        values: Dict[str, float] = {}
        failed = dict(self._missing)
        for channel, file, convert in self._sensors:
            try:
                values[channel] = convert(file.read_int())
            except (OSError, ValueError) as error:
                failed[channel] = str(error)
        return Reading(values, failed)


class Gpu(NamedTuple):
    """A GPU as devfreq shows it: its folder, and whether its clocks may be read (on Thor that may hang)."""

    directory: str
    shows_clocks: bool


def find_gpus(root: str) -> List[Gpu]:
    """The GPUs that devfreq knows below `root`, by what the device tree calls them; none before one was powered."""
    folder = os.path.join(root, "sys/class/devfreq")
    nodes = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    clocks = [os.path.join(folder, node, CLOCK) for node in nodes]
    return [Gpu(os.path.dirname(clock), not hides_clocks(clock)) for clock in clocks if is_gpu(clock)]


def _gpu_sensors(root: str) -> Tuple[Dict[str, Sensor], Dict[str, str]]:
    sensors: Dict[str, Sensor] = {}
    missing: Dict[str, str] = {}
    gpus = find_gpus(root)
    readable = [gpu.directory for gpu in gpus if gpu.shows_clocks]
    for number, directory in enumerate(readable):
        name = "gpu" if number == 0 else f"gpu{number}"
        sensors[f"{name}_khz"] = Sensor(os.path.join(directory, CLOCK), hz_to_khz)
        load = os.path.join(directory, "device/load")
        if os.path.isfile(load):
            sensors[f"{name}_load_share"] = Sensor(load, permille_to_share)
        else:
            missing[f"{name}_load_share"] = f"{load} does not exist"
    if not readable:
        missing["gpu_khz"] = _why_no_gpu(root, gpus)
    return sensors, missing


def _why_no_gpu(root: str, hidden: Sequence[Gpu]) -> str:
    if hidden:
        directory = hidden[0].directory
        return f"not read: reading a clock below {directory} is reported to hang on Thor; tegrastats and jtop tell it"
    directory = os.path.join(root, "sys/class/devfreq")
    return f"no GPU is registered in {directory}; on some releases it is only once the GPU was used since the boot"


def _emc_sensor(root: str) -> Tuple[Dict[str, Sensor], Dict[str, str]]:
    """The memory's clock; below a debugfs that only root may enter even `exists` says no."""
    debug = os.path.join(root, "sys/kernel/debug")
    present = [path for path in (os.path.join(root, rate) for rate in EMC_RATES) if os.path.isfile(path)]
    if present and os.access(present[0], os.R_OK, effective_ids=True):
        return {"emc_khz": Sensor(present[0], hz_to_khz)}, {}
    if present or not os.access(debug, os.X_OK, effective_ids=True):
        return {}, {"emc_khz": f"{present[0] if present else debug} is for root only; jtop tells the clock to all"}
    return {}, {"emc_khz": f"there is no clock of the memory below {debug}"}


def open_source(root: str) -> DevfreqSource:
    """The clocks of the board below `root`.

    Raises:
        SourceUnavailableError: neither the GPU nor the memory tells anything; says why for each.
    """
    gpu_sensors, gpu_missing = _gpu_sensors(root)
    emc_sensors, emc_missing = _emc_sensor(root)
    sensors, missing = {**gpu_sensors, **emc_sensors}, {**gpu_missing, **emc_missing}
    if not sensors:
        raise SourceUnavailableError("; ".join(f"{channel}: {why}" for channel, why in missing.items()))
    return DevfreqSource(sensors, missing)
