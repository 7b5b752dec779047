"""What tests want of a message: the facts in it, such as names, numbers and the way out, but not its wording."""

from __future__ import annotations

from typing import Sequence


def says(text: str, *facts: object) -> bool:
    """Whether a line of a text has the facts, in this order."""
    return any(_has(line, facts) for line in text.splitlines())


def _has(line: str, facts: Sequence[object]) -> bool:
    for fact in facts:
        _, found, line = line.partition(str(fact))
        if not found:
            return False
    return True
