"""A submission: the cases of a campaign in slices of falling passes, tasks of a Slurm array, and how they stand."""

from __future__ import annotations

import datetime
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from harness.core.cases import INSTANCE_MARK
from harness.core.errors import CannotRunError, InvalidValueError, StoreError, UnknownNameError
from harness.core.files import write_durably
from harness.core.mode_orders import SAFE, order_passes
from harness.core.power_modes import PowerMode
from harness.fleet.lab import BoardEntry, Fleet
from harness.fleet.slurm import Job, Slurm

USUAL_CASE_S = 45.0  # until a slice of the pool has told: 40 minibatches, settling and what is around them
MOST_SLICES = 20000  # of an array
LOST_S = 120.0  # that Slurm may know nothing of a slice: four times what `daemons` takes to queue it again


class ListedCase(NamedTuple):  # as `pytest --list-cases` writes it
    id: str  # of its test
    key: str  # the case in words, in which no two are alike
    device: str
    power_mode: str
    mode: PowerMode


class Slice(NamedTuple):
    """Cases that a board measures in one go, within which no clock rises."""

    cases: Tuple[ListedCase, ...]
    boot_mode: str  # the mode that the board has to be booted into; empty where it has no such


class SliceState(NamedTuple):
    number: int
    state: str  # done, held, running, waiting, cancelled, or gone: it is neither in the queue nor done
    board: str
    seconds: float  # it took; 0 while it is not done
    count: int  # of its cases
    why: str  # it is held, or waits


