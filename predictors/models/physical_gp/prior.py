"""The prior: what other workloads, on this board and on any, tell of the parameters before a profile was taken.

A parameter of a workload is normal around that of its board with the deviation between `workloads`, and that of a
board around the family's `mean` with the deviation between `boards`. `prior.toml` holds these three, and what its
tables tell of their own boards; it is made by `learning.py`.

What is counted of networks (operations, bytes, kernels) tells of the times of their parts: on a board, a reference's
parts take so many ms for each of what is counted, and those of another network much the same.
Reference tables, learned as any workload is, tell about the board's part, and of the same workload elsewhere a share of
its own; the rest stays open.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.files import read_toml
from harness.core.units import mw_to_w
from predictors.models.base import Inputs
from predictors.models.physical_gp.posterior import learn
from predictors.models.physical_gp.response import (
    PARAMETERS,
    TIME_SCALES,
    UNIT_BATCH,
    Features,
    features,
    log_response,
)
from predictors.models.regression import table_inputs
from predictors.models.tables import Table

SHIPPED = Path(__file__).with_name("prior.toml")
REFERENCE_ROWS = 400  # of a table that are learned
SAME_WORKLOAD = 0.5  # share of the variance between workloads that one has on every board; set by hand
BYTES_PER_PARAMETER = 32.0  # of memory traffic that training a minibatch takes beside that of its samples
# How far the logarithms of TIME_SCALES of networks on a board differ beside what is counted; set by hand, with the
# three networks of the measured tables of an Orin AGX in view.
COUNTED_SD = np.array([0.4, 0.5, 0.5, 1.2, 1.2, 1.0])
_UNTOLD = 1e6  # variance of what a table tells nothing of
_FURTHEST = 2.0  # from the prior's mean that a table tells, in standard deviations


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """What is known of the parameters of workloads on boards; arrays of shape (d,)."""

    mean: np.ndarray
    workloads: np.ndarray  # standard deviation between workloads of a board
    boards: np.ndarray  # and between boards
    # of boards that it was learned on: what workloads there vary around, and the standard deviation of that, (2, d)
    own: Dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def on_board(self, board: Optional[str]) -> np.ndarray:
        """What workloads on a board vary around and its standard deviation, (2, d); the family's of an unknown one."""
        return self.own.get(board or "", np.array([self.mean, self.boards]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> bytes:
        """Equal where it says the same, as a copy in another process does: references are learned once in each."""
        parts = np.vstack([self.mean, self.workloads, self.boards, *self.own.values()])
        return parts.tobytes() + repr(list(self.own)).encode()


class Counts(NamedTuple):
    """What is counted of a network; of the forward pass of one sample where nothing else is said."""

    flops_forward: float
    activation_bytes: float
    kernels_forward: float
    parameters: float  # of the network
    input_bytes: float

    def log_scales(self) -> np.ndarray:
        """The logarithms of what `TIME_SCALES` are taken to grow with, shape (6,)."""
        traffic = 3 * UNIT_BATCH * self.activation_bytes + BYTES_PER_PARAMETER * self.parameters
        return np.log([self.flops_forward, traffic, self.kernels_forward, self.input_bytes, self.kernels_forward, 1.0])


class Prior(NamedTuple):
    """An independent normal prior of each parameter; arrays of shape (d,)."""

    mean: np.ndarray
    sd: np.ndarray
    in_ms: bool = False  # whether the unit of time is the millisecond, as where counts are known, or any

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
    unit: float = 0.0  # what is added to the logarithm of a time in units of the parameters to get log milliseconds


@functools.lru_cache(maxsize=None)
def read_hierarchy(path: Path = SHIPPED) -> Hierarchy:
    """A prior that `jetwatt prior learn` wrote; by default the one that comes with the suite."""
    content = read_toml(path)
    try:
        family = np.array([content[name] for name in PARAMETERS], dtype=float).reshape(-1, 3).T
        boards = {board: part for board, part in content.items() if isinstance(part, dict)}
        own = {
            board: np.array([part[name] for name in PARAMETERS], dtype=float).reshape(-1, 2).T
            for board, part in boards.items()
        }
        return Hierarchy(*family, own)
    except (KeyError, TypeError, ValueError) as error:
        hint = "name a file that `prior learn --out` wrote"
        raise InvalidValueError(f"{path} holds no prior of {len(PARAMETERS)} parameters: {error!r}", hint) from error


def any_board(hierarchy: Optional[Hierarchy] = None, board: Optional[str] = None) -> Prior:
    """Of a workload that nothing is known of, on a board that the hierarchy may know."""
    known = hierarchy or read_hierarchy()
    mean, sd = known.on_board(board)
    return Prior(mean.copy(), np.hypot(known.workloads, sd))


def given(
    references: Sequence[Table],
    board: Optional[str],
    workload: Optional[str],
    hierarchy: Optional[Hierarchy] = None,
    counts: Optional[Mapping[str, Counts]] = None,
) -> Prior:
    """Of a workload on a board, given tables of others: normal as the hierarchy is, so a conditional one.

    Where `counts` of the workload and of others on the board are given, the times of its parts follow from these.
    """
    known = hierarchy or read_hierarchy()
    told = [learn_reference(table, known) for table in references]
    near = np.array([table.device == board for table in references], dtype=float)
    # References of the board tell of it themselves; the hierarchy may have learned it from these very tables.
    mean, open_board = known.on_board(None if near.any() else board)
    alike = SAME_WORKLOAD * np.array([table.workload == workload for table in references])
    alike[near > 0] *= 1 / SAME_WORKLOAD
    boards, workloads = np.square(open_board)[:, None], np.square(known.workloads)[:, None]
    reach = boards * near + workloads * alike  # covariance of the workload with each reference, (d, r)
    devices = np.array([[one.device == other.device for other in references] for one in references])
    same = np.array([[one.workload == other.workload for other in references] for one in references])
    between = np.square(known.boards)[:, None, None] * devices
    between = between + workloads[..., None] * same * np.where(devices, 1.0, SAME_WORKLOAD)
    between = between + np.array([one.variance for one in told]).T[..., None] * np.eye(len(told))
    gain = np.linalg.solve(between, reach[..., None])[..., 0]
    mean = mean + (gain * (np.array([one.mean for one in told]).T - known.mean[:, None])).sum(1)
    found = Prior(mean, np.sqrt(np.maximum((boards + workloads)[:, 0] - (gain * reach).sum(1), 1e-8)))
    counts = counts or {}
    scales, usual, rates, precisions = slice(len(TIME_SCALES)), any_board(known), [], []
    for one, table in zip(told, references):
        if table.device == board and table.workload in counts:
            variance = 1 / (1 / one.variance + 1 / usual.sd**2)
            own = variance * (one.mean / one.variance + usual.mean / usual.sd**2) + one.unit
            rates.append(own[scales] - counts[table.workload].log_scales())
            precisions.append(1 / (variance[scales] + COUNTED_SD**2))
    if workload not in counts or not rates:
        return found
    precision = np.array(precisions)
    found.mean[scales] = counts[workload].log_scales() + (precision * rates).sum(0) / precision.sum(0)
    found.sd[scales] = np.sqrt(COUNTED_SD**2 + 1 / precision.sum(0))
    return found._replace(in_ms=True)


def priors_for(
    references: Sequence[Table],
    board: Optional[str] = None,
    workload: Optional[str] = None,
    hierarchy: Optional[Hierarchy] = None,
    counts: Optional[Mapping[str, Counts]] = None,
) -> Tuple[Prior, ...]:
    """Priors of a workload not profiled yet, on a board that may be unknown: alternatives for the evidence to weigh."""
    if not references:
        return (any_board(hierarchy, board),)
    if board is not None:
        return (given(references, board, workload, hierarchy, counts),)
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
    return Told(mean, variance, float(posterior.unit) - prior.level(at))
