"""SQuAD v2: questions on paragraphs in JSON, and WordPiece-like tokens of a paragraph and a question."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

from harness.core.device import Report
from harness.core.errors import DataSetError
from harness.core.files import read_json
from harness.workloads.data.data_set import first_of, known_data_set
from harness.workloads.data.wikitext import describe_source, read_sections

_FILES = ("train-v2.0.json", "train.json")
_QUESTIONS_PER_PARAGRAPH = 7  # SQuAD v2: 130,319 questions on 19,035 paragraphs
_IMPOSSIBLE = 1 / 3  # SQuAD v2: 43,498 of 130,319 questions have no answer
_MAX_ANSWER_WORDS = 5


class Question(NamedTuple):
    question: str  # its text
    context: str  # the paragraph
    answer: str  # the answer as it is written in the paragraph; empty if there is none
    answer_start: int  # where the answer begins, in characters; 0 if there is none


class SquadSamples:
    """The questions of a SQuAD file, the first answer of each. The file is read as a whole when it is opened."""

    in_memory = True

    def __init__(self, directory: Path) -> None:
        path = self._path = first_of(directory, _FILES)
        try:
            content = read_json(path)
            self._questions = [
                _to_question(paragraph["context"], item)
                for article in content["data"]
                for paragraph in article["paragraphs"]
                for item in paragraph["qas"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise DataSetError(f"{path} is damaged or no SQuAD file: {error!r}", "fetch it again") from error

    def __len__(self) -> int:
        return len(self._questions)

    def __getitem__(self, index: int) -> Question:
        return self._questions[index]

    def files(self, indices: Sequence[int]) -> List[Path]:
        return [self._path]


def _to_question(context: str, item: Dict[str, Any]) -> Question:
    if item.get("is_impossible", False):
        return Question(str(item["question"]), context, "", 0)
    text, start = str(item["answers"][0]["text"]), int(item["answers"][0]["answer_start"])
    if context[start : start + len(text)] != text:
        raise ValueError(f"answer {text!r} of question {item.get('id')} is not at character {start}")
    return Question(str(item["question"]), context, text, start)


def write(directory: Path, samples: int, seed: int, report: Report) -> str:
    """Write questions about paragraphs of Python's language reference: which words follow some others."""
    paragraphs = [(title, text) for title, texts in read_sections().items() for text in texts]
    articles = []
    for start in range(0, samples, _QUESTIONS_PER_PARAGRAPH):
        title, context = paragraphs[np.random.default_rng([seed, start]).integers(len(paragraphs))]
        indices = range(start, min(start + _QUESTIONS_PER_PARAGRAPH, samples))
        questions = [_ask(seed, index, title, context) for index in indices]
        articles.append({"title": title, "paragraphs": [{"context": context, "qas": questions}]})
    content = {"version": "v2.0", "data": articles}
    (directory / _FILES[0]).write_text(json.dumps(content), encoding="utf-8")
    report(f"wrote squad: {samples} questions")
    return f"written from {describe_source()}"


def _ask(seed: int, index: int, title: str, context: str) -> Dict[str, Any]:
    random = np.random.default_rng([seed, index, 1])
    words = context.split(" ")
    position = int(random.integers(2, len(words)))
    length = int(random.integers(1, _MAX_ANSWER_WORDS, endpoint=True))
    item: Dict[str, Any] = {"id": f"{index:024x}", "is_impossible": bool(random.random() < _IMPOSSIBLE), "answers": []}
    if item["is_impossible"]:
        item["question"] = f"What does the text on {title} say about number {index}?"
    else:
        item["question"] = f"Which words follow {words[position - 2]} {words[position - 1]} in the text on {title}?"
        start = len(" ".join(words[:position])) + 1
        item["answers"] = [{"text": " ".join(words[position : position + length]), "answer_start": start}]
    return item


SQUAD = known_data_set("squad", write, SquadSamples, _FILES)


# The tokeniser gives texts about the length and the spread of numbers that BERT's own WordPiece gives them, which is
# all that time and power depend on. Two pieces may share a number; a model trained with it is no BERT for other texts.

VOCABULARY = 30_522  # BERT-base uncased
PAD, CLS, SEP = 0, 101, 102
_FIRST_PIECE = 999  # BERT's numbers below are padding, marks and unused ones
_WORD = re.compile(r"\w+|[^\w\s]")
_WHOLE, _PIECE = 10, 6  # characters: WordPiece keeps most words up to about 10 letters whole


class Token(NamedTuple):
    number: int
    start: int
    end: int


def tokenise(text: str) -> List[Token]:
    """Words and marks; words longer than 10 characters in pieces of up to 6."""
    tokens = []
    for match in _WORD.finditer(text):
        step = _PIECE if len(match.group()) > _WHOLE else _WHOLE
        for start in range(match.start(), match.end(), step):
            end = min(start + step, match.end())
            piece = ("##" if start > match.start() else "") + text[start:end].lower()
            number = _FIRST_PIECE + zlib.crc32(piece.encode("utf-8")) % (VOCABULARY - _FIRST_PIECE)
            tokens.append(Token(number, start, end))
    return tokens


def encode(question: str, context: str, answer: str, answer_start: int, length: int) -> Dict[str, Any]:
    """What BERT takes: exactly `length` tokens, up to half of a question, and a window of its paragraph."""
    asked = tokenise(question)[: length // 2 - 2]
    read = tokenise(context)
    room = length - len(asked) - 3
    span = range(answer_start, answer_start + len(answer))
    touched = [number for number, one in enumerate(read) if one.start < span.stop and one.end > span.start]
    first, last = (touched[0], touched[-1]) if touched else (0, 0)
    offset = max(0, min((first + last - room) // 2, len(read) - room))
    offset = min(max(offset, last - room + 1), first)  # an answer longer than the window keeps its beginning
    window = read[offset : offset + room]
    padding = length - len(asked) - len(window) - 3
    shift = len(asked) + 2 - offset
    numbers = [CLS, *(token.number for token in asked), SEP, *(token.number for token in window), SEP]
    return {
        "input_ids": numbers + [PAD] * padding,
        "token_type_ids": [0] * (len(asked) + 2) + [1] * (len(window) + 1) + [0] * padding,
        "attention_mask": [1] * (length - padding) + [0] * padding,
        "start_positions": first + shift if touched else 0,  # 0 is [CLS]: there is no answer
        "end_positions": min(last, offset + room - 1) + shift if touched else 0,  # inclusive
    }
