"""Does an epoch grow with the data set, or faster: what of it stays in the page cache, what is read when (E6)?"""

from typing import Callable, List

from harness.core.metrics import epoch_sums
from harness.core.profiles import Profile
from harness.judge.claims import Verdict


def test_dataset_scaling(profile: Callable[[], Profile]) -> None:
    """Train with each size of the data set, and see what every epoch finds in the page cache and reads."""
    measured = profile()
    assert measured.aggregates["minibatch_time_ms"] > 0
    assert epoch_sums(measured.minibatches)


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """003 sec. III.E and F."""
    assert takeaways()
