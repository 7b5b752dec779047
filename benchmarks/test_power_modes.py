"""What do cores and clocks do to time, power and energy, and which modes are on the front (E11 to E13)?"""

from typing import Callable, List

from harness.core.profiles import Profile
from harness.judge.claims import Verdict


def test_power_modes(profile: Callable[[], Profile]) -> None:
    """Train in each power mode."""
    assert profile().aggregates["minibatch_time_ms"] > 0


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """004 sec. 5.6 and appendix, 001 sec. 1.1."""
    assert takeaways()
