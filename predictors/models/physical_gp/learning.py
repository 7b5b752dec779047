"""Learning the prior from tables: what is common to workloads and boards, and how far they differ.

Workloads lie within boards, and boards within the family. Each workload on a board is learned from all its tables
under the prior so far; what they tell of a parameter, the prior taken out, is a normal observation of it. Mean and
deviations then follow by expectation-maximisation, parameter by parameter, with `hyperprior.toml` worth a few workloads
and boards: of one board alone nothing follows about how boards differ. Where few boards tell of the mean, what is open
of it is added to the deviation between boards. Both steps alternate for a few rounds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.models.base import one_blas_thread
from predictors.models.physical_gp.prior import Hierarchy, Told, any_board, learn_tables, read_hierarchy
from predictors.models.physical_gp.response import PARAMETERS
from predictors.models.tables import Table

HYPERPRIOR = Path(__file__).with_name("hyperprior.toml")
WORTH = 3.0  # of how many workloads, and boards, the hyperprior's deviations are
ROWS = 120  # that are learned of each table
ROUNDS = 3
_STEPS = 200  # of expectation-maximisation in each
DIGITS = 6


def learn_hierarchy(tables: Sequence[Table], rounds: int = ROUNDS) -> Hierarchy:
    """The prior that tables of some workloads on some boards ask for, the same on however many cores.

    Raises:
        InvalidValueError: there are no tables.
    """
    units: Dict[Tuple[str, str], List[Table]] = {}
    for table in tables:
        units.setdefault((table.device, table.workload), []).append(table)
    if not units:
        raise InvalidValueError("there is nothing to learn a prior from", "give corpora with profiles")
    hyperprior = read_hierarchy(HYPERPRIOR)
    found, devices = hyperprior, [device for device, _ in units]
    with one_blas_thread():  # BLAS rounds differently on more
        for _ in range(rounds):
            told = [learn_tables(some, any_board(found), ROWS, starts=1) for some in units.values()]
            found = most_likely(told, devices, hyperprior)
    own = {board: np.round(part, DIGITS) for board, part in found.own.items()}
    return Hierarchy(*(np.round(values, DIGITS) for values in (found.mean, found.workloads, found.boards)), own)


def most_likely(told: Sequence[Told], devices: Sequence[str], hyperprior: Hierarchy) -> Hierarchy:
    """Mean and deviations of which u workloads, each on one of some devices, are most likely draws."""
    values = np.array([one.mean for one in told]).T  # (d, u)
    noise = np.array([one.variance for one in told]).T[..., None] * np.eye(len(told))
    names = sorted(set(devices))
    member = np.array([[name == device for device in devices] for name in names], dtype=float)  # (b, u)
    usual = np.square([hyperprior.workloads, hyperprior.boards])
    open_mean, (workloads, boards) = usual.sum(0), usual
    for _ in range(_STEPS):
        shared = boards[:, None, None] * (member.T @ member)
        inverse = np.linalg.inv(shared + workloads[:, None, None] * np.eye(len(devices)) + noise)
        precision = inverse.sum((1, 2)) + 1 / open_mean
        mean = ((inverse @ values[..., None])[..., 0].sum(1) + hyperprior.mean / open_mean) / precision
        pull = (inverse @ (values - mean[:, None])[..., None])[..., 0]
        own = np.square(workloads[:, None] * pull) + workloads[:, None] * (
            1 - workloads[:, None] * np.einsum("duu->du", inverse)
        )
        common = np.square(boards[:, None] * (pull @ member.T)) + boards[:, None] * (
            1 - boards[:, None] * np.einsum("bu,duv,bv->db", member, inverse, member)
        )
        workloads = (WORTH * usual[0] + own.sum(1)) / (WORTH + own.shape[1])
        boards = (WORTH * usual[1] + common.sum(1)) / (WORTH + common.shape[1])
    boards = boards + 1 / precision
    shared = boards[:, None, None] * (member.T @ member)
    inverse = np.linalg.inv(shared + workloads[:, None, None] * np.eye(len(devices)) + noise)
    shift = boards[:, None] * ((inverse @ (values - mean[:, None])[..., None])[..., 0] @ member.T)
    left = boards[:, None] * (1 - boards[:, None] * np.einsum("bu,duv,bv->db", member, inverse, member))
    own = {name: np.array([mean + shift[:, b], np.sqrt(left[:, b])]) for b, name in enumerate(names)}
    return Hierarchy(mean, np.sqrt(workloads), np.sqrt(boards), own)


def as_toml(hierarchy: Hierarchy, tables: Sequence[Table]) -> str:
    """The file that `read_hierarchy` reads; `tables` are those that the prior was learned from."""
    lines = [
        "# The prior of each parameter of `response.py`: mean, standard deviation between workloads of a board, and",
        "# between boards; below, of each board, what its workloads vary around and the standard deviation of that.",
        "# Made by `jetwatt prior learn` from these tables:",
        *(f"# {one.device}, {one.workload}, {one.task}: {len(one)} {one.provenance} profiles" for one in tables),
        "",
    ]
    parts = {"": np.array([hierarchy.mean, hierarchy.workloads, hierarchy.boards]), **hierarchy.own}
    for board, part in parts.items():
        lines += ["", f"[{json.dumps(board)}]"] if board else []
        for name, row in zip(PARAMETERS, part.T):
            lines.append(f"{name} = [{', '.join(f'{value:.{DIGITS}f}' for value in row)}]")
    return "\n".join([*lines, ""])
