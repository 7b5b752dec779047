"""Merges results files into one, and removes old raw series."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Callable, List, NamedTuple, Sequence, Tuple, Union

from harness.core.errors import StoreError
from harness.core.profiles import RAW_PRUNED
from harness.core.terminal import counted, shown
from harness.core.units import bytes_to_mb
from harness.store.archive import files_of_archive, open_stored
from harness.store.results import ResultsStore


class MergedFile(NamedTuple):
    """What became of a file to merge; printed, it is the line of `jetwatt results merge`."""

    file: Path
    added: int = 0  # profiles copied
    present: int = 0  # profiles that were already there
    problem: str = ""  # why the file could not be read

    def __repr__(self) -> str:
        if self.problem:
            return f"left out: {shown(self.problem)}"
        return f"{shown(str(self.file))}: {self.added} added, {self.present} already there"


class MergedFiles(NamedTuple):
    """What became of each file; printed, it is the text of `jetwatt results merge`."""

    files: Tuple[MergedFile, ...]  # each with the profiles added and present, or why it was left out
    out: Path  # the file that has them now
    profiles: int  # in `out`

    def __repr__(self) -> str:
        return f"{shown(str(self.out))}: {counted(self.profiles, 'profile')}"

    @property
    def left_out(self) -> List[MergedFile]:
        """The files that could not be read."""
        return [merged for merged in self.files if merged.problem]


class Pruned(NamedTuple):
    """How many profiles lost their raw series; printed, it is the line of `jetwatt results prune`."""

    file: Path  # the results file
    profiles: int  # that lost their raw series
    freed_bytes: int  # by which the file became smaller

    def __repr__(self) -> str:
        freed = f"{bytes_to_mb(self.freed_bytes):.1f} MB freed"
        return f"{shown(str(self.file))}: raw series of {counted(self.profiles, 'profile')} removed, {freed}"


def merge_results(
    files: Sequence[Union[str, Path]],
    *,
    out: Union[str, Path],
    show: Callable[[MergedFile], None] = lambda merged: None,
) -> MergedFiles:
    """Copy every profile of some results files into one, as `jetwatt results merge` does; none is added twice.

    Args:
        files: results files, archives of `archive_results` and files of these; one that cannot be read is left out.
        out: the file to add to, created if it does not exist.
        show: receives each file when it is done.

    Returns:
        What became of each file, and the number of profiles in `out`.

    Raises:
        StoreError: `out` cannot be written.
    """
    target, merged_files = Path(out), []
    single = [file for path in map(Path, files) for file in (files_of_archive(path) or [path])]
    with ResultsStore(target) as store:
        for file in dict.fromkeys(single):
            if file.resolve() == target.resolve():
                continue
            try:
                with open_stored(file) as source:
                    merged = MergedFile(file, *store.merge(source))
            except StoreError as error:
                merged = MergedFile(file, problem=str(error))
            show(merged)
            merged_files.append(merged)
        return MergedFiles(tuple(merged_files), target, len(store))


def prune_results(file: Union[str, Path], *, keep_raw: float) -> Pruned:
    """Permanently remove the raw series of old profiles, as `jetwatt results prune` does.

    Aggregates, conditions and flags are kept; `compare` and baselines need raw series and exclude pruned profiles.

    Args:
        file: a results file.
        keep_raw: the age in days up to which raw series are kept.

    Raises:
        StoreError: the file does not exist, or cannot be written.
    """
    path = Path(file)
    if not path.exists():
        raise StoreError(f"there is no results file {path}", "name an existing file")
    size = path.stat().st_size
    now = datetime.datetime.now(datetime.timezone.utc)
    with ResultsStore(path) as store:
        before = (now - datetime.timedelta(days=keep_raw)).isoformat(timespec="microseconds")
        count = store.prune(before, f"{RAW_PRUNED}: minibatches and telemetry were removed on {now.date()}")
    return Pruned(path, count, size - path.stat().st_size)
