"""What one pytest run knows: its campaign's cases, the devices it opened, and what came out so far."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import sys
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple, TypeVar

import pytest

from harness.core.campaigns import Campaign, Sweep, describe_settings, expand
from harness.core.cases import AXES, IDLE_STATES, TRAINING, Case
from harness.core.device import Device
from harness.core.environment import describe_environment
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.mode_orders import AS_GIVEN, SAFE, order_passes
from harness.core.power_modes import PowerMode
from harness.core.profiles import Profile
from harness.core.terminal import Countdown, Progress
from harness.devices.registry import open_device
from harness.devices.replay import ReplayDevice
from harness.devices.simulated import INSTANCE_MARK, SimulatedDevice
from harness.judge.claims import Verdict, judge
from harness.judge.evidence import Evidence, evidence_of
from harness.measure.idle import idle_cases, read_meter_logs
from harness.options import (
    campaign_from,
    chooses_workloads,
    configuration_from,
    deadline_from,
    device_root_from,
    replaces_axes,
)
from harness.workloads import get_workload

Item = TypeVar("Item")
CaseOf = Callable[[Item], Optional[Case]]
ModeOf = Callable[[Case], PowerMode]

TRAINING_FILE = "training"
"""The benchmark file of the campaign's own sweeps; others have an experiment's."""

BASELOAD = "baseload"
"""The experiment whose cases are idle states."""


class UncapturedStream:
    """Standard output past pytest's capture, for progress while a test runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def write(self, text: str) -> None:
        """Write at once, beginning on a line of its own."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        writer = self._config.get_terminal_writer()
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            if writer.width_of_current_line and not text.startswith("\r"):
                writer.line()
            writer.write(text, flush=True)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return sys.stdout.isatty()


class RunState:
    """What one pytest run knows: its cases, the devices it opened, and what came out so far."""

    def __init__(self, config: pytest.Config, progress: Progress) -> None:
        """Read campaign and places from the options, and expand the campaign into its cases."""
        self.configuration = configuration_from(config)
        self._device_root = device_root_from(config)
        self.run_id = uuid.uuid4().hex
        self.profiles: List[Profile] = []
        self.measured: Set[str] = set()
        self.countdown = Countdown(0)
        self.progress = progress
        self._devices: Dict[str, Device] = {}
        self._modes: Dict[Tuple[str, str], PowerMode] = {}
        self.meter_logs = read_meter_logs(config.getoption("jetwatt_socket_meter"))
        self.campaign = campaign_from(config)
        self._replaces_axes = replaces_axes(config)
        self._deadline = deadline_from(config)
        self._named_files = {
            Path(argument.partition("::")[0]).resolve() for argument in config.invocation_params.args if argument
        }
        self._refuse_unknown_experiments(config.rootpath)
        self._experiments: Dict[str, Points] = {}
        self._done: Dict[Tuple[str, str], Profile] = {}
        self._resumed: Set[Tuple[str, str]] = set()
        self.evidence: List[Evidence] = []
        self._judged: Tuple[int, List[Verdict]] = (0, [])

        def narrow(name: str, sweep: Sweep) -> Sweep:
            device = self.device(name)
            return device.narrow(sweep, chooses_workloads(config)) if isinstance(device, ReplayDevice) else sweep

        cases = self._expand(self.campaign.per_device(narrow))
        self.points = _points(cases)
        idle_s = config.getoption("jetwatt_idle_seconds")
        self.idle_points = _points([*idle_cases(cases, idle_s, self.meter_logs), *self._baseload_cases(idle_s)])

    def _refuse_unknown_experiments(self, root: Path) -> None:
        """Refuse experiments of the campaign that no benchmark file below `root` or named is for."""
        files = {file.resolve() for file in (root / "benchmarks").glob("test_*.py")}
        known = sorted(experiment_of(file) for file in files | self._named_files if file.stem.startswith("test_"))
        unknown = [name for name in self.campaign.experiments if name not in known] if files else []
        if unknown:
            raise UnknownNameError(
                f"the campaign has an experiment {unknown[0]!r}, and there is no benchmarks/test_{unknown[0]}.py",
                f"known: {', '.join(known)}",
            )

    def _expand(self, campaign: Campaign) -> List[Case]:
        for workload in campaign.workloads:
            get_workload(workload)  # an unknown one ends the run here

        def mode_names(name: str, workload: str, text: str) -> List[str]:
            found = self.device(name).power_modes(text, workload)
            self._modes.update({(name, mode_name): mode for mode_name, mode in found})
            return [mode_name for mode_name, _ in found]

        return expand(campaign, mode_names)

    def _baseload_cases(self, idle_s: float) -> List[Case]:
        """Idle state (i) in the modes of the experiment `baseload`, of simulated boards, where it takes no time.

        On others somebody has to ask for the idle states of so many modes with `--power-mode`.
        """
        if self._replaces_axes:
            return []
        sweeps = (self._among(sweep) for sweep in self.campaign.of_experiment(BASELOAD).sweeps)
        cases = self._expand(Campaign(BASELOAD, "", tuple(filter(None, sweeps))))
        at_once = [case for case in cases if self.device(case.device).provenance == "simulated"]
        return idle_cases(at_once, idle_s, {}, IDLE_STATES[:1])

    def is_named(self, file: Path) -> bool:
        return file.resolve() in self._named_files

    def takes_part(self, experiment: str, file: Path) -> bool:
        """Whether an experiment's file runs: it is named, or the campaign has it and nobody asked for other axes."""
        return self.is_named(file) or (experiment in self.campaign.experiments and not self._replaces_axes)

    def points_of(self, experiment: str, file: Path) -> Points:
        """The cases of a benchmark file; none of an experiment that does not take part.

        Replayed corpora have no experiments of their own: what they answer is asked by the sweeps of the campaign.
        """
        if experiment == TRAINING_FILE:
            return self.points
        if experiment not in self._experiments:
            campaign = self.campaign.of_experiment(experiment)
            sweeps = [self._among(sweep) for sweep in campaign.sweeps] if self.takes_part(experiment, file) else []
            expanded = self._expand(Campaign(experiment, "", tuple(filter(None, sweeps))))
            self._experiments[experiment] = _points(expanded)
        return self._experiments[experiment]

    def _among(self, sweep: Sweep) -> Optional[Sweep]:
        """A sweep of the devices that it is for, and of their further instances; None where it is for none."""
        devices: List[str] = []
        for name in sweep.axes["device"]:
            device = self.device(name)
            if isinstance(device, ReplayDevice) or (sweep.boards and self.board(name) not in sweep.boards):
                continue
            can_copy = isinstance(device, SimulatedDevice) and INSTANCE_MARK not in name
            copies = range(1, sweep.instances) if can_copy else ()
            devices += [name, *(f"{name}{INSTANCE_MARK}{number}" for number in copies)]
        return dataclasses.replace(sweep, axes={**sweep.axes, "device": tuple(devices)}) if devices else None

    def board(self, name: str) -> str:
        """What kind of board a device is; its own name where it is none."""
        return str(self.device(name).identity().specification.get("board") or name)

    def devices(self) -> List[str]:
        return list(dict.fromkeys(name for sweep in self.campaign.sweeps for name in sweep.axes["device"]))

    @property
    def is_too_late(self) -> bool:
        return self._deadline is not None and datetime.datetime.now() >= self._deadline

    def found(self, key: str, case: Case) -> Optional[Profile]:
        """The profile of this case under these conditions that this run has made already.

        One of the same power mode by another name is another profile: take-aways ask for modes by their names.
        """
        return self._done.get((key, case.id))

    def keep(self, key: str, profile: Profile) -> None:
        self.profiles.append(profile)
        self.evidence.append(evidence_of(profile))
        self._done.setdefault((key, profile.case.id), profile)

    def resume(self, key: str, case: Case, stored: Profile) -> None:
        """Let a profile of an earlier run, of these conditions, speak in this one's verdicts."""
        if (key, case.id) not in self._resumed:
            self._resumed.add((key, case.id))
            self.evidence.append(evidence_of(stored)._replace(case=case))

    def verdicts(self) -> List[Verdict]:
        """What the profiles of this run say to the papers' claims."""
        if self._judged[0] != len(self.evidence):
            self._judged = (len(self.evidence), judge(self.evidence))
        return self._judged[1]

    def left_out(self, device: str) -> int:
        """How many profiles of a device no verdict is taken from, because they were disturbed or throttled."""
        return sum(one.is_left_out for one in self.evidence if one.case.device == device)

    def case_of(self, item: pytest.Item) -> Optional[Case]:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if not {*AXES, "settings"} <= set(parameters):
            return None
        return self.case_at(*(parameters[name] for name in (*AXES, "settings")))

    def case_at(self, *point: Any) -> Case:
        for points in (self.points, *self._experiments.values()):
            if point in points:
                return points[point]
        return self.idle_points[point]

    def mode_of(self, case: Case) -> PowerMode:
        return self._modes[case.device, case.power_mode]

    def clocks_only_fall(self, device: str) -> bool:
        return self.device(device).clocks_only_fall

    @functools.cached_property
    def environment(self) -> Dict[str, Any]:
        return describe_environment()

    def device(self, name: str) -> Device:
        """The device of that name, the same object each time."""
        if name not in self._devices:
            root = Path("/") if name == "host" else self._device_root
            device = open_device(name, self.configuration, root)
            known = self._devices.setdefault(device.name, device)
            if known is not device and known.identity() != device.identity():
                raise InvalidValueError(f"two devices are called {device.name}", "rename one of the files")
            self._devices[name] = known
        return self._devices[name]


