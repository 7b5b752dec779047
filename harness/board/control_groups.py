"""Which control groups this process is in, version 1 or 2, and where their directories are."""

from __future__ import annotations

import os
from typing import Iterator, List, NamedTuple, Tuple

from harness.board.disk import Mount, read_mounts
from harness.board.kernel_file import read_paths


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
