"""Where a control group can be made that limits what this process reads, and what such a group says.

In version 1 that is below this process's own one in the hierarchy of the controller blkio, apart from all other
controllers. In version 2 it is beside it, so that what holds above holds on.
"""

from __future__ import annotations

import itertools
import os
from typing import Dict, Iterator, List, NamedTuple

from harness.board.control_groups import own_groups
from harness.board.kernel_file import read_text
from harness.core.errors import ControlError

Limits = Dict[str, int]
"""Bytes per second by the number of a disk: `{"254:0": 20000000}`."""

MEMBERS = "cgroup.procs"
LIMITS_V1, LIMITS_V2 = "blkio.throttle.read_bps_device", "io.max"

_CONTROLLER = "blkio"
_NOT_HELD_BESIDE = ("cpu.max", "cpuset.cpus", "memory.high", "memory.max")
"""Limits of a group in version 2 that would make another machine of this one if they fell away."""


class Group(NamedTuple):
    """The group with the limit, as plain values: another process can remove it.

    Attributes:
        path: its directory.
        origin: that of the group where its processes come from and go to.
        file: the name of the file in it that takes limits.
    """

    path: str
    origin: str
    file: str


def parse_limits(text: str) -> Limits:
    """The read limits in the text of a `blkio.throttle.read_bps_device` or an `io.max`."""
    # cgroup v1: `254:0 20000000`; v2: `254:0 rbps=20000000 wbps=max riops=max wiops=max`
    limits = {}
    for number, *fields in map(str.split, text.splitlines()):
        for key, _, value in (field.rpartition("=") for field in fields):
            if key in ("", "rbps") and value != "max":
                limits[number] = int(value)
    return limits


def find_group(root: str) -> Group:
    """Where this process can make a group whose reads are limited.

    Raises:
        ControlError: nowhere; says why.
    """
    for own, *above in filter(None, own_groups(root, _CONTROLLER)):
        if os.path.exists(os.path.join(own, LIMITS_V1)):
            return _group_in(own, own, LIMITS_V1)
        if os.path.exists(os.path.join(own, "cgroup.subtree_control")):
            return _group_in(_parent_v2(own, above), own, LIMITS_V2)
    raise ControlError(
        "no control group of this process is seen that can limit reads",
        "mount the control groups; the kernel needs CONFIG_BLK_DEV_THROTTLING",
    )


def _parent_v2(own: str, above: List[str]) -> str:
    """The group above, in which one can be made beside this process's own; the top of all has room below itself.

    Raises:
        ControlError: it does not limit reads, or this process cannot go there and come back the same.
    """
    is_top_of_all = not os.path.exists(os.path.join(own, "cgroup.type"))  # a container's topmost group has a type
    if not is_top_of_all:
        if not above:
            raise ControlError("the control group above this process's own is not seen", "run outside of the container")
        lost = [name for name in _NOT_HELD_BESIDE if _is_limited(os.path.join(own, name))]
        if lost:
            raise ControlError(
                f"{', '.join(lost)} of the control group {own} would not hold beside it", "run outside of that group"
            )
        if set(members(own)) <= {os.getpid()}:
            raise ControlError(
                f"this process is alone in the control group {own}, which the system may remove once it is empty",
                "start it from a shell",
            )
    parent = own if is_top_of_all else above[0]
    handed_down = os.path.join(parent, "cgroup.subtree_control")
    if "io" not in read_text(handed_down).split():
        raise ControlError(
            f"{handed_down} has no io, so groups there cannot limit reads",
            f"if that machine is yours: `echo +io | sudo tee {handed_down}`",
        )
    return parent


def _group_in(parent: str, origin: str, file: str) -> Group:
    closed = [
        path
        for path in (parent, *(os.path.join(group, MEMBERS) for group in (parent, origin)))
        if not os.access(path, os.W_OK, effective_ids=True)
    ]
    if closed:
        raise ControlError(f"{closed[0]} may not be written by this user", "run as root, outside of containers")
    return Group(os.path.abspath(os.path.join(parent, f"jetwatt-reads-{os.getpid()}")), os.path.abspath(origin), file)


def limits_above(root: str, file: str) -> Iterator[Limits]:
    """The limits of this process's own group and of those above it.

    Args:
        root: the directory below which `/proc` and `/sys` are looked for.
        file: the name of the file in which they stand.
    """
    for directory in itertools.chain.from_iterable(own_groups(root, _CONTROLLER)):
        path = os.path.join(directory, file)
        if os.path.exists(path):
            yield parse_limits(read_text(path))


def limits_of(group: Group) -> Limits:
    """The limits of a group; none of one that was made and not limited yet."""
    return parse_limits(read_text(os.path.join(group.path, group.file)))


def _is_limited(path: str) -> bool:
    text = read_text(path) if os.path.exists(path) else ""
    return bool(text) and not text.startswith("max")


def members(group: str) -> List[int]:
    """The processes of a group; without those of other PID namespaces, which all show as 0."""
    return [int(text) for text in read_text(os.path.join(group, MEMBERS)).split() if text != "0"]
