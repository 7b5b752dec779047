"""Reads and writes the kernel's one-value files, with errors that name the file, the value and the way out."""

from __future__ import annotations

import os

from harness.errors import ControlError
from harness.telemetry import kernel_file


def read_text(path: str) -> str:
    """The file's text, without the white space around it.

    Raises:
        ControlError: it cannot be read.
    """
    try:
        return kernel_file.read_text(path)
    except OSError as error:
        raise ControlError(f"{path} cannot be read: {error.strerror}") from error


def read_int(path: str) -> int:
    """The whole number that the file holds.

    Raises:
        ControlError: it cannot be read, or holds something else.
    """
    try:
        return kernel_file.read_int(path)
    except OSError as error:
        raise ControlError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ControlError(str(error)) from error


def write(path: str, value: object, way_out: str = "") -> None:
    """Write a value to a file that is there; never makes one.

    Args:
        path: the file.
        value: what to write, as text.
        way_out: what to do where it is refused.

    Raises:
        ControlError: it was refused.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(fd, f"{value}\n".encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise ControlError(f"writing {value} to {path} was refused: {error.strerror}", way_out) from error
