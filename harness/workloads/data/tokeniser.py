"""A tokeniser that needs no vocabulary file: pieces of words, numbered by a hash into the range of BERT's vocabulary.

It gives texts about the length and the spread of numbers that BERT's own WordPiece gives them, which is all that time
and power depend on. Two pieces may share a number; a model trained with it is no BERT for other texts.
"""

from __future__ import annotations

import re
import zlib
from typing import List, NamedTuple, Optional, Tuple

VOCABULARY = 30_522  # BERT-base uncased
PAD, CLS, SEP = 0, 101, 102
_FIRST_PIECE = 999  # BERT's numbers below are padding, marks and unused ones
_WORD = re.compile(r"\w+|[^\w\s]")
_WHOLE, _PIECE = 10, 6  # characters: WordPiece keeps most words up to about 10 letters whole


class Token(NamedTuple):
    """A piece of text: its number, and where it begins and ends in characters."""

    number: int
    start: int
    end: int


class Encoding(NamedTuple):
    """A question and a paragraph as BERT takes them; all lists have the same length.

    Attributes:
        input_ids: [CLS] question [SEP] paragraph [SEP] [PAD] ...
        token_type_ids: 0 for the question, 1 for the paragraph.
        attention_mask: 1 for tokens, 0 for padding.
        spans: first and last character + 1 of each of the paragraph's tokens in the paragraph, (0, 0) for all others.
        start_position: token at which the answer begins; 0, which is [CLS], where there is none.
        end_position: token at which it ends, inclusive.
    """

    input_ids: List[int]
    token_type_ids: List[int]
    attention_mask: List[int]
    spans: List[Tuple[int, int]]
    start_position: int
    end_position: int


def tokenise(text: str) -> List[Token]:
    """Words and marks; words longer than 10 characters in pieces of up to 6."""
    tokens = []
    for match in _WORD.finditer(text):
        step = _PIECE if len(match.group()) > _WHOLE else _WHOLE
        for start in range(match.start(), match.end(), step):
            end = min(start + step, match.end())
            mark = "##" if start > match.start() else ""
            tokens.append(Token(_hash(mark + text[start:end].lower()), start, end))
    return tokens


def _hash(piece: str) -> int:
    return _FIRST_PIECE + zlib.crc32(piece.encode("utf-8")) % (VOCABULARY - _FIRST_PIECE)


def encode(question: str, context: str, answer: str, answer_start: int, length: int) -> Encoding:
    """Encode a question and a window of its paragraph in exactly `length` tokens.

    A paragraph that does not fit is cut to a window around the answer; a question may take up to half of the tokens.

    Args:
        question: the question.
        context: the paragraph.
        answer: the answer; empty where there is none.
        answer_start: the answer's first character in the paragraph.
        length: tokens in all.
    """
    asked = tokenise(question)[: length // 2 - 2]
    read = tokenise(context)
    room = length - len(asked) - 3
    span = _find(read, answer_start, answer_start + len(answer))
    first, last = span or (0, 0)
    offset = max(0, min((first + last - room) // 2, len(read) - room))
    offset = min(max(offset, last - room + 1), first)  # an answer longer than the window keeps its beginning
    window = read[offset : offset + room]
    padding = length - len(asked) - len(window) - 3
    shift = len(asked) + 2 - offset
    return Encoding(
        [CLS, *(token.number for token in asked), SEP, *(token.number for token in window), SEP] + [PAD] * padding,
        [0] * (len(asked) + 2) + [1] * (len(window) + 1) + [0] * padding,
        [1] * (length - padding) + [0] * padding,
        [(0, 0)] * (len(asked) + 2) + [(token.start, token.end) for token in window] + [(0, 0)] * (padding + 1),
        first + shift if span else 0,
        min(last, offset + room - 1) + shift if span else 0,
    )


def _find(tokens: List[Token], start: int, end: int) -> Optional[Tuple[int, int]]:
    """First and last token that share a character with the span; None where none does."""
    touched = [number for number, token in enumerate(tokens) if token.start < end and token.end > start]
    return (touched[0], touched[-1]) if touched else None
