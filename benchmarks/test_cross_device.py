"""How do devices compare on the same workload (E14)?"""

import pytest


@pytest.mark.parametrize(
    "workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10", "resnet18-imagenet", "bert-squad"]
)
def test_cross_device(profile, baseline):
    """Train with the papers' defaults on each device."""
    measured = profile()
    assert measured.minibatch_time_ms <= baseline(measured, missing="pass")


def test_takeaways(takeaways):
    """004 sec. 5.1.5 and 5.1.7."""
    assert takeaways()
