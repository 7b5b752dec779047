"""Reads and writes the kernel's one-value files, with errors that name the file, the value and the way out.

Where this user may not, the helper for what needs root is asked: this is the one place from where knobs reach it.
"""

from __future__ import annotations

import os
import shlex
from typing import List, Sequence

from harness.board import privileges
from harness.board import sensor_file as kernel_file
from harness.core.errors import ControlError


def exists(path: str) -> bool:
    """Whether the file is there, also where only root sees it (debugfs).

    Raises:
        ControlError: only root can tell, and this user may not use the helper.
    """
    try:
        os.stat(path)
        return True
    except PermissionError:
        kind, name = privileges.node_of(path) or ("", "")
        return bool(kind) and name in privileges.names(kind)
    except OSError:
        return False


def entries(folder: str) -> List[str]:
    """What a folder holds, sorted, also where only root sees it; empty where there is none.

    Raises:
        ControlError: only root can tell, and this user may not use the helper.
    """
    try:
        return sorted(os.listdir(folder))
    except PermissionError:
        kind, _ = privileges.node_of(os.path.join(folder, "entry")) or ("", "")
        return sorted(privileges.names(kind)) if kind else []
    except OSError:
        return []


def read_text(path: str) -> str:
    """The file's text, without the white space around it.

    Raises:
        ControlError: it cannot be read.
    """
    try:
        return kernel_file.read_text(path)
    except PermissionError as error:
        node = privileges.node_of(path)
        if node is None:
            raise ControlError(f"{path} cannot be read: {error.strerror}") from error
        return privileges.call("read", *node).strip()
    except OSError as error:
        raise ControlError(f"{path} cannot be read: {error.strerror}") from error


def read_int(path: str) -> int:
    """The whole number that the file holds.

    Raises:
        ControlError: it cannot be read, or holds something else.
    """
    text = read_text(path)
    try:
        return int(text)
    except ValueError:
        raise ControlError(f"{path} holds {text!r}, not a whole number") from None


def may_write(path: str) -> bool:
    """Whether `write` can reach the file, directly or through the helper."""
    if os.access(path, os.W_OK, effective_ids=True):
        return True
    return privileges.node_of(path) is not None and privileges.closed() is None


def grant(paths: Sequence[str]) -> str:
    """What gives this user the right to write files."""
    if any(map(privileges.node_of, paths)):
        return privileges.ASK_FOR_RULE
    return f"until the next boot: `sudo chown $USER {' '.join(map(shlex.quote, paths))}`"


def write(path: str, value: object, hint: str = "") -> None:
    """Write a value to a file that is there; never makes one.

    Args:
        path: the file.
        value: what to write, as text.
        hint: what to do where it is refused.

    Raises:
        ControlError: it was refused.
    """
    try:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        except PermissionError:
            node = privileges.node_of(path)
            if node is None:
                raise
            privileges.call("write", *node, str(value))
            return
        try:
            os.write(fd, f"{value}\n".encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise ControlError(f"writing {value} to {path} was refused: {error.strerror}", hint) from error
