"""Old nights as Parquet files, which DuckDB and pandas read as they are: `results archive`.

An archive is a folder with files for each board and month, such as `board=orin-agx%40orin3/month=2026-01/`. Each row
is a profile with its raw series as lists. Nothing is rounded: a profile read from an archive is equal to the one that
was stored, and `results merge` makes results files of archives.

Columns, in this order: those of a corpus; `night` and `profile_id`, the file that the profile was in and its number
there; those of the table `profiles` of a results file, with its environment as JSON and its `record_crc`; `crc`, the
CRC-32 sum of all that the results file had of the profile; the minibatches, lists of equal length; `channels`, the
names of the telemetry channels; the samples of all channels, lists of equal length. The file's metadata hold the
version of this format and the verdicts on claims of each night.

A night is removed only after every file with its profiles was read back, compared and is on the medium. An interrupted
run leaves nights that are in the archive too; readers count such profiles once, and the next run removes the nights.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union
from urllib.parse import quote

import numpy as np

from harness.core.cases import INSTANCE_MARK
from harness.core.corpus import CORPUS, CORPUS_COLUMNS, pyarrow, rows_of
from harness.core.errors import StoreError
from harness.core.files import remove_durably, replace_durably
from harness.core.profiles import Minibatch, Minibatches, Profile
from harness.core.terminal import counted
from harness.core.units import bytes_to_mb
from harness.store import frames, rows
from harness.store.database import is_being_written
from harness.store.results import PackedRaw, ResultsStore
from harness.store.rows import FLOATS, ProfileRow, Raw, Record

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = b"jetwatt_archive", b"1"
VERDICTS = b"jetwatt_verdicts"
SUFFIX = ".parquet"

_FROM_A_COPY = "restore it from a copy"
_DRAFT = ".part"
_LOCK = ".lock"
_LONGEST_NAME = 150  # of a board in the name of a folder; file systems take 255 bytes
_MOST_PROFILES = 10**6  # in a file that is read
_PORTION = 2000  # profiles that are in memory with their raw series
_ZSTD_LEVEL = 9

_OF_MINIBATCHES = dict(zip([f"minibatch_{name}" for name in Minibatch._fields], ["<i8", "<i8", str, *[FLOATS] * 4]))
_OF_TELEMETRY = {"telemetry_channel": object, "telemetry_time_s": FLOATS, "telemetry_value": FLOATS}
_LISTS: Dict[str, Any] = {**_OF_MINIBATCHES, "channels": object, **_OF_TELEMETRY}  # texts and numbers
_TEXTS = (str, object)
_IDENTITY = ("run_id", "created_at", "case_id", "key")
_ROW = ("night", "profile_id", *ProfileRow._fields, "environment_json", "record_crc", "crc")
_NUMBERS = ("profile_id", "record_crc", "crc")

Stored = Tuple[ProfileRow, str, Minibatches, Raw]
"""A profile as a results file has it: row, environment, minibatches, telemetry."""


class Archived(NamedTuple):
    """What is now in an archive; printed, it is the line of `jetwatt results archive`."""

    nights: int  # results files that were moved into the archive
    profiles: int  # in them
    bytes_before: int  # size of these files
    bytes_after: int  # size of the new files of the archive
    left_out: List[str]  # files that stay, with the reason; those with younger profiles are not listed

    def __repr__(self) -> str:
        before, after = (bytes_to_mb(size) for size in (self.bytes_before, self.bytes_after))
        moved = f"{counted(self.nights, 'night')} with {counted(self.profiles, 'profile')}"
        return f"{moved} archived: {before:.1f} MB, now {after:.1f} MB"


class _Night(NamedTuple):
    path: Path
    name: str  # relative to the folder of the nights
    state: Tuple[int, int, int]  # of the file before it was read, as of `_state_of`
    table: pd.DataFrame  # its profiles


class _Part(NamedTuple):
    """A profile of a night on its way into the archive."""

    night: str
    number: int
    stored: Stored
    crc: int
    corpus: Dict[str, Any]  # its columns of a corpus

    @property
    def identity(self) -> Tuple[Any, ...]:
        return (*(getattr(self.stored[0], name) for name in _IDENTITY), self.crc)


def archive_results(
    nights: Union[str, Path],
    *,
    older_than: float,
    out: Union[str, Path, None] = None,
    now: Optional[datetime.datetime] = None,
) -> Archived:
    """Move results files whose profiles are all old into an archive, as `jetwatt results archive` does.

    Args:
        nights: a folder; results files anywhere in it are taken.
        older_than: age in days; files with a younger profile stay.
        out: the folder of the archive, by default `archive` in `nights`; made if it does not exist.
        now: the moment from which ages count.

    Raises:
        StoreError: the archive cannot be written, or another process writes to it. A file that is not in the archive
            as a whole stays, so that nothing is lost.
        DependencyError: pyarrow is not installed.
    """
    folder = Path(nights)
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder", "name the folder of the nights")
    pyarrow()
    target = folder / "archive" if out is None else Path(out)
    before = (now or datetime.datetime.now(datetime.timezone.utc)) - datetime.timedelta(days=older_than)
    left_out: List[str] = []
    count = bytes_before = bytes_after = profile_count = 0
    try:
        with _locked(target):
            for some in _in_portions(_old_nights(folder, before, left_out)):
                bytes_after += _add(target, some)
                for night in some:
                    if _state_of(night.path) != night.state or is_being_written(night.path):
                        left_out.append(f"{night.path} was written to while it was archived; run this again")
                        continue
                    bytes_before += night.path.stat().st_size
                    profile_count += len(night.table)
                    count += 1
                    remove_durably(night.path)
    except OSError as error:
        raise StoreError(
            f"cannot archive {folder} in {target}: {error}", "make room, or allow it; no profile is lost"
        ) from error
    return Archived(count, profile_count, bytes_before, bytes_after, left_out)


def files_of_archive(folder: Path) -> List[Path]:
    """The files of archives anywhere in a folder."""
    return sorted(path for path in folder.rglob(f"*{SUFFIX}") if is_archive_file(str(path)))


def is_archive_file(path: str) -> bool:
    """Whether a path is that of a file of an archive, by its name and its folder's."""
    return path.endswith(SUFFIX) and os.path.basename(os.path.dirname(path)).startswith("month=")


