"""How often an evaluation runs its trials, from which seed, in how many processes, and what hears of each."""

from __future__ import annotations

import dataclasses
from typing import Callable, Optional

from predictors.models.base import CallSettings, check_number, check_numbers, checks_names

Report = Callable[[int, int, str], None]


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class Runs(CallSettings):
    """How an evaluation is run.

    Attributes:
        repeats: number of repeats, each with other modes; None for the call's own: 10, 5 for a contest of strategies,
            3 for the papers' errors.
        seed: the same seed draws the same modes.
        jobs: number of parallel processes.
        report: receives the number of finished runs, the total, and the last run; None for nothing.
    """

    repeats: Optional[int] = None
    seed: int = 0
    jobs: int = 1
    report: Optional[Report] = None

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        check_numbers(above=True, whole=True, repeats=self.repeats, jobs=self.jobs)
        check_number("seed", self.seed, whole=True)


USUAL_RUNS = Runs()
"""The default of calls."""

REPEATS = 10  # of evaluations, unless given


def repeats_of(runs: Runs, default: int = REPEATS) -> int:
    """The number of repeats, with a call's own default."""
    return default if runs.repeats is None else runs.repeats


def tell(runs: Runs, done: int, total: int, what: str) -> None:
    """Report a finished run, if the runs have a report."""
    if runs.report is not None:
        runs.report(done, total, what)
