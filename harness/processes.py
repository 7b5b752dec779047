"""Runs in several processes of pytest-xdist (`-n 2`): one results file, one summary, and nothing real is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from harness.core.device import is_self_profiling
from harness.fixture_names import takes
from harness.outcome import OUTCOME, Outcome
from harness.plan import Plan

RUN, SHARE = "jetwatt_run", "jetwatt_share"  # what a process is given, and what it gives back
REFUSED = pytest.StashKey[Dict[str, str]]()  # why tests fail, by id


def is_share(config: pytest.Config) -> bool:
    """Whether this process runs a part of the tests, for another process."""
    return hasattr(config, "workerinput")


class ProcessHooks:
    """Hooks of pytest-xdist in the process that hands out the tests and prints the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[RUN] = self._config.stash[OUTCOME].run_id

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a process measured."""
        share: Dict[str, Any] = getattr(node, "workeroutput", {}).get(SHARE, {})
        outcome: Outcome = self._config.stash[OUTCOME]
        if not share:
            return
        outcome.not_compared.update(share["not_compared"])
        outcome.over_budget.update(share["over_budget"])
        outcome.is_compared |= share["is_compared"]
        outcome.is_without_baseline |= share["is_without_baseline"]
        outcome.is_without_requirements |= share["is_without_requirements"]
        if share["requirement_verdicts"]:
            from harness.judge.requirement_verdicts import RequirementVerdict

            outcome.requirement_verdicts += [RequirementVerdict(*fields) for fields in share["requirement_verdicts"]]
        if share["numbers"]:
            from harness.store.results import ResultsStore

            with ResultsStore(Path(self._config.getoption("jetwatt_results")), read_only=True) as store:
                outcome.profiles += [store.profile(number) for number in share["numbers"]]


def begin_share(config: pytest.Config) -> None:
    """Make what this process stores a part of the whole run."""
    config.stash[OUTCOME].run_id = config.workerinput[RUN]  # type: ignore[attr-defined]


def end_share(config: pytest.Config) -> None:
    """Hand over what the summary of the whole run takes from this process."""
    outcome: Outcome = config.stash[OUTCOME]
    config.workeroutput[SHARE] = {  # type: ignore[attr-defined]
        "numbers": outcome.numbers,
        "not_compared": outcome.not_compared,
        "over_budget": outcome.over_budget,
        "is_compared": bool(outcome.compared),
        "is_without_baseline": outcome.is_without_baseline,
        "is_without_requirements": outcome.is_without_requirements,
        "requirement_verdicts": list(map(tuple, outcome.requirement_verdicts)),
    }


def refuse_what_is_measured(config: pytest.Config, items: List[pytest.Item], plan: Plan) -> Sequence[pytest.Item]:
    """Leave one of the tests that hold a real device, which fails with the reason; returns those left out.

    Claims are skipped: each process would judge them on its part of the profiles.
    """
    reasons = config.stash.setdefault(REFUSED, {})
    held: List[pytest.Item] = []
    for item in items:
        case = plan.case_of(item)
        if (
            (takes("measure", item) or takes("hold_device", item))
            and case is not None
            and not is_self_profiling(plan.device(case.device))
        ):
            held.append(item)
            reasons[item.nodeid] = (
                f"{case.device} is measured by one process at a time, and pytest-xdist starts several; omit -n"
            )
        elif takes("judged_device", item):
            file = config.getoption("jetwatt_results")
            text = f"pytest-xdist's processes have a part of the profiles each; then judge: pytest --judge {file}"
            item.add_marker(pytest.mark.skip(reason=text))
    return held[1:]
