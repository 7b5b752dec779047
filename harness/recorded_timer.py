"""Hands recorded times to pytest-benchmark, so that its tables and JSON carry the suite's own figures.

pytest-benchmark times a function by calling its timer before and after. Minibatches are timed inside the training loop
(on simulated devices by a virtual clock), so the timer given to it plays back what was recorded.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Sequence

_readings: Deque[float] = deque()


def recorded_time() -> float:
    """The next reading of the play-back; a marker `benchmark(timer=recorded_time)` makes pytest-benchmark use it."""
    return _readings.popleft()


def play_back(benchmark: object, durations_s: Sequence[float]) -> None:
    """Make a pytest-benchmark fixture record these durations, one round each.

    Args:
        benchmark: the `benchmark` fixture of a test that carries the marker named above.
        durations_s: one duration for each round, in seconds; at least one.
    """
    _readings.clear()
    for duration in durations_s:
        _readings.extend((0.0, duration))
    benchmark.pedantic(_nothing, rounds=len(durations_s))
    _readings.clear()


def _nothing() -> None:
    pass
