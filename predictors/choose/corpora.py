"""The profiles of a corpus: from a file, a results file or a frame of either, and the choice of a table among them."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional, Sequence, TypedDict, Union

import numpy as np

from harness.core.corpus import CONTRADICTION, CORPUS, POWER_LIMIT, TASKS, load_corpus, notes_on_devices, validated
from harness.core.errors import InvalidValueError, StoreError, UnknownNameError
from harness.core.measured_tables import corpus_file
from harness.core.metrics import POWER_CHANNEL
from harness.core.notes import note
from harness.core.power_modes import PowerMode
from harness.core.profiles import NO_SERIES, Profile
from harness.core.terminal import counted
from harness.core.units import ms_to_s, share_to_percent
from harness.store.archive import open_stored
from harness.store.corpora import corpus_rows, for_corpus
from harness.store.frames import FURTHER, STORES, minibatches, profiles, telemetry
from harness.store.results_file import ResultsFile
from predictors.models.base import refuse_unknown_arguments
from predictors.models.registry import predictor_class
from predictors.profiles import Profiles, find_table, tables_of
from predictors.sampling import MINIBATCHES

if TYPE_CHECKING:
    import pandas as pd

    from harness.store.frames import StoredProfiles

Corpus = Union["pd.DataFrame", ResultsFile, str, Path]
"""A corpus, or results: a file, a name of `jetwatt.load_table`, a frame, or what `jetwatt.open_results` returns."""


class Conditions(TypedDict, total=False):
    """Which profiles of a workload are its table, where a corpus has several: each names a column; None means any."""

    device: Optional[str]
    task: str  # `training`, unless given
    workers: Optional[int]  # num_workers of the DataLoader
    storage: Optional[str]  # medium of the data set


OF_ROWS = ("workers", "storage")
"""The conditions whose profiles are merged where none is chosen."""

FURTHER_OF_ROWS = ("cache", "clocks", "data_scale")
"""Columns of results whose profiles are merged too; only the table can be narrowed to some of them."""


def check_conditions(conditions: Conditions, call: Callable[..., Any]) -> None:
    """Refuse further arguments of a call that are not conditions."""
    names = [name for name in inspect.signature(call).parameters if name != "conditions"]
    refuse_unknown_arguments(call.__name__, conditions, [*Conditions.__annotations__, *names])


@dataclasses.dataclass(frozen=True)
class LoadedCorpus:
    """The rows of a corpus, and those of a results file that do not count."""

    rows: pd.DataFrame  # a checked corpus; `entries` as of `Profiles`, if the file has single minibatches
    left_out: pd.DataFrame  # device, workload, task and `reason`
    file: Optional[Path]  # None for a frame

    @property
    def name(self) -> str:
        """For notes."""
        return _name(self.file)

    def tables(self) -> List[Profiles]:
        """All tables, in the order of their first rows."""
        return tables_of(self.rows)

    def table(self, workload: str, conditions: Conditions) -> Profiles:
        """The table of a workload under conditions; notes say which of its profiles are left out or merged.

        Raises:
            HarnessError: there is no such table, or there are several.
        """
        task, device = conditions.get("task", TASKS[0]), conditions.get("device")
        of_workload = (self.rows["workload"] == workload) & (self.rows["task"] == task)
        if device is not None:
            of_workload &= self.rows["device"] == device
        rows = self.rows[of_workload]
        self._note_left_out(workload, device)
        devices = sorted(rows["device"].unique())
        if device is None and len(devices) > 1:
            what = f"the corpus has {task} of {workload!r} on {len(devices)} devices: {', '.join(devices)}"
            raise InvalidValueError(what, f"choose one: device={devices[0]!r}")
        if rows.empty:
            return find_table(self.tables(), workload, task, device)  # raises with what there is
        for name in OF_ROWS:
            wanted = conditions.get(name)
            if wanted is not None:
                rows = _rows_with(rows, name, wanted, f"{task} of {workload!r}")
        table = find_table(tables_of(rows), workload, task)
        for text in _notes_on_repeats(rows, table):
            note(text)
        return table

    def _note_left_out(self, workload: str, device: Optional[str]) -> None:
        """Say how many profiles of a workload, on any or one device, do not count, and why."""
        of_workload = self.left_out["workload"] == workload
        if device is not None:
            of_workload &= self.left_out["device"] == device
        note_left_out(self.left_out[of_workload], f"{self.name}: left out of {workload}")


def note_left_out(left_out: pd.DataFrame, what: str) -> None:
    """Note how many profiles are left out for each reason; nothing without any."""
    numbers = left_out["reason"].value_counts(sort=False)
    if len(numbers):
        reasons = [f"{counted(number, 'profile')} {reason}" for reason, number in numbers.items()]
        note(f"{what}: {', '.join(reasons)}")


def read_profiles(corpus: Corpus) -> LoadedCorpus:
    """Read and check a corpus; of a results file, the newest profile of each conditions that a corpus can hold.

    Errors are those of `read_corpus`, `check_corpus` or of the results file.
    """
    import pandas as pd

    if isinstance(corpus, ResultsFile):
        return _read_results(corpus.path)
    if not isinstance(corpus, (str, Path)):
        if not (isinstance(corpus, pd.DataFrame) and {*corpus.columns} >= _OF_RESULTS):
            return _loaded(validated(corpus, _name(None)), _nothing_left_out(), None)
        kept, left_out = for_corpus(corpus)
        return _loaded(_as_corpus(kept, left_out, None), left_out, None)
    path = corpus_file(corpus)
    if path.suffix.lower() in STORES:
        return _read_results(path)
    return _loaded(load_corpus(path), _nothing_left_out(), path)


def load_tables(corpus: Corpus) -> List[Profiles]:
    """All tables of a corpus, in the order of their first rows; a note says what is left out of results."""
    loaded = read_profiles(corpus)
    note_left_out(loaded.left_out, f"{loaded.name}: left out")
    return loaded.tables()


def load_all_tables(corpora: Iterable[Corpus]) -> List[Profiles]:
    """The tables of several corpora, in their order."""
    return [table for corpus in corpora for table in load_tables(corpus)]


_OF_RESULTS = {"usable", "key", "created_at", *(column.name for column in (*CORPUS, *FURTHER))}
"""Columns of a frame of results."""


def _read_results(path: Path) -> LoadedCorpus:
    with open_stored(path) as store:
        kept, left_out = for_corpus(profiles(store, include_flagged=True))
        entries = _stored_entries(store, kept.index)
    return _loaded(_as_corpus(kept, left_out, path).assign(entries=entries), left_out, path)


def _as_corpus(kept: pd.DataFrame, left_out: pd.DataFrame, file: Optional[Path]) -> pd.DataFrame:
    """Profiles of results as a checked corpus; refused without any."""
    import pandas as pd

    name = _name(file)
    if kept.empty:
        note_left_out(left_out, f"{name}: left out")
        raise StoreError(f"{name} has no profile that counts", "measure some: pytest benchmarks")
    return validated(pd.DataFrame(corpus_rows(kept)), name)


def _loaded(rows: pd.DataFrame, left_out: pd.DataFrame, file: Optional[Path]) -> LoadedCorpus:
    for text in notes_on_devices(rows):
        note(f"{_name(file)}: {text}")
    return LoadedCorpus(rows, left_out, file)


def _name(file: Optional[Path]) -> str:
    return "the corpus" if file is None else str(file)


def _nothing_left_out() -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns=["device", "workload", "task", "reason"], dtype=object)


def _rows_with(rows: pd.DataFrame, name: str, wanted: Any, what: str) -> pd.DataFrame:
    """The rows with a value in a column; refused if there are none."""
    if name not in rows:
        raise InvalidValueError(f"the corpus does not say the {name} of its profiles", f"omit {name}=")
    matching = rows[rows[name] == wanted]
    if matching.empty:
        there = ", ".join(map(str, sorted(rows[name].dropna().unique()))) or "none"
        raise UnknownNameError(f"the corpus has no {what} with {name} {wanted}", f"available: {there}")
    return matching


def _notes_on_repeats(rows: pd.DataFrame, table: Profiles) -> List[str]:
    """Notes on rows of equal settings, which are merged: what else differs in them, or that they contradict."""
    alike = [*PowerMode._fields, "batch_size", *([POWER_LIMIT.name] if POWER_LIMIT.name in rows else [])]
    notes = []
    for name in (*OF_ROWS, *FURTHER_OF_ROWS):
        if name in rows and (rows.groupby(alike, dropna=False)[name].nunique() > 1).any():
            values = " and ".join(map(str, sorted(rows[name].dropna().unique())))
            way_out = f"choose some with {name}=" if name in OF_ROWS else "give a table with some of them only"
            notes.append(
                f"{table.workload} on {table.device} has profiles with {name} {values}, which are merged into their"
                f" medians: {way_out}"
            )
    contradictions = table.contradictions()
    if contradictions and not notes:
        apart = f"{share_to_percent(CONTRADICTION - 1):.0f} % apart"
        notes.append(
            f"{counted(contradictions, 'setting')} measured more than once with times over {apart}, merged into their"
            f" medians: does the table lack a column of what differed, such as {POWER_LIMIT.name}?"
        )
    return notes


def _stored_entries(store: StoredProfiles, profile_ids: Sequence[int]) -> List[np.ndarray]:
    """The entries of stored profiles, as of `entries_of`."""
    steps, samples = minibatches(store, profile_ids), telemetry(store, profile_ids, [POWER_CHANNEL])
    counted_steps = dict(iter(steps[steps["counted"]].groupby("profile_id")))
    power = dict(iter(samples.groupby("profile_id")))
    entries = []
    for number in profile_ids:
        own, sampled = counted_steps.get(number, steps[:0]), power.get(number, samples[:0])
        columns = own["start_s"], own["e2e_ms"], sampled["time_s"], sampled["value"]
        entries.append(_entries(*(column.to_numpy() for column in columns)))
    return entries


def entries_of(profile: Profile) -> np.ndarray:
    """Time and power of the first 40 minibatches that count, shape (n, 2); the power is NaN without a sample."""
    start_s = np.array([minibatch.start_s for minibatch in profile.counted])
    time_ms = np.array([minibatch.e2e_ms for minibatch in profile.counted])
    power = profile.telemetry.series.get(POWER_CHANNEL, NO_SERIES)
    return _entries(start_s, time_ms, np.array(power.times_s), np.array(power.values))


def _entries(start_s: np.ndarray, time_ms: np.ndarray, sampled_s: np.ndarray, power_mw: np.ndarray) -> np.ndarray:
    start_s, time_ms = start_s[:MINIBATCHES], time_ms[:MINIBATCHES]
    places = zip(*(np.searchsorted(sampled_s, ends) for ends in (start_s, start_s + ms_to_s(time_ms))))
    return np.column_stack([time_ms, [power_mw[low:high].mean() if low < high else np.nan for low, high in places]])


def note_on_medians(predictors: Iterable[str], learned: Iterable[Profiles]) -> List[str]:
    """A note on predictors that learn every minibatch of a profile, if the tables have only medians; else none."""
    names = [name for name in dict.fromkeys(predictors) if predictor_class(name).learns_repeats]
    if not names or all(table.entries is not None for table in learned):
        return []
    entered = f"the median of each profile is entered up to {MINIBATCHES} times"
    return [f"{' and '.join(names)}: {entered}; from a results file each minibatch is, as in the paper"]
