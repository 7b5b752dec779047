"""Golden files: what is volatile taken out, long tables condensed, and a difference told by file and key.

Numbers agree within a relative tolerance, strings and the keys of objects exactly.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

FILES = Path(__file__).resolve().parent / "files"
PROJECT = Path(__file__).resolve().parents[2]

REMAKE = "JETWATT_REMAKE_GOLDEN"
"""The environment variable that has golden files written anew instead of compared."""

TOLERANCE = 1e-6
"""Relative; where sums of floating point numbers are taken in another order they differ by less than this."""

LONGEST_LIST = 24
"""A longer list of numbers or rows is kept as its digest."""

MOST_DIFFERENCES = 40

VOLATILE = frozenset(
    (
        *("created_at", "run_id", "host_name", "kernel", "suite_commit", "jetwatt", "environment"),
        *("sha256", "python"),
        *("datetime", "fit_seconds", "predict_seconds", "torch", "cuda"),
    )
)
"""Keys and columns whose values tell of a moment, a machine or versions of software."""

NOT_EVERYWHERE = frozenset({"suite_commit"})
"""Keys that are not compared, because a machine may lack them: a copy of the suite without `.git` has no commit."""

_VOLATILE_TEXT = (
    (re.compile(r"\b(?!2000)20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)?"), "<date>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
)
"""Simulated clocks start in the year 2000, so their dates stay."""


def read_csv(path: Path) -> List[Dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def sha256(text: str) -> str:
    return "sha256 " + hashlib.sha256(text.encode()).hexdigest()[:16]


def without_moments(text: str) -> str:
    for pattern, name in _VOLATILE_TEXT:
        text = pattern.sub(name, text)
    return text


def columns_of(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> List[List[Any]]:
    return [[number_or_text(row[name]) for name in names] for row in rows]


def digest_of_table(rows: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """A table in little room: how many rows, each column's digest, the first row."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {
        "rows": len(rows),
        "order": " ".join(names),
        "columns": {name: digest_of_column([row.get(name) for row in rows], name) for name in names},
        "first": {name: number_or_text(value) for name, value in (rows[0] if rows else {}).items()},
    }


def digest_of_column(values: Sequence[Any], name: str = "") -> List[Any]:
    """Of numbers: how many, sums of their sizes, plain and by place, how many below 0; of texts: how many, a hash."""
    there = [number_or_text(value) for value in values if value not in (None, "")]
    if name in VOLATILE:
        return [len(there)]
    if any(isinstance(value, (str, dict, list)) for value in there):
        return [len(there), f"{len(set(map(str, there)))} distinct", _hash_of(values)]
    numbers = [float(value) for value in there]
    finite = [abs(number) for number in numbers if math.isfinite(number)]
    if not finite:
        return [len(there), *map(str, numbers[:3])]
    by_place = math.fsum(number * (place + 1) / len(finite) for place, number in enumerate(finite))
    return [len(there), math.fsum(finite), by_place, sum(number < 0 for number in numbers)]


def _hash_of(values: Sequence[Any]) -> str:
    return sha256(without_moments("\n".join(json.dumps(value, sort_keys=True, default=str) for value in values)))


def number_or_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        try:
            return float(value)
        except ValueError:
            return value


def condensed(value: Any) -> Any:
    """A value with every long list of numbers or rows as its digest."""
    if isinstance(value, dict):
        return {key: condensed(one) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) <= LONGEST_LIST:
        return [condensed(one) for one in value]
    if all(isinstance(one, dict) for one in value):
        return digest_of_table([_flat(one) for one in value])
    if all(isinstance(one, (int, float)) for one in value):
        return digest_of_column(value)
    return {"count": len(value), "sha256": _hash_of(value), "first": condensed(value[0]), "last": condensed(value[-1])}


def _flat(value: Mapping[str, Any], before: str = "") -> Dict[str, Any]:
    flat: Dict[str, Any] = {}
    for key, one in value.items():
        flat.update(_flat(one, f"{before}{key}.") if isinstance(one, dict) else {f"{before}{key}": one})
    return flat


