"""Failures of a training workload: too little memory, or an error in a user's own code, with its place."""

from __future__ import annotations

import multiprocessing
import re
import signal
import sysconfig
import traceback
from pathlib import Path

from harness.core.errors import WorkloadError

_NO_MEMORY = re.compile(
    r"out of (shared )?memory|NVML_SUCCESS == r|CUDACachingAllocator|CU\w+_STATUS_\w*ALLOC(ATION)?_FAILED|"
    r"cudaErrorMemoryAllocation|NvMap|NvRmMem|Cannot allocate memory|std::bad_alloc|"
    r"can't allocate memory|Unable to allocate|worker .*killed by signal: (Killed|9\b|SIGKILL)",
    re.IGNORECASE,
)
"""Messages of allocators: torch on desktops and on Jetson boards, cuDNN, cuBLAS, the kernel of a board, numpy, and a
DataLoader whose worker the kernel killed."""

_NO_SHARED_MEMORY = re.compile(
    r"killed by signal: Bus error|out of shared memory\. |shared memory ?\(shm\)|</torch_\d+"
)
"""Messages of torch if `/dev/shm` is full: older versions lose a worker to a bus error, newer ones get no file."""

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_HARNESS = str(Path(__file__).resolve().parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_FROM_A_WORKER = re.compile(r"^Caught \w+ in DataLoader worker process")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that memory ran out, on the accelerator or in the machine.

    A DataLoader reports that a lost worker "exited unexpectedly", and the signal in the previous error. If the handler
    of SIGCHLD is not torch's, the signal is not reported, and the worker's own exit code shows it.
    """
    is_it = isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))
    frames = (frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__))
    gone = [worker for names in frames for worker in names.get("failed_workers", ())]
    is_it |= any(getattr(worker, "exitcode", None) == -signal.SIGKILL for worker in gone)
    return is_it or (error.__cause__ is not None and is_out_of_memory(error.__cause__))


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

    Such a server forks outside of a limit on reads, and with the CPUs of the first case. `spawn` inherits both and
    needs the same of a workload: it can be pickled.
    """
    method = multiprocessing.get_start_method()
    return "spawn" if method == "forkserver" else method


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
