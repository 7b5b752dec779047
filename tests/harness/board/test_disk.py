"""The disk under a path, its block I/O, and storage media: only what the kernel truly tells, and where data can lie."""

from __future__ import annotations

import json
import os
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.disk import describe, discover, find_mount, open_source, parse_mountinfo
from harness.core.errors import ControlError, SourceUnavailableError

NVME = "sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1"
MOUNTINFO = """\
27 1 179:1 / / rw,relatime - ext4 /dev/root rw
28 27 0:25 / /dev/shm rw shared:3 - tmpfs tmpfs rw,size=24684092k
29 27 259:1 / /media/my\\040ssd rw,relatime shared:7 master:1 - ext4 /dev/nvme0n1p1 rw
30 27 0:40 /@home /home rw - btrfs /dev/sdb2 rw,subvol=/@home
31 27 0:50 / /srv rw - nfs4 server:/export rw,vers=4.2
32 27 0:51 / /merged rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/media/my\\040ssd/up,workdir=/w
33 27 254:0 / /crypt rw - ext4 /dev/mapper/vault rw"""


@pytest.fixture
def board(tree):
    """A board with an SD card, an NVMe disk with a partition, a btrfs disk and an encrypted volume."""
    tree.write(
        {
            "proc/self/mountinfo": MOUNTINFO,
            f"{NVME}/nvme0n1p1/partition": 1,
            "sys/devices/platform/sdhci/mmcblk0/mmcblk0p1/partition": 1,
            "sys/devices/pci/ata1/host0/block/sdb/sdb2/partition": 2,
            "sys/devices/virtual/block/dm-0/dm/name": "vault",
        }
    )
    tree.link("sys/dev/block/259:1", tree.path / NVME / "nvme0n1p1")
    tree.link("sys/dev/block/179:1", tree.path / "sys/devices/platform/sdhci/mmcblk0/mmcblk0p1")
    tree.link("sys/dev/block/254:0", tree.path / "sys/devices/virtual/block/dm-0")
    tree.link("sys/class/block/sdb2", tree.path / "sys/devices/pci/ata1/host0/block/sdb/sdb2")
    tree.write({"proc/diskstats": totals("nvme0n1")})
    (tree.path / "media/my ssd/up").mkdir(parents=True)
    return tree


def totals(disk, reads=0, sectors_read=0, writes=0, sectors_written=0, busy_ms=0):
    """`/proc/diskstats` with one line for `disk` and one for its first partition."""
    counts = f"{reads} 9 {sectors_read} 9 {writes} 9 {sectors_written} 9 0 {busy_ms} 9 0 0 0 0"
    return f" 259 0 {disk} {counts}\n 259 1 {disk}p1 1 1 1 1 1 1 1 1 1 1 1"


@pytest.mark.parametrize(
    ("path", "disk"),
    [
        ("/media/my ssd/data", "nvme0n1"),
        ("/elsewhere", "mmcblk0"),
        ("/home/user", "sdb"),
        ("/crypt", "dm-0"),
        ("/merged/data", "nvme0n1"),
    ],  # an overlay lies where its upper layer does
)
def test_the_disk_under_a_path_is_found(board, path, disk):
    assert disk in open_source(board.root, path).notes["diskstats"]


def test_mounts_that_a_record_names_outside_of_its_tree_are_refused(board):
    outside = board.path.parent / "outside"
    (outside / "queue").mkdir(parents=True)
    number = os.path.relpath(outside, board.path / "sys/dev/block")
    board.write({"proc/self/mountinfo": f"1 1 {number} / / rw - ext4 /dev/sda1 rw"})
    with pytest.raises(ControlError, match="leads out of"):
        describe("/", board.root)
    board.write({"proc/self/mountinfo": "1 1 259:1 / /../outside rw - ext4 /dev/sda1 rw"})
    with pytest.raises(ControlError, match="leads out of"):
        discover(board.root)


