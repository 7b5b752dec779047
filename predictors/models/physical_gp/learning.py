"""Learning the prior from tables: what workloads and boards have in common, and how far they differ.

Workloads are nested in boards, and boards in the family. Each workload on a board is fitted to all its tables under
`hyperprior.toml`; the likelihood that remains without the prior is a normal observation of its parameters. Mean and
deviations then follow by expectation-maximisation, with the hyperprior worth a few workloads and boards: a single board
does not show how boards differ. With few boards, the uncertainty of the mean is added to the deviation between boards.
Fitting the workloads again under the learned prior would change predictions little, and would let rounding differences
between processors reach the second digit of the prior.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Dict, Iterable, List, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError
from predictors.models.base import one_blas_thread
from predictors.models.physical_gp.prior import (
    FORMAT,
    Hierarchy,
    TableEvidence,
    any_board,
    describe_table,
    learn_tables,
    read_hierarchy,
)
from predictors.models.physical_gp.response import PARAMETERS
from predictors.profiles import Profiles

HYPERPRIOR = Path(__file__).with_name("hyperprior.toml")
WORTH = 3.0  # number of workloads, and of boards, that the hyperprior's deviations are worth
_STEPS = 200  # of expectation-maximisation
DIGITS = 7


def learn_hierarchy(tables: Sequence[Profiles]) -> Hierarchy:
    """Learn the prior from tables of workloads on boards; the result does not depend on the number of cores.

    Raises:
        InvalidValueError: there are no tables.
    """
    units: Dict[Tuple[str, str], List[Profiles]] = {}
    for table in tables:
        units.setdefault((table.device, table.workload), []).append(table)
    if not units:
        raise InvalidValueError("there are no profiles to learn a prior from", "give corpora with profiles")
    hyperprior = read_hierarchy(HYPERPRIOR)
    with one_blas_thread():  # BLAS rounds differently on more
        evidence = [learn_tables(unit, any_board(hyperprior), starts=1) for unit in units.values()]
        hierarchy = most_likely(evidence, [device for device, _ in units], hyperprior)
    learned_from = tuple(describe_table(table) for table in tables)
    return dataclasses.replace(hierarchy, learned_from=learned_from)


def most_likely(evidence: Sequence[TableEvidence], devices: Sequence[str], hyperprior: Hierarchy) -> Hierarchy:
    """The most likely mean and deviations, given the evidence of u workloads on their devices."""
    names = sorted(set(devices))
    member = np.array([[name == device for device in devices] for name in names], dtype=float)  # (b, u)
    place, evidence_mean, noise = member.argmax(0), *(np.array(part) for part in zip(*(item[:2] for item in evidence)))
    usual = np.square([hyperprior.workloads, hyperprior.boards])
    open_mean, (workloads, boards) = usual.sum(0), usual

    def weigh() -> Tuple[np.ndarray, ...]:
        """The mean and its covariance; both for each board's part; the precision of the evidence of that part."""
        precise = np.linalg.inv(noise + np.diag(workloads))  # (u, d, d)
        of_board = np.einsum("bu,ude->bde", member, precise)
        pulled = np.einsum("bu,ude,ue->bd", member, precise, evidence_mean)
        left = np.linalg.inv(of_board + np.diag(1 / boards))
        kept = np.eye(len(boards)) - of_board @ left
        open_now = np.linalg.inv((kept @ of_board).sum(0) + np.diag(1 / open_mean))
        mean = open_now @ (np.einsum("bde,be->d", kept, pulled) + hyperprior.mean / open_mean)
        return mean, open_now, np.einsum("bde,be->bd", left, pulled + mean / boards), left, precise

    for _ in range(_STEPS):
        mean, _, parts, left, precise = weigh()
        off = np.einsum("ude,ue->ud", precise, evidence_mean - parts[place])
        certain = np.einsum("udd->ud", precise - precise @ left[place] @ precise)
        own = np.square(workloads * off) + workloads - workloads**2 * certain
        common = np.square(parts - mean) + np.einsum("bdd->bd", left)
        workloads = (WORTH * usual[0] + own.sum(0)) / (WORTH + len(own))
        boards = (WORTH * usual[1] + common.sum(0)) / (WORTH + len(common))
    boards = boards + np.diag(weigh()[1])
    mean, _, parts, left, _ = weigh()
    own = {name: np.vstack([parts[b], left[b]]) for b, name in enumerate(names)}
    return Hierarchy(mean, np.sqrt(workloads), np.sqrt(boards), own)


def as_toml(hierarchy: Hierarchy, tables: Sequence[Profiles]) -> str:
    """The text of a file for `read_hierarchy`; `tables` are those that the prior was learned from."""
    lines = [
        "# The prior of each parameter of `response.py`: mean, standard deviation between workloads of a board, and",
        "# between boards; below, for each board, the mean of its workloads, the standard deviation of that mean, and",
        "# its correlation with each parameter above. Made by `jetwatt prior learn` from these tables:",
        *(f"# {describe_table(table)}: {len(table)} profiles" for table in tables),
        "",
        f"format = {FORMAT}",
        "learned_from = [",
        *(f"    {json.dumps(name)}," for name in hierarchy.learned_from),
        "]",
    ]

    def add(section: str, columns: Iterable[Iterable[float]]) -> None:
        lines.extend(["", *section.splitlines()])
        for name, row in zip(PARAMETERS, columns):
            lines.append(f"{name} = [{', '.join(f'{value:.{DIGITS}f}' for value in row)}]")

    add("", np.array([hierarchy.mean, hierarchy.workloads, hierarchy.boards]).T)
    for board, part in hierarchy.own.items():
        sd = np.sqrt(np.diag(part[1:]))
        correlation = part[1:] / np.outer(sd, sd)
        rows = [[part[0, at], sd[at], *correlation[at, :at]] for at in range(len(PARAMETERS))]
        add(f"[board.{json.dumps(board)}]", rows)
    return "\n".join([*lines, ""])
