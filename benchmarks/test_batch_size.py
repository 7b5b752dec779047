"""What does the minibatch size do to compute and stall (E5)?"""

import pytest


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("batch_size", [1, 2, 4, 8, 16, 32, 64, 128])
def test_batch_size(profile, baseline):
    baseline.check(profile())


def test_takeaways(takeaways):
    """004 sec. 5.3."""
    assert takeaways()
