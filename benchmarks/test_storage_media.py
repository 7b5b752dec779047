"""Does a faster medium train faster: at worst, without workers, and as usual (E3)?"""

from typing import Callable, List

from harness.core.profiles import Profile
from harness.judge.claims import Verdict


def test_storage_media(profile: Callable[[], Profile]) -> None:
    """Train from each medium."""
    assert profile().aggregates["minibatch_time_ms"] > 0


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """004 sec. 5.2, 003 sec. III.C."""
    assert takeaways()
