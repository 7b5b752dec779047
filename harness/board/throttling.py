"""From telemetry to when, how long and by what a board was throttled."""

from __future__ import annotations

import re
from typing import Iterator, List, Mapping, NamedTuple, Optional

from harness.core.profiles import Series

_CHANNEL = re.compile(r"throttle_(?P<by>\w+)_(?P<unit>state|events)")


class Throttling(NamedTuple):
    """A time during which something throttled the board.

    Attributes:
        start_s: from when, in monotonic seconds.
        end_s: until when.
        by: what did it: `cpu_throttle_alert`, `oc3`, ...
        events: how many events were counted; None where there is a state and no count.
    """

    start_s: float
    end_s: float
    by: str
    events: Optional[int] = None

    def text(self, origin_s: float = 0.0) -> str:
        """In words, its times counted from `origin_s`: `throttled from 12.0 s to 15.5 s by oc3 (4 events)`."""
        words = f"throttled from {self.start_s - origin_s:.1f} s to {self.end_s - origin_s:.1f} s by {self.by}"
        return words if self.events is None else f"{words} ({self.events} event{'s' if self.events != 1 else ''})"


def throttled_times(series: Mapping[str, Series]) -> List[Throttling]:
    """Every time of throttling, by its start.

    Telemetry samples: a state lasts from the sample that first shows it to the first that does not, or to the last
    sample; an event lies somewhere between the sample before it and the one that counts it. Times of one cause that
    touch are one. The sum of all counters speaks only where it has no parts.

    Args:
        series: channel to samples; of interest are those named `throttle_..._state` and `throttle_..._events`.
    """
    found: List[Throttling] = []
    channels = {channel: match for channel, match in ((c, _CHANNEL.fullmatch(c)) for c in series) if match}
    parts = [channel for channel, match in channels.items() if re.fullmatch(r"oc\d+", match.group("by"))]
    for channel, match in channels.items():
        if match.group("by") == "overcurrent" and parts:
            continue
        read = _events if match.group("unit") == "events" else _states
        found.extend(read(series[channel], match.group("by")))
    return sorted(found, key=lambda throttling: throttling[:3])


def _states(series: Series, by: str) -> Iterator[Throttling]:
    start_s = None
    for time_s, value in zip(series.times_s, series.values):
        if value > 0 and start_s is None:
            start_s = time_s
        elif value <= 0 and start_s is not None:
            yield Throttling(start_s, time_s, by)
            start_s = None
    if start_s is not None:
        yield Throttling(start_s, series.times_s[-1], by)


def _events(series: Series, by: str) -> Iterator[Throttling]:
    current: Optional[Throttling] = None
    samples = list(zip(series.times_s, series.values))
    for (before_s, before), (time_s, count) in zip(samples, samples[1:]):
        grown = round(count - before)
        if grown > 0 and current is not None and current.end_s == before_s:
            current = current._replace(end_s=time_s, events=current.events + grown)
        elif grown > 0:
            if current is not None:
                yield current
            current = Throttling(before_s, time_s, by, grown)
    if current is not None:
        yield current
