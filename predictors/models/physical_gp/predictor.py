"""The predictor: physical form and discrepancy, with a prior from other workloads on this board and any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerModeSpace
from harness.core.units import mw_to_w, w_to_mw
from predictors.models.base import Inputs, Prediction, Predictor
from predictors.models.physical_gp.posterior import TAILS, Prior, infer, learn
from predictors.models.physical_gp.response import PARAMETERS, features
from predictors.models.regression import table_inputs
from predictors.models.tables import Table

_MOST_ROWS = 600  # that are learned from: a sample of more, since the cost grows with their cube
_FEW_ROWS = 200  # up to which the response may have several explanations
_REFERENCE_ROWS = 400
_LEARNED_REFERENCES: Dict[str, Prior] = {}

# name: mean, sd between workloads of a board, sd between boards.
# Mean and first sd: expectation-maximisation over the measured tables behind 001 (Orin AGX: training of ResNet-18,
# YOLOv8n and an LSTM, inference of the first two at batch sizes 1 to 64), where leaving one network out changes little.
# The sds of the six scales are widened by half, since those are three networks only; `crowd_slope` and the sds between
# boards, of which only one was measured, are set by hand.
_HYPER: Dict[str, Tuple[float, float, float]] = {
    "gpu": (-1.17, 0.80, 0.20),
    "memory": (-1.30, 0.86, 0.20),
    "launch": (-1.74, 0.82, 0.20),
    "prepare": (-3.49, 1.61, 0.20),
    "serial": (-2.91, 1.24, 0.20),
    "constant": (-4.29, 1.82, 0.20),
    "gpu_slope": (1.02, 0.02, 0.02),
    "memory_slope": (0.99, 0.02, 0.03),
    "cpu_slope": (0.85, 0.07, 0.05),
    "cpu_memory_slope": (0.09, 0.04, 0.03),
    "background": (-2.14, 0.43, 0.50),
    "crowd": (1.68, 0.56, 0.30),
    "crowd_slope": (0.70, 0.50, 0.10),
    "crowd_main": (0.07, 0.14, 0.10),
    "traffic_overlap": (1.20, 0.23, 0.10),
    "overlap": (1.77, 0.48, 0.10),
    "scale": (0.00, 0.02, 0.70),
    "base": (2.47, 0.04, 0.40),
    "mem_idle": (0.49, 0.09, 0.60),
    "mem_power": (0.53, 0.23, 0.30),
    "mem_busy": (3.02, 0.41, 0.50),
    "core_idle": (-2.33, 0.21, 0.60),
    "cluster": (-0.59, 0.70, 0.60),
    "core_busy": (0.23, 1.08, 0.50),
    "cpu_voltage": (-0.69, 0.84, 0.80),
    "gpu_idle": (-0.07, 0.61, 0.50),
    "gpu_busy": (1.41, 0.44, 0.50),
    "gpu_traffic": (-1.00, 0.66, 0.30),
    "gpu_voltage": (-1.38, 0.49, 0.80),
    "batch_compute": (0.92, 0.08, 0.00),
    "batch_launch": (0.11, 0.09, 0.00),
    "batch_cpu": (0.97, 0.12, 0.00),
    "batch_power": (0.12, 0.10, 0.00),
    "inference_compute": (-0.83, 0.26, 0.00),
    "inference_launch": (-1.10, 0.36, 0.00),
    "inference_cpu": (-0.53, 0.46, 0.00),
    "inference_power": (-0.09, 0.20, 0.00),
}
_MEAN, _WORKLOADS, _BOARDS = np.array([_HYPER[name] for name in PARAMETERS]).T


def any_board() -> Prior:
    """Of a workload and a board that nothing is known of."""
    return Prior(_MEAN.copy(), np.hypot(_WORKLOADS, _BOARDS))


def same_board(references: Sequence[Prior]) -> Prior:
    """Of a workload on a board on which others were profiled.

    A parameter of a workload is that of its board, N(mean, boards^2), plus N(0, workloads^2): the board's is learned
    from the references, the workload's own part stays open.
    """
    precision = 1 / np.maximum(_BOARDS, 1e-6) ** 2
    total = precision * _MEAN
    for reference in references:
        weight = 1 / (_WORKLOADS**2 + reference.sd**2)
        precision = precision + weight
        total = total + weight * reference.mean
    return Prior(total / precision, np.sqrt(_WORKLOADS**2 + 1 / precision))


@dataclass(eq=False)
class PhysicalGP(Predictor):
    """A physical model of minibatch time and power, and a Gaussian process for what it leaves over.

    The parameters of the model have a prior learned from other workloads, so that a handful of modes is enough; one
    will do. Every further mode moves parameters and discrepancy together. What is asked at another batch size or task
    than was profiled is answered from the prior, with the interval that follows.
    """

    name = "physical-gp"
    # Tables of other workloads. Those of the same board tell about the board; which are is known where `board` is
    # given, and left to the evidence of the profiled modes where it is not.
    references: Tuple[Table, ...] = ()
    space: Optional[PowerModeSpace] = None  # power modes that may be asked for; any where it is None
    board: Optional[str] = None  # the device that is learned, as the corpus calls it
    starts: int = 4  # how many explanations of few modes are looked for
    seed: int = 0  # of those, and of the sample that is learned from where modes are very many

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        if len(rows.modes) > _MOST_ROWS:
            kept = np.sort(np.random.default_rng(self.seed).choice(len(rows.modes), _MOST_ROWS, replace=False))
            rows, time_ms, power_mw = rows.take(kept), time_ms[kept], power_mw[kept]
        starts = self.starts if len(rows.modes) <= _FEW_ROWS else 1
        priors = priors_for(self.references, self.board)
        self.posterior_ = learn(features(rows), time_ms, mw_to_w(power_mw), priors, starts, self.seed)

    def _infer(self, rows: Inputs) -> Prediction:
        log_time, log_power = infer(self.posterior_, features(rows))
        time_log_sd, power_log_sd = np.sqrt(log_time.variance), np.sqrt(log_power.variance)
        return Prediction(np.exp(log_time.mean), w_to_mw(np.exp(log_power.mean)), time_log_sd, power_log_sd, TAILS)


def priors_for(references: Sequence[Table], board: Optional[str] = None) -> Tuple[Prior, ...]:
    """Priors of a workload not profiled yet, on a board that may be unknown: alternatives for the evidence to weigh."""
    here = [table for table in references if board is None or table.device == board]
    if not here:
        return (any_board(),)
    boards = sorted({table.device for table in here})
    alternatives = [same_board([_learn_reference(table) for table in here if table.device == name]) for name in boards]
    return (*alternatives, *([any_board()] if board is None else []))


def _learn_reference(table: Table) -> Prior:
    """What a table tells of the parameters; computed once for each table in a process."""
    if table.fingerprint not in _LEARNED_REFERENCES:
        known = np.flatnonzero(np.isfinite(table.power_mw))
        if len(known) == 0:
            raise InvalidValueError(
                f"the reference {table.workload} on {table.device} has no mode with time and power", "leave it out"
            )
        if len(known) > _REFERENCE_ROWS:
            known = np.sort(np.random.default_rng(0).choice(known, _REFERENCE_ROWS, replace=False))
        part = table.take(known)
        at = features(table_inputs(part))
        posterior = learn(at, part.time_ms, mw_to_w(part.power_mw), (any_board(),), starts=3, seed=0)
        best = int(np.argmax(posterior.weight))
        sd = any_board().sd
        sd[posterior.free] = np.sqrt(np.diag(posterior.covariance[best]))
        _LEARNED_REFERENCES[table.fingerprint] = Prior(posterior.theta[best], sd)
    return _LEARNED_REFERENCES[table.fingerprint]
