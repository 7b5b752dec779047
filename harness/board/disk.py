"""Disks: the mount and disk of a path, the kind of medium, and its block I/O.

From `/proc/self/mountinfo`, sysfs and `/proc/diskstats` (M10; what iostat reads).
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from harness.board.kernel_file import path_below, read_paths, read_text, text_of
from harness.board.source import Counters, Reading, Source, numbered_names
from harness.core.errors import SourceUnavailableError
from harness.core.units import BYTES_PER_SECTOR, ms_to_s

_DISKLESS = {
    **dict.fromkeys(("tmpfs", "ramfs"), "memory"),
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "fuse.sshfs"), "network"),
    "virtiofs": "network",
    "overlay": "overlay",
}
"""File system to transport, of those without a block device."""


# -- mounts and block devices ------------------------------------------------------------------------------------------


class Mount(NamedTuple):
    device_number: str  # `major:minor`; major 0: no block device of its own (tmpfs, network, overlay, btrfs)
    mount_point: str
    options: List[str]  # of this mount and of its file system
    filesystem: str  # `ext4`, `tmpfs`, `nfs4`, ...
    source: str  # what was mounted: `/dev/nvme0n1p1`, `server:/export`, ...
    origin: str  # the directory of that file system which is mounted, mostly `/`


def read_mounts(root: str) -> List[Mount]:
    path = os.path.join(root, "proc/self/mountinfo")
    try:
        return parse_mountinfo(read_paths(path))
    except FileNotFoundError as error:
        raise SourceUnavailableError(f"{path} does not exist", "mount /proc") from error


def parse_mountinfo(text: str) -> List[Mount]:
    def plain(word: str) -> str:
        r"""The kernel writes a space in a path as `\040`."""
        return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)

    mounts = []
    for line in filter(None, text.split("\n")):  # splitlines would cut a path at what else ends a line in Unicode
        # proc(5): id, parent, major:minor, root, mount point, options, any tags; "-"; type, source, super options
        before, _, after = line.partition(" - ")
        _, _, device_number, origin, mount_point, options, *_ = before.split(" ")
        filesystem, source, super_options = after.split(" ")
        every_option = [plain(option) for option in [*options.split(","), *super_options.split(",")]]
        mounts.append(Mount(device_number, plain(mount_point), every_option, filesystem, plain(source), plain(origin)))
    return mounts


def printable(path: str) -> str:
    """A path with a replacement character for each byte that is not UTF-8: to record and to print, not to open."""
    return os.fsencode(path).decode("utf-8", errors="replace")


def find_mount(path: str, mounts: List[Mount]) -> Optional[Mount]:
    """The mount that contains `path`, an absolute path without links; None if no mount does, as at a chroot's `/`."""
    holding = [mount for mount in mounts if os.path.commonpath([path, mount.mount_point]) == mount.mount_point]
    # The deepest holds it; of two at the same place the later hides the earlier.
    deepest = max(enumerate(holding), key=lambda entry: (len(entry[1].mount_point), entry[0]), default=None)
    return None if deepest is None else deepest[1]


def disk_under(path: str, root: str) -> str:
    """The sysfs directory of the whole disk under `path`; SourceUnavailableError names what else it lies on."""
    mounts = read_mounts(root)
    mount = find_mount(os.path.realpath(path), mounts)
    if mount is None:
        raise SourceUnavailableError(f"no mount in /proc/self/mountinfo holds {printable(os.path.realpath(path))}")
    mount, disk = _written_to(mount, mounts, root)
    if disk is None:
        source = printable(mount.source)
        what = f"{printable(path)} lies on {mount.filesystem} ({source}), which shows no block device here"
        raise SourceUnavailableError(what, "for block I/O choose a storage on a disk of this machine")
    return disk


def _written_to(mount: Mount, mounts: List[Mount], root: str) -> Tuple[Mount, Optional[str]]:
    """The mount that takes the writes of an overlay, else the mount itself; and its disk, None in a container."""
    layers = [option[len("upperdir=") :] for option in mount.options if option.startswith("upperdir=")]
    if mount.filesystem == "overlay" and layers and os.path.isdir(path_below(root, layers[0])):
        mount = find_mount(os.path.join("/", layers[0]), mounts) or mount
    return mount, _whole_disk(_block_device(mount, root))


def _block_device(mount: Mount, root: str) -> Optional[str]:
    if not mount.device_number.startswith("0:"):
        link = path_below(root, os.path.join("sys/dev/block", mount.device_number))
    elif mount.source.startswith("/dev/"):
        # btrfs has a device number of its own that sysfs does not know; /dev/mapper holds links to /dev/dm-N.
        device = os.path.join(root, mount.source.lstrip("/"))
        target = os.readlink(device) if os.path.islink(device) else device
        link = os.path.join(root, "sys/class/block", os.path.basename(target))
    else:
        return None
    return os.path.realpath(link) if os.path.exists(link) else None


def _whole_disk(device: Optional[str]) -> Optional[str]:
    if device is not None and os.path.exists(os.path.join(device, "partition")):
        return os.path.dirname(device)
    return device


# -- storage media -----------------------------------------------------------------------------------------------------


class Medium(NamedTuple):
    """A storage medium; None for what the kernel does not report, as for the disk of a virtual machine."""

    mount_point: Optional[str]  # as text that can be stored and printed
    device: Optional[str]  # the disk's name: `nvme0n1`
    transport: Optional[str]  # of `_TRANSPORTS` and `_DISKLESS`, `sd` or `emmc`
    rotational: Optional[bool]
    kind: Optional[str]  # `ssd`, `hdd`, `sd`, `emmc`, `ram`
    filesystem: Optional[str]  # `ext4`, ...
    size_bytes: int  # of the file system
    free_bytes: int  # of it, for a user without privileges


