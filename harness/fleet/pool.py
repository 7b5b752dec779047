"""A pool as one device for a search: a case is profiled on any free board, its figures are scaled to the first one."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from harness.core.cases import Case, workers_and_storage
from harness.core.configuration import Configuration
from harness.core.errors import CannotRunError
from harness.core.profiles import Profile
from harness.devices.registry import AbsentBoard, open_device
from harness.fleet import submission
from harness.fleet.collecting import collect, missing
from harness.fleet.lab import Fleet
from harness.fleet.slurm import Slurm
from harness.fleet.submission import Submission, Watch
from harness.store.results import ResultsStore

_POLL_S = 1.0


class PoolDevice:
    """Profiles through a fleet. Planning uses the pool's board type, for example its power modes.

    The first case is measured on every board and gives the scale of the board: profiles of other boards are converted
    to the first board that finished. The results file keeps the figures as measured.
    """

    def __init__(
        self,
        fleet: Fleet,
        pool: str,
        results: Path,
        configuration: Configuration,
        report: Callable[[str], None] = print,
    ) -> None:
        self.boards = [board.name for board in fleet.pool(pool)]
        self.scales: Dict[str, Tuple[float, float]] = {}  # time and power by board, as multiples of the first one's
        self._fleet, self._pool, self._results, self._report = fleet, pool, results, report
        self._planned = open_device(fleet.pool(pool)[0].device, configuration)
        self._submitted: Dict[Case, List[Submission]] = {}  # whose profiles were not returned yet
        self._first: Dict[str, Submission] = {}  # of each board
        self._submissions: List[Submission] = []
        self._figures = (0.0, 0.0)  # of the first case on the first board

    def __getattr__(self, name: str) -> Any:
        return getattr(self._planned, name)

    def check(self, case: Case) -> None:
        if not isinstance(self._planned, AbsentBoard):  # a real board checks its cases itself
            self._planned.check(case)

    def conditions(self, case: Case) -> Dict[str, Any]:
        return {} if isinstance(self._planned, AbsentBoard) else self._planned.conditions(case)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """On exit, cancel waiting submissions, and collect the profiles into the results file."""
        try:
            yield
        finally:
            try:
                waiting = {job.name for job in Slurm(self._fleet.folder).jobs()}
                for job in self._submissions:
                    if job.job_name in waiting:
                        submission.cancel(self._fleet, job)
            finally:
                for job in self._submissions:
                    collect(job, self._results)

    def begin(self, cases: Sequence[Case]) -> None:
        for case in cases:
            if case not in self._submitted:
                boards = [""] if self._first else self.boards
                self._submitted[case] = [self._submit(case, board) for board in boards]
                self._first = self._first or dict(zip(boards, self._submitted[case]))

    def _submit(self, case: Case, board: str) -> Submission:
        settings = case.settings
        words = [f"benchmarks/test_{case.task}.py", "--workload", case.workload, "--power-mode", case.power_mode.name]
        workers, storage = workers_and_storage(case)
        words += ["--batch-size", str(case.batch_size), "--workers", str(workers), "--storage", storage]
        words += ["--minibatches", str(settings.minibatches), "--seed", str(settings.seed)]
        if settings.max_temperature_c is not None:
            words += ["--max-temperature", str(settings.max_temperature_c)]
        if settings.power_limit_w is not None:
            words += ["--power-limit", str(settings.power_limit_w)]
        self._submissions.append(submission.submit(self._fleet, self._pool, words, case_s=1.0, board=board))
        return self._submissions[-1]

    def profile(self, case: Case) -> Profile:
        self.begin([case])
        submitted, slurm, watch = self._submitted.pop(case), Slurm(self._fleet.folder), Watch()
        while True:
            jobs = slurm.jobs()
            states = [job.states(jobs)[0] for job in submitted]
            for board_and_profile in filter(None, map(_profiled, submitted)):
                return self._as_on_first(*board_and_profile)
            if watch.is_over(states):
                reasons = [lacking.why for lacking in missing(submitted[0], states[:1])]
                why = reasons[0] if reasons else states[0].why
                raise CannotRunError(f"{case.power_mode.name} has no profile: {why}")
            self._report(f"    {case.power_mode.name}: {states[0].state} {states[0].board or states[0].why}")
            time.sleep(_POLL_S)

    def _as_on_first(self, board: str, profile: Profile) -> Profile:
        if not self.scales:
            self.scales[board], self._figures = (1.0, 1.0), _figures(profile)
        elif board not in self.scales:
            first = _profiled(self._first[board]) if board in self._first else None  # it may have joined later
            if first is None:
                self._report(f"note: {board} has not measured the first mode, so its profiles are used unscaled")
                return profile
            (time_ms, power_mw), (first_ms, first_mw) = _figures(first[1]), self._figures
            self.scales[board] = (time_ms / first_ms, power_mw / first_mw)
        of_time, of_power = self.scales[board]
        scales = {"minibatch_time_ms": of_time, "power_mw": of_power, "power_peak_mw": of_power}
        figures = {name: value and value / scales.get(name, 1.0) for name, value in profile.aggregates.items()}
        minibatches = [minibatch._replace(e2e_ms=minibatch.e2e_ms / of_time) for minibatch in profile.minibatches]
        return dataclasses.replace(profile, aggregates=figures, minibatches=minibatches)

    def measured_scales(self) -> Dict[str, Tuple[str, Optional[Tuple[float, float]], str]]:
        """The device of each board and its scales of time and power; None and a reason without a first profile."""
        jobs = Slurm(self._fleet.folder).jobs()
        boards: Dict[str, Tuple[str, Optional[Tuple[float, float]], str]] = {}
        for board in self._fleet.pool(self._pool):
            first = self._first.get(board.name)
            profiled = _profiled(first) if first is not None else None
            if profiled is not None:
                (time_ms, power_mw), (first_ms, first_mw) = _figures(profiled[1]), self._figures
                boards[board.name] = (board.type, (time_ms / first_ms, power_mw / first_mw), "")
                continue
            state = first.states(jobs)[0] if first is not None else None
            reason = "it joined after the search began" if state is None else f"{state.state} {state.why}".strip()
            boards[board.name] = (board.type, None, f"it has not profiled the first mode: {reason}")
        return boards

    def describe(self) -> str:
        first, *others = self.scales
        words = "{} takes {:.3f} of its time and {:.3f} of its power"
        others_scaled = [words.format(name, *self.scales[name]) for name in others]
        return f"boards:      as on {'; '.join([first, *others_scaled])}"


def open_pool(
    lab: Path, pool: str, results: Path, configuration: Configuration, report: Callable[[str], None]
) -> PoolDevice:
    """The pool of the fleet that a lab.toml describes."""
    return PoolDevice(Fleet(lab), pool, results, configuration, report)


def _figures(profile: Profile) -> Tuple[float, float]:
    aggregates = profile.aggregates
    return (aggregates.get("minibatch_time_ms") or float("nan"), aggregates.get("power_mw") or float("nan"))


def _profiled(job: Submission) -> Optional[Tuple[str, Profile]]:
    """Board and profile of a submission of one case; None until it is available."""
    for path in reversed(job.results(1)):
        with ResultsStore(path, read_only=True) as store:
            profiles = list(store.profiles())
        if profiles:
            return path.stem.rpartition("-")[2], profiles[-1]
    return None
