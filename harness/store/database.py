"""The SQLite file of results: its tables, and checks that a file is a results file, intact and writable.

Its version is `PRAGMA user_version`; a file of another version is refused.

A results file is identified by its `PRAGMA application_id`. `environments` holds each distinct environment once, as
JSON. `profiles` holds a row per profile; its case, conditions, aggregates, flags and notes of telemetry are JSON. `key`
is the hash of its comparable conditions as defined by the version that wrote it, for reading the file by hand.
`minibatch_columns` holds the raw minibatches of a profile as compressed columns, see `harness.store.rows.pack`.
`series` holds a row per telemetry channel: sample times (monotonic seconds) and values, each a sequence of
little-endian 64-bit floats. `record_crc` and `raw_crc` are CRC-32 sums of a profile's row with its environment and of
its minibatches and series as they are stored: a page that was overwritten on disk may still be a valid page. `verdicts`
holds the last verdict of each device and claim.
"""

from __future__ import annotations

import os
import sqlite3
import time
import urllib.parse
from pathlib import Path
from typing import Callable, TypeVar, Union

from harness.core.errors import StoreError
from harness.core.files import refuse_link_of_another

Done = TypeVar("Done")

APPLICATION_ID = 0x6A657477  # "jetw"
VERSION = 2

TABLES = """
CREATE TABLE environments (
    id INTEGER PRIMARY KEY,
    content TEXT NOT NULL UNIQUE
);
CREATE TABLE profiles (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    case_id TEXT NOT NULL,
    key TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT NOT NULL,
    provenance TEXT NOT NULL,
    environment_id INTEGER NOT NULL REFERENCES environments (id),
    case_json TEXT NOT NULL,
    conditions_json TEXT NOT NULL,
    aggregates_json TEXT NOT NULL,
    flags_json TEXT NOT NULL,
    telemetry_json TEXT NOT NULL,
    record_crc INTEGER NOT NULL,
    raw_crc INTEGER NOT NULL
);
CREATE TABLE series (
    profile_id INTEGER NOT NULL REFERENCES profiles (id),
    position INTEGER NOT NULL,
    channel TEXT NOT NULL,
    times_s BLOB NOT NULL,
    channel_values BLOB NOT NULL,
    PRIMARY KEY (profile_id, position)
);
CREATE TABLE minibatch_columns (
    profile_id INTEGER PRIMARY KEY REFERENCES profiles (id),
    content BLOB NOT NULL
);
"""

VERDICTS = """
CREATE TABLE IF NOT EXISTS verdicts (
    device TEXT NOT NULL,
    claim TEXT NOT NULL,
    content TEXT NOT NULL,
    last_profile INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (device, claim)
)
"""
"""Verdicts on the papers' claims, as JSON; created with the first verdicts."""

BUSY_TIMEOUT_S = 60.0
"""Timeout for another writing process: its transaction takes milliseconds, an SD card's fsync a second."""

LOCKING, LOCKING_S = "locking protocol", 10.0
"""What SQLite says where a network's file system mishandles locks, and how long that is tried again."""

RESCUE = "keep a copy, save what can be read by `sqlite3 FILE .recover | sqlite3 NEW`, or give another results file"

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_USER_VERSION_AT, _APPLICATION_ID_AT = 60, 68  # offsets in the header of an SQLite file, big-endian
_RETRY_S = 0.05
_WORDS_OF_PROGRAMS = ("VIRTUAL", "CHECK", " AS (", " AS(")
_PROGRAMS = " OR ".join(["type NOT IN ('table', 'index')", *(f"sql LIKE '%{word}%'" for word in _WORDS_OF_PROGRAMS)])


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open or create a results file; StoreError, sqlite3.Error or OSError, without change, if foreign or damaged."""
    refuse_link_of_another(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _refuse_broken(path)
    connection = _connect(path, "mode=rwc")
    try:
        _make_tables(connection)
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    if not path.exists() or path.stat().st_size == 0:
        raise StoreError(
            f"there is no results file {path}", "give an existing one, or make one: pytest benchmarks --results FILE"
        )
    _refuse_broken(path)
    if _may_write(path) and _may_write(path.parent):
        connection = _connect(path, "mode=rw")  # so that closing tidies up the write-ahead log
        connection.execute("PRAGMA query_only = ON")
        return connection
    return _connect(path, "mode=ro" if _has_content(_beside(path, "-wal")) else "immutable=1")


def is_being_written(path: Union[str, Path]) -> bool:
    """Whether a results file has a log of its own: a process writes to it, or was killed before it had closed it."""
    place = os.path.realpath(path) if os.path.islink(path) else str(path)
    logs = [f"{place}{suffix}" for suffix in ("-wal", "-journal")]
    return any(os.path.exists(log) and os.path.getsize(log) > 0 for log in logs)


def retried(act: Callable[[], Done]) -> Done:
    """The result of an act on a results file; tried again while a network's file system refuses the lock."""
    deadline_s = time.monotonic() + LOCKING_S
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if LOCKING not in str(error) or time.monotonic() > deadline_s:
                raise
        time.sleep(_RETRY_S)


