"""Time and power of many power modes of one workload, for scatter plots and the page's explorer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Container, Dict, Iterable, List, Tuple

import numpy as np

from harness.core.cases import TRAINING
from harness.core.corpus import TASKS
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode
from harness.core.units import ms_to_s, mw_to_w

if TYPE_CHECKING:
    import pandas as pd

    from harness.report.material import Material, Row

LEAST_MODES = 4
CORPUS, RESULTS, PREDICTED = "corpus", "results", "predicted"  # origins of a table

VARIES = ("power_mode", "minibatches")
"""Conditions in which the profiles of a table differ: the length of a profile does not change its medians."""

LETTER = 3  # names of modes up to this length are shown beside their points
MOST_POINTS, MOST_TABLES = 4500, 12  # that the explorer shows; the papers' grid has 4,368 modes
INTERVALS = ("time_low_ms", "time_high_ms", "power_low_mw", "power_high_mw")  # further columns of a predicted table


@dataclasses.dataclass(frozen=True)
class ModeTable:
    """Power modes of one device and workload, each once, with their medians.

    `modes` has a row for each: `power_mode` (its name), the fields of `PowerMode`, `minibatch_time_ms`, `power_mw`,
    `energy_mws` of a minibatch, whether it is on the front of time and power or energy (0 or 1), and `profile`, its
    number, or 0; predicted tables also have `INTERVALS`, which hold 80 % of measurements.
    """

    device: str
    workload: str
    task: str
    batch_size: int
    provenance: str
    origin: str
    modes: pd.DataFrame
    disturbed: Tuple[Tuple[float, float], ...] = ()  # times in ms and powers in mW that do not count

    @property
    def title(self) -> str:
        task = "" if self.task == TRAINING else f", {self.task}"
        return f"{self.workload} on {self.device}, batch size {self.batch_size}{task}, {self.origin}"

    @property
    def profiles(self) -> Tuple[int, ...]:
        """Their numbers; empty for a corpus or predicted modes."""
        return tuple(self.modes["profile"]) if self.origin == RESULTS else ()

    def some(self, most: int, also: Container[PowerMode] = ()) -> pd.DataFrame:
        """About `most` modes, evenly spaced, with all of both fronts and of `also`.

        The fastest mode within a power budget is on the front, so thinning does not change which mode it selects.
        """
        on_a_front = np.flatnonzero(self.modes["on_time_power_front"] | self.modes["on_time_energy_front"])
        always = [place for place, mode in enumerate(self.power_modes) if mode in also]
        return self.modes.iloc[evenly(len(self.modes), most, [*on_a_front.tolist(), *always])]

    @property
    def power_modes(self) -> List[PowerMode]:
        return [PowerMode(*mode) for mode in self.modes[list(PowerMode._fields)].itertuples(index=False, name=None)]


def mode_tables(material: Material) -> List[ModeTable]:
    """Every table with enough modes: those of the corpus, then those of the results; the papers' defaults first."""
    corpora: Dict[Tuple[str, str, str, int, str, str], Dict[PowerMode, Tuple[Any, ...]]] = {}
    for row in material.corpus:
        if row["power_mw"] is not None:
            mode = PowerMode(*(row[field] for field in PowerMode._fields))
            place = (row["device"], row["workload"], row["task"], row["batch_size"], row["provenance"], CORPUS)
            corpora.setdefault(place, {})[mode] = (mode.name, *mode, row["minibatch_time_ms"], row["power_mw"], 0)
    tables = [
        ModeTable(*place, _framed(modes.values())) for place, modes in corpora.items() if len(modes) >= LEAST_MODES
    ]
    complete = [
        row for row in material.rows if row.task in TASKS and row.mode and row.minibatch_time_ms and row.power_mw
    ]
    for group in material.alike(complete, VARIES):
        first = group[0]
        place = (first.label, first.workload, first.task, first.batch_size, first.provenance, RESULTS)
        modes = {
            row.mode: (_name(row), *row.mode, row.minibatch_time_ms, row.power_mw, row.id)
            for row in group
            if row.usable
        }
        disturbed = tuple((row.minibatch_time_ms, row.power_mw) for row in group if not row.usable)
        if len(modes) >= LEAST_MODES:
            tables.append(ModeTable(*place, _framed(modes.values()), disturbed))
    order = (CORPUS, RESULTS, PREDICTED)
    tables += material.predicted
    return sorted(tables, key=lambda table: (order.index(table.origin), table.task != TRAINING, table.batch_size != 16))


def _name(row: Row) -> str:
    """The name of a row's power mode, with the power limit that was set."""
    limit_w = row.case.settings.power_limit_w
    return row.power_mode if limit_w is None else f"{row.power_mode}, power limit {limit_w:g} W"


def _framed(rows: Iterable[Tuple[Any, ...]]) -> pd.DataFrame:
    import pandas as pd

    columns = ["power_mode", *PowerMode._fields, "minibatch_time_ms", "power_mw", "profile"]
    return with_fronts(pd.DataFrame(list(rows), columns=columns))


def with_fronts(modes: pd.DataFrame) -> pd.DataFrame:
    modes["energy_mws"] = ms_to_s(modes["minibatch_time_ms"]) * modes["power_mw"]
    for name, cost in (("on_time_power_front", "power_mw"), ("on_time_energy_front", "energy_mws")):
        modes[name] = 0
        modes.loc[pareto_front(modes["minibatch_time_ms"].tolist(), modes[cost].tolist()), name] = 1
    return modes


def evenly(count: int, most: int, always: Iterable[int] = ()) -> List[int]:
    """Indices to draw in a scatter plot: `always`, and the others evenly spaced up to `most`."""
    kept = set(always)
    others = [place for place in range(count) if place not in kept]
    room = max(most - len(kept), 0)
    if len(others) > room:
        others = [others[int(place)] for place in np.linspace(0, len(others) - 1, room)] if room else []
    return sorted(kept.union(others))


def explorer_tables(material: Material) -> List[Dict[str, Any]]:
    """The first tables as plain values, for the page's explorer."""
    cases = {row.id: f"{row.case_id}, profile {row.id}" for row in material.rows}
    plain, tables = [], material.tables[:MOST_TABLES]
    measured = {mode for table in tables if table.origin != PREDICTED for mode in table.power_modes}
    for table in tables:
        shown = table.some(MOST_POINTS, measured if table.origin == PREDICTED else ())
        plain.append(
            {
                "title": table.title,
                "provenance": table.provenance,
                "total": len(table.modes),
                "workload": table.workload,
                "task": table.task,
                "batch_size": table.batch_size,
                "device": table.device,
                "origin": table.origin,
                "name": [  # the explorer makes exact names itself
                    "" if name == PowerMode(*mode).name else name
                    for name, *mode in zip(shown["power_mode"], *(shown[field] for field in PowerMode._fields))
                ],
                "case": [cases.get(number, "") for number in shown["profile"]] if table.profiles else [],
                "low_high": shown[list(INTERVALS)].round(3).to_numpy().tolist() if table.origin == PREDICTED else [],
                "mode": shown[list(PowerMode._fields)].to_numpy().tolist(),
                "time_ms": [float(f"{time:.5g}") for time in shown["minibatch_time_ms"]],
                "power_w": [float(f"{mw_to_w(power):.5g}") for power in shown["power_mw"]],
            }
        )
    return plain
