"""The pytest plugin: options, the cases of a test and their order, progress and the summary.

`harness.opt_in` loads it. Plugins may be imported before pytest loads them: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shlex
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Container, Dict, Generator, List, NamedTuple, Optional, Sequence, Set, Tuple

import pytest

from harness import plan as planning
from harness import processes
from harness.board.lock import interrupt_kept, run_is_ending
from harness.core.campaigns import case_key
from harness.core.cases import CONCURRENT, IDLE, parts_of
from harness.core.configuration import NOT_FRESH
from harness.core.errors import NOTHING_COMPARED, HarnessError, OverBudgetError, StoreError
from harness.core.files import write_output
from harness.core.terminal import Countdown, Progress, counted, nearest_word, wrap
from harness.fixture_names import need, public_names_used, short_fixtures, short_name, takes
from harness.gate import (
    REQUIRE,
    baseline_of,
    check_command,
    has_decided_nothing,
    is_used,
    refuse_counting_without_requirements,
    refuse_wrong_marks,
    requirements_file,
    requirements_of,
    requirements_of_run,
    summary_lines,
)
from harness.judging import parametrize_judged
from harness.opt_in import options_of
from harness.options import (
    DEFAULT_CAMPAIGN,
    asks_for_strictness,
    command_of,
    in_words_of_pytest,
    is_judging,
    resume_command,
)
from harness.outcome import OUTCOME, PROGRESS, Outcome
from harness.plan import ALL_AXES, JUDGED_DEVICE, NO_CASE, PLANNED_CASE, Block, Plan, experiment_of, plan_of
from harness.playback import recorded_time
from harness.summary import MOST_ROWS, format_summary, format_verdicts

pytest_plugins = ["harness.fixtures", "harness.judging"]

TAKEN_FIXTURES = pytest.StashKey[Dict[str, str]]()  # short names that another plugin has too, and its name
MOST_NAMES = 3  # of cases that the time budget left out: -rs lists them all
ON_REQUEST, IDLE_STATES = "on_request", "idle_states"


class UncapturedStream:
    """Standard output past pytest's capture, for progress while a test runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def write(self, text: str) -> None:
        capture = self._config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            if not self._config.pluginmanager.hasplugin("terminalreporter"):  # while pytest is being configured
                sys.stdout.write(text)
                return
            writer = self._config.get_terminal_writer()
            if writer.width_of_current_line and not text.startswith("\r"):
                writer.line()
            writer.write(text, flush=True)

    def flush(self) -> None:
        """Nothing is buffered."""

    def isatty(self) -> bool:
        return sys.stdout.isatty()


def pytest_configure(config: pytest.Config) -> None:
    """Make the plan if one of our options is given: a wrong one ends the run here with the available values."""
    for marker in (
        f"{ON_REQUEST}: runs only when its file is named: pytest benchmarks/FILE.py",
        f"{REQUIRE}(**limits): what the test measures has to keep these limits, such as p99_ms=20",
        f"{IDLE_STATES}: runs for the idle states of each device and power mode, instead of its cases",
    ):
        config.addinivalue_line("markers", marker)
    _refuse_absent_benchmarks(config)
    config.stash[PROGRESS] = Progress(UncapturedStream(config))
    config.stash[OUTCOME] = Outcome()
    short, config.stash[TAKEN_FIXTURES] = short_fixtures(config.pluginmanager)
    config.pluginmanager.register(short, "jetwatt-fixtures")
    if processes.is_share(config):
        processes.begin_share(config)
    else:
        config.pluginmanager.register(processes.ProcessHooks(config))
    if options_of(config).given(config.invocation_params.args):
        plan_of(config)
        refuse_wrong_gates(config)


def _refuse_absent_benchmarks(config: pytest.Config) -> None:
    """Say where the suite's benchmarks are if `pytest benchmarks` is run in another folder."""
    for word in config.args:
        path = Path(word.partition("::")[0])
        there = planning.SUITE.parent / path
        if path.parts[:1] == (planning.SUITE.name,) and not path.exists() and there.exists():
            rest = word[len(str(path)) :]
            raise pytest.UsageError(f"there is no {path} in {Path.cwd()}; the suite has it: pytest {there}{rest}")


def refuse_wrong_gates(config: pytest.Config) -> None:
    """End the run with a usage error, before anything is measured, if a file to judge by is wrong."""
    try:
        baseline_of(config)
        requirements_of_run(config)
    except HarnessError as error:
        raise pytest.UsageError(in_words_of_pytest(error)) from None


