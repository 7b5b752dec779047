"""Reads and writes the files of a tree as a kernel shows them: whole values, never a half-written one."""

from __future__ import annotations

import os
import threading

from boards.board_state import FOLDER


def take_text(root: str, name: str) -> str:
    """The text without its newline; empty where there is no such file now, or one whose reads hang."""
    if not os.path.isfile(os.path.join(root, name)):
        return ""
    try:
        with open(os.path.join(root, name), errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def put_text(root: str, name: str, text: str) -> None:
    """Write to a file, if it is there; it stays the same file: somebody else may have it open to write."""
    if not os.path.isfile(os.path.join(root, name)):
        return
    content = f"{text}\n".encode()
    fd = os.open(os.path.join(root, name), os.O_WRONLY)
    try:
        os.pwrite(fd, content, 0)
        os.ftruncate(fd, len(content))
    finally:
        os.close(fd)


def show_text(root: str, name: str, text: str) -> None:
    """Replace a reading, if it is there, in one step: whoever reads sees the old or the new one."""
    path = os.path.join(root, name)
    if not os.path.isfile(path):
        return
    beside = os.path.join(root, FOLDER, f"reading.{os.getpid()}.{threading.get_ident()}")
    with open(beside, "w") as file:
        file.write(f"{text}\n")
    os.chmod(beside, os.stat(path).st_mode & 0o777)
    os.replace(beside, path)
