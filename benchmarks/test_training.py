"""How long does a training minibatch take, and how much power does it draw, in every case of the campaign?"""

from typing import Callable

from harness.core.profiles import Profile


def test_training(profile: Callable[[], Profile]) -> None:
    """Train, and record stall, compute, E2E and telemetry of each minibatch."""
    assert profile().aggregates["minibatch_time_ms"] > 0
