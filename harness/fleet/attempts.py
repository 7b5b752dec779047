"""Attempts at a slice: what the next one measures and where, cases that are left out, boards that fail every slice.

The script of a slice calls this as `python -m harness.fleet.attempts ACTION ...` when an attempt has failed and before
the next one; first attempts that succeed do without it.

Whether a board or a case is to blame is decided by what other boards do with the same: a board is taken out of service
only if others of its pool can do what it fails, a case is left out only if several boards fail at it in the same way.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Sequence, Set, Tuple

from harness.core.errors import CannotRunError
from harness.fleet.lab import Fleet
from harness.fleet.slurm import Slurm
from harness.fleet.submission import Submission, lock_submission, submissions

MOST_ATTEMPTS = 3
MOST_FAILED_SLICES = 3  # that a board may fail in succession
MOST_FAILED_BOARDS = 3  # that fail in the same way, until what they ran is to blame
MOST_LEFT_OUT = 2  # cases of a slice, each of which cut off two runs
UNNAMED = "?"  # the case of a run that was cut off before it began its first case
ENDED_EARLY = "started, and no more was heard of it"
HELD, QUEUED, CANCELLED = "held", "queued", "cancelled"
BOARD, WORKLOAD = "board", "workload"
CUT_OFF = "left out, because it cut off two runs"


class SliceAttempt(NamedTuple):
    began: str
    board: str
    why: str  # it failed
    case: str  # the id of the case at which the run was cut off, or UNNAMED; empty if pytest ended by itself


def read_attempts(path: Path) -> List[SliceAttempt]:
    rows = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    return [SliceAttempt(*[*row, "", "", ""][:4]) for row in rows]


def fatal_case(attempts: Sequence[SliceAttempt]) -> str:
    """The case at which two runs were cut off; empty if there is none."""
    cases = [attempt.case for attempt in attempts if attempt.case not in ("", UNNAMED)]
    return next((case for case in cases if cases.count(case) > 1), "")


def windows(cases: Sequence[str], attempts: Sequence[SliceAttempt]) -> List[List[str]]:
    """The cases of an attempt, in the parts in which they are run, one after the other, in their order.

    Results are fetched after each part. A case at which a run was cut off is a part of its own. A run that was cut off
    without naming a case halves the parts: bisection.
    """
    suspects = {attempt.case for attempt in attempts}
    halvings = sum(attempt.case == UNNAMED for attempt in attempts)
    most = max(1, -(-len(cases) // 2**halvings))
    parts: List[List[str]] = []
    for case in cases:
        if case in suspects:
            parts += [[case], []]
        elif not parts or len(parts[-1]) >= most:
            parts.append([case])
        else:
            parts[-1].append(case)
    return [part for part in parts if part]


def boards_to_avoid(attempts: Sequence[SliceAttempt], in_service: Set[str]) -> List[str]:
    """Boards on which a slice failed, if another one is in service; else none."""
    failed = {attempt.board for attempt in attempts if attempt.why != ENDED_EARLY}
    return sorted(failed) if in_service - failed else []


def blamed(
    failures: Sequence[Tuple[str, int]], attempts_of: Callable[[str, int], Sequence[SliceAttempt]], board: str
) -> int:
    """The number of slices that failed on a board, and on no other board since.

    `failures` are the submission and number of each slice that failed there since one was last done there.
    """

    def is_its_own(submission: str, number: int) -> bool:
        boards = {attempt.board for attempt in attempts_of(submission, number) if attempt.why != ENDED_EARLY}
        return boards <= {board}

    return sum(is_its_own(submission, number) for submission, number in set(failures))


def manner(why: str, board: str) -> str:
    """A reason without the board and the numbers in it, which differ where boards fail in the same way."""
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", why.replace(board, "its board"))


class Ledger:
    """What a fleet's folder records of the failures of boards and slices."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._folder = fleet.folder

    def attempts(self, submission: str, number: int) -> List[SliceAttempt]:
        return read_attempts(self._folder / "submissions" / submission / "slices" / str(number) / "attempts")

    def failures(self, board: str) -> List[Tuple[str, int, str]]:
        """Submission, number and reason of each failure of a board since it last finished a slice."""
        path = self._folder / "run" / f"{board}.failures"
        rows = [line.split("\t", 2) for line in path.read_text().splitlines()] if path.exists() else []
        return [(submission, int(number), why) for submission, number, why in rows]

    def fault_of(self, board: str, others: Set[str]) -> str:
        """Why a board has to stay out of service: it failed slices that no other board failed. Empty if it has not.

        `others` are the boards of its pool that are in service. If there are none, the board goes on: its failures show
        whose fault it is. So it does if all of them, or two, fail in the same way, and no slice of these submissions is
        done: then the slices are to blame.
        """
        failures = self.failures(board)
        count = blamed([(submission, number) for submission, number, _ in failures], self.attempts, board)
        if count < MOST_FAILED_SLICES or not others:
            return ""
        own = manner(failures[-1][2], board)
        alike = [other for other in others if own in [manner(why, other) for _, _, why in self.failures(other)]]
        is_common = len(alike) >= min(len(others), MOST_FAILED_BOARDS - 1)
        if is_common and not any(self._has_done(submission) for submission in {row[0] for row in failures}):
            return ""
        hint = f"see to it, then: fleet retry --board {board}"
        return f"failed {count} slices in succession, and no other board failed them: {failures[-1][2]}; {hint}"

    def _has_done(self, submission: str) -> bool:
        files = (self._folder / "submissions" / submission / "slices").glob("*/ended")
        return any(path.read_text().startswith("done") for path in files)

    def able(self, board: str, workload: str) -> List[str]:
        """The other boards of a board's pool that have trained a workload."""
        pool = next(entry.pool for entry in self._fleet.lab.board if entry.name == board)
        others = [entry.name for entry in self._fleet.pool(pool) if entry.name != board]
        return [other for other in others if workload in self._rehearsed(other)]

    def _rehearsed(self, board: str) -> List[str]:
        path = self._folder / "run" / f"{board}.rehearsed"
        return path.read_text().splitlines() if path.exists() else []

    def in_service(self, pool: str, slurm: Slurm) -> Set[str]:
        boards = {board.name for board in self._fleet.pool(pool)}
        nodes = [node for node in slurm.nodes() if node.name in boards]
        return {node.name for node in nodes if not node.reason and "reserved" not in node.state}


