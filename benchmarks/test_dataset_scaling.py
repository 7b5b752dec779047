"""Does an epoch grow with the data set, or faster: what of it stays in the page cache, what is read when (E6)?"""

import pytest


@pytest.mark.parametrize("workload", ["mobilenetv3-gld23k"])
@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("storage", ["ssd", "hdd"])
@pytest.mark.parametrize("cache", ["cold"])
def test_dataset_scaling(profile, baseline):
    """Train with each size of the data set; the campaigns have several."""
    baseline.check(profile())


def test_takeaways(takeaways):
    """003 sec. III.E and F."""
    assert takeaways()
