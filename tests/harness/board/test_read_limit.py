"""Reads are held down by a control group that is made for it, in both versions, and nothing of it remains."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import harness
from harness.board import control_groups
from harness.board.control_groups import LIMITS_V1, LIMITS_V2, MEMBERS, ReadLimit, find_group, parse_limits, reads_held
from harness.board.saved_state import left_behind, restore
from harness.core.errors import CannotRunError, ControlError

V1, V2 = "sys/fs/cgroup/blkio", "sys/fs/cgroup"
V1_MOUNT = "35 1 0:35 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio"
V2_MOUNT = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
DISK_MOUNT = "27 1 259:2 / {place} rw - ext4 /dev/nvme0n1p2 rw"
NEIGHBOUR = 1
DISK = "259:0"

_MKDIR, _RMDIR = os.mkdir, os.rmdir


class Kernel:
    """What the kernel does with groups of a tree: a new one has files, a process is in one group, a full one stays."""

    def __init__(self, tree, version):
        self.tree, self.version = tree, version
        self.changes, self.killed_at = 0, None

    def mkdir(self, path, *mode):
        _MKDIR(path, *mode)
        if not os.path.basename(path).startswith("jetwatt-reads"):
            return  # by the test itself
        self._count()
        for name in (MEMBERS, self.version):
            (Path(path) / name).write_text("")

    def rmdir(self, path, **how):
        if not os.path.basename(path).startswith("jetwatt-reads"):
            return _RMDIR(path, **how)
        self._count()
        if (Path(path) / MEMBERS).read_text().split():
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        for name in (MEMBERS, self.version):
            (Path(path) / name).unlink()
        return _RMDIR(path)

    def write(self, path, value, hint=None):
        self._count()
        if not os.path.exists(path):
            raise ControlError(f"writing {value} to {path} was refused: No such file or directory")
        if os.path.basename(path) == MEMBERS:
            self.end(value)
            with open(path, "a") as file:
                file.write(f"{value}\n")
        else:
            disk, limit = str(value).split()
            others = "" if self.version == LIMITS_V1 else " wbps=max riops=max wiops=max"
            Path(path).write_text(f"{disk} {limit}{others}\n")

    def end(self, process):
        """The process leaves whatever group it is in."""
        for file in self.tree.path.rglob(MEMBERS):
            left = [one for one in file.read_text().split() if one != str(process)]
            file.write_text("".join(f"{one}\n" for one in left))

    def _count(self):
        self.changes += 1
        if self.changes == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def machine(tree, tmp_path, monkeypatch):
    """Makes a machine with a disk under `data`, this process and a neighbour in the group `job` of either version."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make(version, tree=tree):
        top = V1 if version == LIMITS_V1 else V2
        mount, line = (V1_MOUNT, "7:blkio:/job") if version == LIMITS_V1 else (V2_MOUNT, "0::/job")
        disk = "sys/devices/pci0000:00/nvme/nvme0/nvme0n1"
        tree.write(
            {
                "proc/self/cgroup": f"9:memory:/elsewhere\n{line}",
                "proc/self/mountinfo": f"{mount}\n{DISK_MOUNT.format(place=tree.path / 'data')}",
                f"{disk}/dev": DISK,
                f"{disk}/nvme0n1p2/partition": 2,
                f"{disk}/nvme0n1p2/dev": "259:2",
                f"{top}/job/{MEMBERS}": f"{NEIGHBOUR}\n{os.getpid()}",
                f"{top}/{MEMBERS}": 2,
                f"{top}/job/{version}": "",
            }
        )
        tree.link("sys/dev/block/259:2", tree.path / disk / "nvme0n1p2")
        if version == LIMITS_V2:
            tree.write(
                {
                    f"{V2}/cgroup.subtree_control": "cpu io memory",
                    f"{V2}/job/cgroup.subtree_control": "",
                    f"{V2}/job/cgroup.type": "domain",
                    f"{V2}/job/cpu.max": "max 100000",
                    f"{V2}/job/memory.max": "max",
                    f"{V2}/job/cpuset.cpus": "",
                }
            )
        kernel = Kernel(tree, version)
        monkeypatch.setattr(control_groups, "write", kernel.write)
        monkeypatch.setattr(control_groups.os, "mkdir", kernel.mkdir)
        monkeypatch.setattr(control_groups.os, "rmdir", kernel.rmdir)
        return kernel

    return make


