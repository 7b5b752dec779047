"""Does a faster medium train faster: at worst, without workers, and as usual (E3)?"""

import pytest


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("storage", ["ssd", "sd", "hdd"])
@pytest.mark.parametrize("cache", ["cold"])
def test_storage_media(profile, baseline):
    baseline.check(profile())


def test_takeaways(takeaways):
    """004 sec. 5.2, 003 sec. III.C."""
    assert takeaways()
