"""The inputs of a regression: the four settings, and batch size and task where the learned rows differ in them.

The papers' predictors take the four settings only; another batch size is another workload to them (001 sec. 4.3.5).
Learned from rows of one batch size and task, a predictor therefore takes the four settings as theirs do, and refuses
rows of another batch size or task rather than answer as if it made no difference. Learned from several, it has them as
further inputs.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.units import KHZ_PER_MHZ
from predictors.models.protocol import Inputs, check_inputs
from predictors.tables import Table


class InputColumns(NamedTuple):
    """What goes into a regression beside the four settings.

    Attributes:
        batch_size: the one batch size that was learned; None where it is an input.
        inference: the one task that was learned, 1 for inference, 0 for training; None where it is an input.
    """

    batch_size: Optional[float]
    inference: Optional[float]

    def matrix(self, rows: Inputs) -> np.ndarray:
        """Cores and clocks in MHz, then the logarithm of the batch size and the task where they are inputs.

        Raises:
            InvalidValueError: a row has another batch size or task than the one learned.
        """
        if self.batch_size is not None:
            self._refuse(rows.batch_size != self.batch_size, "batch size", f"{self.batch_size:g}", rows.batch_size)
        if self.inference is not None:
            tasks = np.where(rows.inference, "inference", "training")
            learned = "inference" if self.inference else "training"
            self._refuse(tasks != learned, "task", learned, tasks)
        return self.matrix_of_others(rows)

    def matrix_of_others(self, rows: Inputs) -> np.ndarray:
        """The same for rows of another workload, whose batch size and task may be others."""
        columns = [rows.modes[:, 0], *(rows.modes[:, 1:] / KHZ_PER_MHZ).T]
        if self.batch_size is None:
            columns.append(np.log(rows.batch_size))
        if self.inference is None:
            columns.append(rows.inference.astype(float))
        return np.column_stack(columns)

    def log_matrix(self, rows: Inputs) -> np.ndarray:
        """As `matrix`, with logarithms of cores and clocks."""
        columns = self.matrix(rows)
        columns[:, :4] = np.log(columns[:, :4])
        return columns

    @staticmethod
    def _refuse(other: np.ndarray, what: str, learned: str, asked: np.ndarray) -> None:
        if other.any():
            raise InvalidValueError(
                f"only {what} {learned} was learned, asked for {asked[other][0]}",
                f"learn from profiles of several, or from those of that {what}",
            )


def columns_of(rows: Inputs) -> InputColumns:
    """The inputs that rows to be learned ask for."""
    sizes, tasks = np.unique(rows.batch_size), np.unique(rows.inference)
    return InputColumns(float(sizes[0]) if len(sizes) == 1 else None, float(tasks[0]) if len(tasks) == 1 else None)


def columns_from(values: Mapping[str, Any]) -> InputColumns:
    """The columns that `column_values` gave.

    Raises:
        InvalidValueError: there are none among the values.
    """
    try:
        return InputColumns(values["batch_size"], values["inference"])
    except KeyError as error:
        raise InvalidValueError(f"what was saved names no {error.args[0]} that was learned") from error


def column_values(columns: InputColumns) -> Dict[str, Any]:
    """The columns as plain values."""
    return dict(columns._asdict())


def table_inputs(table: Table) -> Inputs:
    """The rows of a table in the form that predictors work with."""
    return check_inputs(table.modes, table.batch_size, table.task)
