"""Storage media: named by what the kernel truly tells, and proposed where a data set can lie."""

from __future__ import annotations

import json
import os
import sqlite3

import pytest

from harness.board.disk import describe, discover
from harness.core.errors import SourceUnavailableError


@pytest.fixture
def disk(tree):
    """Put a disk into sysfs, with one partition that is mounted at `/media/NAME` (a directory in the tree)."""
    mounts = []

    def add(name, place, rotational=1, filesystem="ext4", options="rw", mount_point=None, partition=True, **files):
        number = f"8:{len(mounts) + 1}"
        where = mount_point or f"/media/{name}"
        directory = f"sys/devices/{place}/{name}"
        device = f"{directory}/{name}p1" if partition else directory
        tree.write({f"{directory}/queue/rotational": rotational, **{f"{directory}/{k}": v for k, v in files.items()}})
        tree.write({f"{device}/partition": 1} if partition else {})
        tree.link(f"sys/dev/block/{number}", tree.path / device)
        (tree.path / where.lstrip("/")).mkdir(parents=True, exist_ok=True)
        mounts.append(f"{len(mounts)} 1 {number} / {where} {options} - {filesystem} /dev/{name}p1 {options}")
        tree.write({"proc/self/mountinfo": "\n".join(mounts)})
        return where

    return add


PCI = "pci0000:00/0000:00:14.0"
SATA, USB = f"{PCI}/ata1/host0/target0:0:0/0:0:0:0/block", f"{PCI}/usb2/2-1/host4/target4:0:0/4:0:0:0/block"


@pytest.mark.parametrize(
    ("name", "place", "files", "expected"),
    [
        ("nvme0n1", f"{PCI}/nvme/nvme0", {"rotational": 0}, ("nvme", False, "ssd")),
        ("sda", SATA, {"rotational": 0}, ("sata", False, "ssd")),
        ("sda", SATA, {"rotational": 1}, ("sata", True, "hdd")),
        ("sdb", USB, {"rotational": 0}, ("usb", False, "ssd")),
        # A USB stick does not say that nothing turns in it, and the kernel then says that something does.
        ("sdb", USB, {"rotational": 1}, ("usb", None, None)),
        (
            "mmcblk0",
            "platform/3400000.sdhci/mmc_host/mmc0/block",
            {"rotational": 0, "device/type": "SD"},
            ("sd", False, "sd"),
        ),
        ("mmcblk0", "platform/3460000.sdhci/block", {"rotational": 0, "device/type": "MMC"}, ("emmc", False, "emmc")),
        ("mmcblk0", "platform/3460000.sdhci/block", {"rotational": 0}, (None, None, None)),
        # The disk of a virtual machine counts as turning, whatever is below it.
        ("vda", f"{PCI}/virtio1/block", {"rotational": 1}, ("virtio", None, None)),
        ("loop3", "virtual/block", {"rotational": 0}, ("loop", None, None)),
        ("zram0", "virtual/block", {"rotational": 0}, ("memory", False, "ram")),
        ("sdc", f"{PCI}/host9/target9:0:0/9:0:0:0/block", {"rotational": 1}, ("scsi", True, "hdd")),
        ("md0", "virtual/block", {"rotational": 0}, (None, None, None)),
    ],
)
def test_a_medium_is_what_the_kernel_can_tell(tree, disk, tmp_path, name, place, files, expected):
    disk(name, place, mount_point=str(tmp_path), **files)
    medium = describe(str(tmp_path), tree.root)
    assert (medium.transport, medium.rotational, medium.kind) == expected
    assert (medium.device, medium.filesystem, medium.mount_point) == (name, "ext4", str(tmp_path))
    assert 0 < medium.free_bytes < medium.size_bytes


@pytest.mark.parametrize(
    ("filesystem", "transport", "kind"),
    [("tmpfs", "memory", "ram"), ("nfs4", "network", None), ("overlay", "overlay", None), ("fuse.strange", None, None)],
)
def test_what_is_no_disk_is_named(tree, tmp_path, filesystem, transport, kind):
    tree.write({"proc/self/mountinfo": f"1 1 0:7 / {tmp_path} rw - {filesystem} somewhere rw"})
    medium = describe(str(tmp_path), tree.root)
    assert (medium.transport, medium.rotational, medium.kind, medium.device) == (transport, None, kind, None)


def test_below_an_encrypted_volume_is_its_disk(tree, disk, tmp_path):
    disk("nvme0n1", f"{PCI}/nvme/nvme0", rotational=0)
    disk("dm-0", "virtual/block", rotational=0, mount_point=str(tmp_path), partition=False)
    tree.link(
        "sys/devices/virtual/block/dm-0/slaves/nvme0n1p1", tree.path / f"sys/devices/{PCI}/nvme/nvme0/nvme0n1/nvme0n1p1"
    )
    medium = describe(str(tmp_path), tree.root)
    assert (medium.device, medium.kind) == ("nvme0n1", "ssd")


def test_a_volume_over_several_disks_is_none_of_them(tree, disk, tmp_path):
    disk("dm-0", "virtual/block", rotational=0, mount_point=str(tmp_path), partition=False)
    for name in ("sda1", "sdb1"):
        tree.link(f"sys/devices/virtual/block/dm-0/slaves/{name}", f"../../../../{name}")
    assert describe(str(tmp_path), tree.root).kind is None


