"""Above which temperature a run ends: what the user set, else what the machine's own trip points say.

In `sys/class/thermal/thermal_zone0`, `trip_point_1_temp` is in thousandths of a degree, and `trip_point_1_type` is
`active` (a fan starts), `passive` (clocks are held down), or `critical` (the kernel shuts the machine down).
"""

from __future__ import annotations

import glob
import os
import re
from typing import Dict, Mapping, Optional

from harness.board.sampler import Sampler
from harness.board.sensor_file import read_int, read_text
from harness.board.thermal import open_source
from harness.core.errors import OverheatedError, SourceUnavailableError
from harness.core.units import millidegree_to_celsius

MARGIN_C = 3.0
"""How far below its lowest critical trip point a sensor ends a run: a shutdown would leave the board as the run set it.

Above the passive ones (AGX Orin: 99 C passive, 104.5 C critical), for what these do is slow the board down: that is
flagged, and no danger.
"""

CONSTANT = re.compile(r"temperature_pmic(_die)?(_\d+)?_c")
"""Sensors that show the same at any heat: Jetson's PMIC-Die always says 50 or 100."""


def temperature_limits_c(root: str, most_c: Optional[float] = None) -> Dict[str, float]:
    """Channel of each sensor below `root` that follows the heat, to the temperature above which a run ends.

    Args:
        root: the directory below which `/sys` is looked for.
        most_c: the same limit for all of them; None for `MARGIN_C` below each one's lowest critical trip point: a
            sensor without one has no limit.
    """
    try:
        files = open_source(root).notes
    except SourceUnavailableError:
        return {}  # no sensor, nothing to watch: the record says why under the source's name
    limits: Dict[str, float] = {}
    for channel, path in files.items():
        if CONSTANT.fullmatch(channel):
            continue
        critical_c = _critical_c(os.path.dirname(path)) if most_c is None else None
        limit_c = most_c if critical_c is None else critical_c - MARGIN_C
        if limit_c is not None:
            limits[channel] = limit_c
    return limits


def refuse_heat(sampler: Sampler, limits_c: Mapping[str, float]) -> None:
    """End the run where a sensor's newest sample is above its limit.

    Raises:
        OverheatedError: names the sensor, what it says, and the limit.
    """
    sampler.poll()
    for channel, limit_c in limits_c.items():
        celsius = sampler.newest(channel)
        if celsius is not None and celsius > limit_c:
            raise OverheatedError(
                f"{channel} is {celsius:g}, and the run ends above {limit_c:g}",
                "let it cool down, see that the fan turns, then go on with --resume; --max-temperature sets the limit",
            )


def _critical_c(zone: str) -> Optional[float]:
    """The lowest critical trip point of a thermal zone; None where it has none, or does not tell."""
    found = []
    for kind in glob.glob(os.path.join(zone, "trip_point_*_type")):
        try:
            if read_text(kind) == "critical":
                found.append(millidegree_to_celsius(read_int(kind[: -len("type")] + "temp")))
        except (OSError, ValueError):
            continue  # a trip point that cannot be read is none to go by
    return min((celsius for celsius in found if celsius > 0), default=None)
