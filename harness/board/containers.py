"""Containers: what the one around this process gives it, and an engine that runs a command in another one."""

from __future__ import annotations

import io
import itertools
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from harness.board.bounded_process import run_within
from harness.board.control_groups import LIMITS_V1, LIMITS_V2, cpu_quota, own_groups, parse_limits
from harness.board.disk import find_mount, read_mounts
from harness.board.kernel_file import text_of
from harness.board.lock import LOCK_DIR_VARIABLE
from harness.core.cases import PREFETCH_FACTOR
from harness.core.environment import VARIABLES
from harness.core.errors import CannotRunError
from harness.core.units import BYTES_PER_MIB

MARKS = {"run/.containerenv": "podman", ".dockerenv": "docker"}  # by which engines mark the containers that they start
L4T_RELEASE = "etc/nv_tegra_release"  # on every Jetson board
ENGINE_S = 300.0  # an engine pulls an image in minutes
MARK_VARIABLE = "container"  # likewise


def container_facts(root: str = "/") -> Dict[str, Any]:
    """The engine of the container around this process, and what it limits; empty outside of one."""
    marked = [engine for mark, engine in MARKS.items() if os.path.exists(os.path.join(root, mark))]
    engine = marked[0] if marked else os.environ.get(MARK_VARIABLE) if root == "/" else None
    mount = find_mount("/", read_mounts(root)) if engine else None
    if mount is None or ("overlay" not in mount.filesystem and mount.origin == "/"):
        return {}  # a machine that was made of an image may have a mark, and a file system of its own
    reads = [value for text in _limits("blkio", LIMITS_V1, LIMITS_V2, root) for value in parse_limits(text).values()]
    memory = [int(text) for text in _limits("memory", "memory.limit_in_bytes", "memory.max", root) if text.isdigit()]
    facts = {
        "engine": engine,
        "cpu_cores": cpu_quota(root),
        "read_bytes_per_s": min(reads, default=None),
        "memory_bytes": min((value for value in memory if value < 2**60), default=None),  # version 1 shows one without
        "shared_memory_bytes": shared_memory_bytes(root)[0] or None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _limits(controller: str, in_v1: str, in_v2: str, root: str) -> Iterator[str]:
    for group in itertools.chain.from_iterable(own_groups(root, controller)):
        yield from (text_of(os.path.join(group, name)).strip() for name in (in_v1, in_v2))


def shared_memory_bytes(root: str = "/") -> Tuple[int, int]:
    """The size of `/dev/shm`, through which DataLoader workers hand over batches, and what of it is free; 0 of none."""
    try:
        total, _, free = shutil.disk_usage(os.path.join(root, "dev/shm"))
    except OSError:
        return 0, 0
    return total, free


def lack_of_shared_memory(workers: int, batch_bytes: int) -> Optional[Tuple[str, str]]:
    """Why shared memory is too small for the batches of some workers, with a hint; None if it is not."""
    total, free = shared_memory_bytes()
    # Each worker has batches ready, and the loop holds one more (torch 2.15); a MiB is for pages that are not full.
    needed = (workers * PREFETCH_FACTOR + 1) * batch_bytes + BYTES_PER_MIB
    if not workers or needed <= free:
        return None
    needed_mib, free_mib, total_mib = (value / BYTES_PER_MIB for value in (needed, free, total))
    text = f"need {needed_mib:.3g} MiB of shared memory, and /dev/shm has {free_mib:.3g} of {total_mib:.3g} free"
    return text, shared_memory_hint(total - free + needed)


def shared_memory_hint(needed_bytes: int) -> str:
    size = f"{-(-needed_bytes // BYTES_PER_MIB)}m"
    if container_facts():
        return f"start the container with --shm-size {size} or more, or with --ipc host; or fewer workers"
    return f"`sudo mount -o remount,size={size} /dev/shm`, or fewer workers"


ENGINES = ("docker", "podman", "nerdctl")  # in the order in which they are looked for; all take the same options here
MACHINE_IMAGE = "jetwatt-machine"  # of next to nothing: programs and libraries are this machine's, mounted read-only
MOST_OF_LIMIT = 30_000  # open files, processes: podman 4.3 as root without the right to raise limits could give no more
_LABEL = "jetwatt"
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt")
_FILES = ("ld.so.cache", "alternatives", "os-release", "machine-id", "nv_tegra_release")


class ContainerEngine:
    """Runs commands in containers without privileges or network; removes what runs that were killed left behind."""

    def __init__(self, engine: str = "", image: str = "", options: str = "", path: Optional[str] = None) -> None:
        """`image` has the suite installed; without one this machine's files make it. `options` go to each `run`."""
        programs = (shutil.which(name, path=path) for name in ((engine,) if engine else ENGINES))
        self.program = next(filter(None, programs), "")
        if not self.program:
            what = f"there is no container engine {engine or ' or '.join(ENGINES)} on the PATH"
            raise CannotRunError(what, "install docker or podman")
        self.image, self.python = (image, "python3") if image else (MACHINE_IMAGE, sys.executable)
        self.options = shlex.split(options)
        self._count = 0

    def __enter__(self) -> ContainerEngine:
        """Remove left-overs, make the image, start a container to see that it can be done: `CannotRunError` if not."""
        self._remove()
        tries = [([self.program, "import", "-", MACHINE_IMAGE], _skeleton())] if self.image == MACHINE_IMAGE else []
        tries.append((self.command([self.python, "-c", ""], [], Path("/")), b""))
        for command, given in tries:
            try:
                done = run_within(ENGINE_S, command, given=given)
                last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
            except subprocess.TimeoutExpired:
                done, last = None, f"`{' '.join(command[:2])}` did not end within {ENGINE_S:g} s"
            if done is None or done.returncode:
                self._remove()
                what = f"{self.program} cannot start a container here: {last}"
                raise CannotRunError(what, "docs/containers.md knows some reasons")
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def command(
        self, command: Sequence[str], folders: Sequence[Path], directory: Path, options: Sequence[str] = ()
    ) -> List[str]:
        """What runs a command in a container that sees some folders where they are, and may write there."""
        self._count += 1
        words = ["--rm", "--label", _LABEL, "--name", f"{_LABEL}-{os.getpid()}-{self._count}", "--network", "none"]
        words += ["--security-opt", "label=disable"]  # SELinux would have every mounted folder relabelled
        for name, limit in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
            hard = resource.getrlimit(limit)[1]  # engines would raise it, which not every root may
            words += ["--ulimit", f"{name}={MOST_OF_LIMIT if hard < 0 else min(hard, MOST_OF_LIMIT)}"]
        if os.getuid() and "podman" not in self.program:  # what is written belongs to who started it
            words += ["--user", f"{os.getuid()}:{os.getgid()}"]
        for name in ("PYTHONPATH", "XDG_STATE_HOME", LOCK_DIR_VARIABLE, *VARIABLES):
            words += ["--env", f"{name}={os.environ[name]}"] if name in os.environ else []
        if self.image == MACHINE_IMAGE:
            words += ["--pull", "never"]
            paths = [f"/{name}" for name in _TOP if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]
            paths += [f"/etc/{name}" for name in _FILES if os.path.exists(f"/etc/{name}")]
            paths += [path for path in (sys.prefix, sys.base_prefix) if not path.startswith(("/usr/", "/opt/"))]
            words += [word for path in dict.fromkeys(paths) for word in ("--volume", f"{path}:{path}:ro")]
        words += [word for path in dict.fromkeys(map(str, folders)) for word in ("--volume", f"{path}:{path}")]
        words += ["--workdir", str(directory), *self.options, *options, self.image, *command]
        return [self.program, "run", *words]

    def _remove(self) -> None:
        def ask(*words: str) -> List[str]:
            try:
                return run_within(ENGINE_S, [self.program, *words]).stdout.decode(errors="replace").split()
            except subprocess.TimeoutExpired:  # whoever needs the engine next says so
                return []

        for name in ask("ps", "--all", "--filter", f"label={_LABEL}", "--format", "{{.Names}}"):
            starter = name.split("-")[1] if name.count("-") == 2 else ""
            if starter.isdigit() and (int(starter) == os.getpid() or not os.path.exists(f"/proc/{starter}")):
                ask("rm", "--force", name)
        if self.image == MACHINE_IMAGE:
            ask("rmi", MACHINE_IMAGE)


def gpu_options(options: Sequence[str], root: str = "/") -> List[str]:
    """What to add to an engine's `options` so that containers see the GPU, if they do not choose a way themselves.

    It is `--gpus` or `--runtime nvidia`, never both. On a Jetson board NVIDIA's runtime is in csv mode (it mounts the
    files that CSV lists name), which refuses `--gpus`.
    """
    names = [option.partition("=")[0] for option in options]
    if "--gpus" in names or any("nvidia.com/gpu" in option for option in options):  # the latter: `--device`, by CDI
        return []
    is_nvidia = "--runtime=nvidia" in options or ("--runtime", "nvidia") in zip(options, options[1:])
    if not is_nvidia and not os.path.exists(os.path.join(root, L4T_RELEASE)):
        return ["--gpus", "all"]
    runtime = [] if "--runtime" in names else ["--runtime", "nvidia"]
    is_visible = any("NVIDIA_VISIBLE_DEVICES" in option for option in options)
    return runtime + ([] if is_visible else ["--env", "NVIDIA_VISIBLE_DEVICES=all"])  # the runtime adds no GPU without


def _skeleton() -> bytes:
    """A tar archive of the root folder of a container: links of this machine, and a place for temporary files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, mode in (("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            archive.addfile(folder)
        for name in _TOP:
            if os.path.islink(f"/{name}"):
                archive.add(f"/{name}", name, recursive=False)
    return content.getvalue()