@pytest.fixture(params=[LIMITS_V1, LIMITS_V2])
def kernel(request, machine):
    return machine(request.param)


@pytest.fixture
def held(tree):
    """Holds the disk under `data` to 20 MB/s, as a run on `host` does."""
    return lambda: reads_held(20_000_000, tree.path / "data/mnist", "host", tree.root)


def groups(tree):
    return [path for path in tree.path.rglob("jetwatt-reads-*") if path.is_dir()]


def test_the_group_is_below_ones_own_in_version_1_and_beside_it_in_version_2(kernel, tree):
    path, origin, _ = find_group(tree.root)
    place = {LIMITS_V1: f"{V1}/job", LIMITS_V2: V2}[kernel.version]
    assert path == f"{tree.root}/{place}/jetwatt-reads-{os.getpid()}"
    assert origin == f"{tree.root}/{V1 if kernel.version == LIMITS_V1 else V2}/job"
    if kernel.version == LIMITS_V2:  # the top of all groups has room below itself
        tree.write({"proc/self/cgroup": "0::/"})
        assert find_group(tree.root)[:2] == (path, f"{tree.root}/{V2}")


def test_this_process_is_held_during_the_block_and_nothing_remains_after_it(kernel, tree, held):
    before = tree.contents()
    with held() as limit_bytes_per_s:
        [group] = groups(tree)
        assert limit_bytes_per_s == 20_000_000
        assert parse_limits((group / kernel.version).read_text()) == {DISK: 20_000_000}
        assert (group / MEMBERS).read_text() == f"{os.getpid()}\n"
        assert left_behind() == ["host-reads"]
    assert groups(tree) == left_behind() == []
    assert {name: sorted(text.split()) for name, text in tree.contents().items()} == {
        name: sorted(text.split()) for name, text in before.items()
    }


def test_without_a_limit_nothing_is_touched(tmp_path):
    with reads_held(None, tmp_path, "host", str(tmp_path / "no machine at all")) as limit_bytes_per_s:
        assert limit_bytes_per_s is None


def test_the_death_of_a_worker_does_not_cut_short_that_the_limit_is_taken_off(kernel, tree, held, monkeypatch):
    """The handler of torch raises wherever the process is when a worker of a DataLoader has died."""

    def raise_error(number, frame):
        raise RuntimeError("a worker has died")

    def write(path, value, hint=None):
        kernel.write(path, value)
        os.kill(os.getpid(), signal.SIGCHLD)

    before = signal.signal(signal.SIGCHLD, raise_error)
    try:
        with pytest.raises(RuntimeError, match="a worker has died"), held():
            monkeypatch.setattr(control_groups, "write", write)
        assert groups(tree) == []
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_workers_that_still_run_go_back_with_their_parent(kernel, tree, held):
    with held():
        [group] = groups(tree)
        kernel.write(str(group / MEMBERS), 4711)
    [home] = {path for path in tree.path.rglob(MEMBERS) if "4711" in path.read_text().split()}
    assert home == tree.path / (V1 if kernel.version == LIMITS_V1 else V2) / "job" / MEMBERS


def test_a_worker_that_ends_meanwhile_is_no_error(kernel, tree, held, monkeypatch):
    def write(path, value, hint=None):
        if value == 4711:
            kernel.end(value)
            raise ControlError("No such process")
        kernel.write(path, value)

    with held():
        [group] = groups(tree)
        kernel.write(str(group / MEMBERS), 4711)
        monkeypatch.setattr(control_groups, "write", write)
    assert groups(tree) == []


