"""A Jetson board: trains under its power modes and reads its own sensors; or an emulated one, a tree of files.

    session:  lock -- save every knob -- fan to maximum, DVFS off -- cases -- put everything back
    a case:   nvpmodel mode -- jetson_clocks -- memory held -- read back -- train and sample
    free clocks:  jetson_clocks undone -- nvpmodel mode -- memory free -- read back -- train and sample

With a root other than `/` the board is emulated: modes and sensors are those of that tree, and training runs on this
machine. Its name, provenance, a condition and a flag of every profile state that.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from harness.board.bounded_reads import bounded
from harness.board.control_groups import ReadLimit
from harness.board.cpu import Affinity
from harness.board.jetson_clocks import OFF, ON, refuse_stored_clocks
from harness.board.kernel_file import uptime_s
from harness.board.knob import Knob
from harness.board.lock import locked
from harness.board.nvpmodel_modes import tpc_mask
from harness.board.page_cache import PageCache
from harness.board.power_rails import TOTAL, current_limits, find_rails, steps_mw
from harness.board.privileged import FULL_PWM, OWN_CONF
from harness.board.saved_state import RESTORE_COMMAND, left_behind, preserved
from harness.board.source import SourceSpec
from harness.board.thermal import NO_LIMIT_HINT, temperature_limits_c
from harness.core.capability import Capability
from harness.core.cases import IDLE, STATIC, Case
from harness.core.configuration import NOT_FRESH, REQUIRED, Configuration
from harness.core.device import Identity, name_mode
from harness.core.device_types import EMULATED
from harness.core.environment import memory_bytes
from harness.core.errors import CannotRunError, ControlError, HarnessError, SourceUnavailableError
from harness.core.mode_texts import parse_power_modes
from harness.core.power_modes import PowerMode, PowerModeSpace
from harness.core.units import BYTES_PER_GIB, s_to_hours
from harness.devices.host import THIS_MACHINE, by_reason, first_readings, lock_name, source_capability
from harness.devices.jetson_board import Board, LiveSpace, named_modes, read_board, read_space
from harness.devices.jetson_control import JetsonControl

FRESH_S = 3600.0  # a board that was booted longer ago is not fresh: anything may have run on it since


def is_jetson(root: Path) -> bool:
    return read_board(root) is not None


def open_jetson(configuration: Configuration, root: Path, is_tree: bool) -> JetsonDevice:
    """The Jetson at a root; emulated if that is not this machine's."""
    board = read_board(root)
    assert board is not None, "`is_jetson` is true of this root"
    return JetsonDevice(board, configuration, root)


