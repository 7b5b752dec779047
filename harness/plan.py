"""The cases of a test: from command line, campaign, the test's own `parametrize`, and the papers' defaults."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
    Union,
)

import pytest

from harness import options
from harness.core.boards import check_media, own_media
from harness.core.campaigns import SHIPPED, Sweep, case_key, check_axis, expand, replace_settings
from harness.core.cases import AXES, CONCURRENT, IDLE, IDLE_STATES, INSTANCE_MARK, Case, Mix
from harness.core.configuration import ASKED, DEFAULT_STORAGE, REQUIRED
from harness.core.device import Device, is_self_profiling
from harness.core.device_types import EMULATED
from harness.core.errors import HarnessError, InvalidValueError, UnknownNameError
from harness.core.mode_orders import AS_GIVEN, SAFE, order_passes
from harness.core.power_modes import PowerMode
from harness.core.terminal import Progress, ReportedProgress, available_hint
from harness.core.units import parse_duration
from harness.fixture_names import hidden, takes
from harness.measure.time_budget import TimeBudget, portions, size_of, weight_s
from harness.outcome import OUTCOME

if TYPE_CHECKING:
    from harness.judge.requirements import Origin

Node = Union[pytest.Item, pytest.Collector]
Item = TypeVar("Item")
Falling = Callable[[Item], Optional[Tuple[str, PowerMode]]]
"""The device and the power mode of a case on a device whose clocks only fall; None for any other test."""

ALL_AXES = (*AXES, "cache")

PLANNED_CASE = hidden("planned_case")  # the fixture that is parametrized with a test's cases; `case` returns its value

SUITE = Path(__file__).resolve().parents[1] / "benchmarks"
"""The suite's own benchmarks. These run if the campaign has their experiment; any other test runs anyway."""

NO_CASE = "none"  # the case, or the device, of a test that is left out of this run
JUDGED_DEVICE = hidden("judged_device")  # the parameter of tests that judge measured profiles

TRAINING_FILE, BASELOAD = "training", "baseload"  # the campaign's own sweeps; the one whose cases are idle states


class Block(NamedTuple):
    """A `parametrize` mark that names an axis."""

    names: Tuple[str, ...]  # axes and other arguments of the test
    rows: Tuple[Tuple[Tuple[Any, ...], Tuple[Any, ...]], ...]  # values of each row, and its marks


Point = Tuple[Case, Tuple[Any, ...], Tuple[Any, ...]]
"""A case of a test, the values of arguments other than axes, in the order of the blocks, and marks."""


