"""Candidates as a grid: the values of each dimension, and where a mode stands among them."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from predictors.strategies.protocol import Candidates


class Grid:
    """The distinct values of cores, CPU, GPU and memory clocks (and batch sizes) that candidates are made of.

    Where not every combination is a candidate, the nearest that is stands for it.
    """

    def __init__(self, candidates: Candidates) -> None:
        """Find the values of each dimension, ascending."""
        self._rows = np.column_stack([candidates.known_modes, candidates.batch_size])
        self.dimensions: List[np.ndarray] = [np.unique(column) for column in self._rows.T]
        steps = [np.searchsorted(values, column) for values, column in zip(self.dimensions, self._rows.T)]
        self.steps = np.column_stack(steps)
        self._places: Dict[Tuple[int, ...], int] = {
            tuple(step): place for place, step in enumerate(self.steps.tolist())
        }
        self._scale = np.array([max(len(values) - 1, 1) for values in self.dimensions], dtype=float)

    @property
    def shape(self) -> Tuple[int, ...]:
        """How many values each dimension has."""
        return tuple(len(values) for values in self.dimensions)

    def at(self, step: Sequence[int], usable: Optional[np.ndarray] = None) -> int:
        """The candidate at a step of each dimension, or the nearest one: by steps, each as a share of its dimension.

        Args:
            step: a place among the values of each dimension.
            usable: which candidates to take, bool of shape (n,), at least one; None for all.
        """
        found = self._places.get(tuple(int(value) for value in step))
        if found is not None and (usable is None or usable[found]):
            return found
        distance = (np.abs(self.steps - np.asarray(step)) / self._scale).sum(axis=1)
        return int(distance.argmin() if usable is None else np.where(usable, distance, np.inf).argmin())

    def greatest(self, usable: Optional[np.ndarray] = None) -> int:
        """The candidate with the greatest value of every dimension, or the nearest to it; `usable` as of `at`."""
        return self.at([size - 1 for size in self.shape], usable)

    def nearest(self, mode: Sequence[int], usable: Optional[np.ndarray] = None) -> int:
        """The candidate nearest to any mode, with the greatest batch size: clocks by ratio, cores by difference.

        `usable` is as of `at`.
        """
        cores = np.abs(self._rows[:, 0] - mode[0]) / self.dimensions[0][-1]
        clocks = np.abs(np.log(self._rows[:, 1:4] / np.maximum(mode[1:4], 1.0))).sum(axis=1)
        behind = self.dimensions[4][-1] - self._rows[:, 4]
        ordered = np.lexsort((behind, cores + clocks))
        return int((ordered if usable is None else ordered[usable[ordered]])[0])
