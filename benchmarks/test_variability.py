"""How much do epochs differ over time, and boards of a type among each other (E7)?

`--duration 54000` repeats each case for the papers' 15 hours. Every repetition is a profile of its own in the results.
"""

from typing import Callable, List

import pytest

from harness.core.metrics import epoch_sums
from harness.core.profiles import Profile
from harness.judge.claims import Verdict
from harness.stats.experiments import variability

LEAST = 3


def test_variability(profile: Callable[[int], Profile], pytestconfig: pytest.Config) -> None:
    """Train again and again, and compare the epochs."""
    spent_s, epochs_s, repetition = 0.0, [], 0
    while repetition < LEAST or spent_s < pytestconfig.getoption("jetwatt_duration"):
        epochs = epoch_sums(profile(repetition).minibatches)
        spent_s += epochs[-1].end_s - epochs[0].start_s
        epochs_s += [epoch.e2e_s for epoch in epochs if epoch.epoch > 0 or len(epochs) == 1]
        repetition += 1
    assert variability(epochs_s).count == len(epochs_s)


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """004 sec. 5.4, 002 sec. II.4."""
    assert takeaways()
