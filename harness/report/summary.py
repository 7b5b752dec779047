"""What the first screen says: what was measured on what, how the papers' findings fared, and which flags there are."""

from __future__ import annotations

import math
from collections import Counter
from operator import itemgetter
from typing import Any, Dict, List, Sequence, Tuple

from harness.core.corpus import TASKS
from harness.core.units import mw_to_w, mws_to_j
from harness.judge.claims import Verdict
from harness.judge.figures import CONFIRMED, CONTRADICTED, UNDECIDED
from harness.report.figure import figure_text
from harness.report.material import Material, Row, bare, cells, file_name, grouped
from harness.report.mode_tables import ModeTable

Cells = Tuple[Tuple[str, ...], List[Tuple[Any, ...]]]  # header and rows of a table
MOST_LISTED = 12  # profiles that are listed one by one: of more the figures tell
NEARLY = 1.1  # times as long as the fastest mode: nearly as fast


def lead(material: Material) -> str:
    told = ["How long a minibatch takes and how much power it draws."]
    for provenance in sorted({row.provenance for row in material.rows}):
        told.append(_profiles([one for one in material.rows if one.provenance == provenance], provenance))
    for name, count in Counter([f"{row['device']}, {row['provenance']}" for row in material.corpus]).items():
        told.append(f"A corpus of {name}: {count:,} rows.")
    for table in material.predicted:
        told.append(f"{len(table.modes):,} modes of {table.device} {table.provenance} profiles of {table.workload}.")
    if material.predictors:
        told.append(f"An evaluation of {_number(len({one['predictor'] for one in material.predictors}), 'predictor')}.")
    if material.strategies:
        strategies = {one["strategy"] for one in material.strategies}
        told.append(f"A contest of {_number(len(strategies), 'strategy', 'strategies')}.")
    flagged = [row for row in material.rows if row.flags]
    if flagged:
        counts = Counter([kind for row in flagged for kind in sorted(set(row.flag_kinds))])
        which = words([f"{count} {kind}" for kind, count in counts.items()])
        told.append(f"{_number(len(flagged), 'profile')} with flags: {which}.")
    elif material.rows:
        told.append("No profile carries a flag.")
    return " ".join(told)


def _profiles(rows: Sequence[Row], provenance: str) -> str:
    boards = {row.base: len({one.label for one in rows if one.base == row.base}) for row in rows}
    devices = [name if count == 1 else f"{count} boards of {name}" for name, count in boards.items()]
    workloads = {row.workload for row in rows if row.task in TASKS}
    modes = {row.mode or row.power_mode for row in rows}
    has_power = any(row.power_mean_mw is not None for row in rows)
    without = "" if has_power else "; power was not measured"
    what = f"{_number(len(workloads), 'workload')} in {_number(len(modes), 'power mode')}"
    return f"{_number(len(rows), 'profile')}, {provenance}, of {words(devices)}: {what}{without}."


def _number(count: int, thing: str, things: str = "") -> str:
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def device_rows(material: Material) -> Cells:
    header = ("device", "boards", "provenance", "model", "profiles", "total power", "torch", "L4T", "host", "jetwatt")
    kept = ("base", "provenance", "device_model", "power_definition", "torch", "l4t")
    rows: List[Tuple[Any, ...]] = []
    for place, members in grouped(material.rows, lambda row: cells(row, kept)).items():
        boards = len({row.label for row in members})
        said = (_told(members, "host_name"), _told(members, "jetwatt", "suite_commit"))
        base, provenance, model, power, *software = place
        boards_told = boards if boards > 1 else None
        rows.append((base, boards_told, provenance, model, len(members), power or "not measured", *software, *said))
    for name, count in Counter([f"{row['device']}\n{row['provenance']}" for row in material.corpus]).items():
        device, provenance = name.split("\n")
        rows.append((device, None, provenance, "corpus", count, *(None,) * 5))
    return _without_empty_columns(header, rows)


def _without_empty_columns(header: Tuple[str, ...], rows: List[Tuple[Any, ...]]) -> Cells:
    kept = [place for place in range(len(header)) if any(row[place] is not None for row in rows)]
    return tuple(header[place] for place in kept), [tuple(row[place] for place in kept) for row in rows]