class JetsonDevice:
    power_source = "ina"
    gpu_uuid = ""

    def __init__(self, board: Board, configuration: Configuration, root: Path = THIS_MACHINE) -> None:
        self._board_root = Path(os.path.abspath(root))
        self.is_emulated = self._board_root != THIS_MACHINE
        self.name = f"{EMULATED}{board.name}" if self.is_emulated else board.name
        # Training times of this machine with readings of a tree are not a measurement of any board.
        self.provenance = "simulated" if self.is_emulated else "measured"
        self.clocks_only_fall = board.spec is not None and bool(board.spec.clocks_only_fall)
        self._board = board
        self.configuration = board.spec.configured(configuration) if board.spec else configuration
        self.board_instance = configuration.instance(self._board_root)
        self.root = THIS_MACHINE  # training runs here, even for an emulated board
        self._affinity = Affinity()
        self._control = JetsonControl(self._board_root, configuration.hold_thor_clocks, board)
        self._booted = ""
        # sources of an emulated board's figures
        made_of = f"times are this machine's, power and clocks come from the board's tree {self._board_root}"
        self.remarks = [f"emulated: {made_of}"] if self.is_emulated else []
        up_s = self._uptime_s()  # taken once, so that a campaign of hours does not become stale by itself
        self._stale = ""
        if configuration.fresh_boot and up_s is not None and up_s > FRESH_S:
            self._stale = f"{self.name} was booted {s_to_hours(up_s):.1f} h before the run"
            self.remarks.append(f"{NOT_FRESH}: {self._stale}, and the papers reboot before a series")

    def identity(self) -> Identity:
        memory, spec = memory_bytes(self._board_root), self._board.spec
        return Identity(
            f"{self._board.product} (emulated)" if self.is_emulated else self._board.product,
            {
                "part_number": self._board.part_number,
                "variant": spec.variant if spec else None,
                "cpus": self._live.space.cpu_cores[-1],
                "memory_gib": None if memory is None else round(memory / BYTES_PER_GIB),
                "gpu": spec.gpu.name if spec else None,
            },
        )

    @functools.cached_property
    def _live(self) -> LiveSpace:
        """Read once, so that the modes stay the same: on some releases clusters disappear with their cores."""
        return read_space(str(self._board_root), self._board.spec, self.configuration.hold_thor_clocks)

    def power_mode_space(self) -> PowerModeSpace:
        return self._live.space

    def power_modes(self, text: str, workload: str = "") -> List[Tuple[str, PowerMode]]:
        return parse_power_modes(text, self._live.space, self._named)

    @functools.cached_property
    def _named(self) -> Dict[str, PowerMode]:
        return named_modes(self._live.space, self._control.conf, self._board.spec)

    def _is_own(self, name: str) -> bool:
        """Whether a mode is one of the board's nvpmodel; `maxn` and papers' names set values only, no masks."""
        return self._control.conf is not None and any(model.name == name for model in self._control.conf.models)

    def capabilities(self) -> List[Capability]:
        board = self._board
        words = [board.product, board.part_number or "part number unknown", f"L4T {board.l4t or 'unknown'}"]
        words.append(f"JetPack {board.jetpack or 'unknown for this L4T'}")
        capabilities = [Capability("know the board", board.spec is not None, ", ".join(words))]
        capabilities.append(self.configuration.knows_instance(self._board_root))
        capabilities += [
            Capability("agree with its spec file", False, difference) for difference in self._differences()
        ]
        capabilities.append(self._put_back())
        mask = self._control.tpc_mask()
        if mask is not None:
            capabilities.append(self._whole_gpu(mask))
        capabilities += [source_capability(spec, str(THIS_MACHINE)) for spec in self.telemetry_sources(Path.cwd())]
        with contextlib.suppress(SourceUnavailableError):  # the source's own line gives the reason
            steps = [f"{label} {step_mw:.3g} mW" for label, step_mw in steps_mw(str(self._board_root)).items()]
            if steps:
                capabilities.append(Capability("resolve the power of rails", True, f"in steps of: {', '.join(steps)}"))
        capabilities.append(self._ends_on_heat())
        up_s = self._uptime_s()
        if up_s is not None:  # 004 sec. 5.4.4: "we reboot each device before starting experiment runs"
            hint = "" if up_s < FRESH_S else "the papers reboot before a campaign: `sudo reboot`"
            capabilities.append(Capability("start fresh", up_s < FRESH_S, f"booted {s_to_hours(up_s):.1f} h ago", hint))
        return [*capabilities, *self._control.capabilities(), PageCache().available(), ReadLimit().available()]

    def _ends_on_heat(self) -> Capability:
        """Whether a sensor that has a limit answers."""
        topic = "end a run on heat"
        try:
            limits_c = self.temperature_limits_c(None)
            values, failed = first_readings(SourceSpec("thermal"), str(self._board_root))
        except HarnessError as error:
            return Capability(topic, False, error.what, error.hint)
        by_limit: Dict[float, List[str]] = {}
        for channel in limits_c.keys() & values.keys():
            by_limit.setdefault(limits_c[channel], []).append(channel)
        silent = by_reason({channel: failed.get(channel, "no value") for channel in limits_c if channel not in values})
        if not by_limit:
            return Capability(topic, False, f"no sensor with a limit answers: {silent}", NO_LIMIT_HINT)
        parts = [f"above {limit_c:g} C of {', '.join(sorted(by_limit[limit_c]))}" for limit_c in sorted(by_limit)]
        return Capability(topic, True, "; ".join([*parts, *([f"no value: {silent}"] if silent else [])]))

    def _put_back(self) -> Capability:
        """Whether no run that was killed, or still goes on, has something to put back."""
        topic = "have its own settings"
        name = lock_name(self.name, self._board_root)
        try:
            if name in left_behind():
                with locked(name):
                    what = "a run was killed before it could put back what it changed"
                    return Capability(topic, False, what, RESTORE_COMMAND)
            refuse_stored_clocks(str(self._board_root))
        except ControlError as error:
            return Capability(topic, False, error.what, error.hint)
        return Capability(topic, True, "no run has anything to put back")

    def _whole_gpu(self, mask: int) -> Capability:
        """Whether no mode of the board has more clusters of the GPU on; some of Orin Nano's chip always are off."""
        clusters_off = bin(mask).count("1")
        own = self._control.conf.models if self._control.conf else ()
        masks = {model: tpc_mask(model) for model in own}
        off_in_modes = {model: bin(own_mask).count("1") for model, own_mask in masks.items() if own_mask is not None}
        with_more_on = [model for model, count in off_in_modes.items() if count < clusters_off]
        if not clusters_off:
            return Capability("use the whole GPU", True, f"TPC mask {mask}: no cluster is off")
        detail = f"TPC mask {mask}: {clusters_off} clusters of the GPU are off"
        if off_in_modes and not with_more_on:
            return Capability("use the whole GPU", True, f"{detail}, as in every mode of this module")
        boot = "boot into another mode: `sudo nvpmodel -m ID`"
        if with_more_on:
            boot = f"boot into {with_more_on[0].name}: `sudo nvpmodel -m {with_more_on[0].id}`"
        hint = f"{boot}, answer YES"
        if self._control.foreign_conf:  # its modes are not this board's
            hint = "first put the board's own nvpmodel conf in place"
        return Capability("use the whole GPU", False, f"{detail} since the boot, in every power mode", hint)

    def _differences(self) -> List[str]:
        differences, spec = list(self._live.differences), self._board.spec
        if spec is not None:
            labels = self._rail_labels()
            if labels and set(labels) != set(spec.rails.labels):
                differences.append(f"power rails are {', '.join(labels)}, not {', '.join(spec.rails.labels)}")
            if self._control.foreign_conf:
                differences.append(self._control.foreign_conf)
            presets = [preset.name for preset in spec.presets]
            names = [model.name for model in self._control.conf.models] if self._control.conf else []
            if presets and names and names != presets:
                differences.append(f"nvpmodel modes are {', '.join(names)}, not {', '.join(presets)}")
        return differences

    def _rail_labels(self) -> List[str]:
        try:
            return [rail.label for rail in find_rails(str(self._board_root))]
        except SourceUnavailableError:
            return []  # `doctor` and each profile give the reason for the source

    def telemetry_sources(self, data_directory: Path) -> List[SourceSpec]:
        board, spec = str(self._board_root), self._board.spec
        bound: Dict[str, Any] = {"most_mw": spec.most_mw} if spec is not None else {}
        total: Dict[str, Any] = {}
        if spec is not None and spec.rails.total:  # the facts define the total power, if this board has these rails
            labels = set(self._rail_labels())
            if not labels or set(spec.rails.total) <= labels:
                total = {"total": list(spec.rails.total), "remark": spec.rails.note}
        sources = [
            SourceSpec("cpu", {"pid": os.getpid()}),
            SourceSpec("memory", {"pid": os.getpid()}),
            SourceSpec("diskstats", {"path": str(data_directory.resolve())}),
            SourceSpec("thermal", root=board),
            SourceSpec("cpufreq", {"measured": True}, root=board),
            SourceSpec(self.power_source, {**total, **bound}, root=board),
            SourceSpec("devfreq", root=board),
            SourceSpec("throttle", root=board),
            SourceSpec("fan", root=board),
        ]
        return [*sources, SourceSpec("jtop", bound)] if (self._board_root / "run/jtop.sock").exists() else sources

    def check(self, case: Case) -> None:
        if self._stale and self.configuration.fresh_boot == REQUIRED:
            raise CannotRunError(f"{self._stale}, at most 1 h is allowed", "`sudo reboot`, and run again")
        self._control.check(self._live.space)
        if case.task != IDLE:
            self.temperature_limits_c(case.settings.max_temperature_c)
        name = case.power_mode.name
        conf = self._control.conf
        other_masks = self._control.needs_reboot(name) if self._is_own(name) else ""
        if conf is not None and other_masks:
            number = conf.model(name).id
            what = f"{name} needs a reboot: {other_masks}"
            raise CannotRunError(what, f"`sudo nvpmodel -m {number}`, answer YES, and run again after the reboot")

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        name = lock_name(self.name, self._board_root)
        with locked(name), preserved(self.knobs(), name, root=str(self._board_root)):
            if self._control.works(self._control.nvpmodel):
                self._booted = self._control.nvpmodel.read()["mode"]
            self._control.begin()
            yield

    def knobs(self) -> List[Knob]:
        """What a session saves and restores, in the order in which a case sets it."""
        return [self._affinity, *self._control.usable()]

    def apply(self, mode: PowerMode) -> PowerMode:
        return self._apply(mode.name, mode)[0]

    def _apply(self, name: str, mode: PowerMode, clocks: str = STATIC) -> Tuple[PowerMode, List[str]]:
        self._live.space.check(mode)
        if self._is_own(name) and self._control.works(self._control.nvpmodel):
            applied = self._control.apply_own(name, mode, self._live.space, clocks)
        else:
            applied = self._control.apply(mode, self._booted, clocks)
        if not self.is_emulated:
            online = list(self._control.online.read())
            self._affinity.apply(online)  # this process loses cores that go offline
            if self._affinity.read() != sorted(online):
                what = f"CPUs {online} are online, but this process may only run on {self._affinity.read()}"
                raise ControlError(what, "run outside of containers and cpusets, `systemd-run --scope` among them")
        return applied

    def conditions(self, case: Case) -> Dict[str, Any]:
        identity, board = self.identity(), self._board
        mode = case.power_mode.mode
        in_effect = self._booted or getattr(self._control.in_effect(), "name", None)
        try:  # for judging peaks: channel, limit in mW, description
            limits = current_limits(str(self._board_root))
        except SourceUnavailableError:  # there are no peaks to judge: the profile lacks power, with the reason
            limits = []
        if board.spec is not None and board.spec.input_limit_mw:
            limits.append((TOTAL, board.spec.input_limit_mw, f"what a {board.spec.name}'s input may take"))
        try:  # equal for boards with the same nvpmodel modes
            conf = self._board_root / OWN_CONF
            conf_hash = hashlib.sha256(bounded(str(conf), conf.read_bytes)).hexdigest()[:16]
        except OSError:
            conf_hash = None
        return {
            "device_model": identity.model,
            "device_specification": identity.specification,
            "board_instance": self.board_instance,
            "power_mode": mode._asdict(),
            "power_mode_name": case.power_mode.name,
            # this machine may have fewer cores than the emulated board
            "threads": min(mode.cpu_cores, len(self._affinity.read())) if self.is_emulated else mode.cpu_cores,
            "part_number": board.part_number,
            "l4t": board.l4t,
            "jetpack": board.jetpack,
            "nvpmodel_conf": conf_hash,
            "booted_mode": in_effect,
            "tpc_mask": self._control.tpc_mask(),
            "dvfs": OFF if case.settings.clocks == STATIC and self._control.holds_clocks() else ON,
            "differs_from_spec": self._differences(),
            "power_limits": [list(limit) for limit in limits],
            **({"emulated": True} if self.is_emulated else {}),
        }

    def set_case(self, case: Case) -> Dict[str, Any]:
        mode, unknown = self._apply(case.power_mode.name, case.power_mode.mode, case.settings.clocks)
        return {
            **self.conditions(case),
            "power_mode": mode._asdict(),
            "power_mode_not_told": unknown,
            "dvfs": self._control.dvfs(),
            **self._free_memory(case),
            "fan_set_pwm": FULL_PWM if self._control.works(self._control.fan) else None,
            "uptime_s": self._uptime_s(),
        }

    def as_found(self, case: Case) -> Dict[str, Any]:
        """The conditions of a case for which nothing is set: the power mode and whether DVFS is on, as found."""
        mode, unknown = self._control.read()
        named = name_mode(self, mode)
        return {
            **self.conditions(case.in_mode(named)),
            "power_mode_not_told": unknown,
            "dvfs": self._control.dvfs(),
            "uptime_s": self._uptime_s(),
        }

    def _free_memory(self, case: Case) -> Dict[str, str]:
        """The condition of a case with static clocks whose memory clock is one of several, and is not held."""
        if case.settings.clocks != STATIC or len(self._live.space.mem_khz) < 2:
            return {}
        why = self._control.free_memory()
        return {"memory_clock_free": why} if why else {}

    def _uptime_s(self) -> Optional[float]:
        return uptime_s(str(self._board_root))

    def sampler_cpus(self, mode: PowerMode) -> List[int]:
        """All online CPUs: boards have none to spare."""
        return self._affinity.read()

    def temperature_limits_c(self, most_c: Optional[float]) -> Dict[str, float]:
        return temperature_limits_c(str(self._board_root), most_c)
