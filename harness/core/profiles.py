"""The record of one case: minibatch times, telemetry, their aggregates, the conditions, and which flags disqualify."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Sequence as AnySequence
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import Case
from harness.core.terminal import counted

# phases of a minibatch: the first of a profile (C12), those before power settled (C13), and the rest, which count
FIRST, SETTLING, CLEAN = "first", "settling", "clean"


TRAINED_BY = "trained_by"
"""The condition that says what ran the minibatches if not the suite's own loop; such profiles compare with their like
only."""

CALLER = "caller"
"""As `TRAINED_BY`: a loop of the user's own, measured by `measuring`."""


def wall_clock() -> str:
    """The current time, as ISO 8601 with offset."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


class Minibatch(NamedTuple):
    """A measured minibatch.

    `start_s` is on the monotonic clock, as telemetry is. `e2e_ms` starts at the end of the previous minibatch, so that
    stall + compute + framework overhead = E2E.
    """

    epoch: int  # from 0 on; in a loop of the user's own, the stretch without a pause
    # number in the profile, from 0 on
    index: int  # type: ignore[assignment]  # a tuple has a method of that name
    phase: str  # `first` of the profile, `settling` before power settled, or `clean`, which counts
    start_s: float  # when it began, in seconds of the monotonic clock
    stall_ms: float  # fetch stall; NaN if a loop of the user's own does not show it
    compute_ms: float  # forward, backward and optimizer step; NaN likewise
    e2e_ms: float  # from the end of the previous minibatch to the end of this one


class Minibatches(AnySequence):  # type: ignore[type-arg]  # Python 3.8 has no AnySequence[Minibatch]
    """The minibatches of a profile: a column for each field of `Minibatch`; rows are made on first access."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        """Take columns of equal length, phases as text."""
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
        """Mask of the clean minibatches; of whole epochs, without epoch 0 if there is a later one (C14)."""
        clean = self.columns["phase"] == CLEAN
        later = clean & (self.columns["epoch"] > 0)
        return later if whole_epochs and later.any() else clean


class Series(NamedTuple):
    """Samples of a telemetry channel with their times (monotonic seconds); its name ends in the unit."""

    times_s: Tuple[float, ...]
    values: Tuple[float, ...]


NO_SERIES = Series((), ())


@dataclasses.dataclass(frozen=True)
class Telemetry:
    interval_s: float  # the requested sampling interval
    real_interval_s: Optional[float] = None  # the median interval between samples; None with fewer than two samples
    lost_samples: int = 0  # ticks at which no sample was taken
    # channel name (unit last: `power_total_mw`, `cpu_other_cores`) to its samples
    series: Dict[str, Series] = dataclasses.field(default_factory=dict)
    missing: Dict[str, str] = dataclasses.field(default_factory=dict)  # source name to the reason
    # channel or source name to the meaning of its values (the rails in a total, ...)
    notes: Dict[str, str] = dataclasses.field(default_factory=dict)
    died_at_s: Optional[float] = None  # when the sampler died, if it did
    sampler_cpu_share: Optional[float] = None  # share of one core that the sampler used; None if unknown


@dataclasses.dataclass(frozen=True, repr=False)
class Profile:
    """The result of one case."""

    case: Case  # what was requested
    provenance: str  # `measured`, `simulated` or `replayed`
    # the actual conditions: power mode as read back, device identity, data source and sample count, medium, cache
    # residency before and after, torch version, ...; plain values only
    conditions: Dict[str, Any]
    minibatches: Sequence[Minibatch]  # the raw series, in order
    telemetry: Telemetry  # the raw telemetry
    # figures by name with the unit last (`minibatch_time_ms`, `power_mw`); None without a sensor
    aggregates: Dict[str, Optional[float]]
    flags: List[str]  # doubts about the figures, one short sentence each, `kind: text`
    started_at: str  # wall-clock start, ISO 8601 with offset

    def __repr__(self) -> str:
        figures = (("minibatch_time_ms", "ms a minibatch"), ("power_mw", "mW"))
        known = [
            f"{self.aggregates[name]:.4g} {unit}" for name, unit in figures if self.aggregates.get(name) is not None
        ]
        flags = ", ".join(flag_kinds(self.flags))
        parts = [*known, f"{len(self.minibatches)} minibatches", f"flagged {flags}" if flags else ""]
        return f"<Profile of {self.case.id} ({self.provenance}): {', '.join(filter(None, parts))}>"

    @property
    def minibatch_time_ms(self) -> Optional[float]:
        """Median over the clean minibatches, end to end; None for an idle case."""
        return self.aggregates.get("minibatch_time_ms")

    @property
    def fetch_stall_ms(self) -> Optional[float]:
        """Median of the visible wait for a minibatch; None if it was not recorded."""
        return self.aggregates.get("fetch_stall_ms")

    @property
    def power_mw(self) -> Optional[float]:
        """Median over the stable samples; None without a power sensor."""
        return self.aggregates.get("power_mw")

    @property
    def counted(self) -> List[Minibatch]:
        return counted_minibatches(self.minibatches, self.case.settings.epochs is not None)


def counted_minibatches(minibatches: Sequence[Minibatch], whole_epochs: bool) -> List[Minibatch]:
    is_counted = Minibatches.of(minibatches).counted(whole_epochs)
    return [minibatch for minibatch, counts in zip(minibatches, is_counted) if counts]


DISQUALIFYING = ("disturbed", "throttled")
"""Flags for outside influences that distort time and power, and may be gone when the case is measured again.

Not included are flags that hold for every run of their kind (`cpu-quota`, `in-memory`, `storage-unverified`), that show
in the interval of a median (`noisy`), or that concern the power only (`power-unsettled`, `lost-samples`).
"""

POWER_IS_UNSURE = ("power-unsettled", "telemetry-lost", "other-gpu")
"""Flags with which a profile's time is compared and its power is not."""

RAW_PRUNED = "raw-pruned"
"""Kind of the flag of profiles whose raw series were removed: only their aggregates are left."""


def flagged_in_words(count: int) -> str:
    """The profiles that are left out because of their flags."""
    return f"{counted(count, 'profile')} flagged {' or '.join(DISQUALIFYING)} (--include-flagged keeps them)"


def flag_kinds(flags: Iterable[str]) -> List[str]:
    """The kind of each flag: `disturbed` of `disturbed: other processes used ...`."""
    return [flag.partition(":")[0] for flag in flags]


def is_disqualified(flags: Sequence[str]) -> bool:
    """Whether a profile with these flags does not count and must be measured again."""
    return any(kind in DISQUALIFYING for kind in flag_kinds(flags))
