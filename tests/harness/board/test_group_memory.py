"""The peak memory of a command's control group: read where the group is its own, and unknown in a shared one."""

from __future__ import annotations

import pytest

from harness.board.control_groups import GroupMemory

V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"
MOUNTS = {
    V1: "30 25 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    V2: "31 25 0:2 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
}
LINES = {V1: "9:memory:{}", V2: "0::{}"}
PEAKS = {V1: "memory.max_usage_in_bytes", V2: "memory.peak"}


@pytest.fixture(params=[V1, V2], ids=["v1", "v2"])
def place(request):
    return request.param


def write(tree, place, group, members, peak_bytes=5000):
    """A command, process 70 with a child 71, in a control group with some members; the run is in `/user.slice`."""
    ran = {"proc/self/cgroup": LINES[place].format("/user.slice"), "proc/self/mountinfo": MOUNTS[place]}
    tree.write({**ran, "proc/70/cgroup": LINES[place].format(group)})
    for pid, parent in ((70, 1), (71, 70), (90, 1)):
        tree.write({f"proc/{pid}/stat": f"{pid} (p) S {parent} " + "0 " * 48})
    tree.write(
        {f"{place}/{group}/cgroup.procs": "\n".join(map(str, members)), f"{place}/{group}/{PEAKS[place]}": peak_bytes}
    )


def test_a_group_of_its_own_has_its_peak_and_keeps_it_when_it_is_gone(tree, place):
    write(tree, place, "/user.slice/run-1.scope", [70, 71])
    memory = GroupMemory(str(tree.path), 70)
    memory.sample()
    assert memory.peak_bytes == 5000
    peak = tree.path / f"{place}/user.slice/run-1.scope/{PEAKS[place]}"
    peak.write_text("7000\n")
    memory.sample()
    peak.unlink()
    memory.sample()
    assert memory.peak_bytes == 7000


@pytest.mark.parametrize(
    ("group", "members"),
    [("/user.slice", [70, 71]), ("/", [70, 71]), ("/user.slice/shared", [70, 90])],
    ids=["that of the run", "one above that", "one with others in it"],
)
def test_a_group_that_is_not_its_own_has_none(tree, place, group, members):
    write(tree, place, group, members)
    memory = GroupMemory(str(tree.path), 70)
    memory.sample()
    assert memory.peak_bytes is None


def test_a_process_that_has_ended_is_no_error(tree, place):
    write(tree, place, "/own", [70])
    memory = GroupMemory(str(tree.path), 60)
    memory.sample()
    assert memory.peak_bytes is None
