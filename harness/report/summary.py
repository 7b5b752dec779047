"""The page's first screen: the profiles and their devices, verdicts on the papers' findings, and flags."""

from __future__ import annotations

import math
from collections import Counter
from operator import itemgetter
from typing import Any, Dict, List, Sequence, Tuple

from harness.core.corpus import TASKS
from harness.core.units import bytes_to_mib, mw_to_w, mws_to_j
from harness.judge.requirement_verdicts import HEADER, RequirementVerdict, verdict_rows
from harness.judge.verdict import CONFIRMED, CONTRADICTED, UNDECIDED, Verdict
from harness.report.figure import figure_text
from harness.report.material import Material, Row, cells, file_name, grouped, strip_prefix
from harness.report.mode_tables import ModeTable

Cells = Tuple[Tuple[str, ...], List[Tuple[Any, ...]]]  # header and rows of a table
MOST_LISTED = 12  # profiles that are listed one by one; figures show larger numbers
NEARLY = 1.1  # times as long as the fastest mode: nearly as fast


def lead(material: Material) -> str:
    sentences = ["How long a minibatch takes and how much power it draws."]
    for provenance in sorted({row.provenance for row in material.rows}):
        sentences.append(_profiles([row for row in material.rows if row.provenance == provenance], provenance))
    stored = 0 if material.store is None else len(material.store)
    if stored > len(material.rows):
        earlier = _number(stored - len(material.rows), "earlier profile")
        sentences.append(f"They are the newest of each case; the file has {earlier} more.")
    for name, count in Counter([f"{row['device']}, {row['provenance']}" for row in material.corpus]).items():
        sentences.append(f"A corpus of {name}: {count:,} rows.")
    for table in material.predicted:
        sentences.append(
            f"{len(table.modes):,} modes of {table.device} {table.provenance} profiles of {table.workload}."
        )
    if material.predictors:
        sentences.append(
            f"An evaluation of {_number(len({result['predictor'] for result in material.predictors}), 'predictor')}."
        )
    if material.strategies:
        strategies = {result["strategy"] for result in material.strategies}
        sentences.append(f"A comparison of {_number(len(strategies), 'strategy', 'strategies')}.")
    flagged = [row for row in material.rows if row.flags]
    if flagged:
        counts = Counter([kind for row in flagged for kind in sorted(set(row.flag_kinds))])
        which = words([f"{count} {kind}" for kind, count in counts.items()])
        sentences.append(f"{_number(len(flagged), 'profile')} with flags: {which}.")
    elif material.rows:
        sentences.append("No profile carries a flag.")
    return " ".join(sentences)


def _profiles(rows: Sequence[Row], provenance: str) -> str:
    boards = {row.base: len({other.label for other in rows if other.base == row.base}) for row in rows}
    devices = [name if count == 1 else f"{count} boards of {name}" for name, count in boards.items()]
    workloads = {row.workload for row in rows if row.task in TASKS}
    modes = {row.mode or row.power_mode for row in rows}
    has_power = any(row.power_mw is not None or row.power_mean_mw is not None for row in rows)
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
        software_and_host = (
            _environment_values(members, "host_name"),
            _environment_values(members, "jetwatt", "suite_commit"),
        )
        base, provenance, model, power, *software = place
        board_count = boards if boards > 1 else None
        rows.append(
            (base, board_count, provenance, model, len(members), power or "not measured", *software, *software_and_host)
        )
    for name, count in Counter([f"{row['device']}\n{row['provenance']}" for row in material.corpus]).items():
        device, provenance = name.split("\n")
        rows.append((device, None, provenance, "corpus", count, *(None,) * 5))
    return _without_empty_columns(header, rows)


def _without_empty_columns(header: Tuple[str, ...], rows: List[Tuple[Any, ...]]) -> Cells:
    kept = [place for place in range(len(header)) if any(row[place] is not None for row in rows)]
    return tuple(header[place] for place in kept), [tuple(row[place] for place in kept) for row in rows]


def profile_rows(material: Material) -> Cells:
    header = ("device", "case", "time of a minibatch (ms)", "samples per s", "power (W)", "peak memory (MiB)", "flags")
    rows = []
    for row in material.rows if len(material.rows) <= MOST_LISTED else ():
        time, (low, high) = row.minibatch_time_ms, material.ends(row.id, row.minibatch_time_ms, "time")
        interval = "" if low is None or high is None else f" ({figure_text(low)} to {figure_text(high)})"
        time_text = None if time is None else f"{figure_text(time)}{interval}"
        power = row.power_mw if row.power_mw is not None else row.power_mean_mw
        memory = None if row.memory_peak_bytes is None else figure_text(bytes_to_mib(row.memory_peak_bytes))
        rows.append(
            (
                *(row.label, row.case_id.partition(f"{row.device_name}-")[2] or row.case_id, time_text),
                *(row.samples_per_s and figure_text(row.samples_per_s), power and figure_text(mw_to_w(power))),
                *(memory, ", ".join(row.flag_kinds) or None),
            )
        )
    return _without_empty_columns(header, rows)


