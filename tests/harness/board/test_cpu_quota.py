"""A container's CPU quota is found, the tightest of all groups above it, in both versions of control groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.control_groups import cpu_quota, group_directories, parse_cpu_max, throttled_periods
from harness.board.disk import parse_mountinfo

V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/cpu,cpuacct"
V2_MOUNT = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "31 1 0:27 {origin} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
MEMORY_MOUNT = "32 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"


@pytest.fixture
def v2(tree):
    """A service two groups deep, without quotas."""
    tree.write({"proc/self/cgroup": "0::/user.slice/job.service", "proc/self/mountinfo": V2_MOUNT})
    for group in (f"{V2}/user.slice", f"{V2}/user.slice/job.service"):
        tree.write({f"{group}/cpu.max": "max 100000", f"{group}/cpu.stat": stat(0)})
    tree.write({f"{V2}/cpu.stat": "usage_usec 5\nuser_usec 3\nsystem_usec 2"})  # as at the real top
    return tree


@pytest.fixture
def v1(tree):
    """A container of Docker, whose own group is all that it sees of the hierarchy."""
    tree.write(
        {
            "proc/self/cgroup": "9:memory:/docker/c0ffee\n4:cpu,cpuacct:/docker/c0ffee\n1:name=systemd:/docker/c0ffee",
            "proc/self/mountinfo": f"{MEMORY_MOUNT}\n{V1_MOUNT.format(origin='/docker/c0ffee')}",
            f"{V1}/cpu.cfs_quota_us": -1,
            f"{V1}/cpu.cfs_period_us": 100000,
            f"{V1}/cpu.stat": stat(0),
        }
    )
    return tree


def stat(throttled):
    return f"nr_periods 100\nnr_throttled {throttled}\nthrottled_usec 12"


@pytest.mark.parametrize("machine", ["v1", "v2"])
def test_without_a_quota_there_is_none(machine, request):
    root = request.getfixturevalue(machine).root
    assert cpu_quota(root) is None
    assert throttled_periods(root) == 0


def test_the_tightest_quota_on_the_way_up_counts(v2):
    v2.write({f"{V2}/user.slice/job.service/cpu.max": "400000 100000"})
    assert cpu_quota(v2.root) == 4.0
    v2.write({f"{V2}/user.slice/cpu.max": "75000 50000"})
    assert cpu_quota(v2.root) == 1.5


def test_a_neighbours_quota_does_not_count(v2):
    v2.write({f"{V2}/user.slice/other.service/cpu.max": "10000 100000"})
    assert cpu_quota(v2.root) is None


def test_a_container_is_the_top_of_what_it_sees(v2):
    v2.write({"proc/self/cgroup": "0::/", f"{V2}/cpu.max": "50000 100000", f"{V2}/cpu.stat": stat(7)})
    assert cpu_quota(v2.root) == 0.5
    assert throttled_periods(v2.root) == 7


def test_a_container_finds_its_group_at_the_mount_point(v1):
    v1.write({f"{V1}/cpu.cfs_quota_us": 150000, f"{V1}/cpu.stat": stat(3)})
    assert cpu_quota(v1.root) == 1.5
    assert throttled_periods(v1.root) == 3


def test_below_the_mount_of_version_1_the_way_up_counts_too(v1):
    v1.write(
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/a:b/c\n0::/",
            "proc/self/mountinfo": V1_MOUNT.format(origin="/"),
            f"{V1}/a:b/cpu.cfs_quota_us": 200000,
            f"{V1}/a:b/cpu.cfs_period_us": 100000,
            f"{V1}/a:b/c/cpu.cfs_quota_us": 300000,
            f"{V1}/a:b/c/cpu.cfs_period_us": 100000,
        }
    )
    assert cpu_quota(v1.root) == 2.0


def test_both_versions_at_once_are_looked_at(v1):
    """The hybrid layout of systemd: the CPU controller is in version 1, and version 2 has groups without one."""
    unified = V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    mounts = (v1.path / "proc/self/mountinfo").read_text()
    groups = (v1.path / "proc/self/cgroup").read_text()
    v1.write({"proc/self/mountinfo": mounts + unified, "proc/self/cgroup": f"{groups}0::/docker/c0ffee"})
    v1.write({f"{V1}/cpu.cfs_quota_us": 100000, "sys/fs/cgroup/unified/docker/c0ffee/cgroup.procs": 1})
    assert cpu_quota(v1.root) == 1.0


def test_every_group_that_was_held_up_counts(v2):
    v2.write({f"{V2}/user.slice/cpu.stat": stat(5), f"{V2}/user.slice/job.service/cpu.stat": stat(2)})
    assert throttled_periods(v2.root) == 7


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "0::/elsewhere", "proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/sda1 rw"},
        {"proc/self/cgroup": "2:cpu:/beside", "proc/self/mountinfo": V1_MOUNT.format(origin="/docker/c0ffee")},
        {"proc/self/cgroup": "0::/", "proc/self/mountinfo": V2_MOUNT, f"{V2}/cgroup.procs": 1},
    ],
    ids=["no control groups", "not mounted", "another group is mounted", "no CPU controller"],
)
def test_what_is_not_seen_is_not_known(tree, files):
    tree.write(files)
    assert cpu_quota(tree.root) is None
    assert throttled_periods(tree.root) is None


def test_a_group_may_be_called_anything(tree):
    name = b"sys/fs/cgroup/b\xe9rt"
    tree.write({"proc/self/mountinfo": V2_MOUNT})
    (tree.path / "proc/self/cgroup").write_bytes(b"0::/b\xe9rt\n")
    tree.write({f"{name.decode('utf-8', 'surrogateescape')}/cpu.max": "250000 100000"})
    assert cpu_quota(tree.root) == 2.5


@pytest.mark.parametrize("text", ["", "max", "1 2 3", "few 100000"])
def test_a_limit_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="not a quota and a period"):
        parse_cpu_max(text)


names = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4)


@given(names, names)
def test_the_groups_of_a_process_lead_from_its_own_to_the_mount_point(origin, below):
    mounts = parse_mountinfo(V1_MOUNT.format(origin="/" + "/".join(origin)))
    found = group_directories("/" + "/".join([*origin, *below]), mounts, "cpu")
    assert found == ["/".join(["/" + V1, *below[:depth]]) for depth in range(len(below), -1, -1)]
