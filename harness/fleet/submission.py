"""A submission: the cases of a campaign in slices of falling clocks, the tasks of a Slurm array, and their states."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from harness.board.bounded_process import run_within
from harness.core.cases import INSTANCE_MARK
from harness.core.environment import suite_commit, without_changes
from harness.core.errors import CannotRunError, InvalidValueError, StoreError, UnknownNameError
from harness.core.files import write_durably
from harness.core.mode_orders import SAFE, order_passes
from harness.core.power_modes import PowerMode
from harness.core.terminal import available_hint
from harness.fleet.lab import BoardEntry, Fleet
from harness.fleet.slurm import Slurm, SlurmJob

USUAL_CASE_S = 45.0  # of a case, until a slice of the pool has ended: 40 minibatches, settling and overhead
MOST_SLICES = 20000  # of an array
LOST_S = 120.0  # after which a slice that Slurm does not list stays lost: `daemons` queues it again within 30 s
LIST_S = 1800.0  # collecting 100,000 cases takes a minute
LOCK_S = 300.0  # most that another process holds a submission: a few calls of Slurm, each of which has a time limit
MOST_LOSSES = 3  # times that a slice is queued again by itself after Slurm lost it


class ListedCase(NamedTuple):  # as `pytest --list-cases` writes it
    id: str  # of its test
    key: str  # a unique description of the case
    device: str
    power_mode: str
    mode: PowerMode
    workloads: Tuple[str, ...] = ()  # that it runs


class Slice(NamedTuple):
    """Cases that a board measures in one run, within which no clock rises."""

    cases: Tuple[ListedCase, ...]
    boot_mode: str  # the mode that the board must be booted into; empty without such modes


class LeftOut(NamedTuple):
    case: str  # id
    why: str
    attempts: int  # the number of attempts at its slice until then, which count no more


class SliceState(NamedTuple):
    number: int
    state: str  # done, held, running, waiting, cancelled, or gone: neither in the queue nor done
    board: str
    seconds: float  # duration; 0 until it is done
    count: int  # type: ignore[assignment]  # of its cases; hides a tuple's method that nothing calls
    why: str  # the reason why it is held or waits; of a slice that is done, the cases that are left out


def make_slices(cases: Sequence[ListedCase], board: BoardEntry, most: int) -> List[Slice]:
    """Divide cases into slices of at most `most`, by boot mode, each within one pass of falling clocks."""
    groups: Dict[str, List[ListedCase]] = {}
    by_name = {mode.lower(): mode for mode in board.modes}
    usual = board.modes[0] if board.modes else ""
    for case in cases:
        groups.setdefault(by_name.get(case.power_mode.lower(), usual), []).append(case)
    slices = []
    for boot_mode, group in sorted(groups.items(), key=lambda item: item[0] != usual):
        for one_pass in order_passes(group, SAFE, lambda case: case.mode):
            count = -(-len(one_pass) // most)  # slices of similar length
            size = -(-len(one_pass) // count)
            slices += [Slice(tuple(one_pass[at : at + size]), boot_mode) for at in range(0, len(one_pass), size)]
    return slices


def list_cases(device: str, words: Sequence[str], file: Path) -> List[ListedCase]:
    """The cases that `pytest` collects for a device with some arguments; a CannotRunError contains its output."""
    paths = [word for word in words if word.partition("::")[0].endswith(".py") or Path(word).is_dir()]
    if not paths and not Path("benchmarks").is_dir():
        raise CannotRunError("there is no folder benchmarks here", "submit from a clone, or name tests after --")
    command = [sys.executable, "-m", "pytest", *([] if paths else ["benchmarks"]), "--collect-only", "-q"]
    command += ["-p", "jetwatt", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command += ["--device", device, "--list-cases", str(file), *words]
    try:
        done = run_within(LIST_S, command, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        what = f"pytest did not list the cases within {LIST_S:g} s"
        raise CannotRunError(what, "divide the campaign into several") from None
    if done.returncode not in (0, 5) or not file.exists():
        raise CannotRunError(f"pytest cannot list the cases: {done.stdout.decode(errors='replace').strip()[-2000:]}")
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    cases = [
        ListedCase(**{**row, "mode": PowerMode(*row["mode"]), "workloads": tuple(row.get("workloads", ()))})
        for row in rows
    ]
    # a campaign has several instances of a simulated board; here those are the boards of the pool
    cases = [case for case in cases if not case.device.startswith(device + INSTANCE_MARK)]
    if not cases:
        raise InvalidValueError(f"there are no cases for {device}", "pytest benchmarks --collect-only -q shows why")
    return cases


class Submission:
    """A folder of a fleet: a submitted campaign, its slices, and the results of each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.id = folder, folder.name
        try:
            content = json.loads((folder / "submission.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            available = ", ".join(sorted(path.name for path in folder.parent.glob("*/"))) or "none"
            raise UnknownNameError(f"there is no submission {self.id!r}", f"available: {available}") from error
        self.pool: str = content["pool"]
        self.device: str = content["device"]
        self.board: str = content.get("board", "")  # the only board that may run it; empty for any
        self.slices: List[Tuple[int, int, str]] = [
            tuple(row) for row in content["slices"]
        ]  # first case, count, boot mode

    @property
    def job_name(self) -> str:
        return f"jetwatt-{self.id}"

    @property
    def is_cancelled(self) -> bool:
        return (self.folder / "cancelled").exists()

    @property
    def settled(self) -> Path:
        """The file that marks that none of its slices has to be looked for any more; removed with the slices."""
        return self.folder / "slices" / "settled"

    @property
    def is_settled(self) -> bool:
        return self.settled.exists()

    @property
    def unable(self) -> Path:
        """The file of boards that could not train a workload of it: board, workload and reason, a line each."""
        return self.folder / "unable"

    def cases(self) -> List[Tuple[str, str]]:
        """Test id and key of each case, in the order of the slices."""
        lines = (self.folder / "cases.txt").read_text(encoding="utf-8").splitlines()
        return [(name, key) for name, _, key in (line.partition("\t") for line in lines)]

    def cases_of(self, number: int, workload: str) -> List[str]:
        """Test ids of the cases of a slice that run a workload."""
        first, count, _ = self.slices[number - 1]
        rows = (self.folder / "case_workloads").read_text().splitlines()[first - 1 : first - 1 + count]
        names = [name for name, _ in self.cases()[first - 1 : first - 1 + count]]
        return [name for name, row in zip(names, rows) if workload in row.split()]

    def file(self, number: int, name: str) -> Path:
        """A file that a slice returned; numbers begin at 1."""
        return self.folder / "slices" / str(number) / name

    def results(self, number: int) -> List[Path]:
        """The results files of a slice, one of each run that was fetched, the oldest first."""
        return sorted((self.folder / "slices" / str(number)).glob("results*.sqlite"))

    def reports(self, number: int) -> List[Path]:
        """The JUnit reports of a slice, the oldest first."""
        return sorted((self.folder / "slices" / str(number)).glob("junit*.xml"))

    def left_out(self, number: int) -> List[LeftOut]:
        path = self.file(number, "left_out")
        rows = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
        return [LeftOut(case, why, int(attempts)) for case, why, attempts in rows]

    def states(self, jobs: Sequence[SlurmJob]) -> List[SliceState]:
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
            return SliceState(number, "cancelled", "", 0.0, count, "fleet retry continues it")
        if job is None or "launch failed" in job.reason:
            losses = self.losses(number)
            why = f"lost {losses + 1} times, so it is not queued again: see its log, then fleet retry"
            if losses < MOST_LOSSES:
                why = "Slurm lost it: the daemons queue it again within a minute"
            return SliceState(number, "gone", "", 0.0, count, why)
        if job.state == "PENDING" and "held" in job.reason.lower():
            return SliceState(number, "held", "", 0.0, count, job.reason)
        state = "waiting" if job.state == "PENDING" else "running"
        return SliceState(number, state, job.nodes, 0.0, count, job.reason)

    def losses(self, number: int) -> int:
        """How often a slice was queued again because Slurm had lost it."""
        path = self.file(number, "losses")
        return len(path.read_text().splitlines()) if path.exists() else 0

    def queue(self, slurm: Slurm, numbers: Sequence[int], avoided: Sequence[str] = (), delay_s: int = 0) -> List[str]:
        """Queue the slices with these numbers in Slurm, on no avoided board; returns the IDs of the arrays."""
        slice_script, ids = self.folder.parent.parent / "bin/slice", []
        for mode in dict.fromkeys(self.slices[number - 1][2] for number in numbers):
            array = ranges([number for number in numbers if self.slices[number - 1][2] == mode])
            words = ["--parsable", f"--array={array}", f"--job-name={self.job_name}", f"--partition={self.pool}"]
            words += ["--nice=1000", "--requeue", "--export=PATH,HOME,USER,LANG"]
            words += ["--output=/dev/null", f"--chdir={slice_script.parent}"]  # it writes its own log
            words += [f"--constraint={mode}"] if mode else []
            words += [f"--nodelist={self.board}"] if self.board else []
            words += [f"--exclude={','.join(avoided)}"] if avoided else []
            words += [f"--begin=now+{delay_s}"] if delay_s else []
            printed = slurm.call("sbatch", *words, f"--wrap=exec {slice_script} {self.id}")
            ids.append(printed.strip().partition(";")[0])
        return ids


class Watch:
    """Watches slices until none runs or waits any more."""

    def __init__(self) -> None:
        self._queued_s = time.monotonic()

    def is_over(self, states: Sequence[SliceState]) -> bool:
        """Whether all slices ended. Those that a killed slurmctld lost get time: `daemons` queues them again."""
        if any(state.state in ("running", "waiting") for state in states):
            self._queued_s = time.monotonic()
            return False
        return not any(state.state == "gone" for state in states) or time.monotonic() - self._queued_s > LOST_S


def submit(
    fleet: Fleet, pool: str, words: Sequence[str], campaign: str = "", case_s: float = 0.0, board: str = ""
) -> Submission:
    """Divide a campaign into slices and queue them for the boards of a pool, or for a single board.

    `words` are further arguments for pytest; `case_s` is the duration of a case, 0 for the average of earlier slices.
    """
    boards = fleet.pool(pool)
    if board and board not in [entry.name for entry in boards]:
        hint = available_hint(board, [entry.name for entry in boards])
        raise UnknownNameError(f"pool {pool} has no board {board!r}", hint)
    folder = _new_folder(fleet.folder / "submissions")
    words = list(words)
    campaign_words = ["--campaign", campaign] if campaign else []
    is_file = bool(campaign) and Path(campaign).is_file()
    if is_file:
        write_durably(folder / "campaign.toml", Path(campaign).read_bytes())
    device = boards[0].device
    cases = list_cases(device, [*campaign_words, *words], folder / "cases.jsonl")
    case_s = case_s or seconds_per_case(fleet, pool)
    slices = make_slices(cases, boards[0], max(1, round(fleet.lab.slice_minutes * 60 / case_s)))
    on_boards = [
        *([] if is_file else campaign_words),
        *(word for word in words if not word.partition("::")[0].endswith(".py")),
    ]
    return enqueue(fleet, folder, pool, device, slices, on_boards, board)


def enqueue(
    fleet: Fleet, folder: Path, pool: str, device: str, slices: Sequence[Slice], words: Sequence[str], board: str = ""
) -> Submission:
    if len(slices) > MOST_SLICES:
        raise InvalidValueError(f"{len(slices)} slices are more than {MOST_SLICES}", "increase slice_minutes")
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
    workloads = [" ".join(case.workloads) for part in slices for case in part.cases]
    (folder / "case_workloads").write_text("".join(f"{names}\n" for names in workloads))
    (folder / "commit").write_text(without_changes(suite_commit() or ""))
    (folder / "arguments").write_text("".join(f"{word}\n" for word in words))
    content = {"pool": pool, "device": device, "slices": table, "board": board}
    with lock_submission(folder):
        write_durably(folder / "submission.json", json.dumps(content).encode())
        submission = Submission(folder)
        try:
            submission.queue(Slurm(fleet.folder), range(1, len(slices) + 1))
        except CannotRunError as error:
            hint = f"{error.hint}; the daemons queue it then, and `jetwatt fleet cancel` drops it"
            raise CannotRunError(f"{submission.id} is stored, but not queued: {error.what}", hint) from error
    return submission


@contextlib.contextmanager
def lock_submission(folder: Path) -> Iterator[None]:
    """Lock a submission, so that no other process queues, cancels or clears its slices meanwhile."""
    with open(folder / "lock", "w") as lock:
        deadline_s = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    what = f"another process has held {folder / 'lock'} for {LOCK_S:g} s"
                    raise CannotRunError(what, f"`fuser {folder / 'lock'}` shows which one") from None
                time.sleep(0.05)
        yield


def _new_folder(parent: Path) -> Path:
    now = datetime.datetime.now(datetime.timezone.utc)
    if not parent.is_dir():
        raise CannotRunError(f"there is no fleet in {parent.parent}", "run jetwatt fleet init lab.toml")
    for number in range(1, 1000):
        folder = parent / f"{now:%Y%m%d-%H%M%S}{f'-{number}' if number > 1 else ''}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise StoreError(f"{parent} has 999 submissions of this second", "wait a second")


def submissions(fleet: Fleet) -> List[Submission]:
    """All submissions, oldest first."""
    files = sorted((fleet.folder / "submissions").glob("*/submission.json"))
    return [Submission(file.parent) for file in files]


def find(fleet: Fleet, name: str = "") -> Submission:
    """The submission with a name, or the newest."""
    if name:
        return Submission(fleet.folder / "submissions" / Path(name).name)
    all_submissions = submissions(fleet)
    if not all_submissions:
        raise UnknownNameError("nothing was submitted yet", "jetwatt fleet submit --campaign quick --pool POOL")
    return all_submissions[-1]


def seconds_per_case(fleet: Fleet, pool: str) -> float:
    """The mean duration of a case in the newest submission of a pool that has finished slices."""
    for earlier in reversed(submissions(fleet)):
        done = [state for state in earlier.states([]) if state.state == "done"] if earlier.pool == pool else []
        if done:
            return max(sum(state.seconds for state in done) / sum(state.count for state in done), 0.01)
    return USUAL_CASE_S


def count_states(states: Sequence[SliceState]) -> Dict[str, int]:
    names = ("done", "held", "running", "waiting", "cancelled", "gone")
    return {name: sum(state.state == name for state in states) for name in names}


def cancel(fleet: Fleet, submission: Submission) -> None:
    """End the running slices of a submission and remove the waiting ones from the queue; finished ones are kept."""
    with lock_submission(submission.folder):
        (submission.folder / "cancelled").touch()
        Slurm(fleet.folder).call("scancel", f"--name={submission.job_name}")


def retry(fleet: Fleet, submission: Submission, which: Sequence[str]) -> List[int]:
    """Give slices in these states (held, gone, cancelled) three more attempts; returns their numbers.

    They run with the commit that the boards have; slices that still wait keep the one they were submitted with.
    """
    slurm = Slurm(fleet.folder)
    with lock_submission(submission.folder):
        jobs = slurm.jobs(submission.job_name)
        numbers = [
            state.number
            for state in submission.states(jobs)
            if state.state in which or (state.state == "done" and state.why and "held" in which)
        ]
        if "cancelled" in which:
            (submission.folder / "cancelled").unlink(missing_ok=True)
        if numbers:
            submission.unable.unlink(missing_ok=True)
        for number in numbers:
            for name in ("attempts", "ended", "losses", "left_out"):
                submission.file(number, name).unlink(missing_ok=True)
            for report in submission.reports(number):  # of earlier attempts
                report.unlink()
            submission.file(number, "any_commit").parent.mkdir(parents=True, exist_ok=True)
            submission.file(number, "any_commit").touch()
        _queue_again(slurm, submission, jobs, numbers)
    return numbers


def queue_lost(fleet: Fleet, report: Callable[[str], None] = print) -> None:
    """Queue slices again that Slurm lost, such as those whose script was killed, each at most `MOST_LOSSES` times.

    The daemons call this twice a minute. Their earlier attempts count: a slice that ends its script each time is held.
    """
    slurm = Slurm(fleet.folder)
    for submission in submissions(fleet):
        if submission.is_cancelled or submission.is_settled:
            continue
        try:
            numbers = _queue_lost_of(slurm, submission)
        except (CannotRunError, OSError) as error:  # such as a full disk: the next time
            report(f"{submission.id}: lost slices cannot be queued: {error}")
            continue
        if numbers:
            report(f"{submission.id}: slices {ranges(numbers)} were lost, and are queued again")


def _queue_lost_of(slurm: Slurm, submission: Submission) -> List[int]:
    with lock_submission(submission.folder):
        jobs = slurm.jobs(submission.job_name)
        states = submission.states(jobs)
        gone = [state.number for state in states if state.state == "gone"]
        numbers = [number for number in gone if submission.losses(number) < MOST_LOSSES]
        if not numbers and all(state.state in ("done", "held", "gone") for state in states):
            submission.settled.parent.mkdir(exist_ok=True)
            submission.settled.touch()
        _queue_again(slurm, submission, jobs, numbers)
        for number in numbers:
            path = submission.file(number, "losses")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as losses:
                losses.write(f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}\n")
        return numbers


def _queue_again(slurm: Slurm, submission: Submission, jobs: Sequence[SlurmJob], numbers: Sequence[int]) -> None:
    for job in jobs:
        if job.slice in numbers:
            slurm.call("scancel", job.id)
    if numbers:
        submission.settled.unlink(missing_ok=True)
        submission.queue(slurm, numbers)


def ranges(numbers: Sequence[int]) -> str:
    """Whole numbers as Slurm writes them: `1-3,7`."""
    # Consecutive numbers have the same distance from their index.
    groups = itertools.groupby(enumerate(sorted(numbers)), key=lambda placed: placed[1] - placed[0])
    spans = [[number for _, number in group] for _, group in groups]
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
