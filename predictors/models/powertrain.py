"""PowerTrain: networks trained on all modes of a reference workload, transferred to another workload with few modes.

001 sec. 3.2: a network for time and one for power are trained on the full corpus of a reference workload, as in
`predictors.models.networks`. For a new workload (another network, data set, batch size or board) their last layer is
replaced by a fresh one, and they are trained once more on k modes.

The paper does not give the dropout, the minibatch, the frozen layers, and epochs and learning rate of the transfer.
They were searched (`evaluate --grid`) on the measured tables of an Orin AGX: from ResNet-18 to YOLOv8n and LSTM, 10 and
50 random modes, 5 repeats; they may fit other tables less well. Frozen layers matter most: with all but the fresh one
frozen, errors double; two are best with 10 modes (LSTM, time: 11 % against 18), none or one with 50 (YOLOv8n: 9 to 10 %
against 12). Dropout of the reference helps the transfer; the rest matters little. Chosen: dropout for the reference,
none for the transfer, the first layer frozen. docs/predictor_errors.md has the errors.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.models.networks import HIDDEN, NetworkRegression, Networks, NeuralNetwork, fresh_networks
from predictors.models.regression import ColumnScale, InputColumns, columns_of
from predictors.profiles import Profiles
from predictors.settings import Settings


@dataclass(eq=False)
class PowerTrain(NetworkRegression):
    """Networks that start from those of a reference workload, and have the same inputs.

    If the training rows have several batch sizes, the reference must have several, too.
    """

    name = "powertrain"
    usual_log_sd = (0.15, 0.04)
    references: Tuple[Profiles, ...] = ()  # the paper has one reference; of several, the first is taken
    loss: str = "mse"  # or `mape`, which the paper used for an Orin Nano (001 sec. 4.3.4)
    dropout: float = 0.0
    frozen: int = 1  # number of layers, from the first, that keep the reference's weights
    reference_seed: int = 0  # of the reference's training, which runs once per process and table

    def _reference(self) -> NeuralNetwork:
        if not self.references:
            raise InvalidValueError(
                f"{self.name} has no reference to start from", "pass the table of another workload in `references`"
            )
        return learn_reference(self.references[0], self.reference_seed)

    def _columns(self, rows: Settings) -> InputColumns:
        columns, reference = columns_of(rows), self._reference().columns_
        if columns.has_limit != reference.has_limit:
            raise InvalidValueError(
                f"of the target and the reference {self.references[0].workload} only one has power limits",
                "use a reference of the same kind",
            )
        for what, value, fixed in zip(InputColumns._fields, columns[:2], reference):
            if value is None and fixed is not None:
                workload = self.references[0].workload
                raise InvalidValueError(
                    f"the training rows have several values of {what}, the reference {workload} has one",
                    "use a reference with several, or fit one value at a time",
                )
        batch_size = None if reference.batch_size is None else columns.batch_size
        task = None if reference.task is None else columns.task
        return InputColumns(batch_size, task, columns.has_limit)

    def _start(self, inputs: np.ndarray, random: np.random.Generator) -> Tuple[Networks, ColumnScale]:
        reference = self._reference()
        fresh = fresh_networks(2, (HIDDEN[-1], 1), random).parameters
        carried = reference.networks_.parameters[:, : -fresh.shape[1]]
        return reference.networks_._replace(parameters=np.concatenate([carried, fresh], axis=1)), reference.scale_


@functools.lru_cache(maxsize=None)
def learn_reference(table: Profiles, seed: int) -> NeuralNetwork:
    """The networks of a reference workload, trained once per process."""
    return NeuralNetwork(seed=seed).fit(table.usable())