def profile_rows(material: Material) -> Cells:
    header = ("device", "case", "time of a minibatch (ms)", "samples per s", "power (W)", "flags")
    rows = []
    for row in material.rows if len(material.rows) <= MOST_LISTED else ():
        time, (low, high) = row.minibatch_time_ms, material.ends(row.id, row.minibatch_time_ms, "time")
        interval = "" if low is None else f" ({figure_text(low)} to {figure_text(high)})"
        told = None if time is None else f"{figure_text(time)}{interval}"
        power = row.power_mw if row.power_mw is not None else row.power_mean_mw
        rows.append(
            (
                *(row.label, row.case_id.partition(f"{row.device_name}-")[2] or row.case_id, told),
                *(row.samples_per_s and figure_text(row.samples_per_s), power and figure_text(mw_to_w(power))),
                ", ".join(row.flag_kinds) or None,
            )
        )
    return _without_empty_columns(header, rows)


def _told(rows: Sequence[Row], *names: str) -> str:
    """What the environments of some rows say under some names, each different answer once."""
    answers = [" ".join(str(row.environment[name]) for name in names if name in row.environment) for row in rows]
    return ", ".join(dict.fromkeys(answers))


def flag_rows(rows: Sequence[Row]) -> Cells:
    raised = [(kind, flag, row.case_id) for row in rows for kind, flag in zip(row.flag_kinds, row.flag_list)]
    told = [
        (kind, len(alike), alike[0][1].partition(": ")[2], alike[0][2])
        for kind, alike in sorted(grouped(raised, itemgetter(0)).items())
    ]
    return ("flag", "profiles", "for example", "case"), told


def claim_rows(found: Sequence[Verdict]) -> List[Dict[str, Any]]:
    """A row for each verdict, what a reader did not expect first."""
    by_news = sorted(found, key=lambda one: (CONTRADICTED, UNDECIDED, CONFIRMED).index(one.verdict))
    return [_claim_row(verdict) for verdict in by_news]


def _claim_row(one: Verdict) -> Dict[str, Any]:
    bounds = [f"above {one.above:.3g}"] if math.isfinite(one.above) else []
    bounds += [f"below {one.below:.3g}"] if math.isfinite(one.below) else []
    interval = f"{figure_text(one.effect)} ({figure_text(one.low)} to {figure_text(one.high)})"
    notes = [f"Known of the model: {one.shortfall}."] if one.shortfall else []
    if one.fitted:
        notes.append(f"{one.fitted[0].upper()}{one.fitted[1:]}: confirmed means that the model can say it.")
    if one.provenance == "measured":
        notes += [f"Runs differ in {one.between_runs}."] if one.between_runs else []
        notes += [f"{one.apart}."] if one.apart else []
    return {
        **one._asdict(),
        "anchor": file_name("claim", one.takeaway.replace("_", "-"), one.device),
        "device": bare(one.device),
        "paper": one.section.partition(" ")[0],
        "effect": f"{one.meaning}: {interval}",
        "expected": " and ".join(bounds),
        "notes": " ".join(notes),
    }


def answers(found: Sequence[Verdict], claim: str) -> List[Dict[str, Any]]:
    """What each device says to the claim that answers a section's question."""
    return [_claim_row(one) for one in found if one.takeaway == claim]


def recommended_modes(tables: Sequence[ModeTable]) -> Cells:
    rows = []
    for table in tables:
        modes = table.modes
        time = modes["minibatch_time_ms"]
        nearly = modes[time <= NEARLY * time.min()]
        chosen = (time.idxmin(), modes["energy_mws"].idxmin(), nearly["power_mw"].idxmin())
        told = [
            f"{one.power_mode}: {figure_text(one.minibatch_time_ms)} ms, {figure_text(mw_to_w(one.power_mw))} W,"
            f" {figure_text(mws_to_j(one.energy_mws))} J"
            for one in modes.loc[list(chosen)].itertuples()
        ]
        rows.append((table.device, table.workload, table.task, table.batch_size, len(modes), *told))
    goals = ("fastest", "least energy", f"least power within {NEARLY - 1:.0%} of the fastest")
    return ("device", "workload", "task", "batch size", "modes", *goals), rows


def words(values: List[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of nothing."""
    return " and ".join(part for part in (", ".join(values[:-1]), *values[-1:]) if part)
