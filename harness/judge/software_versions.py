"""The same case measured with several versions of the software: how much its time differs (E8; 004 sec. 5.4.4)."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from harness.core.cases import IDLE, Case
from harness.judge.evidence import MEASURED, SOFTWARE, WARM, evidence_of, same_case
from harness.stats.estimates import Estimate, Interval, quotient
from harness.stats.noise import TIME, RunNoise, learn, over_runs, prior
from harness.store.conditions import is_disqualified
from harness.store.results import ResultsStore

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
    ratio: Interval

    @property
    def text(self) -> str:
        """In a line."""
        change = ", ".join(f"{name} {old} to {self.after[name]}" for name, old in self.before.items())
        return (
            f"{self.case.id}: {change}: time x {self.ratio.value:.3f} ({self.ratio.low:.3f} to {self.ratio.high:.3f})"
        )


def version_effects(store: ResultsStore) -> List[VersionEffect]:
    """Every case that was measured with more than one set of versions, each set against the first one."""
    times: Dict[Case, Dict[Versions, List[Estimate]]] = {}
    boards: Dict[str, str] = {}
    for number in _of_more_than_one(store):
        evidence = evidence_of(store.profile(number))
        if ("time", WARM) in evidence.figures:
            by_versions = times.setdefault(same_case(evidence.case), {})
            by_versions.setdefault(evidence.software, []).append(evidence.figures["time", WARM])
            boards[evidence.case.device] = evidence.board
    noises = {device: _noise(device, board, times) for device, board in boards.items()}
    return [
        effect for case, by_versions in times.items() for effect in _effects(case, by_versions, noises[case.device])
    ]


def _noise(device: str, board: str, times: Mapping[Case, Mapping[Versions, Sequence[Estimate]]]) -> RunNoise:
    """The noise between runs of a device; runs with other software do not tell it."""
    groups = [means for case, by_versions in times.items() if case.device == device for means in by_versions.values()]
    return learn(groups, prior(board, TIME))


def _of_more_than_one(store: ResultsStore) -> Iterable[int]:
    """Numbers of the profiles whose cases were measured with several sets of versions; raw series are not read.

    Those that were disturbed or throttled do not count.
    """
    known: Dict[Case, Dict[Versions, List[int]]] = {}
    for record in store.records():
        is_right = record.provenance != MEASURED or not is_disqualified(record.flags)
        if record.case.task != IDLE and is_right:
            versions = tuple(record.conditions.get(name) for name in SOFTWARE)
            known.setdefault(same_case(record.case), {}).setdefault(versions, []).append(record.id)
    return sorted(
        number for found in known.values() if len(found) > 1 for numbers in found.values() for number in numbers
    )


def _effects(case: Case, by_versions: Dict[Versions, List[Estimate]], noise: RunNoise) -> List[VersionEffect]:
    (first, times), *others = by_versions.items()
    effects = []
    for versions, later in others:
        changed = [name for name, old, new in zip(SOFTWARE, first, versions) if old != new]
        effects.append(
            VersionEffect(
                case,
                {name: first[SOFTWARE.index(name)] for name in changed},
                {name: versions[SOFTWARE.index(name)] for name in changed},
                quotient(over_runs(times, noise), over_runs(later, noise)).interval(),
            )
        )
    return effects
