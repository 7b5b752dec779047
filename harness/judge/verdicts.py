"""Verdicts: each take-away of the papers against the profiles of a results file."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Dict, Iterable, List, NamedTuple, Optional

from harness.judge.evidence import MEASURED, SIMULATED, Evidence, evidence_of, pooled
from harness.judge.findings import CONFIRMED, CONTRADICTED, judge
from harness.judge.takeaway import Takeaway
from harness.judge.takeaways import TAKEAWAYS
from harness.judge.view import View
from harness.stats.noise import told
from harness.store.results import ResultsStore


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
        left_out: how many profiles of the device were not looked at, because they were disturbed or throttled.
        between_runs: how much runs of a case differ on the device, as the interval counts it, and whether that was
            learned from its repeated cases or assumed.
        apart: in what a measured device is not as those of the paper; empty where it is one of them.
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
    left_out: int = 0
    between_runs: str = ""
    apart: str = ""

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
            f"n = {self.n}, for {self.case}{self._of_the_device}"
        )

    @property
    def _of_the_device(self) -> str:
        """What else a reader has to know of a measured verdict."""
        if self.provenance != MEASURED:
            return ""
        return f"; runs differ in {self.between_runs}" * bool(self.between_runs) + f"; {self.apart}" * bool(self.apart)

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
    found = list(evidence)
    known = pooled(found)
    left_out = Counter(one.case.device for one in found if one.is_left_out)
    views: Dict[str, View] = {}
    for one in known:
        if one.case.device not in views:
            views[one.case.device] = View(one.case.device, known)
    return [
        verdict._replace(left_out=left_out[verdict.device])
        for takeaway in TAKEAWAYS
        for verdict in (_verdict(takeaway, view, views) for view in views.values())
        if verdict is not None
    ]


def _verdict(takeaway: Takeaway, view: View, views: Dict[str, View]) -> Optional[Verdict]:
    """The verdict on one device; None where the paper did not speak of such, or profiles are missing."""
    provenance = view.provenance
    is_elsewhere = bool(takeaway.boards) and view.board not in takeaway.boards
    if is_elsewhere and (provenance == SIMULATED or takeaway.only_there):
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
        between_runs=told(view.run_noise),
        apart=_apart(takeaway, view) if provenance == MEASURED else "",
    )


def _apart(takeaway: Takeaway, view: View) -> str:
    """In what a device is not as those that the paper spoke of."""
    told_apart = []
    boards = [board for board in takeaway.boards if board]
    if boards and view.board not in boards:
        told_apart.append(f"the paper saw it on {', '.join(boards)}")
    if any(one.conditions.get("accelerator") == "cpu" for one in view.evidence):
        told_apart.append("here the CPU trains, and shares its cores with workers")
    return "; ".join(told_apart)


@functools.lru_cache(maxsize=1)
def _shortfalls() -> Dict[str, str]:
    """Why simulated boards are known to contradict a fact, by its id."""
    from harness.judge.simulation_claims.published import load_statements

    return {statement.fact: statement.shortfall for statement in load_statements()}
