"""Checks of numbers that are given to commands and calls: an error names the number and what was expected."""

from __future__ import annotations

import math
import numbers
from typing import Any

from harness.core.errors import InvalidValueError


def check_number(name: str, value: Any, least: float = 0, *, above: bool = False, whole: bool = False) -> None:
    """Refuse what is not a finite number.

    Args:
        name: of the option or argument, for the error.
        value: what was given; None, an option that was omitted, passes.
        least: the least allowed number.
        above: whether that number itself is refused too.
        whole: whether fractions are refused.

    Raises:
        InvalidValueError: the value is no such number.
    """
    if value is None:
        return
    is_number = _is_number(value)
    is_kind = is_number and (not whole or isinstance(value, numbers.Integral))
    if is_kind and (least < value < math.inf or (value == least and not above)):
        return
    kind = "a whole number" if whole else "a number"
    if is_number and not math.isfinite(value):
        kind = "a finite number"
    expected = f"{kind} above {least:g}" if above else f"{kind}, {least:g} or more"
    raise InvalidValueError(f"{name} is {_shown(value)}, expected {expected}")


def check_probability(name: str, value: Any, *, certain: bool = True) -> None:
    """Refuse what is not a number from 0 to 1; with `certain` false, 0 and 1 too. None passes."""
    if value is None:
        return
    is_probability = _is_number(value) and 0 <= value <= 1
    if not is_probability or (value in (0, 1) and not certain):
        raise InvalidValueError(f"{name} is {_shown(value)}, expected a probability between 0 and 1")


def check_options(least: float = 0, *, above: bool = False, whole: bool = False, **options: Any) -> None:
    """As `check_number`, of options by their names in Python; each is a number, a list of numbers, or None."""
    for name, given in options.items():
        for value in given if isinstance(given, list) else [given]:
            check_number(f"--{name.replace('_', '-')}", value, least, above=above, whole=whole)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return f"{value:g}" if _is_number(value) else repr(value)
