"""`host`: the Linux machine the suite runs on. Its power mode is a core count and, with cpufreq, a CPU clock.

`emulated-host` is one that a tree of files represents, such as its record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from harness.board.control_groups import ReadLimit, cpu_quota
from harness.board.cpu import Affinity, CpuOnline, choose_cpus, read_siblings
from harness.board.cpu_clocks import CpuFrequency
from harness.board.knob import Knob
from harness.board.lock import locked
from harness.board.page_cache import PageCache
from harness.board.privileges import ASK_FOR_RULE
from harness.board.saved_state import preserved
from harness.board.source import SOURCES, Reading, Source, SourceSpec, open_watched, read_watched
from harness.board.thermal import temperature_limits_c
from harness.core.boards import is_board, load_board
from harness.core.capability import Capability
from harness.core.cases import DVFS, STATIC, Case
from harness.core.configuration import Configuration
from harness.core.device import Identity, name_mode
from harness.core.device_types import EMULATED
from harness.core.environment import cpu_model, memory_bytes
from harness.core.errors import CannotRunError, ControlError, HarnessError
from harness.core.metrics import POWER_CHANNEL
from harness.core.mode_texts import MAXN, parse_power_modes
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace
from harness.core.units import BYTES_PER_GIB

THIS_MACHINE = Path("/")
READINGS = 3  # for which `doctor` waits until every channel has a value
BETWEEN_READINGS_S = 0.1  # in which a counter of energy has moved; the second wait is twice as long
METER_HINT = "a meter at the plug measures it: --socket-meter meter.csv"
CLOCK_STEP_KHZ = 100_000  # steps offered between a CPU's lowest and highest clock where the driver takes any value


def source_capability(spec: SourceSpec, root: str) -> Capability:
    """Whether a telemetry source can be read now; a package's source is listed by its name."""
    topic = SOURCES[spec.name].topic if spec.name in SOURCES else f"measure by {spec.name}"
    try:
        source = open_watched(spec, root)
    except HarnessError as error:
        return Capability(topic, False, error.what, error.hint)
    except Exception as error:
        return Capability(topic, False, f"{type(error).__name__}: {error}")
    values, failed = _readings_of(spec.name, source)
    lost = by_reason(failed)
    hint = ""
    if ASK_FOR_RULE in lost or "Permission denied" in lost:
        lost, hint = lost.replace(f"; {ASK_FOR_RULE}", ""), f"run as root, or {ASK_FOR_RULE}"
    elif POWER_CHANNEL in failed:
        hint = METER_HINT
    if not values:
        return Capability(topic, False, f"no value in {READINGS} readings: {lost or 'none is reported'}", hint)
    if POWER_CHANNEL in failed:
        return Capability(topic, False, f"no total power: {lost}; what answers: {', '.join(values)}", hint)
    answered = source.notes.get(POWER_CHANNEL, f"{spec.name}: {', '.join(values)}")
    return Capability(topic, True, f"{answered}; no value: {lost}" if lost else answered)


def first_readings(spec: SourceSpec, root: str) -> Tuple[Dict[str, float], Dict[str, str]]:
    """What a source gives now, and of the channels without a value why; SourceUnavailableError if it does not open."""
    return _readings_of(spec.name, open_watched(spec, root))


def _readings_of(name: str, source: Source) -> Tuple[Dict[str, float], Dict[str, str]]:
    """What a source gives in its first readings, and of the channels without a value why; a counter needs two."""
    values: Dict[str, float] = {}
    failed: Dict[str, str] = {}
    for number in range(READINGS):
        time.sleep(number * BETWEEN_READINGS_S)
        try:
            reading = read_watched(name, source, time.monotonic())
        except HarnessError as error:
            reading = Reading({}, {name: error.what})
        except Exception as error:
            reading = Reading({}, {name: str(error)})
        values.update(reading.values)
        failed.update(reading.failed)
        failed = {channel: why for channel, why in failed.items() if channel not in values}
        if values:
            failed.pop(name, None)
        if values and not failed and (POWER_CHANNEL in values or POWER_CHANNEL not in source.notes):
            break
    return values, failed


def by_reason(failed: Dict[str, str]) -> str:
    """Channels without a value, those with the same reason together."""
    channels: Dict[str, List[str]] = {}
    for channel, why in failed.items():
        channels.setdefault(why, []).append(channel)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in channels.items())


def lock_name(name: str, root: Path) -> str:
    """The name of a device's lock and saved state; each tree of files is a device of its own."""
    return name if root == THIS_MACHINE else f"{name}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"


