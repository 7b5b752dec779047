"""Clock and load of a Jetson board's GPU, and the clock of its memory (EMC).

    sys/class/devfreq/17000000.ga10b/cur_freq           Hz; the directory's name moves with each JetPack
    sys/class/devfreq/17000000.ga10b/device/load        busy time in thousandths
    sys/kernel/debug/bpmp/debug/clk/emc/rate            Hz, for root only; Nano: debug/tegra_bwmgr/emc_rate

On Thor, reading a clock of the GPU or of bwmgr through devfreq is reported to hang for ever: it is not tried there.
"""

from __future__ import annotations

import glob
import os
import re
from typing import Callable, Dict, List, NamedTuple, Tuple

from harness.errors import SourceUnavailableError
from harness.telemetry.kept_file import KeptFile
from harness.telemetry.kernel_file import read_text
from harness.telemetry.source import Reading
from harness.units import hz_to_khz, permille_to_share

GPU_NAMES = re.compile(r"gpu.*|g[a-z]\d\d[a-z]")
"""What the device tree calls a GPU: `gpu`, `gm20b`, `gp10b`, `gv11b`, `ga10b`, and whatever comes after."""

THOR_NODES = ("gpu-gpc-*", "gpu-nvd-*", "bwmgr")

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


def find_gpus(root: str) -> List[str]:
    """The devfreq directories of GPUs below `root`, by their name in the device tree; none of Thor's."""
    found = []
    for name in sorted(glob.glob(os.path.join(root, "sys/class/devfreq/*/device/of_node/name"))):
        if GPU_NAMES.fullmatch(read_text(name).strip("\0").lower()):
            found.append(os.path.dirname(os.path.dirname(os.path.dirname(name))))
    hangs = set(_thor_nodes(root))
    return [directory for directory in found if directory not in hangs]


def _thor_nodes(root: str) -> List[str]:
    """What is not to be touched on Thor."""
    return [path for node in THOR_NODES for path in glob.glob(os.path.join(root, "sys/class/devfreq", node))]


def _gpu_sensors(root: str) -> Tuple[Dict[str, Sensor], Dict[str, str]]:
    sensors: Dict[str, Sensor] = {}
    missing: Dict[str, str] = {}
    gpus = find_gpus(root)
    for number, directory in enumerate(gpus):
        name = "gpu" if number == 0 else f"gpu{number}"
        sensors[f"{name}_khz"] = Sensor(os.path.join(directory, "cur_freq"), hz_to_khz)
        load = os.path.join(directory, "device/load")
        if os.path.isfile(load):
            sensors[f"{name}_load_share"] = Sensor(load, permille_to_share)
        else:
            missing[f"{name}_load_share"] = f"{load} does not exist"
    if not gpus:
        missing["gpu_khz"] = _why_no_gpu(root)
    return sensors, missing


def _why_no_gpu(root: str) -> str:
    nodes = _thor_nodes(root)
    if nodes:
        return f"not read: reading a clock below {nodes[0]} is reported to hang on Thor; tegrastats and jtop tell it"
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
