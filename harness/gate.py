"""The gates of a run: the fixture `baseline`, and requirements by `--require`, the mark `require` and a fixture.

Both work in tests of the suite and of users. `baseline` compares profiles with recorded ones where a test asks for it;
requirements judge what a test measured after it, less what the fixture `requirements` judged earlier.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, List, Optional, Sequence

import pytest

from harness.core.errors import HarnessError, InvalidValueError
from harness.core.terminal import wrap
from harness.options import asks_for_strictness, in_words_of_pytest
from harness.outcome import OUTCOME, Outcome
from harness.summary import MOST_ROWS

if TYPE_CHECKING:
    from harness.core.profiles import Profile
    from harness.judge.baseline import Gate
    from harness.judge.comparison import Comparison
    from harness.judge.requirement_verdicts import RequirementVerdict
    from harness.judge.requirements import Origin

REQUIRE = "require"  # the mark


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
                " (--by torch) or omit --strict.",
                pytrace=False,
            )


def check_command(config: pytest.Config) -> str:
    """The command that lists the comparisons of a run with its `--baseline`, also those of flagged profiles."""
    from harness.core.profiles import is_disqualified

    words = ["jetwatt", "baseline", "check", "--results", config.getoption("jetwatt_results")]
    words += ["--baseline", config.getoption("jetwatt_baseline")]
    by = _conditions_that_may_differ(config)
    if by:
        words += ["--by", ",".join(by)]
    if any(is_disqualified(profile.flags) for profile in config.stash[OUTCOME].profiles):
        words.append("--include-flagged")
    return " ".join(map(shlex.quote, words))


def _conditions_that_may_differ(config: pytest.Config) -> List[str]:
    return [name.strip() for name in config.getoption("jetwatt_by").split(",") if name.strip()]


BASELINE = pytest.StashKey[Baseline]()


def baseline_of(config: pytest.Config) -> Baseline:
    """The baseline of this run, opened on first use.

    A HarnessError if the file of `--baseline` cannot be read, or if `--by` names no condition of it.
    """
    if BASELINE not in config.stash:
        path, by = config.getoption("jetwatt_baseline"), _conditions_that_may_differ(config)
        outcome, is_strict = config.stash[OUTCOME], asks_for_strictness(config)
        config.stash[BASELINE] = Baseline(None if path is None else Path(path), outcome, is_strict, by)
    return config.stash[BASELINE]


class Requirements:
    """The requirements of a test: those of `--require`, and those of its marks.

    `requirements.check(profile)` fails the test if a limit is not kept. The profiles that a test of the suite measures
    are checked after it without a call.
    """

    def __init__(self, origins: Sequence[Origin], config: pytest.Config) -> None:
        self._origins = list(origins)
        self._outcome = config.stash[OUTCOME]
        self._config = config

    def check(self, profile: Profile) -> List[RequirementVerdict]:
        """Judge a profile, and fail the test if a limit is not kept; with `--strict` also if one is inconclusive.

        Returns:
            A verdict for each limit of each requirement that selects the profile's case; none without requirements.
        """
        verdicts = self.judge(profile)
        self.require(verdicts)
        return verdicts

    def judge(self, profile: Profile) -> List[RequirementVerdict]:
        """The verdicts on a profile, which fail nothing; the end of the run lists them."""
        if not self._origins:
            self._outcome.is_without_requirements = True
            return []
        from harness.judge.requirement_verdicts import case_of_profile, judge_case

        verdicts = judge_case(case_of_profile(profile), self._origins)
        self._outcome.judged_by_requirements.append(profile)
        self._outcome.requirement_verdicts += verdicts
        return verdicts

    def judge_rest(self) -> List[RequirementVerdict]:
        """The verdicts on what the running test measured, less the profiles that it judged itself."""
        if not self._origins:
            return []
        judged = self._outcome.judged_by_requirements
        rest = [profile for profile in self._outcome.of_test if not any(profile is each for each in judged)]
        return [verdict for profile in rest for verdict in self.judge(profile)]

    def require(self, verdicts: Sequence[RequirementVerdict]) -> None:
        """Fail the test if a limit is not kept."""
        from harness.judge.requirement_verdicts import FAIL, INCONCLUSIVE

        failed = [verdict.text for verdict in verdicts if verdict.status == FAIL]
        if failed:
            pytest.fail("requirements are not kept:\n" + "\n".join(failed), pytrace=False)
        unsure = [verdict.text for verdict in verdicts if verdict.status == INCONCLUSIVE]
        if unsure and asks_for_strictness(self._config):
            pytest.fail("--strict: requirements are inconclusive:\n" + "\n".join(unsure), pytrace=False)


_OF_FILE = pytest.StashKey[List["Origin"]]()


def requirements_file(config: pytest.Config) -> Optional[Path]:
    given: Optional[str] = config.getoption("jetwatt_require")
    return None if given is None else Path(given)


def requirements_of_run(config: pytest.Config) -> List[Origin]:
    """The requirements of `--require`, read on first use; HarnessError if the file is wrong."""
    if _OF_FILE not in config.stash:
        path = requirements_file(config)
        origins: List[Origin] = []
        if path is not None:
            from harness.judge.requirements import read_requirements

            origins = read_requirements(path)
        config.stash[_OF_FILE] = origins
    return config.stash[_OF_FILE]


def requirements_of_marks(node: pytest.Item) -> List[Origin]:
    """The requirements of a test's marks; HarnessError if one is wrong."""
    return requirements_in(node.iter_markers(), node.name)


