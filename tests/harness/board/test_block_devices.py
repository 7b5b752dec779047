"""Which disk a path lies on, and what `/proc/diskstats` says of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.disk import find_mount, open_source, parse_mountinfo
from harness.core.errors import SourceUnavailableError

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
    return tree


def totals(disk, reads=0, sectors_read=0, writes=0, sectors_written=0, busy_ms=0):
    """`/proc/diskstats` with one line for `disk` and one for its first partition."""
    counts = f"{reads} 9 {sectors_read} 9 {writes} 9 {sectors_written} 9 0 {busy_ms} 9 0 0 0 0"
    return f" 259 0 {disk} {counts}\n 259 1 {disk}p1 1 1 1 1 1 1 1 1 1 1 1"


@pytest.mark.parametrize(
    ("path", "disk"),
    [("/media/my ssd/data", "nvme0n1"), ("/elsewhere", "mmcblk0"), ("/home/user", "sdb"), ("/crypt", "dm-0")],
)
def test_the_disk_under_a_path_is_found(board, path, disk):
    assert disk in open_source(board.root, path).notes["diskstats"]


def test_an_overlay_lies_where_its_upper_layer_does(board):
    (board.path / "media/my ssd/up").mkdir(parents=True)
    assert "nvme0n1" in open_source(board.root, "/merged/data").notes["diskstats"]


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


@pytest.mark.parametrize(
    ("path", "filesystem"), [("/dev/shm/data", "tmpfs"), ("/srv/data", "nfs4"), ("/merged/data", "overlay")]
)
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