@pytest.mark.parametrize("upper", ["/up", "up"])
def test_an_overlay_whose_layer_no_mount_holds_is_on_no_disk(board, upper):
    """In a chroot."""
    (board.path / "up").mkdir()
    overlay = f"1 1 0:51 / /merged rw - overlay overlay rw,lowerdir=/a,upperdir={upper},workdir=/w"
    board.write({"proc/self/mountinfo": overlay})
    with pytest.raises(SourceUnavailableError, match="/merged/data lies on overlay"):
        open_source(board.root, "/merged/data")


def test_a_line_of_the_table_ends_where_the_kernel_ends_it():
    [mount] = parse_mountinfo("1 1 0:5 /origin /a\N{NEXT LINE}b rw - ext4 /dev/x rw\n")
    assert (mount.mount_point, mount.origin) == ("/a\N{NEXT LINE}b", "/origin")


def test_a_source_that_is_no_utf8_is_said_in_letters(board):
    line = b"1 1 0:50 / /srv rw - nfs4 server:/caf\xe9 rw\n"
    (board.path / "proc/self/mountinfo").write_bytes(line)
    with pytest.raises(SourceUnavailableError, match="server:/caf\N{REPLACEMENT CHARACTER}"):
        open_source(board.root, "/srv/data")


@pytest.mark.parametrize(("path", "filesystem"), [("/dev/shm/data", "tmpfs"), ("/srv/data", "nfs4")])
def test_what_lies_on_no_disk_of_this_machine_is_said(board, path, filesystem):
    with pytest.raises(SourceUnavailableError, match=f"{path} lies on {filesystem}"):
        open_source(board.root, path)


def test_rates_are_of_the_whole_disk_since_the_reading_before(board):
    source = open_source(board.root, "/media/my ssd")
    assert source.read(0.0) == ({}, {})
    board.write({"proc/diskstats": totals("nvme0n1", 10, 80, 20, 4000, busy_ms=500)})
    assert source.read(2.0).values == {
        "disk_reads_per_s": 5,
        "disk_read_bytes_per_s": 80 * 512 / 2,
        "disk_writes_per_s": 10,
        "disk_write_bytes_per_s": 4000 * 512 / 2,
        "disk_busy_share": 0.25,
    }


def test_a_reset_counter_gives_no_rate(board):
    board.write({"proc/diskstats": totals("nvme0n1", reads=10)})
    source = open_source(board.root, "/media/my ssd")
    source.read(0.0)
    board.write({"proc/diskstats": totals("nvme0n1", reads=3, busy_ms=100)})
    values, failed = source.read(1.0)
    assert set(failed) == {"disk_reads_per_s"}
    assert values["disk_busy_share"] == pytest.approx(0.1)


def test_a_disk_that_was_pulled_out_is_an_error(board):
    source = open_source(board.root, "/media/my ssd")
    board.write({"proc/diskstats": totals("sda")})
    with pytest.raises(ValueError, match="no line for nvme0n1"):
        source.read(0.0)


def mountinfo(*mount_points):
    return parse_mountinfo(
        "\n".join(f"{i} 1 0:{i} / {point} rw - ext4 /dev/x rw" for i, point in enumerate(mount_points))
    )


def test_of_two_mounts_at_one_place_the_later_is_seen():
    assert find_mount("/a/b", mountinfo("/", "/a", "/a", "/ab")).device_number == "0:2"


def test_a_path_that_no_mount_holds_is_an_error(board):
    board.write({"proc/self/mountinfo": "1 1 0:1 / /b rw - ext4 /dev/x rw"})
    with pytest.raises(SourceUnavailableError, match=r"no mount .* holds /a$"):
        open_source(board.root, "/a")