def failed(fleet: Fleet, submission: Submission, number: int, board: str, own_job: str = "") -> Tuple[str, str]:
    """Decide what becomes of a slice after an attempt failed on a board; queues it again unless it is held.

    Leaves out a case that cut off two runs, or that failed on several boards in the same way, and takes the board out
    of service if it fails every slice while others of the pool do not. `own_job` is the Slurm job of the attempt.
    Returns QUEUED, HELD or CANCELLED, and the reason.
    """
    with lock_submission(submission.folder):
        return _decide(fleet, submission, number, board, own_job)


def _decide(fleet: Fleet, submission: Submission, number: int, board: str, own_job: str) -> Tuple[str, str]:
    slurm, ledger = Slurm(fleet.folder), Ledger(fleet)
    attempts, left_out = ledger.attempts(submission.id, number), submission.left_out(number)
    since = attempts[left_out[-1].attempts :] if left_out else attempts
    in_service = ledger.in_service(submission.pool, slurm)
    fault = ledger.fault_of(board, in_service - {board})
    if fault:
        slurm.call("scontrol", "update", f"NodeName={board}", "State=DRAIN", f"Reason=jetwatt: {fault}")
        in_service.discard(board)
    cut_off_count = sum(row.why.startswith(CUT_OFF) for row in left_out)
    fatal = fatal_case(since)
    if fatal and cut_off_count < MOST_LEFT_OUT:
        cut_off = " and ".join(f"{attempt.board}: {attempt.why}" for attempt in since if attempt.case == fatal)
        _leave_out(submission, number, {fatal: f"{CUT_OFF} ({cut_off})"}, len(attempts))
        since = []
    elif fatal or (cut_off_count == MOST_LEFT_OUT and since[-1:] and since[-1].case):
        return HELD, f"{MOST_LEFT_OUT} cases of it are left out, and another one cut off a run: {since[-1].why}"
    if len(since) >= MOST_ATTEMPTS:
        failing = _failed_alike(submission, number, len(fleet.pool(submission.pool)))
        if not failing:
            return HELD, f"failed {MOST_ATTEMPTS} times, the last time: {since[-1].why}"
        _leave_out(submission, number, failing, len(attempts))
        since = []
    avoided = [] if submission.board else boards_to_avoid(attempts, in_service)
    return _queue(fleet, submission, number, avoided, own_job)


