"""Who runs the minibatches that are timed: a plain loop, or pytest-benchmark."""

from __future__ import annotations

from typing import Callable

Step = Callable[[], float]
"""Runs one minibatch; returns how long it took end to end, in seconds."""

Rounds = Callable[[Callable[[], None], Step, int, Callable[[], bool]], None]
"""Takes what comes before each minibatch, untimed; what runs one; how many to run; and whether to go on after these.

It may stop before the count, and then goes on for as long as the last one says.
"""


def never() -> bool:
    """Whether to go on where the count is all."""
    return False


def run_rounds(prepare: Callable[[], None], step: Step, count: int, goes_on: Callable[[], bool] = never) -> None:
    for _ in range(count):
        prepare()
        step()
    while goes_on():
        prepare()
        step()


def nothing() -> None:
    """What comes before where there is nothing to prepare."""
