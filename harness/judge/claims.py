"""The judge of the papers' claims: what the profiles of each device say to each, measured and simulated alike."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from harness.judge.claim_functions import FUNCTIONS, Cell
from harness.judge.claim_list import Bounds, Claim, load_claims
from harness.judge.evidence import MEASURED, SIMULATED, Evidence, View, pooled, read_evidence
from harness.stats.noise import told

if TYPE_CHECKING:
    from harness.store.results import ResultsStore

CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted", "undecided"
CONFIDENCE = 0.95


class Judged(NamedTuple):
    """What follows from some cells, with the one that decides it: nearest to a bound, or farthest beyond."""

    verdict: str  # `confirmed`, `contradicted` or `undecided`
    case: str  # which case it is of
    effect: float
    low: float  # its interval, together 95 % over all cases
    high: float
    n: int  # cases, or pairs of cases, that were looked at


class Verdict(NamedTuple):
    """What the profiles of one device say to one claim."""

    experiment: str  # `benchmarks/test_EXPERIMENT.py` measures what it needs
    takeaway: str  # the claim's name
    section: str  # paper and section, such as `004 5.1.7`
    says: str  # what is claimed and how it is judged
    device: str  # whose profiles were judged
    verdict: str  # as of `Judged`, like the figure that decides, its interval, case and n
    effect: float
    low: float
    high: float
    above: float  # the bounds; infinite where there is none
    below: float
    meaning: str  # what the figure is, in words
    case: str
    n: int
    provenance: str  # of the profiles
    # why a simulated board is known not to behave so, where it does what is known of it; None where it should, where it
    # does something else, and of all that is measured
    shortfall: Optional[str]
    left_out: int = 0  # profiles of the device that were not looked at, because they were disturbed or throttled
    # how much runs of a case differ on the device, as the interval counts it, and whether that was learned from its
    # repeated cases or assumed
    between_runs: str = ""
    apart: str = ""  # in what a measured device is not as those of the paper; empty where it is one of them
    fitted: bool = False  # whether a simulation was judged that was fitted to a figure the claim stands on

    @property
    def must_hold(self) -> bool:
        """Whether anything else than confirmation is an error of the suite: on a simulated board, unless known."""
        return self.provenance == SIMULATED and self.shortfall is None

    @property
    def is_violated(self) -> bool:
        """Whether it is not as it should be: contradicted by a measurement, or not confirmed where it must hold."""
        if self.provenance == MEASURED:
            return self.verdict == CONTRADICTED
        return self.must_hold and self.verdict != CONFIRMED

    @property
    def text(self) -> str:
        limits = [f"above {self.above:g}"] if self.above != float("-inf") else []
        limits += [f"below {self.below:g}"] if self.below != float("inf") else []
        expected = f"; expected {' and '.join(limits)}" if limits else ""
        notes = [f"the simulation was fitted to {self.section}"] if self.fitted else []
        if self.provenance == MEASURED:
            notes += [f"runs differ in {self.between_runs}"] * bool(self.between_runs) + [self.apart] * bool(self.apart)
        return (
            f"{self.verdict}: {self.takeaway} (paper {self.section}) on {self.device}: "
            f"{self.meaning} {self.effect:.3g} ({self.low:.3g} to {self.high:.3g}{expected}), "
            f"n = {self.n}, for {'; '.join([self.case, *notes])}"
        )


def verdicts(store: ResultsStore) -> List[Verdict]:
    """The verdicts of a results file; raw series are read one profile at a time."""
    return judge(read_evidence(store))


def judge(evidence: Iterable[Evidence], claims: Optional[Sequence[Claim]] = None) -> List[Verdict]:
    """The verdicts of evidence, oldest first, in the order of the claims (default: all of `claims.csv`).

    A claim that a device has no profiles for, or no sensor, is left out.
    """
    found = list(evidence)
    known = pooled(found)
    left_out = Counter(one.case.device for one in found if one.is_left_out)
    views = {device: View(device, known) for device in dict.fromkeys(one.case.device for one in known)}
    judged = [
        _verdict(claim, view, views)
        for claim in (load_claims() if claims is None else claims)
        for view in views.values()
    ]
    return [one._replace(left_out=left_out[one.device]) for one in judged if one is not None]


def _verdict(claim: Claim, view: View, views: Dict[str, View]) -> Optional[Verdict]:
    is_simulated = view.provenance == SIMULATED
    if claim.boards and view.board not in claim.boards and (is_simulated or claim.only_there):
        return None
    cells = FUNCTIONS[claim.function](claim, view, views)
    bounds = claim.bounds.get(view.board, claim.bounds[""])
    judged = judge_cells(cells, bounds)
    if judged is None:
        return None
    shortfall = None
    if is_simulated and claim.shortfall and judged.verdict != CONFIRMED:
        as_known = judge_cells(cells, claim.known.get(view.board, claim.known[""]))
        shortfall = claim.shortfall if as_known is not None and as_known.verdict == CONFIRMED else None
    apart = []
    if claim.boards and view.board not in claim.boards:
        apart.append(f"the paper saw it on {', '.join(claim.boards)}")
    if any(one.conditions.get("accelerator") == "cpu" for one in view.evidence):
        apart.append("here the CPU trains, and shares its cores with workers")
    return Verdict(
        experiment=claim.experiment,
        takeaway=claim.name,
        section=claim.section,
        says=claim.says,
        device=view.device,
        meaning=claim.meaning,
        provenance=view.provenance,
        shortfall=shortfall,
        between_runs=told(view.run_noise),
        apart="; ".join(apart) if view.provenance == MEASURED else "",
        fitted=is_simulated and claim.is_fitted,
        **judged._asdict(),
        **bounds._asdict(),
    )


def judge_cells(cells: Sequence[Cell], bounds: Bounds, confidence: float = CONFIDENCE) -> Optional[Judged]:
    """Confirmed where all intervals lie within the bounds, contradicted where one lies beyond, undecided otherwise.

    That all cells have to hold needs no correction for their number; that one contradicts does. The intervals are
    corrected by Bonferroni for both, so a claim of many cells is confirmed with more than the confidence said.
    """
    if not cells:
        return None
    share = 1 - (1 - confidence) / len(cells)
    found = [(cell.label, cell.figure.interval(share)) for cell in cells]
    beyond = [one for one in found if one[1].high <= bounds.above or one[1].low >= bounds.below]
    label, worst = min(beyond or found, key=lambda one: min(one[1].low - bounds.above, bounds.below - one[1].high))
    holds = all(bounds.above < one.low and one.high < bounds.below for _, one in found)
    verdict = CONFIRMED if holds else CONTRADICTED if beyond else UNDECIDED
    return Judged(verdict, label, worst.value, worst.low, worst.high, len(found))


def counts_of_claims(found: Iterable[Verdict]) -> Dict[str, int]:
    """How many claims came to which verdict: claims, not devices; of each the least favourable one over all devices.

    Measured and simulated verdicts stand apart, and of the simulated ones those on figures that the simulation was
    fitted to: they say that the model can say it, and no more.
    """
    order = (CONFIRMED, UNDECIDED, CONTRADICTED)
    worst: Dict[Tuple[str, bool, str], str] = {}
    for one in found:
        place = (one.provenance, one.fitted, one.takeaway)
        worst[place] = max(worst.get(place, CONFIRMED), one.verdict, key=order.index)
    counts = Counter(
        f"{verdict} ({provenance}{', fitted to it' if fitted else ''})"
        for (provenance, fitted, _), verdict in worst.items()
    )
    return dict(sorted(counts.items()))
