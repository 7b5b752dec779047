"""Attempts at a slice: what the next one measures and where, cases that are left out, boards that fail every slice.

The script of a slice calls this as `python -m harness.fleet.attempts ACTION ...` when an attempt has failed and before
the next one; first attempts that succeed do without it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Sequence, Set, Tuple

from harness.core.errors import CannotRunError
from harness.fleet.lab import Fleet
from harness.fleet.slurm import Slurm
from harness.fleet.submission import Submission, submissions

MOST_ATTEMPTS = 3
MOST_FAILED_SLICES = 3  # that a board may fail in succession
MOST_LEFT_OUT = 2  # cases of a slice, each of which cut off two runs
UNNAMED = "?"  # the case of a run that was cut off before it began its first case
ENDED_EARLY = "started, and no more was heard of it"
HELD, QUEUED = "held", "queued"


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

    def fault_of(self, board: str) -> str:
        """Why a board has to stay out of service: it failed slices that no other board failed. Empty if it has not."""
        failures = self.failures(board)
        count = blamed([(submission, number) for submission, number, _ in failures], self.attempts, board)
        if count < MOST_FAILED_SLICES:
            return ""
        hint = f"see to it, then: fleet retry --board {board}"
        return f"failed {count} slices in succession, and no other board failed them: {failures[-1][2]}; {hint}"

    def in_service(self, pool: str, slurm: Slurm) -> Set[str]:
        boards = {board.name for board in self._fleet.pool(pool)}
        nodes = [node for node in slurm.nodes() if node.name in boards]
        return {node.name for node in nodes if not node.reason and "reserved" not in node.state}


def failed(fleet: Fleet, submission: Submission, number: int, board: str) -> Tuple[str, str]:
    """Decide what becomes of a slice after an attempt failed on a board; queues it again unless it is held.

    Leaves out a case that cut off two runs, and takes the board out of service if it fails every slice while others of
    the pool do not. Returns QUEUED or HELD, and the reason.
    """
    slurm, ledger = Slurm(fleet.folder), Ledger(fleet)
    attempts, left_out = ledger.attempts(submission.id, number), submission.left_out(number)
    since = attempts[left_out[-1].attempts :] if left_out else attempts
    in_service = ledger.in_service(submission.pool, slurm)
    fault = ledger.fault_of(board)
    if fault and in_service - {board}:  # the last board goes on, and its failures show whose fault it is
        slurm.call("scontrol", "update", f"NodeName={board}", "State=DRAIN", f"Reason=jetwatt: {fault}")
        in_service.discard(board)
    fatal = fatal_case(since)
    if fatal and len(left_out) < MOST_LEFT_OUT:
        cut_off = " and ".join(f"{attempt.board}: {attempt.why}" for attempt in since if attempt.case == fatal)
        why = f"left out, because it cut off two runs ({cut_off})"
        with submission.file(number, "left_out").open("a") as file:
            file.write(f"{fatal}\t{why}\t{len(attempts)}\n")
        since = []
    elif fatal or (len(left_out) == MOST_LEFT_OUT and since[-1:] and since[-1].case):
        return HELD, f"{len(left_out)} cases of it are left out, and another one cut off a run: {since[-1].why}"
    if len(since) >= MOST_ATTEMPTS:
        return HELD, f"failed {MOST_ATTEMPTS} times, the last time: {since[-1].why}"
    avoided = [] if submission.board else boards_to_avoid(attempts, in_service)
    submission.file(number, "avoided").write_text(",".join(avoided))
    submission.queue(slurm, [number], avoided, fleet.lab.requeue_seconds)
    return QUEUED, f"again{f', on another board than {chr(44).join(avoided)}' if avoided else ''}"


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
    parser.add_argument("action", choices=("failed", "plan", "fault"))
    parser.add_argument("--lab", type=Path, required=True)
    parser.add_argument("--submission", default="")
    parser.add_argument("--slice", type=int, default=0)
    parser.add_argument("--board", default="")
    arguments = parser.parse_args()
    fleet = Fleet(arguments.lab)
    if arguments.action == "fault":
        pool = next(board.pool for board in fleet.lab.board if board.name == arguments.board)
        ledger = Ledger(fleet)
        fault = ledger.fault_of(arguments.board)
        print(fault if fault and ledger.in_service(pool, Slurm(fleet.folder)) - {arguments.board} else "")
        return 0
    submission = Submission(fleet.folder / "submissions" / arguments.submission)
    if arguments.action == "plan":
        for part_number, part in enumerate(plan(submission, arguments.slice), start=1):
            submission.file(arguments.slice, f"part.{part_number}").write_text("".join(f"{line}\n" for line in part))
        return 0
    try:
        print("\t".join(failed(fleet, submission, arguments.slice, arguments.board)))
    except CannotRunError as error:  # Slurm queues it again, on any board
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