def _queue(fleet: Fleet, submission: Submission, number: int, avoided: Sequence[str], own_job: str) -> Tuple[str, str]:
    slurm = Slurm(fleet.folder)
    if submission.is_cancelled:
        return CANCELLED, "fleet retry continues it"
    others = [job.id for job in slurm.jobs(submission.job_name) if job.slice == number and job.id != own_job]
    if others:  # it was taken for lost
        return QUEUED, f"again already, as job {others[0]}"
    present = {entry.name for entry in fleet.pool(submission.pool)}  # a board may have been renamed
    avoided = [board for board in avoided if board in present]
    path = submission.file(number, "avoided")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(",".join(avoided))
    submission.queue(slurm, [number], avoided, fleet.lab.requeue_seconds)
    return QUEUED, f"again{f', on another board than {chr(44).join(avoided)}' if avoided else ''}"


def _leave_out(submission: Submission, number: int, reasons: Dict[str, str], attempts: int) -> None:
    """Leave cases out of a slice, each for a reason, after a number of attempts that count no more."""
    path = submission.file(number, "left_out")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for case, why in reasons.items():
            file.write(f"{case}\t{' '.join(why.split())}\t{attempts}\n")


def _failed_alike(submission: Submission, number: int, boards: int) -> Dict[str, str]:
    """The cases of a slice that failed in the same way on three boards, or on all of fewer; each with the reason."""
    from harness.fleet.collecting import failures_of

    if boards < 2 or submission.board:
        return {}
    failing = {}
    for case, messages in failures_of(submission, number).items():
        counts = Counter(manner(message, board) for board, message in messages.items())
        same, count = counts.most_common(1)[0]
        if count >= min(MOST_FAILED_BOARDS, boards):
            names = [board for board, message in messages.items() if manner(message, board) == same]
            failing[case] = f"left out, because it failed on {', '.join(names)}: {messages[names[-1]]}"
    return failing


def unable(
    fleet: Fleet, submission: Submission, number: int, board: str, workload: str, why: str, own_job: str = ""
) -> Tuple[str, str]:
    """Decide whose fault it is that a board could not train a minibatch of a workload before a slice.

    Returns BOARD if another board has trained it. WORKLOAD, with the cases of the workload left out of the slice, if
    three boards failed in the same way, or two or more and none in service is left to try. Otherwise QUEUED: another
    board tries it, and this one stays in service. No attempt is counted.
    """
    slurm, ledger = Slurm(fleet.folder), Ledger(fleet)
    with lock_submission(submission.folder):
        able = ledger.able(board, workload)
        if able:
            return BOARD, f"{able[0]} can"
        reasons = _reasons_unable(submission, workload)
        reasons[board] = " ".join(why.split())
        with submission.unable.open("a") as file:
            file.write(f"{board}\t{workload}\t{reasons[board]}\n")
        pool = [entry.name for entry in fleet.pool(submission.pool)]
        in_service = ledger.in_service(submission.pool, slurm) | {board}
        candidates = {submission.board} if submission.board else in_service
        are_enough = bool(submission.board) or len(reasons) >= min(2, len(pool))  # the others may be out for a moment
        alike = Counter(manner(reason, name) for name, reason in reasons.items())
        if (candidates <= reasons.keys() and are_enough) or max(alike.values()) >= MOST_FAILED_BOARDS:
            left_out = submission.left_out(number)
            cases = {*submission.cases_of(number, workload)} - {row.case for row in left_out}
            said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            reason = f"left out, because {workload} could not be trained ({said})"
            _leave_out(submission, number, dict.fromkeys(cases, reason), left_out[-1].attempts if left_out else 0)
            return WORKLOAD, f"nor can {len(reasons) - 1} other boards; {len(cases)} cases of the slice are left out"
        avoided = sorted(reasons) if candidates - reasons.keys() else []
        return _queue(fleet, submission, number, avoided, own_job)


