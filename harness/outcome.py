"""The outcome of a run so far: its profiles, and the cases by which claims are judged."""

from __future__ import annotations

import functools
import time
import uuid
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple

import pytest

from harness.core.cases import Case
from harness.core.environment import describe_environment
from harness.core.profiles import Profile
from harness.core.terminal import Countdown, Progress, wrap
from harness.measure.contention import look_around
from harness.measure.time_budget import process_age_s

if TYPE_CHECKING:
    from harness.judge.comparison import Comparison
    from harness.judge.requirement_verdicts import RequirementVerdict


class Outcome:
    def __init__(self) -> None:
        self.began_s = time.monotonic() - process_age_s()
        self.run_id = uuid.uuid4().hex
        # cases and files that the time budget left out, and the option of pytest that selects each
        self.over_budget: Dict[str, str] = {}
        self.countdown = Countdown(0)
        self.profiles: List[Profile] = []
        self.numbers: List[int] = []  # of `profiles`, in the results file
        # profiles of the results file by which claims are judged, and their cases as named in this run
        self.judged: List[Tuple[int, Case]] = []
        self.shown: Set[str] = set()  # tests whose line of figures was printed
        self.not_compared: Dict[str, str] = {}  # cases that the baseline cannot be compared with, and why
        self.compared: Dict[Tuple[str, str], Comparison] = {}  # with the baseline, by case and figure
        self.is_without_baseline = False  # whether a test had a profile to compare, and no --baseline was given
        self.is_compared = False  # whether a process of pytest-xdist compared a profile with the baseline
        self.of_test: List[Profile] = []  # that the running test measured, or took from an earlier one
        self.judged_by_requirements: List[Profile] = []  # by the running test's fixture
        self.requirement_verdicts: List[RequirementVerdict] = []
        self.is_without_requirements = False  # whether a test had a profile to judge, and there were no requirements
        self._measured: Dict[Tuple[str, str], Profile] = {}
        self._resumed: Set[Tuple[str, str]] = set()
        self._has_looked_around = False
        self._remark_on_others = ""  # that was not printed yet

    def begin_test(self) -> None:
        self.of_test, self.judged_by_requirements = [], []

    @functools.cached_property
    def environment(self) -> Dict[str, Any]:
        return describe_environment()

    def meet_others(self, allowed: Optional[float]) -> None:
        """Check, once and before torch is loaded, which processes use the CPU, and set how torch's threads wait."""
        if self._has_looked_around:
            return
        self._has_looked_around = True
        self._remark_on_others = look_around(allowed)

    def report_others(self, progress: Progress, allowed: Optional[float]) -> None:
        """Print, once and when the first case begins, which processes use the CPU, and the consequences."""
        self.meet_others(allowed)
        if self._remark_on_others:
            progress.line(wrap(self._remark_on_others))
            self._remark_on_others = ""

    def measured(self, key: str, case: Case) -> Optional[Profile]:
        """This run's profile of the case under these conditions; by case id, because claims refer to modes by name."""
        return self._measured.get((key, case.id))

    def keep(self, key: str, profile: Profile, number: int) -> None:
        """Count a profile of this run; `number` is its id in the results file."""
        self.profiles.append(profile)
        self.numbers.append(number)
        self.judged.append((number, profile.case))
        self._measured.setdefault((key, profile.case.id), profile)

    def resume(self, key: str, case: Case, number: int) -> None:
        """Count a profile of an earlier run, of these conditions, in this run's verdicts."""
        if (key, case.id) not in self._resumed:
            self._resumed.add((key, case.id))
            self.judged.append((number, case))


OUTCOME = pytest.StashKey[Outcome]()
PROGRESS = pytest.StashKey[Progress]()
