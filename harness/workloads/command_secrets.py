"""Secrets among the words of a command: masked wherever they are shown or recorded.

A secret has a name, such as `token`, `api_key` or `Authorization`, as a whole part of an option, a variable or a key:
`--max-tokens` and `--tokenizer` have none. Its value follows `=`, `:` or a blank, or is the next word.
"""

from __future__ import annotations

import functools
import hashlib
import re
from typing import List, Sequence, Tuple

HIDDEN = "..."

_NAME = re.compile(r"[A-Za-z][\w.-]*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # hfToken and HF_TOKEN have two
_SECRET_PART = re.compile(
    r"(?:access|api|auth|hf|refresh)?token|pass(?:code|phrase|w(?:or)?d)?|pwd|secrets?|creds?|credentials?"
    r"|auth|authorization|bearer|cookie|(?:access|api|private|secret)key"
)
_KEY_OF_A_SECRET = re.compile(r"(?:access|api|private|signing) key")
_VALUE_COMES = re.compile(r"[\"'\])\\]*(?:\s*[=:]\s*|\s+)")
_VALUE = re.compile(r"(?:\"[^\"]*(?:\"|\Z)|'[^']*(?:'|\Z)|[^\s&\"'])+")
_REST_OF_LINE = re.compile(r"[^\r\n]+")  # of a header, whose value may have blanks
_HEADER = re.compile(r"(?i)(?:.*-)?(?:authorization|cookie)")
_URL_LOGIN = re.compile(r"(?<=://)[^/\s]+(?=@)")
_ONLY_A_NAME = re.compile(r"-{0,2}([A-Za-z][\w.-]*)([:=]?)")

_ROUNDS = 100_000
_DIGEST_BYTES = 2


def without_secrets(words: Sequence[str]) -> List[str]:
    """Words of a command with `...` for the values of secrets, and for logins in addresses.

    The word after an option with a secret's name is masked, whatever it is.
    """
    shown: List[str] = []
    hides_next = False
    for word in words:
        shown.append(HIDDEN if hides_next else _URL_LOGIN.sub(HIDDEN, _masked(word)))
        hides_next = _names_the_next(word, hides_next)
    return shown


def secrets_digest(words: Sequence[str]) -> str:
    """Four digits that tell words apart whose masked values differ; empty for words without a secret.

    A masked value may be none: `--pad-token a` and `--pad-token b` are two commands. The digest is slow to compute and
    so short that it gives away 16 bits of a secret at most, which no guess can be confirmed by. It is without salt,
    so that it is the same on every machine; one pair of values in 65,536 has the same.
    """
    return _digest(tuple(words)) if without_secrets(words) != list(words) else ""


@functools.lru_cache(maxsize=16)
def _digest(words: Tuple[str, ...]) -> str:
    text = "\0".join(words).encode("utf-8", "surrogateescape")
    return hashlib.pbkdf2_hmac("sha256", text, b"jetwatt command", _ROUNDS, _DIGEST_BYTES).hex()


def _is_secret(name: str) -> bool:
    parts = [part.lower() for part in _PART.findall(name)]
    if any(_SECRET_PART.fullmatch(part) for part in parts):
        return True
    return any(_KEY_OF_A_SECRET.fullmatch(" ".join(pair)) for pair in zip(parts, parts[1:]))


def _masked(word: str) -> str:
    """A word with `...` for each value that follows a secret's name in it."""
    shown, place = "", 0
    while True:
        name = _NAME.search(word, place)
        if name is None:
            return shown + word[place:]
        end = name.end()
        shown += word[place:end]
        comes = _VALUE_COMES.match(word, end) if _is_secret(name[0]) else None
        if comes is not None:
            value = (_REST_OF_LINE if _HEADER.fullmatch(name[0]) else _VALUE).match(word, comes.end())
            if value is not None:
                shown += comes[0] + HIDDEN
                end = value.end()
        place = end


def _names_the_next(word: str, is_hidden: bool) -> bool:
    """Whether the word after this one is the value of a secret."""
    name = _ONLY_A_NAME.fullmatch(word)
    if name is None or not _is_secret(name[1]):
        return False
    return is_hidden or word.startswith("-") or bool(name[2])
