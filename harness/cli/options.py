"""Options and outputs that commands share."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Callable, List, Optional

from harness.core.configuration import DEFAULT_RESULTS
from harness.core.errors import InvalidValueError
from harness.core.files import write_output
from harness.core.units import percent_to_share, share_to_percent
from harness.store.conditions import DISQUALIFYING


def add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_RESULTS, metavar="FILE", help="the results file (default: %(default)s)"
    )


def add_include_flagged(parser: argparse.ArgumentParser) -> None:
    flags = " or ".join(DISQUALIFYING)
    parser.add_argument("--include-flagged", action="store_true", help=f"keep profiles that were flagged {flags}")


def add_by(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        type=lambda text: tuple(name.strip() for name in text.split(",") if name.strip()),
        default=(),
        metavar="NAMES",
        help="conditions that may differ because they are the question: l4t,jetpack,torch (default: none)",
    )


def add_threshold(parser: argparse._ActionsContainer, default: Optional[float], text: str) -> None:
    """`--threshold`, in percent, a share in the arguments; `text` says what it bounds, and a default of None."""

    def percent(given: str) -> float:
        return percent_to_share(float(given))

    explained = text if default is None else f"{text} (default: {share_to_percent(default):g})"
    parser.add_argument("--threshold", type=percent, default=default, metavar="PERCENT", help=explained)


def add_forms(parser: argparse.ArgumentParser) -> None:
    """`--write-json`, and one of `--json` and `--markdown`; `say` is what prints and writes so."""
    parser.add_argument("--write-json", type=output_file, metavar="FILE", help="write what --json prints, too")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print JSON")
    forms.add_argument("--markdown", action="store_true", help="print Markdown, for a job summary")


def say(arguments: argparse.Namespace, as_json: str, in_words: Callable[[bool], str]) -> None:
    """Print and write what was found, in the forms that `add_forms` offers; `in_words` is told whether by Markdown."""
    if arguments.write_json is not None:
        write_output(arguments.write_json, f"{as_json}\n".encode())
    print(as_json if arguments.json else in_words(arguments.markdown))


def output_file(text: str) -> Path:
    """An option's `type`: a file to write, refused before any work where it cannot be written."""
    path = Path(text)
    if path.is_dir():
        raise InvalidValueError(f"cannot write {path}: it is a folder", "name a file")
    _refuse_unwritable(path, path.parent)
    return path


def output_folder(text: str) -> Path:
    """The same of a folder, which need not be there yet."""
    _refuse_unwritable(Path(text), Path(text))
    return Path(text)


def _refuse_unwritable(path: Path, folder: Path) -> None:
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(str(there), os.W_OK):
        raise InvalidValueError(f"cannot write {path}: {there} is no folder that you may write in", "name another")


def whole_numbers(option: str, text: str, example: str) -> List[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InvalidValueError(f"{option} is {text!r}", f"write whole numbers with commas: {example}")
    return list(dict.fromkeys(map(int, words)))


def print_or_write(text: str, path: Optional[Path]) -> None:
    if path:
        write_output(path, text.encode())
        print(f"wrote {path}")
    else:
        print(text, end="")


def write_json(path: Path, content: Any) -> None:
    """Write plain values to a file that the user named, and say so; ValueError where one is NaN, which JSON lacks."""
    print_or_write(json.dumps(content, indent=1, allow_nan=False) + "\n", path)
