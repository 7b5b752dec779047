"""Temperatures, from thermal zones or hwmon sensors, and the limits above which a run ends.

sys/class/thermal/thermal_zone0/type, temp            `cpu-thermal`; thousandths of a degree
sys/class/thermal/thermal_zone0/trip_point_1_type     `active` (a fan starts), `passive` (clocks are held down) or
`critical` (the kernel shuts the machine down)
sys/class/thermal/thermal_zone0/trip_point_1_temp     thousandths of a degree
sys/class/hwmon/hwmon2/temp1_label, temp1_input       read where there are no zones
"""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING, Dict, Mapping, Optional

from harness.board.kernel_file import numbered, read_int, read_text, text_of
from harness.board.source import FileSource, free_channel
from harness.core.errors import OverheatedError, SourceUnavailableError
from harness.core.units import millidegree_to_celsius

if TYPE_CHECKING:
    from harness.board.sampler import Sampler

MARGIN_C = 3.0
"""How far below its lowest critical trip point a sensor ends a run: a shutdown would leave the board as the run set it.

Passive trip points lie lower (AGX Orin: 99 C, critical 104.5 C) and only slow the board down: that is flagged.
"""

CONSTANT = re.compile(r"temperature_pmic(_die)?(_\d+)?_c")
"""Sensors that do not follow the heat: Jetson's PMIC-Die always says 50 or 100."""


def open_source(root: str) -> FileSource:
    """Degrees Celsius of each sensor below `root` now; one that is asleep or gone fails alone."""
    zones = numbered(os.path.join(root, "sys/class/thermal/thermal_zone*"))
    sensors = [(read_text(os.path.join(zone, "type")), os.path.join(zone, "temp")) for zone in zones]
    if not zones:
        for path in numbered(os.path.join(root, "sys/class/hwmon/hwmon*/temp*_input")):
            chip = read_text(os.path.join(os.path.dirname(path), "name"))
            label = text_of(path.replace("_input", "_label")) or os.path.basename(path)[: -len("_input")]
            sensors.append((f"{chip} {label}", path))
    if not sensors:
        raise SourceUnavailableError(
            f"there is no thermal zone in {os.path.join(root, 'sys/class/thermal')} "
            f"and no temperature in {os.path.join(root, 'sys/class/hwmon')}",
            "most virtual machines have none",
        )
    files: Dict[str, str] = {}
    for name, path in sensors:
        files[free_channel("temperature_{}_c", name, files)] = path
    return FileSource({channel: (path, millidegree_to_celsius) for channel, path in files.items()})


def temperature_limits_c(root: str, most_c: Optional[float] = None) -> Dict[str, float]:
    """Channel of each sensor below `root` that follows the heat, to the temperature above which a run ends.

    That is `most_c` for all of them; where it is None, `MARGIN_C` below each one's lowest critical trip point: a sensor
    without one has no limit.
    """
    try:
        files = open_source(root).notes
    except SourceUnavailableError:
        return {}  # no sensor, nothing to watch: the record says why under the source's name
    files = {channel: path for channel, path in files.items() if not CONSTANT.fullmatch(channel)}
    if most_c is not None:
        return dict.fromkeys(files, most_c)
    criticals_c = {channel: _critical_c(os.path.dirname(path)) for channel, path in files.items()}
    return {channel: celsius - MARGIN_C for channel, celsius in criticals_c.items() if celsius is not None}


def _critical_c(zone: str) -> Optional[float]:
    found = []
    for kind in glob.glob(os.path.join(zone, "trip_point_*_type")):
        try:
            if read_text(kind) == "critical":
                found.append(millidegree_to_celsius(read_int(kind[: -len("type")] + "temp")))
        except (OSError, ValueError):
            continue  # a trip point that cannot be read gives no limit
    return min((celsius for celsius in found if celsius > 0), default=None)


def refuse_heat(sampler: Sampler, limits_c: Mapping[str, float]) -> None:
    """End the run where a sensor's newest sample is above its limit: the OverheatedError names all three."""
    sampler.poll()
    for channel, limit_c in limits_c.items():
        celsius = sampler.newest(channel)
        if celsius is not None and celsius > limit_c:
            raise OverheatedError(
                f"{channel} is {celsius:g}, and the run ends above {limit_c:g}",
                "let it cool down, see that the fan turns, then go on with --resume; --max-temperature sets the limit",
            )