names = st.lists(st.sampled_from("ab"), max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(st.lists(names, max_size=6), names)
def test_the_mount_of_a_path_is_the_deepest_that_holds_it(points, path):
    mounts = mountinfo("/", *points)
    found = find_mount(path, mounts).mount_point
    holding = [point for point in ["/", *points] if point == "/" or f"{path}/".startswith(f"{point}/")]
    assert found == max(holding, key=len)


# -- storage media ---------------------------------------------------------------------------------------------------


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
        ("mmcblk0", "platform/3400000.sdhci/block", {"rotational": 0, "device/type": "SD"}, ("sd", False, "sd")),
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


def test_a_medium_at_a_mount_that_is_no_utf8_is_proposed_and_can_be_stored(tree, disk):
    disk("sda", SATA, rotational=0, mount_point="/PLACE")
    place, mountinfo = os.fsencode(tree.path) + b"/caf\xe9", tree.path / "proc/self/mountinfo"
    os.mkdir(place)
    told = mountinfo.read_bytes()
    mountinfo.write_bytes(told.replace(b"/PLACE", b"/caf\xe9"))
    assert [medium.mount_point for _, medium in discover(tree.root)] == ["/caf\N{REPLACEMENT CHARACTER}"]
    mountinfo.write_bytes(told.replace(b"/PLACE", place))
    medium = describe(os.fsdecode(place), tree.root)
    assert (medium.kind, medium.mount_point) == ("ssd", f"{tree.path}/caf\N{REPLACEMENT CHARACTER}")
    text = json.dumps(medium._asdict(), ensure_ascii=False)
    assert sqlite3.connect(":memory:").execute("SELECT ?", [text]).fetchone() == (text,)


def test_media_are_proposed_by_kind_or_device(tree, disk):
    disk("nvme0n1", f"{PCI}/nvme/nvme0", rotational=0)
    disk("sda", SATA, rotational=0)
    disk("sdb", f"{SATA}2", rotational=1)
    disk("vda", f"{PCI}/virtio1/block", mount_point="/")
    found = {name: medium.mount_point for name, medium in discover(tree.root)}
    assert found == {"ssd": "/media/nvme0n1", "ssd2": "/media/sda", "hdd": "/media/sdb", "vda": "/"}


@pytest.mark.parametrize(
    "change",
    [{"options": "ro"}, {"filesystem": "squashfs"}, {"mount_point": "/boot/efi"}, {"mount_point": "/etc/hosts"}],
    ids=["read-only", "squashfs", "EFI", "a file that a container has mounted"],
)  # fmt: skip
def test_media_that_take_no_data_are_not_proposed(tree, disk, change):
    disk("sda", SATA, **change)
    if change.get("mount_point") == "/etc/hosts":
        (tree.path / "etc/hosts").rmdir()
        tree.write({"etc/hosts": "127.0.0.1 localhost"})
    assert discover(tree.root) == []


def test_a_share_whose_server_may_be_away_is_not_asked(tree, disk, monkeypatch):
    asked, is_folder = [], os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: asked.append(path) or is_folder(path))
    disk("sda", SATA, rotational=0)
    told = (tree.path / "proc/self/mountinfo").read_text()
    (tree.path / "srv").mkdir()
    tree.write({"proc/self/mountinfo": f"{told}31 27 0:50 / /srv rw - nfs4 server:/export rw"})
    assert [name for name, _ in discover(tree.root)] == ["ssd"]
    assert f"{tree.path}/srv" not in asked


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


def test_a_place_that_this_user_may_not_write_is_not_proposed(tree_in, plain_user):
    tree = tree_in(plain_user)
    (tree.path / "media/sda").mkdir(parents=True)
    tree.write({"sys/devices/ata1/block/sda/queue/rotational": 1})
    tree.link("sys/dev/block/8:0", tree.path / "sys/devices/ata1/block/sda")
    tree.write({"proc/self/mountinfo": "1 1 8:0 / /media/sda rw - ext4 /dev/sda rw"})
    assert [name for name, _ in discover(tree.root)] == ["hdd"]
    (tree.path / "media/sda").chmod(0o555)
    assert discover(tree.root) == []
