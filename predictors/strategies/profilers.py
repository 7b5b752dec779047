"""Profilers over a table: a corpus that was measured or simulated answers as the device would."""

from __future__ import annotations

import numpy as np

from predictors.metrics import profiling_seconds
from predictors.strategies.protocol import Candidates, Measured
from predictors.tables import Table


class TableProfiler:
    """Answers profiles from the rows of a table; its candidates are those rows."""

    def __init__(self, table: Table) -> None:
        """Answer from `table`."""
        self.table = table
        self.task = table.task
        self.candidates = Candidates(table.modes, table.batch_size)

    def profile(self, index: int) -> Measured:
        """The row at a place; its cost is that of profiling it on the device."""
        time_ms = float(self.table.time_ms[index])
        return Measured(time_ms, float(self.table.power_mw[index]), profiling_seconds(np.array(time_ms)))
