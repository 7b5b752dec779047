"""Collects the results of a submission's slices in one results file: each case once, however often it was measured."""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Sequence, Set, Tuple

from harness.core.campaigns import case_key
from harness.core.cases import INSTANCE_MARK, Case
from harness.core.errors import StoreError
from harness.fleet.on_board import id_on_board
from harness.fleet.submission import SliceState, Submission, ranges
from harness.store.conditions import MEASURED_ALREADY
from harness.store.frames import profiles
from harness.store.results import Merged, ResultsStore

if TYPE_CHECKING:
    import pandas as pd


class Missing(NamedTuple):
    id: str  # of a case without a profile
    slice: int
    why: str


def collect(submission: Submission, out: Path, report: Callable[[str], None] = print) -> Merged:
    """Merge the profiles of all slices so far into a results file; idempotent.

    A damaged file of a slice is left out and reported: other runs of the slice may have its cases.
    """
    with ResultsStore(submission.folder / "collected.sqlite") as own:
        runs: Dict[str, str] = {}  # case to the run that measured it first: Slurm runs a slice at least once

        def note(frame: pd.DataFrame) -> None:
            for row in frame[frame["usable"]].itertuples():
                runs.setdefault(general_key(row.case), row.run_id)

        note(profiles(own, include_flagged=True))
        for number in range(1, len(submission.slices) + 1):
            for path in submission.results(number):
                try:
                    source = ResultsStore(path, read_only=True)
                except StoreError as error:
                    report(f"left out: {error}")
                    continue
                with source:
                    frame = profiles(source, include_flagged=True)
                    wanted = [
                        row.Index
                        for row in frame.itertuples()
                        if runs.get(general_key(row.case), row.run_id) == row.run_id
                    ]
                    own.merge(source, set(wanted))
                    note(frame.loc[wanted])
        with ResultsStore(out) as target:
            return target.merge(own)


def measured_keys(submission: Submission, number: int) -> Set[str]:
    """The keys of the cases of a slice that have a usable profile already, from whichever board.

    A damaged file has none, so its cases are measured again; `collect` reports it.
    """
    keys: Set[str] = set()
    for path in submission.results(number):
        with contextlib.suppress(StoreError), ResultsStore(path, read_only=True) as source:
            frame = profiles(source, include_flagged=True)
            keys |= {general_key(case) for case in frame.loc[frame["usable"], "case"]}
    return keys


def general_key(case: Case) -> str:
    """The description of a case without the board of the pool."""
    return case_key(case).replace(case.device, case.device.partition(INSTANCE_MARK)[0], 1)


def missing(submission: Submission, states: Sequence[SliceState]) -> List[Missing]:
    path = submission.folder / "collected.sqlite"
    there = set()
    if path.exists():
        with ResultsStore(path, read_only=True) as store:
            there = {general_key(case) for case in profiles(store, include_flagged=True)["case"]}
    cases, cases_missing = submission.cases(), []
    for state, (first, count, _) in zip(states, submission.slices):
        lacking = [(name, key) for name, key in cases[first - 1 : first - 1 + count] if key not in there]
        outcomes: Dict[Tuple[str, str], Tuple[str, str]] = {}
        for path in submission.reports(state.number) if lacking else ():
            outcomes.update(_outcomes(path, submission.device))
        left_out = {row.case: row.why for row in submission.left_out(state.number)}
        for name, _ in lacking:
            result, message = outcomes.get(_test_of(name, submission.device), ("", ""))
            if result == "passed" or message.startswith(MEASURED_ALREADY):
                continue  # its profiles are stored as those of other cases
            why = left_out.get(name) or message or f"its slice is {state.state}{f': {state.why}' if state.why else ''}"
            cases_missing.append(Missing(name, state.number, why))
    return cases_missing


def failures_of(submission: Submission, number: int) -> Dict[str, Dict[str, str]]:
    """The cases of a slice that failed, with the message of the last failure on each board."""
    first, count, _ = submission.slices[number - 1]
    names = {_test_of(name, submission.device): name for name, _ in submission.cases()[first - 1 : first - 1 + count]}
    failures: Dict[str, Dict[str, str]] = {}
    for path in submission.reports(number):
        board = path.stem.split("-")[2]  # junit-TIME-BOARD-PART
        for test, (result, message) in _outcomes(path, submission.device).items():
            if result in ("failure", "error") and test in names:
                failures.setdefault(names[test], {})[board] = message
    return failures


def _test_of(name: str, device: str) -> Tuple[str, str]:
    """The class name and the name that a JUnit report has for a test id, on whichever board."""
    file, _, test = name.partition("::")
    return file[: -len(".py")].replace("/", "."), id_on_board(device, test)


def _outcomes(path: Path, device: str) -> Dict[Tuple[str, str], Tuple[str, str]]:
    try:
        if path.stat().st_size > 1 << 28:
            raise ValueError("it is too large for a report")
        root = ElementTree.fromstring(path.read_bytes())
    except (ValueError, ElementTree.ParseError) as error:
        raise StoreError(f"{path} is damaged: {error}", "remove it, and read the slice's log") from error
    outcomes = {}
    for test in root.iter("testcase"):
        problem = next((child for child in test if child.tag in ("failure", "error", "skipped")), None)
        result = "passed" if problem is None else problem.tag
        message = "" if problem is None else (problem.get("message") or problem.tag).splitlines()[0][:300]
        outcomes[test.get("classname", ""), id_on_board(device, test.get("name", ""))] = (result, message)
    return outcomes


def format_missing(lacking: Sequence[Missing], most: int = 20) -> str:
    by_reason: Dict[str, List[Missing]] = {}
    for case in lacking:
        by_reason.setdefault(case.why, []).append(case)
    lines, groups = [], sorted(by_reason.items(), key=lambda item: -len(item[1]))
    for why, group in groups[:most]:
        examples = ", ".join(case.id.partition("::")[2] for case in group[:2])
        slices = ranges(list({case.slice for case in group}))
        lines.append(f"  {len(group)}: {why} (slice {slices}: {examples}{', ...' if len(group) > 2 else ''})")
    if groups[most:]:
        lines.append(f"  {sum(len(group) for _, group in groups[most:])} more, for {len(groups) - most} other reasons")
    return "\n".join(lines)
