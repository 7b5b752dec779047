"""The prior: what other workloads, on this board and on any, tell of the parameters before a profile was taken.

A parameter of a workload is normal around that of its board with the deviation between `workloads`, and that of a
board around the family's `mean` with the deviation between `boards`. `prior.toml` holds these three, made by
`learning.py`.
Reference tables, learned as any workload is, tell about the board's part, and of the same workload elsewhere a share of
its own; the rest stays open.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.files import read_toml
from harness.core.units import mw_to_w
from predictors.models.base import Inputs
from predictors.models.physical_gp.posterior import learn
from predictors.models.physical_gp.response import PARAMETERS, TIME_SCALES, Features, features, log_response
from predictors.models.regression import table_inputs
from predictors.models.tables import Table

SHIPPED = Path(__file__).with_name("prior.toml")
REFERENCE_ROWS = 400  # of a table that are learned
SAME_WORKLOAD = 0.5  # share of the variance between workloads that one has on every board; set by hand
_UNTOLD = 1e6  # variance of what a table tells nothing of
_FURTHEST = 2.0  # from the prior's mean that a table tells, in standard deviations


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """What is known of the parameters of workloads on boards; arrays of shape (d,)."""

    mean: np.ndarray
    workloads: np.ndarray  # standard deviation between workloads of a board
    boards: np.ndarray  # and between boards


class Prior(NamedTuple):
    """An independent normal prior of each parameter; arrays of shape (d,)."""

    mean: np.ndarray
    sd: np.ndarray

    def centred(self, at: Features) -> Prior:
        """Moved to the unit of time in which the mean log time of the rows is 0."""
        mean = self.mean.copy()
        mean[: len(TIME_SCALES)] -= self.level(at)
        return self._replace(mean=mean)

    def level(self, at: Features) -> float:
        """The mean log time of the rows, in the unit of the parameters."""
        return float(log_response(self.mean, at)[: len(at.cores)].mean())


class Told(NamedTuple):
    """What tables tell of the parameters, the prior under which they were learned taken out; arrays of shape (d,)."""

    mean: np.ndarray
    variance: np.ndarray


@functools.lru_cache(maxsize=None)
def read_hierarchy(path: Path = SHIPPED) -> Hierarchy:
    """A prior that `jetwatt prior learn` wrote; by default the one that comes with the suite."""
    content = read_toml(path)
    try:
        return Hierarchy(*np.array([content[name] for name in PARAMETERS], dtype=float).reshape(-1, 3).T)
    except (KeyError, TypeError, ValueError) as error:
        hint = "name a file that `prior learn --out` wrote"
        raise InvalidValueError(f"{path} holds no prior of {len(PARAMETERS)} parameters: {error!r}", hint) from error


def any_board(hierarchy: Optional[Hierarchy] = None) -> Prior:
    """Of a workload and a board that nothing is known of."""
    known = hierarchy or read_hierarchy()
    return Prior(known.mean.copy(), np.hypot(known.workloads, known.boards))


def given(
    references: Sequence[Table], board: Optional[str], workload: Optional[str], hierarchy: Optional[Hierarchy] = None
) -> Prior:
    """Of a workload on a board, given tables of others: normal as the hierarchy is, so a conditional one."""
    known = hierarchy or read_hierarchy()
    told = [learn_reference(table, known) for table in references]
    near = np.array([table.device == board for table in references], dtype=float)
    alike = SAME_WORKLOAD * np.array([table.workload == workload for table in references])
    alike[near > 0] *= 1 / SAME_WORKLOAD
    boards, workloads = np.square(known.boards)[:, None], np.square(known.workloads)[:, None]
    reach = boards * near + workloads * alike  # covariance of the workload with each reference, (d, r)
    devices = np.array([[one.device == other.device for other in references] for one in references])
    same = np.array([[one.workload == other.workload for other in references] for one in references])
    between = boards[..., None] * devices + workloads[..., None] * same * np.where(devices, 1.0, SAME_WORKLOAD)
    between = between + np.array([one.variance for one in told]).T[..., None] * np.eye(len(told))
    gain = np.linalg.solve(between, reach[..., None])[..., 0]
    mean = known.mean + (gain * (np.array([one.mean for one in told]).T - known.mean[:, None])).sum(1)
    return Prior(mean, np.sqrt(np.maximum((boards + workloads)[:, 0] - (gain * reach).sum(1), 1e-8)))


def priors_for(
    references: Sequence[Table],
    board: Optional[str] = None,
    workload: Optional[str] = None,
    hierarchy: Optional[Hierarchy] = None,
) -> Tuple[Prior, ...]:
    """Priors of a workload not profiled yet, on a board that may be unknown: alternatives for the evidence to weigh."""
    if not references:
        return (any_board(hierarchy),)
    if board is not None:
        return (given(references, board, workload, hierarchy),)
    boards = sorted({table.device for table in references})
    return (*(given(references, name, workload, hierarchy) for name in boards), any_board(hierarchy))


@functools.lru_cache(maxsize=None)
def learn_reference(table: Table, hierarchy: Hierarchy) -> Told:
    """What a table tells of the parameters."""
    return learn_tables((table,), any_board(hierarchy), REFERENCE_ROWS)


def learn_tables(tables: Sequence[Table], prior: Prior, most_rows: int, starts: int = 3) -> Told:
    """What tables of one workload on one board tell of its parameters.

    Of each table at most so many rows, always the same, are learned.
    """
    parts = []
    for table in tables:
        part = table.usable()
        if len(part) > most_rows:
            part = part.take(np.sort(np.random.default_rng(0).choice(len(part), most_rows, replace=False)))
        parts.append(part)
    at = features(Inputs(*(np.concatenate(column) for column in zip(*map(table_inputs, parts)))))
    time_ms, power_mw = (np.concatenate([getattr(part, name) for part in parts]) for name in ("time_ms", "power_mw"))
    power_w = None if np.isnan(power_mw).any() else mw_to_w(power_mw)
    posterior = learn(at, time_ms, power_w, (prior,), starts, seed=0)
    best, free = int(np.argmax(posterior.weight)), posterior.free
    found = posterior.theta[best].copy()
    found[: len(TIME_SCALES)] += prior.level(at)
    told, before = np.diag(posterior.covariance[best]), np.square(prior.sd[free])
    precision = np.maximum(1 / told - 1 / before, 1 / _UNTOLD)
    offset = (found[free] - prior.mean[free]) / told / precision
    # Where the rows say little, the curvature at the minimum may promise less than it moved: no normal would do so.
    furthest = _FURTHEST * np.sqrt(before + 1 / precision)
    mean, variance = prior.mean.copy(), np.full(len(found), _UNTOLD)
    mean[free] += np.clip(offset, -furthest, furthest)
    variance[free] = 1 / precision
    return Told(mean, variance)
