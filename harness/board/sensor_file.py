"""Reads the small text files in which the kernel shows one value or one table."""

from __future__ import annotations

import os


def read_text(path: str) -> str:
    """The file's text, without the white space around it.

    What is no UTF-8 is replaced: the kernel cuts a process's name after 15 bytes, in the middle of a letter too.

    Raises:
        OSError: it is not there or may not be read; the message names it.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def read_paths(path: str) -> str:
    """The text of a file that names paths, as `read_text`, but with every byte of them kept as `os.fsdecode` does.

    Raises:
        OSError: it is not there or may not be read; the message names it.
    """
    with open(path, "rb") as file:
        return os.fsdecode(file.read()).strip()


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
