"""The papers' qualitative claims, each a statistic on simulated boards."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from harness.judge.simulation_claims import batch_sizes, clocks, loading, profiling
from harness.judge.simulation_claims.claim import Claim, Finding
from harness.judge.simulation_claims.published import known_shortfalls
from tools.quantities import Boards

CLAIMS: Tuple[Claim, ...] = (*loading.CLAIMS, *batch_sizes.CLAIMS, *clocks.CLAIMS, *profiling.CLAIMS)
"""All of them."""


class Verdict(NamedTuple):
    """A claim, what simulated boards say to it, and why it is known not to hold; None where it should."""

    claim: Claim
    finding: Finding
    shortfall: Optional[str]

    @property
    def is_as_known(self) -> bool:
        """Whether it holds, or does not hold for a reason that is on record."""
        return self.finding.holds == (self.shortfall is None)


def judge(boards: Optional[Boards] = None) -> List[Verdict]:
    """Put every claim to simulated boards; the suite's own where None."""
    boards = Boards() if boards is None else boards
    shortfalls = known_shortfalls()
    return [Verdict(claim, claim.check(boards), shortfalls.get(claim.name)) for claim in CLAIMS]
