"""Plain values: what may stand in a record, and the one JSON text that a value has."""

from __future__ import annotations

import json
from typing import Any

from harness.core.errors import StoreError


def plain(value: Any, name: str) -> Any:
    """A value as it will be read back: tuples become lists, numpy's numbers become Python's.

    Args:
        value: None, a bool, a finite number, a string, or lists, tuples and dicts of these; keys are strings.
        name: what the value is, for the error.

    Raises:
        StoreError: the value, or one inside it, is nothing of that kind.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{name}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise StoreError(f"{name} has the key {key!r}; a record's keys are strings")
        return {key: plain(item, f"{name}.{key}") for key, item in value.items()}
    number = value.item() if hasattr(value, "item") else value  # a numpy scalar
    if isinstance(number, bool) or (isinstance(number, (int, float)) and number - number == 0):
        return number
    raise StoreError(
        f"{name} is {value!r}; a record holds finite numbers, strings, booleans, None, and lists and dicts of them",
        "write None where there is no value",
    )


def canonical_json(value: Any) -> str:
    """The one text of a plain value: equal values have equal texts, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
