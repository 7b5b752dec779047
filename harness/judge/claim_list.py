"""The papers' claims as rows of `baselines/published/claims.csv`, whose columns the README.md beside it explains."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Tuple

from harness.judge.evidence import COLD, FIELDS, WARM
from harness.judge.published_figures import FIGURES_FILE, read_published

CLAIMS_FILE = FIGURES_FILE.with_name("claims.csv")

ANY, HELD_DOWN = "*", "held-down"
"""Values that depend on the device: any other one, its default power mode, storage whose reads are held down."""

BOARD, ENOUGH_CORES = "board", "cores>=workers"
"""Conditions that are no field of a case: on which board the first case ran; there is a core for each worker."""

Conditions = Mapping[str, Tuple[Any, ...]]  # field of a case to the values that it may have


class Bounds(NamedTuple):
    """What each figure of a claim has to be above and below of; infinite where there is no such bound."""

    above: float = -math.inf
    below: float = math.inf


class Claim(NamedTuple):
    """A sentence of a paper and how it is judged."""

    name: str
    experiment: str  # the benchmark file that measures what it needs: `benchmarks/test_EXPERIMENT.py`
    section: str  # paper and section, such as `004 5.1.7`
    facts: Tuple[str, ...]  # ids of the papers' statements and figures; `F919/F918` is one figure over another
    says: str  # what is claimed and how it is judged, in a sentence or two
    boards: Tuple[str, ...]  # where the paper saw it; other simulated boards are not asked. Empty for any
    only_there: bool  # whether it is said of these boards alone, so that another machine is not asked either
    is_fitted: bool  # whether the simulation was fitted to a figure that it stands on
    function: str  # of `harness.judge.claim_functions`
    quantities: Tuple[str, ...]  # of `Evidence.figure`
    per_sample: bool  # whether times are compared per sample
    phases: Tuple[str, str]  # of the first and of the second case, `warm` or `cold`
    # of each comparison, what the first case has and what the second one has instead
    pairs: Tuple[Tuple[Conditions, Conditions], ...]
    where: Tuple[Conditions, ...]  # what both cases have; alternatives
    meaning: str  # what the figure is, in words
    bounds: Mapping[str, Bounds]  # by board; those of any other under an empty name
    shortfall: str  # why simulated boards are known not to behave so; empty where they do
    known: Mapping[str, Bounds]  # what they are known to do instead, as `bounds`


@functools.lru_cache(maxsize=None)
def load_claims(path: Path = CLAIMS_FILE) -> Tuple[Claim, ...]:
    """The claims of a file; errors as of `read_published`."""
    return tuple(read_published(path, "claim", _claim))


def _claim(row: Mapping[str, str]) -> Claim:
    first, _, second = row["phase"].partition(">")
    if not {first, second} <= {"", WARM, COLD}:
        raise ValueError(f"phase {row['phase']!r}")
    before, after = ([_conditions(text) for text in row[name].split(";")] for name in ("before", "after"))
    if len(before) != len(after) and 1 not in (len(before), len(after)):
        raise ValueError(f"{len(before)} conditions before and {len(after)} after")
    count = max(len(before), len(after)) if row["before"] or row["after"] or second else 0
    return Claim(
        name=row["claim"],
        experiment=row["experiment"],
        section=row["section"],
        facts=tuple(row["facts"].split()),
        says=row["says"],
        boards=tuple(row["boards"].split()),
        only_there=_flag(row["only_there"]),
        is_fitted=_flag(row["fitted"]),
        function=row["function"] or ("ratio" if count else "value"),
        quantities=tuple(row["quantity"].split()),
        per_sample=_flag(row["per_sample"]),
        phases=(first or WARM, second or first or WARM),
        pairs=tuple(zip((before * count)[:count], (after * count)[:count])),
        where=tuple(_conditions(text) for text in row["where"].split(";")),
        meaning=row["meaning"],
        bounds=_bounds(row["above"], row["below"]),
        shortfall=row["shortfall"],
        known=_bounds(row["known_above"], row["known_below"]),
    )


def _flag(text: str) -> bool:
    if text not in ("", "yes"):
        raise ValueError(f"{text!r} is neither yes nor empty")
    return bool(text)


def _conditions(text: str) -> Conditions:
    """`workers=1|4 storage=hdd` as values by field."""
    found: Dict[str, Tuple[Any, ...]] = {}
    for part in text.split():
        name, _, values = part.partition("=") if part != ENOUGH_CORES else (part, "", "")
        if name not in (*FIELDS, BOARD, ENOUGH_CORES):
            raise ValueError(f"there is no condition {name!r}")
        kind = {"workers": int, "batch_size": int, "data_scale": float}.get(name, str)
        found[name] = tuple(kind(value) for value in values.split("|"))
    return found


def _bounds(above: str, below: str) -> Dict[str, Bounds]:
    """`0.97 xavier-nx=0.92` as bounds by board."""
    ends: Tuple[Dict[str, float], ...] = ({}, {})
    for text, by_board in zip((above, below), ends):
        for part in text.split():
            board, _, value = part.rpartition("=")
            by_board[board] = float(value)
    return {
        board: Bounds(ends[0].get(board, ends[0].get("", -math.inf)), ends[1].get(board, ends[1].get("", math.inf)))
        for board in {"", *ends[0], *ends[1]}
    }
