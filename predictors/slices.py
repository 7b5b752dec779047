"""Slices: parts of a device's power modes that have a name, so that errors can be told with and without them."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy as np

from predictors.tables import Table


class Slice(NamedTuple):
    """The power modes of a device up to some values.

    Attributes:
        name: how results call it.
        device: whose modes they are.
        greatest: the greatest value of each dimension, as in `PowerMode`; infinite where any will do.
        reason: why it is told apart.
    """

    name: str
    device: str
    greatest: Tuple[float, float, float, float]
    reason: str

    def contains(self, modes: np.ndarray) -> np.ndarray:
        """Which of the modes, shape (n, 4), lie in it: bool of shape (n,)."""
        return np.all(np.asarray(modes) <= np.asarray(self.greatest), axis=1)


_ANY = float("inf")

SLICES = (
    Slice(
        "two-slow-cores",
        "orin-agx",
        (2, 576_000, _ANY, _ANY),
        "in the public tables behind 001, whole GPU-clock rows of it run 1.2 to 9 times faster than their neighbours: "
        "they were measured in different sessions",
    ),
)
"""What is known to be odd."""


def slice_of(table: Table) -> Optional[Slice]:
    """The slice that errors on a table are told without; None where nothing is known to be odd."""
    return next((found for found in SLICES if found.device == table.device and table.provenance != "simulated"), None)
