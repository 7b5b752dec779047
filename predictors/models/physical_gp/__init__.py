"""A predictor that combines a physical model of a training step with a Gaussian process (Kennedy and O'Hagan)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple, Union

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerModeSpace
from harness.core.units import mw_to_w, w_to_mw
from predictors.forecast import Forecast
from predictors.models.base import Predictor
from predictors.models.physical_gp import power_limit
from predictors.models.physical_gp.alternatives import FORM_ALONE, of_other_board
from predictors.models.physical_gp.draws import draw
from predictors.models.physical_gp.posterior import TAILS, ParameterPosterior, before_profiling, infer, learn
from predictors.models.physical_gp.power_limit import LimitPosterior
from predictors.models.physical_gp.prior import Counts, Hierarchy, priors_for, read_hierarchy
from predictors.models.physical_gp.response import features
from predictors.profiles import Profiles
from predictors.settings import Settings

MOST_ROWS = 600  # rows to fit on; of more, a sample is used: the cost grows with their cube
DOUBTFUL = 0.06  # weight of a row some 7.5 standard deviations off
FEW_ROWS = 200  # up to which several parameter sets may explain the response


@dataclass(eq=False)
class PhysicalGP(Predictor):
    """A physical model of minibatch time and power, and a Gaussian process for its residuals.

    The parameters of the model have a prior learned from other workloads, so that a handful of modes is enough; one is
    the minimum. Every further mode updates parameters and discrepancy together. Predictions at a batch size or task
    that was not profiled come from the prior, with the interval that follows. With operation counts of the network and
    of references on the board, no mode is needed. Rows with a power limit, of discrete GPUs, have a form and a prior of
    their own (`power_limit`).
    """

    name = "physical-gp"
    least_modes = 0
    # Tables of other workloads, and of this one on other boards. Those of the same board inform about the board:
    # `board` says which they are; without it the evidence of the profiled modes decides.
    references: Tuple[Profiles, ...] = ()
    space: Optional[PowerModeSpace] = None  # the power modes to predict; any if None
    board: Optional[str] = None  # name of the device in the corpus
    workload: Optional[str] = None  # likewise
    hierarchy: Optional[Hierarchy] = None  # a prior made by `jetwatt prior learn`; None for the suite's
    counts: Optional[Dict[str, Counts]] = None  # operation counts of networks by workload; used without profiled modes
    starts: int = 4  # number of starts of the optimisation with few modes
    seed: int = 0  # of the starts, and of the sample of very many modes

    def _learn(self, rows: Settings, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        if len(rows.modes) > MOST_ROWS:
            kept = np.sort(np.random.default_rng(self.seed).choice(len(rows.modes), MOST_ROWS, replace=False))
            rows, time_ms, power_mw = rows.take(kept), time_ms[kept], power_mw[kept]
        if rows.power_limit_mw is not None:
            self._learn_under_limits(rows, time_ms, power_mw)
            return
        starts = self.starts if len(rows.modes) <= FEW_ROWS else 1
        # With even one profile, the counts of two other networks make predictions worse.
        counts = None if len(time_ms) else self.counts
        references = tuple(table for table in self.references if table.power_limit_mw is None)
        priors = priors_for(references, self.board, self.workload, self.hierarchy, counts)
        if not len(time_ms):
            if not priors[0].in_ms:
                hint = "profile a mode, or give counts of the network and of references on this board"
                raise InvalidValueError(f"{self.name} cannot scale the time of {self.workload} on {self.board}", hint)
            self.posterior_: Union[ParameterPosterior, LimitPosterior] = before_profiling(priors[0])
            return
        power_w = None if np.isnan(power_mw).all() else mw_to_w(power_mw)
        known_board = self.board in (self.hierarchy or read_hierarchy()).own
        alternatives = FORM_ALONE if known_board else of_other_board(rows)
        self.posterior_ = learn(features(rows), time_ms, power_w, priors, starts, self.seed, alternatives)

    def _learn_under_limits(self, rows: Settings, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        """Fit the form of a GPU under power limits, whose prior comes from other GPUs and workloads."""
        prior = power_limit.prior_for(self.references, self.board, self.workload)
        greatest_khz = None if self.space is None else float(self.space.gpu_khz[-1])
        if not len(time_ms):
            if not power_limit.knows_time(self.references, self.workload):
                hint = "profile a setting, or give the same workload on another GPU as a reference"
                raise InvalidValueError(f"{self.name} cannot scale the time of {self.workload} on {self.board}", hint)
            self.posterior_ = power_limit.before_profiling(prior, greatest_khz or 1.0)
            return
        self.posterior_ = power_limit.learn(rows, time_ms, power_mw, prior, greatest_khz, seed=self.seed)

    def doubtful(self) -> np.ndarray:
        """Indices into `training_rows_` of the rows that all others contradict; their weight is next to nothing."""
        if isinstance(self.posterior_, LimitPosterior):
            return np.array([], dtype=int)  # every row counts alike
        if len(self.posterior_.rows) < len(self.training_rows_.time_ms):
            return np.array([], dtype=int)  # fitted on a sample
        weight = self.posterior_.row_weight[int(np.argmax(self.posterior_.weight))]
        return np.flatnonzero((weight < DOUBTFUL).any(axis=0))

    def _draw(self, rows: Settings, count: int, seed: int) -> Forecast:
        if isinstance(self.posterior_, LimitPosterior):
            return _forecast(rows, *power_limit.draw(self.posterior_, rows, count, seed))
        if len(self.posterior_.data) < 2 or not self.posterior_.data.size:  # without power, or a row
            return self._infer(rows)
        mean, variance = draw(self.posterior_, features(rows), count, seed)
        return _forecast(rows, np.swapaxes(mean, 0, 1), np.swapaxes(variance, 0, 1), TAILS)

    def _infer(self, rows: Settings) -> Forecast:
        if isinstance(self.posterior_, LimitPosterior):
            return _forecast(rows, *power_limit.infer(self.posterior_, rows), self.posterior_.freedom)
        mean, variance = infer(self.posterior_, features(rows))
        if len(mean) == 1:  # time only
            mean, variance = (np.concatenate([part, np.full_like(part, np.nan)]) for part in (mean, variance))
        return _forecast(rows, mean, variance, TAILS)


def _forecast(rows: Settings, mean: np.ndarray, variance: np.ndarray, freedom: float = float("inf")) -> Forecast:
    """The forecast by log time (ms) and log power (W), shape (2, ...)."""
    sd = np.sqrt(variance)
    return Forecast(rows, mean[0], sd[0], mean[1] + np.log(w_to_mw(1.0)), sd[1], freedom)
