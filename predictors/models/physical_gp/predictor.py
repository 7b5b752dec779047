"""The predictor: physical form, discrepancy and references behind the protocol of predictors."""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerModeSpace
from harness.core.units import mw_to_w, w_to_mw
from predictors.models.physical_gp.calibration import TAILS
from predictors.models.physical_gp.posterior import Posterior, infer, learn
from predictors.models.physical_gp.prior import Belief, any_board, same_board
from predictors.models.physical_gp.response import features
from predictors.models.protocol import Inputs, Prediction, Predictor, State
from predictors.tables import Table

_MOST_ROWS = 600  # that are learned from: a sample of more, since the cost grows with their cube
_FEW_ROWS = 200  # up to which the response may have several explanations
_REFERENCE_ROWS = 400
_LEARNED_REFERENCES: Dict[str, Belief] = {}


class PhysicalGP(Predictor):
    """A physical model of minibatch time and power, and a Gaussian process for what it leaves over.

    The parameters of the model have a prior learned from other workloads, so that a handful of modes is enough; one
    will do. Every further mode moves parameters and discrepancy together. What is asked at another batch size or task
    than was profiled is answered from the prior, with the interval that follows.
    """

    name = "physical-gp"

    def __init__(
        self,
        references: Tuple[Table, ...] = (),
        space: Optional[PowerModeSpace] = None,
        board: Optional[str] = None,
        starts: int = 4,
        seed: int = 0,
    ) -> None:
        """A predictor that has learned nothing.

        Args:
            references: tables of other workloads. Those of the same board tell about the board; which are is known
                where `board` is given, and left to the evidence of the profiled modes where it is not.
            space: power modes that may be asked for; any where it is None.
            board: the device that is learned, as the corpus calls it.
            starts: how many explanations of few modes are looked for.
            seed: of those, and of the sample that is learned from where modes are very many.
        """
        self.references = references
        self.space = space
        self.board = board
        self.starts = starts
        self.seed = seed

    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        if len(rows.modes) > _MOST_ROWS:
            kept = np.sort(np.random.default_rng(self.seed).choice(len(rows.modes), _MOST_ROWS, replace=False))
            rows, time_ms, power_mw = Inputs(*(part[kept] for part in rows)), time_ms[kept], power_mw[kept]
        starts = self.starts if len(rows.modes) <= _FEW_ROWS else 1
        beliefs = beliefs_about(self.references, self.board)
        self.posterior_ = learn(features(rows), time_ms, mw_to_w(power_mw), beliefs, starts, self.seed)

    def _infer(self, rows: Inputs) -> Prediction:
        log_time, log_power = infer(self.posterior_, features(rows))
        time_log_sd, power_log_sd = np.sqrt(log_time.variance), np.sqrt(log_power.variance)
        return Prediction(np.exp(log_time.mean), w_to_mw(np.exp(log_power.mean)), time_log_sd, power_log_sd, TAILS)

    def state(self) -> State:
        """What was learned; references are no part of it."""
        return State({}, self.posterior_._asdict())

    def restore(self, state: State) -> None:
        """Take what `state` gave.

        Raises:
            InvalidValueError: it is not of this predictor.
        """
        if set(state.arrays) != set(Posterior._fields):
            raise InvalidValueError(
                f"what was saved is not of {self.name}: it holds {', '.join(sorted(state.arrays)) or 'nothing'}",
                f"expected {', '.join(Posterior._fields)}",
            )
        self.posterior_ = Posterior(**state.arrays)


def beliefs_about(references: Sequence[Table], board: Optional[str] = None) -> Tuple[Belief, ...]:
    """What may be believed of a workload before it is profiled: alternatives, for the evidence to weigh.

    Args:
        references: tables of other workloads.
        board: what is to be profiled; unknown where it is None.
    """
    here = [table for table in references if board is None or table.device == board]
    if not here:
        return (any_board(),)
    boards = sorted({table.device for table in here})
    alternatives = [same_board([_learn_reference(table) for table in here if table.device == name]) for name in boards]
    return (*alternatives, *([any_board()] if board is None else []))


def _learn_reference(table: Table) -> Belief:
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
        inference = np.full(len(part), part.task == "inference")
        at = features(Inputs(part.modes.astype(float), part.batch_size.astype(float), inference))
        posterior = learn(at, part.time_ms, mw_to_w(part.power_mw), (any_board(),), starts=3, seed=0)
        best = int(np.argmax(posterior.weight))
        sd = any_board().sd
        sd[posterior.free] = np.sqrt(np.diag(posterior.covariance[best]))
        _LEARNED_REFERENCES[table.fingerprint] = Belief(posterior.theta[best], sd)
    return _LEARNED_REFERENCES[table.fingerprint]
