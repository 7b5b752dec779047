"""Targets from the tables of a corpus: their references and prior, or an unprofiled workload."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Optional, Sequence, Union

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.notes import note
from harness.workloads import get_workload
from harness.workloads.counting import counted_alone
from predictors.evaluation import Target
from predictors.profiles import Profiles, find_table

if TYPE_CHECKING:
    from predictors.models.physical_gp.prior import Counts, Hierarchy


def find_reference(tables: Sequence[Profiles], workload: str, task: str, device: Optional[str]) -> Profiles:
    """The usable rows of a reference workload: of the device if it was profiled there, else of the only other one."""
    is_here = any((table.workload, table.task, table.device) == (workload, task, device) for table in tables)
    return find_table(tables, workload, task, device if is_here else None).usable()


def load_prior(prior: Union[str, Path, None]) -> Optional[Hierarchy]:
    """The prior in a file of `prior learn`; None, the suite's own, without a file."""
    if not prior:
        return None
    from predictors.models.physical_gp.prior import read_hierarchy

    return read_hierarchy(Path(prior))


def count_networks(tables: Sequence[Profiles]) -> Dict[str, Counts]:
    """Counts of what networks compute, by workload, from torch; unknown workloads are skipped."""
    from predictors.models.physical_gp.prior import Counts

    counts = {}
    for name in dict.fromkeys(table.workload for table in tables):
        try:
            workload = get_workload(name)
        except UnknownNameError as error:
            note(f"{name} is not counted: {error}")
            continue
        counted, _ = counted_alone(workload)
        counts[name] = Counts(*(float(getattr(counted, field)) for field in Counts._fields))
    return counts


def unprofiled_target(name: str, references: Sequence[Profiles], hierarchy: Optional[Hierarchy] = None) -> Target:
    """A workload, `module:NAME` or the suite's, without profiles on the board of the references."""
    if not references:
        raise InvalidValueError(
            f"no profiles of the board that {name} will run on", "name reference workloads profiled on it"
        )
    table = dataclasses.replace(references[0].take(slice(0)), workload=get_workload(name).name)
    return Target(table, tuple(references), hierarchy=hierarchy, counts=count_networks([table, *references]))
