"""The profiles of many nights: from the index where a file is unchanged since it was read, else from the file."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from harness.core.errors import DependencyError, StoreError
from harness.core.files import is_link_of_another
from harness.judge.history_index import NAME, HistoryIndex, IndexUnusableError, ReadNight, Signature
from harness.judge.profile_columns import ProfileColumns, columns_of, joined
from harness.store.archive import is_archive_file, open_stored
from harness.store.database import is_being_written
from harness.store.frames import STORES, profiles

_FEWEST_KEPT = 100  # new nights after which the index is written; a tenth of its nights, once that is more
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)  # as usual with the nights of another user

ReadReport = Callable[[int, int, str], None]  # takes how many files were read, of how many, and the last one


class Nights(NamedTuple):
    profiles: ProfileColumns
    left_out: List[str]  # files that were not read, or not as a whole because they are being written
    notes: List[str]  # why an index was not used


def silent(done: int, total: int, file: str) -> None:
    """Report nothing."""


def read_nights(paths: Sequence[Path], index: Union[bool, Path] = True, report: ReadReport = silent) -> Nights:
    """The profiles of results files and archived nights, or of those anywhere in folders.

    Args:
        paths: results files, files of an archive, and folders of them.
        index: where to keep what was read: True for a file in each folder (`NAME`), and nothing for single files; a
            file for all of them; False for nowhere.
        report: is called after each file that is read, of those in a folder or of all that are named; files that are
            taken from the index do not count.

    Raises:
        StoreError: a file that `paths` names cannot be read. One in a folder is listed in `left_out`.
    """
    for_all = index if isinstance(index, Path) else None
    parts: List[ProfileColumns] = []
    left_out: List[str] = []
    notes: List[str] = []
    named = [str(path) for path in dict.fromkeys(paths) if not path.is_dir()]
    if named:
        own_parts, unread = _read(named, for_all, True, notes, report)
        parts += own_parts
        left_out += unread
    for folder in [path for path in dict.fromkeys(paths) if path.is_dir()]:
        files, links = _files_in(folder)
        own_parts, unread = _read(files, folder / NAME if index is True else for_all, False, notes, report)
        parts += own_parts
        left_out += [*links, *unread]
    return Nights(joined(parts), left_out, list(dict.fromkeys(notes)))


def _files_in(folder: Path) -> Tuple[List[str], List[str]]:
    """The files to read anywhere in a folder, and which ones are left out: links of other users in shared folders."""
    files, left_out = [], []
    for place, _, names in os.walk(str(folder)):
        for file in [os.path.join(place, name) for name in names]:
            if not file.endswith(STORES) and not is_archive_file(file):
                continue
            if is_link_of_another(Path(file)):
                left_out.append(f"{file} is a link of another user in a shared folder")
            else:
                files.append(file)
    return sorted(files), left_out


def _read(
    files: Sequence[str], index_path: Optional[Path], are_named: bool, notes: List[str], report: ReadReport
) -> Tuple[List[ProfileColumns], List[str]]:
    """The profiles of files, in parts, and what is left out; through an index if one is given and can be used."""
    left_out: List[str] = []
    if index_path is not None:
        try:
            index = HistoryIndex(index_path)
        except IndexUnusableError as error:
            notes.append(f"the index {index_path} was not used: {error}")
        else:
            return _read_with_index(files, index, are_named, left_out, notes, report), left_out
    return [read.profiles for read in _read_each(files, are_named, left_out, report)], left_out


def _read_with_index(
    files: Sequence[str],
    index: HistoryIndex,
    are_named: bool,
    left_out: List[str],
    notes: List[str],
    report: ReadReport,
) -> List[ProfileColumns]:
    """The profiles of files, in parts; those that the index lacks are read, and added to it if they are complete."""
    name_of = {file: os.path.relpath(file, index.folder) for file in files}
    taken: Set[str] = set()  # names of nights whose profiles are in the index
    unread: List[str] = []
    for file, name in name_of.items():
        signature = Signature.of(file)
        is_indexed = signature is not None and name in index.nights and index.nights[name].is_of(signature)
        if is_indexed and not is_being_written(file):
            taken.add(name)
        else:
            unread.append(file)

    parts: List[ProfileColumns] = []
    new: Dict[str, Tuple[ReadNight, ProfileColumns]] = {}
    present = set(name_of.values())
    gone = [name for name in index.nights if name not in present and not os.path.lexists(index.folder / name)]
    try:
        for read in _read_each(unread, are_named, left_out, report):
            if read.night is None:
                parts.append(read.profiles)
                continue
            name = name_of[read.file]
            new[name] = read.night, read.profiles
            taken.add(name)
            if len(new) >= max(_FEWEST_KEPT, len(index.nights) // 10):
                _keep(index, new, gone, notes)
                new, gone = {}, []
    finally:
        _keep(index, new, gone, notes)  # also if the run is interrupted
    return [index.select(taken), *parts]


def _keep(
    index: HistoryIndex, new: Dict[str, Tuple[ReadNight, ProfileColumns]], gone: Sequence[str], notes: List[str]
) -> None:
    """Bring an index up to date, and write it where this user may."""
    if not new and not gone:
        return
    index.update(new, gone)
    try:
        index.write()
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            notes.append(f"the index {index.path} was not written: {error}")


class _ReadFile(NamedTuple):
    file: str
    night: Optional[ReadNight]  # None if the file changed meanwhile, so that not all of its profiles are there
    profiles: ProfileColumns


def _read_each(files: Sequence[str], are_named: bool, left_out: List[str], report: ReadReport) -> Iterator[_ReadFile]:
    """Files that can be read; others, and those that are not complete, are added to `left_out`."""
    for count, file in enumerate(files, start=1):
        read_at_ns = time.time_ns()
        before = Signature.of(file)
        try:
            with open_stored(file) as store:
                columns = columns_of(profiles(store, include_flagged=True), file)
        except (StoreError, DependencyError) as error:
            if are_named:
                raise
            left_out.append(str(error))
            report(count, len(files), file)
            continue
        night = None
        if before is not None and before == Signature.of(file) and not is_being_written(file):
            night = ReadNight(before, read_at_ns, len(columns))
        else:
            left_out.append(
                f"{file} is being written, or its writer was killed: {len(columns)} profiles count that it has so far"
            )
        report(count, len(files), file)
        yield _ReadFile(file, night, columns)
