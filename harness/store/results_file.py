"""`open_results`: a results file as pandas DataFrames."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Iterable, Optional, Sequence, Union

from harness.store import frames
from harness.store.archive import open_stored

if TYPE_CHECKING:
    import pandas as pd


def open_results(path: Union[str, Path]) -> ResultsFile:
    """Open a file of `pytest --results FILE`, or of an archive; a `StoreError` if it does not exist or is neither."""
    with open_stored(path):
        return ResultsFile(Path(path))


@dataclasses.dataclass(frozen=True, repr=False)
class ResultsFile:
    """A results file, opened anew for each query, because it may still be written to."""

    path: Path  # of the file

    def __repr__(self) -> str:
        table = self.profiles()
        flagged = int((~table["usable"]).sum())
        doubtful = f", {flagged} of them disturbed or throttled" if flagged else ""
        of = f" of {', '.join(table['workload'].unique())} on {', '.join(table['device_name'].unique())}"
        return f"<{self.path}: {len(table)} profiles{of if len(table) else ''}{doubtful}>"

    def profiles(
        self, *, usable: bool = False, newest: bool = False, period_ms: Optional[float] = None
    ) -> pd.DataFrame:
        """A row for each profile, oldest first: figures, conditions, flags.

        `usable` excludes disturbed or throttled ones, `newest` all but the newest of the same conditions. With
        `period_ms`, the column `miss_ratio` is the share of the clean minibatches that took longer.
        """
        with open_stored(self.path) as store:
            frame = frames.profiles(store, include_flagged=not usable, newest_only=newest)
            return frame if period_ms is None else frames.with_miss_ratio(store, frame, period_ms)

    def minibatches(self, profile_ids: Optional[Iterable[int]] = None) -> pd.DataFrame:
        """A row for each minibatch of the given profiles, or of all: fetch stall, compute and end-to-end time."""
        with open_stored(self.path) as store:
            return frames.minibatches(store, profile_ids)

    def telemetry(
        self, profile_ids: Optional[Iterable[int]] = None, channels: Optional[Sequence[str]] = None
    ) -> pd.DataFrame:
        """A row for each sample of the given profiles, or of all: `profile_id`, `channel`, `time_s`, `value`."""
        with open_stored(self.path) as store:
            return frames.telemetry(store, profile_ids, channels)