def cut(cases: Sequence[ListedCase], board: BoardEntry, most: int) -> List[Slice]:
    """Cases in slices of so many at most, by boot mode, each within one pass of falling clocks."""
    groups: Dict[str, List[ListedCase]] = {}
    by_name = {mode.lower(): mode for mode in board.modes}
    usual = board.modes[0] if board.modes else ""
    for case in cases:
        groups.setdefault(by_name.get(case.power_mode.lower(), usual), []).append(case)
    slices = []
    for boot_mode, group in sorted(groups.items(), key=lambda one: one[0] != usual):
        for one_pass in order_passes(group, SAFE, lambda case: case.mode):
            count = -(-len(one_pass) // most)  # slices of much the same length
            size = -(-len(one_pass) // count)
            slices += [Slice(tuple(one_pass[at : at + size]), boot_mode) for at in range(0, len(one_pass), size)]
    return slices


def list_cases(device: str, words: Sequence[str], file: Path) -> List[ListedCase]:
    """The cases that `pytest` has for a device, by its own words; a CannotRunError has what it complains of."""
    paths = [word for word in words if word.partition("::")[0].endswith(".py") or Path(word).is_dir()]
    if not paths and not Path("benchmarks").is_dir():
        raise CannotRunError("there is no folder benchmarks here", "submit from a clone, or name tests behind --")
    command = [sys.executable, "-m", "pytest", *([] if paths else ["benchmarks"]), "--collect-only", "-q"]
    command += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command += ["--device", device, "--list-cases", str(file), *words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode not in (0, 5) or not file.exists():
        raise CannotRunError(f"pytest cannot tell the cases: {done.stdout.strip()[-2000:]}")
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    cases = [ListedCase(**{**row, "mode": PowerMode(*row["mode"])}) for row in rows]
    # a campaign has several instances of a simulated board; here those are the boards of the pool
    cases = [one for one in cases if not one.device.startswith(device + INSTANCE_MARK)]
    if not cases:
        raise InvalidValueError(f"there is no case for {device}", "pytest benchmarks --collect-only -q shows why")
    return cases


class Submission:
    """A folder of a fleet: what was asked for, its slices, and what came back of each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.id = folder, folder.name
        try:
            told = json.loads((folder / "submission.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            known = ", ".join(sorted(path.name for path in folder.parent.glob("*/"))) or "none"
            raise UnknownNameError(f"there is no submission {self.id!r}", f"available: {known}") from error
        self.pool: str = told["pool"]
        self.device: str = told["device"]
        self.board: str = told.get("board", "")  # the only one that may run it
        self.slices: List[Tuple[int, int, str]] = [tuple(one) for one in told["slices"]]  # first case, count, boot mode

    @property
    def job_name(self) -> str:
        return f"jetwatt-{self.id}"

    @property
    def is_cancelled(self) -> bool:
        return (self.folder / "cancelled").exists()

    def cases(self) -> List[Tuple[str, str]]:
        """Test id and key of each case, in the order of the slices."""
        lines = (self.folder / "cases.txt").read_text(encoding="utf-8").splitlines()
        return [(name, key) for name, _, key in (line.partition("\t") for line in lines)]

    def file(self, number: int, name: str) -> Path:
        """What came back of a slice; numbers begin at 1."""
        return self.folder / "slices" / str(number) / name

    def states(self, jobs: Sequence[Job]) -> List[SliceState]:
        queued = {job.slice: job for job in jobs if job.name == self.job_name}
        return [self._state(number, queued.get(number)) for number in range(1, len(self.slices) + 1)]

    def _state(self, number: int, job: Any) -> SliceState:
        count = self.slices[number - 1][1]
        try:
            state, board, seconds, _, why = self.file(number, "ended").read_text().rstrip("\n").split("\t")
        except (OSError, ValueError):
            state, board, seconds, why = "", "", "0", ""
        if state in ("done", "held"):
            return SliceState(number, state, board, float(seconds), count, why)
        if job is None and self.is_cancelled:
            return SliceState(number, "cancelled", "", 0.0, count, "fleet retry goes on with it")
        if job is None or "launch failed" in job.reason:
            return SliceState(number, "gone", "", 0.0, count, "Slurm lost it: fleet retry")
        if job.state == "PENDING" and "held" in job.reason.lower():
            return SliceState(number, "held", "", 0.0, count, job.reason)
        state = "waiting" if job.state == "PENDING" else "running"
        return SliceState(number, state, job.nodes, 0.0, count, job.reason)

    def queue(self, slurm: Slurm, numbers: Sequence[int]) -> List[str]:
        """Have Slurm run slices of these numbers; returns the ids of the arrays."""
        slice_script, ids = self.folder.parent.parent / "bin/slice", []
        for mode in dict.fromkeys(self.slices[number - 1][2] for number in numbers):
            array = ranges([number for number in numbers if self.slices[number - 1][2] == mode])
            words = ["--parsable", f"--array={array}", f"--job-name={self.job_name}", f"--partition={self.pool}"]
            words += ["--nice=1000", "--requeue", "--export=PATH,HOME,USER,LANG"]
            words += [f"--output={self.folder}/log/%a.log", "--open-mode=append", f"--chdir={self.folder}"]
            words += [f"--constraint={mode}"] if mode else []
            words += [f"--nodelist={self.board}"] if self.board else []
            printed = slurm.call("sbatch", *words, f"--wrap=exec {slice_script} {self.id}")
            ids.append(printed.strip().partition(";")[0])
        return ids


class Watch:
    """Over slices that are waited for: whether none runs or waits any more."""

    def __init__(self) -> None:
        self._queued_s = time.monotonic()

    def is_over(self, states: Sequence[SliceState]) -> bool:
        """What a slurmctld that was killed no longer knows is given time: `daemons` queues it again."""
        if any(one.state in ("running", "waiting") for one in states):
            self._queued_s = time.monotonic()
            return False
        return not any(one.state == "gone" for one in states) or time.monotonic() - self._queued_s > LOST_S


def submit(
    fleet: Fleet, pool: str, words: Sequence[str], campaign: str = "", case_s: float = 0.0, board: str = ""
) -> Submission:
    """Cut a campaign into slices and have Slurm run them on the boards of a pool, or on the one that is named.

    `words` are further arguments for pytest; a case takes `case_s`, where it is 0 what the pool's slices took so far.
    """
    boards = fleet.pool(pool)
    if board and board not in [one.name for one in boards]:
        raise UnknownNameError(
            f"pool {pool} has no board {board!r}", f"available: {', '.join(one.name for one in boards)}"
        )
    folder = _new_folder(fleet.folder / "submissions")
    words = list(words)
    asked = ["--campaign", campaign] if campaign else []
    is_file = bool(campaign) and Path(campaign).is_file()
    if is_file:
        write_durably(folder / "campaign.toml", Path(campaign).read_bytes())
    device = boards[0].device
    cases = list_cases(device, [*asked, *words], folder / "cases.jsonl")
    case_s = case_s or seconds_per_case(fleet, pool)
    slices = cut(cases, boards[0], max(1, round(fleet.lab.slice_minutes * 60 / case_s)))
    on_boards = [*([] if is_file else asked), *(word for word in words if not word.partition("::")[0].endswith(".py"))]
    return enqueue(fleet, folder, pool, device, slices, on_boards, board)


def enqueue(
    fleet: Fleet, folder: Path, pool: str, device: str, slices: Sequence[Slice], words: Sequence[str], board: str = ""
) -> Submission:
    if len(slices) > MOST_SLICES:
        raise InvalidValueError(f"{len(slices)} slices are more than {MOST_SLICES}", "make slice_minutes longer")
    table, lines, first = [], [], 1
    for part in slices:
        table.append((first, len(part.cases), part.boot_mode))
        lines += [f"{case.id}\t{case.key}\n" for case in part.cases]
        first += len(part.cases)
    (folder / "log").mkdir()
    (folder / "slices").mkdir()
    rows = [f"{number}\t{at}\t{count}\n" for number, (at, count, _) in enumerate(table, start=1)]
    (folder / "cases.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "slices.tsv").write_text("".join(rows))
    (folder / "arguments").write_text("".join(f"{word}\n" for word in words))
    told = {"pool": pool, "device": device, "slices": table, "board": board}
    write_durably(folder / "submission.json", json.dumps(told).encode())
    submission = Submission(folder)
    try:
        submission.queue(Slurm(fleet.folder), range(1, len(slices) + 1))
    except CannotRunError as error:
        hint = f"{error.hint}; then `jetwatt fleet retry` queues it, or `jetwatt fleet cancel` gives it up"
        raise CannotRunError(f"{submission.id} is written down, but not queued: {error.what}", hint) from error
    return submission


def _new_folder(parent: Path) -> Path:
    now = datetime.datetime.now(datetime.timezone.utc)
    if not parent.is_dir():
        raise CannotRunError(f"there is no fleet in {parent.parent}", "jetwatt fleet init lab.toml makes it")
    for number in range(1, 1000):
        folder = parent / f"{now:%Y%m%d-%H%M%S}{f'-{number}' if number > 1 else ''}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise StoreError(f"{parent} takes no further submission", "wait a second")


def submissions(fleet: Fleet) -> List[Submission]:
    """All of them, oldest first."""
    files = sorted((fleet.folder / "submissions").glob("*/submission.json"))
    return [Submission(file.parent) for file in files]


def find(fleet: Fleet, name: str = "") -> Submission:
    """The submission of that name, or the newest."""
    if name:
        return Submission(fleet.folder / "submissions" / Path(name).name)
    found = submissions(fleet)
    if not found:
        raise UnknownNameError("nothing was submitted yet", "jetwatt fleet submit --campaign quick --pool POOL")
    return found[-1]


def seconds_per_case(fleet: Fleet, pool: str) -> float:
    """What a case took in the newest submissions of a pool that have ended slices."""
    for one in reversed(submissions(fleet)):
        done = [state for state in one.states([]) if state.state == "done"] if one.pool == pool else []
        if done:
            return max(sum(state.seconds for state in done) / sum(state.count for state in done), 0.01)
    return USUAL_CASE_S


def count_states(states: Sequence[SliceState]) -> Dict[str, int]:
    names = ("done", "held", "running", "waiting", "cancelled", "gone")
    return {name: sum(one.state == name for one in states) for name in names}


def cancel(fleet: Fleet, submission: Submission) -> None:
    """End what runs of a submission and take the rest from the queue; what is done stays."""
    (submission.folder / "cancelled").touch()
    Slurm(fleet.folder).call("scancel", f"--name={submission.job_name}")


def retry(fleet: Fleet, submission: Submission, which: Sequence[str]) -> List[int]:
    """Give slices in these states (held, gone, cancelled) three further attempts; returns their numbers."""
    slurm = Slurm(fleet.folder)
    jobs = slurm.jobs(submission.job_name)
    numbers = [one.number for one in submission.states(jobs) if one.state in which]
    if "cancelled" in which:
        (submission.folder / "cancelled").unlink(missing_ok=True)
    for job in jobs:
        if job.slice in numbers:
            slurm.call("scancel", job.id)
    for number in numbers:
        for name in ("attempts", "ended"):
            submission.file(number, name).unlink(missing_ok=True)
    if numbers:
        submission.queue(slurm, numbers)
    return numbers


def ranges(numbers: Sequence[int]) -> str:
    """Whole numbers as Slurm writes them: `1-3,7`."""
    # What follows each other lies equally far from its place among all.
    groups = itertools.groupby(enumerate(sorted(numbers)), key=lambda placed: placed[1] - placed[0])
    spans = [[number for _, number in group] for _, group in groups]
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
