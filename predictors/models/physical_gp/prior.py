"""The prior: what other workloads, on this board and on any, tell of the parameters before a profile was taken.

`prior.toml` holds it for any board. A parameter of a workload is that of its board, N(mean, boards^2), plus
N(0, workloads^2): reference tables, learned as any workload is, tell about the board's part, the workload's own part
stays open.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.files import read_toml
from harness.core.units import mw_to_w
from predictors.models.physical_gp.posterior import learn
from predictors.models.physical_gp.response import PARAMETERS, TIME_SCALES, Features, features, log_response
from predictors.models.regression import table_inputs
from predictors.models.tables import Table

REFERENCE_ROWS = 400  # of a table that are learned
_FITTED = read_toml(Path(__file__).with_name("prior.toml"))
_MEAN, _WORKLOADS, _BOARDS = np.array([_FITTED[name] for name in PARAMETERS]).T


class Prior(NamedTuple):
    """An independent normal prior of each parameter; arrays of shape (d,)."""

    mean: np.ndarray
    sd: np.ndarray

    def centred(self, at: Features) -> Prior:
        """Moved to the unit of time in which the mean log time of the rows is 0."""
        mean = self.mean.copy()
        mean[: len(TIME_SCALES)] -= log_response(mean, at)[: len(at.cores)].mean()
        return self._replace(mean=mean)


def any_board() -> Prior:
    """Of a workload and a board that nothing is known of."""
    return Prior(_MEAN.copy(), np.hypot(_WORKLOADS, _BOARDS))


def same_board(references: Sequence[Prior]) -> Prior:
    """Of a workload on a board on which others were profiled."""
    precision = 1 / np.maximum(_BOARDS, 1e-6) ** 2
    total = precision * _MEAN
    for reference in references:
        weight = 1 / (_WORKLOADS**2 + reference.sd**2)
        precision = precision + weight
        total = total + weight * reference.mean
    return Prior(total / precision, np.sqrt(_WORKLOADS**2 + 1 / precision))


def priors_for(references: Sequence[Table], board: Optional[str] = None) -> Tuple[Prior, ...]:
    """Priors of a workload not profiled yet, on a board that may be unknown: alternatives for the evidence to weigh."""
    here = [table for table in references if board is None or table.device == board]
    if not here:
        return (any_board(),)
    boards = sorted({table.device for table in here})
    alternatives = [same_board([learn_reference(table) for table in here if table.device == name]) for name in boards]
    return (*alternatives, *([any_board()] if board is None else []))


@functools.lru_cache(maxsize=None)
def learn_reference(table: Table) -> Prior:
    """What a table tells of the parameters."""
    part = table.usable()
    if len(part) > REFERENCE_ROWS:
        part = part.take(np.sort(np.random.default_rng(0).choice(len(part), REFERENCE_ROWS, replace=False)))
    at = features(table_inputs(part))
    power_w = mw_to_w(part.power_mw) if part.has_power else None
    posterior = learn(at, part.time_ms, power_w, (any_board(),), starts=3, seed=0)
    best = int(np.argmax(posterior.weight))
    sd = any_board().sd
    sd[posterior.free] = np.sqrt(np.diag(posterior.covariance[best]))
    return Prior(posterior.theta[best], sd)
