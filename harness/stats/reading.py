"""What each epoch reads: cached share when it begins, bytes and requests to the disk, stall over time (E6)."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from harness.core.metrics import epoch_sums, integral
from harness.core.profiles import Profile, Series


class Reading(NamedTuple):
    """One epoch of a run."""

    epoch: int  # its number
    start_s: float  # when it ran, from the start of the first one
    end_s: float
    stall_s: float  # its fetch stall
    cached_share: Optional[float]  # of the data set in the page cache when it began; None where that is not known
    read_bytes: Optional[float]  # from the disk meanwhile, by any process; None without that telemetry
    reads: Optional[float]  # requests to the disk meanwhile; None likewise


def reading_by_epoch(profile: Profile) -> List[Reading]:
    """The epochs of a profile, in order."""
    sums = epoch_sums(profile.minibatches)
    shares = profile.conditions.get("cache_residency_by_epoch") or []
    series, nothing = profile.telemetry.series, Series((), ())
    found = []
    for place, epoch in enumerate(sums):
        bytes_per_s = series.get("disk_read_bytes_per_s", nothing)
        reads_per_s = series.get("disk_reads_per_s", nothing)
        found.append(
            Reading(
                epoch=epoch.epoch,
                start_s=epoch.start_s - sums[0].start_s,
                end_s=epoch.end_s - sums[0].start_s,
                stall_s=epoch.stall_s,
                cached_share=shares[place] if place < len(shares) else profile.conditions.get("cache_residency_before"),
                read_bytes=integral(bytes_per_s.times_s, bytes_per_s.values, epoch.start_s, epoch.end_s),
                reads=integral(reads_per_s.times_s, reads_per_s.values, epoch.start_s, epoch.end_s),
            )
        )
    return found
