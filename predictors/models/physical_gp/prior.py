"""The prior: what other workloads, on this board and on any, tell of the parameters before a profile was taken.

A parameter of a workload is normal around that of its board with the deviation between `workloads`, and that of a
board around the family's `mean` with the deviation between `boards`. `prior.toml` holds these three, and what its
tables tell of their own boards, with correlations: the power of a board is known far better than each of its parts. It
is made by `learning.py`.

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
FORMAT = 1  # of the files that hold a prior
ROWS = 120  # of a table that are learned: of more it would seem surer than the form is true
SAME_WORKLOAD = 0.5  # share of the variance between workloads that one has on every board; set by hand
BYTES_PER_PARAMETER = 32.0  # of memory traffic that training a minibatch takes beside that of its samples
# How far the logarithms of TIME_SCALES of networks on a board differ beside what is counted; set by hand, with the
# three networks of the measured tables of an Orin AGX in view.
COUNTED_SD = np.array([0.4, 0.5, 0.5, 1.2, 1.2, 1.0])
_UNTOLD = 1e4  # variance of what a table tells nothing of, in those of its prior
_FURTHEST = 2.0  # from the prior's mean that a table tells, in standard deviations


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """What is known of the parameters of workloads on boards; arrays of shape (d,)."""

    mean: np.ndarray
    workloads: np.ndarray  # standard deviation between workloads of a board
    boards: np.ndarray  # and between boards
    # of boards that it was learned on: what workloads there vary around, and below it the covariance, (1 + d, d)
    own: Dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    learned_from: Tuple[str, ...] = ()  # tables, as `described` has them

    def on_board(self, board: Optional[str]) -> Tuple[np.ndarray, np.ndarray]:
        """What workloads on a board vary around, (d,), and its covariance, (d, d); the family's of an unknown one."""
        part = self.own.get(board or "")
        return (self.mean, np.diag(self.boards**2)) if part is None else (part[0], part[1:])

    def shared(
        self, one: Tuple[Optional[str], Optional[str]], other: Tuple[Optional[str], Optional[str]]
    ) -> np.ndarray:
        """Covariance of the parameters of two, each a workload on a board: (board, workload); shape (d, d)."""
        same_board, same_workload = one[0] == other[0], one[1] == other[1]
        of_workload = same_workload * (1.0 if same_board else SAME_WORKLOAD) * np.diag(self.workloads**2)
        return of_workload + same_board * self.on_board(one[0])[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> bytes:
        """Equal where it says the same, as a copy in another process does: references are learned once in each."""
        parts = np.vstack([self.mean, self.workloads, self.boards, *self.own.values()])
        return parts.tobytes() + repr((list(self.own), self.learned_from)).encode()


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
    """A normal prior of the parameters."""

    mean: np.ndarray  # shape (d,)
    covariance: np.ndarray  # (d, d)
    in_ms: bool = False  # whether the unit of time is the millisecond, as where counts are known, or any

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations, shape (d,)."""
        return np.sqrt(np.diag(self.covariance))

    def centred(self, at: Features) -> Prior:
        """Moved to the unit of time in which the mean log time of the rows is 0."""
        mean = self.mean.copy()
        mean[: len(TIME_SCALES)] -= self.level(at)
        return self._replace(mean=mean)

    def level(self, at: Features) -> float:
        """The mean log time of the rows, in the unit of the parameters."""
        return float(log_response(self.mean, at)[: len(at.cores)].mean())


class Told(NamedTuple):
    """What tables tell of the parameters, the prior under which they were learned taken out."""

    mean: np.ndarray  # shape (d,)
    covariance: np.ndarray  # (d, d)
    unit: float = 0.0  # what is added to the logarithm of a time in units of the parameters to get log milliseconds


@functools.lru_cache(maxsize=None)
def read_hierarchy(path: Path = SHIPPED) -> Hierarchy:
    """A prior that `jetwatt prior learn` wrote; by default the one that comes with the suite.

    Raises:
        InvalidValueError: the file has another format, or holds no prior.
    """
    content = read_toml(path)
    if content.get("format") != FORMAT:
        raise InvalidValueError(
            f"prior {path} has format {content.get('format', 'none')}, this jetwatt reads format {FORMAT}",
            "learn it again: jetwatt prior learn",
        )
    try:
        family = np.array([content[name] for name in PARAMETERS], dtype=float).reshape(-1, 3).T
        own = {}
        for board, part in content.get("board", {}).items():
            mean, sd = np.array([part[name][:2] for name in PARAMETERS], dtype=float).T
            correlation = np.eye(len(mean))
            for place, name in enumerate(PARAMETERS):
                correlation[place, :place] = correlation[:place, place] = part[name][2:]
            own[board] = np.vstack([mean, correlation * np.outer(sd, sd)])
        return Hierarchy(*family, own, tuple(content.get("learned_from", ())))
    except (KeyError, TypeError, ValueError) as error:
        hint = "name a file that `prior learn --out` wrote"
        raise InvalidValueError(f"{path} holds no prior of {len(PARAMETERS)} parameters: {error!r}", hint) from error


def any_board(hierarchy: Optional[Hierarchy] = None, board: Optional[str] = None) -> Prior:
    """Of a workload that nothing is known of, on a board that the hierarchy may know."""
    known = hierarchy or read_hierarchy()
    return Prior(known.on_board(board)[0].copy(), known.shared((board, ""), (board, "")))


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
    # What this board's other workloads tell of it is in the prior where it has learned from them.
    new = [
        table
        for table in references
        if table.device != board or table.workload == workload or described(table) not in known.learned_from
    ]
    told = [learn_reference(table, known) for table in new]
    names = [(board, workload), *((table.device, table.workload) for table in new)]
    joint = np.block([[known.shared(one, other) for other in names] for one in names])
    size = len(PARAMETERS)
    for place, one in enumerate(told, start=1):
        joint[place * size : (place + 1) * size, place * size : (place + 1) * size] += one.covariance
    gain = np.linalg.solve(joint[size:, size:], joint[size:, :size]).T
    off = np.array([one.mean - known.on_board(table.device)[0] for table, one in zip(new, told)]).reshape(-1)
    covariance = joint[:size, :size] - gain @ joint[size:, :size]
    found = Prior(known.on_board(board)[0] + gain @ off, (covariance + covariance.T) / 2)
    if not counts or workload not in counts:
        return found
    scales, usual, rates, precisions = slice(len(TIME_SCALES)), any_board(known), [], []
    for table in references:
        if table.device == board and table.workload in counts:
            one = learn_reference(table, known)
            weight = usual.covariance @ np.linalg.inv(usual.covariance + one.covariance)
            own = usual.mean + weight @ (one.mean - usual.mean) + one.unit
            rates.append(own[scales] - counts[table.workload].log_scales())
            precisions.append(1 / (np.diag(weight @ one.covariance)[scales] + COUNTED_SD**2))
    if not rates:
        return found
    precision = np.array(precisions)
    found.mean[scales] = counts[workload].log_scales() + (precision * rates).sum(0) / precision.sum(0)
    found.covariance[scales] = found.covariance[:, scales] = 0
    found.covariance[scales, scales] = np.diag(COUNTED_SD**2 + 1 / precision.sum(0))
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
    return learn_tables((table,), any_board(hierarchy))


def learn_tables(tables: Sequence[Table], prior: Prior, starts: int = 3) -> Told:
    """What tables of one workload on one board tell of its parameters.

    Of each table at most `ROWS` rows, always the same, are learned.
    """
    parts = []
    for table in tables:
        part = table.usable()
        if len(part) > ROWS:
            part = part.take(np.sort(np.random.default_rng(0).choice(len(part), ROWS, replace=False)))
        parts.append(part)
    at = features(Inputs(*(np.concatenate(column) for column in zip(*map(table_inputs, parts)))))
    time_ms, power_mw = (np.concatenate([getattr(part, name) for part in parts]) for name in ("time_ms", "power_mw"))
    power_w = None if np.isnan(power_mw).any() else mw_to_w(power_mw)
    posterior = learn(at, time_ms, power_w, (prior,), starts, seed=0)
    best, free = int(np.argmax(posterior.weight)), posterior.free
    found = posterior.theta[best].copy()
    found[: len(TIME_SCALES)] += prior.level(at)
    # The prior is taken out in directions in which both are independent, prior variances being 1.
    root = np.linalg.cholesky(prior.covariance[np.ix_(free, free)])
    within = root.T @ np.linalg.inv(posterior.covariance[best]) @ root
    precision, turn = np.linalg.eigh(within - np.eye(len(free)))
    precision = np.maximum(precision, 0)
    pull = turn.T @ np.linalg.solve(root, found[free] - prior.mean[free]) * (1 + precision)
    # Where the rows say little, the curvature at the minimum may promise less than it moved: no normal would do so.
    furthest = _FURTHEST * np.sqrt(precision * (1 + precision))
    spread = 1 / np.maximum(precision, 1 / _UNTOLD)
    mean, covariance, back = prior.mean.copy(), _UNTOLD * np.diag(prior.sd**2), root @ turn
    mean[free] += back @ (spread * np.clip(pull, -furthest, furthest))
    covariance[np.ix_(free, free)] = back * spread @ back.T
    return Told(mean, covariance, float(posterior.unit) - prior.level(at))


def described(table: Table) -> str:
    """What a prior calls a table that it was learned from."""
    return f"{table.device}, {table.workload}, {table.task}, {table.provenance}"
