"""Options and outputs that commands share."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from harness.core.configuration import DEFAULT_RESULTS
from harness.core.errors import InvalidValueError
from harness.core.files import refuse_link_of_another, write_output
from harness.core.profiles import DISQUALIFYING
from harness.core.terminal import Progress, format_duration, shown
from harness.core.units import percent_to_share, share_to_percent


def options_of(call: Callable[..., Any], arguments: argparse.Namespace) -> Dict[str, Any]:
    """The arguments of a command that its call takes as options of the same names."""
    parameters = inspect.signature(call).parameters.values()
    names = {each.name for each in parameters if each.kind == each.KEYWORD_ONLY and each.default is not each.empty}
    return {name: value for name, value in vars(arguments).items() if name in names}


def add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_RESULTS, metavar="FILE", help="the results file (default: %(default)s)"
    )


def add_include_flagged(parser: argparse.ArgumentParser) -> None:
    flags = " or ".join(DISQUALIFYING)
    parser.add_argument("--include-flagged", action="store_true", help=f"include profiles flagged {flags}")


def comma_separated(text: str) -> Tuple[str, ...]:
    """The type of an option that takes several names: `a,b`, with blanks or without; of an empty text none."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def add_by(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        type=comma_separated,
        default=(),
        metavar="NAMES",
        help="conditions that may differ, because they are being compared: l4t,jetpack,torch (default: none)",
    )


def add_threshold(parser: argparse._ActionsContainer, default: Optional[float], text: str) -> None:
    """Add `--threshold`, in percent, parsed to a share; `text` describes it, and its default if that is None."""

    def percent(given: str) -> float:
        return percent_to_share(float(given))

    explained = text if default is None else f"{text} (default: {share_to_percent(default):g})"
    parser.add_argument("--threshold", type=percent, default=default, metavar="PERCENT", help=explained)


def add_board_threshold(parser: argparse._ActionsContainer, text: str, default: float) -> None:
    """Add `--threshold` of a command that uses the thresholds of boards; `default` is the share for all others."""
    own = "the board's own, which `doctor --accept` measures"
    add_threshold(parser, None, f"{text} (default: {own}; else {share_to_percent(default):g})")


def add_forms(parser: argparse.ArgumentParser) -> None:
    """Add `--write-json`, and one of `--json` and `--markdown`, for `print_report`."""
    parser.add_argument("--write-json", type=output_file, metavar="FILE", help="also write the output of --json")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print JSON")
    forms.add_argument("--markdown", action="store_true", help="print Markdown, for a job summary")


def print_report(
    arguments: argparse.Namespace, as_plain: Callable[[], Dict[str, Any]], in_words: Callable[[bool], str]
) -> None:
    """Print and write a report in the forms of `add_forms`; `in_words` gives its text, or Markdown if True."""
    document = ""
    if arguments.json or arguments.write_json is not None:
        document = json.dumps(as_plain(), indent=1, allow_nan=False)
    if arguments.write_json is not None:
        write_output(arguments.write_json, f"{document}\n".encode())
    print(document if arguments.json else in_words(arguments.markdown))


def output_file(text: str) -> Path:
    """The `type` of an option for an output file; refused before any work if it cannot be written."""
    path = Path(text)
    if path.is_dir():
        raise InvalidValueError(f"cannot write {path}: it is a folder", "name a file")
    _refuse_unwritable(path, path.parent)
    return path


def output_folder(text: str) -> Path:
    """The `type` of an option for an output folder, which need not exist yet."""
    _refuse_unwritable(Path(text), Path(text))
    return Path(text)


def _refuse_unwritable(path: Path, folder: Path) -> None:
    try:
        refuse_link_of_another(path)
    except PermissionError as error:
        raise InvalidValueError(f"cannot write {path}: {error}", "name another one") from error
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    if not there.is_dir() or not os.access(str(there), os.W_OK):
        raise InvalidValueError(f"cannot write {path}: {there} is not a writable folder", "name another one")


def whole_numbers(option: str, text: str, example: str) -> List[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InvalidValueError(f"{option} is {text!r}", f"write whole numbers above 0, separated by commas: {example}")
    return list(dict.fromkeys(map(int, words)))


def print_or_write(text: str, path: Optional[Path]) -> None:
    if path:
        write_output(path, text.encode())
        print(f"wrote {path}")
    else:
        print(text, end="")


def write_json(path: Path, content: Any) -> None:
    """Write plain values to a file and report it; ValueError for NaN, which JSON lacks."""
    print_or_write(json.dumps(content, indent=1, allow_nan=False) + "\n", path)


def progress_report(after_s: float = 0.0) -> Callable[[int, int, str], None]:
    """A `report` of finished pieces of work, their total and the last; shows count and time left on standard error.

    Nothing is shown in the first `after_s` seconds.
    """
    progress, start_s = Progress(sys.stderr), time.monotonic()

    def report(done: int, total: int, what: str) -> None:
        nonlocal start_s
        spent_s = time.monotonic() - start_s
        left_s = spent_s / done * (total - done)
        if spent_s >= after_s:
            progress.update(f"[{done}/{total}, {format_duration(left_s)} left] {shown(what)}")
        if done == total:
            progress.clear()
            start_s = time.monotonic()  # of the next work, if any

    return report
