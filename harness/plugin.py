"""The pytest plugin: options, cases from a campaign and their order, progress and the summary."""

from __future__ import annotations

import warnings
from typing import List, Optional, Sequence, Tuple

import pytest

from harness.core.cases import AXES
from harness.core.errors import HarnessError
from harness.core.terminal import Countdown, Progress
from harness.options import add_options
from harness.run_state import BASELOAD, STATE, RunState, UncapturedStream, experiment_of, in_safe_order, passes_needed
from harness.summary import format_summary, format_verdicts

pytest_plugins = ["harness.fixtures"]

ON_REQUEST, IDLE_STATES, TAKEAWAYS = "on_request", "idle_states", "judged_device"
NO_CASE = "none"
"""Stands for the case of a test that has none in this run; such a test is deselected."""


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read campaign and places; a wrong option ends the run here with what is known instead."""
    config.addinivalue_line("markers", "training: trains a network, so it needs torch")
    config.addinivalue_line("markers", "exhaustive: goes through very many cases; one Python is enough for it")
    config.addinivalue_line("markers", f"{ON_REQUEST}: runs only when its file is named: pytest benchmarks/FILE.py")
    config.addinivalue_line(
        "markers", f"{IDLE_STATES}: runs for the idle states of each device and power mode, instead of its cases"
    )
    try:
        config.stash[STATE] = RunState(config, Progress(UncapturedStream(config)))
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that measures with every case of the campaign, or with the idle states of its devices."""
    state, file = metafunc.config.stash[STATE], metafunc.definition.path
    if TAKEAWAYS in metafunc.fixturenames:
        takes_part = state.takes_part(experiment_of(file), file)
        metafunc.parametrize(TAKEAWAYS, state.devices() if takes_part else [NO_CASE])
    if not {*AXES, "settings"} <= set(metafunc.fixturenames):
        return
    marked = metafunc.definition.get_closest_marker
    if marked(IDLE_STATES):
        points = state.idle_points
    else:  # a corpus of thousands of modes is not expanded unless somebody asks for it
        points = {} if marked(ON_REQUEST) and not state.is_named(file) else state.points_of(experiment_of(file), file)
    ids = [case.id for case in points.values()]
    metafunc.parametrize((*AXES, "settings"), list(points) or [(NO_CASE,) * (len(AXES) + 1)], ids=ids or [NO_CASE])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Leave out what runs on request only, unless its file was named; then order what is left, after -k and -m."""
    state = config.stash[STATE]
    left_out = {item for item in items if _is_left_out(item, state)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items[:] = in_safe_order(items, state.case_of, state.clocks_only_fall, state.mode_of)
    items.sort(key=lambda item: TAKEAWAYS in getattr(item, "fixturenames", ()))  # judged once all is measured


def _is_left_out(item: pytest.Item, state: RunState) -> bool:
    """Whether a test has no case, or runs on request only and nobody asked.

    Idle states of simulated boards take no time, so a campaign with the experiment `baseload` runs them at once.
    """
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if NO_CASE in parameters.values():
        return True
    if not item.get_closest_marker(ON_REQUEST) or state.is_named(item.path):
        return False
    case = state.case_of(item)
    at_once = case is not None and state.device(case.device).provenance == "simulated"
    return not (item.get_closest_marker(IDLE_STATES) and at_once and state.takes_part(BASELOAD, item.path))


def pytest_collection_finish(session: pytest.Session) -> None:
    state = session.config.stash[STATE]
    state.countdown = Countdown(sum("held_device" in getattr(item, "fixturenames", ()) for item in session.items))


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> List[str]:
    """Say before hours go by that a sweep takes more than one pass."""
    state = config.stash[STATE]
    passes = passes_needed(items, state.case_of, state.clocks_only_fall, state.mode_of)
    texts = [
        f"{device}: these power modes have no order in which CPU and GPU clocks only fall, so they run in {count} "
        "passes. Where this release cannot raise a clock, cases from the second pass on fail: reboot then, and run the "
        "same again with --resume"
        for device, count in passes.items()
        if count > 1
    ]
    for text in texts:
        warnings.warn(text, stacklevel=1)
    return [f"jetwatt: {text}." for text in texts]


def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> Optional[Tuple[str, str, str]]:
    """No dot for a case that was measured: its line of figures stands there already."""
    measured = report.when == "call" and report.passed and report.nodeid in config.stash[STATE].measured
    return ("passed", "", "PASSED") if measured else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    state = terminalreporter.config.stash[STATE]
    if state.profiles:
        terminalreporter.section("jetwatt")
        terminalreporter.write_line(format_summary(state.profiles))
        verdicts = state.verdicts()
        if verdicts:
            terminalreporter.section("take-aways of the papers")
            terminalreporter.write_line(format_verdicts(verdicts))
        terminalreporter.write_line(f"results: {terminalreporter.config.getoption('jetwatt_results')}")