class HostDevice:
    """This machine; or an emulated one: clocks and sensors are those of a tree of files, and training runs here."""

    name = "host"
    emulated_name = ""  # name of a tree of files; by default the name with the prefix `emulated-`
    provenance = "measured"
    clocks_only_fall = False
    power_source = "rapl"
    gpu_uuid = ""

    def __init__(self, configuration: Configuration, root: Path = THIS_MACHINE, is_emulated: bool = False) -> None:
        self.configuration = load_board(self.name).configured(configuration) if is_board(self.name) else configuration
        self.is_emulated = is_emulated
        self._tree = Path(os.path.abspath(root))
        self.root = THIS_MACHINE if is_emulated else self._tree  # where training runs
        self.board_instance = configuration.instance(self._tree)
        self.remarks: List[str] = []
        self._affinity = Affinity()
        self._frequency = CpuFrequency(str(self._tree))
        self._allowed_cpus = self._own_cpus = self._affinity.read()
        if is_emulated:
            self.name, self.provenance = self.emulated_name or f"{EMULATED}{self.name}", "simulated"
            self._allowed_cpus = CpuOnline(str(self._tree)).read() or [0]
            self.remarks = [f"emulated: times are this machine's, clocks and sensors come from the tree {self._tree}"]

    def identity(self) -> Identity:
        """The CPU's model and the specification that profiles record."""
        memory = memory_bytes(self._tree)
        model = cpu_model(self._tree) or "Linux machine of unknown make"
        return Identity(
            f"{model} (emulated)" if self.is_emulated else model,
            {"cpus": len(self._allowed_cpus), "memory_gib": None if memory is None else round(memory / BYTES_PER_GIB)},
        )

    def power_mode_space(self) -> PowerModeSpace:
        """Core counts up to the CPUs and the container's quota; CPU clocks, or today's limit if none can be set."""
        quota = cpu_quota(str(self._tree))
        most = len(self._allowed_cpus) if quota is None else max(1, min(len(self._allowed_cpus), math.floor(quota)))
        cores, policies, unknown = tuple(range(1, most + 1)), self._frequency.policies(), (UNKNOWN_KHZ,)
        if not policies:
            return PowerModeSpace(cores, unknown, unknown, unknown)
        if not self._frequency.available().available:
            return PowerModeSpace(cores, (self._highest_allowed_khz(),), unknown, unknown)
        highest = max(policies, key=lambda policy: policy.highest_khz)
        steps = highest.levels_khz or range(highest.lowest_khz, highest.highest_khz, CLOCK_STEP_KHZ)
        return PowerModeSpace(cores, tuple(sorted({*steps, highest.highest_khz})), unknown, unknown)

    def _highest_allowed_khz(self) -> int:
        try:
            return max((limits[1] for limits in self._frequency.read().values()), default=UNKNOWN_KHZ)
        except ControlError:
            return UNKNOWN_KHZ

    def power_modes(self, text: str, workload: str = "") -> List[Tuple[str, PowerMode]]:
        """`maxn` (all cores, highest clock), `2c` (two cores), or any other form of `parse_power_modes`."""
        space = self.power_mode_space()
        by_cores = {f"{cores}c": space.greatest._replace(cpu_cores=cores) for cores in space.cpu_cores}
        return parse_power_modes(text, space, {MAXN: space.greatest, **by_cores})

    def capabilities(self) -> List[Capability]:
        """What can be measured and controlled here, and what the rest would need."""
        root = str(self.root)
        readable = [source_capability(spec, root) for spec in self.telemetry_sources(Path.cwd())]
        knobs = (self._affinity, self._frequency, PageCache(root), ReadLimit(root))
        return [self.configuration.knows_instance(self._tree), *readable, *(knob.available() for knob in knobs)]

    def telemetry_sources(self, data_directory: Path) -> List[SourceSpec]:
        """The telemetry of a profile; block I/O is that of the medium of `data_directory`."""
        sensors = str(self._tree) if self.is_emulated else ""
        return [
            SourceSpec("cpu", {"pid": os.getpid()}),
            SourceSpec("cpufreq", root=sensors),
            SourceSpec("memory", {"pid": os.getpid()}),
            SourceSpec("thermal", root=sensors),
            SourceSpec(self.power_source, root=sensors),
            SourceSpec("diskstats", {"path": str(data_directory.resolve())}),
        ]

    def check(self, case: Case) -> None:
        """Refuse free clocks if clocks cannot be set: a case with `dvfs` would equal one without."""
        if case.settings.clocks == DVFS and not self._sets_clocks:
            what = f"DVFS cannot be switched on or off here: {self._frequency.available().detail}"
            raise CannotRunError(what, "leave out --clocks")

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Hold this machine: lock it and save its state; on exit, restore what was changed."""
        name = lock_name(self.name, self._tree)
        with locked(name), preserved(self.knobs(), name, root=str(self._tree)):
            yield

    def knobs(self) -> List[Knob]:
        """What a session saves and restores, in the order in which a case sets it."""
        return [self._affinity, *([self._frequency] if self._frequency.available().available else [])]

    @functools.cached_property
    def _sets_clocks(self) -> bool:
        return len(self.power_mode_space().cpu_khz) > 1

    def apply(self, mode: PowerMode, clocks: str = STATIC) -> PowerMode:
        """Set a power mode and return it as read back; ControlError if it did not take effect."""
        self.power_mode_space().check(mode)
        self._affinity.set(self._cpus_of(mode))
        if self._sets_clocks:
            lowest = {policy.name: policy.lowest_khz for policy in self._frequency.policies()}
            pins = self._frequency.pinned(mode.cpu_khz)
            free = {name: [lowest[name], high] for name, (_, high) in pins.items()}
            self._frequency.set(free if clocks == DVFS else pins)
        khz = UNKNOWN_KHZ if mode.cpu_khz == UNKNOWN_KHZ else self._highest_allowed_khz()
        return PowerMode(mode.cpu_cores if self.is_emulated else len(self._affinity.read()), khz, *mode[2:])

    def _cpus_of(self, mode: PowerMode) -> List[int]:
        if self.is_emulated:  # of the machine that training runs on, which may have fewer
            return self._own_cpus[: mode.cpu_cores]
        return choose_cpus(mode.cpu_cores, read_siblings(self._allowed_cpus, str(self._tree)))

    def sampler_cpus(self, mode: PowerMode) -> List[int]:
        """CPUs for the sampler, if possible not those of training."""
        return sorted(set(self._own_cpus) - set(self._cpus_of(mode))) or self._own_cpus

    def conditions(self, case: Case) -> Dict[str, Any]:
        """Conditions before measuring; gives this process all CPUs, for generating data sets."""
        self._affinity.set(self._own_cpus)
        return self._describe(case, case.power_mode.mode)

    def _describe(self, case: Case, mode: PowerMode) -> Dict[str, Any]:
        identity = self.identity()
        return {
            "device_model": identity.model,
            "device_specification": identity.specification,
            "board_instance": self.board_instance,
            "power_mode": mode._asdict(),
            "power_mode_name": case.power_mode.name,
            "threads": min(mode.cpu_cores, len(self._own_cpus)),
            **({"dvfs": "on" if case.settings.clocks == DVFS else "off"} if self._sets_clocks else {}),
            **({"emulated": True} if self.is_emulated else {}),
        }

    def set_case(self, case: Case) -> Dict[str, Any]:
        """Set a case's power mode and clocks, and return the conditions with what was read back."""
        return self._describe(case, self.apply(case.power_mode.mode, case.settings.clocks))

    def as_found(self, case: Case) -> Dict[str, Any]:
        """The conditions of a case for which nothing is set: the power mode and whether DVFS is on, as found.

        Clocks are the highest that are allowed now.
        """
        cores = len(self._allowed_cpus if self.is_emulated else self._affinity.read())
        mode = name_mode(self, PowerMode(cores, self._highest_allowed_khz(), UNKNOWN_KHZ, UNKNOWN_KHZ))
        clocks = DVFS if self._moves_clocks() else STATIC
        settings = dataclasses.replace(case.settings, clocks=clocks)
        described = self._describe(dataclasses.replace(case, power_mode=mode, settings=settings), mode.mode)
        return {**described, "dvfs": "on" if clocks == DVFS else "off"}

    def _moves_clocks(self) -> bool:
        """Whether DVFS may change a clock now, as far as the kernel shows; where it shows none, firmware may."""
        try:
            limits = self._frequency.read()
        except ControlError:
            return True
        return not limits or any(low != high for low, high in limits.values())

    def temperature_limits_c(self, most_c: Optional[float]) -> Dict[str, float]:
        """The requested limit for all channels; trip points of a host are ignored, as some firmwares invent them."""
        return {} if most_c is None else temperature_limits_c(str(self._tree), most_c)