class _Parametrization:
    """A test's `parametrize` calls: kept until it is clear whether the test is one of the suite's.

    Then those that name an axis become blocks of a test that has cases, and all others are passed on to pytest.
    """

    def __init__(self, metafunc: pytest.Metafunc) -> None:
        self.metafunc, self.go_on = metafunc, metafunc.parametrize
        self._calls: List[_Call] = []
        self.blocks: List[Block] = []
        self.indirect: Set[str] = set()  # arguments of blocks that are no axes, and go to fixtures of the user's
        self.goes_on = False  # whether the test has its own arguments, which are part of its id too
        # Public hooks and `iter_markers` can read these calls, but not keep pytest from making them a test each.
        metafunc.parametrize = self.keep  # type: ignore[method-assign]

    def keep(self, argnames: Any, argvalues: Any, *args: Any, **kwargs: Any) -> None:
        self._calls.append(_Call(argnames, argvalues, args, kwargs))

    def replaced(self) -> Set[str]:
        """The names whose values the calls give, so that no fixture of the name is used."""
        return {name for call in self._calls for name in call.names if name not in call.indirect}

    def settle(self, has_cases: bool) -> None:
        """Make the calls, in their order; of a test that has cases, those that name an axis become blocks."""
        self.metafunc.parametrize = self.go_on  # type: ignore[method-assign]
        for call in self._calls:
            axes = [name for name in call.names if has_cases and self._is_axis(name, call)]
            if axes:
                self._take(call, axes)
            else:
                self._warn_of_near_misses(call.names if has_cases else ())
                self.goes_on = True
                self.go_on(call.argnames, call.argvalues, *call.args, **call.kwargs)

    def _is_axis(self, name: str, call: _Call) -> bool:
        """Whether values are those of an axis: given to the test itself, or to the suite's own fixture."""
        is_own = name not in call.indirect or short_name(name) in public_names_used(self.metafunc.fixturenames)
        return short_name(name) in ALL_AXES and is_own

    def _warn_of_near_misses(self, names: Sequence[str]) -> None:
        for name in names:
            meant = "" if name in ALL_AXES else nearest_word(name, ALL_AXES)
            if meant:
                text = f"parametrize: {name!r} is not an axis; did you mean {meant!r}?"
                self.metafunc.definition.warn(pytest.PytestWarning(text))

    def _take(self, call: _Call, axes: Sequence[str]) -> None:
        names = [short_name(name) if name in axes else name for name in call.names]
        self._warn_of_near_misses(names)
        self.indirect |= call.indirect - set(axes)
        rows = []
        for row in call.argvalues:
            is_marked = isinstance(row, type(pytest.param()))
            values = row.values if is_marked else (row,) if len(names) == 1 else tuple(row)
            if len(values) != len(names):
                pytest.fail(f"parametrize {', '.join(names)}: {values!r} has {len(values)} values", pytrace=False)
            rows.append((tuple(values), tuple(row.marks) if is_marked else ()))
        self.blocks.append(Block(tuple(names), tuple(rows)))


class _Call(NamedTuple):
    """A call of `metafunc.parametrize`."""

    argnames: Any
    argvalues: Any
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]

    @property
    def names(self) -> List[str]:
        names = self.argnames.split(",") if isinstance(self.argnames, str) else list(self.argnames)
        return [name.strip() for name in names if name.strip()]

    @property
    def indirect(self) -> Set[str]:
        """The names whose values go to a fixture, and not to the test itself."""
        given = self.kwargs.get("indirect", self.args[0] if self.args else False)
        return set(self.names) if given is True else set(given or ())


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, Any, Any]:
    """Give each measuring test its cases, one parameter each; its marks select values of the axes.

    A test is the suite's if it takes one of its fixtures: the definition counts, not the name.
    """
    if not public_names_used(metafunc.fixturenames):
        return (yield)
    refuse_wrong_marks(metafunc.definition)
    asked = _Parametrization(metafunc)
    result = yield
    used = public_names_used(metafunc.fixturenames, asked.replaced())
    has_cases = need(used, "planned_case")
    asked.settle(has_cases)
    if need(used, "judged_device"):
        asked.goes_on = True
        parametrize_judged(metafunc)
    if has_cases:
        _parametrize_cases(metafunc, asked, used)
    return result


