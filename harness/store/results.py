"""The results file: an SQLite database to which each profile is added in one transaction.

After `kill -9` or a power cut the file holds every profile that `add` returned for (write-ahead log, synchronous=FULL)
and nothing half-written. Several processes may add at the same time.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sqlite3
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Container, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

from harness.core.cases import Case
from harness.core.errors import StoreError
from harness.core.profiles import Minibatches, Profile, is_disqualified
from harness.store import rows
from harness.store.conditions import canonical_json, plain
from harness.store.database import RESCUE, VERDICTS, explain, open_to_read, open_to_write, retried
from harness.store.rows import PACKED, SERIES, SERIES_COLUMNS, ProfileRow, Raw, Record

if TYPE_CHECKING:
    from harness.store.archive import ArchiveFile

_CHUNK = 256
_PROFILE_COLUMNS = ", ".join(ProfileRow._fields)
_SELECT_PROFILES = (
    f"SELECT profiles.id, record_crc, content, {_PROFILE_COLUMNS} FROM profiles"
    " LEFT JOIN environments ON environments.id = environment_id"
)


class Merged(NamedTuple):
    added: int  # profiles copied
    present: int  # profiles that the file already had


class PackedRaw(NamedTuple):
    """The raw series of a profile as rows of a results file, and their checksum."""

    minibatches: Raw  # one row, or none
    series: Raw
    crc: int

    @classmethod
    def of(cls, minibatches: Minibatches, series: Raw) -> PackedRaw:
        packed: Raw = [(rows.pack(minibatches),)] if minibatches else []
        return cls(packed, series, rows.crc(packed, series))


class ResultsStore:
    """A results file, open.

    Args:
        path: the file; created, with its folder, if it does not exist.
        read_only: never write, and refuse a file that does not exist.

    Raises:
        StoreError: the file or its folder cannot be read or written, or the file is damaged, of another schema version,
            or not a results file. It is not changed.
    """

    def __init__(self, path: Union[str, Path], read_only: bool = False) -> None:
        self.path = Path(path)
        self._process = os.getpid()
        self._usable: Dict[str, int] = {}  # of each key the newest profile that counts
        self._of_cases: Dict[Tuple[str, int], int] = {}  # the same of a case and a seed, under any conditions
        self._of_jobs: Dict[Tuple[str, str, int], int] = {}  # the same of a Slurm job, a case and a seed
        self._read_up_to = 0
        with self._explained("open"):
            self._connection = retried(lambda: open_to_read(self.path) if read_only else open_to_write(self.path))

    def __enter__(self) -> ResultsStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it; idempotent."""
        self._connection.close()

    def add(
        self, profile: Profile, environment: Mapping[str, Any], run_id: str, created_at: Optional[str] = None
    ) -> int:
        """Store a profile with its raw series and its environment, all or nothing.

        Args:
            profile: the profile of a case.
            environment: the machine and its software, plain values; stored once for all profiles that share it.
            run_id: the run of the suite that the profile belongs to.
            created_at: when it was stored, ISO 8601 in UTC; by default now.

        Returns:
            The profile's number in this file. On return the profile is on disk.

        Raises:
            StoreError: nothing was stored (disk full, file read-only, a value that is not plain, ...).
        """
        if created_at is None:
            created_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
        row = rows.profile_row(profile, run_id, created_at)
        raw = PackedRaw.of(Minibatches.of(profile.minibatches), rows.series_rows(profile))
        content = canonical_json(plain(dict(environment), "environment"))
        with self._explained("write to"), _transaction(self._own_connection()) as connection:
            return _insert(connection, row, content, raw)

    def merge(self, source: Union[ResultsStore, ArchiveFile], numbers: Optional[Container[int]] = None) -> Merged:
        """Copy the profiles (`numbers`, or all) of another file that this one lacks, with raw series; all or none.

        Profiles are the same if run, case, conditions and time of storing are, and these are copied, so merging again
        adds nothing. Raises StoreError, and adds nothing, if a profile is damaged or this file cannot be written.
        """
        same = "run_id = ? AND created_at = ? AND case_id = ? AND key = ?"
        added = present = 0
        with self._explained("write to"), _transaction(self._own_connection()) as connection:
            connection.execute("CREATE INDEX IF NOT EXISTS profiles_of_run ON profiles (run_id, created_at)")
            for number, row, content in source._rows():
                if numbers is not None and number not in numbers:
                    continue
                place = (row.run_id, row.created_at, row.case_id, row.key)
                if connection.execute(f"SELECT 1 FROM profiles WHERE {same}", place).fetchone():
                    present += 1
                else:
                    packed, _ = source._packed(number)
                    _insert(connection, row, content, packed)
                    added += 1
        return Merged(added, present)

    def prune(self, before: str, flag: str) -> int:
        """Remove raw series stored before a time (ISO 8601, UTC) and flag their profiles; returns their number."""
        tables = (PACKED, SERIES)
        raw_of = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE profile_id = profiles.id)" for table in tables)
        numbers = self._query(f"SELECT id FROM profiles WHERE created_at < ? AND ({raw_of})", (before,))
        with self._explained("write to"):
            with _transaction(self._own_connection()) as connection:
                for (number,) in numbers:
                    [(_, row, content)] = self._rows("profiles.id = ?", (number,))
                    row = row._replace(flags_json=canonical_json([*json.loads(row.flags_json), flag]))
                    for table in tables:
                        connection.execute(f"DELETE FROM {table} WHERE profile_id = ?", (number,))
                    connection.execute(
                        "UPDATE profiles SET flags_json = ?, record_crc = ?, raw_crc = ? WHERE id = ?",
                        (row.flags_json, rows.record_crc(row, content), rows.crc(), number),
                    )
            if numbers:
                self._own_connection().execute("VACUUM")
        return len(numbers)

    def keep_verdicts(self, contents: Mapping[Tuple[str, str], Optional[str]]) -> None:
        """Store verdicts, JSON by device and claim, and replace earlier ones; None removes. All or none.

        Each is stored with the file's newest profile, so that a reader can see which profiles came later.
        """
        with self._explained("write to"), _transaction(self._own_connection()) as connection:
            connection.execute(VERDICTS)
            last = connection.execute("SELECT coalesce(max(id), 0) FROM profiles").fetchone()[0]
            for (device, claim), content in contents.items():
                connection.execute("DELETE FROM verdicts WHERE device = ? AND claim = ?", (device, claim))
                if content is not None:
                    row = (device, claim, content, last, zlib.crc32(content.encode()))
                    connection.execute("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?)", row)

    def verdicts(self) -> List[Tuple[str, int]]:
        """The verdicts of `keep_verdicts`, oldest first: the JSON, and the file's newest profile at that time."""
        if not self._query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'verdicts'"):
            return []
        stored = self._query("SELECT device, claim, content, last_profile, crc FROM verdicts ORDER BY rowid")
        for device, claim, content, _, crc in stored:
            if crc != zlib.crc32(content.encode()):
                raise StoreError(f"the verdict on {claim} of {device} in {self.path} is damaged", RESCUE)
        return [(content, last_profile) for _, _, content, last_profile, _ in stored]

    def __len__(self) -> int:
        return int(self._query("SELECT count(*) FROM profiles")[0][0])

    def usable(self, key: str) -> Optional[int]:
        """The newest profile of these conditions that counts; later calls read only newly added profiles."""
        self._read_new()
        return self._usable.get(key)

    def comparable_of(self, case: Case) -> Optional[Dict[str, Any]]:
        """The comparable conditions of the newest profile of a case that counts; None without any."""
        self._read_new()
        number = self._of_cases.get((case.id, case.settings.seed))
        if number is None:
            return None
        [(_, row, content)] = self._rows("profiles.id = ?", (number,))
        return rows.to_record(number, row, content, self.path).comparable

    def _read_new(self) -> None:
        for record in self.records(after=self._read_up_to):
            if not is_disqualified(record.flags):
                self._usable[record.key] = record.id
                self._of_cases[record.case.id, record.case.settings.seed] = record.id
                job = record.conditions.get("slurm_job", "")
                self._of_jobs[job, record.case.id, record.case.settings.seed] = record.id
            self._read_up_to = record.id

    def measured_by(self, job: str, case: Case) -> Optional[int]:
        """The newest profile of a case that counts and that a Slurm job stored, on any board."""
        self._read_new()
        return self._of_jobs.get((job, case.id, case.settings.seed))

    def records(self, after: int = 0) -> Iterator[Record]:
        """Every profile without its raw series, oldest first."""
        for number, row, content in self._rows("profiles.id > ?", (after,)):
            yield rows.to_record(number, row, content, self.path)

    def stored(self) -> Iterator[Tuple[int, ProfileRow, str, Minibatches, Raw]]:
        """Every profile as it is stored, verified: number, row, environment, minibatches, telemetry."""
        for number, row, content in self._rows():
            yield (number, row, content, *self._raw(number))

    def numbers(self) -> List[int]:
        """The numbers of all profiles, ascending."""
        return [number for (number,) in self._query("SELECT id FROM profiles ORDER BY id")]

    def profiles(self) -> Iterator[Profile]:
        """Every profile with its raw series, oldest first."""
        return map(self.profile, self.numbers())

    def profile(self, number: int) -> Profile:
        """A profile with its raw series, verified; StoreError if there is none, or if it is damaged."""
        return self.whole(number)[1]

    def whole(self, number: int) -> Tuple[Record, Profile]:
        """The same with its record, both of one reading."""
        matches = list(self._rows("profiles.id = ?", (number,)))
        if not matches:
            raise StoreError(f"{self.path} has no profile {number}")
        [(_, row, content)] = matches
        record = rows.to_record(number, row, content, self.path)
        return record, rows.to_profile(record, row, self.path, *self._raw(number))

    def _rows(self, where: str = "1", values: Tuple[Any, ...] = ()) -> Iterator[Tuple[int, ProfileRow, str]]:
        """Number, row and environment of some profiles, oldest first, with their checksums verified."""
        last = 0
        while True:
            condition = f"{where} AND profiles.id > ? ORDER BY profiles.id LIMIT ?"
            chunk = self._query(f"{_SELECT_PROFILES} WHERE {condition}", (*values, last, _CHUNK))
            if not chunk:
                return
            for last, crc, content, *columns in chunk:
                row = ProfileRow(*columns)
                self._verify(last, crc, rows.record_crc(row, content))
                yield last, row, content

    def _raw(self, number: int) -> Tuple[Minibatches, Raw]:
        """The raw series of a profile, verified: minibatches, telemetry."""
        packed, minibatches = self._packed(number)
        return minibatches, packed.series

    def _packed(self, number: int) -> Tuple[PackedRaw, Minibatches]:
        """The raw series as they are stored, which a merge copies, and the minibatches in them."""
        [(stored,)] = self._query("SELECT raw_crc FROM profiles WHERE id = ?", (number,))
        packed = self._query(f"SELECT content FROM {PACKED} WHERE profile_id = ?", (number,))
        columns = ", ".join(SERIES_COLUMNS)
        series = self._query(f"SELECT {columns} FROM {SERIES} WHERE profile_id = ? ORDER BY position", (number,))
        self._verify(number, stored, rows.crc(packed, series))
        try:
            minibatches = rows.unpack(packed[0][0]) if packed else Minibatches.of([])
        except (ValueError, TypeError, IndexError, OverflowError, zlib.error) as error:
            raise StoreError(f"profile {number} of {self.path} is damaged ({error})", RESCUE) from error
        return PackedRaw(packed, series, stored), minibatches

    def _verify(self, number: int, stored: int, computed: int) -> None:
        if stored != computed:
            raise StoreError(
                f"profile {number} of {self.path} is damaged: its checksum is {computed}, not {stored}", RESCUE
            )

    def _query(self, statement: str, values: Tuple[Any, ...] = ()) -> List[Tuple[Any, ...]]:
        with self._explained("read"):
            return retried(lambda: self._own_connection().execute(statement, values).fetchall())

    def _own_connection(self) -> sqlite3.Connection:
        """The connection; a forked child must not use its parent's: file locks do not distinguish the two."""
        if self._process != os.getpid():
            raise StoreError(f"{self.path} was opened by another process", "open it in the process that uses it")
        return self._connection

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn errors of SQLite and the system into a `StoreError` with a hint."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise explain(self.path, doing, error) from error


