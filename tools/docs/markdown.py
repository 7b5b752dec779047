"""Markdown from plain texts: escaped words, tables, lists of terms."""

from __future__ import annotations

import re
from typing import Iterable, Sequence

_KEPT = re.compile(r"(`[^`]+`|\bdocs/[\w-]+\.md\b|(?<![\w-])--[a-z][\w-]*)")
# A name with a dot, an underscore or a digit within, or the first of several values with a hyphen: `orin-agx, ...`.
_BEGINS_WITH_CODE = re.compile(r"[\w\\-]*([._]\w|\d)|[\w-]+-\w+,")
_SPECIAL = re.compile(r"([\\*_<>\[\]{}$~|])")


class UndocumentedError(Exception):
    """Something that users see and that has no documentation: an option, a fixture, a key, a public name."""


def escape(text: str) -> str:
    """A text that reads the same as Markdown; words in backticks and options are code, `docs/NAME.md` is a link."""
    parts = _KEPT.split(" ".join(text.split()))
    for place, part in enumerate(parts):
        if place % 2 == 0:
            parts[place] = _SPECIAL.sub(r"\\\1", part)
        elif part.startswith("--"):
            parts[place] = code(part)
        elif not part.startswith("`"):
            parts[place] = f"[{part}]({part[len('docs/') :]})"
    return "".join(parts)


def sentence(text: str) -> str:
    """A text that begins with a capital, unless its first word is code, and ends in a full stop."""
    text = " ".join(text.split())
    first = text if _BEGINS_WITH_CODE.match(text) else f"{text[:1].upper()}{text[1:]}"
    return f"{first}{'' if text.endswith(('.', '!', '?')) else '.'}"


def code(text: str) -> str:
    """A text as code; empty stays empty."""
    return f"`{text}`" if text else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(' '.join(cell.split()) for cell in line)} |\n" for line in lines)


def terms(rows: Iterable[Sequence[str]]) -> str:
    """A definition list: terms and meanings that are Markdown already."""
    return "".join(f"{term}\n: {meaning}\n\n" for term, meaning in rows)


def block(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"