def open_stored(path: Union[str, Path]) -> Union[ResultsStore, ArchiveFile]:
    """A results file, or a file of an archive, to read its profiles."""
    return ArchiveFile(path) if str(path).endswith(SUFFIX) else ResultsStore(path, read_only=True)


class ArchiveFile:
    """A file of an archive, with the methods of a results file that frames and `ResultsStore.merge` use.

    Raises StoreError if it is not one, damaged, or of another version.
    """

    def __init__(self, path: Union[str, Path]) -> None:
        self.path = Path(path)
        arrow, parquet = pyarrow()
        try:
            self._file = parquet.ParquetFile(str(self.path))
        except (OSError, arrow.ArrowException) as error:
            raise StoreError(f"cannot read {self.path}: {error}", "give a file of an archive") from error
        schema = self._file.schema_arrow
        version = (schema.metadata or {}).get(FORMAT)
        if version is None or not {*_ROW, *_LISTS} <= set(schema.names):
            raise StoreError(f"{self.path} is not a file of an archive", "give one that `results archive` wrote")
        if version != VERSION or len(self) > _MOST_PROFILES:
            raise StoreError(
                f"{self.path} has version {version!r} and {len(self)} profiles; this version of jetwatt reads"
                f" {VERSION!r} and at most {_MOST_PROFILES}",
                "read it with the jetwatt that wrote it",
            )
        # of each night: the verdicts as `ResultsStore.verdicts` gives them
        self.verdicts: Dict[str, List[Any]] = json.loads(schema.metadata.get(VERDICTS, b"{}"))
        self._described: Optional[Dict[str, List[Any]]] = None
        self._lists: Dict[str, Any] = {}

    def __enter__(self) -> ArchiveFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def numbers(self) -> List[int]:
        """The profiles of this file, counted from 1."""
        return list(range(1, len(self) + 1))

    def records(self) -> Iterator[Record]:
        """Every profile without its raw series, in the order of the file."""
        for number, row, environment in self._rows():
            yield rows.to_record(number, row, environment, self.path)

    def profile(self, number: int) -> Profile:
        row, environment = self._row(number)
        record = rows.to_record(number, row, environment, self.path)
        return rows.to_profile(record, row, self.path, *self._raw(number))

    def identities(self) -> List[Tuple[Any, ...]]:
        """What identifies each profile: run, time, case, conditions and checksum."""
        described = self._rows_as_columns()
        return list(zip(*(described[name] for name in (*_IDENTITY, "crc"))))

    def _row(self, number: int) -> Tuple[ProfileRow, str]:
        described = self._rows_as_columns()
        row = ProfileRow(*(described[name][number - 1] for name in ProfileRow._fields))
        return row, described["environment_json"][number - 1]

    def _rows(self) -> Iterator[Tuple[int, ProfileRow, str]]:
        checksums = self._rows_as_columns()["record_crc"]
        for number in self.numbers():
            row, environment = self._row(number)
            if rows.record_crc(row, environment) != checksums[number - 1]:
                raise StoreError(f"profile {number} of {self.path} is damaged: its checksum is wrong", _FROM_A_COPY)
            yield number, row, environment

    def _raw(self, number: int) -> Tuple[Minibatches, Raw]:
        """The raw series of a profile: minibatches, telemetry; the whole profile is verified."""
        if not self._lists:
            self._lists = {name: self._read([name]).column(name) for name in _LISTS}
        own = {name: self._list(name, number - 1) for name in _LISTS}
        columns = [own[name] for name in _OF_MINIBATCHES]
        minibatches = Minibatches(dict(zip(Minibatch._fields, columns)))
        of_sample, times_s, values = (own[name] for name in _OF_TELEMETRY)
        series: Raw = []
        channels = own["channels"].tolist()
        # Places, because NumPy compares texts without the NULs at their ends.
        places = {channel: place for place, channel in enumerate(channels)}
        place_of_sample = np.array([places.get(channel, -1) for channel in of_sample.tolist()], int)
        for place, channel in enumerate(channels):
            is_own = place_of_sample == place
            series.append((place, channel, times_s[is_own].tobytes(), values[is_own].tobytes()))
        if crc_of((*self._row(number), minibatches, series)) != self._rows_as_columns()["crc"][number - 1]:
            raise StoreError(f"profile {number} of {self.path} is damaged: its checksum is wrong", _FROM_A_COPY)
        return minibatches, series

    def _packed(self, number: int) -> Tuple[PackedRaw, Minibatches]:
        minibatches, series = self._raw(number)
        return PackedRaw.of(minibatches, series), minibatches

    def _list(self, name: str, place: int) -> np.ndarray:
        values = self._lists[name][place].values
        return np.array(values.to_pylist() if _LISTS[name] in _TEXTS else values.to_numpy(), _LISTS[name])

    def _rows_as_columns(self) -> Dict[str, List[Any]]:
        if self._described is None:
            self._described = self._read(_ROW).to_pydict()
        return self._described

    def _read(self, names: Sequence[str]) -> Any:
        arrow, _ = pyarrow()
        try:
            return self._file.read(list(names), use_threads=False).combine_chunks()
        except (OSError, arrow.ArrowException, UnicodeDecodeError) as error:
            raise StoreError(f"{self.path} is damaged ({error})", _FROM_A_COPY) from error


