"""The same case measured with several versions of the software: how much its time differs (E8; 004 sec. 5.4.4)."""

from __future__ import annotations

from typing import List, NamedTuple

from harness.judge.evidence import SOFTWARE
from harness.judge.sides import cases_of, pair, ratios
from harness.stats.estimates import Interval
from harness.store.frames import profiles
from harness.store.results import ResultsStore


class VersionEffect(NamedTuple):
    case_id: str
    differ: List[str]  # the versions that changed, `torch: "1.12" -> "2.0"`
    ratio: Interval  # median minibatch time after / before

    @property
    def text(self) -> str:
        low, high = f"{self.ratio.low:.3f}", f"{self.ratio.high:.3f}"
        return f"{self.case_id}: {'; '.join(self.differ)}: time x {self.ratio.value:.3f} ({low} to {high})"


def version_effects(store: ResultsStore) -> List[VersionEffect]:
    """Every undisturbed case that was measured with several sets of versions, each set against the first one."""
    frame = profiles(store, timed=True, replayed=False)
    versions = frame["conditions"].map(lambda conditions: tuple(conditions.get(name) for name in SOFTWARE))
    sets = [cases_of(store, frame[versions == found]) for found in dict.fromkeys(versions)]
    effects = []
    for later in sets[1:]:
        pairs = [one for one in pair(sets[0], later, SOFTWARE) if one.is_compared]
        found = ratios(pairs)
        effects += [VersionEffect(one.case_id, one.differ, found[one.key].estimate.interval()) for one in pairs]
    return effects
