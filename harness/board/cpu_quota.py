"""The CPU time that a container or service may take, by the quota of its control group, and how often it ran into it.

A quota is no CPU list: the process sees every CPU, and is held up once its cores together have used their time in a
period. So a container of 1.5 cores measures neither the machine nor a core count of it.
"""

from __future__ import annotations

import itertools
import os
from typing import Iterator, Optional

from harness.board.control_groups import own_groups
from harness.board.kernel_file import read_int, read_text


def cpu_quota(root: str = "/") -> Optional[float]:
    """How many cores' time this process may take: the tightest quota of its control group and of those above.

    None where no quota is set, or none can be seen: in a container, those of groups above the container's own.

    Raises:
        SourceUnavailableError: there is no `/proc/self/mountinfo`.
        ValueError: a quota is not of the form that the kernel documents; names it.
    """
    return min(filter(None, map(_quota_of, _groups(root))), default=None)


def throttled_periods(root: str = "/") -> Optional[int]:
    """In how many periods so far this process's control group, or one above, had used up its quota and had to wait.

    What grows during a profile slowed that profile down, even where others of the same group used the time.
    Counted since the groups were made; None where no group that is seen counts them.

    Raises:
        SourceUnavailableError: there is no `/proc/self/mountinfo`.
    """
    stats = filter(_is_shown, (os.path.join(group, "cpu.stat") for group in _groups(root)))
    known = [count for count in map(parse_throttled, map(read_text, stats)) if count is not None]
    return sum(known) if known else None


def parse_cpu_max(text: str) -> Optional[float]:
    """Cores by the text of a `cpu.max`, quota and period in microseconds; None for `max`, no quota.

    Raises:
        ValueError: it is not of that form.
    """
    try:
        quota, period = text.split()
        return None if quota == "max" else int(quota) / int(period)
    except ValueError:
        raise ValueError(f"a cpu.max holds {text!r}, not a quota and a period in microseconds") from None


def parse_throttled(text: str) -> Optional[int]:
    """`nr_throttled` of the text of a `cpu.stat`; None where it is not in it, as in that of the topmost group."""
    counts = dict(line.split() for line in text.splitlines())
    return int(counts["nr_throttled"]) if "nr_throttled" in counts else None


def _groups(root: str) -> Iterator[str]:
    """The directories of all groups whose quota counts for this process, in cgroup v2, v1 or both."""
    return itertools.chain.from_iterable(own_groups(root, "cpu"))


def _quota_of(group: str) -> Optional[float]:
    limit, quota, period = (os.path.join(group, name) for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
    if _is_shown(limit):
        return parse_cpu_max(read_text(limit))
    if not (_is_shown(quota) and _is_shown(period)):
        return None
    quota_us = read_int(quota)
    return None if quota_us < 0 else quota_us / read_int(period)  # -1: no quota


def _is_shown(path: str) -> bool:
    """Whether the kernel, or the container, shows a file to this process."""
    return os.access(path, os.R_OK)
