"""The loop around timed minibatches: a plain one, or that of pytest-benchmark."""

from __future__ import annotations

from typing import Callable

Step = Callable[[], float]
"""Runs one minibatch; returns its end-to-end time in seconds."""

Rounds = Callable[[Callable[[], None], Step, int, Callable[[], bool]], None]
"""Takes an untimed preparation of each minibatch, the step, their number, and whether to continue after these.

It may stop before that number, and then continues as long as the last function returns True.
"""


def never() -> bool:
    """The continuation of a loop that ends with its count."""
    return False


def run_rounds(prepare: Callable[[], None], step: Step, count: int, goes_on: Callable[[], bool] = never) -> None:
    for _ in range(count):
        prepare()
        step()
    while goes_on():
        prepare()
        step()


def nothing() -> None:
    """The preparation of a step that needs none."""