def crc_of(stored: Stored) -> int:
    """The checksum of a profile: of its values, because compressed bytes differ between versions of zlib."""
    row, environment, minibatches, series = stored
    columns = [minibatches.columns[name] for name in Minibatch._fields]
    values = [column.tolist() if column.dtype.kind == "U" else column.tobytes() for column in columns]
    return rows.crc([(*row, environment)], [tuple(values)], series)


def _old_nights(folder: Path, before: datetime.datetime, left_out: List[str]) -> Iterator[_Night]:
    """The results files in a folder whose profiles are all older than a moment; month by month, board by board."""
    old = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in frames.STORES):
        if path.is_symlink():
            left_out.append(f"{path} is a link")
            continue
        try:
            with ResultsStore(path, read_only=True) as store:
                created_at = frames.profiles(store, include_flagged=True)["created_at"]
                moments = [datetime.datetime.fromisoformat(moment) for moment in created_at]
            if is_being_written(path):
                left_out.append(f"{path} is being written, or its writer was killed")
            elif not moments:
                left_out.append(f"{path} has no profiles")
            elif max(moments) < before:
                old.append((max(moments), path))
        except (StoreError, ValueError, TypeError) as error:
            left_out.append(f"{path}: {error}")
    for _, path in sorted(old):
        state = _state_of(path)
        with ResultsStore(path, read_only=True) as store:
            yield _Night(path, str(path.relative_to(folder)), state, frames.profiles(store, include_flagged=True))