def _insert(connection: sqlite3.Connection, row: ProfileRow, content: str, raw: PackedRaw) -> int:
    connection.execute("INSERT OR IGNORE INTO environments (content) VALUES (?)", (content,))
    cursor = connection.execute(
        f"INSERT INTO profiles ({_PROFILE_COLUMNS}, record_crc, raw_crc, environment_id)"
        f" VALUES ({'?, ' * (len(row) + 2)}(SELECT id FROM environments WHERE content = ?))",
        (*row, rows.record_crc(row, content), raw.crc, content),
    )
    number = int(cursor.lastrowid or 0)
    connection.executemany(f"INSERT INTO {PACKED} VALUES (?, ?)", [(number, *each) for each in raw.minibatches])
    columns = ", ".join(SERIES_COLUMNS)
    connection.executemany(
        f"INSERT INTO series (profile_id, {columns}) VALUES (?, ?, ?, ?, ?)", [(number, *each) for each in raw.series]
    )
    return number


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    retried(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has already rolled back after some errors
            connection.execute("ROLLBACK")
        raise


def stored_by(store: ResultsStore, job: str) -> Set[int]:
    """The numbers of the profiles in a results file that a Slurm job stored, flagged ones too."""
    return {record.id for record in store.records() if record.conditions.get("slurm_job") == job}
