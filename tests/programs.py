"""Executables that tests write, in Python."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def python_program(source: str, *options: str, interpreter: str = sys.executable) -> str:
    """The text of a program in Python, wherever its interpreter is; `options` are the interpreter's.

    The kernel splits a first line `#!INTERPRETER` at blanks and cuts it after 127 characters, so a shell starts the
    interpreter. The line that does is a string to Python, as in the scripts that pip writes; it comes before the
    source, which therefore cannot import from `__future__`. Up to Python 3.11, the interpreter of an environment whose
    path is not ASCII does not start under LC_ALL=C.
    """
    command = " ".join(map(shlex.quote, [interpreter, *options]))
    return f"#!/bin/sh\n''':'\nLC_ALL=C.UTF-8 exec {command} \"$0\" \"$@\"\n'''\n{source}"


def write_python_program(path: Path, source: str, *options: str, interpreter: str = sys.executable) -> None:
    """Write such a program and make it executable, for all users."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(python_program(source, *options, interpreter=interpreter), encoding="utf-8")
    path.chmod(0o755)
