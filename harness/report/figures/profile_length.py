"""E18: how many minibatches a profile needs, and what they cost (001 sec. 2.5)."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.metrics import POWER_CHANNEL, quartiles
from harness.core.profiles import Profile, Series
from harness.core.units import share_to_percent
from harness.devices.simulated import INSTANCE_MARK
from harness.report.colours import listed
from harness.report.figure import CATEGORY, LINEAR, LOG, Axis, Curve, Figure, Panel, joined
from harness.report.figure import Series as Entry
from harness.report.scales import figure_text
from harness.report.selection import Material, by_defaults, device_name, file_name, trained
from harness.stats.profile_length import stretches_of
from harness.store.rows import Record

LENGTHS = (10, 15, 20, 25, 30, 40)
"""Minibatches; the papers take 40, and show that fewer would do (001 sec. 2.5)."""

MOST = 400
"""Minibatches of a profile that are looked at: a board is not the same for hours."""


class Length(NamedTuple):
    """What profiles of so many minibatches would have said: medians and third quartiles of errors in %."""

    minibatches: int
    time_error_pct: float
    time_error_q3_pct: float
    power_error_pct: Optional[float]
    power_error_q3_pct: Optional[float]
    without_power_pct: Optional[float]
    seconds: float


COLUMNS = ("device", "workload", "power_mode", "batch_size", "of_minibatches", *Length._fields, "provenance")


QUANTITIES = (
    ("time", "error of the median time (%)", LINEAR, "time_error_pct", "time_error_q3_pct"),
    ("power", "error of the mean power (%)", LINEAR, "power_error_pct", "power_error_q3_pct"),
    ("what it costs", "time of the minibatches (s)", LOG, "seconds", None),
)
"""Title, axis, and fields of the median and the whisker's end."""


def profile_length_figures(material: Material) -> List[Figure]:
    """A figure for each device: errors of time and power by length, and how long such a profile runs."""
    chosen: Dict[Tuple[str, str], Record] = {}
    for record in trained(material.records):
        is_first = INSTANCE_MARK not in record.case.device  # of several simulated boards of a type
        if is_first and (record.aggregates.get("clean_minibatches") or 0) >= max(LENGTHS):
            place = (device_name(record), record.case.workload)
            before = chosen.get(place)
            if before is None or _rank(record) >= _rank(before):
                chosen[place] = record
    devices: Dict[str, List[Profile]] = {}
    for (device, _), record in chosen.items():
        devices.setdefault(device, []).append(material.store.profile(record.id))
    return [_figure(device, profiles) for device, profiles in devices.items()]


def _rank(record: Record) -> Tuple[float, int]:
    """The longest first, up to what is looked at; of those the papers' defaults."""
    return min(record.aggregates.get("clean_minibatches") or 0.0, float(MOST)), by_defaults(record)


def _figure(device: str, profiles: Sequence[Profile]) -> Figure:
    found = [_lengths(profile) for profile in profiles]
    panels = []
    for title, label, kind, field, high in QUANTITIES:
        curves = tuple(
            _curve(profile, lengths, (place, len(profiles)), field, high)
            for place, (profile, lengths) in enumerate(zip(profiles, found))
            if any(getattr(one, field) is not None for one in lengths)
        )
        if curves:
            axes = Axis("minibatches of a profile", CATEGORY, tuple(map(str, LENGTHS))), Axis(label, kind)
            panels.append(Panel(title, *axes, curves, joined(profile.provenance for profile in profiles)))
    caption = (
        "E18: how many minibatches does a profile need? By how many % the median time and the mean power of a stretch"
        " are off those of all clean minibatches of the profile, over all stretches of that length: median, whisker up"
        " to the third quartile; and the seconds that such a stretch takes (logarithmic), without the first minibatch"
        f" and the settling before it. Of each profile at most the first {MOST} minibatches; a stretch that is as long"
        " as the profile has no error by definition. Dashed: simulated. The CSV file has the share of stretches"
        " without a sample of power."
    )
    series = tuple(Entry(profile.case.workload, listed(place), place) for place, profile in enumerate(profiles))
    rows = tuple(_row(device, profile, one) for profile, lengths in zip(profiles, found) for one in lengths)
    name, title = f"profile-length-{file_name(device)}", f"Length of a profile on {device}"
    return Figure(name, title, caption, tuple(panels), series, COLUMNS, rows)


def _lengths(profile: Profile) -> List[Length]:
    counted = profile.counted[:MOST]
    measured = POWER_CHANNEL in profile.telemetry.series
    found = []
    for length in LENGTHS:
        stretches = stretches_of(counted, profile.telemetry.series.get(POWER_CHANNEL, Series((), ())), length)
        times = quartiles([share_to_percent(error) for error in stretches.time_errors])
        known = [share_to_percent(error) for error in stretches.power_errors if not math.isnan(error)]
        powers = quartiles(known) if known else (None,) * 3
        without = share_to_percent(stretches.without_power) if measured else None
        seconds = float(np.median(stretches.seconds))
        found.append(Length(length, *times[1:], *powers[1:], without, seconds))
    return found


def _curve(
    profile: Profile, lengths: Sequence[Length], place: Tuple[int, int], field: str, high: Optional[str]
) -> Curve:
    """The curve of a profile that is at a place among so many, its whiskers beside those of the others."""
    number, count = place
    known = [(at, one, y) for at, one in enumerate(lengths) for y in [getattr(one, field)] if y is not None]
    unit = "s" if field == "seconds" else "%"
    told = ", ".join(f"{figure_text(y)} {unit} of {one.minibatches}" for _, one, y in known)
    ys = tuple(y for _, _, y in known)
    return Curve(
        listed(number),
        tuple(at + (number - (count - 1) / 2) * 0.6 / count for at, _, _ in known),
        ys,
        f"{profile.case.workload}: {told} minibatches; {profile.provenance}",
        dashed=profile.provenance == "simulated",
        marker=number,
        lows=ys,
        highs=tuple(getattr(one, high) for _, one, _ in known) if high else (),
    )


def _row(device: str, profile: Profile, one: Length) -> Tuple[Any, ...]:
    case = profile.case
    count = min(len(profile.counted), MOST)
    return (device, case.workload, case.power_mode, case.batch_size, count, *one, profile.provenance)