class Golden:
    """Holds what was found against the files, or writes them anew."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """With what stands in for places of this machine, by the pattern of their paths."""
        self._places = [(re.compile(place), name) for place, name in places.items()]

    def text(self, text: str) -> str:
        for pattern, name in self._places:
            text = pattern.sub(name, text)
        return without_moments(text)

    def lines(self, text: str) -> List[str]:
        return [line.rstrip() for line in self.text(text).splitlines()]

    def _normal(self, value: Any, key: str = "") -> Any:
        if key in VOLATILE and (key == "environment" or isinstance(value, (str, int, float))) and value != "":
            return "<volatile>"
        if isinstance(value, dict):
            return {self.text(str(name)): self._normal(one, str(name)) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._normal(one) for one in value]
        if isinstance(value, float):
            return float(f"{value:.9g}") if math.isfinite(value) else str(value)
        return self.text(value) if isinstance(value, str) else value

    def check(self, name: str, found: Any, tolerance: float = TOLERANCE) -> None:
        path = FILES / f"{name}.json"
        found = json.loads(json.dumps(self._normal(found)))
        golden = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        different = [] if golden is None else differences(golden, found, tolerance)
        if os.environ.get(REMAKE):
            if different or golden is None:  # rounding of another processor changes no file
                path.write_text(_written(found) + "\n", encoding="utf-8")
            return
        if golden is None:
            raise AssertionError(f"there is no {path.name}: {REMAKE}=1 pytest tests/golden makes it")
        more = len(different) - MOST_DIFFERENCES
        shown = [*different[:MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])]
        if different:
            listed = "\n".join(f"  {one}" for one in shown)
            raise AssertionError(f"tests/golden/files/{path.name}, golden -> found:\n{listed}")


def differences(golden: Any, found: Any, tolerance: float, key: str = "") -> List[str]:
    """Where two values differ, a line each: the key, the golden value, the value found."""
    if isinstance(golden, dict) and isinstance(found, dict):
        golden, found = (
            {name: one for name, one in side.items() if name not in NOT_EVERYWHERE} for side in (golden, found)
        )
        lines = [f"{key}.{name}: {_short(golden[name])} -> not there" for name in golden if name not in found]
        lines += [f"{key}.{name}: not there -> {_short(found[name])}" for name in found if name not in golden]
        for name in golden:
            if name in found:
                lines += differences(golden[name], found[name], tolerance, f"{key}.{name}")
        return lines
    if isinstance(golden, list) and isinstance(found, list):
        lines = [] if len(golden) == len(found) else [f"{key}: {len(golden)} entries -> {len(found)}"]
        for place, (one, other) in enumerate(zip(golden, found)):
            lines += differences(one, other, tolerance, f"{key}[{place}]")
        return lines
    if _is_number(golden) and _is_number(found):
        if math.isclose(golden, found, rel_tol=tolerance, abs_tol=1e-12):
            return []
        off = abs(found - golden) / max(abs(golden), abs(found))
        return [f"{key}: {golden!r} -> {found!r} (off by {off:.1e})"]
    return [] if golden == found else [f"{key}: {_short(golden)} -> {_short(found)}"]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _written(value: Any, indent: str = "") -> str:
    """JSON with a line for whatever fits on one."""
    line = json.dumps(value, sort_keys=True)
    parts = _parts(value)
    if parts is None or len(line) + len(indent) <= 150:
        return line
    inner = indent + " "
    written = [f"{inner}{name}{_written(one, inner)}" for name, one in parts]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(written) + f"\n{indent}{closing}"


def _parts(value: Any) -> Optional[List[Tuple[str, Any]]]:
    if isinstance(value, dict):
        return [(f"{json.dumps(name)}: ", value[name]) for name in sorted(value)]
    return [("", one) for one in value] if isinstance(value, list) else None
