"""The record of one case: minibatch times, telemetry, their aggregates, the environment and the conditions."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Sequence as AnySequence
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import Case

# phases of a minibatch: the first of a profile (C12), those before power settled (C13), and those that count
FIRST, SETTLING, CLEAN = "first", "settling", "clean"


def wall_clock() -> str:
    """Now, as ISO 8601 with offset."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


class Minibatch(NamedTuple):
    """One minibatch as it was measured.

    `start_s` is on the monotonic clock that telemetry uses too. `e2e_ms` runs from the end of the minibatch before, so
    that stall + compute + framework overhead = E2E.
    """

    epoch: int
    index: int
    phase: str
    start_s: float
    stall_ms: float
    compute_ms: float
    e2e_ms: float


class Minibatches(AnySequence):
    """The minibatches of a profile, kept as a column for each field of `Minibatch`; made when one is asked for."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        """Take columns of one length, phases as text."""
        self.columns = columns

    @classmethod
    def of(cls, minibatches: Sequence[Minibatch]) -> Minibatches:
        if isinstance(minibatches, cls):
            return minibatches
        kinds = (int, int, str, float, float, float, float)
        columns = zip(*minibatches) if minibatches else [()] * len(kinds)
        return cls({name: np.array(each, kind) for name, each, kind in zip(Minibatch._fields, columns, kinds)})

    @functools.cached_property
    def _rows(self) -> List[Minibatch]:
        return list(map(Minibatch, *(each.tolist() for each in self.columns.values())))

    def __len__(self) -> int:
        return len(self.columns["epoch"])

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def __iter__(self) -> Iterator[Minibatch]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnySequence) and self._rows == list(other)

    def __repr__(self) -> str:
        return repr(self._rows)

    def counted(self, whole_epochs: bool) -> np.ndarray:
        """Which are clean; where whole epochs were run, without those of epoch 0 if there is a later one (C14)."""
        clean = self.columns["phase"] == CLEAN
        later = clean & (self.columns["epoch"] > 0)
        return later if whole_epochs and later.any() else clean


class Series(NamedTuple):
    """One telemetry channel: samples and when they were taken (monotonic seconds). The unit ends the channel's name."""

    times_s: Tuple[float, ...]
    values: Tuple[float, ...]


NO_SERIES = Series((), ())


@dataclasses.dataclass(frozen=True)
class Telemetry:
    interval_s: float  # the sampling interval asked for
    real_interval_s: Optional[float] = None  # the median interval between samples; None with fewer than two samples
    lost_samples: int = 0  # ticks at which no sample was taken
    # channel name (unit last: `power_total_mw`, `cpu_other_cores`) to its samples
    series: Dict[str, Series] = dataclasses.field(default_factory=dict)
    missing: Dict[str, str] = dataclasses.field(default_factory=dict)  # source name to why it gave nothing
    # channel or source name to what its values mean (which rails a total is made of, ...)
    notes: Dict[str, str] = dataclasses.field(default_factory=dict)
    died_at_s: Optional[float] = None  # when the sampler died, if it did
    sampler_cpu_share: Optional[float] = None  # share of one core the sampler used; None where unknown


@dataclasses.dataclass(frozen=True)
class Profile:
    """What one case yields."""

    case: Case  # what was asked for
    provenance: str  # `measured`, `simulated` or `replayed`
    # what it really ran under: power mode as read back, device identity, data source and sample count, medium, cache
    # residency before and after, torch version, ... Plain values only.
    conditions: Dict[str, Any]
    minibatches: Sequence[Minibatch]  # the raw series, in order
    telemetry: Telemetry  # the raw telemetry
    # figures by name with the unit last (`minibatch_time_ms`, `power_mw`); None where there is no sensor
    aggregates: Dict[str, Optional[float]]
    flags: List[str]  # what a reader must know before trusting the figures, one short sentence each, `kind: text`
    started_at: str  # wall-clock start, ISO 8601 with offset

    @property
    def minibatch_time_ms(self) -> Optional[float]:
        """Median over the clean minibatches, end to end; None of an idle case."""
        return self.aggregates.get("minibatch_time_ms")

    @property
    def fetch_stall_ms(self) -> Optional[float]:
        """Median of the visible wait for a minibatch; None where it was not recorded."""
        return self.aggregates.get("fetch_stall_ms")

    @property
    def power_mw(self) -> Optional[float]:
        """Median over the stable samples; None without a power sensor."""
        return self.aggregates.get("power_mw")

    @property
    def counted(self) -> List[Minibatch]:
        return counted_minibatches(self.minibatches, self.case.settings.epochs is not None)


def counted_minibatches(minibatches: Sequence[Minibatch], whole_epochs: bool) -> List[Minibatch]:
    return [one for one, counts in zip(minibatches, Minibatches.of(minibatches).counted(whole_epochs)) if counts]