class Plan:
    """The cases of a run and their devices. Opening a device does not change it."""

    def __init__(self, config: pytest.Config) -> None:
        from harness.measure.idle import idle_cases, read_meter, read_meter_logs

        self._is_judging = options.is_judging(config)
        self._root = options.device_root_from(config)
        self.campaign = options.campaign_from(config)
        fresh_boot = REQUIRED if config.getoption("jetwatt_require_fresh_boot") else ASKED * self.campaign.fresh_boot
        self.configuration = dataclasses.replace(options.configuration_from(config), fresh_boot=fresh_boot)
        self._chosen = {axis for axis in ALL_AXES if config.getoption(f"jetwatt_{axis}") is not None}
        self._asks_for_axes = bool(self._chosen - {"device", "cache"})
        self._chooses_workloads = "workload" in self._chosen or config.getoption("jetwatt_campaign") is not None
        self.meter_logs = read_meter_logs(config.getoption("jetwatt_socket_meter"))
        listed = options.listed_cases(config)
        self._takes_enough: bool = config.getoption("jetwatt_enough_minibatches")
        self.places = None if listed is None else {name: place for place, name in enumerate(listed)}
        self._without_suffix = {re.sub(r"_?\d+\]$", "]", name) for name in self.places or ()}
        self.meter = read_meter(config.getoption("jetwatt_socket_meter"))
        self._idle_s: float = config.getoption("jetwatt_idle_seconds")
        self._slowdown = options.slowdown_from(config)
        self.deadline = options.deadline_from(config)  # read once: of a time of day it is the next one that comes
        text = options.time_budget_from(config, self.campaign)
        began_s = config.stash[OUTCOME].began_s
        self.time_budget = TimeBudget(parse_duration(text), text, began_s) if text else None
        self.portions: Dict[str, float] = {}  # of the time left, by a test's id
        self._weights: Dict[str, float] = {}  # nominal seconds, by a test's id; with a time budget only
        self._devices: Dict[str, Device] = {}
        self.cases: Dict[str, Case] = {}  # by `case_key`, the parameter in pytest
        self.left_out: Set[str] = set()
        self._named = {
            Path(argument.partition("::")[0]).resolve() for argument in config.invocation_params.args if argument
        }
        self._refuse_unknown_experiments(config)
        if not config.option.collectonly and self._trains_own_workload():  # whose module loads torch
            config.stash[OUTCOME].meet_others(self.campaign.general.settings.disturbance_cores)
        measured = [] if self._is_judging else self.campaign.sweeps
        sweeps = [own for sweep in measured for own in self._per_device(sweep, of_experiment=False)]
        self._own_cases = self._expand(sweeps)
        self._idle_cases = idle_cases(self._own_cases, self._idle_s, self.meter_logs)
        if self.meter is not None:
            unplugged = [name for name in self.devices() if is_self_profiling(self.device(name))]
            if unplugged:
                what = f"{unplugged[0]} is at no plug, and --socket-meter is {self.meter.path}"
                raise InvalidValueError(what, "omit it, or --device")

    def _refuse_unknown_experiments(self, config: pytest.Config) -> None:
        if (config.getoption("jetwatt_campaign") or options.DEFAULT_CAMPAIGN) in SHIPPED:
            return
        files = {file.resolve() for folder in (SUITE, config.rootpath / "benchmarks") for file in folder.glob("test_*")}
        available = sorted(experiment_of(file) for file in files | self._named if file.stem.startswith("test_"))
        unknown = [name for name in self.campaign.experiments if name not in available] if files else []
        if unknown:
            raise UnknownNameError(
                f"the campaign has an experiment {unknown[0]!r}, but there is no benchmarks/test_{unknown[0]}.py",
                available_hint(unknown[0], available),
            )

    def _trains_own_workload(self) -> bool:
        from harness.workloads import WORKLOADS

        named = {name for sweep in self.campaign.sweeps for name in sweep.axes["workload"] if sweep.task != CONCURRENT}
        is_real = any(not is_self_profiling(self.device(name)) for name in self.devices())
        return is_real and not named <= {*WORKLOADS, "all"}

    def device(self, name: str) -> Device:
        """The device of that name, the same object each time."""
        if name not in self._devices:
            from harness.devices.registry import open_device
            from harness.devices.simulated import SimulatedDevice

            root = Path("/") if name.partition(INSTANCE_MARK)[0] == "host" else self._root
            device = open_device(name, self.configuration, root)
            if self._slowdown and not isinstance(device, SimulatedDevice):
                raise InvalidValueError(
                    f"--slowdown was given, but {name} is not simulated",
                    "only simulated boards can be slowed down: sim:BOARD",
                )
            if isinstance(device, SimulatedDevice):
                device.slowdown = self._slowdown
            registered = self._devices.setdefault(device.name, device)
            if registered is not device and registered.identity() != device.identity():
                raise InvalidValueError(f"two devices are called {device.name}", "rename one of the files")
            self._devices[name] = registered
        return self._devices[name]

    def devices(self) -> List[str]:
        """The devices of the run; none if it judges a file, because nothing is measured."""
        if self._is_judging:
            return []
        return list(dict.fromkeys(self.device(name).name for name in self.campaign.general.axes["device"]))

    def is_named(self, file: Path) -> bool:
        return file.resolve() in self._named

    def takes_part(self, file: Path) -> bool:
        """Whether a file's tests run.

        A benchmark of the suite runs if it is named, or if the campaign has its experiment and no axis but the device
        was replaced; any other test runs.
        """
        if file.parent != SUITE or self.is_named(file) or experiment_of(file) == TRAINING_FILE:
            return True
        takes_part = experiment_of(file) in self.campaign.experiments and not self._asks_for_axes
        if not takes_part:
            self.left_out.add(experiment_of(file))
        return takes_part

    def points(self, file: Path, blocks: Sequence[Block] = ()) -> List[Point]:
        """The cases of a test.

        The value of each axis comes from the first of: the command line, the campaign's table of this experiment, the
        test's own marks, the campaign's general settings, the papers' default.
        """
        if experiment_of(file) == TRAINING_FILE and file.parent == SUITE:
            return [(case, (), ()) for case in self._own_cases]
        tables = self.campaign.experiments.get(experiment_of(file), ())
        groups: Dict[str, Tuple[Tuple[Any, ...], Tuple[Any, ...], List[Sweep]]] = {}
        for sweep in tables or (self.campaign.general,):
            for own, others, marks in self._with_marks(sweep, blocks):
                _, _, sweeps = groups.setdefault(repr((others, marks)), (others, marks, []))
                sweeps += self._per_device(own, of_experiment=bool(tables))
        return [(case, others, marks) for others, marks, own in groups.values() for case in self._expand(own)]

    def idle_points(self) -> List[Point]:
        """The idle states of the campaign's devices and power modes (E10); simulated boards add those of `baseload`."""
        from harness.measure.idle import idle_cases

        cases = list(self._idle_cases)
        if not self._asks_for_axes:
            sweeps = self.campaign.experiments.get(BASELOAD, ())
            baseload_cases = self._expand(
                [own for sweep in sweeps for own in self._per_device(sweep, of_experiment=True)]
            )
            at_once = [case for case in baseload_cases if self.device(case.device).provenance == "simulated"]
            cases += idle_cases(at_once, self._idle_s, {}, IDLE_STATES[:1])
        self.cases.update((case_key(case), case) for case in cases)
        return [(case, (), ()) for case in cases]

    def _with_marks(self, sweep: Sweep, blocks: Sequence[Block]) -> Iterator[Tuple[Sweep, Tuple[Any, ...], Any]]:
        """A sweep with each row of the marks' values, unless a source with precedence sets the axis."""
        fixed = self._chosen | sweep.own
        blocks = [block for block in blocks if len(block.names) > 1 or block.names[0] not in fixed]
        for rows in itertools.product(*(block.rows for block in blocks)):
            axes = {**sweep.axes, "cache": (sweep.settings.cache,)}
            marks: List[Any] = []
            others, is_asked = [], True
            for block, (values, own_marks) in zip(blocks, rows):
                marks += own_marks
                for name, value in zip(block.names, values):
                    if name not in ALL_AXES:
                        others.append(value)
                    elif name in fixed:  # rows with further arguments: keep those with these values of the axis
                        is_asked &= value in axes[name]
                    else:
                        axes[name] = (value,) if name == "cache" else check_axis(name, [value])
            if is_asked:
                (cache,) = axes.pop("cache")
                changes = {} if cache == sweep.settings.cache else {"cache": cache}
                settings = replace_settings(sweep.settings, changes)
                yield dataclasses.replace(sweep, axes=axes, settings=settings), tuple(others), tuple(marks)

    def _per_device(self, sweep: Sweep, of_experiment: bool) -> Iterator[Sweep]:
        """A sweep for each of its devices on which it runs, and for their further instances.

        Replayed corpora have no experiments of their own: general sweeps request their rows.
        """
        from harness.devices.replay import ReplayDevice
        from harness.devices.simulated import SimulatedDevice, copies

        for name in sweep.axes["device"]:
            device = self.device(name)
            if isinstance(device, ReplayDevice):
                if not of_experiment:
                    yield device.narrow(sweep, self._chooses_workloads)
            elif not sweep.boards or self.board(name) in sweep.boards:
                names = copies(name, sweep.instances) if isinstance(device, SimulatedDevice) else (device.name,)
                media = sweep.axes["storage"]
                check_media(media, self.configuration)
                if not ("storage" in self._chosen or self.configuration.place(DEFAULT_STORAGE)):
                    media = own_media(self.board(name).split(EMULATED)[-1], media)  # no path of an SSD was given
                yield dataclasses.replace(sweep, axes={**sweep.axes, "device": names, "storage": media})

    def _expand(self, sweeps: Sequence[Sweep]) -> List[Case]:
        def resolve(name: str, workload: str, text: str) -> List[Tuple[str, PowerMode]]:
            return self.device(name).power_modes(text, workload)

        named = [
            dataclasses.replace(sweep, axes={**sweep.axes, "workload": _workload_names(sweep)}) for sweep in sweeps
        ]
        cases = expand(named, resolve)
        self.cases.update((case_key(case), case) for case in cases)
        return cases

    def with_enough_minibatches(self, points: Sequence[Point], definition: pytest.Item) -> List[Point]:
        """The points of a test with as many minibatches as its requirements take, if they were asked for.

        These are the requirements of the run's file, of the test's marks and of the marks of its parameters.
        """
        if not self._takes_enough:
            return list(points)
        from harness.gate import requirements_in, requirements_of_marks, requirements_of_run

        shared = [*requirements_of_run(definition.config), *requirements_of_marks(definition)]
        longer = []
        for case, values, marks in points:
            origins = [*shared, *requirements_in(marks, f"a parameter of {definition.name}")]
            longer.append((self._long_enough(case, origins), values, marks))
        self.cases.update((case_key(case), case) for case, _, _ in longer)
        return longer

    def _long_enough(self, case: Case, origins: Sequence[Origin]) -> Case:
        """The case with as many minibatches as the tails of requirements take, if one of them selects it."""
        from harness.judge.requirement_verdicts import axes_of, minibatches_needed

        settings = case.settings
        if settings.minibatches is None:
            return case
        needed = minibatches_needed(axes_of(case, (case.device, self.board(case.device))), origins)
        settings = dataclasses.replace(settings, minibatches=max(settings.minibatches, needed))
        return dataclasses.replace(case, settings=settings)

    def may_be_listed(self, name: str) -> bool:
        return self.places is None or name in self.places or name in self._without_suffix

    def case_of(self, node: Node) -> Optional[Case]:
        planned = getattr(getattr(node, "callspec", None), "params", {}).get(PLANNED_CASE)
        return None if planned is None else self.cases.get(planned)

    def board(self, name: str) -> str:
        """The type of board of a device; its own name if it is not a board."""
        return str(self.device(name).identity().specification.get("board") or name)

    def mode_of(self, item: pytest.Item) -> Optional[Tuple[str, PowerMode]]:
        case = self.case_of(item)
        return None if case is None else (case.device, case.power_mode.mode)

    def share_time(self, items: List[pytest.Item]) -> None:
        """Order the tests so that the largest network goes last, and give each its share of the time left.

        Cases of `--cases` keep its order.
        """
        if self.places is None:
            items.sort(key=self._place_in_time)
        items[:] = in_safe_order(items, self.falling_mode_of)
        timed: Dict[str, Case] = {}
        for item in items:
            case = self._timed_case(item)
            if case is not None:
                timed[item.nodeid] = case
        self._weights = {name: weight_s(case) for name, case in timed.items()}
        self.portions = dict(zip(timed, portions(list(self._weights.values()))))

    def weight(self, item: Node) -> float:
        """The expected cost of a test: nominal seconds where time is shared, and otherwise the same for all."""
        return self._weights.get(item.nodeid, 0.0) if self._weights else 1.0

    def watched_progress(self, item: pytest.Item, progress: Progress) -> Progress:
        """Progress that ends a test of many cases, such as a search, once its share of the time left is used up."""
        case = self._timed_case(item)
        if self.time_budget is None or case is None:
            return progress
        doing = f"the work on {case.id} was not done yet"
        watched = self.time_budget.watched(progress.update, doing, self.portions.get(item.nodeid, 1.0))
        return ReportedProgress(watched, progress)

    def _place_in_time(self, item: pytest.Item) -> float:
        """Sort key; tests that measure an unknown number of cases, such as a search for a power mode, go last."""
        case = self._timed_case(item)
        if case is None:
            return 0.0
        return size_of(case) if takes("measure", item) else math.inf

    def _timed_case(self, item: pytest.Item) -> Optional[Case]:
        """The case of a test that takes real time."""
        case = self.case_of(item)
        return None if case is None or is_self_profiling(self.device(case.device)) else case

    def falling_mode_of(self, item: pytest.Item) -> Optional[Tuple[str, PowerMode]]:
        named_mode = self.mode_of(item)
        return named_mode if named_mode is not None and self.device(named_mode[0]).clocks_only_fall else None