def _environment_values(rows: Sequence[Row], *names: str) -> str:
    """Distinct values of the named variables in the environments of some rows."""
    answers = [" ".join(str(row.environment[name]) for name in names if name in row.environment) for row in rows]
    return ", ".join(dict.fromkeys(answers))


def flag_rows(rows: Sequence[Row]) -> Cells:
    raised = [(kind, flag, row.case_id) for row in rows for kind, flag in zip(row.flag_kinds, row.flag_list)]
    listed = [
        (kind, len(alike), alike[0][1].partition(": ")[2], alike[0][2])
        for kind, alike in sorted(grouped(raised, itemgetter(0)).items())
    ]
    return ("flag", "profiles", "for example", "case"), listed


def requirement_rows(verdicts: Sequence[RequirementVerdict]) -> Cells:
    """The verdicts of requirements on cases, those that are not kept first."""
    rows: List[Tuple[Any, ...]] = [tuple(cells) for cells in verdict_rows(verdicts)]
    return tuple(name.lstrip(">") for name in HEADER), rows


def claim_rows(verdicts: Sequence[Verdict]) -> List[Dict[str, Any]]:
    """A row for each verdict, unexpected ones first."""
    by_news = sorted(verdicts, key=lambda verdict: (CONTRADICTED, UNDECIDED, CONFIRMED).index(verdict.verdict))
    return [_claim_row(verdict) for verdict in by_news]


def _claim_row(verdict: Verdict) -> Dict[str, Any]:
    bounds = [f"above {verdict.above:.3g}"] if math.isfinite(verdict.above) else []
    bounds += [f"below {verdict.below:.3g}"] if math.isfinite(verdict.below) else []
    interval = f"{figure_text(verdict.effect)} ({figure_text(verdict.low)} to {figure_text(verdict.high)})"
    notes = [f"Known shortfall of the model: {verdict.shortfall}."] if verdict.shortfall else []
    if verdict.fitted:
        notes.append(
            f"{verdict.fitted[0].upper()}{verdict.fitted[1:]}: confirmed means that the model can reproduce it."
        )
    if verdict.provenance == "measured":
        notes += [f"Runs differ in {verdict.between_runs}."] if verdict.between_runs else []
        notes += [f"{verdict.apart}."] if verdict.apart else []
    return {
        **verdict._asdict(),
        "anchor": file_name("claim", verdict.takeaway.replace("_", "-"), verdict.device),
        "device": strip_prefix(verdict.device),
        "paper": verdict.section.partition(" ")[0],
        "effect": f"{verdict.meaning}: {interval}",
        "expected": " and ".join(bounds),
        "notes": " ".join(notes),
    }


def answers(verdicts: Sequence[Verdict], claim: str) -> List[Dict[str, Any]]:
    """The verdict of each device on the claim that answers a section's question."""
    return [_claim_row(verdict) for verdict in verdicts if verdict.takeaway == claim]


def recommended_modes(tables: Sequence[ModeTable]) -> Cells:
    rows = []
    for table in tables:
        modes = table.modes
        time = modes["minibatch_time_ms"]
        nearly = modes[time <= NEARLY * time.min()]
        chosen = (time.idxmin(), modes["energy_mws"].idxmin(), nearly["power_mw"].idxmin())
        texts = [
            f"{mode.power_mode}: {figure_text(mode.minibatch_time_ms)} ms, {figure_text(mw_to_w(mode.power_mw))} W,"
            f" {figure_text(mws_to_j(mode.energy_mws))} J"
            for mode in modes.loc[list(chosen)].itertuples()
        ]
        rows.append((table.device, table.workload, table.task, table.batch_size, len(modes), *texts))
    goals = ("fastest", "least energy", f"least power within {NEARLY - 1:.0%} of the fastest")
    return ("device", "workload", "task", "batch size", "modes", *goals), rows


def words(values: List[str]) -> str:
    """`a`, `a and b`, `a, b and c`; empty for an empty list."""
    return " and ".join(part for part in (", ".join(values[:-1]), *values[-1:]) if part)
