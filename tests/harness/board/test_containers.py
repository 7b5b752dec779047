"""What a container gives is found in both versions of control groups; an engine is used so that nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.board import containers
from harness.board.containers import (
    MARK_VARIABLE,
    ContainerEngine,
    container_facts,
    gpu_options,
    lack_of_shared_memory,
    shared_memory_bytes,
)
from harness.core.errors import CannotRunError
from tests.programs import write_python_program

PROJECT = Path(__file__).resolve().parents[3]
OVERLAY = "20 1 0:40 / / rw - overlay overlay rw,upperdir=/x"
FUSE = "20 1 0:40 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw"
WHOLE = "20 1 8:1 / / rw - ext4 /dev/sda1 rw"
V2 = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1 = "\n".join(
    f"3{place} 20 0:2{place} /docker/c0 /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
    for place, name in enumerate(("cpu", "blkio", "memory"))
)
IN_V1 = {
    "proc/self/mountinfo": f"{OVERLAY}\n{V1}",
    "proc/self/cgroup": "\n".join(
        f"{place}:{name}:/docker/c0" for place, name in enumerate(("cpu", "blkio", "memory"), 1)
    ),
    ".dockerenv": "",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": 25000,
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100000,
    "sys/fs/cgroup/blkio/blkio.throttle.read_bps_device": "254:0 2000000\n254:16 5000000",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": 512 << 20,
}
IN_V2 = {
    "proc/self/mountinfo": f"{OVERLAY}\n{V2}",
    "proc/self/cgroup": "0::/",
    "run/.containerenv": "",
    "sys/fs/cgroup/cpu.max": "25000 100000",
    "sys/fs/cgroup/io.max": "254:0 rbps=2000000 wbps=max riops=max wiops=max",
    "sys/fs/cgroup/memory.max": 512 << 20,
}
UNLIMITED = {
    **IN_V1,
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": -1,
    "sys/fs/cgroup/blkio/blkio.throttle.read_bps_device": "",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
}
GIVEN = {"cpu_cores": 0.25, "read_bytes_per_s": 2_000_000, "memory_bytes": 512 << 20}


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        pytest.param(IN_V1, {"engine": "docker", **GIVEN}, id="version 1"),
        pytest.param(IN_V2, {"engine": "podman", **GIVEN}, id="version 2"),
        pytest.param(UNLIMITED, {"engine": "docker"}, id="no limits"),
        pytest.param({**UNLIMITED, "proc/self/mountinfo": FUSE}, {"engine": "docker"}, id="an older kernel, no root"),
        pytest.param({**IN_V1, "proc/self/mountinfo": WHOLE}, {}, id="a machine that was made of an image"),
        pytest.param({"proc/self/mountinfo": OVERLAY, "proc/self/cgroup": "0::/"}, {}, id="no mark"),
    ],
)
def test_what_a_container_gives_is_recorded_and_what_it_does_not_limit_is_left_out(tree, files, facts):
    tree.write(files)
    assert container_facts(tree.root) == facts
    (tree.path / "dev/shm").mkdir(parents=True)
    shared = {"shared_memory_bytes": shared_memory_bytes(tree.root)[0]} if facts else {}
    assert container_facts(tree.root) == {**facts, **shared}


@pytest.mark.parametrize(
    ("workers", "total_mib", "free_mib", "expected"),
    [
        (0, 1, 0, None),
        (2, 64, 51, None),  # 5 batches of 10 MiB, and one MiB
        (2, 64, 50, ("need 51 MiB of shared memory, and /dev/shm has 50 of 64 free", "65m")),
        (4, 64, 64, ("need 91 MiB of shared memory, and /dev/shm has 64 of 64 free", "91m")),
        (1, 0, 0, ("need 31 MiB of shared memory, and /dev/shm has 0 of 0 free", "31m")),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_workers_need_the_batches_that_they_have_ready_and_the_one_in_use(
    monkeypatch, inside, workers, total_mib, free_mib, expected
):
    monkeypatch.setattr(containers, "shared_memory_bytes", lambda: (total_mib << 20, free_mib << 20))
    monkeypatch.setattr(containers, "container_facts", lambda: {"engine": "podman"} if inside else {})
    found = lack_of_shared_memory(workers, 10 << 20)
    assert (found and found[0]) == (expected and expected[0])
    if expected:
        assert (f"--shm-size {expected[1]} " if inside else f"remount,size={expected[1]} ") in found[1]


ENGINE = """import pathlib, subprocess, sys
log = pathlib.Path({log!r})
with log.open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "import":
    pathlib.Path({log!r} + ".tar").write_bytes(sys.stdin.buffer.read())
elif sys.argv[1] == "ps":
    print({listed!r})
elif sys.argv[1] == "run":
    if {broken}:
        sys.exit("Error: some noise\\nError: no room for containers")
    image = next(place for place, word in enumerate(sys.argv) if word in ("jetwatt-machine", "my/image"))
    sys.exit(subprocess.run(sys.argv[image + 1 :]).returncode)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Makes an engine that runs commands without a container, and lists some; gives how often it was asked what."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.delenv(MARK_VARIABLE, raising=False)

    def make(name="podman", broken=False, listed=""):
        log = tmp_path / "asked"
        source = ENGINE.format(log=str(log), broken=broken, listed="\n".join(listed))
        write_python_program(tmp_path / name, source)
        return lambda: log.read_text().splitlines() if log.exists() else []

    return make