def _workload_names(sweep: Sweep) -> Tuple[str, ...]:
    """The workloads of a sweep by the names in their cases; an unknown one ends the run here."""
    from harness.workloads import get_workload

    if sweep.task != CONCURRENT:
        return tuple(get_workload(text).name for text in sweep.axes["workload"])
    mixes = [Mix.parse(text) for text in sweep.axes["workload"]]
    return tuple(
        mix._replace(training=get_workload(mix.training).name, inference=get_workload(mix.inference).name).name
        for mix in mixes
    )


PLAN = pytest.StashKey[Plan]()


def plan_of(config: pytest.Config) -> Plan:
    """The plan of this run, made on first use; a wrong option is a `pytest.UsageError` that lists available values."""
    if PLAN not in config.stash:
        try:
            config.stash[PLAN] = Plan(config)
        except HarnessError as error:
            raise pytest.UsageError(options.in_words_of_pytest(error)) from error
    return config.stash[PLAN]


def experiment_of(file: Path) -> str:
    """The experiment that a benchmark file is for: `page_cache` of `test_page_cache.py`."""
    return file.stem.partition("_")[2]


def short_id(case: Case, asked: Sequence[str]) -> str:
    if set(asked) >= set(AXES) or case.task == IDLE:
        return case.id
    texts = {"workers": f"w{case.workers}", "batch_size": f"bs{case.batch_size}", "cache": case.settings.cache}
    return "-".join(str(texts.get(axis) or getattr(case, axis)) for axis in ALL_AXES if axis in asked)


def in_safe_order(items: Sequence[Item], falling: Falling[Item]) -> List[Item]:
    """Order the cases of devices whose clocks only fall, in the fewest passes; everything else keeps its place."""
    ordered = list(items)
    for modes in _falling_modes(items, falling).values():
        passes = order_passes(list(modes), SAFE, modes.__getitem__)
        for place, own_place in zip(modes, itertools.chain.from_iterable(passes)):
            ordered[place] = items[own_place]
    return ordered


def passes_needed(items: Sequence[Item], falling: Falling[Item]) -> Dict[str, int]:
    """Passes of each device whose clocks only fall: one more than the number of times that a clock rises."""
    return {
        device: len(order_passes(list(modes), AS_GIVEN, modes.__getitem__))
        for device, modes in _falling_modes(items, falling).items()
    }


def _falling_modes(items: Sequence[Item], falling: Falling[Item]) -> Dict[str, Dict[int, PowerMode]]:
    """By device and by place among the items, the modes of devices whose clocks only fall."""
    modes: Dict[str, Dict[int, PowerMode]] = {}
    for place, named_mode in enumerate(map(falling, items)):
        if named_mode is not None:
            device, mode = named_mode
            modes.setdefault(device, {})[place] = mode
    return modes
