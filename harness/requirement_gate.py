"""Requirements in a run: the file of `--require`, the mark `require` and the fixture `requirements`.

What a test measured is judged after it; what a fixture judges earlier is not judged again. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional, Sequence

import pytest

from harness.core.errors import HarnessError, InvalidValueError
from harness.core.terminal import wrap
from harness.options import asks_for_strictness
from harness.outcome import OUTCOME, Outcome
from harness.summary import MOST_ROWS

if TYPE_CHECKING:
    from harness.core.profiles import Profile
    from harness.judge.requirement_verdicts import RequirementVerdict
    from harness.judge.requirements import Origin

MARK = "require"


class Requirements:
    """The requirements of a test: those of `--require`, and those of its marks.

    `requirements.check(profile)` fails the test if a limit is not kept. The profiles that a test of the suite measures
    are checked after it without a call.
    """

    def __init__(self, origins: Sequence[Origin], outcome: Outcome, is_strict: bool = False) -> None:
        self._origins = list(origins)
        self._outcome = outcome
        self._is_strict = is_strict

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

    def require(self, verdicts: Sequence[RequirementVerdict]) -> None:
        """Fail the test if a limit is not kept."""
        from harness.judge.requirement_verdicts import FAIL, INCONCLUSIVE

        failed = [verdict.text for verdict in verdicts if verdict.status == FAIL]
        if failed:
            pytest.fail("requirements are not kept:\n" + "\n".join(failed), pytrace=False)
        unsure = [verdict.text for verdict in verdicts if verdict.status == INCONCLUSIVE]
        if unsure and self._is_strict:
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
    origins = []
    for mark in node.iter_markers(MARK):
        from harness.judge.requirements import requirement_from

        place = f"mark {MARK} of {node.name}"
        if mark.args:
            raise InvalidValueError(f"{place} has the value {mark.args[0]!r}", "name the limit: require(p99_ms=20)")
        origins.append(requirement_from(mark.kwargs, place))
    return origins


def requirements_of(node: pytest.Item) -> Requirements:
    """Those of a test; HarnessError if one is wrong."""
    origins = [*requirements_of_run(node.config), *requirements_of_marks(node)]
    return Requirements(origins, node.config.stash[OUTCOME], asks_for_strictness(node.config))


def check_measured(item: pytest.Item) -> None:
    """Judge the profiles that a test measured, less those that it judged by the fixture; fail it as that does."""
    outcome = item.config.stash[OUTCOME]
    origins = [*requirements_of_run(item.config), *requirements_of_marks(item)]
    if not origins:
        return
    requirements = Requirements(origins, outcome, asks_for_strictness(item.config))
    verdicts: List[RequirementVerdict] = []
    for profile in outcome.of_test:
        is_judged = any(profile is judged for judged in outcome.judged_by_requirements)
        if not is_judged:
            verdicts += requirements.judge(profile)
    requirements.require(verdicts)


def refuse_wrong_marks(node: pytest.Item) -> None:
    """End the collection of a test whose mark has an unknown key or an implausible limit."""
    try:
        requirements_of_marks(node)
    except HarnessError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def has_decided_nothing(outcome: Outcome) -> bool:
    from harness.judge.requirement_verdicts import FAIL, PASS

    return not any(verdict.status in (PASS, FAIL) for verdict in outcome.requirement_verdicts)


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
    if path is not None:
        words = ["jetwatt", "check", str(path), config.getoption("jetwatt_results")]
        lines.append(f"to list them: {' '.join(map(shlex.quote, words))}")
    return lines


def _lines_without(outcome: Outcome) -> List[str]:
    if not outcome.is_without_requirements:
        return []
    return ["no requirements given: nothing was judged. Give --require FILE.toml, or mark the test: require(p99_ms=20)"]
