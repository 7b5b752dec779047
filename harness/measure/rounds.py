"""Who runs the minibatches that are timed: a plain loop, or pytest-benchmark."""

from __future__ import annotations

from typing import Callable

Rounds = Callable[[Callable[[], None], Callable[[], None], int], None]
"""Takes what comes before each minibatch, untimed, what runs one, and how many. It may stop early."""


def run_rounds(prepare: Callable[[], None], step: Callable[[], None], count: int) -> None:
    for _ in range(count):
        prepare()
        step()


def nothing() -> None:
    """What comes before where there is nothing to prepare."""
