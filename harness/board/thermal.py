"""Temperatures: the kernel's thermal zones, or the hwmon sensors where there is no zone."""

from __future__ import annotations

import glob
import itertools
import os
import re
from typing import Dict, List, Tuple

from harness.board.sensor_file import read_int, read_text
from harness.board.source import Reading
from harness.core.errors import SourceUnavailableError
from harness.core.units import millidegree_to_celsius


class TemperatureSource:
    """Degrees Celsius of each sensor."""

    def __init__(self, files: Dict[str, str]) -> None:
        """`files` is channel to the file that holds it in thousandths of a degree."""
        self._files = files
        self.notes = dict(files)

    def read(self, now_s: float) -> Reading:
        """Every sensor; one that is asleep or gone fails."""
        values, failed = {}, {}
        for channel, path in self._files.items():
            try:
                values[channel] = millidegree_to_celsius(read_int(path))
            except (OSError, ValueError) as error:
                failed[channel] = str(error)
        return Reading(values, failed)


def open_source(root: str) -> TemperatureSource:
    """The sensors below `root` now.

    Raises:
        SourceUnavailableError: there is neither a thermal zone nor a hwmon temperature.
    """
    sensors = _thermal_zones(root) or _hwmon_temperatures(root)
    if not sensors:
        raise SourceUnavailableError(
            f"there is no thermal zone in {os.path.join(root, 'sys/class/thermal')} "
            f"and no temperature in {os.path.join(root, 'sys/class/hwmon')}",
            "none is to be had in most virtual machines",
        )
    return TemperatureSource(name_channels(sensors))


def name_channels(sensors: List[Tuple[str, str]]) -> Dict[str, str]:
    """Channel to file, out of pairs of a sensor's own name and its file: `temperature_cpu_thermal_c`.

    A name that is there already gets the next free number, from 2.
    """
    channels: Dict[str, str] = {}
    for name, path in sensors:
        plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        numbered = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
        candidates = (f"temperature_{candidate}_c" for candidate in numbered)
        channels[next(channel for channel in candidates if channel not in channels)] = path
    return channels


def _thermal_zones(root: str) -> List[Tuple[str, str]]:
    zones = sorted(glob.glob(os.path.join(root, "sys/class/thermal/thermal_zone*")), key=_numbers)
    return [(read_text(os.path.join(zone, "type")), os.path.join(zone, "temp")) for zone in zones]


def _hwmon_temperatures(root: str) -> List[Tuple[str, str]]:
    sensors = []
    for path in sorted(glob.glob(os.path.join(root, "sys/class/hwmon/hwmon*/temp*_input")), key=_numbers):
        chip = read_text(os.path.join(os.path.dirname(path), "name"))
        label_file = path.replace("_input", "_label")
        label = read_text(label_file) if os.path.exists(label_file) else os.path.basename(path)[: -len("_input")]
        sensors.append((f"{chip} {label}", path))
    return sensors


def _numbers(path: str) -> List[int]:
    return [int(number) for number in re.findall(r"\d+", path)]
