"""What the slices of a submission brought back, in one results file: every case once, however often it was measured."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

from harness.core.campaigns import case_key
from harness.core.cases import INSTANCE_MARK, Case
from harness.core.errors import StoreError
from harness.fleet.on_board import on
from harness.fleet.submission import SliceState, Submission, ranges
from harness.store.conditions import MEASURED_ALREADY, is_disqualified
from harness.store.results import Merged, ResultsStore
from harness.store.rows import Record


class Missing(NamedTuple):
    id: str  # of a case without a profile
    slice: int
    why: str


def collect(submission: Submission, out: Path) -> Merged:
    """Bring the profiles of all slices so far into a results file; again and again adds nothing twice."""
    with ResultsStore(submission.folder / "collected.sqlite") as own:
        runs: Dict[str, str] = {}  # case to the run that told it first: Slurm runs a slice at least once

        def note(records: Iterable[Record]) -> None:
            for record in records:
                if not is_disqualified(record.flags):
                    runs.setdefault(general_key(record.case), record.run_id)

        note(own.records())
        for number in range(1, len(submission.slices) + 1):
            path = submission.file(number, "results.sqlite")
            if not path.exists():
                continue
            with ResultsStore(path, read_only=True) as source:
                records = list(source.records())
                wanted = [one for one in records if runs.get(general_key(one.case), one.run_id) == one.run_id]
                own.merge(source, {one.id for one in wanted})
                note(wanted)
        with ResultsStore(out) as target:
            return target.merge(own)


def general_key(case: Case) -> str:
    """A case in words, whichever board of the pool it is of."""
    return case_key(case).replace(case.device, case.device.partition(INSTANCE_MARK)[0], 1)


def missing(submission: Submission, states: Sequence[SliceState]) -> List[Missing]:
    path = submission.folder / "collected.sqlite"
    there = set()
    if path.exists():
        with ResultsStore(path, read_only=True) as store:
            there = {general_key(record.case) for record in store.records()}
    cases, found = submission.cases(), []
    for state, (first, count, _) in zip(states, submission.slices):
        lacking = [(name, key) for name, key in cases[first - 1 : first - 1 + count] if key not in there]
        outcomes = _outcomes(submission.file(state.number, "junit.xml"), submission.device) if lacking else {}
        for name, _ in lacking:
            file, _, test = name.partition("::")
            module = file[: -len(".py")].replace("/", ".")
            result, said = outcomes.get((module, on(submission.device, test)), ("", ""))
            if result == "passed" or said.startswith(MEASURED_ALREADY):
                continue  # its profiles are there as those of other cases
            why = said or f"its slice is {state.state}{f': {state.why}' if state.why else ''}"
            found.append(Missing(name, state.number, why))
    return found


def _outcomes(path: Path, device: str) -> Dict[Tuple[str, str], Tuple[str, str]]:
    if not path.exists():
        return {}
    try:
        if path.stat().st_size > 1 << 28:
            raise ValueError("it is larger than any report")
        root = ElementTree.fromstring(path.read_bytes())
    except (ValueError, ElementTree.ParseError) as error:
        raise StoreError(f"{path} is damaged: {error}", "remove it, and see the slice's log") from error
    found = {}
    for test in root.iter("testcase"):
        problem = next((child for child in test if child.tag in ("failure", "error", "skipped")), None)
        result = "passed" if problem is None else problem.tag
        said = "" if problem is None else (problem.get("message") or problem.tag).splitlines()[0][:300]
        found[test.get("classname", ""), on(device, test.get("name", ""))] = (result, said)
    return found


def format_missing(lacking: Sequence[Missing], most: int = 20) -> str:
    by_reason: Dict[str, List[Missing]] = {}
    for one in lacking:
        by_reason.setdefault(one.why, []).append(one)
    lines, groups = [], sorted(by_reason.items(), key=lambda item: -len(item[1]))
    for why, group in groups[:most]:
        examples = ", ".join(one.id.partition("::")[2] for one in group[:2])
        slices = ranges(list({one.slice for one in group}))
        lines.append(f"  {len(group)}: {why} (slice {slices}: {examples}{', ...' if len(group) > 2 else ''})")
    if groups[most:]:
        lines.append(f"  {sum(len(group) for _, group in groups[most:])} more, for {len(groups) - most} other reasons")
    return "\n".join(lines)
