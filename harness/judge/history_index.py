"""The index of a history: what it needs of each profile, kept in one SQLite file beside the nights.

A night is read once, as a frame; its columns are computed by `harness.judge.profile_columns` and kept here, a row for
each profile. The index can always be removed: it is made again from the nights. It is made anew by itself if it is
damaged, if another version of the suite computed it, or if it is no index at all.

A night counts as unchanged if size, times and inode of its file are those of the moment when it was read. A file that
was read within `SETTLED_NS` of its last change is read again, because a later change within the same tick of the file
system's clock would not show.

Processes share the index. Each transaction replaces whole nights, and SQLite lets one process write at a time. A second
file, `NAME.lock`, is locked (flock) by every process that has the index open, so that none removes a damaged one that
another still uses.

Tables: `nights` has a row for each file; `subject`, `run` and `software` the distinct texts of
`harness.judge.profile_columns`, as JSON; `profiles` the columns of each profile. `crc` are CRC-32 sums: of a text, and
of the rows of a night.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import sqlite3
import stat
import time
import urllib.parse
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from harness.core import cases
from harness.core.files import is_shared
from harness.judge import profile_columns, quantities
from harness.judge.profile_columns import TEXTS, ProfileColumns, column_types
from harness.store import conditions, frames, rows

NAME = ".jetwatt-history"
"""Of the index of a folder; hidden, and without the suffix of a results file."""

APPLICATION_ID = 0x6A657468  # "jeth"
SETTLED_NS = 2 * 10**9  # the coarsest clock of a file system: FAT counts two seconds
BUSY_TIMEOUT_S = 60.0
OTHER_USE_TIMEOUT_S = 10.0
"""How long to wait for a process that has an index open which is not sound: most only look, or make it."""

_MEANING: Sequence[ModuleType] = (cases, conditions, frames, rows, quantities, profile_columns)
"""The modules that decide what is in the columns: where one of them has changed, the index is made anew."""

_AT_ONCE = 50_000  # rows that are read from SQLite at once
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class IndexDamagedError(Exception):
    """The index is damaged: it has to be removed and made anew."""


class IndexUnusableError(Exception):
    """The index cannot be used now, or never: a foreign file, a full disk, another process that holds it too long."""


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
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino & (2**63 - 1))


class ReadNight(NamedTuple):
    """A night that was read: the name of its file, relative to the folder of the index, and its profiles."""

    name: bytes
    signature: Signature
    read_at_ns: int
    profiles: ProfileColumns


class IndexedNight(NamedTuple):
    number: int
    signature: Signature
    read_at_ns: int
    count: int  # type: ignore[assignment]  # profiles; hides a tuple's method that nothing calls
    crc: int

    def is_of(self, signature: Signature) -> bool:
        """Whether the file with that signature is the one that was read."""
        return self.signature == signature and self.read_at_ns - signature.ctime_ns > SETTLED_NS


class HistoryIndex:
    """The index at a path, open; use `open_index`. Its methods raise `IndexDamagedError` and `IndexUnusableError`."""

    def __init__(self, path: Path, lock: Optional[int]) -> None:
        """Open a sound index; without a lock (an open file) it is only read."""
        self.folder = path.parent
        self.read_only = lock is None
        self._lock = lock
        self._connection = _connect(path, "mode=ro" if self.read_only else "mode=rw")
        self._ids: Dict[Tuple[str, str], int] = {}  # of texts

    def __enter__(self) -> HistoryIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read within the block is of one moment, whatever other processes write meanwhile."""
        with _explained():
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def nights(self) -> Dict[bytes, IndexedNight]:
        """The nights in the index by their names."""
        fields = "id, size, mtime_ns, ctime_ns, inode, read_at_ns, profiles, crc"
        return {
            name: IndexedNight(number, Signature(*signature), *others)
            for name, number, signature, others in (
                (row[0], row[1], row[2:6], row[6:]) for row in self._query(f"SELECT name, {fields} FROM nights")
            )
        }

    def keep(self, nights: Sequence[ReadNight]) -> None:
        """Put nights in, or in the place of earlier ones of the same name: all or none."""
        with self._writing() as connection:
            for night in nights:
                self._remove(night.name)
                columns, profiles = [], night.profiles
                for name in column_types():
                    values = profiles[name]
                    if name in TEXTS:
                        ids = [self._id_of(name, text) for text in profiles.texts[name]]
                        values = np.array(ids, np.int32)[values]
                    columns.append(values)
                crc = _crc(columns)
                about = (night.name, *night.signature, night.read_at_ns, len(profiles), crc)
                cursor = connection.execute(f"INSERT INTO nights VALUES (NULL{', ?' * len(about)})", about)
                lists = [column.tolist() for column in columns]
                content = ((cursor.lastrowid, place, *row) for place, row in enumerate(zip(*lists)))
                connection.executemany(f"INSERT INTO profiles VALUES (?, ?{', ?' * len(columns)})", content)

    def forget(self, names: Sequence[bytes]) -> None:
        """Remove nights whose files are gone."""
        with self._writing():
            for name in names:
                self._remove(name)

    def load(self, nights: Sequence[IndexedNight]) -> ProfileColumns:
        """The profiles of some nights, verified; `IndexDamagedError` if a checksum differs."""
        nights = sorted(nights)
        starts = np.cumsum([0, *(night.count for night in nights)])
        columns = {name: np.empty(starts[-1], dtype) for name, dtype in column_types().items()}
        with _explained():
            filled = 0
            for block in self._blocks(nights):
                for column, values in zip(columns.values(), zip(*block)):
                    column[filled : filled + len(block)] = values
                filled += len(block)
        if filled != starts[-1]:
            raise IndexDamagedError(f"it has {filled} of {starts[-1]} profiles")
        for night, start, stop in zip(nights, starts, starts[1:]):
            if night.crc != _crc([column[start:stop] for column in columns.values()]):
                raise IndexDamagedError(f"checksum of night {night.number}")
        texts = {}
        for name in TEXTS:
            texts[name], place_of = self._texts(name)
            ids = columns[name]
            if len(ids) and not 0 <= ids.min() <= ids.max() < len(place_of):
                raise IndexDamagedError(f"unknown {name}")
            columns[name] = place_of[ids]
            if len(ids) and columns[name].min() < 0:
                raise IndexDamagedError(f"unknown {name}")
        return ProfileColumns(texts, columns)

    def _blocks(self, nights: Sequence[IndexedNight]) -> Iterator[List[Tuple[Any, ...]]]:
        """The rows of some nights, in the order of their numbers."""
        wanted = {night.number for night in nights}
        names = ", ".join(f'"{name}"' for name in column_types())
        statement = f"SELECT {names} FROM profiles WHERE night BETWEEN ? AND ? ORDER BY night, number"
        for first, last in _ranges(wanted, {night.number for night in self.nights().values()}):
            cursor = self._connection.execute(statement, (first, last))
            block = cursor.fetchmany(_AT_ONCE)
            while block:
                yield block
                block = cursor.fetchmany(_AT_ONCE)

    def _texts(self, name: str) -> Tuple[List[str], np.ndarray]:
        """All texts of a kind, and the place of each id among them; -1 for an id that has none."""
        stored = self._query(f"SELECT id, content, crc FROM {name}")
        for number, content, crc in stored:
            if crc != zlib.crc32(content.encode()):
                raise IndexDamagedError(f"checksum of {name} {number}")
        place_of = np.full(max((number for number, _, _ in stored), default=0) + 1, -1, np.int32)
        for place, (number, _, _) in enumerate(stored):
            place_of[number] = place
        return [content for _, content, _ in stored], place_of

    def _id_of(self, name: str, text: str) -> int:
        if (name, text) not in self._ids:
            content = text, zlib.crc32(text.encode())
            self._connection.execute(f"INSERT OR IGNORE INTO {name} VALUES (NULL, ?, ?)", content)
            [(number,)] = self._connection.execute(f"SELECT id FROM {name} WHERE content = ?", (text,))
            self._ids[name, text] = number
        return self._ids[name, text]

    def _remove(self, name: bytes) -> None:
        self._connection.execute("DELETE FROM profiles WHERE night IN (SELECT id FROM nights WHERE name = ?)", (name,))
        self._connection.execute("DELETE FROM nights WHERE name = ?", (name,))

    def _query(self, statement: str) -> List[Tuple[Any, ...]]:
        with _explained():
            return self._connection.execute(statement).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._ids.clear()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def open_index(path: Path) -> Optional[HistoryIndex]:
    """The index at a path, made if there is none; None if there is none and this user cannot make one.

    Raises:
        IndexUnusableError: it is something else, or of another user who could have made up its figures, or in use.
    """
    with _explained():
        _refuse_foreign(path)
        try:
            lock = os.open(f"{path}.lock", _LOCK_FLAGS, 0o666)
        except OSError:
            return HistoryIndex(path, None) if path.exists() and _is_sound(path) else None
        try:
            _share_sound_index(path, lock)
            return HistoryIndex(path, lock)
        except BaseException:
            os.close(lock)
            raise


