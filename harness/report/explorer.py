"""What the explorer of the page shows: tables of modes as plain values, few enough for a page to carry."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Sequence

from harness.core.pareto import pareto_front
from harness.core.units import mw_to_w
from harness.report.figures.thinning import evenly
from harness.report.mode_tables import ModeTable

MOST_POINTS = 1500
MOST_TABLES = 12


def explorer_data(tables: Sequence[ModeTable]) -> List[Dict[str, Any]]:
    """Plain values of the first tables; of many modes evenly some, and all of both fronts.

    What is fastest within a power budget lies on the front, so thinning does not change which mode a budget leads to.
    """
    return [_plain(table) for table in tables[:MOST_TABLES]]


def explorer_json(tables: Sequence[ModeTable]) -> str:
    """The same as JSON that may stand in a script element."""
    return json.dumps(explorer_data(tables), separators=(",", ":")).replace("<", "\\u003c")


def _plain(table: ModeTable) -> Dict[str, Any]:
    always = {*table.front, *pareto_front(table.time_ms, table.energy_mws).tolist()}
    shown = evenly(len(table.modes), MOST_POINTS, always)
    return {
        "title": table.title,
        "provenance": table.provenance,
        "total": len(table.modes),
        "name": [table.names[place] for place in shown],
        "mode": [list(table.modes[place]) for place in shown],
        "time_ms": [_rounded(table.time_ms[place]) for place in shown],
        "power_w": [_rounded(mw_to_w(table.power_mw[place])) for place in shown],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