def describe(path: str, root: str = "/") -> Medium:
    """The medium of `path`; in a chroot, where no mount contains it, all but the space is unknown."""
    mounts = read_mounts(root)
    path = os.path.realpath(path)
    return _medium(find_mount(path, mounts), mounts, os.statvfs(path), root)


def discover(root: str = "/") -> List[Tuple[str, Medium]]:
    """The media on which this user can put a data set, at their shortest mount points: `ssd`, `ssd2`, `sd`."""
    mounts = read_mounts(root)
    shortest: Dict[str, Mount] = {}
    for mount in mounts:
        device = _block_device(mount, root)
        if device is None:
            continue  # so no network share is touched, which would hang while its server is away
        place = path_below(root, mount.mount_point)
        takes_data = (
            find_mount(mount.mount_point, mounts) is mount
            and mount.filesystem not in ("squashfs", "iso9660", "erofs")  # images of software, never written
            and "ro" not in mount.options
            and not mount.mount_point.startswith("/boot")
            and os.path.isdir(place)  # a container has single files (/etc/hosts) mounted from a disk
            and os.access(place, os.W_OK, effective_ids=True)
        )
        if takes_data:
            shorter = shortest.setdefault(device, mount)
            shortest[device] = min(shorter, mount, key=lambda candidate: len(candidate.mount_point))
    media: Dict[str, Medium] = {}
    for mount in shortest.values():
        medium = _medium(mount, mounts, os.statvfs(path_below(root, mount.mount_point)), root)
        name = medium.kind or medium.device
        assert name is not None, "a mount with a block device lies on a disk"
        media[next(numbered for numbered in numbered_names(name) if numbered not in media)] = medium
    return list(media.items())


def _medium(mount: Optional[Mount], mounts: List[Mount], space: os.statvfs_result, root: str) -> Medium:
    size_bytes, free_bytes = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    if mount is None:
        return Medium(None, None, None, None, None, None, size_bytes, free_bytes)
    below, disk = _written_to(mount, mounts, root)
    disk = _physical_disk(disk)
    transport, rotational = _attached(disk) if disk else (_DISKLESS.get(below.filesystem), None)
    kind = {True: "hdd", False: "ssd", None: None}[rotational]
    if transport is not None:
        kind = {"sd": "sd", "emmc": "emmc", "memory": "ram"}.get(transport, kind)
    return Medium(
        mount_point=printable(mount.mount_point),
        device=None if disk is None else os.path.basename(disk),
        transport=transport,
        rotational=rotational,
        kind=kind,
        filesystem=mount.filesystem,
        size_bytes=size_bytes,
        free_bytes=free_bytes,
    )


def _physical_disk(disk: Optional[str]) -> Optional[str]:
    """The disk below an encrypted or logical volume, if it is a single one: of several none represents all."""
    slaves = os.path.join(disk or "", "slaves")
    names = os.listdir(slaves) if disk is not None and os.path.isdir(slaves) else []
    if len(names) != 1:
        return disk
    return _physical_disk(_whole_disk(os.path.realpath(os.path.join(slaves, names[0]))))


_TRANSPORTS = {
    r"/nvme\d+": "nvme",
    r"/usb\d+/": "usb",
    r"/ata\d+/": "sata",
    r"/virtio\d+/": "virtio",
    r"/loop\d+$": "loop",
    r"/zram\d+$": "memory",
    r"/host\d+/": "scsi",
}
"""By a disk's place in sysfs: `.../ata1/host0/.../block/sda` hangs on an ATA port."""


def _attached(disk: str) -> Tuple[Optional[str], Optional[bool]]:
    """How a disk is attached, and whether it rotates; None if that is unknown or unreliable."""
    transport = next((name for pattern, name in _TRANSPORTS.items() if re.search(pattern, disk)), None)
    if os.path.basename(disk).startswith("mmcblk"):
        # Documentation/driver-api/mmc: the card reports whether it is MMC (soldered: eMMC) or SD
        transport = {"MMC": "emmc", "SD": "sd"}.get(text_of(os.path.join(disk, "device/type")))
    rotational = text_of(os.path.join(disk, "queue/rotational"))
    # Most USB bridges and sticks report themselves as rotational.
    is_hidden = transport in (None, "virtio", "loop") or (transport == "usb" and rotational == "1")
    return transport, None if is_hidden or not rotational else rotational == "1"


# -- block I/O ---------------------------------------------------------------------------------------------------------


def parse_diskstats(text: str, disk: str) -> Dict[str, float]:
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


def open_source(root: str, path: str) -> Source:
    """Rates of the disk under `path`, of all processes, since the previous reading; none at the first."""
    file, disk, counters = os.path.join(root, "proc/diskstats"), os.path.basename(disk_under(path, root)), Counters()

    def read(now_s: float) -> Reading:
        growth = counters.growth(now_s, parse_diskstats(read_text(file), disk))
        if growth is None:
            return Reading({}, {})
        window_s, grown = growth
        return Reading(
            {channel: amount / window_s for channel, amount in grown.items() if amount >= 0},
            {channel: f"the counter of {disk} was reset" for channel, amount in grown.items() if amount < 0},
        )

    notes = {
        "diskstats": f"requests to {disk} after merging, by every process of the machine",
        "disk_busy_share": f"share of the time in which {disk} had a request in flight",
    }
    return Source(notes, read)
