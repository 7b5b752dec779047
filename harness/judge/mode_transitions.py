"""How long changes of power mode take to come into effect, as figures that claims compare."""

from __future__ import annotations

from typing import Sequence

from harness.core.transitions import MeasuredTransition
from harness.judge.verdict import CaseFigures, exactly


def time_until(figure: str, transitions: Sequence[MeasuredTransition]) -> CaseFigures:
    """How long a figure (`clock`, `minibatch`, `power`) takes to follow, a cell for each transition that shows it."""
    values = [(each, getattr(each.transition, f"{figure}_ms")) for each in transitions]
    cells = [exactly(f"{each.case.id} to {each.to.name}", value) for each, value in values if value is not None]
    return CaseFigures(cells, f"ms until the {figure} of a new power mode", f"no {figure} showed a change of mode")
