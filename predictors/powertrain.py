"""PowerTrain: networks that learned all modes of a reference workload, carried over to another with few modes.

001 sec. 3.2: a network of time and one of power learn the full corpus of a reference workload, as in `predictors.neural`.
For a new workload (another network, data set, batch size or board) their last layer is replaced by a fresh one, and all
is trained once more on k modes.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

import numpy as np

from harness.errors import InvalidValueError
from harness.power_modes import PowerModeSpace
from predictors.dense_network import Networks, Scale, fresh_layer, fresh_networks, standard_scale
from predictors.input_columns import InputColumns, columns_of
from predictors.network_training import Schedule, train
from predictors.neural import HIDDEN, Learned, fit_networks, learned_from
from predictors.protocol import Inputs, Prediction, Predictor, State
from predictors.tables import Table
