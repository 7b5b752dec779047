"""The control groups of this process, version 1 or 2: where their directories are, and the CPU time they allow.

A quota is no CPU list: the process sees every CPU, and is held up once its cores together have used their time in a
period. So a container of 1.5 cores measures neither the machine nor a core count of it.
"""

from __future__ import annotations

import itertools
import os
from typing import Iterator, List, Optional

from harness.board.disk import Mount, read_mounts
from harness.board.kernel_file import may_read, read_int, read_paths, read_text


def own_groups(root: str, controller: str) -> Iterator[List[str]]:
    """For each hierarchy of cgroup v1 or v2 that may have a controller (`cpu`, `blkio`) the groups of this process.

    Its own directory first, then those above it, as far up as they are seen; none where the group itself is not seen.
    """
    path = os.path.join(root, "proc/self/cgroup")
    if not may_read(path):
        return
    mounts = read_mounts(root)
    # cgroups(7): hierarchy number, comma list of controllers (none for version 2), path; the path may hold anything
    for line in filter(None, read_paths(path).split("\n")):
        _, controllers, group = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            directories = group_directories(group, mounts, controller if controllers else None)
            yield [os.path.join(root, directory.lstrip("/")) for directory in directories]


def group_directories(group: str, mounts: List[Mount], controller: Optional[str]) -> List[str]:
    """Where a group is mounted, and those above it, its own first; `controller` is None in version 2."""
    for mount in mounts:
        is_shown = mount.filesystem == "cgroup2" if controller is None else mount.filesystem == "cgroup"
        has_it = controller is None or controller in mount.options
        if is_shown and has_it and os.path.commonpath([group, mount.origin]) == mount.origin:
            below = os.path.relpath(group, mount.origin)
            names = [] if below == os.curdir else below.split(os.sep)
            return [os.path.join(mount.mount_point, *names[:depth]) for depth in range(len(names), -1, -1)]
    return []


def cpu_quota(root: str = "/") -> Optional[float]:
    """How many cores' time this process may take, by its groups' tightest quota; None where none is set or seen."""
    groups = itertools.chain.from_iterable(own_groups(root, "cpu"))
    return min(filter(None, map(_quota_of, groups)), default=None)


def _quota_of(group: str) -> Optional[float]:
    limit, quota, period = (os.path.join(group, name) for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
    if may_read(limit):
        return parse_cpu_max(read_text(limit))
    if not (may_read(quota) and may_read(period)):
        return None
    quota_us = read_int(quota)
    return None if quota_us < 0 else quota_us / read_int(period)  # -1: no quota


def parse_cpu_max(text: str) -> Optional[float]:
    """Cores by the text of a `cpu.max`, quota and period in microseconds; None for `max`, no quota."""
    try:
        quota, period = text.split()
        return None if quota == "max" else int(quota) / int(period)
    except ValueError:
        raise ValueError(f"a cpu.max holds {text!r}, not a quota and a period in microseconds") from None


def throttled_periods(root: str = "/") -> Optional[int]:
    """In how many periods so far the groups of this process had used up their quota, and had to wait; None: not told.

    What grows during a profile slowed that profile down, even where others of the same group used the time.
    """
    stats = (os.path.join(group, "cpu.stat") for group in itertools.chain.from_iterable(own_groups(root, "cpu")))
    counts = [dict(line.split() for line in read_text(path).splitlines()) for path in stats if may_read(path)]
    known = [int(count["nr_throttled"]) for count in counts if "nr_throttled" in count]
    return sum(known) if known else None
