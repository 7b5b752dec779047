"""A data set that only its size is known of, and how much of it the page cache of a simulated board holds when."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

import numpy as np

from harness.simulation.model import cached_share
from harness.simulation.parameters import BoardParameters, WorkloadParameters


class VirtualData(NamedTuple):
    """A data set as a run reads it.

    Attributes:
        samples: in one pass.
        scale: the same as a share of the real data set.
        byte_count: on the medium.
        per_pass: whole minibatches of a pass.
        before: share of it in the page cache before the run.
        later: share of it that every pass but the first finds there.
        holds: the most that the page cache has room for.
    """

    samples: int
    scale: float
    byte_count: int
    per_pass: int
    before: float
    later: float
    holds: float

    def held(self, count: int) -> np.ndarray:
        """Share of the data set in the page cache after each of `count` minibatches."""
        number = np.arange(count)
        found = np.where(number < self.per_pass, self.before, self.later)
        return np.minimum(np.maximum(found, (number % self.per_pass + 1) / self.per_pass), self.holds)

    def at_epochs(self, epochs: int) -> List[float]:
        """Share of the data set in the page cache at the start of each epoch."""
        return [self.before, *[self.later] * (epochs - 1)]


def virtual_data(
    board: BoardParameters,
    workload: WorkloadParameters,
    batch_size: int,
    workers: int,
    cache: str,
    default_samples: int,
    data_scale: Optional[float],
) -> VirtualData:
    """The data set of a case.

    A simulated board is switched on for each case, so that only `warm` finds anything in its page cache.

    Args:
        board: its RAM is what the page cache is a part of.
        workload: what reads the data set.
        batch_size: samples per minibatch.
        workers: `num_workers`; each holds RAM.
        cache: one of `CACHE_STATES`.
        default_samples: samples where no scale is asked for.
        data_scale: samples as a share of the real data set's.
    """
    samples = default_samples if data_scale is None else max(1, round(workload.samples * data_scale))
    scale = samples / workload.samples
    holds = cached_share(board, workload, scale, workers=workers)
    return VirtualData(
        samples=samples,
        scale=scale,
        byte_count=round(workload.dataset_bytes * scale),
        per_pass=samples // batch_size,
        before=holds if cache == "warm" else 0.0,
        later=0.0 if cache == "drop-each-epoch" else holds,
        holds=holds,
    )
