"""WikiText: word tokens of a text file; if it is not held, the English that ships with Python."""

from __future__ import annotations

import collections
import functools
import itertools
import platform
import re
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

import numpy as np

from harness.core.device import Report
from harness.core.errors import DataSetError
from harness.workloads.data.data_set import known_data_set
from harness.workloads.optional_packages import require

VOCABULARY = 33_278  # distinct tokens of WikiText-2's training text, `<unk>` and `<eos>` among them

TOKENS_PER_SAMPLE = 58
"""WikiText-2's 2,088,628 training tokens in windows of 58 are the papers' 36 k samples (PowerTrain table 3, F308)."""

_FILE = "wiki.train.tokens"
_END_OF_LINE, _UNKNOWN = "<eos>", "<unk>"


class WikiTextSamples:
    """Windows of token numbers by falling frequency (int64), each from the last token of the one before on."""

    in_memory = True

    def __init__(self, directory: Path, steps: int = TOKENS_PER_SAMPLE) -> None:
        self._steps = steps
        self._path = directory / _FILE
        try:
            with open(self._path, encoding="utf-8", newline="\n") as file:
                lines = list(file)
        except (UnicodeDecodeError, FileNotFoundError) as error:
            raise DataSetError(f"{self._path} is no text: {error}", "fetch or write the data set again") from error
        tokens = [token for line in lines for token in [*line.split(), _END_OF_LINE]]
        if len(tokens) <= steps:
            raise DataSetError(f"{self._path} has {len(tokens)} tokens, too few for one sample of {steps}")
        numbers = _number(tokens)
        unknown = numbers.get(_UNKNOWN, len(numbers) - 1)
        self._tokens = np.array([numbers.get(token, unknown) for token in tokens], dtype=np.int32)

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._steps

    def __getitem__(self, index: int) -> np.ndarray:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self._steps
        return self._tokens[start : start + self._steps + 1].astype(np.int64)

    def files(self, indices: Sequence[int]) -> List[Path]:
        return [self._path]


def _number(tokens: List[str]) -> Dict[str, int]:
    """Numbers for the most frequent tokens, `<unk>` for the rest where there are more than the vocabulary holds."""
    counts = collections.Counter(tokens)
    by_frequency = sorted(counts, key=lambda token: (-counts[token], token))
    if len(by_frequency) > VOCABULARY:
        frequent = [token for token in by_frequency if token != _UNKNOWN][: VOCABULARY - 1]
        by_frequency = [*frequent, _UNKNOWN]
    return {token: number for number, token in enumerate(by_frequency)}


def write(directory: Path, samples: int, seed: int, report: Report, steps: int = TOKENS_PER_SAMPLE) -> str:
    """Write Python's language reference as WikiText; past its end, its sections again in another order."""
    sections = list(read_sections().items())
    wanted = samples * steps + 1  # the line end that closes the file comes on top
    turns = 0

    def all_lines() -> Iterator[List[str]]:
        nonlocal turns
        for turn in itertools.count():
            turns = turn + 1
            for number in np.random.default_rng([seed, turn]).permutation(len(sections)):
                title, paragraphs = sections[number]
                yield from ([], ["=", *_TOKEN.findall(title), "="], [])
                yield from map(_TOKEN.findall, paragraphs)

    with open(directory / _FILE, "w", encoding="utf-8") as file:
        for words in all_lines():
            words = words[:wanted]
            file.write(f" {' '.join(words)} \n" if words else " \n")
            wanted -= len(words) + 1
            if wanted <= 0:
                break
    report(f"wrote wikitext: {samples} samples")
    return f"packaged: {describe_source()}" + (", repeated in another order" if turns > 1 else "")


WIKITEXT = known_data_set("wikitext", write, WikiTextSamples, (_FILE,))

LONG_STEPS = 512  # as language models are tuned on
WIKITEXT_LONG = known_data_set(
    "wikitext-512",
    functools.partial(write, steps=LONG_STEPS),
    functools.partial(WikiTextSamples, steps=LONG_STEPS),
    (_FILE,),
)


_MIN_WORDS = 8  # shorter paragraphs are headings and labels
_CODE = re.compile(r">>>|::=|->|==|\w = |[*=~-]{4}")
_TOKEN = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")


def read_sections() -> Dict[str, List[str]]:
    """Title to paragraphs, of the topics of `pydoc_data.topics` that hold prose; code and tables are left out."""
    topics = require("pydoc_data.topics").topics
    sections = {}
    for title, text in sorted(topics.items()):
        blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
        lines = (block[2:] if block.startswith("* ") else block for block in blocks)
        paragraphs = [line for line in lines if _is_prose(line)]
        if paragraphs:
            sections[title] = paragraphs
    if not sections:
        raise DataSetError("pydoc_data.topics of this Python holds no text", "give the real text under --data-root")
    return sections


def _is_prose(line: str) -> bool:
    sentence = line[:1].isupper() and line.endswith((".", ":")) and not _CODE.search(line)
    return sentence and len(line.split()) >= _MIN_WORDS


def describe_source() -> str:
    """What the text is: it differs from one Python version to the next."""
    return f"pydoc_data.topics of Python {platform.python_version()}"
