"""Real English that needs no download: the prose of the language reference that ships with Python."""

from __future__ import annotations

import platform
import re
from typing import List, NamedTuple

import numpy as np

from harness.core.errors import DataSetError
from harness.workloads.optional_packages import require

_MIN_WORDS = 8  # shorter paragraphs are headings and labels
_CODE = re.compile(r">>>|::=|->|==|\w = |[*=~-]{4}")
_TOKEN = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")


class Section(NamedTuple):
    """A heading and its paragraphs, each one line."""

    title: str
    paragraphs: List[str]


def read_sections() -> List[Section]:
    """The topics of `pydoc_data.topics` that hold prose; code, grammar and tables are left out.

    Raises:
        DependencyError: this Python was installed without `pydoc_data`.
        DataSetError: there is no prose in it.
    """
    topics = require("pydoc_data.topics").topics
    sections = [Section(title, _find_paragraphs(text)) for title, text in sorted(topics.items())]
    sections = [section for section in sections if section.paragraphs]
    if not sections:
        raise DataSetError("pydoc_data.topics of this Python holds no text", "give the real text under --data-root")
    return sections


def _find_paragraphs(text: str) -> List[str]:
    lines = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    lines = (line[2:] if line.startswith("* ") else line for line in lines)
    return [line for line in lines if _is_prose(line)]


def _is_prose(line: str) -> bool:
    sentence = line[:1].isupper() and line.endswith((".", ":")) and not _CODE.search(line)
    return sentence and len(line.split()) >= _MIN_WORDS


def shuffled(sections: List[Section], seed: int, turn: int) -> List[Section]:
    """The sections in an order that depends on the seed and on how often they were used before."""
    order = np.random.default_rng([seed, turn]).permutation(len(sections))
    return [sections[index] for index in order]


def split_words(text: str) -> List[str]:
    """Words and punctuation marks, one by one."""
    return _TOKEN.findall(text)


def describe_source() -> str:
    """What the text is: it differs from one Python version to the next."""
    return f"pydoc_data.topics of Python {platform.python_version()}"