def test_a_process_that_cannot_be_moved_back_is_an_error_and_the_state_stays(kernel, tree, held, monkeypatch):
    def refuse(path, value, hint=None):
        raise ControlError(f"{value} is stuck")

    with pytest.raises(ControlError, match=f"{os.getpid()} is stuck.*jetwatt restore"), held():
        monkeypatch.setattr(control_groups, "write", refuse)
    assert left_behind() == ["host-reads"]
    monkeypatch.setattr(control_groups, "write", kernel.write)
    assert restore("host-reads") == ["read limit"]
    assert groups(tree) == left_behind() == []


@pytest.mark.parametrize(
    ("lost", "words"), [("limit", r"read limit was set to .* and reads back {}"), ("process", "is not in it")]
)
def test_what_did_not_take_is_an_error_and_nothing_remains(kernel, tree, held, monkeypatch, lost, words):
    def write(path, value, hint=None):
        if lost == "limit" or not path.endswith(MEMBERS):
            kernel.write(path, value)
        if lost == "limit" and path.endswith(kernel.version):
            Path(path).write_text("")

    monkeypatch.setattr(control_groups, "write", write)
    with pytest.raises(ControlError, match=words), held():
        pytest.fail("nobody may believe that reads are held")
    assert groups(tree) == left_behind() == []


def test_restore_survives_a_kill_between_any_two_changes(kernel, tree, held):
    kills = 0
    while True:
        kills += 1
        process = os.fork()
        if process == 0:
            kernel.killed_at = kills
            kernel.write(find_group(tree.root).origin + f"/{MEMBERS}", os.getpid())
            kernel.changes = 0
            with held():
                pass
            os._exit(0)
        _, status = os.waitpid(process, 0)
        kernel.end(process)
        for device in left_behind():
            saved = json.loads((Path(os.environ["XDG_STATE_HOME"]) / f"jetwatt/{device}.json").read_text())
            assert [entry["module"] for entry in saved["knobs"]] == ["read_limit"]
            assert restore(device) == ["read limit"]
        assert groups(tree) == [], f"killed before change {kills}"
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            break
    assert kills == 6  # a group is made, limited and entered; left and removed; then there is no sixth to be killed at


# -- what cannot be ------------------------------------------------------------------------------------------------


def refusal(tree):
    capability = ReadLimit(tree.root).available()
    assert not capability.available
    with pytest.raises(CannotRunError, match="reads cannot be held down here"):
        ReadLimit(tree.root).on_disk_under(str(tree.path / "data"), 1_000_000)
    return capability


def test_without_control_groups_there_is_no_limit(tree):
    assert "no control group" in refusal(tree).detail
    tree.write({"proc/self/cgroup": "0::/"})
    assert "mountinfo does not exist" in refusal(tree).detail


def test_version_2_needs_io_in_the_group_above_which_is_never_changed(machine, tree):
    machine(LIMITS_V2)
    tree.write({f"{V2}/cgroup.subtree_control": "cpu memory"})
    found = refusal(tree)
    assert "subtree_control has no io" in found.detail
    assert "echo +io" in found.hint
    assert (tree.path / V2 / "cgroup.subtree_control").read_text() == "cpu memory\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            {f"{V2}/job/memory.max": 2**31}, "memory.max of the control group", id="its limits would fall away"
        ),
        pytest.param({f"{V2}/job/{MEMBERS}": os.getpid()}, "this process is alone", id="it would be left empty"),
        pytest.param(
            {"proc/self/cgroup": "0::/", f"{V2}/cgroup.type": "domain"},
            "the control group above this process's own is not seen",
            id="a container sees its own group alone",
        ),
    ],
)
def test_a_group_that_cannot_be_left_is_refused(machine, tree, change, words):
    machine(LIMITS_V2)
    tree.write(change)
    assert words in refusal(tree).detail


