"""Output for terminals and logs: tables, and the progress of long work."""

from __future__ import annotations

import difflib
import io
import math
import re
import textwrap
import time
from typing import Callable, Iterable, List, Optional, Protocol, Sequence, Set


def shown(text: str) -> str:
    """A text that is safe on a terminal: control characters, also those that reorder text, are escaped."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def escape_tags(text: str) -> str:
    """Markdown in which a `<` that would begin a tag is text; any other one is text already."""
    return _TAG.sub("&lt;", text)


_TAG = re.compile(r"<(?=[a-zA-Z/!?])")


def counted(number: int, noun: str) -> str:
    """`1 profile`, `2 profiles`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


SHORTEST_START = 3
"""Characters of a word that are enough to stand for a longer one."""


def nearest_word(word: str, known_words: Sequence[str]) -> str:
    """The known word that a misspelt one probably stands for, or the one after its `sim:`; empty if none is near.

    The only known word that a shorter one begins is near too: `yolov8n` of `yolov8n-coco`. One with other numbers is
    not: `MODE_50W` is no misspelt `MODE_40W`.
    """
    known_words = [known for known in known_words if _has_numbers_of(known, word)]
    for text in dict.fromkeys([word, word.rpartition(":")[2]]):
        near = difflib.get_close_matches(text, known_words, 1, cutoff=0.8)
        longer = [known for known in known_words if len(text) >= SHORTEST_START and known.startswith(text)]
        if near or len(longer) == 1:
            return [*near, *longer][0]
    return ""


def _has_numbers_of(known: str, word: str) -> bool:
    """Whether each number of a word is, or begins, the one in its place of a known word."""
    numbers, known_numbers = (re.findall(r"\d+", text) for text in (word, known))
    is_begun = [whole.startswith(begun) for begun, whole in zip(numbers, known_numbers)]
    return len(numbers) <= len(known_numbers) and all(is_begun)


MOST_MEANT = 3
"""Known words that are suggested in the place of one that is part of each."""


def words_meant(word: str, known_words: Sequence[str]) -> List[str]:
    """The nearest known word; without one, those that have its parts: `orin-agx` of `Orin AGX`, `MODE_15W` of `15W`.

    Empty if there are none, or more than `MOST_MEANT`. Those that the word begins come before all others.
    """
    nearest = nearest_word(word, known_words)
    if nearest:
        return [nearest]
    parts = _parts(word)
    equal = [known for known in known_words if _parts(known) == parts]
    longer = [known for known in known_words if parts and parts < _parts(known)]
    begun = [known for known in longer if known.lower().startswith(word.lower())]
    meant = equal or begun or longer
    return meant if len(meant) <= MOST_MEANT else []


def _parts(word: str) -> Set[str]:
    return set(re.findall(r"[a-z0-9]+", word.lower()))


def available_hint(word: str, known_words: Iterable[str]) -> str:
    """The hint on an unknown word: the known ones that were probably meant, and all of them."""
    words = list(known_words)
    meant = words_meant(word, words)
    listed = f"available: {', '.join(words)}"
    suggested = " or ".join(filter(None, [", ".join(meant[:-1]), *meant[-1:]]))
    return f"did you mean {suggested}? {listed}" if meant else listed


def options_meant(words: Sequence[str], options: Sequence[str]) -> str:
    """For words of a command line `did you mean --workload instead of --worklod?`; empty if no option is near."""
    texts = []
    for word in (word.partition("=")[0] for word in words if word.startswith("--")):
        meant = nearest_word(word, options)
        if meant not in ("", word):
            texts.append(f"did you mean {meant} instead of {word}?")
    return " ".join(texts)


WIDTH = 100
"""Characters of a line of text that people read."""

LEAST_WIDTH = 20
"""Characters of a wrapped column, however wide the others are."""

_UNBROKEN = "\N{NO-BREAK SPACE}"


def wrap(text: str, indent: str = "", width: int = WIDTH) -> str:
    """A text broken into lines at its blanks; `indent` begins all lines but the first.

    A command in backticks stays on one line, so that it can be copied.
    """
    unbroken = re.sub(r"`[^`]+`", lambda command: command[0].replace(" ", _UNBROKEN), text)
    lines = textwrap.wrap(unbroken, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_UNBROKEN, " ")