def requirements_in(marks: Iterable[Any], owner: str) -> List[Origin]:
    """The requirements among some marks of `owner`, a test or a parameter of it; HarnessError if one is wrong."""
    origins = []
    for mark in marks:
        if mark.name != REQUIRE:
            continue
        from harness.judge.requirements import requirement_from

        place = f"mark {REQUIRE} of {owner}"
        if mark.args:
            raise InvalidValueError(f"{place} has the value {mark.args[0]!r}", "name the limit: require(p99_ms=20)")
        origins.append(requirement_from(mark.kwargs, place))
    return origins


def requirements_of(node: pytest.Item) -> Requirements:
    """Those of a test; HarnessError if one is wrong."""
    origins = [*requirements_of_run(node.config), *requirements_of_marks(node)]
    return Requirements(origins, node.config)


def refuse_wrong_marks(node: pytest.Item) -> None:
    """End the collection of a test whose mark has an unknown key or an implausible limit."""
    try:
        requirements_of_marks(node)
    except HarnessError as error:
        raise pytest.fail.Exception(in_words_of_pytest(error), pytrace=False) from None


def refuse_counting_without_requirements(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Refuse `--enough-minibatches` where neither a file nor a mark of a test has a requirement."""
    if not config.getoption("jetwatt_enough_minibatches") or requirements_of_run(config):
        return
    if not any(item.get_closest_marker(REQUIRE) for item in items):
        hint = "add --require FILE, or mark a test: require(p99_ms=20)"
        raise pytest.UsageError(f"--enough-minibatches has no requirements to decide: {hint}")


def has_decided_nothing(outcome: Outcome) -> bool:
    from harness.judge.requirement_verdicts import FAIL, PASS

    return not any(verdict.status in (PASS, FAIL) for verdict in outcome.requirement_verdicts)


def is_used(outcome: Outcome) -> bool:
    """Whether a test gave a gate a profile: of the suite, or of a training of its own."""
    return (
        bool(outcome.compared or outcome.not_compared or outcome.requirement_verdicts)
        or outcome.is_without_baseline
        or outcome.is_without_requirements
    )


def summary_lines(config: pytest.Config) -> List[str]:
    """The lines on requirements at the end of a run: how many verdicts of each kind, and those that did not pass."""
    outcome: Outcome = config.stash[OUTCOME]
    origins = requirements_of_run(config)
    if not origins and not outcome.requirement_verdicts:
        return _lines_without(outcome)
    from harness.judge.requirement_verdicts import PASS, describe_counts, unmet

    verdicts = [*outcome.requirement_verdicts, *unmet(origins, outcome.requirement_verdicts, "no case of this run")]
    lines = [f"requirements: {describe_counts(verdicts)}"]
    others = [verdict.text for verdict in verdicts if verdict.status != PASS]
    listed = others if config.getoption("verbose") > 0 else others[:MOST_ROWS]
    lines += [wrap(text, indent="  ") for text in listed]
    if len(listed) < len(others):
        lines.append(f"and {len(others) - len(listed)} more that did not pass: -v lists them")
    path = requirements_file(config)
    if path is not None and outcome.profiles:
        words = ["jetwatt", "check", str(path), config.getoption("jetwatt_results")]
        lines.append(f"to list them: {' '.join(map(shlex.quote, words))}")
    return lines


def _lines_without(outcome: Outcome) -> List[str]:
    if not outcome.is_without_requirements:
        return []
    return ["no requirements given: nothing was judged. Give --require FILE.toml, or mark the test: require(p99_ms=20)"]
