"""`fleet`: a campaign on the boards of a lab, in slices distributed by Slurm: docs/fleet.md."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict

from harness.cli.options import output_file
from harness.core.errors import InvalidValueError
from harness.core.terminal import available_hint, counted, format_table, shown
from harness.core.units import bytes_to_mb
from harness.fleet import collecting, submission
from harness.fleet.attempts import admit_avoided
from harness.fleet.booking import MOST_HOURS, book, end_booking
from harness.fleet.lab import Fleet, user_name
from harness.fleet.slurm import Slurm, SlurmJob

LAB_VARIABLE = "JETWATT_LAB"
OK_CODE, INCOMPLETE_CODE = 0, 1
_POLL_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a campaign on the boards of a lab: in slices of some minutes, distributed by Slurm on a lab host, "
        "measured through ssh, collected into one results file. A single board does not need this."
    )
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name: str, text: str, **options: Any) -> argparse.ArgumentParser:
        command = actions.add_parser(name, description=text, **options)
        if name != "init":
            default = os.environ.get(LAB_VARIABLE, "lab.toml")
            command.add_argument(
                "--lab", type=Path, default=Path(default), help=f"default: ${LAB_VARIABLE}, or lab.toml"
            )
        return command

    action("init", "Create or update the lab's folder: Slurm's configuration, keys, scripts. Prints the steps for "
           "root.").add_argument("lab", type=Path, help="lab.toml")  # fmt: skip
    command = action(
        "submit",
        "Divide a campaign into slices and queue them.",
        epilog="exit code with --wait: 0 every slice is done, 1 some are not",
    )
    command.add_argument("--pool", required=True, help="board type and JetPack: orin-agx-jp6; an unknown one lists all")
    command.add_argument("--board", default="", help="only on this board of the pool")
    command.add_argument("--campaign", default="", metavar="NAME|FILE", help="as pytest benchmarks takes it")
    command.add_argument(
        "--case-seconds", type=float, default=0.0, help="duration of a case (default: average of recent runs)"
    )
    command.add_argument(
        "--wait", action="store_true", help="wait until no slice runs or waits; Ctrl-C leaves them in the queue"
    )
    command.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest, after --: test files, -k, axes")
    command = action("status", "Show the state of the boards, their bookings, and the progress of submissions.")
    command.add_argument("--json", action="store_true", help="print JSON")
    command = action("book", "Book a board for a person, and wait until it is free: no further slice begins on it.")
    command.add_argument("--board", required=True, help="the board, by its name in lab.toml")
    time_or_end = command.add_mutually_exclusive_group()
    time_or_end.add_argument(
        "--hours", type=float, default=2.0, help=f"from now on, at most {MOST_HOURS:g} (default: 2)"
    )
    time_or_end.add_argument("--end", action="store_true", help="end the person's booking of the board instead")
    command.add_argument("--person", default="", help="an account of the lab host (default: yours)")
    for name, text in (
        ("collect", "Merge the profiles of a submission into a results file, each case once; idempotent."),
        ("cancel", "Remove a submission from the queue and end its running slices. Finished ones are kept."),
        ("retry", "Give held or lost slices three more attempts, or return a drained board to service."),
    ):
        command = action(name, text)
        command.add_argument("--submission", default="", metavar="ID", help="default: the newest")
        if name == "collect":
            command.epilog = "exit code: 0 no case is missing; 1 some are missing and listed"
            command.add_argument("--out", type=output_file, required=True, help="the results file to add to")
        if name == "retry":
            which = command.add_mutually_exclusive_group()
            which.add_argument("--board", default="", help="return this board to service instead")
            lost = "only slices that Slurm lost, of all submissions, at most three times each; the daemons do this"
            which.add_argument("--lost", action="store_true", help=lost)


def run(arguments: argparse.Namespace) -> int:
    return _ACTIONS[arguments.action](Fleet(arguments.lab), arguments)


def _init(fleet: Fleet, arguments: argparse.Namespace) -> int:
    todo = fleet.init()
    print(f"{fleet.folder}: the fleet of {arguments.lab}")
    for pool, boards in fleet.pools.items():
        print(f"  pool {pool}: {', '.join(board.name for board in boards)}")
    print(todo, end="")
    return OK_CODE


def _submit(fleet: Fleet, arguments: argparse.Namespace) -> int:
    if arguments.case_seconds < 0:
        raise InvalidValueError(f"--case-seconds is {arguments.case_seconds:g}", "give a time above 0")
    options = (arguments.campaign, arguments.case_seconds, arguments.board)
    submitted = submission.submit(fleet, arguments.pool, arguments.pytest, *options)
    count = sum(count for _, count, _ in submitted.slices)
    print(f"{submitted.id}: {count} cases in {len(submitted.slices)} slices for {arguments.pool}", flush=True)
    return _wait(fleet, submitted) if arguments.wait else OK_CODE


def _wait(fleet: Fleet, submitted: submission.Submission) -> int:
    slurm, watch, before = Slurm(fleet.folder), submission.Watch(), ""
    while True:
        states = submitted.states(slurm.jobs(submitted.job_name))
        now = f"{len(states)} slices: {_in_words(submission.count_states(states))}"
        if now != before:
            print(f"{datetime.datetime.now():%H:%M:%S} {now}", flush=True)
            before = now
        if watch.is_over(states):
            for state in states:
                if state.state != "done" or state.why:
                    print(
                        f"slice {state.number} is {state.state}: {state.why}; {submitted.folder}/log/{state.number}.log"
                    )
            return OK_CODE if all(state.state == "done" and not state.why for state in states) else INCOMPLETE_CODE
        time.sleep(_POLL_S)


def _in_words(counted: Dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counted.items() if count)


def _status(fleet: Fleet, arguments: argparse.Namespace) -> int:
    slurm = Slurm(fleet.folder)
    status = examine(fleet, slurm)
    print(json.dumps(status, indent=1) if arguments.json else format_status(status))
    return OK_CODE


def examine(fleet: Fleet, slurm: Slurm) -> Dict[str, Any]:
    """Boards, bookings and unfinished submissions, as plain values."""
    nodes, jobs = {node.name: node for node in slurm.nodes()}, slurm.jobs()
    boards = []
    for board in fleet.lab.board:
        node = nodes.get(board.name)
        boots = fleet.folder / "run" / f"{board.name}.boots"
        boards.append(
            {
                "name": board.name,
                "pool": board.pool,
                "state": node.state if node else "not in Slurm: restart the daemons",
                "mode": node.mode if node else "",
                "busy_with": "; ".join(_holder(job) for job in jobs if board.name in job.nodes.split(",")),
                "reason": node.reason if node else "",
                "boots": len(boots.read_text().splitlines()) if boots.exists() else 0,
            }
        )
    usable = Counter(board["pool"] for board in boards if not board["reason"])
    unfinished, all_submissions = [], submission.submissions(fleet)
    for entry in all_submissions:
        states = entry.states(jobs)
        listed_states = ("running", "waiting", *(() if entry.is_cancelled else ("held", "gone")))
        is_listed = any(state.state in listed_states or (state.state == "done" and state.why) for state in states)
        if entry is not all_submissions[-1] and not is_listed:
            continue
        left = sum(state.count for state in states if state.state in ("running", "waiting"))
        left_s = left * submission.seconds_per_case(fleet, entry.pool) / max(1, usable[entry.pool])
        held = [
            {"slice": state.number, "why": state.why, "log": str(entry.folder / "log" / f"{state.number}.log")}
            for state in states
            if state.state in ("held", "gone") or (state.state == "done" and state.why)
        ]
        end = datetime.datetime.now() + datetime.timedelta(seconds=left_s) if left and usable[entry.pool] else None
        unfinished.append(
            {
                "id": entry.id,
                "pool": entry.pool,
                "cases": sum(state.count for state in states),
                "slices": submission.count_states(states),
                "estimated_end": end.isoformat(timespec="minutes") if end else None,
                "held": held,
            }
        )
    folder = fleet.folder / "submissions"
    free_mb = bytes_to_mb(shutil.disk_usage(folder).free)
    notes = []
    if free_mb < fleet.lab.free_mb:
        needed = f"{free_mb:.0f} MB are free on the disk of {folder}, {fleet.lab.free_mb:.0f} MB are needed"
        notes.append(f"{needed}: slices wait until there is more, and what they measured stays on the boards")
    return {"boards": boards, "reservations": slurm.reservations(), "submissions": unfinished, "notes": notes}


def _holder(job: SlurmJob) -> str:
    if job.name.startswith("jetwatt-"):
        return f"slice {job.slice} of {job.name.partition('-')[2]}"
    return f"{job.user}'s {job.name} (job {job.id})"


def format_status(status: Dict[str, Any]) -> str:
    """Boards as a table, then bookings, then each submission."""
    rows = [
        [board["name"], board["pool"], board["state"], board["mode"], shown(board["busy_with"] or board["reason"])]
        for board in status["boards"]
    ]
    lines = [format_table(["board", "pool", "state", "mode", "used by, or reason"], rows)]
    for booking in status["reservations"]:
        span = f"{booking.get('StartTime')} to {booking.get('EndTime')}"
        lines.append(f"booked: {booking.get('Nodes')} by {booking.get('Users')}, {span} ({booking['ReservationName']})")
    lines += [f"note: {shown(note)}" for note in status["notes"]]
    for entry in status["submissions"]:
        end = f", done by about {entry['estimated_end'].replace('T', ' ')}" if entry["estimated_end"] else ""
        lines += [
            "",
            f"{entry['id']} on {entry['pool']}: {entry['cases']} cases in slices: {_in_words(entry['slices'])}{end}",
        ]
        lines += [f"  slice {part['slice']}: {shown(part['why'])}; {part['log']}" for part in entry["held"]]
    return "\n".join(lines)


def _book(fleet: Fleet, arguments: argparse.Namespace) -> int:
    slurm, board, person = Slurm(fleet.folder), arguments.board, arguments.person or user_name()
    if arguments.end:
        end_booking(fleet, slurm, board, person)
        print(f"{board}: {person}'s booking has ended")
        return OK_CODE
    booking = book(fleet, slurm, board, person, arguments.hours)
    print(f"{board} is booked by {person} until {booking.get('EndTime', '').replace('T', ' ')}", flush=True)
    before = ""
    while True:
        holders = "; ".join(_holder(job) for job in slurm.jobs() if board in job.nodes.split(","))
        if not holders:
            print(f"{board} is free for {person}")
            return OK_CODE
        if holders != before:
            print(f"waiting for {holders} to end; Ctrl-C leaves the board booked", flush=True)
            before = holders
        time.sleep(_POLL_S)


def _collect(fleet: Fleet, arguments: argparse.Namespace) -> int:
    selected = submission.find(fleet, arguments.submission)
    merged = collecting.collect(selected, arguments.out)
    lacking = collecting.missing(selected, selected.states(Slurm(fleet.folder).jobs(selected.job_name)))
    counts = f"{counted(merged.added, 'profile')} added to {shown(str(arguments.out))}, {merged.present} already there"
    print(f"{selected.id}: {counts}")
    if lacking:
        print(f"{counted(len(lacking), 'case')} missing:\n{shown(collecting.format_missing(lacking))}")
    return INCOMPLETE_CODE if lacking else OK_CODE


def _cancel(fleet: Fleet, arguments: argparse.Namespace) -> int:
    selected = submission.find(fleet, arguments.submission)
    submission.cancel(fleet, selected)
    print(f"{selected.id}: cancelled; fleet retry continues it")
    return OK_CODE


def _retry(fleet: Fleet, arguments: argparse.Namespace) -> int:
    if arguments.board:
        names = [board.name for board in fleet.lab.board]
        if arguments.board not in names:
            raise InvalidValueError(f"there is no board {arguments.board!r}", available_hint(arguments.board, names))
        for name in ("boots", "silent", "cycled", "failures", "rehearsed", "unable"):
            path = fleet.folder / "run" / f"{arguments.board}.{name}"
            if path.exists():
                path.unlink()
        Slurm(fleet.folder).call("scontrol", "update", f"NodeName={arguments.board}", "State=RESUME")
        print(f"{arguments.board} is returned to service")
        return OK_CODE
    if arguments.lost:
        submission.queue_lost(fleet)
        admit_avoided(fleet)
        return OK_CODE
    selected = submission.find(fleet, arguments.submission)
    numbers = submission.retry(fleet, selected, ("held", "gone", "cancelled"))
    ranges = submission.ranges(numbers)
    print(f"{selected.id}: {f'slices {ranges} queued again' if numbers else 'no slice is held or lost'}")
    return OK_CODE


_ACTIONS: Dict[str, Callable[[Fleet, argparse.Namespace], int]] = {
    "init": _init,
    "submit": _submit,
    "status": _status,
    "book": _book,
    "collect": _collect,
    "cancel": _cancel,
    "retry": _retry,
}