def _parametrize_cases(metafunc: pytest.Metafunc, asked: _Parametrization, used: Container[str]) -> None:
    config, file = metafunc.config, metafunc.definition.path
    plan, marked = plan_of(config), metafunc.definition.get_closest_marker
    try:
        if is_judging(config):
            points = []
        elif marked(IDLE_STATES):
            points = plan.idle_points()
        elif marked(ON_REQUEST) and not plan.is_named(file):
            points = []  # a corpus of thousands of modes is expanded on request only
        else:
            points = plan.points(file, asked.blocks) if plan.takes_part(file) else []
            points = plan.with_enough_minibatches(points, metafunc.definition)
    except HarnessError as error:
        pytest.fail(in_words_of_pytest(error), pytrace=False)
    others = [name for block in asked.blocks for name in block.names if name not in ALL_AXES]
    # A measured loop depends on all axes, any other test on those whose fixtures it uses.
    takes_case = "case" in map(short_name, inspect.signature(metafunc.function).parameters) and "case" in used
    is_whole = takes("measure", metafunc) or takes_case
    named = {name for block in asked.blocks for name in block.names}
    axes = [axis for axis in ALL_AXES if is_whole or axis in named or takes(axis, metafunc)]
    rows: Dict[Tuple[str, str], Any] = {}
    for case, values, marks in points:
        words = "-".join([planning.short_id(case, axes), *map(str, values)])
        parameter = pytest.param(case_key(case), *values, marks=marks, id=words)
        # A run may list some tens of thousands of cases: tests are generated for these only.
        if asked.goes_on or plan.may_be_listed(f"{metafunc.definition.nodeid}[{words}]"):
            rows.setdefault((case_key(case) if is_whole else words, words), parameter)
    if not rows:
        why = () if points else _why_nothing(metafunc, plan)
        rows[NO_CASE, NO_CASE] = pytest.param(*[NO_CASE] * (1 + len(others)), id=NO_CASE, marks=why)
    indirect = [PLANNED_CASE, *(name for name in others if name in asked.indirect)]
    asked.go_on([PLANNED_CASE, *others], list(rows.values()), indirect=indirect)


def _why_nothing(metafunc: pytest.Metafunc, plan: Plan) -> Sequence[Any]:
    """A skip with the reason, for a test that should have cases and has none; nothing for one that is left out."""
    file = metafunc.definition.path
    is_asked = not is_judging(metafunc.config) and plan.takes_part(file)
    if metafunc.definition.get_closest_marker(ON_REQUEST) or not is_asked:
        return ()
    devices = ", ".join(plan.devices())
    text = f"neither the campaign nor the test's own marks have a case of {experiment_of(file)} for {devices}"
    return [pytest.mark.skip(reason=text)]


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Optional[pytest.CollectReport]:
    """Skip a benchmark file that would be read after the run's time budget is spent: its cases could not run any more.

    On a machine that is busy enough, reading the files alone takes longer than the budget.
    """
    from harness.fixtures import within_time_budget

    config = collector.config
    plan = config.stash.get(planning.PLAN, None)
    if plan is None or plan.time_budget is None or config.option.collectonly or is_judging(config):
        return None
    if not isinstance(collector, pytest.Module) or collector.path.parent != planning.SUITE:
        return None
    try:
        with within_time_budget(collector):
            plan.time_budget.refuse_if_spent()
    except OverBudgetError as error:
        reason = (str(collector.path), None, f"Skipped: {error}")
        return pytest.CollectReport(collector.nodeid, "skipped", reason, [])  # type: ignore[arg-type]
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let pytest-benchmark use the clock of the minibatches that a test runs or plays back."""
    if not takes("measure", item) or not _has_pytest_benchmark(item.config):
        return
    # More workers than cores is what the papers sweep; a repeated profile is not timed again.
    for expected in ("This DataLoader will create", "Benchmark fixture was not used"):
        item.add_marker(pytest.mark.filterwarnings(f"ignore:{expected}"))
    item.add_marker(pytest.mark.benchmark(timer=recorded_time))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Deselect tests that run on request only, unless their file was named; then order the rest, after -k and -m."""
    if planning.PLAN not in config.stash:
        return
    if any(takes("baseline", item) for item in items):
        _refuse_strictness_without_baseline(config)
    refuse_counting_without_requirements(config, items)
    plan = config.stash[planning.PLAN]
    left_out = {item for item in items if _is_left_out(item, plan)}
    if processes.is_share(config) and not is_judging(config):
        left_out |= set(
            processes.refuse_what_is_measured(config, [item for item in items if item not in left_out], plan)
        )
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    places = plan.places
    if places is not None:
        collected = {item.nodeid for item in items}
        unknown = [name for name in places if name not in collected]
        if unknown:
            raise pytest.UsageError(f"--cases lists {len(unknown)} unknown test ids: {', '.join(unknown[:3])}")
        unlisted = [item for item in items if item.nodeid not in places]
        if unlisted:
            config.hook.pytest_deselected(items=unlisted)
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])
    if plan.time_budget is None:
        items[:] = planning.in_safe_order(items, plan.falling_mode_of)
    else:
        plan.share_time(items)
    # Claims are judged after all measurements.
    items.sort(key=lambda item: takes("judged_device", item))
    measuring = [item for item in items if takes("measure", item)]
    if not measuring and not is_judging(config) and _absent_board_named(config, plan):
        # Claims that -k selected by a board's name would be skipped for want of profiles, and the run would pass.
        judging = [item for item in items if takes("judged_device", item)]
        config.hook.pytest_deselected(items=judging)
        items[:] = [item for item in items if not takes("judged_device", item)]
    if config.getoption("jetwatt_list_cases"):
        _write_cases(Path(config.getoption("jetwatt_list_cases")), items, plan)
    if measuring and not _has_pytest_benchmark(config):
        raise pytest.UsageError(
            f"{measuring[0].nodeid} measures, and pytest-benchmark, which records its minibatches, is not loaded; omit"
            " `-p no:benchmark`, or pip install 'jetwatt[pytest]'"
        )
    _hide_table_of_pytest_benchmark(config, items)
    weight = sum(plan.weight(item) for item in measuring)
    most_s = {} if plan.time_budget is None else {"most_s": plan.time_budget.left_s}
    config.stash[OUTCOME].countdown = Countdown(len(measuring), total_weight=weight, **most_s)


