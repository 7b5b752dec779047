"""Files: reading TOML, and writing so that a crash leaves either the old state or the new one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict

from harness.core.errors import InvalidValueError, StoreError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> Dict[str, Any]:
    """Read a TOML file.

    Raises:
        InvalidValueError: the file cannot be read or is not TOML; names the file and the place.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InvalidValueError(f"{path} is not a readable TOML file: {error}") from error


def write_durably(path: Path, content: bytes) -> None:
    """Replace `path` as a whole, making its folder; once this returns, the content is on the medium.

    Raises:
        OSError: the disk is full, the folder is read-only, ...; `path` is then as it was.
    """
    target = path.resolve()  # a link stays a link
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    finally:
        if draft.exists():
            draft.unlink()
    _sync_directory(target.parent)


def write_output(path: Path, content: bytes) -> None:
    """`write_durably` for a file that the user named.

    Raises:
        StoreError: it could not be written; what stood at `path` is unchanged.
    """
    try:
        write_durably(path, content)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}", "make room, allow it, or name another file") from error


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
