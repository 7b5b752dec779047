"""What do free clocks change in time and energy (E9)?"""

from typing import Callable, List

from harness.core.profiles import Profile
from harness.judge.claims import Verdict


def test_dvfs(profile: Callable[[], Profile]) -> None:
    """Train with static clocks, and with DVFS."""
    assert profile().aggregates["minibatch_time_ms"] > 0


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """004 sec. 5.5, 002 sec. II.1."""
    assert takeaways()
