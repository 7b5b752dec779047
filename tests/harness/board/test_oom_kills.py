"""Signal 9 means that memory ran out only where the kernel counted a kill for that reason."""

from __future__ import annotations

import pytest

from harness.board.oom_kills import OomKills
from harness.core.errors import ProcessEndedError

V2 = "sys/fs/cgroup/user.slice/job.service/memory.events"
V1 = "sys/fs/cgroup/memory/docker/c0ffee/memory.oom_control"
IN_V2 = {
    "proc/self/cgroup": "0::/user.slice/job.service",
    "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
}
IN_V1 = {
    "proc/self/cgroup": "9:memory:/docker/c0ffee",
    "proc/self/mountinfo": "32 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
}
VMSTAT = "proc/vmstat"


def text(file, kills):
    return {
        V2: f"low 0\nhigh 3\nmax 9\noom 2\noom_kill {kills}\noom_group_kill 5",
        V1: f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}",
        VMSTAT: f"pgfault 8\noom_kill {kills}\nswap_ra 5",
    }[file]


WHERE = [pytest.param(IN_V2, V2, id="version-2"), pytest.param(IN_V1, V1, id="version-1")]


@pytest.mark.parametrize(("files", "counter"), [*WHERE, pytest.param({}, VMSTAT, id="machine")])
def test_kills_are_those_since_the_beginning(tree, files, counter):
    tree.write({**files, counter: text(counter, 4)})
    kills = OomKills(tree.root)
    assert kills.since() == 0
    tree.write({counter: text(counter, 6)})
    assert kills.since() == 2
    assert OomKills(tree.root).since() == 0


def test_a_kill_in_a_group_beside_its_own_counts_in_the_one_above(tree):
    """Children are there while their reads are limited."""
    above = V2.replace("/job.service", "")
    tree.write({**IN_V2, V2: text(V2, 0), above: text(V2, 3)})
    kills = OomKills(tree.root)
    tree.write({above: text(V2, 4)})
    assert kills.since() == 1


@pytest.mark.parametrize(("files", "counter"), WHERE)
def test_the_machines_kills_do_not_count_where_the_group_has_its_own(tree, files, counter):
    tree.write({**files, counter: text(counter, 0), VMSTAT: text(VMSTAT, 0)})
    kills = OomKills(tree.root)
    tree.write({VMSTAT: text(VMSTAT, 1)})
    assert kills.since() == 0


@pytest.mark.parametrize("files", [{}, IN_V2, {**IN_V2, V2: "low 0\noom 1", VMSTAT: "pgfault 8"}, {V2: "garbled"}])
def test_a_kernel_that_does_not_count_gives_no_evidence(tree, files):
    tree.write(files)
    kills = OomKills(tree.root)
    assert kills.since() is None
    error = kills.other_kill("a worker")
    assert type(error) is ProcessEndedError
    assert error.what == "a worker was killed by signal 9"
    assert "dmesg" in error.hint


def test_a_kill_for_another_reason_is_said_not_to_be_for_lack_of_memory(tree):
    tree.write({VMSTAT: text(VMSTAT, 3)})
    error = OomKills(tree.root).other_kill("a worker")
    assert error.what == "a worker was killed by signal 9"
    assert "memory did not run out" in error.hint
