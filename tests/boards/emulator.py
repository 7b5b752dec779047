"""The kernel of a tree for writers that know nothing of it: watching the files, or in the place of their system calls.

Watching catches every writer, in any process, but late: a bad value stands for some milliseconds and is then put back,
without an error for the writer. `intercepted` gives the error at once, to what writes through
`harness.board.kernel_file`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Type

from boards.kernel import Kernel
from harness.board import kernel_file

SETTLE_S = 0.1


class Emulator:
    """A thread that watches the files of a tree, within a `with` block."""

    def __init__(self, root: str, interval_s: float = 0.01) -> None:
        self.kernel = Kernel(root)
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Optional[BaseException] = None

    def __enter__(self) -> Emulator:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise RuntimeError("the emulator of the board ended early") from self._error

    def wait(self, condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
        """Wait until a condition holds; returns what it returned."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            result = condition()
            if result:
                return result
            time.sleep(self._interval_s)
        raise TimeoutError("the board did not get there")

    def _run(self) -> None:
        try:
            names = list(self.kernel.state()["controls"])
            seen: Dict[str, Tuple[int, ...]] = {}
            settled = 0.0
            while not self._ended.is_set():
                now = {name: _stamp(os.path.join(self.kernel.root, name)) for name in names}
                # A second write in one tick of the file system's clock leaves no mark: look at the texts now and then.
                if now != seen or time.monotonic() > settled + SETTLE_S:
                    seen, settled = now, time.monotonic()
                    self.kernel.observe()
                self._ended.wait(self._interval_s)
            self.kernel.observe()
        except Exception as error:  # handed to the test at the end of its block
            self._error = error


def _stamp(path: str) -> Tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)


class _System:
    """The module `os` for `harness.board.kernel_file`, with writes to the tree taken by its kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._open: Dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int, *arguments: int) -> int:
        inside = os.path.abspath(path).startswith(f"{self._kernel.root}/")
        fd = os.open(path, flags & ~os.O_TRUNC if inside else flags, *arguments)
        if inside:
            self._open[fd] = os.path.abspath(path)
        return fd

    def write(self, fd: int, data: bytes) -> int:
        if fd not in self._open:
            return os.write(fd, data)
        self._kernel.write(self._open[fd], data.decode())
        return len(data)

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        os.close(fd)


@contextlib.contextmanager
def intercepted(kernel: Kernel) -> Iterator[None]:
    """Within the block, what knobs write to the tree goes to its kernel, and its errors come back at once."""
    system = kernel_file.os
    kernel_file.os = _System(kernel)
    try:
        yield
    finally:
        kernel_file.os = system
