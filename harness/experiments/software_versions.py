"""The same case measured with several versions of the software: how much its time differs (E8; 004 sec. 5.4.4)."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

from harness.analysis.means import Mean, Ratio, interval, over_runs, quotient
from harness.cases import IDLE, Case
from harness.experiments.evidence import SOFTWARE, WARM, evidence_of, same_case
from harness.results.store import ResultsStore

Versions = Tuple[Any, ...]


class VersionEffect(NamedTuple):
    """A case before and after a change of software.

    Attributes:
        case: what was measured.
        before, after: versions by name, those that differ.
        ratio: time after / before, with its 95 % interval.
    """

    case: Case
    before: Dict[str, Any]
    after: Dict[str, Any]
    ratio: Ratio

    @property
    def text(self) -> str:
        """In a line."""
        change = ", ".join(f"{name} {old} to {self.after[name]}" for name, old in self.before.items())
        return (
            f"{self.case.id}: {change}: time x {self.ratio.value:.3f} ({self.ratio.low:.3f} to {self.ratio.high:.3f})"
        )


def version_effects(store: ResultsStore) -> List[VersionEffect]:
    """Every case that was measured with more than one set of versions, each set against the first one."""
    times: Dict[Case, Dict[Versions, List[Mean]]] = {}
    for number in _of_more_than_one(store):
        evidence = evidence_of(store.profile(number))
        if ("time", WARM) in evidence.figures:
            by_versions = times.setdefault(same_case(evidence.case), {})
            by_versions.setdefault(evidence.software, []).append(evidence.figures["time", WARM])
    return [effect for case, by_versions in times.items() for effect in _effects(case, by_versions)]


def _of_more_than_one(store: ResultsStore) -> Iterable[int]:
    """Numbers of the profiles whose cases were measured with several sets of versions; raw series are not read."""
    known: Dict[Case, Dict[Versions, List[int]]] = {}
    for record in store.records():
        if record.case.task != IDLE:
            versions = tuple(record.conditions.get(name) for name in SOFTWARE)
            known.setdefault(same_case(record.case), {}).setdefault(versions, []).append(record.id)
    return sorted(
        number for found in known.values() if len(found) > 1 for numbers in found.values() for number in numbers
    )


def _effects(case: Case, by_versions: Dict[Versions, List[Mean]]) -> List[VersionEffect]:
    (first, times), *others = by_versions.items()
    effects = []
    for versions, later in others:
        changed = [name for name, old, new in zip(SOFTWARE, first, versions) if old != new]
        effects.append(
            VersionEffect(
                case,
                {name: first[SOFTWARE.index(name)] for name in changed},
                {name: versions[SOFTWARE.index(name)] for name in changed},
                interval(quotient(over_runs(times), over_runs(later)), 0.95),
            )
        )
    return effects
