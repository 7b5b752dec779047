"""`fleet`: a campaign on the boards of a lab, in slices, over nights, by Slurm: docs/fleet.md."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict

from harness.cli.options import output_file
from harness.core.errors import InvalidValueError
from harness.core.terminal import format_table, shown
from harness.fleet import collecting, submission
from harness.fleet.lab import Fleet
from harness.fleet.slurm import Job, Slurm

LAB_VARIABLE = "JETWATT_LAB"
OK_CODE, INCOMPLETE_CODE = 0, 1
_POLL_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "A campaign on the boards of a lab: cut into slices of some minutes, given out by Slurm on a lab host, "
        "measured through ssh, collected into one results file. One board needs nothing of this."
    )
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name: str, text: str, **how: Any) -> argparse.ArgumentParser:
        one = actions.add_parser(name, description=text, **how)
        if name != "init":
            default = os.environ.get(LAB_VARIABLE, "lab.toml")
            one.add_argument("--lab", type=Path, default=Path(default), help=f"default: ${LAB_VARIABLE}, or lab.toml")
        return one

    action("init", "Make the lab's folder, or bring it up to date: Slurm's configuration, keys, scripts. Says what "
           "root must do.").add_argument("lab", type=Path, help="lab.toml")  # fmt: skip
    one = action(
        "submit",
        "Cut a campaign into slices and queue them.",
        epilog="exit code with --wait: 0 every slice is done, 1 some are not",
    )
    one.add_argument("--pool", required=True, help="board type and JetPack: orin-agx-jp6; an unknown one lists all")
    one.add_argument("--board", default="", help="only on this board of the pool")
    one.add_argument("--campaign", default="", metavar="NAME|FILE", help="as pytest benchmarks takes it")
    one.add_argument(
        "--case-seconds", type=float, default=0.0, help="how long a case takes (default: as the last ones)"
    )
    one.add_argument(
        "--wait", action="store_true", help="until no slice runs or waits; Ctrl-C leaves them in the queue"
    )
    one.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest, behind --: test files, -k, axes")
    one = action("status", "Which boards are idle, busy or out and why, who booked them, and how far submissions are.")
    one.add_argument("--json", action="store_true", help="print JSON")
    for name, text in (
        ("collect", "Bring the profiles of a submission into a results file, each case once; as often as you like."),
        ("cancel", "Take a submission out of the queue and end what runs of it. What is done stays."),
        ("retry", "Give slices that are held or lost three further attempts; or a board, that is out, back."),
    ):
        one = action(name, text)
        one.add_argument("--submission", default="", metavar="ID", help="default: the newest")
        if name == "collect":
            one.epilog = "exit code: 0 every case is there; 1 some are missing, which is said"
            one.add_argument("--out", type=output_file, required=True, help="the results file to add to")
        if name == "retry":
            which = one.add_mutually_exclusive_group()
            which.add_argument("--board", default="", help="the board that is to be given back, instead")
            which.add_argument("--lost", action="store_true", help="of all submissions, slices that Slurm lost alone")


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
        raise InvalidValueError(f"--case-seconds is {arguments.case_seconds:g}", "a time above 0")
    how = (arguments.campaign, arguments.case_seconds, arguments.board)
    one = submission.submit(fleet, arguments.pool, arguments.pytest, *how)
    count = sum(count for _, count, _ in one.slices)
    print(f"{one.id}: {count} cases in {len(one.slices)} slices for {arguments.pool}", flush=True)
    return _wait(fleet, one) if arguments.wait else OK_CODE


def _wait(fleet: Fleet, one: submission.Submission) -> int:
    slurm, watch, before = Slurm(fleet.folder), submission.Watch(), ""
    while True:
        states = one.states(slurm.jobs(one.job_name))
        now = f"{len(states)} slices: {_in_words(submission.count_states(states))}"
        if now != before:
            print(f"{datetime.datetime.now():%H:%M:%S} {now}", flush=True)
            before = now
        if watch.is_over(states):
            for state in states:
                if state.state != "done":
                    print(f"slice {state.number} is {state.state}: {state.why}; {one.folder}/log/{state.number}.log")
            return OK_CODE if all(state.state == "done" for state in states) else INCOMPLETE_CODE
        time.sleep(_POLL_S)


def _in_words(counted: Dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counted.items() if count)


def _status(fleet: Fleet, arguments: argparse.Namespace) -> int:
    slurm = Slurm(fleet.folder)
    found = examine(fleet, slurm)
    print(json.dumps(found, indent=1) if arguments.json else format_status(found))
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
                "state": node.state if node else "unknown to Slurm: restart the daemons",
                "mode": node.mode if node else "",
                "busy_with": "; ".join(_holder(job) for job in jobs if board.name in job.nodes.split(",")),
                "reason": node.reason if node else "",
                "boots": len(boots.read_text().splitlines()) if boots.exists() else 0,
            }
        )
    usable = Counter(one["pool"] for one in boards if not one["reason"])
    found, all_of_them = [], submission.submissions(fleet)
    for one in all_of_them:
        states = one.states(jobs)
        told = ("running", "waiting", *(() if one.is_cancelled else ("held", "gone")))
        if one is not all_of_them[-1] and not any(state.state in told for state in states):
            continue
        left = sum(state.count for state in states if state.state in ("running", "waiting"))
        left_s = left * submission.seconds_per_case(fleet, one.pool) / max(1, usable[one.pool])
        held = [
            {"slice": state.number, "why": state.why, "log": str(one.folder / "log" / f"{state.number}.log")}
            for state in states
            if state.state in ("held", "gone")
        ]
        end = datetime.datetime.now() + datetime.timedelta(seconds=left_s) if left and usable[one.pool] else None
        found.append(
            {
                "id": one.id,
                "pool": one.pool,
                "cases": sum(state.count for state in states),
                "slices": submission.count_states(states),
                "estimated_end": end.isoformat(timespec="minutes") if end else None,
                "held": held,
            }
        )
    return {"boards": boards, "reservations": slurm.reservations(), "submissions": found}


def _holder(job: Job) -> str:
    if job.name.startswith("jetwatt-"):
        return f"slice {job.slice} of {job.name.partition('-')[2]}"
    return f"{job.user}'s {job.name} (job {job.id})"


def format_status(found: Dict[str, Any]) -> str:
    """Boards as a table, then what people booked, then each submission."""
    rows = [
        [one["name"], one["pool"], one["state"], one["mode"], shown(one["busy_with"] or one["reason"])]
        for one in found["boards"]
    ]
    lines = [format_table(["board", "pool", "state", "mode", "with whom, or why not"], rows)]
    for one in found["reservations"]:
        span = f"{one.get('StartTime')} to {one.get('EndTime')}"
        lines.append(f"booked: {one.get('Nodes')} by {one.get('Users')}, {span} ({one['ReservationName']})")
    for one in found["submissions"]:
        end = f", done by about {one['estimated_end'].replace('T', ' ')}" if one["estimated_end"] else ""
        lines += ["", f"{one['id']} on {one['pool']}: {one['cases']} cases in slices: {_in_words(one['slices'])}{end}"]
        lines += [f"  slice {part['slice']}: {shown(part['why'])}; {part['log']}" for part in one["held"]]
    return "\n".join(lines)


def _collect(fleet: Fleet, arguments: argparse.Namespace) -> int:
    one = submission.find(fleet, arguments.submission)
    merged = collecting.collect(one, arguments.out)
    lacking = collecting.missing(one, one.states(Slurm(fleet.folder).jobs(one.job_name)))
    print(f"{one.id}: {merged.added} profiles added to {shown(str(arguments.out))}, {merged.known} there already")
    if lacking:
        print(f"{len(lacking)} cases are missing:\n{shown(collecting.format_missing(lacking))}")
    return INCOMPLETE_CODE if lacking else OK_CODE


def _cancel(fleet: Fleet, arguments: argparse.Namespace) -> int:
    one = submission.find(fleet, arguments.submission)
    submission.cancel(fleet, one)
    print(f"{one.id}: cancelled; fleet retry goes on with it")
    return OK_CODE


def _retry(fleet: Fleet, arguments: argparse.Namespace) -> int:
    if arguments.board:
        known = [board.name for board in fleet.lab.board]
        if arguments.board not in known:
            raise InvalidValueError(f"there is no board {arguments.board!r}", f"available: {', '.join(known)}")
        for name in ("boots", "silent", "cycled"):
            path = fleet.folder / "run" / f"{arguments.board}.{name}"
            if path.exists():
                path.unlink()
        Slurm(fleet.folder).call("scontrol", "update", f"NodeName={arguments.board}", "State=RESUME")
        print(f"{arguments.board} is given back")
        return OK_CODE
    which, none = (("gone",), "lost") if arguments.lost else (("held", "gone", "cancelled"), "held or lost")
    asked = submission.submissions(fleet) if arguments.lost else [submission.find(fleet, arguments.submission)]
    for one in asked:
        numbers = submission.retry(fleet, one, which)
        print(f"{one.id}: {f'slices {submission.ranges(numbers)} queued again' if numbers else f'no slice is {none}'}")
    return OK_CODE


_ACTIONS: Dict[str, Callable[[Fleet, argparse.Namespace], int]] = {
    "init": _init,
    "submit": _submit,
    "status": _status,
    "collect": _collect,
    "cancel": _cancel,
    "retry": _retry,
}
