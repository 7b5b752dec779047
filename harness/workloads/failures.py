"""Failures of a training workload: too little memory, a driver that fails, or an error in a user's own code."""

from __future__ import annotations

import multiprocessing
import re
import signal
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple, Optional, Pattern

from harness.core.environment import l4t_release
from harness.core.errors import WorkloadError

_NO_MEMORY = re.compile(
    r"out of (shared )?memory|\br INTERNAL ASSERT FAILED|CU\w+_STATUS_\w*ALLOC(ATION)?_FAILED|"
    r"cudaErrorMemoryAllocation|Nv(Map|RmMem)\w*\b.*\berror 12\b|Cannot allocate memory|std::bad_alloc|"
    r"can't allocate memory|Unable to allocate",
    re.IGNORECASE,
)
"""Messages of allocators: torch on desktops and on Jetson boards (`NVML_SUCCESS == r`, which it checks after a failed
allocation alone), cuDNN, cuBLAS, the kernel of a board (12 is ENOMEM), numpy."""

_KILLED = re.compile(r"worker .*killed by signal: (Killed|9\b|SIGKILL)", re.IGNORECASE)

FRAGMENTS_SINCE = (36, 4, 7)
"""The release of L4T since which memory that was freed may stay in pieces (ggml-org/llama.cpp#23732)."""


class Trouble(NamedTuple):
    pattern: Pattern[str]
    what: str  # happened
    hint: str


NOT_MEMORY = (
    Trouble(
        re.compile(r"nvmap\b.*permission denied|NvRmMem\w*\b.*permission denied|/dev/nvmap", re.IGNORECASE),
        "this user may not open the GPU's device files",
        "`sudo usermod -aG video,render $USER`, then log in again; a container needs `--runtime nvidia`",
    ),
    Trouble(
        re.compile(r"nvml\w+_v2_\(.*INTERNAL ASSERT FAILED", re.DOTALL),
        "an allocation on the GPU failed, and torch could not report why, because NVML does not work here",
        "close other programs and run again; if memory is free, reboot: the driver may have been updated",
    ),
    Trouble(
        re.compile(r"INTERNAL ASSERT FAILED.*CUDACachingAllocator|CUDACachingAllocator.*INTERNAL ASSERT", re.DOTALL),
        "torch's allocator failed a check of its own, which is no lack of memory",
        "run again without PYTORCH_CUDA_ALLOC_CONF, or with another version of torch",
    ),
)
"""Messages that name an allocator or the driver and mean something else; the first that matches counts."""

_NO_SHARED_MEMORY = re.compile(
    r"killed by signal: Bus error|out of shared memory\. |shared memory ?\(shm\)|</torch_\d+"
)
"""Messages of torch if `/dev/shm` is full: older versions lose a worker to a bus error, newer ones get no file."""

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_HARNESS = str(Path(__file__).resolve().parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_FROM_A_WORKER = re.compile(r"^Caught \w+ in DataLoader worker process")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that memory ran out, on the accelerator or in the machine."""
    is_it = isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))
    return is_it or (error.__cause__ is not None and is_out_of_memory(error.__cause__))


def is_killed_worker(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that signal 9 ended a worker of a DataLoader.

    A DataLoader reports that a lost worker "exited unexpectedly", and the signal in the previous error. If the handler
    of SIGCHLD is not torch's, the signal is not reported, and the worker's own exit code shows it.
    """
    frames = (frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__))
    gone = [worker for names in frames for worker in names.get("failed_workers", ())]
    is_it = any(getattr(worker, "exitcode", None) == -signal.SIGKILL for worker in gone)
    is_it |= bool(_KILLED.search(str(error)))
    return is_it or (error.__cause__ is not None and is_killed_worker(error.__cause__))


def other_trouble(error: BaseException) -> Optional[Trouble]:
    """What an error of driver or allocator means if it is no lack of memory; None of any other error."""
    text = str(error)
    trouble = next((one for one in NOT_MEMORY if one.pattern.search(text)), None)
    if trouble is None and error.__cause__ is not None:
        return other_trouble(error.__cause__)
    return trouble


def fragmentation_hint(root: Path = Path("/")) -> str:
    """What to try on a release of L4T that leaves memory in pieces; empty elsewhere."""
    release = l4t_release(root)
    if release is None or tuple(map(int, re.findall(r"\d+", release))) < FRAGMENTS_SINCE:
        return ""
    return f"on L4T {release} freed memory may stay fragmented until a reboot: if it fitted before, `sudo reboot`"


def is_out_of_shared_memory(error: BaseException) -> bool:
    return bool(_NO_SHARED_MEMORY.search(str(error)))


def last_line(error: BaseException) -> str:
    """An error in one line, `TypeError: ...`; for one from a DataLoader's worker the original error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and _FROM_A_WORKER.match(lines[0]):
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def worker_start_method() -> str:
    """How workers of a DataLoader are started: as `multiprocessing` starts processes, but by no fork server.

    Such a server forks outside of a limit on reads, and with the CPUs of the first case. Where it is Python's default
    (on Linux from 3.14 on), workers are forked, as before 3.14: figures stay comparable, and a data set may have
    lambdas. Where an earlier Python was told to use it, they are spawned: that inherits both, and needs the same of a
    workload, that it can be pickled.
    """
    method = multiprocessing.get_start_method()
    if method != "forkserver":
        return method
    is_default = multiprocessing.get_all_start_methods()[0] == "forkserver"
    return "fork" if is_default else "spawn"


def own_code_failed(what: str, error: BaseException, hint: str = "") -> WorkloadError:
    """The error of a user's own code: its message, and its innermost line that is neither ours nor a library's."""
    method = worker_start_method()
    if method != "fork" and re.search(r"pickle|local object", str(error)):
        return WorkloadError(
            f"{what} cannot be sent to the DataLoader's workers, which are started by {method}: {last_line(error)}",
            "in data, transforms and collate use functions that a module defines with def, no lambdas; or 0 workers; "
            "or, on Linux, multiprocessing.set_start_method('fork') in your module",
        )
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    frames = [match.group("file", "line", "function") for match in _FRAME.finditer(text)]
    own = [frame for frame in frames if _is_own(frame[0])]
    place = ""
    if own:
        file, line, function = own[-1]
        path = Path(file)
        shown = path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path
        place = f" in {shown}, line {line} ({function})"
    return WorkloadError(f"{what} failed{place}: {last_line(error)}", hint)


def _is_own(file: str) -> bool:
    is_library = "site-packages" in file or "dist-packages" in file or file.startswith((*_LIBRARIES, "<"))
    return not is_library and not str(Path(file).resolve()).startswith(_HARNESS)
