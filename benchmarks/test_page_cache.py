"""What does the page cache do to the epochs after the first (E2)?"""

import pytest


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("storage", ["hdd"])
@pytest.mark.parametrize("cache", ["cold"])
def test_page_cache(profile, baseline):
    """Train from a cold cache; the campaigns run epochs, and drop it between them too."""
    baseline.check(profile())


def test_takeaways(takeaways):
    """004 sec. 5.1.1 and 5.1.2, 003 sec. III.D."""
    assert takeaways()