STATE = pytest.StashKey[RunState]()

Points = Dict[Tuple[Any, ...], Case]
"""Test parameters to the case they stand for: plain values, the axes and the settings in words, so that
pytest-benchmark can store them."""


def _points(cases: Iterable[Case]) -> Points:
    def in_words(case: Case) -> str:
        words = describe_settings(case.settings)
        return words if case.task == TRAINING else f"{case.task}, {words}"

    return {(*(getattr(case, axis) for axis in AXES), in_words(case)): case for case in cases}


def experiment_of(file: Path) -> str:
    """The experiment that a benchmark file is for: `page_cache` of `test_page_cache.py`."""
    return file.stem.partition("_")[2]


def in_safe_order(
    items: Sequence[Item], case_of: CaseOf, clocks_only_fall: Callable[[str], bool], mode_of: ModeOf
) -> List[Item]:
    """Put the cases of devices whose clocks only fall into an order with the fewest passes and few switches.

    What has no case, and the cases of other devices, keep their places.
    """
    ordered = list(items)
    for places in _places(items, case_of, clocks_only_fall).values():
        passes = order_passes([items[place] for place in places], SAFE, lambda item: mode_of(case_of(item)))
        for place, item in zip(places, (item for one in passes for item in one)):
            ordered[place] = item
    return ordered


def passes_needed(
    items: Sequence[Item], case_of: CaseOf, clocks_only_fall: Callable[[str], bool], mode_of: ModeOf
) -> Dict[str, int]:
    """How often a clock rises in this order, and once more, for each device whose clocks only fall: passes over it."""
    return {
        device: len(order_passes([items[place] for place in places], AS_GIVEN, lambda item: mode_of(case_of(item))))
        for device, places in _places(items, case_of, clocks_only_fall).items()
    }


def _places(items: Sequence[Item], case_of: CaseOf, clocks_only_fall: Callable[[str], bool]) -> Dict[str, List[int]]:
    places: Dict[str, List[int]] = {}
    for place, case in enumerate(map(case_of, items)):
        if case is not None:
            places.setdefault(case.device, []).append(place)
    return {device: found for device, found in places.items() if clocks_only_fall(device)}
