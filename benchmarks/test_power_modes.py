"""What do cores and clocks do to time, power and energy, and which modes are on the front (E11 to E13)?"""

import pytest


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("power_mode", ["maxn", "sample:10"])
def test_power_modes(profile, baseline):
    baseline.check(profile())


def test_takeaways(takeaways):
    """004 sec. 5.6 and appendix, 001 sec. 1.1."""
    assert takeaways()