def explain(path: Path, doing: str, error: Exception) -> StoreError:
    """An error of SQLite or the system as a StoreError with a hint."""
    said = str(error)
    if "malformed" in said or "not a database" in said or "decode" in said:
        return StoreError(f"{path} is damaged ({said})", RESCUE)
    if "is full" in said:
        return StoreError(
            f"cannot {doing} {path}: {said}", "make room on it; every profile stored before is still there"
        )
    if LOCKING in said:
        return StoreError(
            f"cannot {doing} {path}: its file system did not give the lock in {LOCKING_S:g} s ({said})",
            "keep results files on a local disk, not on NFS, and copy them there afterwards",
        )
    if "locked" in said:
        held = f"another process has held it for {BUSY_TIMEOUT_S:g} s"
        return StoreError(f"cannot {doing} {path}: {held} ({said})", "wait for that process or end it")
    if "readonly" in said or "unable to open" in said or isinstance(error, PermissionError):
        return StoreError(
            f"cannot {doing} {path}: this user may not write the file or its folder ({said})",
            "allow it (a reader needs that too while FILE-wal exists), or give another results file",
        )
    return StoreError(f"cannot {doing} {path}: {said}", "give another results file")


def _connect(path: Path, options: str) -> sqlite3.Connection:
    location = f"file:{urllib.parse.quote(os.fsencode(path.resolve()))}?{options}"
    return sqlite3.connect(location, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)


def _may_write(path: Path) -> bool:
    return os.access(str(path), os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _beside(path: Path, suffix: str) -> Path:
    """SQLite's own file next to a database: its write-ahead log `-wal`, its rollback journal `-journal`."""
    resolved = path.resolve()
    return resolved.with_name(resolved.name + suffix)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _refuse_broken(path: Path) -> None:
    """Refuse anything but an intact results file, by its first bytes before SQLite opens it, and might change it."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder, expected a results file", "give a file, such as out/results.sqlite")
    if not _has_content(path) or _has_content(_beside(path, "-journal")):
        return  # new, or being made: the transaction that makes the tables looks again
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header.startswith(_MAGIC):
        raise StoreError(
            f"{path} is not a results file, or its header is damaged: it begins with {header[:16]!r}",
            "give a results file, or put a copy in its place",
        )
    if len(header) < _HEADER_BYTES:
        raise StoreError(f"{path} is damaged: it ends after {len(header)} bytes", RESCUE)
    application = int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4], "big")
    version = int.from_bytes(header[_USER_VERSION_AT : _USER_VERSION_AT + 4], "big")
    _refuse_identity(path, application, version)
    log = _beside(path, "-wal")
    if not _has_content(log) and _is_whole(path, "immutable=1"):
        return
    # Another process may have begun to write meanwhile, which an immutable connection does not see.
    if not _has_content(log) or not _is_whole(path, "mode=ro"):
        raise StoreError(f"{path} is damaged: integrity check failed", RESCUE)


def _refuse_identity(path: Path, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path} is an SQLite file of another program: its application id is {application:#x},"
            f" not {APPLICATION_ID:#x}",
            "give a results file of jetwatt",
        )
    if version != VERSION:
        raise StoreError(
            f"{path} has schema version {version}; this version of jetwatt reads {VERSION}",
            "read it with the jetwatt that wrote it, or give another results file",
        )


def _is_whole(path: Path, options: str) -> bool:
    connection = _connect(path, options)
    try:
        # Before any other query: a view in place of a table, or an expression in one, is a program.
        if connection.execute(f"SELECT count(*) FROM sqlite_master WHERE {_PROGRAMS}").fetchone()[0]:
            raise StoreError(f"{path} has views, triggers or computed columns, which no results file has", RESCUE)
        pages, size = (connection.execute(f"PRAGMA page_{name}").fetchone()[0] for name in ("count", "size"))
        if not _has_content(_beside(path, "-wal")) and path.stat().st_size < pages * size:
            return False  # truncated
        return [row[0] for row in connection.execute("PRAGMA quick_check(1)")] == ["ok"]
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        return False
    finally:
        connection.close()


def _make_tables(connection: sqlite3.Connection) -> None:
    """Create missing tables in one transaction, so that only one of several processes does."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        else:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            _refuse_identity(Path(connection.execute("PRAGMA database_list").fetchone()[2]), application, version)
            connection.execute("DELETE FROM profiles WHERE 0")  # a read-only file fails here, not after the first case
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; if another process does the same, SQLite reports `locked` without waiting."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return