@pytest.mark.parametrize("version", [LIMITS_V1, LIMITS_V2])
def test_a_user_who_may_not_is_told_so(machine, tree_in, plain_user, version):
    tree = tree_in(plain_user / "root")
    machine(version, tree)
    for path in tree.path.rglob("*"):
        path.chmod(0o555)
    assert refusal(tree).hint == "run as root, outside of containers"


@pytest.mark.parametrize("filesystem", ["tmpfs tmpfs", "nfs4 server:/data", "overlay overlay"])
def test_a_medium_without_a_disk_cannot_be_held_down(machine, tree, filesystem):
    machine(LIMITS_V1)
    tree.write({"proc/self/mountinfo": f"{V1_MOUNT}\n40 1 0:50 / {tree.path / 'data'} rw - {filesystem} rw"})
    with pytest.raises(CannotRunError, match=f"lies on {filesystem.split()[0]} .*a storage on a disk"):
        ReadLimit(tree.root).on_disk_under(str(tree.path / "data/mnist"), 1_000_000)


@pytest.mark.parametrize("version", [LIMITS_V1, LIMITS_V2])
def test_a_disk_that_is_held_to_less_already_is_refused(machine, tree, version):
    machine(version)
    top, line = (V1, f"{DISK} 500000") if version == LIMITS_V1 else (V2, f"{DISK} rbps=500000 wbps=max")
    tree.write({f"{top}/job/{version}": line})
    with pytest.raises(CannotRunError, match=r"500000 bytes/s .*1000000"):
        ReadLimit(tree.root).on_disk_under(str(tree.path / "data"), 1_000_000)
    assert ReadLimit(tree.root).on_disk_under(str(tree.path / "data"), 500_000) == {DISK: 500_000}


# -- on this machine -------------------------------------------------------------------------------------------------

HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from harness.board.page_cache import PageCache
from harness.board.control_groups import reads_held

file, limit = Path(sys.argv[1]), int(sys.argv[2])
PageCache().evict([file])
with reads_held(limit, file.parent, "here"):
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(child.pid, flush=True)
    if "die" in sys.argv:
        os.kill(os.getpid(), 9)
    start = time.monotonic()
    file.read_bytes()
    print(time.monotonic() - start)
    child.kill()
print("jetwatt-reads" in Path("/proc/self/cgroup").read_text())
"""


@pytest.fixture
def this_machine(tmp_path, monkeypatch):
    """Starts a process that reads 4 MB, held to 2 MB/s; skips where that cannot be."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "data"
    file.write_bytes(os.urandom(4_000_000))
    try:
        ReadLimit().on_disk_under(str(file), 2_000_000)
    except CannotRunError as error:
        pytest.skip(str(error))

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", HOLD, str(file), "2000000", *arguments],
            cwd=Path(harness.__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def is_held(process):
    return "jetwatt-reads" in Path(f"/proc/{process}/cgroup").read_text()


def test_the_kernel_holds_reads_down(this_machine):
    """No faster than the limit is a property of the kernel; half of the time that it should take is margin enough."""
    done = this_machine()
    assert done.returncode == 0, done.stderr
    _, seconds, is_held_still = done.stdout.split()
    assert float(seconds) > 1.0
    assert is_held_still == "False"


def test_restore_removes_what_a_killed_process_left(this_machine, tmp_path):
    killed = this_machine("die")
    orphan = int(killed.stdout)
    try:
        assert killed.returncode == -signal.SIGKILL
        assert is_held(orphan)
        [entry] = json.loads((tmp_path / "state/jetwatt/here-reads.json").read_text())["knobs"]
        group = entry["options"]["path"]
        assert os.path.isdir(group)
        command = [sys.executable, "-m", "harness", "restore"]
        said = subprocess.run(command, cwd=Path(harness.__file__).parents[1], capture_output=True, text=True)
        assert said.stdout == "here-reads: restored read limit\n"
        assert not is_held(orphan)
        assert not os.path.exists(group)
    finally:
        os.kill(orphan, signal.SIGKILL)