def _state_of(path: Path) -> Tuple[int, int, int]:
    """What differs once another process has written to a file or replaced it: size, time of the change, inode."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _in_portions(nights: Iterator[_Night]) -> Iterator[List[_Night]]:
    """Nights together, up to a number of profiles that fit in memory with their raw series."""
    portion: List[_Night] = []
    for night in nights:
        if portion and sum(len(each.table) for each in portion) + len(night.table) > _PORTION:
            yield portion
            portion = []
        portion.append(night)
    if portion:
        yield portion


def _add(target: Path, nights: Sequence[_Night]) -> int:
    """Write the profiles of some nights that an archive lacks; returns the size of the new files."""
    partitions: Dict[Path, List[_Part]] = {}
    verdicts = {}
    for night in nights:
        corpus = dict(zip(night.table.index, rows_of(night.table[list(CORPUS_COLUMNS)])))
        with ResultsStore(night.path, read_only=True) as store:
            verdicts[night.name] = store.verdicts()
            for number, *stored in store.stored():
                own = night.table.loc[number]
                board = _board(own["device_name"], own["board_instance"])
                month = datetime.datetime.fromisoformat(own["created_at"]).strftime("%Y-%m")
                part = _Part(night.name, number, tuple(stored), crc_of(tuple(stored)), corpus[number])  # type: ignore[arg-type]
                partitions.setdefault(target / f"board={board}" / f"month={month}", []).append(part)
    size = 0
    for partition, parts in partitions.items():
        partition.mkdir(parents=True, exist_ok=True)
        present = _present(partition)
        lacking = [part for part in parts if part.identity not in present]
        if lacking:
            size += _write(partition, lacking, {name: own for name, own in verdicts.items() if own})
    return size


def _present(partition: Path) -> Set[Tuple[Any, ...]]:
    """The profiles in a partition, after what a killed process left there is removed."""
    for draft in partition.glob(f".*{_DRAFT}"):
        draft.unlink()
    present: Set[Tuple[Any, ...]] = set()
    for path in partition.glob(f"*{SUFFIX}"):
        with ArchiveFile(path) as file:
            present.update(file.identities())
    return present


def _board(device_name: str, instance: Optional[str]) -> str:
    """The value of a partition: the device with its instance, escaped as in a URL, as Parquet's readers expect."""
    name = f"{device_name}{INSTANCE_MARK}{instance}" if instance and INSTANCE_MARK not in device_name else device_name
    escaped = quote(name.encode("utf-8", "backslashreplace"), safe="")
    if len(escaped) > _LONGEST_NAME:
        escaped = f"{escaped[:_LONGEST_NAME]}-{hashlib.sha256(escaped.encode()).hexdigest()[:16]}"
    return escaped


