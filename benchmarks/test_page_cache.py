"""What does the page cache do to the epochs after the first (E2)?"""

from typing import Callable, List

from harness.core.profiles import Profile
from harness.judge.claims import Verdict


def test_page_cache(profile: Callable[[], Profile]) -> None:
    """Train from a cold cache, which is kept between epochs or dropped."""
    assert profile().aggregates["minibatch_time_ms"] > 0


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """004 sec. 5.1.1 and 5.1.2, 003 sec. III.D."""
    assert takeaways()
