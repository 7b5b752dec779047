"""The fixture `baseline`: profiles against what `--baseline` recorded, in tests of the suite and of users."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import pytest

from harness.outcome import Outcome

if TYPE_CHECKING:
    from harness.core.profiles import Profile
    from harness.judge.baseline import Checked


class Baseline:
    """What `--baseline` recorded. Without that option nothing is compared, and the run says so at its end.

    Two ways to use it: `baseline.check(profile)` fails the test where the profile is slower, and
    `assert profile.minibatch_time_ms <= baseline(profile)` leaves the assertion to the test.
    """

    def __init__(self, path: Optional[Path], outcome: Outcome, is_strict: bool = False) -> None:
        from harness.judge.baseline import read_baseline

        self._path = path
        self._recorded = None if path is None else read_baseline(path)
        self._outcome = outcome
        self._is_strict = is_strict

    def check(self, profile: Profile) -> None:
        """Fail the test if the profile is slower than recorded.

        Without `--baseline` nothing is compared. Conditions that the baseline does not hold are listed at the end of
        the run; with `--strict` they fail, and so does a comparison that is inconclusive.
        """
        checked = self._compare(profile)
        if checked is None or checked.limit_ms is None:
            return
        if checked.status == "slower":
            ratio = checked.ratio.interval()
            pytest.fail(
                f"{checked.case_id} is slower than {self._path} recorded it: {profile.minibatch_time_ms:.3f} ms, limit"
                f" {checked.limit_ms:.3f} ms, ratio {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})",
                pytrace=False,
            )

    def __call__(self, profile: Profile) -> float:
        """The time in ms above which the profile is slower than recorded; infinity where no `--baseline` is given.

        Conditions that the baseline does not hold skip the test; with `--strict` they fail it.
        """
        checked = self._compare(profile)
        if checked is None:
            return math.inf
        if checked.limit_ms is None:
            pytest.skip(f"{self._path} does not hold {checked.case_id}: {checked.notes[0]}")
        return checked.limit_ms

    def _compare(self, profile: Profile) -> Optional[Checked]:
        from harness.judge.baseline import INCONCLUSIVE, check_profile

        if self._recorded is None:
            self._outcome.is_without_baseline = True
            return None
        checked = check_profile(self._recorded, profile)
        if checked.limit_ms is None:
            self._outcome.missing_in_baseline.append(profile.case.id)
            if self._is_strict:
                pytest.fail(
                    f"--strict: {self._path} does not hold {checked.case_id}: {checked.notes[0]}. Record it, `jetwatt"
                    " baseline record`, or leave out --strict",
                    pytrace=False,
                )
        elif self._is_strict and checked.status == INCONCLUSIVE:
            pytest.fail(f"{checked.case_id} is inconclusive: {'; '.join(checked.notes)}", pytrace=False)
        return checked
