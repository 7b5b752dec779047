"""Campaigns: which cases to run, as sweeps over the axes; TOML files, two of them shipped here."""

# The classes of tables are made at run time, from the fields of `CaseSettings` and the axes: mypy knows none of them.
# mypy: disable-error-code="valid-type, misc, call-arg"

from __future__ import annotations

import dataclasses
import functools
import itertools
import typing
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union

import msgspec

from harness.core.boards import board_names, is_board
from harness.core.cases import AXES, CONCURRENT, INFERENCE, TRAINING, Case, CaseSettings, Mix, parse_storage
from harness.core.errors import HarnessError, InvalidValueError, UnknownNameError
from harness.core.files import read_toml, typed
from harness.core.mode_texts import only_mode
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.terminal import available_hint
from harness.core.units import parse_duration

SHIPPED = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}

AXIS_DEFAULTS: Dict[str, Tuple[Any, ...]] = {
    "device": ("host",),
    "workload": ("resnet18-cifar10",),
    "power_mode": ("maxn",),
    "workers": (4,),  # 004 sec. 4.4
    "storage": ("ssd",),  # 004 sec. 4.4
    "batch_size": (16,),  # 004 sec. 4.4, 001 sec. 2.3
}
_TASKS = (TRAINING, INFERENCE, CONCURRENT)

SettingsTable = msgspec.defstruct(
    "SettingsTable",
    [
        (name, Union[int, float, None] if float in (kind, *typing.get_args(kind)) else Optional[kind], None)
        for name, kind in typing.get_type_hints(CaseSettings).items()
    ],
    frozen=True,
    forbid_unknown_fields=True,
)
"""The table `settings`: fields of `CaseSettings`, those that are given."""

_AXES = [(axis, Any, None) for axis in AXES]
AxesTable = msgspec.defstruct("AxesTable", _AXES, frozen=True, forbid_unknown_fields=True)
"""The table `axes`: a value or a list for each given axis; `check_axis` validates them."""


class SweepTable(AxesTable, frozen=True, forbid_unknown_fields=True):
    settings: SettingsTable = SettingsTable()  # the settings that differ from the campaign's
    task: Optional[str] = None  # `training`, `inference` or `concurrent`; the default is `training`
    boards: Optional[Tuple[str, ...]] = None  # the boards that it applies to, and `host`; the default is all
    instances: Optional[int] = None  # how many copies of a simulated board run it; the default is 1


class ExperimentTable(SweepTable, frozen=True, forbid_unknown_fields=True):
    sweep: Tuple[SweepTable, ...] = (SweepTable(),)  # `[[experiment.NAME.sweep]]`: several sweeps of an experiment


class CampaignTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    description: str = ""  # what it is for
    axes: AxesTable = AxesTable()  # a table: the axes of all sweeps
    settings: SettingsTable = SettingsTable()  # a table: the settings of all sweeps
    sweep: Tuple[SweepTable, ...] = (SweepTable(),)  # `[[sweep]]` tables, run by `benchmarks/test_training.py`
    experiment: Dict[str, ExperimentTable] = {}  # tables `[experiment.NAME]`, each run by `benchmarks/test_NAME.py`
    fresh_boot: bool = False  # whether boards are to be rebooted before it
    time_budget: Optional[str] = None  # how long the whole run may take, such as `"5min"`


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A full crossing of axis values, all measured with the same settings."""

    axes: Mapping[str, Tuple[Any, ...]]  # axis name to its values
    settings: CaseSettings  # how every case is measured
    task: str = TRAINING  # of every case: `training`, `inference` or `concurrent`
    boards: Tuple[str, ...] = ()  # the boards that it applies to, simulated ones included, and `host`; empty for all
    instances: int = 1  # the number of copies of a simulated board that run it
    own: FrozenSet[str] = frozenset()  # axes that its own table names (`cache` among them), the campaign's do not count


@dataclasses.dataclass(frozen=True)
class Campaign:
    """Sweeps run one after the other; a case in several of them runs once."""

    sweeps: Tuple[Sweep, ...]  # of `benchmarks/test_training.py`
    # name of an experiment to the sweeps that `benchmarks/test_NAME.py` runs
    experiments: Mapping[str, Tuple[Sweep, ...]] = dataclasses.field(default_factory=dict)
    general: Sweep = Sweep(AXIS_DEFAULTS, CaseSettings())  # its axes and settings for tests that none of these are for
    fresh_boot: bool = False  # whether a board should be rebooted before it (004 sec. 5.4.4)
    time_budget: Optional[str] = None  # of the whole run, as `parse_duration` reads it; None for no limit

    def override(self, axes: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> Campaign:
        given = {axis: tuple(values) for axis, values in axes.items()}

        def change(sweep: Sweep) -> Sweep:
            own = {axis: values for axis, values in given.items() if axis != "workload" or sweep.task != CONCURRENT}
            changed = replace_settings(sweep.settings, settings)
            return dataclasses.replace(sweep, axes={**sweep.axes, **own}, settings=changed)

        return dataclasses.replace(
            self,
            sweeps=tuple(map(change, self.sweeps)),
            general=change(self.general),
            experiments={name: tuple(map(change, sweeps)) for name, sweeps in self.experiments.items()},
        )


def replace_settings(settings: CaseSettings, changes: Mapping[str, Any]) -> CaseSettings:
    """Change some settings: minibatches and epochs replace each other; without epochs, `drop-each-epoch` is `cold`."""
    changes = dict(changes)
    if settings.duration_s is not None and "duration_s" not in changes:  # it stays fixed
        changes = {name: value for name, value in changes.items() if name not in ("minibatches", "epochs")}
    if changes.get("duration_s") is not None:
        changes.setdefault("minibatches", None)
        changes.setdefault("epochs", None)
    if changes.get("minibatches") is not None:
        changes.setdefault("epochs", None)
        if changes.get("cache", settings.cache) == "drop-each-epoch" and changes["epochs"] is None:
            changes["cache"] = "cold"
    elif changes.get("epochs") is not None:
        changes.setdefault("minibatches", None)
    return dataclasses.replace(settings, **changes)


def load_campaign(name_or_path: str) -> Campaign:
    """Load a shipped campaign by its name, or one from a TOML file.

    A file has `description`, `fresh_boot = true` where boards are to be rebooted before it, `time_budget = "5min"`
    where the whole run is to end within a time, tables `[axes]` and `[settings]` that hold for all sweeps, and
    `[[sweep]]` tables with the axes and `settings` that differ; without any `[[sweep]]` the campaign is one sweep.
    """
    path = SHIPPED.get(name_or_path, Path(name_or_path))
    if not path.is_file():
        raise UnknownNameError(
            f"campaign {name_or_path!r} is unknown",
            f"{available_hint(name_or_path, SHIPPED)}, or the path of a TOML file",
        )
    content = read_toml(path)
    try:
        if isinstance(content.get("sweep"), dict):
            raise InvalidValueError("sweep must be an array of tables", "write [[sweep]]")
        table = typed(content, CampaignTable)
        base = Sweep({**AXIS_DEFAULTS, **_axes(table.axes)}, replace_settings(CaseSettings(), _given(table.settings)))
        experiments: Dict[str, Tuple[Sweep, ...]] = {}
        for experiment, own in table.experiment.items():
            common = _sweep(base, own)
            experiments[experiment] = tuple(_sweep(common, part) for part in own.sweep)
        if table.time_budget is not None:
            parse_duration(table.time_budget)
        sweeps = tuple(_sweep(base, part) for part in table.sweep)
        return Campaign(sweeps, experiments, base, table.fresh_boot, table.time_budget)
    except HarnessError as error:
        raise InvalidValueError(f"campaign file {path}: {error.what}", error.hint) from error


def expand(sweeps: Sequence[Sweep], resolve: Callable[[str, str, str], List[Tuple[str, PowerMode]]]) -> List[Case]:
    """The cases of sweeps, in order, each once.

    `resolve` takes a device, a workload and the text of a power mode, and returns the modes that the text names,
    each with its name; it is called once for each combination, and once for each mode that inference has of its own.
    """
    cases: Dict[str, Case] = {}

    @functools.lru_cache(maxsize=None)
    def modes_of(device: str, workload: str, text: str) -> List[NamedMode]:
        return [NamedMode(name, mode) for name, mode in resolve(device, workload, text)]

    @functools.lru_cache(maxsize=None)
    def inference_mode_of(device: str, workload: str) -> Optional[NamedMode]:
        mix = Mix.parse(workload)
        if not mix.inference_mode:
            return None
        named = only_mode(mix.inference_mode, resolve(device, mix.inference, mix.inference_mode))
        return dataclasses.replace(named, name=mix.inference_mode)  # as the workload spells it

    for sweep in sweeps:
        points = itertools.product(*(sweep.axes[axis] for axis in AXES))
        for device, workload, mode_text, workers, storage, batch_size in points:
            inference_mode = inference_mode_of(device, workload) if sweep.task == CONCURRENT else None
            place = storage, batch_size, sweep.settings, sweep.task, inference_mode
            for named in modes_of(device, workload, mode_text):
                case = Case(device, workload, named, workers, *place)
                if cases.setdefault(case.id, case) != case:
                    raise InvalidValueError(
                        f"case {case.id} is in two sweeps with different settings: "
                        f"{cases[case.id].settings.describe()}; {case.settings.describe()}",
                        "give both the same settings, or split the campaign in two",
                    )
    return list(cases.values())


def case_key(case: Case) -> str:
    """A description of a case that is unique among all cases."""
    return f"{case.id} ({case.task}, {case.settings.describe()})"


def _sweep(base: Sweep, table: SweepTable) -> Sweep:
    task = base.task if table.task is None else table.task
    if task not in _TASKS:
        raise InvalidValueError(f"task {task!r} is unknown", available_hint(task, _TASKS))
    boards = base.boards if table.boards is None else table.boards
    unknown = [board for board in boards if board != "host" and not is_board(board)]
    if unknown:
        raise UnknownNameError(
            f"there is no board {unknown[0]!r}", available_hint(unknown[0], ["host", *board_names()])
        )
    instances = base.instances if table.instances is None else table.instances
    if instances < 1:
        raise InvalidValueError(f"instances takes a whole number from 1 up, got {instances!r}")
    axes, given = _axes(table), _given(table.settings)
    own = base.own.union(axes, {"cache"} & set(given))
    return Sweep({**base.axes, **axes}, replace_settings(base.settings, given), task, boards, instances, own)


def _given(table: msgspec.Struct) -> Dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(table).items() if value is not None}


def _axes(table: AxesTable) -> Dict[str, Tuple[Any, ...]]:
    given = {axis: getattr(table, axis) for axis in AXES if getattr(table, axis) is not None}
    return {axis: check_axis(axis, values if isinstance(values, list) else [values]) for axis, values in given.items()}


def check_axis(axis: str, values: Sequence[Any]) -> Tuple[Any, ...]:
    """Refuse values that an axis cannot take; numbers may be text. Of names, only storage is checked here."""
    if not values:
        raise InvalidValueError(f"axis {axis} has no value", "give at least one")
    if axis not in ("workers", "batch_size"):
        wrong = [value for value in values if not isinstance(value, str) or not value]
        if wrong:
            raise InvalidValueError(f"axis {axis} takes names, got {wrong[0]!r}")
        for storage in values if axis == "storage" else ():
            parse_storage(storage)
        return tuple(dict.fromkeys(values))
    least = 1 if axis == "batch_size" else 0
    numbers = []
    for value in values:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = least - 1
        if isinstance(value, (bool, float)) or number < least:
            raise InvalidValueError(f"axis {axis} takes whole numbers from {least} up, got {value!r}")
        numbers.append(number)
    return tuple(dict.fromkeys(numbers))
