"""A small kernel file that stays open, so that a reading is one system call: for sensors read many times a second."""

from __future__ import annotations

import os
from typing import Optional

_READ_BYTES = 4096  # the kernel shows no more than a page in a file of sysfs


class KeptFile:
    """One value or one line that the kernel writes anew at every reading from the file's start.

    After a failure, or where the file was removed, the next reading opens it again: a driver that was unbound and bound
    again gives its files back under the same path.

    Args:
        path: where it is; nothing is opened yet.
    """

    def __init__(self, path: str) -> None:
        """Remember where the file is."""
        self.path = path
        self._fd: Optional[int] = None

    def read_text(self) -> str:
        """The file's text, without white space or the device tree's NUL around it.

        Raises:
            OSError: it is not there, may not be read, or its driver gives no value; the message names it.
        """
        try:
            if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
                self.close()
            if self._fd is None:
                self._fd = os.open(self.path, os.O_RDONLY)
            data = os.pread(self._fd, _READ_BYTES, 0)
        except OSError as error:
            self.close()
            raise OSError(error.errno, error.strerror, self.path) from error
        return data.decode(errors="replace").strip("\0 \t\n")

    def read_int(self) -> int:
        """The whole number that the file holds.

        Raises:
            OSError: as `read_text`.
            ValueError: it holds something else; the message names the file and its text.
        """
        text = self.read_text()
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{self.path} holds {text!r}, not a whole number") from None

    def close(self) -> None:
        """Let go of the file until the next reading."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def __del__(self) -> None:
        """Let go of the file with the source that read it."""
        self.close()
