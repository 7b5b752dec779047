"""The results file: an SQLite database to which each profile is added in one transaction.

After `kill -9` or a power cut the file holds every profile that `add` returned for (write-ahead log, synchronous=FULL)
and nothing half-written. Several processes may add at the same time.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from harness.core.errors import StoreError
from harness.core.profiles import Profile
from harness.store import rows
from harness.store.conditions import canonical_json, is_disqualified, plain
from harness.store.opening import RESCUE, explain, open_to_read, open_to_write
from harness.store.rows import RAW_COLUMNS, ProfileRow, Record

_CHUNK = 256
_PROFILE_COLUMNS = ", ".join(ProfileRow._fields)
_SELECT_PROFILES = (
    f"SELECT profiles.id, record_crc, content, {_PROFILE_COLUMNS} FROM profiles"
    " LEFT JOIN environments ON environments.id = environment_id"
)


class ResultsStore:
    """A results file, open.

    Args:
        path: the file; made, with its folder, where it does not exist.
        read_only: never write, and refuse a file that does not exist.

    Raises:
        StoreError: the file or its folder cannot be read or written, or the file is damaged, newer than this version,
            or not a results file. It is left as it was.
    """

    def __init__(self, path: Union[str, Path], read_only: bool = False) -> None:
        """Open the file."""
        self.path = Path(path)
        self._process = os.getpid()
        self._usable: Dict[str, int] = {}
        self._read_up_to = 0
        with self._explained("open"):
            self._connection = open_to_read(self.path) if read_only else open_to_write(self.path)

    def __enter__(self) -> ResultsStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it; twice does no harm."""
        self._connection.close()

    def add(self, profile: Profile, environment: Mapping[str, Any], run_id: str) -> int:
        """Store a profile with its raw series and its environment, all or nothing.

        Args:
            profile: what a case yielded.
            environment: the machine and its software, plain values; stored once however many profiles share it.
            run_id: the run of the suite that the profile belongs to.

        Returns:
            The profile's number in this file. On return the profile is on disk.

        Raises:
            StoreError: it could not be stored (disk full, file read-only, a value that is not plain, ...); nothing was.
        """
        created_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
        row = rows.profile_row(profile, run_id, created_at)
        raw = rows.raw_rows(profile)
        content = canonical_json(plain(dict(environment), "environment"))
        with self._explained("write to"), _transaction(self._own_connection()) as connection:
            connection.execute("INSERT OR IGNORE INTO environments (content) VALUES (?)", (content,))
            cursor = connection.execute(
                f"INSERT INTO profiles ({_PROFILE_COLUMNS}, record_crc, raw_crc, environment_id)"
                f" VALUES ({_places(len(row) + 2)}, (SELECT id FROM environments WHERE content = ?))",
                (*row, rows.record_crc(row, content), rows.crc(*raw), content),
            )
            number = int(cursor.lastrowid or 0)
            for (table, columns), values in zip(RAW_COLUMNS.items(), raw):
                connection.executemany(
                    f"INSERT INTO {table} (profile_id, {', '.join(columns)}) VALUES ({_places(len(columns) + 1)})",
                    [(number, *value) for value in values],
                )
        return number

    def __len__(self) -> int:
        """How many profiles there are."""
        return int(self._query("SELECT count(*) FROM profiles")[0][0])

    def usable(self, key: str) -> Optional[int]:
        """The number of the newest profile of these comparable conditions that was neither disturbed nor throttled.

        None where there is none. Asked again, as for each case of a sweep, it reads only what was added since.
        """
        for record in self.records(after=self._read_up_to):
            if not is_disqualified(record.flags):
                self._usable[record.key] = record.id
            self._read_up_to = record.id
        return self._usable.get(key)

    def records(self, after: int = 0) -> Iterator[Record]:
        """Every profile without its raw series, oldest first."""
        last = after
        while True:
            chunk = self._query(
                f"{_SELECT_PROFILES} WHERE profiles.id > ? ORDER BY profiles.id LIMIT ?", (last, _CHUNK)
            )
            if not chunk:
                return
            for found in chunk:
                last, row, environment_json = self._verified(found)
                yield rows.to_record(last, row, environment_json)

    def numbers(self) -> List[int]:
        """The number of every profile, oldest first."""
        return [number for (number,) in self._query("SELECT id FROM profiles ORDER BY id")]

    def profiles(self) -> Iterator[Profile]:
        """Every profile, oldest first."""
        return map(self.profile, self.numbers())

    def profile(self, number: int) -> Profile:
        """The profile of that number."""
        found = self._query(f"{_SELECT_PROFILES} WHERE profiles.id = ?", (number,))
        if not found:
            raise StoreError(f"{self.path} has no profile {number}")
        _, row, _ = self._verified(found[0])
        raw = [
            self._query(f"SELECT {', '.join(columns)} FROM {table} WHERE profile_id = ? ORDER BY position", (number,))
            for table, columns in RAW_COLUMNS.items()
        ]
        stored = self._query("SELECT raw_crc FROM profiles WHERE id = ?", (number,))[0][0]
        self._verify(number, stored, rows.crc(*raw))
        return rows.to_profile(row, *raw)

    def _verified(self, found: Tuple[Any, ...]) -> Tuple[int, ProfileRow, str]:
        """Number, row and environment of what `_SELECT_PROFILES` found."""
        number, crc, environment_json, *columns = found
        row = ProfileRow(*columns)
        self._verify(number, crc, rows.record_crc(row, environment_json))
        return number, rows.as_named_now(row, environment_json), environment_json

    def _verify(self, number: int, stored: int, found: int) -> None:
        if stored != found:
            raise StoreError(
                f"profile {number} of {self.path} is damaged: its checksum is {found}, not {stored}", RESCUE
            )

    def _query(self, statement: str, values: Tuple[Any, ...] = ()) -> List[Tuple[Any, ...]]:
        with self._explained("read"):
            return self._own_connection().execute(statement, values).fetchall()

    def _own_connection(self) -> sqlite3.Connection:
        """The connection; a forked child must not use its parent's: file locks do not tell the two apart."""
        if self._process != os.getpid():
            raise StoreError(f"{self.path} was opened by another process", "open it in the process that uses it")
        return self._connection

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn what SQLite and the system say into a `StoreError` that says what to do."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise explain(self.path, doing, error) from error


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has already rolled back after some errors
            connection.execute("ROLLBACK")
        raise


def _places(count: int) -> str:
    return ", ".join("?" * count)
