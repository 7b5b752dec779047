"""The profiles of many nights: from the index where a file is unchanged since it was read, else from the file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from harness.core.errors import DependencyError, StoreError
from harness.core.files import is_link_of_another
from harness.judge.history_index import (
    NAME,
    HistoryIndex,
    IndexDamagedError,
    IndexUnusableError,
    ReadNight,
    Signature,
    open_index,
    remove_index,
)
from harness.judge.profile_columns import ProfileColumns, columns_of, joined
from harness.store.archive import is_archive_file, open_stored
from harness.store.database import is_being_written
from harness.store.frames import STORES, profiles

_KEPT_AT_ONCE = 100  # nights of a transaction of the index

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
    return Nights(joined(parts), left_out, notes)


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
    files: Sequence[str], index: Optional[Path], are_named: bool, notes: List[str], report: ReadReport
) -> Tuple[List[ProfileColumns], List[str]]:
    """The profiles of files, in parts, and what is left out; through an index if one is given and can be used."""
    for _ in range(2 if index else 0):  # a damaged index is made anew
        try:
            opened = open_index(index)  # type: ignore[arg-type]
            if opened is None:
                break
            with opened:
                return _read_with_index(files, opened, are_named, report)
        except IndexDamagedError:
            remove_index(index)  # type: ignore[arg-type]
        except IndexUnusableError as error:
            notes.append(f"the index {index} was not used: {error}")
            break
    left_out: List[str] = []
    return [night.profiles for night, _ in _read_each(files, "", are_named, left_out, report)], left_out


def _read_with_index(
    files: Sequence[str], index: HistoryIndex, are_named: bool, report: ReadReport
) -> Tuple[List[ProfileColumns], List[str]]:
    indexed = index.nights()
    current: Dict[bytes, Signature] = {}  # of the nights to take from the index
    unread: List[str] = []
    left_out: List[str] = []
    parts: List[ProfileColumns] = []
    for file in files:
        name, signature = _name(file, index.folder), Signature.of(file)
        if signature and name in indexed and indexed[name].is_of(signature) and not is_being_written(file):
            current[name] = signature
        else:
            unread.append(file)

    waiting: List[ReadNight] = []
    for night, is_whole in _read_each(unread, index.folder, are_named, left_out, report):
        if index.read_only or not is_whole:
            parts.append(night.profiles)
            continue
        current[night.name] = night.signature
        waiting.append(night)
        if len(waiting) == _KEPT_AT_ONCE:
            index.keep(waiting)
            waiting = []
    if waiting:
        index.keep(waiting)
    present = {_name(file, index.folder) for file in files}
    gone = [name for name in indexed if name not in present and not _is_there(name, index.folder)]
    if gone and not index.read_only:
        index.forget(gone)

    with index.snapshot():
        indexed = index.nights()
        taken = {name for name in current if name in indexed and indexed[name].signature == current[name]}
        parts.insert(0, index.load([indexed[name] for name in taken]))
    lacking = set(current) - taken
    replaced = [file for file in files if _name(file, index.folder) in lacking]  # by another process
    parts += [night.profiles for night, _ in _read_each(replaced, index.folder, are_named, left_out)]
    return parts, left_out


def _read_each(
    files: Sequence[str], folder: Union[str, Path], are_named: bool, left_out: List[str], report: ReadReport = silent
) -> Iterator[Tuple[ReadNight, bool]]:
    """Files that can be read, each with whether it was left alone meanwhile; others are added to `left_out`."""
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
        is_whole = before is not None and before == Signature.of(file) and not is_being_written(file)
        if not is_whole:
            left_out.append(
                f"{file} is being written, or its writer was killed: {len(columns)} profiles count that it has so far"
            )
        report(count, len(files), file)
        yield ReadNight(_name(file, folder), before or _NO_FILE, read_at_ns, columns), is_whole


_NO_FILE = Signature(0, 0, 0, 0)


def _name(file: str, folder: Union[str, Path]) -> bytes:
    """The name of a file in an index, as bytes, because file names need not be text."""
    start = os.path.join(str(folder), "")
    return os.fsencode(file[len(start) :] if file.startswith(start) else os.path.relpath(file, start))


def _is_there(name: bytes, folder: Path) -> bool:
    return os.path.lexists(os.path.join(os.fsencode(str(folder)), name))
