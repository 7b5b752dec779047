"""A pool as one device for a search: a case is profiled on whichever board is free, its figures as on one of them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from harness.core.cases import Case
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
    """Profiles through a fleet. What it is planned with, the board's power modes first of all, is the pool's type.

    The first case is measured on every board, and what it takes there is the board's scale: profiles of other boards
    are told as the first one to finish would have given them. The results file has them as they were measured.
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
        self._asked: Dict[Case, List[Submission]] = {}  # and not taken yet
        self._first: Dict[str, Submission] = {}  # of each board
        self._begun: List[Submission] = []
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
        """On leaving, take what waits out of the queue, and bring what was measured into the results file."""
        try:
            yield
        finally:
            try:
                waiting = {job.name for job in Slurm(self._fleet.folder).jobs()}
                for one in self._begun:
                    if one.job_name in waiting:
                        submission.cancel(self._fleet, one)
            finally:
                for one in self._begun:
                    collect(one, self._results)

    def begin(self, cases: Sequence[Case]) -> None:
        for case in cases:
            if case not in self._asked:
                boards = [""] if self._first else self.boards
                self._asked[case] = [self._submit(case, board) for board in boards]
                self._first = self._first or dict(zip(boards, self._asked[case]))

    def _submit(self, case: Case, board: str) -> Submission:
        settings = case.settings
        words = [f"benchmarks/test_{case.task}.py", "--workload", case.workload, "--power-mode", case.power_mode]
        words += ["--batch-size", str(case.batch_size), "--workers", str(case.workers), "--storage", case.storage]
        words += ["--minibatches", str(settings.minibatches), "--seed", str(settings.seed)]
        if settings.max_temperature_c is not None:
            words += ["--max-temperature", str(settings.max_temperature_c)]
        self._begun.append(submission.submit(self._fleet, self._pool, words, case_s=1.0, board=board))
        return self._begun[-1]

    def profile(self, case: Case) -> Profile:
        self.begin([case])
        asked, slurm, watch = self._asked.pop(case), Slurm(self._fleet.folder), Watch()
        while True:
            jobs = slurm.jobs()
            states = [one.states(jobs)[0] for one in asked]
            for found in filter(None, map(_profiled, asked)):
                return self._as_on_first(*found)
            if watch.is_over(states):
                why = [each.why for each in missing(asked[0], states[:1])]
                raise CannotRunError(f"{case.power_mode} has no profile: {why[0] if why else states[0].why}")
            self._report(f"    {case.power_mode}: {states[0].state} {states[0].board or states[0].why}")
            time.sleep(_POLL_S)

    def _as_on_first(self, board: str, profile: Profile) -> Profile:
        if not self.scales:
            self.scales[board], self._figures = (1.0, 1.0), _figures(profile)
        elif board not in self.scales:
            first = _profiled(self._first[board]) if board in self._first else None  # it may have joined since
            if first is None:
                self._report(f"note: {board} has not measured the first mode, so its profiles are taken as they are")
                return profile
            (time_ms, power_mw), (first_ms, first_mw) = _figures(first[1]), self._figures
            self.scales[board] = (time_ms / first_ms, power_mw / first_mw)
        of_time, of_power = self.scales[board]
        scales = {"minibatch_time_ms": of_time, "power_mw": of_power, "power_peak_mw": of_power}
        figures = {name: value and value / scales.get(name, 1.0) for name, value in profile.aggregates.items()}
        minibatches = [one._replace(e2e_ms=one.e2e_ms / of_time) for one in profile.minibatches]
        return dataclasses.replace(profile, aggregates=figures, minibatches=minibatches)

    def measured_scales(self) -> Dict[str, Tuple[str, Optional[Tuple[float, float]], str]]:
        """Of every board its device and its scales of time and power; None, and why, where it has no first profile."""
        jobs = Slurm(self._fleet.folder).jobs()
        boards = {}
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
        told = [words.format(name, *self.scales[name]) for name in others]
        return f"boards:      as on {'; '.join([first, *told])}"


def _figures(profile: Profile) -> Tuple[float, float]:
    found = profile.aggregates
    return (found.get("minibatch_time_ms") or float("nan"), found.get("power_mw") or float("nan"))


def _profiled(one: Submission) -> Optional[Tuple[str, Profile]]:
    """Board and profile of the one case of a submission; None while there is none."""
    path = one.file(1, "results.sqlite")
    if not path.exists():
        return None
    with ResultsStore(path, read_only=True) as store:
        profiles = list(store.profiles())
    board = one.file(1, "attempts").read_text().splitlines()[-1].split("\t")[1]
    return (board, profiles[-1]) if profiles else None
