"""A container's CPU quota is found, the tightest of all groups above it, in both versions of control groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import bounded_reads
from harness.board.control_groups import cpu_quota, group_directories, parse_cpu_max, throttled_periods
from harness.board.disk import parse_mountinfo
from harness.core.errors import ControlError

V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/cpu,cpuacct"
V2_MOUNT = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "31 1 0:27 {origin} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
MEMORY_MOUNT = "32 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"


def stat(throttled):
    return f"nr_periods 100\nnr_throttled {throttled}\nthrottled_usec 12"


def group(folder, quota_us=-1, throttled=0):
    """A group of version 1."""
    files = {"cpu.cfs_quota_us": quota_us, "cpu.cfs_period_us": 100000, "cpu.stat": stat(throttled)}
    return {f"{folder}/{name}": content for name, content in files.items()}


# A service two groups deep, without quotas; the top has no limits of its own, as the real one.
SLICE = f"{V2}/user.slice"
SERVICE = f"{SLICE}/job.service"
IN_V2 = {
    "proc/self/cgroup": "0::/user.slice/job.service",
    "proc/self/mountinfo": V2_MOUNT,
    **{f"{place}/cpu.max": "max 100000" for place in (SLICE, SERVICE)},
    **{f"{place}/cpu.stat": stat(0) for place in (SLICE, SERVICE)},
    f"{V2}/cpu.stat": "usage_usec 5\nuser_usec 3\nsystem_usec 2",
}
# A container of Docker, whose own group is all that it sees of the hierarchy.
IN_V1 = {
    "proc/self/cgroup": "9:memory:/docker/c0ffee\n4:cpu,cpuacct:/docker/c0ffee\n1:name=systemd:/docker/c0ffee",
    "proc/self/mountinfo": f"{MEMORY_MOUNT}\n{V1_MOUNT.format(origin='/docker/c0ffee')}",
    **group(V1),
}
# The hybrid layout of systemd: the CPU controller is in version 1, and version 2 has groups without one.
IN_BOTH = {
    **IN_V1,
    **group(V1, 100000),
    "proc/self/cgroup": IN_V1["proc/self/cgroup"] + "\n0::/docker/c0ffee",
    "proc/self/mountinfo": f"{IN_V1['proc/self/mountinfo']}\n{V2_MOUNT.replace(f'/{V2}', f'/{V2}/unified')}",
    f"{V2}/unified/docker/c0ffee/cgroup.procs": 1,
}
BELOW = {
    "proc/self/cgroup": "4:cpu,cpuacct:/a:b/c\n0::/",
    "proc/self/mountinfo": V1_MOUNT.format(origin="/"),
    **group(V1),
    **group(f"{V1}/a:b", 200000),
    **group(f"{V1}/a:b/c", 300000),
}


@pytest.mark.parametrize(
    ("files", "quota", "throttled"),
    [
        pytest.param(IN_V2, None, 0, id="version 2 without a quota"),
        pytest.param(IN_V1, None, 0, id="version 1 without a quota"),
        pytest.param({**IN_V2, f"{SERVICE}/cpu.max": "400000 100000"}, 4.0, 0, id="its own"),
        pytest.param(
            {**IN_V2, f"{SERVICE}/cpu.max": "400000 100000", f"{SLICE}/cpu.max": "75000 50000"}, 1.5, 0, id="above"
        ),
        pytest.param({**IN_V2, f"{SLICE}/other.service/cpu.max": "10000 100000"}, None, 0, id="a neighbour's"),
        pytest.param(
            {**IN_V2, "proc/self/cgroup": "0::/", f"{V2}/cpu.max": "50000 100000", f"{V2}/cpu.stat": stat(7)}, 0.5, 7,
            id="a container is the top of what it sees",
        ),
        pytest.param({**IN_V1, **group(V1, 150000, 3)}, 1.5, 3, id="a container finds its group at the mount point"),
        pytest.param({**IN_V2, f"{SLICE}/cpu.stat": stat(5), f"{SERVICE}/cpu.stat": stat(2)}, None, 7, id="all groups"),
        pytest.param(BELOW, 2.0, 0, id="the way up in version 1"),
        pytest.param(IN_BOTH, 1.0, 0, id="both versions at once"),
        pytest.param({}, None, None, id="no control groups"),
        pytest.param(
            {"proc/self/cgroup": "0::/elsewhere", "proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/sda1 rw"},
            None, None, id="not mounted",
        ),
        pytest.param(
            {"proc/self/cgroup": "2:cpu:/beside", "proc/self/mountinfo": V1_MOUNT.format(origin="/docker/c0ffee")},
            None, None, id="another group is mounted",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "proc/self/mountinfo": V2_MOUNT, f"{V2}/cgroup.procs": 1},
            None, None, id="no CPU controller",
        ),
    ],
)  # fmt: skip
def test_the_tightest_quota_on_the_way_up_counts_and_what_is_not_seen_is_not_known(tree, files, quota, throttled):
    tree.write(files)
    assert cpu_quota(tree.root) == quota
    assert throttled_periods(tree.root) == throttled


def test_a_group_may_be_called_anything(tree):
    name = b"sys/fs/cgroup/b\xe9rt"
    tree.write({"proc/self/mountinfo": V2_MOUNT})
    (tree.path / "proc/self/cgroup").write_bytes(b"0::/b\xe9rt\n")
    tree.write({f"{name.decode('utf-8', 'surrogateescape')}/cpu.max": "250000 100000"})
    assert cpu_quota(tree.root) == 2.5


def test_groups_that_a_record_names_outside_of_its_tree_are_refused(tree):
    outside = tree.path.parent / "outside"
    outside.mkdir()
    (outside / "cpu.max").write_text("250000 100000")
    mount = V2_MOUNT.replace("/sys/fs/cgroup", "/../outside")
    tree.write({"proc/self/mountinfo": mount, "proc/self/cgroup": "0::/"})
    with pytest.raises(ControlError, match="leads out of"):
        cpu_quota(tree.root)


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


GARBAGE = ["", "N/A", "100000 0", "max"]


@pytest.mark.parametrize("text", GARBAGE)
@pytest.mark.parametrize("version", ["v2", "v1"])
def test_a_quota_that_cannot_be_read_ends_nothing_and_is_named(tree, version, text):
    """Of another group it counts."""
    if version == "v2":
        tree.write({**IN_V2, f"{SERVICE}/cpu.max": text, f"{SLICE}/cpu.max": "200000 100000"})
        tree.write({f"{SERVICE}/cpu.stat": text, f"{SLICE}/cpu.stat": stat(3)})
        place, quota = SERVICE, 2.0
    else:
        period = text.rpartition(" ")[2]
        tree.write({**BELOW, f"{V1}/a:b/c/cpu.cfs_period_us": period, f"{V1}/a:b/c/cpu.stat": text})
        tree.write({f"{V1}/a:b/cpu.stat": stat(3)})
        place, quota = f"{V1}/a:b/c", 2.0
    assert cpu_quota(tree.root) == quota
    assert throttled_periods(tree.root) == 3
    assert f"{tree.root}/{place}" in bounded_reads.unread
