"""How many DataLoader workers hide the fetch stall, and what do they cost (E1, E4)?"""

from typing import Callable, List

from harness.core.profiles import Profile
from harness.judge.claims import Verdict


def test_workers(profile: Callable[[], Profile]) -> None:
    """Train with each number of workers, on each medium."""
    assert profile().aggregates["minibatch_time_ms"] > 0


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """004 sec. 5.1, 003 sec. III.A to C, 002 sec. II.2."""
    assert takeaways()
