"""The fixture `baseline`: profiles against the file of `--baseline`, in tests of the suite and of users."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional, Sequence

import pytest

from harness.options import asks_for_strictness
from harness.outcome import OUTCOME, Outcome

if TYPE_CHECKING:
    from harness.core.profiles import Profile
    from harness.judge.baseline import Gate
    from harness.judge.comparison import Comparison


class Baseline:
    """The file of `--baseline`. Without that option nothing is compared, as the run states at its end.

    Two ways to use it: `baseline.check(profile)` fails the test if the profile is slower or takes more power or memory,
    and `assert profile.minibatch_time_ms <= baseline(profile)` leaves an assertion on one quantity to the test.
    """

    def __init__(self, path: Optional[Path], outcome: Outcome, is_strict: bool = False, by: Sequence[str] = ()) -> None:
        self._path = path
        self._gate: Optional[Gate] = None
        self._outcome = outcome
        self._is_strict = is_strict
        if path is not None:
            from harness.judge.baseline import Gate
            from harness.judge.sides import read_baseline

            self._gate = Gate(read_baseline(path), by)

    def check(self, profile: Profile) -> None:
        """Fail the test if a quantity of the profile is worse than recorded by more than the tolerance.

        Without `--baseline` nothing is compared. Conditions that the baseline lacks are listed at the end of the run;
        with `--strict` they fail, and so does any other inconclusive comparison.
        """
        verdicts = self._compare(profile)
        beyond = [verdict.text for verdict in verdicts if verdict.is_beyond_limit]
        if beyond:
            pytest.fail(f"worse than {self._path} recorded:\n" + "\n".join(beyond), pytrace=False)
        self._require_sure(verdicts)

    def __call__(self, profile: Profile, column: str = "minibatch_time_ms") -> float:
        """The figure beyond which a profile is worse than recorded: its time in ms, power in mW or memory in bytes.

        Infinity without `--baseline`. Conditions that the baseline lacks skip the test; with `--strict` they fail it.
        """
        from harness.judge.quantities import quantity_named

        quantity = quantity_named(column)
        verdicts = self._compare(profile)
        if not verdicts:
            return math.inf if quantity.more_is_worse else -math.inf
        self._require_sure(verdicts)
        for verdict in verdicts:
            if verdict.quantity == quantity and verdict.limit is not None:
                return verdict.limit
        pytest.skip(f"{self._path} has no {quantity.name} of {profile.case.id}: {'; '.join(verdicts[0].notes)}")

    def _compare(self, profile: Profile) -> List[Comparison]:
        """A verdict on each quantity; empty without a baseline."""
        if self._gate is None:
            self._outcome.is_without_baseline = True
            return []
        verdicts = self._gate.check(profile)
        compared = {(verdict.name, verdict.figure): verdict for verdict in verdicts if verdict.change is not None}
        self._outcome.compared.update(compared)
        if not compared:
            self._outcome.not_compared[profile.case.id] = "; ".join(verdicts[0].notes)
        return verdicts

    def _require_sure(self, verdicts: Sequence[Comparison]) -> None:
        """With `--strict`, fail the test if a comparison was impossible or inconclusive."""
        if not self._is_strict:
            return
        from harness.judge.comparison import not_compared

        unsure = [verdict.text for verdict in not_compared(verdicts) if not verdict.is_beyond_limit]
        if unsure:
            pytest.fail(
                f"--strict: inconclusive comparison with {self._path}:\n"
                + "\n".join(unsure)
                + "\nMeasure and record it again (`jetwatt baseline record`), allow conditions to differ"
                " (--baseline-by torch) or omit --strict.",
                pytrace=False,
            )


def check_command(config: pytest.Config) -> str:
    """The command that lists the comparisons of a run with its `--baseline`, also those of flagged profiles."""
    from harness.store.conditions import is_disqualified

    words = ["jetwatt", "baseline", "check", "--results", config.getoption("jetwatt_results")]
    words += ["--baseline", config.getoption("jetwatt_baseline")]
    by = _conditions_that_may_differ(config)
    if by:
        words += ["--by", ",".join(by)]
    if any(is_disqualified(profile.flags) for profile in config.stash[OUTCOME].profiles):
        words.append("--include-flagged")
    return " ".join(map(shlex.quote, words))


def _conditions_that_may_differ(config: pytest.Config) -> List[str]:
    return [name.strip() for name in config.getoption("jetwatt_baseline_by").split(",") if name.strip()]


BASELINE = pytest.StashKey[Baseline]()


def baseline_of(config: pytest.Config) -> Baseline:
    """The baseline of this run, opened on first use.

    A HarnessError if the file of `--baseline` cannot be read, or if `--baseline-by` names no condition of it.
    """
    if BASELINE not in config.stash:
        path, by = config.getoption("jetwatt_baseline"), _conditions_that_may_differ(config)
        outcome, is_strict = config.stash[OUTCOME], asks_for_strictness(config)
        config.stash[BASELINE] = Baseline(None if path is None else Path(path), outcome, is_strict, by)
    return config.stash[BASELINE]
