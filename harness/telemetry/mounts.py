"""Which mount a path lies on, and which block device that is, from `/proc/self/mountinfo` and sysfs."""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple, Optional

from harness.errors import SourceUnavailableError
from harness.telemetry.kernel_file import read_text

_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of `/proc/self/mountinfo`.

    Attributes:
        device_number: `major:minor`; major 0 stands for no block device of its own (tmpfs, network, overlay, btrfs).
        mount_point: where it is mounted.
        options: of this mount and of its file system.
        filesystem: its type: `ext4`, `tmpfs`, `nfs4`, ...
        source: what was mounted: `/dev/nvme0n1p1`, `server:/export`, ...
    """

    device_number: str
    mount_point: str
    options: List[str]
    filesystem: str
    source: str


def parse_mountinfo(text: str) -> List[Mount]:
    """The mounts in the order in which they were made."""
    mounts = []
    for line in text.splitlines():
        # proc(5): id, parent, major:minor, root, mount point, options, any tags; "-"; type, source, super options
        before, _, after = line.partition(" - ")
        _, _, device_number, _, mount_point, options, *_ = before.split(" ")
        filesystem, source, super_options = after.split(" ")
        mounts.append(
            Mount(
                device_number,
                _unescape(mount_point),
                [_unescape(option) for option in [*options.split(","), *super_options.split(",")]],
                filesystem,
                _unescape(source),
            )
        )
    return mounts


def _unescape(text: str) -> str:
    r"""The kernel writes a space in a path as `\040`."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), text)


def read_mounts(root: str) -> List[Mount]:
    """The mounts that this process sees."""
    return parse_mountinfo(read_text(os.path.join(root, "proc/self/mountinfo")))


def mount_of(path: str, mounts: List[Mount]) -> Mount:
    """The mount that holds `path`, an absolute path without links.

    Raises:
        SourceUnavailableError: no mount holds it.
    """
    holding = [mount for mount in mounts if os.path.commonpath([path, mount.mount_point]) == mount.mount_point]
    if not holding:
        raise SourceUnavailableError(f"no mount in /proc/self/mountinfo holds {path}")
    # The deepest holds it; of two at the same place the later hides the earlier.
    return max(enumerate(holding), key=lambda entry: (len(entry[1].mount_point), entry[0]))[1]


def below_overlay(mount: Mount, mounts: List[Mount], root: str) -> Mount:
    """The mount that takes the writes of an overlay; `mount` itself where it is none, or its layers are not visible.

    In a container the layers lie outside, so that nothing here tells which disk they are on.
    """
    layers = [option[len("upperdir=") :] for option in mount.options if option.startswith("upperdir=")]
    if mount.filesystem != "overlay" or not layers or not os.path.isdir(os.path.join(root, layers[0].lstrip("/"))):
        return mount
    return mount_of(layers[0], mounts)


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
