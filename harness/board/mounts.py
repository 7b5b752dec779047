"""Which mount a path lies on, and which block device that is, from `/proc/self/mountinfo` and sysfs."""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple, Optional

from harness.board.sensor_file import read_paths
from harness.core.errors import SourceUnavailableError

_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of `/proc/self/mountinfo`.

    Attributes:
        device_number: `major:minor`; major 0 stands for no block device of its own (tmpfs, network, overlay, btrfs).
        mount_point: where it is mounted.
        options: of this mount and of its file system.
        filesystem: its type: `ext4`, `tmpfs`, `nfs4`, ...
        source: what was mounted: `/dev/nvme0n1p1`, `server:/export`, ...
        origin: the directory of that file system which is mounted, mostly `/`.
    """

    device_number: str
    mount_point: str
    options: List[str]
    filesystem: str
    source: str
    origin: str


def parse_mountinfo(text: str) -> List[Mount]:
    """The mounts in the order in which they were made."""
    mounts = []
    for line in filter(None, text.split("\n")):  # splitlines would cut a path at what else ends a line in Unicode
        # proc(5): id, parent, major:minor, root, mount point, options, any tags; "-"; type, source, super options
        before, _, after = line.partition(" - ")
        _, _, device_number, origin, mount_point, options, *_ = before.split(" ")
        filesystem, source, super_options = after.split(" ")
        mounts.append(
            Mount(
                device_number,
                _unescape(mount_point),
                [_unescape(option) for option in [*options.split(","), *super_options.split(",")]],
                filesystem,
                _unescape(source),
                _unescape(origin),
            )
        )
    return mounts


def _unescape(text: str) -> str:
    r"""The kernel writes a space in a path as `\040`."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), text)


def read_mounts(root: str) -> List[Mount]:
    """The mounts that this process sees, their paths as `os.fsdecode` gives them.

    Raises:
        SourceUnavailableError: there is no `/proc/self/mountinfo`.
    """
    path = os.path.join(root, "proc/self/mountinfo")
    try:
        return parse_mountinfo(read_paths(path))
    except FileNotFoundError as error:
        raise SourceUnavailableError(f"{path} does not exist", "mount /proc") from error


def printable(path: str) -> str:
    """A path with a replacement character for each byte that is no UTF-8: for records and messages, not for opening."""
    return os.fsencode(path).decode("utf-8", errors="replace")


def mount_of(path: str, mounts: List[Mount]) -> Mount:
    """The mount that holds `path`, an absolute path without links.

    Raises:
        SourceUnavailableError: no mount holds it.
    """
    mount = find_mount(path, mounts)
    if mount is None:
        raise SourceUnavailableError(f"no mount in /proc/self/mountinfo holds {printable(path)}")
    return mount


def find_mount(path: str, mounts: List[Mount]) -> Optional[Mount]:
    """The mount that holds `path`, as `mount_of`; None where no mount does: a chroot sees no mount at its `/`."""
    holding = [mount for mount in mounts if os.path.commonpath([path, mount.mount_point]) == mount.mount_point]
    # The deepest holds it; of two at the same place the later hides the earlier.
    deepest = max(enumerate(holding), key=lambda entry: (len(entry[1].mount_point), entry[0]), default=None)
    return None if deepest is None else deepest[1]


def below_overlay(mount: Mount, mounts: List[Mount], root: str) -> Mount:
    """The mount that takes the writes of an overlay; `mount` itself where it is none, or its layers are not visible.

    In a container the layers lie outside, so that nothing here tells which disk they are on.
    """
    layers = [option[len("upperdir=") :] for option in mount.options if option.startswith("upperdir=")]
    if mount.filesystem != "overlay" or not layers or not os.path.isdir(os.path.join(root, layers[0].lstrip("/"))):
        return mount
    return find_mount(os.path.join("/", layers[0]), mounts) or mount


def block_device(mount: Mount, root: str) -> Optional[str]:
    """The sysfs directory of the block device (partition or whole) under a mount; None where it has none."""
    if not mount.device_number.startswith("0:"):
        link = os.path.join(root, "sys/dev/block", mount.device_number)
    elif mount.source.startswith("/dev/"):
        # btrfs has a device number of its own that sysfs does not know; /dev/mapper holds links to /dev/dm-N.
        device = os.path.join(root, mount.source.lstrip("/"))
        target = os.readlink(device) if os.path.islink(device) else device
        link = os.path.join(root, "sys/class/block", os.path.basename(target))
    else:
        return None
    return os.path.realpath(link) if os.path.exists(link) else None


def whole_disk(device: str) -> str:
    """The sysfs directory of the disk that a partition is part of; a disk itself stays as it is."""
    return os.path.dirname(device) if os.path.exists(os.path.join(device, "partition")) else device