def test_in_a_chroot_the_medium_is_unknown(tree, tmp_path):
    """A chroot into a directory that is no mount point sees no mount at its `/`."""
    tree.write({"proc/self/mountinfo": "1 1 0:5 / /proc rw - proc proc rw"})
    medium = describe(str(tmp_path), tree.root)
    known = {name for name, value in medium._asdict().items() if value is not None}
    assert known == {"size_bytes", "free_bytes"}
    assert 0 < medium.free_bytes < medium.size_bytes


def test_without_proc_the_way_out_is_named(tree, tmp_path):
    with pytest.raises(SourceUnavailableError, match="mountinfo does not exist; mount /proc"):
        describe(str(tmp_path), tree.root)


def test_a_mount_with_a_name_that_is_no_utf8_hides_no_other(tree, disk, tmp_path):
    disk("sda", SATA, rotational=0, mount_point=str(tmp_path))
    mountinfo = tree.path / "proc/self/mountinfo"
    mountinfo.write_bytes(b"9 1 0:44 / /media/caf\xe9 rw - tmpfs tmpfs rw\n" + mountinfo.read_bytes())
    assert describe(str(tmp_path), tree.root).kind == "ssd"


def test_what_is_recorded_of_such_a_mount_can_be_stored(tree, disk, tmp_path):
    place = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(place)
    disk("sda", SATA, rotational=0, mount_point="/PLACE")
    mountinfo = tree.path / "proc/self/mountinfo"
    mountinfo.write_bytes(mountinfo.read_bytes().replace(b"/PLACE", place))
    medium = describe(os.fsdecode(place), tree.root)
    assert (medium.kind, medium.mount_point) == ("ssd", f"{tmp_path}/caf\N{REPLACEMENT CHARACTER}")
    text = json.dumps(medium._asdict(), ensure_ascii=False)
    assert sqlite3.connect(":memory:").execute("SELECT ?", [text]).fetchone() == (text,)


def test_a_medium_at_such_a_mount_is_proposed(tree, disk):
    disk("sda", SATA, rotational=0, mount_point="/PLACE")
    os.mkdir(os.path.join(os.fsencode(tree.path), b"caf\xe9"))
    mountinfo = tree.path / "proc/self/mountinfo"
    mountinfo.write_bytes(mountinfo.read_bytes().replace(b"/PLACE", b"/caf\xe9"))
    assert [medium.mount_point for _, medium in discover(tree.root)] == ["/caf\N{REPLACEMENT CHARACTER}"]


def test_media_are_proposed_by_kind_or_device(tree, disk):
    disk("nvme0n1", f"{PCI}/nvme/nvme0", rotational=0)
    disk("sda", SATA, rotational=0)
    disk("sdb", f"{SATA}2", rotational=1)
    disk("vda", f"{PCI}/virtio1/block", mount_point="/")
    found = {name: medium.mount_point for name, medium in discover(tree.root)}
    assert found == {"ssd": "/media/nvme0n1", "ssd2": "/media/sda", "hdd": "/media/sdb", "vda": "/"}


@pytest.mark.parametrize(
    "change",
    [
        {"options": "ro,relatime"},
        {"filesystem": "squashfs"},
        {"mount_point": "/boot/efi"},
    ],
)
def test_media_that_take_no_data_are_not_proposed(tree, disk, change):
    disk("sda", SATA, **change)
    assert discover(tree.root) == []


def test_a_file_that_a_container_has_mounted_is_not_proposed(tree, disk):
    disk("sda", SATA, mount_point="/etc/hosts")
    (tree.path / "etc/hosts").rmdir()
    tree.write({"etc/hosts": "127.0.0.1 localhost"})
    assert discover(tree.root) == []


def test_a_mount_that_another_hides_is_not_proposed(tree, disk):
    disk("sda", SATA, rotational=1, mount_point="/data")
    disk("nvme0n1", f"{PCI}/nvme/nvme0", rotational=0, mount_point="/data")
    assert [name for name, _ in discover(tree.root)] == ["ssd"]


def test_a_disk_that_is_mounted_twice_counts_at_its_shorter_path(tree, disk):
    disk("sda", SATA, mount_point="/var/lib/data")
    text = (tree.path / "proc/self/mountinfo").read_text()
    (tree.path / "data").mkdir()
    tree.write({"proc/self/mountinfo": f"{text}5 1 8:1 /deep /data rw - ext4 /dev/sdap1 rw"})
    assert [medium.mount_point for _, medium in discover(tree.root)] == ["/data"]


def test_a_place_that_this_user_may_not_write_is_not_proposed(plain_user):
    for directory in ("media/sda", "proc/self", "sys/dev/block", "sys/devices/ata1/block/sda/queue"):
        (plain_user / directory).mkdir(parents=True)
    (plain_user / "sys/devices/ata1/block/sda/queue/rotational").write_text("1\n")
    (plain_user / "sys/dev/block/8:0").symlink_to(plain_user / "sys/devices/ata1/block/sda")
    (plain_user / "proc/self/mountinfo").write_text("1 1 8:0 / /media/sda rw - ext4 /dev/sda rw\n")
    assert [name for name, _ in discover(str(plain_user))] == ["hdd"]
    (plain_user / "media/sda").chmod(0o555)
    assert discover(str(plain_user)) == []
