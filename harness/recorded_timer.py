"""Hands recorded times to pytest-benchmark, so that its tables and JSON carry the suite's own figures.

pytest-benchmark times a function by calling its timer before and after. Minibatches are timed inside the training loop
(on simulated devices by a virtual clock), so the timer given to it plays back what was recorded.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Sequence

_readings: Deque[float] = deque()

MAX_ROUNDS = 250
"""pytest-benchmark's JSON holds every round, and a file of 100 cases has to stay small: of more durations, as many are
taken at even distances."""


def recorded_time() -> float:
    """The next reading of the play-back; a marker `benchmark(timer=recorded_time)` makes pytest-benchmark use it."""
    return _readings.popleft()


def play_back(benchmark: object, durations_s: Sequence[float]) -> None:
    """Make a pytest-benchmark fixture record these durations, one round each, at most `MAX_ROUNDS` of them.

    Args:
        benchmark: the `benchmark` fixture of a test that carries the marker named above.
        durations_s: one duration for each round, in seconds; at least one.
    """
    count = min(len(durations_s), MAX_ROUNDS)
    _readings.clear()
    for place in range(count):
        _readings.extend((0.0, durations_s[place * len(durations_s) // count]))
    benchmark.pedantic(_nothing, rounds=count)
    _readings.clear()


def _nothing() -> None:
    pass
