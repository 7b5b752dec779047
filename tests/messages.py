"""What tests want of a message: the facts in it, such as names, numbers and the way out, but not its wording."""

from __future__ import annotations

import re
from typing import Sequence


def says(text: str, *facts: object) -> bool:
    """Whether a line of a text has the facts, in this order; `2 cases` is no fact of `12 cases`."""
    return any(_has(line, [str(fact) for fact in facts]) for line in text.splitlines())


def _has(line: str, facts: Sequence[str]) -> bool:
    for fact in facts:
        before, after = r"(?<!\d)" if fact[0].isdigit() else "", r"(?!\d)" if fact[-1].isdigit() else ""
        found = re.search(before + re.escape(fact) + after, line)
        if found is None:
            return False
        line = line[found.end() :]
    return True