def remove_index(path: Path) -> None:
    """Remove a damaged index that no other process uses, so that the next one to open it makes it anew."""
    with contextlib.suppress(OSError):
        lock = os.open(f"{path}.lock", _LOCK_FLAGS, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _unlink(path)
        finally:
            os.close(lock)


def _refuse_foreign(path: Path) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise IndexUnusableError("it is not a regular file")
    if is_shared(path.parent) and status.st_uid not in (0, os.geteuid()):
        raise IndexUnusableError(f"it belongs to another user (number {status.st_uid}), in a shared folder")
    with path.open("rb") as file:
        header = file.read(100)
    if header and path.name != NAME and header[68:72] != APPLICATION_ID.to_bytes(4, "big"):
        raise IndexUnusableError("it is another kind of file")


def _share_sound_index(path: Path, lock: int) -> None:
    """Lock a sound index for sharing; where there is none, make it while no other process has it open.

    A lock is never converted: Linux drops the old one before it grants the new one, so that another process can come
    in between. Instead it is given up, and what is there is looked at again under the next one.
    """
    give_up_at = time.monotonic() + OTHER_USE_TIMEOUT_S
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_sound(path):
            return
        fcntl.flock(lock, fcntl.LOCK_UN)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                raise IndexUnusableError("it is damaged or of another version, and another process uses it") from None
            time.sleep(random.uniform(0.005, 0.05))  # so that processes that wait for each other part
            continue
        if not _is_sound(path):
            _make_anew(path)
        fcntl.flock(lock, fcntl.LOCK_UN)


def _make_anew(path: Path) -> None:
    """Replace an index that is not sound; the caller has it for itself."""
    _unlink(path)
    with contextlib.closing(_connect(path, "mode=rwc")) as connection:
        connection.execute("BEGIN")
        for statement in _tables():
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_meaning()}")
        connection.execute("COMMIT")


