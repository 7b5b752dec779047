"""How much do epochs differ over time, and boards of a type among each other (E7)?

`--duration 54000` repeats each case for the papers' 15 hours. Every repetition is a profile of its own in the results.
"""

import pytest

from harness.core.metrics import epoch_sums

LEAST = 3


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
def test_variability(profile, baseline, pytestconfig):
    """Train again and again; no repetition is slower than what is recorded."""
    spent_s, repetition = 0.0, 0
    while repetition < LEAST or spent_s < pytestconfig.getoption("jetwatt_duration"):
        measured = profile(repetition)
        epochs = epoch_sums(measured.minibatches)
        spent_s += epochs[-1].end_s - epochs[0].start_s
        repetition += 1
        baseline.check(measured)


def test_takeaways(takeaways):
    """004 sec. 5.4, 002 sec. II.4."""
    assert takeaways()
