"""The index of a history: what it needs of each profile, kept in one file beside the nights.

A night is read once, as a frame; its columns are computed by `harness.judge.profile_columns` and kept here. The index
can always be removed: it is made again from the nights. If it is damaged or another version of the suite computed it,
it counts as empty.

A night counts as unchanged if size, times and inode of its file are those of the moment when it was read. A file that
was read within `SETTLED_NS` of its last change is read again, because a later change within the same tick of the file
system's clock would not show.

The file is replaced as a whole, so that processes share it without a lock: if two write at a time, the index has the
nights of one of them, and the next one reads the others again. It has the line `MAGIC`, a CRC-32 sum of what follows, a
line of JSON (version, nights, texts) and the columns, one after the other, as bytes of NumPy arrays.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from harness.core import cases
from harness.core.files import is_shared, replacing
from harness.judge import profile_columns, quantities
from harness.judge.profile_columns import ProfileColumns, column_types, joined
from harness.store import conditions, frames, rows

NAME = ".jetwatt-history"
"""Of the index of a folder; hidden, and without the suffix of a results file."""

MAGIC = b"jetwatt history index\n"
SETTLED_NS = 2 * 10**9  # the coarsest clock of a file system: FAT counts two seconds

_MEANING: Sequence[ModuleType] = (cases, conditions, frames, rows, quantities, profile_columns)
"""The modules that decide what is in the columns: where one of them has changed, the index is made anew."""

_CRC_BYTES = 4
_AT_ONCE = 1 << 20  # bytes that are read to compute the checksum


class IndexUnusableError(Exception):
    """What has the name of an index is something else, or cannot be read."""


class Signature(NamedTuple):
    """What shows that a file has changed."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, file: str) -> Optional[Signature]:
        """That of a file, or of what it links to; None if it is gone."""
        try:
            status = os.stat(file)
        except OSError:
            return None
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class ReadNight(NamedTuple):
    """A file that was read: its state then, when that was, and how many profiles it has."""

    signature: Signature
    read_at_ns: int
    profiles: int

    def is_of(self, signature: Signature) -> bool:
        """Whether the file with that signature is the one that was read."""
        return self.signature == signature and self.read_at_ns - signature.ctime_ns > SETTLED_NS


class HistoryIndex:
    """The index at a path.

    Attributes:
        nights: those in the index by the names of their files, relative to its folder.
        profiles: theirs, in the order of the nights.

    Raises:
        IndexUnusableError: what is at the path is no index, or of another user who could have made up its figures.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.parent
        self.nights: Dict[str, ReadNight] = {}
        self.profiles = joined([])
        try:
            _refuse_foreign(path)
            content = _read(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise IndexUnusableError(str(error)) from error
        if content is not None:
            self.nights, self.profiles = content

    def update(self, new: Dict[str, Tuple[ReadNight, ProfileColumns]], gone: Sequence[str] = ()) -> None:
        """Add nights, in the place of those of the same names, and remove others; `write` keeps that."""
        names = [name for name in self.nights if name not in new and name not in gone]
        kept = self.select(set(names))
        self.nights = {name: self.nights[name] for name in names}
        self.nights.update({name: night for name, (night, _) in new.items()})
        self.profiles = joined([kept, *(profiles for _, profiles in new.values())])

    def write(self) -> None:
        """Replace the file; OSError if that fails, on a full disk for example."""
        rows_of_nights = [(name, *night) for name, night in self.nights.items()]
        about = {"version": _version(), "nights": rows_of_nights, "texts": self.profiles.texts}
        parts: List[Any] = [json.dumps(about).encode() + b"\n", *(self.profiles[name].data for name in column_types())]
        crc = 0
        for part in parts:
            crc = zlib.crc32(part, crc)
        with replacing(self.path) as file:
            file.write(MAGIC + crc.to_bytes(_CRC_BYTES, "big"))
            for part in parts:
                file.write(part)

    def select(self, names: Set[str]) -> ProfileColumns:
        """The profiles of some nights; the index's own table if it has no others."""
        if len(names) == len(self.nights):
            return self.profiles
        counts = [night.profiles for night in self.nights.values()]
        is_wanted = np.repeat([name in names for name in self.nights], counts)
        columns = {name: values[is_wanted] for name, values in self.profiles.columns.items()}
        return ProfileColumns(self.profiles.texts, columns)


def _refuse_foreign(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise IndexUnusableError("it is not a regular file")
    if is_shared(path.parent) and status.st_uid not in (0, os.geteuid()):
        raise IndexUnusableError(f"it belongs to another user (number {status.st_uid}), in a shared folder")
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    if start and start != MAGIC and path.name != NAME:
        raise IndexUnusableError("it is another kind of file")


def _read(path: Path) -> Optional[Tuple[Dict[str, ReadNight], ProfileColumns]]:
    """Nights and profiles; None if the file is damaged or of another version."""
    with path.open("rb") as file:
        magic, crc = file.read(len(MAGIC)), file.read(_CRC_BYTES)
        start = file.tell()
        computed_crc = 0
        for block in iter(lambda: file.read(_AT_ONCE), b""):
            computed_crc = zlib.crc32(block, computed_crc)
        if magic != MAGIC or crc != computed_crc.to_bytes(_CRC_BYTES, "big"):
            return None
        file.seek(start)
        about = json.loads(file.readline())
        if about["version"] != _version():
            return None
        nights = {name: ReadNight(Signature(*signature), *others) for name, signature, *others in about["nights"]}
        count = sum(night.profiles for night in nights.values())
        columns = {name: np.fromfile(file, dtype, count) for name, dtype in column_types().items()}
    return nights, ProfileColumns(about["texts"], columns)


@functools.lru_cache(maxsize=None)
def _version() -> str:
    """A hash of the code that decides what is in the columns, as it was first read by this process."""
    digest = hashlib.sha256()
    files = [Path(str(module.__file__)) for module in _MEANING]
    for file in [*files, files[2].with_name("columns.csv")]:
        digest.update(file.read_bytes())
    return digest.hexdigest()
