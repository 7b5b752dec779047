"""Names of telemetry channels, where what a channel measures decides who may read it."""

from __future__ import annotations

import re

_TEMPERATURE = re.compile(r"temperature_.+_c")
_CONSTANT = re.compile(r"temperature_pmic(_die)?(_\d+)?_c")  # Jetson's PMIC-Die always says 50 or 100


def follows_heat(channel: str) -> bool:
    """Whether a channel is a temperature in degrees Celsius that changes with the heat of the machine."""
    return bool(_TEMPERATURE.fullmatch(channel)) and not _CONSTANT.fullmatch(channel)
