"""The modes that a closed loop begins with."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import numpy as np

from predictors.sampling import choose
from predictors.strategies.closed_loop import Designer
from predictors.strategies.protocol import History
from predictors.tables import Table

SAMPLING = "space-filling"
"""Designs that ask the physical model found no better modes than this one, which is the quickest."""


def design_for(references: Tuple[Table, ...], board: Optional[str], seed: int, sampling: str = SAMPLING) -> Designer:
    """A function that chooses the first modes of a search among its candidates.

    Args:
        references: tables of other workloads, for the design.
        board: the device, as the corpus calls it; None where it is not known.
        seed: of the design.
        sampling: a name of `predictors.sampling.SAMPLERS`.
    """

    def design(history: History, count: int) -> Sequence[int]:
        candidates, task = history.profiler.candidates, history.profiler.task
        # A design is of modes at one batch size; where there are several, the middle one tells most of the others.
        sizes = np.unique(candidates.batch_size)
        size = int(sizes[len(sizes) // 2])
        places = np.flatnonzero((candidates.batch_size == size) & history.usable)
        chosen = choose(
            candidates.known_modes[places],
            min(count, len(places)),
            sampling=sampling,
            seed=seed,
            references=references,
            board=board,
            batch_size=size,
            task=task,
        )
        return [int(place) for place in places[chosen]]

    return design
