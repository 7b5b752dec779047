"""How long does an inference batch take, and what does it draw, by batch size (E22)?"""

from typing import Callable

from harness.core.cases import INFERENCE
from harness.core.profiles import Profile


def test_inference(profile: Callable[[], Profile]) -> None:
    """Answer batches of each size; nothing is trained."""
    measured = profile()
    assert measured.case.task == INFERENCE
    assert measured.aggregates["minibatch_time_ms"] > 0
