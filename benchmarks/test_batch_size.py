"""What does the minibatch size do to compute and stall (E5)?"""

from typing import Callable, List

from harness.core.profiles import Profile
from harness.judge.claims import Verdict


def test_batch_size(profile: Callable[[], Profile]) -> None:
    """Train with each minibatch size."""
    assert profile().aggregates["minibatch_time_ms"] > 0


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """004 sec. 5.3."""
    assert takeaways()