MOST_RULE = 60  # characters of the rule below the last header: a wider one would wrap in a terminal


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool = False, width: Optional[int] = None
) -> str:
    """Lay out a table of untrusted cells; a column whose header begins with `>` is right-aligned.

    With a `width`, texts in the last column are wrapped so that no line is wider, if that leaves them `LEAST_WIDTH`.
    """
    rows = [[shown(cell.replace("\n", " ")) for cell in row] for row in rows]
    if markdown:
        rows = [[escape_tags(cell.replace("|", "\\|")) for cell in row] for row in rows]
    right = [name.startswith(">") for name in header]
    names = [name[1:] if is_right else name for name, is_right in zip(header, right)]
    widths = [max(map(len, column)) for column in zip(names, *rows)]
    if width is not None:
        left = width - sum(widths[:-1]) - len("  ") * len(widths[:-1])
        widths[-1] = min(widths[-1], max(left, LEAST_WIDTH))
        rows = [part for row in rows for part in _wrapped_row(row, widths[-1])]

    def line(cells: Sequence[str], separator: str) -> str:
        padded = [cell.rjust(w) if is_right else cell.ljust(w) for cell, w, is_right in zip(cells, widths, right)]
        return separator.join(padded)

    if markdown:
        rule = ["-" * (width - 1) + (":" if is_right else "-") for width, is_right in zip(widths, right)]
        return "\n".join(f"| {line(cells, ' | ')} |" for cells in [names, rule, *rows])
    rule = ["-" * width for width in [*widths[:-1], min(widths[-1], MOST_RULE)]]
    lines: List[str] = [line(names, "  "), line(rule, "  ")]
    lines += [line(row, "  ") for row in rows]
    return "\n".join(text.rstrip() for text in lines)


def _wrapped_row(row: Sequence[str], width: int) -> List[List[str]]:
    """A row whose last cell is at most `width` wide, and below it rows with the rest of that cell alone."""
    first, *rest = wrap(row[-1], width=width).splitlines() or [""]
    blank = [""] * len(row[:-1])
    return [[*row[:-1], first], *([*blank, text] for text in rest)]


PLAIN_INTERVAL_S = 10.0  # how often a plain line may come where the output is no terminal
TERMINAL_INTERVAL_S = 0.1


class ProgressStream(Protocol):
    """What progress is written to: a text file, or standard output past pytest's capture."""

    def write(self, __text: str) -> object: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


class Progress:
    """Writes the current work, how much is left and the time left."""

    def __init__(
        self,
        stream: ProgressStream,
        clock: Callable[[], float] = time.monotonic,
        show: Optional[Callable[[str], None]] = None,
    ) -> None:
        """`show` receives the texts of results that are ready before all work is done; None if nobody reads them."""
        self._stream = stream
        self._clock = clock
        self._show = show
        self._is_terminal = stream.isatty()
        self._last_s: Optional[float] = None
        self._width = 0

    def update(self, text: str) -> None:
        """Show a state that the next call replaces; on a plain stream most are dropped."""
        interval = TERMINAL_INTERVAL_S if self._is_terminal else PLAIN_INTERVAL_S
        now = self._clock()
        if self._last_s is not None and now - self._last_s < interval:
            return
        self._last_s = now
        if self._is_terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = max(self._width, len(text))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def line(self, text: str) -> None:
        self.clear()
        self._stream.write(text + "\n")
        self._stream.flush()
        self._last_s = self._clock()

    def result(self, text: Callable[[], str]) -> None:
        """Show a result that is ready; `text` writes it, and is called only if somebody reads it."""
        if self._show is not None:
            self._show(text())

    def clear(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


class ReportedProgress(Progress):
    """Progress whose states go to `report`, which may raise to end the work, and whose lines go to `lines`, if any."""

    def __init__(self, report: Callable[[str], None], lines: Optional[Progress] = None) -> None:
        super().__init__(io.StringIO())
        self._report = report
        self._lines = lines

    def update(self, text: str) -> None:
        self._report(text)

    def line(self, text: str) -> None:
        if self._lines is not None:
            self._lines.line(text)

    def clear(self) -> None:
        if self._lines is not None:
            self._lines.clear()


class Countdown:
    """How much work is left, and an estimate of the time left from the finished part."""

    def __init__(
        self,
        total: int,
        clock: Callable[[], float] = time.monotonic,
        total_weight: Optional[float] = None,
        most_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`total_weight`: the expected cost of all pieces, by default 1 each; `most_s` returns the most time left."""
        self.total = total
        self.started = 0
        self._ahead = total if total_weight is None else total_weight
        self._last = self._finished = 0.0
        self._most_s = most_s
        self._clock = clock
        self._start_s = clock()

    def start_one(self, weight: float = 1.0) -> str:
        """Begin a piece of an expected cost; returns `[3/16, 4 min 10 s left]`."""
        label = ", ".join(filter(None, [f"{self.started + 1}/{self.total}", self.left()]))
        self.started += 1
        self._ahead -= weight
        self._last = weight
        return f"[{label}]"

    def finish_one(self) -> None:
        """The piece that was begun last is finished; one that is not was dropped, and took no time."""
        self._finished += self._last

    def left(self) -> str:
        """`4 min 10 s left`, by the finished pieces, for those not begun; empty before the first and after the last."""
        if not self._finished or self._ahead <= 0:
            return ""
        left_s = (self._clock() - self._start_s) / self._finished * self._ahead
        return f"{format_duration(max(0.0, min(left_s, self._most_s())))} left"


def format_duration(seconds: float) -> str:
    """Seconds in words: `8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
