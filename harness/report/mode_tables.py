"""Time and power of many power modes of one workload: what scatters and the page's explorer show."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.cases import TRAINING
from harness.core.corpus import TASKS
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import ms_to_s, mw_to_w
from harness.report.material import Material

LEAST_MODES = 4
CORPUS, RESULTS = "corpus", "results"
"""Origins of a table."""

VARIES = ("power_mode", "minibatches")
"""What the profiles of a table differ in: how long a mode was watched does not change its medians."""

LETTER = 3
"""Names of modes up to this long stand beside their points."""

MOST_POINTS, MOST_TABLES = 1500, 12
"""That the explorer shows."""


class ModeTable(NamedTuple):
    """Power modes of one device and workload, each once, with their medians; of a corpus there are no profiles."""

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
    profiles: Tuple[int, ...] = ()
    disturbed: Tuple[Tuple[float, float], ...] = ()  # times in ms and powers in mW that do not count

    @property
    def title(self) -> str:
        """What tells it from others."""
        task = "" if self.task == TRAINING else f", {self.task}"
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
    corpora: Dict[Tuple[Any, ...], Dict[PowerMode, Tuple[Any, ...]]] = {}
    for row in material.corpus:
        if row["power_mw"] is not None:
            mode = PowerMode(*(row[field] for field in PowerMode._fields))
            place = (row["device"], row["workload"], row["task"], row["batch_size"], row["provenance"], CORPUS)
            corpora.setdefault(place, {})[mode] = (str(mode), row["minibatch_time_ms"], row["power_mw"])
    tables = [ModeTable(*place, tuple(modes), *zip(*modes.values())) for place, modes in corpora.items()]
    known = [row for row in material.rows if row.task in TASKS and row.mode and row.minibatch_time_ms and row.power_mw]
    for group in material.alike(known, VARIES):
        first = group[0]
        place = (first.label, first.workload, first.task, first.batch_size, first.provenance, RESULTS)
        members = {
            row.mode: (row.power_mode, row.minibatch_time_ms, row.power_mw, row.id) for row in group if row.usable
        }
        disturbed = tuple((row.minibatch_time_ms, row.power_mw) for row in group if not row.usable)
        if members:
            tables.append(ModeTable(*place, tuple(members), *zip(*members.values()), disturbed))
    tables = [table for table in tables if len(table.modes) >= LEAST_MODES]
    return sorted(tables, key=lambda one: (one.origin != CORPUS, one.task != TRAINING, one.batch_size != 16))


def evenly(count: int, most: int, always: Iterable[int] = ()) -> List[int]:
    """Places of a scatter to draw: those that always are, and of the others evenly as many as there is room for."""
    kept = set(always)
    others = [place for place in range(count) if place not in kept]
    room = max(most - len(kept), 0)
    if len(others) > room:
        others = [others[int(place)] for place in np.linspace(0, len(others) - 1, room)] if room else []
    return sorted(kept.union(others))


def explorer_json(tables: Sequence[ModeTable]) -> str:
    """Plain values of the first tables as JSON that may stand in a script element.

    Of many modes there are evenly some, and all of both fronts: what is fastest within a power budget lies on the
    front, so thinning does not change which mode a budget leads to.
    """
    plain = []
    for table in tables[:MOST_TABLES]:
        always = {*table.front, *pareto_front(table.time_ms, table.energy_mws).tolist()}
        shown = evenly(len(table.modes), MOST_POINTS, always)
        plain.append(
            {
                "title": table.title,
                "provenance": table.provenance,
                "total": len(table.modes),
                "name": [table.names[place] for place in shown],
                "mode": [list(table.modes[place]) for place in shown],
                "time_ms": [float(f"{table.time_ms[place]:.5g}") for place in shown],
                "power_w": [float(f"{mw_to_w(table.power_mw[place]):.5g}") for place in shown],
            }
        )
    return json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")
