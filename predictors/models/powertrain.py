"""PowerTrain: networks that learned all modes of a reference workload, carried over to another with few modes.

001 sec. 3.2: a network of time and one of power learn the full corpus of a reference workload, as in
`predictors.models.networks`. For a new workload (another network, data set, batch size or board) their last layer is
replaced by a fresh one, and they are trained once more on k modes.

The paper leaves open the dropout, the minibatch, the frozen layers, and epochs and learning rate of the transfer. They
were searched once, on the measured tables of an Orin AGX: from ResNet-18 to YOLOv8n and LSTM, 10 and 50 random modes, 5
repeats, by the geometric mean of all eight median errors; of other tables the choice may be less right:

- Frozen layers decide. With all but the fresh one frozen, errors double (YOLOv8n at 50 modes, time: 18 to 22 %). With
  two frozen, 10 modes are used best (LSTM, time: 11 % against 18), with none or one 50 (YOLOv8n: 9 to 10 % against 12).
- A reference without dropout is closer to its own workload (3.9 against 6.2 % time) and carries over worse.
- Learning rate and dropout of the transfer matter little, nor do 50 or 200 epochs, 8 entries in a step, or more than
  200 entries in an epoch.

Taken: dropout 0.1 for the reference, none for the transfer; the first layer frozen; 100 epochs at 0.001; 16 entries in
a step: 2 % behind the best mean, which has two layers frozen, and better at 50 modes, the paper's count. With the modes
of `python -m predictors evaluate --sampling random --repeats 10` it gives time / power 19.8 / 4.9 % at 10 modes and
10.4 / 2.8 % at 50 for YOLOv8n (the paper: 24.7 / 6.8 and 11.7 / 4.9), and 18.6 / 7.3 and 7.0 / 2.9 % for LSTM (12.5 /
6.3 at 50).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerModeSpace
from predictors.models.base import Inputs, Prediction, Predictor
from predictors.models.networks import HIDDEN, SCHEDULE, FittedNetworks, Schedule, fit_networks, fresh_networks
from predictors.models.regression import InputColumns, columns_of, standard_scale, table_inputs
from predictors.models.tables import Table

# Of time and power: the residuals of networks carried over with 50 random modes of the tables of an Orin AGX.
USUAL_LOG_SD = (0.15, 0.04)


@dataclass(eq=False)
class PowerTrain(Predictor):
    """Networks of time and of power that start from those of a reference workload.

    Inputs are scaled as the reference's. Where the rows to learn have several batch sizes, the reference has to have
    several, too: they are then a further input. Intervals are as in `NeuralNetwork`.
    """

    name = "powertrain"
    least_modes = 2
    references: Tuple[Table, ...] = ()  # the paper has one reference; of several, the first is taken
    loss: str = "mse"  # or `mape`, which the paper took for an Orin Nano (001 sec. 4.3.4)
    epochs: int = 100  # this and the next four: of the training on the profiled modes
    learning_rate: float = 1e-3
    dropout: float = 0.0
    minibatch: int = SCHEDULE.minibatch
    frozen: int = 1  # how many layers, from the first, stay as the reference's
    space: Optional[PowerModeSpace] = None
    reference_seed: int = 0  # of the reference's training, which is done once in a process for a table
    seed: int = 0  # of the fresh layer and the training

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        if not self.references:
            raise InvalidValueError(
                f"{self.name} has no reference to start from", "give it the table of another workload in `references`"
            )
        columns = columns_of(rows)
        reference = learn_reference(
            self.references[0], reference_columns(self.references[0], columns), self.reference_seed
        )
        random = np.random.default_rng(self.seed)
        fresh = fresh_networks(2, (HIDDEN[-1], 1), random).parameters
        carried = reference.networks.parameters[:, : -fresh.shape[1]]
        start = reference.networks._replace(parameters=np.concatenate([carried, fresh], axis=1))
        schedule = Schedule(
            self.loss, self.epochs, self.learning_rate, self.dropout, self.minibatch, frozen=self.frozen
        )
        figures = np.column_stack([time_ms, power_mw])
        self.fitted_ = fit_networks(
            start, columns, reference.input_scale, rows, figures, schedule, USUAL_LOG_SD, random
        )

    def _infer(self, rows: Inputs) -> Prediction:
        return self.fitted_.prediction(rows)


def reference_columns(table: Table, columns: InputColumns) -> InputColumns:
    """The columns to learn a reference with: its own batch size and task where these are no inputs.

    Where they are, it has to have several.
    """
    own = columns_of(table_inputs(table.complete()))
    for what, asked, known in zip(InputColumns._fields, columns, own):
        if asked is None and known is not None:
            raise InvalidValueError(
                f"rows of several values of {what} are to be learned, and the reference {table.workload} has one",
                "take a reference with several, or learn one value at a time",
            )
    return InputColumns(*(None if asked is None else known for asked, known in zip(columns, own)))


@functools.lru_cache(maxsize=None)
def learn_reference(table: Table, columns: InputColumns, seed: int) -> FittedNetworks:
    """The networks of a reference workload, trained once in a process for a table, inputs and seed."""
    complete = table.complete()
    rows = table_inputs(complete)
    inputs = columns.matrix(rows)
    random = np.random.default_rng(seed)
    start = fresh_networks(2, (inputs.shape[1], *HIDDEN, 1), random)
    figures = np.column_stack([complete.time_ms, complete.power_mw])
    return fit_networks(start, columns, standard_scale(inputs), rows, figures, SCHEDULE, USUAL_LOG_SD, random)
