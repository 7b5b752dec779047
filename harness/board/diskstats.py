"""Block I/O of the disk that a path lies on, from `/proc/diskstats` (M10; what iostat reads)."""

from __future__ import annotations

import os
from typing import Dict

from harness.board.counters import Counters
from harness.board.mounts import below_overlay, block_device, mount_of, printable, read_mounts, whole_disk
from harness.board.sensor_file import read_text
from harness.board.source import Reading
from harness.core.errors import SourceUnavailableError
from harness.core.units import BYTES_PER_SECTOR, ms_to_s


def parse_diskstats(text: str, disk: str) -> Dict[str, float]:
    """The totals of one disk since boot, by the channel that their growth goes to.

    Raises:
        ValueError: the disk is not in the text.
    """
    for line in text.splitlines():
        _major, _minor, name, *fields = line.split()
        if name == disk:
            # admin-guide/iostats: reads, merged, sectors, ms; writes, merged, sectors, ms; in flight, busy ms
            reads, _, sectors_read, _, writes, _, sectors_written, _, _, busy_ms = (int(field) for field in fields[:10])
            return {
                "disk_reads_per_s": reads,
                "disk_read_bytes_per_s": sectors_read * BYTES_PER_SECTOR,
                "disk_writes_per_s": writes,
                "disk_write_bytes_per_s": sectors_written * BYTES_PER_SECTOR,
                "disk_busy_share": ms_to_s(busy_ms),
            }
    raise ValueError(f"/proc/diskstats has no line for {disk}")


class DiskSource:
    """Rates of one disk since the reading before, whoever caused them."""

    def __init__(self, path: str, disk: str) -> None:
        """Reads the lines of `disk` in the file `path`, a `/proc/diskstats`."""
        self._path = path
        self._disk = disk
        self._counters = Counters()
        self.notes = {
            "diskstats": f"requests to {disk} after merging, by every process of the machine",
            "disk_busy_share": f"share of the time in which {disk} had a request in flight",
        }

    def read(self, now_s: float) -> Reading:
        """All channels; none at the first reading."""
        growth = self._counters.growth(now_s, parse_diskstats(read_text(self._path), self._disk))
        if growth is None:
            return Reading({}, {})
        window_s, grown = growth
        rates = {channel: amount / window_s for channel, amount in grown.items()}
        return Reading(
            {channel: rate for channel, rate in rates.items() if rate >= 0},
            {channel: f"the counter of {self._disk} was reset" for channel, rate in rates.items() if rate < 0},
        )


def open_source(root: str, path: str) -> DiskSource:
    """The disk under `path`.

    Raises:
        SourceUnavailableError: `path` lies on no block device of this machine; says on what it lies.
    """
    mounts = read_mounts(root)
    mount = below_overlay(mount_of(os.path.realpath(path), mounts), mounts, root)
    device = block_device(mount, root)
    if device is None:
        source = printable(mount.source)
        raise SourceUnavailableError(
            f"{printable(path)} lies on {mount.filesystem} ({source}), which shows no block device here",
            "for block I/O choose a storage on a disk of this machine",
        )
    return DiskSource(os.path.join(root, "proc/diskstats"), os.path.basename(whole_disk(device)))
