"""Temperatures, from thermal zones or hwmon sensors, and the limits above which a run ends.

sys/class/thermal/thermal_zone0/type, temp            `cpu-thermal`; thousandths of a degree
sys/class/thermal/thermal_zone0/trip_point_1_type     `active` (a fan starts), `passive` (clocks are held down) or
`critical` (the kernel shuts the machine down)
sys/class/thermal/thermal_zone0/trip_point_1_temp     thousandths of a degree
sys/class/hwmon/hwmon2/temp1_label, temp1_input       read if there are no zones

A zone whose part of the chip has no power gives EAGAIN (Orin, L4T r36) or -256 C (r35): it is missing by itself.
"""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence

from harness.board.kernel_file import numbered, read_int, read_text, text_of
from harness.board.source import Source, file_source, free_channel
from harness.core.channels import follows_heat
from harness.core.errors import CannotRunError, OverheatedError, SourceUnavailableError, UnwatchedError
from harness.core.units import millidegree_to_celsius

if TYPE_CHECKING:
    from harness.board.sampler import Sampler

# How far below its lowest critical trip point a sensor ends a run: a shutdown would leave the board as the run set it.
# Passive trip points lie lower (AGX Orin: 99 C, critical 104.5 C) and only slow the board down: that is flagged.
MARGIN_C = 3.0
SENSOR_OFF_C = -256.0  # what a sensor shows while its part of the chip has no power (jetson_stats#350, L4T r35)
SILENCE_S = 10.0  # a sensor that gave nothing for so long, or for three samples, is not watched


def open_source(root: str) -> Source:
    """Degrees Celsius of each sensor below `root` now; one that is asleep or gone fails alone."""
    zones = numbered(os.path.join(root, "sys/class/thermal/thermal_zone*"))
    sensors, nameless = [], {}
    for zone in zones:
        try:
            sensors.append((read_text(os.path.join(zone, "type")), os.path.join(zone, "temp")))
        except OSError as error:
            nameless[f"temperature_{os.path.basename(zone)}_c"] = str(error)
    if not zones:
        for path in numbered(os.path.join(root, "sys/class/hwmon/hwmon*/temp*_input")):
            chip = text_of(os.path.join(os.path.dirname(path), "name")) or os.path.basename(os.path.dirname(path))
            label = text_of(path.replace("_input", "_label")) or os.path.basename(path)[: -len("_input")]
            sensors.append((f"{chip} {label}", path))
    if not sensors and not nameless:
        raise SourceUnavailableError(
            f"there is no thermal zone in {os.path.join(root, 'sys/class/thermal')} "
            f"and no temperature in {os.path.join(root, 'sys/class/hwmon')}",
            "most virtual machines have none",
        )
    files: Dict[str, str] = {}
    for name, path in sensors:
        files[free_channel("temperature_{}_c", name, files)] = path
    return file_source({channel: (path, _celsius) for channel, path in files.items()}, missing=nameless)


def _celsius(millidegrees: int) -> float:
    celsius = millidegree_to_celsius(millidegrees)
    if celsius == SENSOR_OFF_C:
        raise ValueError(f"{celsius:g} C: its part of the chip has no power")
    return celsius


def temperature_limits_c(root: str, most_c: Optional[float] = None) -> Dict[str, float]:
    """Channel of each sensor below `root` that follows the heat, to the temperature above which a run ends: `most_c`.

    Where that is None, `MARGIN_C` below each one's lowest critical trip point. With `NO_LIMIT_C` there are none.
    """
    from harness.core.cases import NO_LIMIT_C  # the sampler's process does without

    if most_c == NO_LIMIT_C:
        return {}
    try:
        files = open_source(root).notes
    except SourceUnavailableError as error:
        raise CannotRunError(f"no temperature can be watched: {error.what}", NO_LIMIT_HINT) from error
    files = {channel: path for channel, path in files.items() if follows_heat(channel)}
    if most_c is not None:
        return dict.fromkeys(files, most_c)
    criticals_c = {channel: _critical_c(os.path.dirname(path)) for channel, path in files.items()}
    limits_c = {channel: celsius - MARGIN_C for channel, celsius in criticals_c.items() if celsius is not None}
    if not limits_c:
        what = "no temperature can be watched: no sensor has a critical trip point"
        raise CannotRunError(what, f"max_temperature_c= sets a limit, {NO_LIMIT_HINT}")
    return limits_c


def _critical_c(zone: str) -> Optional[float]:
    critical_c = []
    for kind in glob.glob(os.path.join(zone, "trip_point_*_type")):
        try:
            if read_text(kind) == "critical":
                critical_c.append(millidegree_to_celsius(read_int(kind[: -len("type")] + "temp")))
        except (OSError, ValueError):
            continue  # a trip point that cannot be read gives no limit
    return min((celsius for celsius in critical_c if celsius > 0), default=None)


NO_LIMIT_HINT = "--no-temperature-limit runs without"
_OVERLOADED = (
    "the machine is overloaded, or reading a sensor hangs: end other programs, then run it again, a run of cases with "
    "resume=True"
)


def refuse_heat(sampler: Sampler, limits_c: Mapping[str, float]) -> None:
    """End the load if a sensor exceeds its limit, or if no sensor with a limit has reported for `SILENCE_S`, or ever.

    Raises:
        OverheatedError: a sensor is above its limit.
        UnwatchedError: sensors were reported, and are not any more.
        CannotRunError: none was ever reported.
    """
    sampler.poll()
    for channel, limit_c in limits_c.items():
        celsius = sampler.newest(channel)
        if celsius is not None and celsius > limit_c:
            raise OverheatedError(
                f"{channel} is {celsius:g}, and the run ends above {limit_c:g}",
                "let it cool down, check the fan, then go on with resume=True; the limit is max_temperature_c=",
            )
    silence_s = max(SILENCE_S, 3 * sampler.interval_s)
    if limits_c and all(sampler.newest(channel, silence_s) is None for channel in limits_c):
        _refuse_unwatched(sampler, list(limits_c), silence_s)


def _refuse_unwatched(sampler: Sampler, channels: Sequence[str], silence_s: float) -> None:
    """Raise the error for silent sensors: the sampler got no CPU time, has died, or its sources fail."""
    has_reported = any(sampler.newest(channel) is not None for channel in channels)
    sampler_silence_s = sampler.silence_s()
    is_starved = sampler.is_running and (not sampler.samples or sampler_silence_s > silence_s)
    if is_starved and not has_reported:
        what = f"no temperature can be watched: the telemetry sampler gave no sample in {sampler_silence_s:.0f} s"
        raise CannotRunError(what, _OVERLOADED)
    why = f"{', '.join(channels)}: {sampler.missing.get('thermal', 'each of them fails')}"
    if not has_reported:
        raise CannotRunError(f"no temperature can be watched, of {why}", NO_LIMIT_HINT)
    ended = "the load was ended, because its temperature is not watched"
    if is_starved:
        what = f"the telemetry sampler gave no sample for {sampler_silence_s:.0f} s; {ended}"
        raise UnwatchedError(what, _OVERLOADED)
    raise UnwatchedError(
        f"no sensor with a limit has reported a temperature for {silence_s:g} s, of {why}; {ended}",
        f"`jetwatt doctor` shows what can be read; go on with resume=True, {NO_LIMIT_HINT}",
    )
