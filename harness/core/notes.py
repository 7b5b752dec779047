"""Notes on results: a call gives them as warnings, and a command prints them."""

from __future__ import annotations

import inspect
import warnings

OWN_PACKAGES = ("harness", "predictors", "jetwatt")
BETWEEN = ("contextlib",)  # stands between a user's `with` and the end of its block


class NoteWarning(UserWarning):
    """What a user should know of a result, such as profiles that were left out; commands print it as `note: ...`."""


def note(text: str) -> None:
    """Warn of something, at the line of the user's code that called the suite."""
    level = 1
    frame = inspect.currentframe()
    while frame is not None and _is_own(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    warnings.warn(text, NoteWarning, stacklevel=max(1, level - 1) if frame is None else level)


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in (*OWN_PACKAGES, *BETWEEN)