def _has_pytest_benchmark(config: pytest.Config) -> bool:
    names = ("benchmark", "pytest_benchmark.plugin")
    return any(config.pluginmanager.has_plugin(name) for name in names)


TABLE_OPTIONS = tuple(
    f"--benchmark-{name}"
    for name in ("verbose", "columns", "sort", "group-by", "name", "time-unit", "histogram", "compare", "cprofile")
)
"""Options of pytest-benchmark that request its table."""


def _hide_table_of_pytest_benchmark(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Leave the table out, which is over 200 columns wide: the summary has its figures. Its files stay as they are.

    It is shown if an option requests it, or if the run has benchmarks that are not the suite's.
    """
    given = [*map(str, config.invocation_params.args), *config.getini("addopts")]
    given += shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    is_requested = any(word.startswith(TABLE_OPTIONS) for word in given)
    timed = [item for item in items if "benchmark" in getattr(item, "fixturenames", ())]
    others = [item for item in timed if not (takes("measure", item) or _is_case_of_suite(item))]
    # `--benchmark-quiet` is read before collection and silences warnings too, and the hook for groups of the table also
    # feeds `--benchmark-compare-fail`: only the session itself can be quieted now.
    session = getattr(config, "_benchmarksession", None)
    if session is not None and not is_requested and not others:
        session.quiet = True


def _is_case_of_suite(item: pytest.Item) -> bool:
    return item.path.parent == planning.SUITE and takes("planned_case", item)


def _refuse_strictness_without_baseline(config: pytest.Config) -> None:
    """Refuse `--strict` on the command line without `--baseline` or `--require`, as nothing would be compared."""
    is_strict = "--strict" in map(str, config.invocation_params.args)  # pytest's own option: an ini file may set it too
    if is_strict and config.getoption("jetwatt_baseline") is None and requirements_file(config) is None:
        raise pytest.UsageError(
            "--strict was given without --baseline, so nothing would be compared; give --baseline FILE, a file of"
            " `jetwatt baseline record`, or omit --strict"
        )


def _write_cases(path: Path, items: Sequence[pytest.Item], plan: Plan) -> None:
    lines = []
    for item in items:
        case = plan.case_of(item)
        if case is not None:
            fields = {"id": item.nodeid, "key": case_key(case), "device": case.device}
            mode = {"power_mode": case.power_mode.name, "mode": list(case.power_mode.mode)}
            parts = parts_of(case) if case.task == CONCURRENT else [] if case.task == IDLE else [case]
            mode["workloads"] = [part.workload for part in parts]
            lines.append(json.dumps({**fields, **mode}) + "\n")
    try:
        write_output(path, "".join(lines).encode())
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def _is_left_out(item: pytest.Item, plan: Plan) -> bool:
    """Whether a test has no case, or runs on request only and was not requested; with `--judge`, all but claims.

    Idle states of simulated boards take no time, so a campaign with the experiment `baseload` includes them.
    """
    if is_judging(item.config) and not hasattr(getattr(item, "function", None), "claim"):
        return True
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if any(
        parameters.get(name) is NO_CASE for name in (PLANNED_CASE, JUDGED_DEVICE)
    ):  # others' may be arrays, which == is not for
        return not item.get_closest_marker("skip")
    if not item.get_closest_marker(ON_REQUEST) or plan.is_named(item.path):
        return False
    case = plan.case_of(item)
    at_once = case is not None and plan.device(case.device).provenance == "simulated"
    is_baseload = experiment_of(item.path) == planning.BASELOAD and plan.takes_part(item.path)
    return not (item.get_closest_marker(IDLE_STATES) and at_once and is_baseload)


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> List[str]:
    """Report before a long run that a sweep takes more than one pass, and which tests do not run, and why."""
    if planning.PLAN not in config.stash:
        return []
    plan = config.stash[planning.PLAN]
    passes = planning.passes_needed(items, plan.falling_mode_of)
    texts = [
        f"{device}: these power modes have no order in which CPU and GPU clocks only fall, so they run in {count} "
        "passes. If this release cannot raise a clock, cases from the second pass on fail: reboot then, and run the "
        "same command again with --resume"
        for device, count in passes.items()
        if count > 1
    ]
    for text in texts:
        warnings.warn(text, stacklevel=1)
    texts += options_of(config).remarks()
    texts += [
        f"the fixture {name} is the one of {owner} here; use jetwatt_{name}"
        for name, owner in config.stash[TAKEN_FIXTURES].items()
        if any(name in getattr(item, "fixturenames", ()) for item in items)
    ]
    remarks = [remark for name in plan.devices() for remark in getattr(plan.device(name), "remarks", ())]
    stale = [remark for remark in remarks if remark.startswith(NOT_FRESH)]
    texts += [f"{remark}: `sudo reboot` first; --require-fresh-boot enforces it" for remark in stale]
    if config.stash[OUTCOME].over_budget and not items:
        return [f"jetwatt: {text}." for text in texts]
    if plan.left_out and not items:
        name = config.getoption("jetwatt_campaign") or DEFAULT_CAMPAIGN
        texts.append(
            f"left out, because campaign {name} does not have them or axes were replaced: "
            f"{', '.join(sorted(plan.left_out))}; name a file to run it, or use --campaign paper"
        )
    if not (items or is_judging(config)) and (config.getoption("keyword") or config.getoption("markexpr")):
        board = _absent_board_named(config, plan) or "BOARD"
        texts.append(
            f"{_selection(config)} matches no case of {', '.join(plan.devices())}: run on that board, or name a "
            f"simulated one, --device sim:{board}"
        )
    return [f"jetwatt: {text}." for text in texts]


def _selection(config: pytest.Config) -> str:
    given = [("-k", config.getoption("keyword")), ("-m", config.getoption("markexpr"))]
    return " ".join(f"{option} {words!r}" for option, words in given if words)


def _absent_board_named(config: pytest.Config, plan: Plan) -> str:
    """A board that words of -k or -m name, if no device of the run is of its kind; otherwise empty."""
    from harness.simulation.parameters import BOARD_FILES

    texts = (config.getoption("keyword"), config.getoption("markexpr"))
    words = re.findall(r"(?<!not )(?<![\w-])[a-z][\w-]*", " ".join(texts).lower())
    hits = {board: sum(word in (board, *board.split("-")) for word in words) for board in BOARD_FILES}
    nearest = max(hits, key=lambda board: hits[board])
    is_of_run = any(hits.get(plan.board(name)) for name in plan.devices())
    return "" if is_of_run or not hits[nearest] else nearest


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_runtest_setup")
def pytest_interruptible_setup() -> Generator[None, Any, Any]:
    """End the run by a signal even where its interrupt was lost; so do the next two."""
    with interrupt_kept():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """A signal that ended a DataLoader worker too would otherwise fail this test, and the run would go on."""
    with interrupt_kept():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    """As in the set-up."""
    with interrupt_kept():
        return (yield)


def pytest_keyboard_interrupt() -> None:
    """Let further signals wait until the device is as it was before."""
    run_is_ending()


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_sessionfinish")
def pytest_interrupted_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
    """Let pytest-benchmark not warn of the test that an interrupt ended before its first minibatch."""
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        session.config.addinivalue_line("filterwarnings", "ignore:Benchmark fixture was not used")
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that would begin after the run's time budget is spent; claims are judged all the same."""
    from harness.fixtures import as_pytest_outcome, within_time_budget

    item.config.stash[OUTCOME].begin_test()
    refused = item.config.stash.get(processes.REFUSED, {}).get(item.nodeid)
    if refused is not None:
        pytest.fail(refused, pytrace=False)
    plan = item.config.stash.get(planning.PLAN, None)
    if plan is None or plan.time_budget is None or takes("judged_device", item):
        return
    if takes("case", item) or item.path.parent == planning.SUITE:
        with as_pytest_outcome(), within_time_budget(item):
            plan.time_budget.refuse_if_spent()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Judge what a test measured by the requirements, and fail it by them if it has passed."""
    if not takes("measure", pyfuncitem):
        return (yield)
    requirements = requirements_of(pyfuncitem)
    try:
        result = yield
    except (Exception, pytest.fail.Exception):
        requirements.judge_rest()
        raise
    requirements.require(requirements.judge_rest())
    return result


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Change the exit status of two runs.

    One whose files are all left out by its time budget ends as one whose cases all are: with status 0. One with
    `--baseline` or `--require` that judged nothing by it ends with `NOTHING_COMPARED`; with `--strict` it fails.
    """
    outcome = session.config.stash[OUTCOME]
    if processes.is_share(session.config):
        processes.end_share(session.config)
        return
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and outcome.over_budget:
        exitstatus = session.exitstatus = pytest.ExitCode.OK
    config = session.config
    if exitstatus == pytest.ExitCode.OK and (_has_compared_nothing(config) or _has_required_nothing(config)):
        is_strict = asks_for_strictness(config)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if is_strict else NOTHING_COMPARED


def _has_compared_nothing(config: pytest.Config) -> bool:
    """Whether `--baseline FILE` was given and no case was compared, such as where each was skipped."""
    is_asked = config.getoption("jetwatt_baseline") is not None
    outcome = config.stash[OUTCOME]
    return is_asked and not _is_dry(config) and not (outcome.compared or outcome.is_compared)


def _has_required_nothing(config: pytest.Config) -> bool:
    """Whether `--require FILE` was given and no figure was judged PASS or FAIL."""
    is_asked = requirements_file(config) is not None
    return is_asked and not _is_dry(config) and has_decided_nothing(config.stash[OUTCOME])


def _is_dry(config: pytest.Config) -> bool:
    return bool(config.getoption("collectonly")) or is_judging(config)


def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> Optional[Tuple[str, str, str]]:
    """No dot for a measured case: its line of figures was already printed."""
    measured = report.when == "call" and report.passed and report.nodeid in config.stash[OUTCOME].shown
    return ("passed", "", "PASSED") if measured else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    outcome: Outcome = terminalreporter.config.stash[OUTCOME]
    _summarise_profiles(terminalreporter, outcome)
    if exitstatus == pytest.ExitCode.INTERRUPTED and outcome.countdown.total:
        stored = counted(len(outcome.profiles), "profile")
        terminalreporter.write_line(
            f"interrupted: {stored} of {counted(outcome.countdown.total, 'case')} stored in this run; to go on:\n"
            f"  {resume_command(terminalreporter.config)}"
        )
    has_passed = exitstatus not in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    if has_passed and _has_compared_nothing(terminalreporter.config):
        what = f"no case was compared with {terminalreporter.config.getoption('jetwatt_baseline')}"
        _say_that_nothing_was_decided(terminalreporter, what, "baseline", bool(outcome.not_compared))
    if has_passed and _has_required_nothing(terminalreporter.config):
        what = f"no figure was decided by {requirements_file(terminalreporter.config)}"
        _say_that_nothing_was_decided(terminalreporter, what, "requirements", bool(outcome.requirement_verdicts))
    if outcome.over_budget:
        names, (option, *_) = list(outcome.over_budget), outcome.over_budget.values()
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        which = "the first (-rs lists the -k of each)" if len(names) > 1 else "it"
        text = f"left out, because the time budget did not suffice: {', '.join(names[:MOST_NAMES])}{more}"
        terminalreporter.write_line(wrap(text))
        terminalreporter.write_line(f"to run {which}:\n  {command_of(terminalreporter.config)} {option}")


def _say_that_nothing_was_decided(
    terminalreporter: pytest.TerminalReporter, what: str, fixture: str, is_listed: bool
) -> None:
    """How a run ends in which a gate has decided nothing, and why; `is_listed`: its reasons have been printed."""
    ends = "--strict fails" if asks_for_strictness(terminalreporter.config) else f"exit code {NOTHING_COMPARED}"
    why = f"no test gave the fixture `{fixture}` a profile"
    if is_listed:
        why = "the reasons are above"
    elif terminalreporter.stats.get("skipped"):
        why = "-rs: why cases were skipped"
    terminalreporter.write_line(f"{ends}: {what} ({why})")


def _summarise_profiles(terminalreporter: Any, outcome: Outcome) -> None:
    if outcome.profiles:
        in_full = terminalreporter.config.getoption("verbose") > 0
        terminalreporter.section("jetwatt")
        terminalreporter.write_line(format_summary(outcome.profiles, in_full))
    _show_verdicts(terminalreporter)
    if outcome.profiles or is_used(outcome):
        # Profiles that only the tests have are in no results file, or in one of their own.
        results = terminalreporter.config.getoption("jetwatt_results") if outcome.profiles else "FILE.sqlite"
        reasons = list(outcome.not_compared.items())
        for case_id, reason in reasons[:MOST_ROWS]:
            terminalreporter.write_line(wrap(f"not compared: {case_id}: {reason}", indent="  "))
        if len(reasons) > MOST_ROWS:
            terminalreporter.write_line(f"not compared: {len(reasons) - MOST_ROWS} more")
        if (reasons or outcome.is_compared) and outcome.profiles and not outcome.compared:
            terminalreporter.write_line(f"to list them: {check_command(terminalreporter.config)}")
        if outcome.compared:
            from harness.judge.baseline import tolerance_in_words
            from harness.judge.comparison import outdated

            statuses = Counter(verdict.status for verdict in outcome.compared.values())
            counts = "; ".join(f"{status}: {count}" for status, count in statuses.items())
            compared = list(outcome.compared.values())
            terminalreporter.write_line(f"baseline: {counts}; tolerance {tolerance_in_words(compared)}")
            if outdated(compared):
                terminalreporter.write_line(wrap(outdated(compared)))
            if outcome.profiles:
                terminalreporter.write_line(f"to list them: {check_command(terminalreporter.config)}")
        if outcome.is_without_baseline:
            terminalreporter.write_line(
                "no baseline given: nothing was compared. To record one: jetwatt baseline record --results"
                f" {results} --baseline FILE.json; then run with --baseline FILE.json"
            )
        for line in summary_lines(terminalreporter.config):
            terminalreporter.write_line(line)
        if outcome.profiles:
            terminalreporter.write_line(f"results: {results}{_others_in(Path(results), len(outcome.profiles))}")


def _others_in(results: Path, of_run: int) -> str:
    """What a results file has besides the profiles that a run has listed; empty if it has no more."""
    from harness.store.results import ResultsStore

    with contextlib.suppress(StoreError), ResultsStore(results, read_only=True) as store:
        if len(store) > of_run:
            return f" ({counted(len(store), 'profile')}: also of earlier runs, or of searches for power modes)"
    return ""


def _show_verdicts(terminalreporter: pytest.TerminalReporter) -> None:
    from harness.judging import claims_of_run

    run = claims_of_run(terminalreporter.config)
    if run.verdicts:
        terminalreporter.section("claims of the papers")
        terminalreporter.write_line(format_verdicts(run.verdicts, terminalreporter.config.getoption("verbose") > 0))
    if run.not_stored:
        terminalreporter.write_line(f"the verdicts were not stored: {run.not_stored}")
    elif run.judged_file is not None:
        terminalreporter.write_line(f"judged: {run.judged_file}; the verdicts are stored there")
