"""The page cache: how much of some files it holds, and what takes files out of it.

How much: `mincore(2)` (M11; what vmtouch does). Out: all files (privileged, C5), or given ones (any user).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
from pathlib import Path
from typing import Iterable, Iterator, NamedTuple, Optional

from harness.board.kernel_file import grant, may_write, not_writable, read_text, write
from harness.core.capability import Capability
from harness.core.errors import DataSetError

DROP_ALL = 3  # Documentation/admin-guide/sysctl/vm: page cache, and dentries and inodes

_MAP_FAILED = ctypes.c_void_p(-1).value
_CAP_FOWNER = 3
_RESIDENT = bytes(flags & 1 for flags in range(256))  # mincore(2): of each page's byte only the lowest bit counts


class PageCache:
    def __init__(self, root: str = "/") -> None:
        self._file = os.path.join(root, "proc/sys/vm/drop_caches")

    def available(self) -> Capability:
        topic = "drop the page cache"
        if may_write(self._file):
            return Capability(topic, True, f"dropped through {self._file}")
        return Capability(topic, False, not_writable([self._file]).what, self._hint())

    def drop(self) -> str:
        os.sync()  # dirty pages cannot be dropped
        write(self._file, DROP_ALL, self._hint())
        return f"{DROP_ALL} written to {self._file}"

    def _hint(self) -> str:
        return f"{grant([self._file])}; or choose another cache state: evicted needs no right"

    def evict(self, files: Iterable[Path]) -> None:
        """Write back what is dirty and drop the pages of `files`; those that another process has mapped stay."""
        os.sync()  # once for all: a sync of each file would flush the disk's own cache each time
        for path in files:
            with _open_data_file(path, "to drop it from the page cache") as fd:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


class Residency(NamedTuple):
    resident_bytes: Optional[int]  # exact, even if a file ends within a page; None if it cannot be read
    total_bytes: int  # the size of the files
    reason: str = ""  # why it cannot be read, and what to do; empty if it was

    @property
    def share(self) -> Optional[float]:
        """Resident part, 0 to 1; None if it could not be read or there are no bytes."""
        if self.resident_bytes is None or self.total_bytes == 0:
            return None
        return self.resident_bytes / self.total_bytes


def residency(files: Iterable[Path], root: str = "/") -> Residency:
    """Measure how much of `files` is in the page cache, without reading them."""
    # Since Linux 5.2 mincore reports every page as resident if the caller neither owns the file nor may write it.
    status = read_text(os.path.join(root, "proc/self/status"))
    capabilities = next(int(line.split()[1], 16) for line in status.split("\n") if line.startswith("CapEff:"))
    may_ask_of_any = _kernel_tells_all(os.uname().release) or bool(capabilities >> _CAP_FOWNER & 1)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    libc.mincore.argtypes = [pointer, size, ctypes.c_char_p]
    resident = total = 0
    unreadable = ""
    for path in files:
        with _open_data_file(path, "to see what the page cache holds of it") as fd:
            info = os.fstat(fd)
            total += info.st_size
            if not (may_ask_of_any or info.st_uid == os.geteuid() or os.access(path, os.W_OK, effective_ids=True)):
                unreadable = f"the kernel hides the residency of {path}: own the file, or get write access to it"
            elif info.st_size:
                try:
                    resident += _resident_bytes(libc, fd, info.st_size)
                except OSError as error:
                    unreadable = f"the kernel does not report the residency of {path}: {error.strerror}"
    return Residency(None if unreadable else resident, total, unreadable)


@contextlib.contextmanager
def _open_data_file(path: Path, purpose: str) -> Iterator[int]:
    """A descriptor to read from; `purpose` goes into the message: `to see ...`."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        what = f"{path} cannot be opened {purpose}: {error.strerror}"
        raise DataSetError(what, "did something change the data set while it was in use?") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _resident_bytes(libc: ctypes.CDLL, fd: int, size: int) -> int:
    pages = -(-size // mmap.PAGESIZE)
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), f"mmap of {size} bytes: {os.strerror(ctypes.get_errno())}")
    try:
        flags = ctypes.create_string_buffer(pages)
        if libc.mincore(address, size, flags):
            raise OSError(ctypes.get_errno(), f"mincore of {size} bytes: {os.strerror(ctypes.get_errno())}")
    finally:
        libc.munmap(address, size)
    in_cache = flags.raw.translate(_RESIDENT)
    beyond_end = (pages * mmap.PAGESIZE - size) if in_cache[-1] else 0
    return in_cache.count(1) * mmap.PAGESIZE - beyond_end


def _kernel_tells_all(release: str) -> bool:
    """Whether a kernel of this release answers for files of other users too: those before 5.2 do."""
    major, minor = (int(number) for number in re.findall(r"\d+", release)[:2])
    return (major, minor) < (5, 2)
