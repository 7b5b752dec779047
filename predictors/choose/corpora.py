"""Tables from the files given to commands: corpora, and results files, which also hold minibatches."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, List, Sequence, Union

import numpy as np

from harness.core.corpus import TASKS, check_corpus, read_corpus
from harness.core.measured_tables import corpus_file
from harness.core.metrics import POWER_CHANNEL
from harness.core.profiles import NO_SERIES, Profile
from harness.core.units import ms_to_s
from harness.store.corpora import corpus_rows, newest
from harness.store.frames import STORES, minibatches, profiles, telemetry
from harness.store.results import ResultsStore
from predictors.models.registry import predictor_class
from predictors.profiles import Profiles, tables_of
from predictors.sampling import MINIBATCHES


def load_tables(file: Union[str, Path]) -> List[Profiles]:
    """The tables of a file, or of a measured table by its name, in the order of their first rows.

    Of a results file, its newest profiles. Errors are those of `read_corpus` or of the results file.
    """
    path = corpus_file(file)
    if path.suffix.lower() not in STORES:
        return tables_of(read_corpus(path))
    import pandas as pd

    with ResultsStore(path, read_only=True) as store:
        kept = newest(profiles(store, timed=True, tasks=TASKS))
        entries = _stored_entries(store, kept.index)
    checked = check_corpus(pd.DataFrame(corpus_rows(kept)), str(path))
    return tables_of(checked.assign(entries=entries))


def load_all_tables(files: Iterable[Union[str, Path]]) -> List[Profiles]:
    """The tables of several files, in the order of the files."""
    return [table for file in files for table in load_tables(file)]


def _stored_entries(store: ResultsStore, profile_ids: Sequence[int]) -> List[np.ndarray]:
    """The entries of stored profiles, as of `entries_of`."""
    steps, samples = minibatches(store, profile_ids), telemetry(store, profile_ids, [POWER_CHANNEL])
    counted = dict(iter(steps[steps["counted"]].groupby("profile_id")))
    power = dict(iter(samples.groupby("profile_id")))
    entries = []
    for number in profile_ids:
        own, sampled = counted.get(number, steps[:0]), power.get(number, samples[:0])
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
