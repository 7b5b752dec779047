"""Reads the small text files in which the kernel shows one value or one table."""

from __future__ import annotations


def read_text(path: str) -> str:
    """The file's text, without the white space around it.

    Raises:
        OSError: it is not there or may not be read; the message names it.
    """
    with open(path) as file:
        return file.read().strip()


def read_int(path: str) -> int:
    """The whole number that the file holds.

    Raises:
        OSError: it is not there or may not be read.
        ValueError: it holds something else; the message names the file and its text.
    """
    text = read_text(path)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path} holds {text!r}, not a whole number") from None
