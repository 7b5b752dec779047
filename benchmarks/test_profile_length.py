"""How many minibatches does a profile need: what would a shorter one have said (E18; 001 sec. 2.5)?"""

from typing import Callable, List

from harness.core.metrics import POWER_CHANNEL
from harness.core.profiles import Profile, Series
from harness.core.terminal import Progress
from harness.judge.claims import Verdict
from harness.stats.experiments import LENGTHS, length_errors


def test_profile_length(profile: Callable[[], Profile], progress: Progress) -> None:
    """Train for longer than a profile takes, and hold every stretch of 10 to 40 minibatches against the whole."""
    measured = profile()
    power = measured.telemetry.series.get(POWER_CHANNEL, Series((), ()))
    errors = length_errors(measured.counted, power)
    parts = [f"{one.minibatches}: {one.time_error:.2%} ({one.without_power:.0%})" for one in errors]
    progress.line(f"    error of the time of so many minibatches (without a power sample): {', '.join(parts)}")
    assert [one.minibatches for one in errors] == list(LENGTHS)


def test_takeaways(takeaways: Callable[[], List[Verdict]]) -> None:
    """001 sec. 2.5."""
    assert takeaways()
