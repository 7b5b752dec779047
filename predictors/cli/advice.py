"""Which approach pays for a training: the decision guide of 001 Table 1, with the arithmetic shown.

All approaches end with the training running in some power mode. They differ in what they spend on profiles first, and
in how much slower than the best mode the one is that they end with. The total of an approach is

    profiles * hours per profile + fitting + runs * epochs * hours per epoch in the best mode * (1 + penalty)

so a dear search pays for a long training only. Profiles count once, however many runs follow: that is why the guide
asks for the number of runs.
"""

from __future__ import annotations

from typing import List, NamedTuple

from harness.core.errors import InvalidValueError


class Approach(NamedTuple):
    """A way to find a power mode.

    Attributes:
        name: what it is called.
        profiles: how many modes it profiles.
        penalty_pct: mean time penalty of the mode that it ends with.
        fitting_s: what it computes.
        origin: where profiles and penalty come from.
    """

    name: str
    profiles: int
    penalty_pct: float
    fitting_s: float
    origin: str


class Verdict(NamedTuple):
    """What an approach comes to for one training.

    Attributes:
        approach: which one.
        profiling_hours: what profiling takes, fitting included.
        training_hours: all runs in the mode that it ends with.
    """

    approach: Approach
    profiling_hours: float
    training_hours: float

    @property
    def total_hours(self) -> float:
        """Profiling and training together."""
        return self.profiling_hours + self.training_hours


def weigh(
    approaches: List[Approach], *, epochs: float, epoch_minutes: float, runs: float, profile_seconds: float
) -> List[Verdict]:
    """What each approach comes to, the cheapest first.

    Args:
        approaches: the ways to find a mode.
        epochs: of one run.
        epoch_minutes: one epoch in the best mode within the budget.
        runs: trainings that will use the mode found.
        profile_seconds: what profiling one mode takes, on average.

    Raises:
        InvalidValueError: a number is not above 0.
    """
    for name, value in (
        ("epochs", epochs),
        ("epoch minutes", epoch_minutes),
        ("runs", runs),
        ("seconds per profile", profile_seconds),
    ):
        if not value > 0:
            raise InvalidValueError(f"{name} is {value:g}, expected a number above 0")
    best_hours = runs * epochs * epoch_minutes / 60
    verdicts = [
        Verdict(
            approach,
            (approach.profiles * profile_seconds + approach.fitting_s) / 3600,
            best_hours * (1 + approach.penalty_pct / 100),
        )
        for approach in approaches
    ]
    return sorted(verdicts, key=lambda verdict: verdict.total_hours)
