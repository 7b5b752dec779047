"""Time and power of many power modes of one workload: what scatters and the explorer show."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, NamedTuple, Tuple

from harness.core.cases import TRAINING
from harness.core.corpus import TASKS
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import ms_to_s
from harness.report.selection import Material, bare, device_name, mode_of
from harness.store.rows import Record

LEAST_MODES = 4

CORPUS, RESULTS = "corpus", "results"
"""Origins of a table."""

LETTER = 3
"""Names of modes up to this long stand beside their points."""


class ModeTable(NamedTuple):
    """Power modes of one device and workload with what was found there.

    Attributes:
        device, workload, task, batch_size, provenance: of all rows.
        origin: `corpus`, or `results` for profiles of the results file.
        modes: the power modes, each once.
        names: what each is called.
        time_ms: median time of a minibatch.
        power_mw: median power.
    """

    device: str
    workload: str
    task: str
    batch_size: int
    provenance: str
    origin: str
    modes: Tuple[PowerMode, ...]
    names: Tuple[str, ...]
    time_ms: Tuple[float, ...]
    power_mw: Tuple[float, ...]

    @property
    def title(self) -> str:
        """What tells it from others."""
        task = "" if self.task == "training" else f", {self.task}"
        return f"{self.workload} on {self.device}, batch size {self.batch_size}{task}, {self.origin}"

    @property
    def energy_mws(self) -> Tuple[float, ...]:
        """Energy of a minibatch."""
        return tuple(ms_to_s(time) * power for time, power in zip(self.time_ms, self.power_mw))

    @property
    def front(self) -> List[int]:
        """Places of the time-power front, the mode with the least power first."""
        return pareto_front(self.time_ms, self.power_mw).tolist()


def mode_tables(material: Material) -> List[ModeTable]:
    """Every table with enough modes: those of the corpus, then those of the results; the papers' defaults first."""
    groups: Dict[Tuple[Any, ...], Dict[PowerMode, Tuple[str, float, float]]] = {}
    for row in material.corpus:
        if row["power_mw"] is not None:
            mode = PowerMode(*(row[field] for field in PowerMode._fields))
            place = (row["device"], row["workload"], row["task"], row["batch_size"], row["provenance"], CORPUS)
            groups.setdefault(place, {})[mode] = (str(mode), row["minibatch_time_ms"], row["power_mw"])
    for record in material.records:
        mode, time_ms, power_mw = mode_of(record), *_figures(record)
        if record.case.task in TASKS and mode is not None and time_ms and power_mw:
            groups.setdefault(_place(record), {})[mode] = (record.case.power_mode, time_ms, power_mw)
    tables = [
        ModeTable(
            *(bare(place[0]), *place[1:5], CORPUS if place[5] == CORPUS else RESULTS),
            tuple(members),
            tuple(name for name, _, _ in members.values()),
            tuple(time for _, time, _ in members.values()),
            tuple(power for _, _, power in members.values()),
        )
        for place, members in groups.items()
        if len(members) >= LEAST_MODES
    ]
    return sorted(tables, key=lambda one: (one.origin != CORPUS, one.task != TRAINING, one.batch_size != 16))


def _figures(record: Record) -> Tuple[Any, Any]:
    return record.aggregates.get("minibatch_time_ms"), record.aggregates.get("power_mw")


def _place(record: Record) -> Tuple[Any, ...]:
    """What agrees within a table of profiles of the results file: all but the mode, and how long it was watched."""
    case = record.case
    settings = dataclasses.replace(case.settings, minibatches=case.settings.minibatches and 1)
    return (
        *(device_name(record), case.workload, case.task, case.batch_size, record.provenance),
        (RESULTS, case.workers, case.storage, settings),
    )
