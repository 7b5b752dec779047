"""How many DataLoader workers hide the fetch stall, and what do they cost (E1, E4)?"""

import pytest


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("workers", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("storage", ["hdd"])
@pytest.mark.parametrize("cache", ["cold"])
def test_workers(profile, baseline):
    baseline.check(profile())


def test_takeaways(takeaways):
    """004 sec. 5.1, 003 sec. III.A to C, 002 sec. II.2."""
    assert takeaways()
