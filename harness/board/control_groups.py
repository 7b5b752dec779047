"""The control groups of this process, version 1 or 2: where their directories are, and the CPU time they allow.

A quota is no CPU list: the process sees every CPU, and is held up once its cores together have used their time in a
period. So a container of 1.5 cores measures neither the machine nor a core count of it.
"""

from __future__ import annotations

import itertools
import os
from typing import Iterator, List, NamedTuple, Optional, Tuple

from harness.board.disk import Mount, read_mounts
from harness.board.kernel_file import read_int, read_paths, read_text


class Membership(NamedTuple):
    """One line of `/proc/self/cgroup`: where this process is in one hierarchy."""

    controllers: Tuple[str, ...]  # of the hierarchy; none for the one of cgroup v2
    path: str  # the group, from the hierarchy's top as this process sees it


def own_groups(root: str, controller: str) -> Iterator[List[str]]:
    """The groups in which a controller (`cpu`, `blkio`) may hold for this process, in cgroup v1, v2 or both.

    Yields:
        For each hierarchy that may have the controller the directory of this process's group, then of those above it,
        as far up as they are seen; none where the group itself is not seen.

    Raises:
        SourceUnavailableError: there is no `/proc/self/mountinfo`.
    """
    path = os.path.join(root, "proc/self/cgroup")
    if not os.access(path, os.R_OK):
        return
    mounts = read_mounts(root)
    for membership in parse_memberships(read_paths(path)):
        if not membership.controllers or controller in membership.controllers:
            directories = group_directories(membership, mounts, controller)
            yield [os.path.join(root, directory.lstrip("/")) for directory in directories]


def parse_memberships(text: str) -> List[Membership]:
    """The text of a `/proc/<pid>/cgroup`."""
    # cgroups(7): hierarchy number, comma list of controllers, path; the path may hold anything
    fields = [line.split(":", 2) for line in text.split("\n") if line]
    return [Membership(tuple(filter(None, controllers.split(","))), path) for _, controllers, path in fields]


def group_directories(membership: Membership, mounts: List[Mount], controller: str) -> List[str]:
    """Where a group is mounted, and those above it, the group itself first; empty where it is not seen."""
    for mount in mounts:
        if membership.controllers:
            is_shown = mount.filesystem == "cgroup" and controller in mount.options
        else:
            is_shown = mount.filesystem == "cgroup2"
        if is_shown and os.path.commonpath([membership.path, mount.origin]) == mount.origin:
            below = os.path.relpath(membership.path, mount.origin)
            names = [] if below == os.curdir else below.split(os.sep)
            return [os.path.join(mount.mount_point, *names[:depth]) for depth in range(len(names), -1, -1)]
    return []


def cpu_quota(root: str = "/") -> Optional[float]:
    """How many cores' time this process may take: the tightest quota of its control group and of those above.

    None where no quota is set, or none can be seen: in a container, those of groups above the container's own.

    Raises:
        SourceUnavailableError: there is no `/proc/self/mountinfo`.
        ValueError: a quota is not of the form that the kernel documents; names it.
    """
    groups = itertools.chain.from_iterable(own_groups(root, "cpu"))
    return min(filter(None, map(_quota_of, groups)), default=None)


def throttled_periods(root: str = "/") -> Optional[int]:
    """In how many periods so far this process's control group, or one above, had used up its quota and had to wait.

    What grows during a profile slowed that profile down, even where others of the same group used the time. Counted
    since the groups were made; None where no group that is seen counts them. Raises SourceUnavailableError where there
    is no `/proc/self/mountinfo`.
    """
    stats = filter(
        _is_shown, (os.path.join(group, "cpu.stat") for group in itertools.chain.from_iterable(own_groups(root, "cpu")))
    )
    known = [count for count in map(parse_throttled, map(read_text, stats)) if count is not None]
    return sum(known) if known else None


def parse_cpu_max(text: str) -> Optional[float]:
    """Cores by the text of a `cpu.max`, quota and period in microseconds; None for `max`, no quota.

    Raises ValueError where it is not of that form.
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


def _quota_of(group: str) -> Optional[float]:
    limit, quota, period = (os.path.join(group, name) for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
    if _is_shown(limit):
        return parse_cpu_max(read_text(limit))
    if not (_is_shown(quota) and _is_shown(period)):
        return None
    quota_us = read_int(quota)
    return None if quota_us < 0 else quota_us / read_int(period)  # -1: no quota


def _is_shown(path: str) -> bool:
    return os.access(path, os.R_OK)