def _write(partition: Path, parts: Sequence[_Part], verdicts: Dict[str, Any]) -> int:
    """Write profiles as a file of a partition, read it back and compare; returns its size."""
    _, parquet = pyarrow()
    digest = hashlib.sha256(repr([part.identity for part in parts]).encode()).hexdigest()
    path = partition / f"{parts[0].stored[0].created_at[:10]}-{digest[:12]}{SUFFIX}"
    draft = partition / f".{path.name}{_DRAFT}"
    parquet.write_table(_table(parts, verdicts), str(draft), **_writing_options())
    with ArchiveFile(draft) as file:
        for number, part in enumerate(parts, start=1):
            if not _is_same((*file._row(number), *file._raw(number)), part.stored):
                raise StoreError(
                    f"profile {part.number} of {part.night} cannot be archived exactly", "move this night elsewhere"
                )
    replace_durably(draft, path)
    return path.stat().st_size


def _table(parts: Sequence[_Part], verdicts: Dict[str, Any]) -> Any:
    """The table of a file, from the columns of its profiles."""
    arrow, _ = pyarrow()
    types = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
    columns = {
        column.name: arrow.array([part.corpus[column.name] for part in parts], types[column.kind]) for column in CORPUS
    }
    described = [
        (part.night, part.number, *part.stored[0], part.stored[1], rows.record_crc(*part.stored[:2]), part.crc)
        for part in parts
    ]
    for name, values in zip(_ROW, zip(*described)):
        columns[name] = arrow.array(list(values), arrow.int64() if name in _NUMBERS else arrow.string())
    lists = [_lists_of(part.stored) for part in parts]
    for name, kind in _LISTS.items():
        own = [each[name] for each in lists]
        offsets = arrow.array(np.cumsum([0, *map(len, own)]), arrow.int32())
        joined = np.concatenate(own)
        flat = arrow.array(joined.tolist(), arrow.string()) if kind in _TEXTS else arrow.array(joined)
        columns[name] = arrow.ListArray.from_arrays(offsets, flat)
    metadata = {FORMAT: VERSION, VERDICTS: json.dumps(verdicts).encode()}
    return arrow.table(columns).replace_schema_metadata(metadata)


def _lists_of(stored: Stored) -> Dict[str, np.ndarray]:
    """The raw series of a profile as the lists of its row."""
    _, _, minibatches, series = stored
    lists = {f"minibatch_{name}": column for name, column in minibatches.columns.items()}
    names = [channel for _, channel, _, _ in series]
    times_s, values = ([np.frombuffer(row[place], FLOATS) for row in series] for place in (2, 3))
    lists["channels"] = np.array(names, object)
    of_sample = np.repeat(np.arange(len(names)), [len(each) for each in times_s])
    lists["telemetry_channel"] = lists["channels"][of_sample]
    lists["telemetry_time_s"] = np.concatenate([np.empty(0, FLOATS), *times_s])
    lists["telemetry_value"] = np.concatenate([np.empty(0, FLOATS), *values])
    return lists


def _writing_options() -> Dict[str, Any]:
    """Compression: a dictionary for texts, and no dictionary for numbers, which might take -0.0 for 0.0."""
    encodings = {"minibatch_epoch": "DELTA_BINARY_PACKED", "minibatch_index": "DELTA_BINARY_PACKED"}
    floats = [name for name, kind in _LISTS.items() if kind == FLOATS and name != "telemetry_time_s"]
    encodings.update(dict.fromkeys(floats, "BYTE_STREAM_SPLIT"))
    texts = [column.name for column in CORPUS if column.kind is str]
    texts += [name for name in _ROW if name not in _NUMBERS]
    texts += [f"{name}.list.element" for name, kind in _LISTS.items() if kind in _TEXTS]
    return {
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "use_dictionary": texts,
        "column_encoding": {f"{name}.list.element": encoding for name, encoding in encodings.items()},
        "use_compliant_nested_type": True,
    }


def _is_same(read_back: Stored, expected: Stored) -> bool:
    """Whether two profiles are equal in every bit."""
    columns = [[stored[2].columns[name].tolist() for name in Minibatch._fields] for stored in (read_back, expected)]
    return (read_back[:2], read_back[3], columns[0]) == (expected[:2], expected[3], columns[1])


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    """One process at a time writes to an archive."""
    target.mkdir(parents=True, exist_ok=True)
    lock = os.open(str(target / _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StoreError(f"another process writes to the archive {target}", "wait for it") from error
    finally:
        os.close(lock)
