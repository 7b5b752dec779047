"""How do devices compare on the same workload (E14)?"""

from typing import Callable, List

from harness.core.profiles import Profile
from harness.judge.claims import Verdict


def test_cross_device(profile: Callable[[], Profile]) -> None:
    """Train with the papers' defaults on each device."""
    assert profile().aggregates["minibatch_time_ms"] > 0


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """004 sec. 5.1.5 and 5.1.7."""
    assert takeaways()