def _reasons_unable(submission: Submission, workload: str) -> Dict[str, str]:
    """Why boards could not train a workload of a submission, by board."""
    path = submission.unable
    rows = [line.split("\t", 2) for line in path.read_text().splitlines()] if path.exists() else []
    return {board: why for board, name, why in rows if name == workload}


def admit_avoided(fleet: Fleet, report: Callable[[str], None] = print) -> None:
    """Let waiting slices have the boards they avoid, if no other board of the pool is in service any more."""
    slurm, ledger = Slurm(fleet.folder), Ledger(fleet)
    for submission in submissions(fleet):
        if submission.is_cancelled or submission.is_settled:
            continue
        for job in slurm.jobs(submission.job_name):
            path = submission.file(job.slice or 0, "avoided")
            avoided = {name for name in (path.read_text().split(",") if path.exists() else ()) if name}
            if job.state != "PENDING" or not avoided:
                continue
            in_service = ledger.in_service(submission.pool, slurm)
            if in_service and in_service <= avoided:
                slurm.call("scontrol", "update", f"JobId={job.id}", "ExcNodeList=")
                path.unlink()
                report(f"{submission.id}: slice {job.slice} may have {', '.join(sorted(avoided))} again")


def plan(submission: Submission, number: int) -> List[List[str]]:
    """The lines of `cases.txt` that the next attempt at a slice has to measure, in parts."""
    from harness.fleet.collecting import measured_keys

    left_out = submission.left_out(number)
    measured = measured_keys(submission, number)
    first, count, _ = submission.slices[number - 1]
    skipped = {row.case for row in left_out}
    lines: Dict[str, str] = {}
    for name, key in submission.cases()[first - 1 : first - 1 + count]:
        if key not in measured and name not in skipped:
            lines[name] = f"{name}\t{key}"
    attempts = read_attempts(submission.file(number, "attempts"))
    since = attempts[left_out[-1].attempts :] if left_out else attempts
    return [[lines[name] for name in part] for part in windows(list(lines), since)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.fleet.attempts", description=__doc__)
    parser.add_argument("action", choices=("failed", "plan", "fault", "unable", "able"))
    parser.add_argument("--lab", type=Path, required=True)
    parser.add_argument("--submission", default="")
    parser.add_argument("--slice", type=int, default=0)
    parser.add_argument("--board", default="")
    parser.add_argument("--workload", default="")
    parser.add_argument("--why", default="")
    arguments = parser.parse_args()
    fleet = Fleet(arguments.lab)
    if arguments.action == "fault":
        pool = next(board.pool for board in fleet.lab.board if board.name == arguments.board)
        ledger = Ledger(fleet)
        print(ledger.fault_of(arguments.board, ledger.in_service(pool, Slurm(fleet.folder)) - {arguments.board}))
        return 0
    if arguments.action == "able":
        print(*Ledger(fleet).able(arguments.board, arguments.workload))
        return 0
    submission = Submission(fleet.folder / "submissions" / arguments.submission)
    if arguments.action == "plan":
        for part_number, part in enumerate(plan(submission, arguments.slice), start=1):
            submission.file(arguments.slice, f"part.{part_number}").write_text("".join(f"{line}\n" for line in part))
        return 0
    own_job = f"{os.environ.get('SLURM_ARRAY_JOB_ID')}_{arguments.slice}"  # as squeue lists it
    attempt = (fleet, submission, arguments.slice, arguments.board)
    try:
        if arguments.action == "unable":
            verdict = unable(*attempt, arguments.workload, arguments.why, own_job)
        else:
            verdict = failed(*attempt, own_job)
        print("\t".join(verdict))
    except CannotRunError as error:  # Slurm queues it again, on any board
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