def _unlink(path: Path) -> None:
    for file in (Path(f"{path}-journal"), path):  # a journal would be applied to the next file of that name
        with contextlib.suppress(FileNotFoundError):
            file.unlink()


def _is_sound(path: Path) -> bool:
    """Whether there is an index with the tables of this version, before any other query."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    try:
        with contextlib.closing(_connect(path, "mode=ro")) as connection:
            stored = connection.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY rowid").fetchall()
            pragmas = ("application_id", "user_version")
            identity = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            raise
        return False
    return [sql for (sql,) in stored] == list(_tables()) and identity == [APPLICATION_ID, _meaning()]


def _tables() -> Sequence[str]:
    kinds = {name: "REAL" if dtype is np.float64 else "INTEGER NOT NULL" for name, dtype in column_types().items()}
    columns = [f'"{name}" {kind}' for name, kind in kinds.items()]
    return (
        "CREATE TABLE nights (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,"
        " mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, read_at_ns INTEGER NOT NULL,"
        " profiles INTEGER NOT NULL, crc INTEGER NOT NULL)",
        *(
            f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE, crc INTEGER NOT NULL)"
            for name in TEXTS
        ),
        f"CREATE TABLE profiles (night INTEGER NOT NULL, number INTEGER NOT NULL, {', '.join(columns)},"
        " PRIMARY KEY (night, number)) WITHOUT ROWID",
    )


def _meaning() -> int:
    """A number for the code that decides what is in the columns."""
    digest = hashlib.sha256()
    files = [Path(str(module.__file__)) for module in _MEANING]
    for file in [*files, files[2].with_name("columns.csv")]:
        digest.update(file.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big", signed=True)


def _connect(path: Path, options: str) -> sqlite3.Connection:
    location = f"file:{urllib.parse.quote(os.fsencode(path.absolute()))}?{options}"
    connection = sqlite3.connect(location, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _ranges(wanted: Set[int], present: Set[int]) -> Iterator[Tuple[int, int]]:
    """The wanted numbers as ranges without others that are present, so that SQLite reads long stretches."""
    first = last = None
    for number in sorted(present):
        if number in wanted:
            first, last = (number if first is None else first), number
        elif first is not None and last is not None:
            yield first, last
            first = None
    if first is not None and last is not None:
        yield first, last


def _crc(columns: Sequence[np.ndarray]) -> int:
    checksum = 0
    for column in columns:
        checksum = zlib.crc32(np.ascontiguousarray(column).tobytes(), checksum)
    return checksum


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of SQLite and the system into an `IndexDamagedError` or `IndexUnusableError`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "malformed" in str(error) or "no such" in str(error):
            raise IndexDamagedError(str(error)) from error
        raise IndexUnusableError(str(error)) from error
    except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError) as error:
        raise IndexDamagedError(str(error)) from error
    except OSError as error:
        raise IndexUnusableError(str(error)) from error
