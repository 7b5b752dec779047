"""Free parameters: which entries of the parameter files a fit may move, how far, and which follow from others."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.files import read_toml
from harness.simulation.parameters import BOARD_FILES, PHYSICS_FILE, WORKLOAD_FILES
from tools.published import Parameters

PHYSICS, BOARD, WORKLOAD = "physics", "board", "workload"
DIGITS = 4
"""Significant digits of a fitted value; more would say nothing."""

_REACH = 8.0
"""Greatest distance from the prior, in spreads."""

Owner = Tuple[str, str]
"""What a parameter belongs to: its kind and name."""


class FreeParameter(NamedTuple):
    """An entry with a prior: log-normal, around `prior`, with standard deviation `spread` of the logarithm."""

    owner: Owner
    key: str
    prior: float
    spread: float

    def value(self, distance: float) -> float:
        """The value at a distance from the prior, in spreads."""
        return float(self.prior * np.exp(np.clip(distance, -_REACH, _REACH) * self.spread))


class Tie(NamedTuple):
    """An entry that follows from the same entry of another board or workload, times a factor."""

    owner: Owner
    key: str
    source: str
    times: float


def parameter_files() -> Dict[Owner, Path]:
    """The file of each owner."""
    return {
        (PHYSICS, PHYSICS): PHYSICS_FILE,
        **{(BOARD, name): path for name, path in BOARD_FILES.items()},
        **{(WORKLOAD, name): path for name, path in WORKLOAD_FILES.items()},
    }


def read_free_parameters() -> Tuple[List[FreeParameter], List[Tie]]:
    """The entries of all files with a prior, and those that follow from others."""
    free, ties = [], []
    files = parameter_files()
    for owner, path in files.items():
        for key, entry in read_toml(path).items():
            if "prior" in entry:
                free.append(FreeParameter(owner, key, float(entry["prior"]), float(entry["spread"])))
            elif "same_as" in entry:
                if (owner[0], entry["same_as"]) not in files:
                    raise InvalidValueError(f"{path}: {key} is the same as that of {entry['same_as']!r}, which is none")
                ties.append(Tie(owner, key, entry["same_as"], float(entry.get("times", 1.0))))
    return free, [_to_its_root(tie, ties) for tie in ties]


def _to_its_root(tie: Tie, ties: Sequence[Tie]) -> Tie:
    """A tie to what its source, itself tied, follows from."""
    by_place = {(one.owner, one.key): one for one in ties}
    seen = {tie.owner[1]}
    while ((tie.owner[0], tie.source), tie.key) in by_place:
        if tie.source in seen:
            raise InvalidValueError(f"{tie.key} of {tie.owner[1]} follows from itself", "give one of them a value")
        seen.add(tie.source)
        further = by_place[(tie.owner[0], tie.source), tie.key]
        tie = tie._replace(source=further.source, times=tie.times * further.times)
    return tie


def with_values(
    fixed: Parameters, free: Sequence[FreeParameter], ties: Sequence[Tie], distances: np.ndarray
) -> Parameters:
    """A set of parameters with free ones moved to some distances from their priors, and the ties drawn.

    Distances are in spreads, shape (n,).
    """
    changes: Dict[Owner, Dict[str, float]] = {}
    for parameter, distance in zip(free, distances):
        changes.setdefault(parameter.owner, {})[parameter.key] = parameter.value(distance)
    moved = _replaced(fixed, changes)
    followers: Dict[Owner, Dict[str, float]] = {}
    for tie in ties:
        source = _owners(moved)[tie.owner[0], tie.source]
        followers.setdefault(tie.owner, {})[tie.key] = getattr(source, tie.key) * tie.times
    return _replaced(moved, followers)


def _owners(parameters: Parameters) -> Dict[Owner, Any]:
    return {
        (PHYSICS, PHYSICS): parameters.physics,
        **{(BOARD, name): board for name, board in parameters.boards.items()},
        **{(WORKLOAD, name): workload for name, workload in parameters.workloads.items()},
    }


def _replaced(parameters: Parameters, changes: Mapping[Owner, Mapping[str, float]]) -> Parameters:
    def all_of(kind: str, owned: Mapping[str, Any]) -> Dict[str, Any]:
        return {name: dataclasses.replace(one, **changes.get((kind, name), {})) for name, one in owned.items()}

    return Parameters(
        dataclasses.replace(parameters.physics, **changes.get((PHYSICS, PHYSICS), {})),
        all_of(BOARD, parameters.boards),
        all_of(WORKLOAD, parameters.workloads),
    )


def file_texts(parameters: Parameters) -> Dict[Path, str]:
    """The parameter files as text, with the values of a set in those entries that are free or follow."""
    owners = _owners(parameters)
    free, ties = read_free_parameters()
    moving: Dict[Owner, List[str]] = {}
    for one in [*free, *ties]:
        moving.setdefault(one.owner, []).append(one.key)
    texts = {}
    for owner, path in parameter_files().items():
        text = path.read_text(encoding="utf-8")
        for key in moving.get(owner, []):
            value = repr(float(f"{getattr(owners[owner], key):.{DIGITS}g}"))
            text, count = re.subn(rf"(?m)^({key} = {{ value = )[^,]+", rf"\g<1>{value}", text)
            if count != 1:
                raise InvalidValueError(f"{path}: {key} does not begin its line as `{key} = {{ value = `")
        texts[path] = text
    return texts
