"""The prior: the parameters expected from other workloads, on this board and on any, before the first profile.

A parameter of a workload is normal around that of its board with the deviation between `workloads`, and that of a
board around the family's `mean` with the deviation between `boards`. `prior.toml` holds these three and the posterior
of the boards of its tables, with correlations: the power of a board is far more certain than each of its parts. It is
made by `learning.py`.

Counts of a network (operations, bytes, kernels) inform about the times of its parts: on a board, the parts of a
reference take a certain time per count, and those of another network about the same.
Reference tables, fitted like any workload, inform about the part of the board, and those of the same workload on
another board about a share of the workload's own part; the rest stays uncertain.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.corpus import TASKS
from harness.core.errors import InvalidValueError
from harness.core.files import read_toml
from harness.core.units import mw_to_w
from predictors.models.physical_gp.posterior import learn
from predictors.models.physical_gp.response import (
    PARAMETERS,
    TIME_SCALES,
    UNIT_BATCH,
    Features,
    features,
    log_response,
)
from predictors.profiles import Profiles
from predictors.settings import Settings

SHIPPED = Path(__file__).with_name("prior.toml")
FORMAT = 1  # of prior files
ROWS = 120  # of a table that are fitted: with more it would seem more certain than the form is exact
SAME_WORKLOAD = 0.5  # share of the variance between workloads that a workload shares on all boards; set by hand
BYTES_PER_PARAMETER = 32.0  # memory traffic of training a minibatch, in addition to that of its samples
# Standard deviation of the logarithms of TIME_SCALES between networks on a board, given their counts; set by hand on
# the three networks of the measured tables of an Orin AGX.
COUNTED_SD = np.array([0.4, 0.5, 0.5, 1.2, 1.2, 1.0])
_UNINFORMED = 1e4  # variance of directions that a table does not inform, relative to the prior's
_FURTHEST = 2.0  # the largest distance of a table's evidence from the prior mean, in standard deviations


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """A hierarchical prior of the parameters of workloads on boards; arrays of shape (d,)."""

    mean: np.ndarray
    workloads: np.ndarray  # standard deviation between workloads of a board
    boards: np.ndarray  # and between boards
    # by board that it was learned on: the mean of the workloads there, and below it its covariance, (1 + d, d)
    own: Dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    learned_from: Tuple[str, ...] = ()  # tables, as written by `describe_table`

    def on_board(self, board: Optional[str]) -> Tuple[np.ndarray, np.ndarray]:
        """The mean of the workloads on a board, (d,), and its covariance, (d, d); the family's for an unknown board."""
        part = self.own.get(board or "")
        return (self.mean, np.diag(self.boards**2)) if part is None else (part[0], part[1:])

    def shared(
        self, first: Tuple[Optional[str], Optional[str]], second: Tuple[Optional[str], Optional[str]]
    ) -> np.ndarray:
        """Covariance between the parameters of two (board, workload) pairs, shape (d, d)."""
        same_board, same_workload = first[0] == second[0], first[1] == second[1]
        of_workload = same_workload * (1.0 if same_board else SAME_WORKLOAD) * np.diag(self.workloads**2)
        return of_workload + same_board * self.on_board(first[0])[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> bytes:
        """Compares by content, so that a copy in another process is equal: references are fitted once per process."""
        parts = np.vstack([self.mean, self.workloads, self.boards, *self.own.values()])
        return parts.tobytes() + repr((list(self.own), self.learned_from)).encode()


class Counts(NamedTuple):
    """Operation counts of a network; of the forward pass of one sample unless stated otherwise."""

    flops_forward: float
    activation_bytes: float
    kernels_forward: float
    parameters: float  # of the network
    input_bytes: float

    def log_scales(self) -> np.ndarray:
        """The logarithms of the counts that `TIME_SCALES` are assumed proportional to, shape (6,)."""
        traffic = 3 * UNIT_BATCH * self.activation_bytes + BYTES_PER_PARAMETER * self.parameters
        return np.log([self.flops_forward, traffic, self.kernels_forward, self.input_bytes, self.kernels_forward, 1.0])


class Prior(NamedTuple):
    """A normal prior of the parameters."""

    mean: np.ndarray  # shape (d,)
    covariance: np.ndarray  # (d, d)
    in_ms: bool = False  # whether the unit of time is the millisecond, as with counts; otherwise it is arbitrary

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations, shape (d,)."""
        return np.sqrt(np.diag(self.covariance))

    def centred(self, at: Features) -> Prior:
        """The prior in the unit of time in which the mean log time of the rows is 0."""
        mean = self.mean.copy()
        mean[: len(TIME_SCALES)] -= self.level(at)
        return self._replace(mean=mean)

    def level(self, at: Features) -> float:
        """The mean log time of the rows, in the unit of the parameters."""
        return float(log_response(self.mean, at)[: len(at.cores)].mean())


class TableEvidence(NamedTuple):
    """The evidence of tables about the parameters, without the prior under which they were fitted."""

    mean: np.ndarray  # shape (d,)
    covariance: np.ndarray  # (d, d)
    unit: float = 0.0  # added to the logarithm of a time in units of the parameters, gives log milliseconds


@functools.lru_cache(maxsize=None)
def read_hierarchy(path: Path = SHIPPED) -> Hierarchy:
    """Read a prior that `jetwatt prior learn` wrote; by default the one that comes with the suite.

    Raises:
        InvalidValueError: the file has another format, or is not a prior.
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
        return Hierarchy(family[0], family[1], family[2], own, tuple(content.get("learned_from", ())))
    except (KeyError, TypeError, ValueError) as error:
        hint = "name a file that `prior learn --out` wrote"
        raise InvalidValueError(f"{path} is not a prior of {len(PARAMETERS)} parameters: {error!r}", hint) from error


def any_board(hierarchy: Optional[Hierarchy] = None, board: Optional[str] = None) -> Prior:
    """The prior of an unknown workload on a board, which the hierarchy may include."""
    family = hierarchy or read_hierarchy()
    return Prior(family.on_board(board)[0].copy(), family.shared((board, ""), (board, "")))


def conditional_prior(
    references: Sequence[Profiles],
    board: Optional[str],
    workload: Optional[str],
    hierarchy: Optional[Hierarchy] = None,
    counts: Optional[Mapping[str, Counts]] = None,
) -> Prior:
    """The prior of a workload on a board, conditional on tables of others; normal, as the hierarchy is.

    With `counts` of the workload and of others on the board, the times of its parts follow from these.
    """
    family = hierarchy or read_hierarchy()
    # Tables of this board that the hierarchy was learned from are part of it already.
    new = [
        table
        for table in references
        if table.device != board or table.workload == workload or describe_table(table) not in family.learned_from
    ]
    evidence = [learn_reference(table, family) for table in new]
    names = [(board, workload), *((table.device, table.workload) for table in new)]
    joint = np.block([[family.shared(first, second) for second in names] for first in names])
    size = len(PARAMETERS)
    for place, item in enumerate(evidence, start=1):
        joint[place * size : (place + 1) * size, place * size : (place + 1) * size] += item.covariance
    gain = np.linalg.solve(joint[size:, size:], joint[size:, :size]).T
    off = np.array([item.mean - family.on_board(table.device)[0] for table, item in zip(new, evidence)]).reshape(-1)
    covariance = joint[:size, :size] - gain @ joint[size:, :size]
    prior = Prior(family.on_board(board)[0] + gain @ off, (covariance + covariance.T) / 2)
    if not counts or workload is None or workload not in counts:
        return prior
    scales, usual, rates, precisions = slice(len(TIME_SCALES)), any_board(family), [], []
    for table in references:
        if table.device == board and table.workload in counts:
            item = learn_reference(table, family)
            weight = usual.covariance @ np.linalg.inv(usual.covariance + item.covariance)
            own = usual.mean + weight @ (item.mean - usual.mean) + item.unit
            rates.append(own[scales] - counts[table.workload].log_scales())
            precisions.append(1 / (np.diag(weight @ item.covariance)[scales] + COUNTED_SD**2))
    if not rates:
        return prior
    precision = np.array(precisions)
    prior.mean[scales] = counts[workload].log_scales() + (precision * rates).sum(0) / precision.sum(0)
    prior.covariance[scales] = prior.covariance[:, scales] = 0
    prior.covariance[scales, scales] = np.diag(COUNTED_SD**2 + 1 / precision.sum(0))
    return prior._replace(in_ms=True)


def priors_for(
    references: Sequence[Profiles],
    board: Optional[str] = None,
    workload: Optional[str] = None,
    hierarchy: Optional[Hierarchy] = None,
    counts: Optional[Mapping[str, Counts]] = None,
) -> Tuple[Prior, ...]:
    """Priors of a workload without profiles, on a board that may be unknown: alternatives that the evidence weighs."""
    if not references:
        return (any_board(hierarchy, board),)
    if board is not None:
        return (conditional_prior(references, board, workload, hierarchy, counts),)
    boards = sorted({table.device for table in references})
    return (*(conditional_prior(references, name, workload, hierarchy) for name in boards), any_board(hierarchy))


@functools.lru_cache(maxsize=None)
def learn_reference(table: Profiles, hierarchy: Hierarchy) -> TableEvidence:
    """The evidence of a table about the parameters."""
    return learn_tables((table,), any_board(hierarchy))


def learn_tables(tables: Sequence[Profiles], prior: Prior, starts: int = 3) -> TableEvidence:
    """The evidence of the tables of one workload on one board about its parameters.

    At most `ROWS` rows of each table are used, always the same ones.
    """
    parts = []
    for table in tables:
        part = table.usable()
        if len(part) > ROWS:
            part = part.take(np.sort(np.random.default_rng(0).choice(len(part), ROWS, replace=False)))
        parts.append(part)
    columns = ([getattr(part, name) for part in parts] for name in ("modes", "batch_size", "inference"))
    modes, sizes, inference = (np.concatenate(column) for column in columns)
    at = features(Settings(modes, sizes, np.where(inference, *reversed(TASKS)), None))  # boards have no power limits
    time_ms, power_mw = (np.concatenate([getattr(part, name) for part in parts]) for name in ("time_ms", "power_mw"))
    power_w = None if np.isnan(power_mw).any() else mw_to_w(power_mw)
    posterior = learn(at, time_ms, power_w, (prior,), starts, seed=0)
    best, free = int(np.argmax(posterior.weight)), posterior.free
    optimum = posterior.theta[best].copy()
    optimum[: len(TIME_SCALES)] += prior.level(at)
    # The prior is removed in directions in which prior and posterior are independent and prior variances are 1.
    root = np.linalg.cholesky(prior.covariance[np.ix_(free, free)])
    within = root.T @ np.linalg.inv(posterior.covariance[best]) @ root
    precision, turn = np.linalg.eigh(within - np.eye(len(free)))
    precision = np.maximum(precision, 0)
    pull = turn.T @ np.linalg.solve(root, optimum[free] - prior.mean[free]) * (1 + precision)
    # With little information, the minimum may have moved further than its curvature allows for a normal.
    furthest = _FURTHEST * np.sqrt(precision * (1 + precision))
    spread = 1 / np.maximum(precision, 1 / _UNINFORMED)
    mean, covariance, back = prior.mean.copy(), _UNINFORMED * np.diag(prior.sd**2), root @ turn
    mean[free] += back @ (spread * np.clip(pull, -furthest, furthest))
    covariance[np.ix_(free, free)] = back * spread @ back.T
    return TableEvidence(mean, covariance, float(posterior.unit) - prior.level(at))


def describe_table(table: Profiles) -> str:
    """The name of a table in the list of those that a prior was learned from."""
    return f"{table.device}, {table.workload}, {table.task}, {table.provenance}"
