"""Storage media: what a path lies on, and which media of this machine a data set could lie on."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from typing import Dict, List, Optional, Tuple

from harness.board.mounts import (
    Mount,
    below_overlay,
    block_device,
    find_mount,
    mount_of,
    printable,
    read_mounts,
    whole_disk,
)
from harness.board.sensor_file import read_text

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "fuse.sshfs", "virtiofs")
_IN_MEMORY = ("tmpfs", "ramfs")
_NOT_FOR_DATA = ("squashfs", "iso9660", "erofs")  # images of software, never written


@dataclasses.dataclass(frozen=True)
class Medium:
    """A storage medium, as far as the kernel tells.

    Attributes:
        mount_point: where it is mounted, as text that can be stored and printed; None where no mount is seen.
        device: the disk's name (`nvme0n1`); None where there is no block device.
        transport: `nvme`, `sata`, `usb`, `sd`, `emmc`, `virtio`, `loop`, `scsi`, `memory`, `network`,
            `overlay` (a container's own files, wherever they lie), or None where it is not told.
        rotational: whether the disk turns; None where nobody can tell.
        kind: `ssd`, `hdd`, `sd`, `emmc`, `ram`; None where it cannot be told, as for the disk of a virtual machine.
        filesystem: `ext4`, ...; None where no mount is seen.
        size_bytes: of the file system.
        free_bytes: of it, for a user without privileges.
    """

    mount_point: Optional[str]
    device: Optional[str]
    transport: Optional[str]
    rotational: Optional[bool]
    kind: Optional[str]
    filesystem: Optional[str]
    size_bytes: int
    free_bytes: int


def describe(path: str, root: str = "/") -> Medium:
    """The medium that `path` lies on; in a chroot, where no mount holds it, all but the space is unknown.

    Args:
        path: a file or directory that is there.
        root: the directory below which `/sys` and `/proc` are looked for.

    Raises:
        SourceUnavailableError: there is no `/proc/self/mountinfo`.
        OSError: the path is not there.
    """
    mounts = read_mounts(root)
    path = os.path.realpath(path)
    return _medium(find_mount(path, mounts), mounts, os.statvfs(path), root)


def discover(root: str = "/") -> List[Tuple[str, Medium]]:
    """The media of this machine on which this user can put a data set, each with a proposed name: `ssd`, `sd`, `ssd2`.

    Each file system counts once, at its shortest mount point. A medium of unknown kind is named for its device.
    """
    mounts = read_mounts(root)
    shortest: Dict[str, Mount] = {}
    for mount in mounts:
        device = block_device(mount, root)
        hidden = mount_of(mount.mount_point, mounts) is not mount
        if device is None or hidden or mount.filesystem in _NOT_FOR_DATA or not _holds_data(mount, root):
            continue
        known = shortest.setdefault(device, mount)
        shortest[device] = min(known, mount, key=lambda candidate: len(candidate.mount_point))
    found: Dict[str, Medium] = {}
    for mount in shortest.values():
        medium = _medium(mount, mounts, os.statvfs(_below(root, mount.mount_point)), root)
        name = medium.kind or medium.device
        numbered = itertools.chain([name], (f"{name}{number}" for number in itertools.count(2)))
        found[next(candidate for candidate in numbered if candidate not in found)] = medium
    return list(found.items())


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _holds_data(mount: Mount, root: str) -> bool:
    place = _below(root, mount.mount_point)
    for_booting = mount.mount_point.startswith("/boot")
    # A container has single files (/etc/hosts) mounted from a disk.
    return (
        "ro" not in mount.options
        and not for_booting
        and os.path.isdir(place)
        and os.access(place, os.W_OK, effective_ids=True)
    )


def _medium(mount: Optional[Mount], mounts: List[Mount], space: os.statvfs_result, root: str) -> Medium:
    size_bytes, free_bytes = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    if mount is None:
        return Medium(None, None, None, None, None, None, size_bytes, free_bytes)
    below = below_overlay(mount, mounts, root)
    device = block_device(below, root)
    disk = None if device is None else _physical_disk(whole_disk(device))
    if disk is not None:
        transport, rotational = _transport(disk), _rotational(disk)
    else:
        transport, rotational = _transport_without_disk(below.filesystem), None
    return Medium(
        mount_point=printable(mount.mount_point),
        device=None if disk is None else os.path.basename(disk),
        transport=transport,
        rotational=rotational,
        kind=_kind(transport, rotational),
        filesystem=mount.filesystem,
        size_bytes=size_bytes,
        free_bytes=free_bytes,
    )


def _physical_disk(disk: str) -> str:
    """Below an encrypted or logical volume on a single disk, that disk; of several disks none stands for all."""
    below = os.path.join(disk, "slaves")
    names = os.listdir(below) if os.path.isdir(below) else []
    if len(names) != 1:
        return disk
    return _physical_disk(whole_disk(os.path.realpath(os.path.join(below, names[0]))))


def _transport(disk: str) -> Optional[str]:
    """How a disk is attached, from its place in sysfs: `.../ata1/host0/.../block/sda` hangs on an ATA port."""
    name = os.path.basename(disk)
    if name.startswith("mmcblk"):
        # Documentation/driver-api/mmc: the card says whether it is MMC (soldered: eMMC) or SD
        kind = os.path.join(disk, "device/type")
        return {"MMC": "emmc", "SD": "sd"}.get(read_text(kind)) if os.path.isfile(kind) else None
    for pattern, transport in (
        (r"/nvme\d+", "nvme"),
        (r"/usb\d+/", "usb"),
        (r"/ata\d+/", "sata"),
        (r"/virtio\d+/", "virtio"),
        (r"/loop\d+$", "loop"),
        (r"/zram\d+$", "memory"),
        (r"/host\d+/", "scsi"),
    ):
        if re.search(pattern, disk):
            return transport
    return None


def _rotational(disk: str) -> Optional[bool]:
    """What the disk says of itself; None for one that hides what is below it, or whose silence counts as turning."""
    path = os.path.join(disk, "queue/rotational")
    transport = _transport(disk)
    if transport in (None, "virtio", "loop") or not os.path.exists(path):
        return None
    turns = read_text(path) == "1"
    # Most USB bridges and sticks do not say that nothing turns in them.
    return None if transport == "usb" and turns else turns


def _transport_without_disk(filesystem: str) -> Optional[str]:
    if filesystem in _IN_MEMORY:
        return "memory"
    if filesystem in _NETWORK:
        return "network"
    return "overlay" if filesystem == "overlay" else None


def _kind(transport: Optional[str], rotational: Optional[bool]) -> Optional[str]:
    if transport in ("sd", "emmc"):
        return transport
    if transport == "memory":
        return "ram"
    if rotational is None:
        return None
    return "hdd" if rotational else "ssd"
