"""Writes and removes files so that a power cut leaves either the old state or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace `path` as a whole; once this returns, the text is on the medium.

    Raises:
        OSError: the disk is full, the directory is read-only, ...; `path` is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    _sync_directory(path.parent)


def remove_durably(path: Path) -> None:
    """Remove `path`; once this returns, it is gone from the medium."""
    path.unlink()
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