VISIBLE = ["--env", "NVIDIA_VISIBLE_DEVICES=all"]


@pytest.mark.parametrize(
    ("options", "on_a_board", "elsewhere"),
    [
        ("", ["--runtime", "nvidia", *VISIBLE], ["--gpus", "all"]),
        ("--memory 1g", ["--runtime", "nvidia", *VISIBLE], ["--gpus", "all"]),
        ("--runtime nvidia", VISIBLE, VISIBLE),
        ("--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=0", [], []),
        ("--runtime crun", VISIBLE, ["--gpus", "all"]),
        ("--gpus device=0", [], []),
        ("--gpus=all", [], []),
        ("--device nvidia.com/gpu=all", [], []),
    ],
)
def test_one_way_to_the_gpu_is_chosen_and_on_a_jetson_it_is_the_runtime(tree, options, on_a_board, elsewhere):
    assert gpu_options(options.split(), tree.root) == elsewhere
    tree.write({"etc/nv_tegra_release": "# R36 (release), REVISION: 4.0"})
    assert gpu_options(options.split(), tree.root) == on_a_board


def test_a_command_runs_on_this_machines_files_and_nothing_is_left(fake, tmp_path):
    asked = fake()
    with ContainerEngine("", "", "--memory 1g", str(tmp_path)) as engine:
        command = engine.command([engine.python, "-c", "print(6 * 7)"], [tmp_path, tmp_path], tmp_path, ["--cpus", "2"])
        assert subprocess.run(command, capture_output=True, text=True).stdout == "42\n"
    told = " ".join(command)
    for words in ("--rm", "--label jetwatt", "--network none", "--pull never", "--volume /usr:/usr:ro", "--memory 1g",
                  f"--volume {sys.prefix}:{sys.prefix}:ro", "OMP_WAIT_POLICY=PASSIVE", "--cpus 2"):  # fmt: skip
        assert words in told
    assert told.count(f"{tmp_path}:{tmp_path}") == 1
    assert "--privileged" not in told
    assert asked()[-1] == "rmi jetwatt-machine"
    assert {line.split()[0] for line in asked()} == {"ps", "rmi", "import", "run"}


def test_an_own_image_is_neither_made_nor_removed_and_has_a_python_of_its_own(fake, tmp_path):
    asked = fake()
    with ContainerEngine(str(tmp_path / "podman"), "my/image") as engine:
        assert engine.python == "python3"
        assert "/usr:/usr" not in " ".join(engine.command([], [], tmp_path))
    assert not [line for line in asked() if line.startswith(("import", "rmi"))]


@pytest.mark.exhaustive
def test_containers_of_killed_runs_are_removed_at_the_next_start_and_those_of_living_ones_are_not(fake, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    own, living = f"jetwatt-{os.getpid()}-1", f"jetwatt-{os.getppid()}-1"
    asked = fake(listed=[f"jetwatt-{gone.pid}-7", living, own, "jetwatt-mine", "someone-1-2-3"])
    with ContainerEngine("podman", path=str(tmp_path)):
        removed = [line for line in asked() if line.startswith("rm ")]
    assert removed == [f"rm --force jetwatt-{gone.pid}-7", f"rm --force {own}"]


@pytest.mark.parametrize(
    ("engine", "broken", "message"),
    [
        ("", True, "cannot start a container here: Error: no room for containers"),
        ("docker", False, "no container engine docker on the PATH; install docker or podman"),
    ],
)
def test_where_none_can_be_started_the_reason_is_told(fake, tmp_path, engine, broken, message):
    asked = fake(broken=broken)
    with pytest.raises(CannotRunError, match=message), ContainerEngine(engine, path=str(tmp_path)):
        pytest.fail("it was entered")
    assert not asked() or asked()[-1] == "rmi jetwatt-machine"


@pytest.mark.parametrize(("user", "engine", "given"), [(0, "docker", False), (7, "docker", True), (7, "podman", False)])
def test_what_docker_writes_belongs_to_who_started_it(fake, tmp_path, monkeypatch, user, engine, given):
    fake("nerdctl")  # of those on the PATH, docker and podman come first
    fake(engine)
    monkeypatch.setattr(os, "getuid", lambda: user)
    command = ContainerEngine(path=str(tmp_path)).command([], [], Path("/"))
    assert command[0] == str(tmp_path / engine)
    assert (f"{user}:{os.getgid()}" in command) == given


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--engine", "nowhere"], "there is no container engine nowhere on the PATH"),
        (["--engine", "nowhere", "--device", "sim:orin-agx"], "sim:orin-agx is not a machine that a container could"),
        (["--campaign", "c.toml"], "no container was asked for: name the file, or --engine"),
    ],
)
@pytest.mark.exhaustive
def test_the_benchmark_is_skipped_with_the_reason(run_suite, tmp_path, arguments, reason):
    (tmp_path / "c.toml").write_text('[experiment.containers]\nworkload = ["lenet-mnist"]\n')
    named = [] if "--campaign" in arguments else [PROJECT / "benchmarks" / "test_containers.py"]
    said = run_suite("-rs", "-k", "containers and costs", "--results", "r.sqlite", *arguments, *named).stdout
    assert "1 skipped" in said
    assert reason in " ".join(said.split())
