"""What the sampler wrote so far, put together into series and, at the end, into a `Telemetry`."""

from __future__ import annotations

import collections
import json
import math
import os
import statistics
from typing import Any, DefaultDict, Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.profiles import Series, Telemetry

SAMPLER = "sampler"
"""The name under which `Telemetry.missing` speaks of the sampler itself."""

_READ_BYTES = 1 << 20


class _Failure(NamedTuple):
    """Why something gave no value, since when, and how often."""

    why: str
    first_s: float
    count: int


class Record:
    """Takes in the sampler's lines as they come.

    A line that is not complete is left for the next time: a sampler killed while it writes loses that one sample.

    Args:
        sources: names of the sources that were asked for.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        """Nothing is known yet."""
        self._sources = list(sources)
        self._offset = 0
        self._opened = False
        self._notes: Dict[str, str] = {}
        self._missing: Dict[str, str] = {}
        self._times_s: List[float] = []
        self._series: DefaultDict[str, Tuple[List[float], List[float]]] = collections.defaultdict(lambda: ([], []))
        self._source_of: Dict[str, str] = {}
        self._failures: Dict[str, _Failure] = {}
        self._last_sample: Dict[str, Any] = {"lost": 0, "cpu_s": 0.0, "last": False}

    def take_in(self, fd: int) -> int:
        """Read the lines that were added to the file `fd` and return how many samples they hold."""
        samples_before = len(self._times_s)
        while True:
            block = os.pread(fd, _READ_BYTES, self._offset)
            complete = block[: block.rfind(b"\n") + 1]
            if not complete:
                return len(self._times_s) - samples_before
            self._offset += len(complete)
            for text in complete.splitlines():
                line = json.loads(text)
                if self._opened:
                    self._add(line)
                else:
                    self._notes, self._missing, self._opened = line["notes"], line["missing"], True

    def _add(self, sample: Dict[str, Any]) -> None:
        time_s = sample["time_s"]
        self._times_s.append(time_s)
        self._last_sample = sample
        for source, values in sample["values"].items():
            for channel, value in values.items():
                owner = self._source_of.setdefault(channel, source)
                if owner == source:
                    times, samples = self._series[channel]
                    times.append(time_s)
                    samples.append(value)
                else:
                    self._missing[f"{source}: {channel}"] = f"{owner} gives this channel too, and comes first"
        for name, why in sample["failed"].items():
            earlier = self._failures.get(name, _Failure(why, time_s, 0))
            self._failures[name] = earlier._replace(count=earlier.count + 1)

    @property
    def missing(self) -> Dict[str, str]:
        """The sources that could not be opened, and why."""
        return self._missing

    def series(self, channel: str) -> Optional[Series]:
        """The samples of one channel so far; None where it has none."""
        if channel not in self._series:
            return None
        times, values = self._series[channel]
        return Series(tuple(times), tuple(values))

    def newest(self, channel: str) -> Optional[float]:
        """The newest value of one channel; None where it has none yet."""
        return self._series[channel][1][-1] if channel in self._series else None

    def telemetry(self, interval_s: float, started_s: float, stopped_s: float, how_it_ended: str) -> Telemetry:
        """All that was seen.

        Args:
            interval_s: the interval asked for.
            started_s: when the sampler was started.
            stopped_s: when it was told to stop.
            how_it_ended: what is known of the end of its process, for the case that it died.
        """
        times_s = self._times_s
        lost = self._last_sample["lost"]
        died_at_s = None
        missing = {**self._missing, **self._silent_sources(), **self._failed_channels()}
        if not self._last_sample["last"]:
            died_at_s = times_s[-1] if times_s else started_s
            lost += max(0, math.floor((stopped_s - died_at_s) / interval_s))
            missing[SAMPLER] = f"died, last seen {died_at_s - started_s:.1f} s after its start: {how_it_ended}"
        gaps_s = [later - earlier for earlier, later in zip(times_s, times_s[1:])]
        sampled_s = sum(gaps_s)
        return Telemetry(
            interval_s=interval_s,
            real_interval_s=statistics.median(gaps_s) if gaps_s else None,
            lost_samples=lost,
            series={channel: Series(tuple(times), tuple(values)) for channel, (times, values) in self._series.items()},
            missing=missing,
            notes=self._notes,
            died_at_s=died_at_s,
            sampler_cpu_share=self._last_sample["cpu_s"] / sampled_s if sampled_s else None,
        )

    def _silent_sources(self) -> Dict[str, str]:
        """Sources that were opened and gave no value at all."""
        heard = set(self._source_of.values())
        count = len(self._times_s)
        return {
            source: f"gave no value in {count} samples"
            for source in self._sources
            if source not in heard and source not in self._missing
        }

    def _failed_channels(self) -> Dict[str, str]:
        samples = len(self._times_s)
        return {
            name: f"{why} ({count} of {samples} samples, the first {first_s - self._times_s[0]:.1f} s after the start)"
            for name, (why, first_s, count) in self._failures.items()
        }
