"""What do free clocks change in time and energy (E9)?"""

import pytest


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
def test_dvfs(profile, baseline):
    """Train with the clocks of --clocks; the paper campaign has static ones and DVFS."""
    baseline.check(profile())


def test_takeaways(takeaways):
    """004 sec. 5.5, 002 sec. II.1."""
    assert takeaways()
