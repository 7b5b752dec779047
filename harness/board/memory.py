"""Memory of the whole machine, from `/proc/meminfo`."""

from __future__ import annotations

import os

from harness.board.kernel_file import read_text
from harness.board.source import Reading, Source
from harness.core.errors import SourceUnavailableError
from harness.core.units import kib_to_bytes

_CHANNELS = {
    "memory_used_bytes": ({"MemTotal": 1, "MemAvailable": -1}, "MemTotal - MemAvailable"),
    "memory_available_bytes": ({"MemAvailable": 1}, "MemAvailable: what can be allocated without swapping"),
    "page_cache_bytes": (
        {"Cached": 1, "Buffers": 1, "Shmem": -1},
        "Cached + Buffers - Shmem: file pages, without tmpfs and shared memory",
    ),
    "swap_used_bytes": ({"SwapTotal": 1, "SwapFree": -1}, "SwapTotal - SwapFree"),
}
"""Channel to the fields whose sum it is, and what that means."""


def open_source(root: str) -> Source:
    path = os.path.join(root, "proc/meminfo")
    if not os.path.exists(path):
        raise SourceUnavailableError(f"{path} does not exist", "mount /proc")

    def read(now_s: float) -> Reading:
        pairs = (line.partition(":")[::2] for line in read_text(path).splitlines())
        # what has no unit is no size (huge-page counts)
        fields = {name: kib_to_bytes(int(value.split()[0])) for name, value in pairs if value.endswith(" kB")}
        values, failed = {}, {}
        for channel, (terms, _) in _CHANNELS.items():
            absent = [name for name in terms if name not in fields]
            if absent:
                failed[channel] = f"{path} has no {', '.join(absent)}"
            else:
                values[channel] = sum(sign * fields[name] for name, sign in terms.items())
        return Reading(values, failed)

    return Source({channel: note for channel, (_, note) in _CHANNELS.items()}, read)
