"""Verdicts: each take-away of the papers against the profiles of a results file."""

from __future__ import annotations

import functools
from typing import Dict, Iterable, List, NamedTuple, Optional

from harness.experiments.evidence import Evidence, evidence_of, pooled
from harness.experiments.findings import CONFIRMED, CONTRADICTED, judge
from harness.experiments.takeaway import Takeaway
from harness.experiments.takeaways import TAKEAWAYS
from harness.experiments.view import View
from harness.results.store import ResultsStore

MEASURED, SIMULATED = "measured", "simulated"


class Verdict(NamedTuple):
    """What the profiles of one device say to one take-away.

    Attributes:
        experiment: `benchmarks/test_EXPERIMENT.py` measures what it needs.
        takeaway: its name.
        section: paper and section, such as `004 5.1.7`.
        says: what is claimed and how it is judged.
        device: whose profiles were judged.
        verdict: `confirmed`, `contradicted` or `undecided`.
        effect: the figure that decides, that is the one of all cases that is nearest to a bound, or farthest beyond.
        low, high: its interval, together 95 % over all cases.
        above, below: the bounds; infinite where there is none.
        meaning: what the figure is, in words.
        case: which case it is of.
        n: cases, or pairs of cases, that were looked at.
        provenance: of the profiles.
        shortfall: why simulated boards are known not to behave so; None where they should, and of all that is measured.
    """

    experiment: str
    takeaway: str
    section: str
    says: str
    device: str
    verdict: str
    effect: float
    low: float
    high: float
    above: float
    below: float
    meaning: str
    case: str
    n: int
    provenance: str
    shortfall: Optional[str]

    @property
    def must_hold(self) -> bool:
        """Whether anything else than confirmation is an error of the suite: on a simulated board, unless known."""
        return self.provenance == SIMULATED and self.shortfall is None

    @property
    def is_violated(self) -> bool:
        """Whether it is not as it should be: contradicted by a measurement, or not confirmed where it must hold."""
        return (
            self.verdict == CONTRADICTED
            if self.provenance == MEASURED
            else (self.must_hold and self.verdict != CONFIRMED)
        )

    @property
    def text(self) -> str:
        """The verdict in a line."""
        return (
            f"{self.verdict}: {self.takeaway} (paper {self.section}) on {self.device}: "
            f"{self.meaning} {self.effect:.3g} ({self.low:.3g} to {self.high:.3g}{self._bounds}), "
            f"n = {self.n}, for {self.case}"
        )

    @property
    def _bounds(self) -> str:
        limits = [
            *([f"above {self.above:g}"] if self.above != float("-inf") else []),
            *([f"below {self.below:g}"] if self.below != float("inf") else []),
        ]
        return f"; expected {' and '.join(limits)}" if limits else ""


def verdicts(store: ResultsStore) -> List[Verdict]:
    """The verdicts of a results file, in the order of experiments and take-aways.

    A take-away that a device has no profiles for is left out. Raw series are read one profile at a time.
    """
    return verdicts_of(evidence_of(profile) for profile in store.profiles())


def verdicts_of(evidence: Iterable[Evidence]) -> List[Verdict]:
    """The verdicts of evidence, given oldest first."""
    known = pooled(evidence)
    views: Dict[str, View] = {}
    for one in known:
        if one.case.device not in views:
            views[one.case.device] = View(one.case.device, known)
    return [
        found
        for takeaway in TAKEAWAYS
        for found in (_verdict(takeaway, view, views) for view in views.values())
        if found is not None
    ]


def _verdict(takeaway: Takeaway, view: View, views: Dict[str, View]) -> Optional[Verdict]:
    """The verdict on one device; None where the paper did not speak of such, or profiles are missing."""
    provenance, board = view.evidence[0].provenance, view.evidence[0].board
    if provenance == SIMULATED and takeaway.boards and board not in takeaway.boards:
        return None
    finding = takeaway.check(view, views)
    judged = None if finding is None else judge(finding)
    if finding is None or judged is None:
        return None
    shortfall = None
    if provenance == SIMULATED and judged.verdict != CONFIRMED:
        shortfall = next((_shortfalls()[fact] for fact in takeaway.facts if _shortfalls().get(fact)), None)
    return Verdict(
        experiment=takeaway.experiment,
        takeaway=takeaway.name,
        section=takeaway.section,
        says=takeaway.says,
        device=view.device,
        verdict=judged.verdict,
        effect=judged.effect,
        low=judged.low,
        high=judged.high,
        above=finding.above,
        below=finding.below,
        meaning=finding.effect,
        case=judged.label,
        n=judged.n,
        provenance=provenance,
        shortfall=shortfall,
    )


@functools.lru_cache(maxsize=1)
def _shortfalls() -> Dict[str, str]:
    """Why simulated boards are known to contradict a fact, by its id."""
    from harness.simulation.claims.published import load_statements

    return {statement.fact: statement.shortfall for statement in load_statements()}
