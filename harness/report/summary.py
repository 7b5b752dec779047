"""What the first screen says: what was measured on what, how the papers' findings fared, and which flags there are."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Dict, List, Optional, Sequence, Tuple

from harness.core.corpus import TASKS
from harness.judge.claims import CONFIRMED, CONTRADICTED, UNDECIDED, Verdict, counts_of_claims, worst_of_claims
from harness.report.layout import figure_text
from harness.report.material import Material, Row, bare

Cells = Tuple[Tuple[str, ...], List[Tuple[Any, ...]]]
"""Header and rows of a table."""

VERDICT_COLUMNS = ("verdict", "provenance", "claim", "paper", "device", "effect (95 %)", "expected", "n", "case")


def lead(material: Material, found: Sequence[Verdict]) -> str:
    """The report in plain sentences."""
    told = ["How long a minibatch takes and how much power it draws."]
    for provenance in sorted({row.provenance for row in material.rows}):
        told.append(_profiles([one for one in material.rows if one.provenance == provenance], provenance))
    for name, count in Counter([f"{row['device']}, {row['provenance']}" for row in material.corpus]).items():
        told.append(f"A corpus of {name}: {count:,} rows.")
    if material.predictors:
        told.append(f"An evaluation of {_number(len({one['predictor'] for one in material.predictors}), 'predictor')}.")
    if material.strategies:
        strategies = {one["strategy"] for one in material.strategies}
        told.append(f"A contest of {_number(len(strategies), 'strategy', 'strategies')}.")
    if found:
        fared = words([f"{count} {name}" for name, count in counts_of_claims(found).items()])
        told.append(f"Of the papers' claims {len({one.takeaway for one in found})} could be judged: {fared}.")
        if any(one.fitted for one in found):
            told.append("Confirmed by a simulation that was fitted to it means that the model can say it.")
    flagged = [row for row in material.rows if row.flags]
    if flagged:
        counts = Counter([kind for row in flagged for kind in sorted(set(row.flag_kinds))])
        which = words([f"{count} {kind}" for kind, count in counts.items()])
        told.append(f"{_number(len(flagged), 'profile')} with flags: {which}.")
    elif material.rows:
        told.append("No profile carries a flag.")
    return " ".join(told)


def _profiles(rows: Sequence[Row], provenance: str) -> str:
    """Profiles of one provenance in a sentence."""
    devices = list(dict.fromkeys(row.base for row in rows))
    workloads = {row.workload for row in rows if row.task in TASKS}
    modes = {row.mode or row.power_mode for row in rows}
    has_power = any(row.power_mean_mw is not None for row in rows)
    without = "" if has_power else "; power was not measured"
    what = f"{_number(len(workloads), 'workload')} in {_number(len(modes), 'power mode')}"
    return f"{_number(len(rows), 'profile')}, {provenance}, of {words(devices)}: {what}{without}."


def _number(count: int, thing: str, things: str = "") -> str:
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def tiles(material: Material, found: Sequence[Verdict], figures: int) -> Tuple[Tuple[str, str], ...]:
    """Figure and meaning of each tile."""
    rows = material.rows
    shown = [(f"{len(rows):,}", "profiles, the newest of each conditions")]
    shown.append((str(len({row.workload for row in rows if row.task in TASKS})), "workloads"))
    shown.append((str(len({row.mode or row.power_mode for row in rows})), "power modes"))
    if material.corpus:
        shown.append((f"{len(material.corpus):,}", "rows of the corpus"))
    shown.append((str(figures), "figures"))
    if found:
        worst = worst_of_claims(found)
        counts = Counter(list(worst.values()))
        others = "".join(f", {count} {name}" for name, count in counts.items() if name != "confirmed")
        fitted = sum(is_fitted and verdict == "confirmed" for (_, is_fitted, _), verdict in worst.items())
        others += f"; the simulation was fitted to {fitted} of them" if fitted else ""
        shown.append((f"{counts.get('confirmed', 0)} of {len(worst)}", f"claims confirmed{others}"))
    shown.append((str(sum(bool(row.flags) for row in rows)), "profiles with flags"))
    return tuple(shown)


def device_rows(material: Material) -> Cells:
    """What was measured on what: a row for each kind of board, provenance and software."""
    header = ("device", "boards", "provenance", "model", "profiles", "total power", "torch", "L4T", "host", "jetwatt")
    groups: Dict[Tuple[Any, ...], List[Row]] = {}
    for row in material.rows:
        place = (
            *(row.base, row.provenance, row.device_model),
            *(row.power_definition or "not measured", row.torch, row.l4t),
        )
        groups.setdefault(place, []).append(row)
    rows: List[Tuple[Any, ...]] = [
        (
            *(place[0], _boards(members), *place[1:3], len(members), *place[3:]),
            *(_told(members, "host_name"), _told(members, "jetwatt", "suite_commit")),
        )
        for place, members in groups.items()
    ]
    for name, count in Counter([f"{row['device']}\n{row['provenance']}" for row in material.corpus]).items():
        device, provenance = name.split("\n")
        rows.append((device, None, provenance, "corpus", count, *(None,) * 5))
    kept = [place for place in range(len(header)) if any(row[place] is not None for row in rows)]
    return tuple(header[place] for place in kept), [tuple(row[place] for place in kept) for row in rows]


def _boards(rows: Sequence[Row]) -> Optional[int]:
    """How many boards of a type were simulated; None for a single one."""
    count = len({row.label for row in rows})
    return count if count > 1 else None


def _told(rows: Sequence[Row], *names: str) -> str:
    """What the environments of some rows say under some names, each different answer once."""
    answers = [" ".join(str(row.environment[name]) for name in names if name in row.environment) for row in rows]
    return ", ".join(dict.fromkeys(answers))


def flag_rows(rows: Sequence[Row]) -> Cells:
    """A row for each kind of flag: how many profiles carry it, and an example."""
    groups: Dict[str, List[Tuple[str, str]]] = {}
    for row in rows:
        for kind, flag in zip(row.flag_kinds, row.flag_list):
            groups.setdefault(kind, []).append((row.case_id, flag.partition(": ")[2]))
    cells = [(kind, len(found), found[0][1], found[0][0]) for kind, found in sorted(groups.items())]
    return ("flag", "profiles", "for example", "case"), cells


def verdict_rows(found: Sequence[Verdict]) -> Cells:
    """A row for each verdict, what a reader did not expect first."""
    by_news = sorted(found, key=lambda one: (CONTRADICTED, UNDECIDED, CONFIRMED).index(one.verdict))
    return VERDICT_COLUMNS, [_verdict_row(verdict) for verdict in by_news]


def _verdict_row(verdict: Verdict) -> Tuple[Any, ...]:
    bounds = [f"above {verdict.above:.3g}"] if math.isfinite(verdict.above) else []
    bounds += [f"below {verdict.below:.3g}"] if math.isfinite(verdict.below) else []
    interval = f"{figure_text(verdict.effect)} ({figure_text(verdict.low)} to {figure_text(verdict.high)})"
    why = f"{verdict.says} Known of the model: {verdict.shortfall}" if verdict.shortfall else verdict.says
    if verdict.fitted:
        why = f"{why} The simulation was fitted to this: confirmed means that the model can say it."
    if verdict.provenance == "measured":
        notes = [f"Runs differ in {verdict.between_runs}"] * bool(verdict.between_runs) + [verdict.apart]
        why = f"{why} {'; '.join(note for note in notes if note)}"
    return (
        *(verdict.verdict, verdict.provenance, why, verdict.section, bare(verdict.device)),
        *(f"{verdict.meaning}: {interval}", " and ".join(bounds), verdict.n, verdict.case),
    )


def words(values: List[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of nothing."""
    return " and ".join(part for part in (", ".join(values[:-1]), *values[-1:]) if part)
