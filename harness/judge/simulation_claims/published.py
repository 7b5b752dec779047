"""The papers' statements in `baselines/published/claims.csv`: what checks each, why none does, where it fails."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Dict, List, NamedTuple

from harness.core.errors import StoreError
from harness.judge.published_figures import FIGURES_FILE

CLAIMS_FILE = FIGURES_FILE.with_name("claims.csv")


class Statement(NamedTuple):
    """A statement of a paper.

    Attributes:
        fact: its id.
        paper, section: where it stands.
        claim: what it says, in short.
        check: name of the check in `harness.judge.simulation_claims`; empty where a simulated board cannot answer.
        unchecked: why there is no check; empty where there is one.
        shortfall: why simulated boards are known not to behave so; empty where they do.
    """

    fact: str
    paper: str
    section: str
    claim: str
    check: str
    unchecked: str
    shortfall: str


def load_statements(path: Path = CLAIMS_FILE) -> List[Statement]:
    """The statements of a file.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [Statement(**row) for row in csv.DictReader(file)]
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "it is part of a clone and of an installation") from error


def known_shortfalls() -> Dict[str, str]:
    """Why a check is known to fail, by its name."""
    return {one.check: one.shortfall for one in load_statements() if one.shortfall and one.check}
