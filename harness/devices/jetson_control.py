"""Sets a power mode on a Jetson board through all its knobs, and reads it back from the kernel's own files.

    static clocks:  nvpmodel (a custom mode, or one of the board's own) -- jetson_clocks -- memory held -- read back
    DVFS:           jetson_clocks undone -- nvpmodel -- memory released -- read back

A board without nvpmodel, or without jetson_clocks, is set through sysfs: cores, CPU, GPU and memory clock, each held.
With DVFS, CPU and GPU may fall to their lowest clock; the memory is held if there is no nvpmodel to cap it.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from harness.board import nvpmodel_modes as modes
from harness.board.cpu import CpuOnline
from harness.board.cpu_clocks import CpuFrequency
from harness.board.emc import Emc
from harness.board.fan import Fan
from harness.board.governor import CPU, DEVFREQ, Governor
from harness.board.gpu import GpuFrequency, computing, find_gpus
from harness.board.jetson_clocks import DVFS, OFF, ON, JetsonClocks
from harness.board.kernel_file import Limits
from harness.board.knob import Knob
from harness.board.nvpmodel import Nvpmodel, RebootNeededError
from harness.board.nvpmodel_conf import Conf, PowerModel
from harness.core.capability import Capability
from harness.core.cases import STATIC
from harness.core.errors import CannotRunError, ControlError, InvalidValueError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace
from harness.core.units import hz_to_khz
from harness.devices.jetson_board import Board, foreign_conf, is_rounded


class JetsonControl:
    def __init__(self, root: Path, holds_thor: bool = False, board: Optional[Board] = None) -> None:
        """`board`: whose conf nvpmodel's has to be; None for any."""
        self._root = str(root)
        self.nvpmodel = Nvpmodel(self._root)
        self.foreign_conf = ""
        with contextlib.suppress(ControlError, InvalidValueError):  # the knob says why it cannot be read
            self.foreign_conf = "" if board is None else foreign_conf(root, board, self.nvpmodel.read_conf())
        if self.foreign_conf:
            self.nvpmodel = Nvpmodel(self._root, foreign=self.foreign_conf)
        self.online = CpuOnline(self._root)
        self.cpu = CpuFrequency(self._root)
        self.gpu = GpuFrequency(self._root, holds_thor)
        self.memory = Emc(self._root, holds_thor)
        self.clocks = JetsonClocks(self._root, holds_thor=holds_thor)
        self.fan = Fan(self._root)
        # They are restored from the last to the first: nvpmodel, as it changes most of the others; then what
        # jetson_clocks stored; then, one by one, what still differs.
        governors = [Governor(self._root, DEVFREQ), Governor(self._root, CPU)]
        clocks: List[Knob] = [self.memory, self.gpu, self.cpu, self.online, self.clocks]
        self.knobs: List[Knob] = [self.fan, *governors, *clocks, self.nvpmodel]

    @functools.cached_property
    def _capabilities(self) -> Dict[str, Capability]:
        """By the knob's name; determined once, as some checks take a second."""
        return {knob.name: knob.available() for knob in reversed(self.knobs)}

    def capabilities(self) -> List[Capability]:
        return list(self._capabilities.values())

    def works(self, knob: Knob) -> bool:
        return self._capabilities[knob.name].available

    def usable(self) -> List[Knob]:
        """The knobs that can be set, in the order for `preserved`."""
        return [knob for knob in self.knobs if self.works(knob)]

    @functools.cached_property
    def conf(self) -> Optional[Conf]:
        """The board's own conf; None without one, or with one of another board: none of its modes is offered."""
        if self.foreign_conf:
            return None
        try:
            return self.nvpmodel.own_conf()
        except ControlError:
            return None

    @functools.cached_property
    def _waiting(self) -> str:
        """The mode that waits for a reboot: nvpmodel calls it the one in effect already."""
        try:
            return self.nvpmodel.waiting()
        except ControlError:
            return ""

    def check(self, space: PowerModeSpace) -> None:
        if self.works(self.nvpmodel):
            return
        knobs = (self.online, self.cpu, self.gpu, self.memory)
        for values, knob in zip(space.dimensions, knobs):
            if len(values) > 1 and not self.works(knob):
                by_name, single = self._capabilities[self.nvpmodel.name], self._capabilities[knob.name]
                what = f"no power mode can be set here: {by_name.detail}; {single.detail}"
                raise CannotRunError(what, by_name.hint or single.hint)

    def holds_clocks(self) -> bool:
        """Whether a mode can be held with DVFS off: by jetson_clocks, or by equal minimum and maximum clocks."""
        return self.works(self.clocks) or (self.works(self.cpu) and self.works(self.gpu))

    def in_effect(self) -> Optional[PowerModel]:
        if self.foreign_conf or self._waiting:
            return None
        try:
            return self.nvpmodel.in_effect()
        except ControlError:
            return None

    def tpc_mask(self) -> Optional[int]:
        """The mask of TPCs that are off, by the kernel or else by the mode in effect; None if neither has it."""
        try:
            self.nvpmodel.own_conf()
        except ControlError:  # the knob says why it cannot be read
            return None
        # On some releases only root can read the kernel's file.
        mask = self.nvpmodel.kernel_value(modes.TPC_POWER_GATING, modes.TPC_PG_MASK)
        model = self.in_effect() if mask is None else None
        return modes.tpc_mask(model) if model else mask

    def needs_reboot(self, name: str) -> str:
        """How the masks of the board's own mode differ from those it booted with; empty if they are equal."""
        conf, now = self.conf, self.in_effect()
        if conf is None or now is None:
            return ""
        wanted, booted = modes.masks(conf.model(name)), modes.masks(now)
        return ", ".join(
            f"{mask} {value} instead of {booted[mask]}"
            for mask, value in wanted.items()
            if booted.get(mask, value) != value
        )

    def dvfs(self) -> str:
        """`off` if CPU and GPU are held at one clock, else `on`."""
        if self.works(self.clocks):
            return self.clocks.read()[DVFS]
        limits = [*self._running().values(), *self.gpu.limits().values()]
        sees_every_gpu = len(self.gpu.gpus()) == len(computing(find_gpus(self._root)))
        return OFF if sees_every_gpu and all(low == high for low, high in limits) else ON

    def free_memory(self) -> str:
        """Why the memory clock is not held; empty if it is."""
        try:
            setting = self.memory.read()
        except ControlError as error:
            return f"whether it is held cannot be read: {error.what}"
        if setting.get("locked"):
            return ""
        if "locked" in setting:
            return "it moves below its cap"
        return "the kernel shows no file that holds it, and nvpmodel only caps it"

    def read(self) -> Tuple[PowerMode, List[str]]:
        """The mode in effect by the kernel's files, with the highest CPU and GPU clock; and its unknown dimensions."""
        cpu = [high for _, high in self._running().values()]
        gpu = [hz_to_khz(high) for _, high in self.gpu.limits().values()]
        cpu_khz, gpu_khz = (max(khz, default=UNKNOWN_KHZ) for khz in (cpu, gpu))
        cores = len(self.online.read())
        try:
            memory = self.memory.read()
        except ControlError:
            memory = {}
        held = memory.get("locked")
        memory_hz = memory["rate_hz"] if held else self.nvpmodel.kernel_value(modes.EMC, modes.MAX_FREQ)  # its cap
        mode = PowerMode(cores, cpu_khz, gpu_khz, hz_to_khz(memory_hz or UNKNOWN_KHZ))
        return mode, [name for name, khz in zip(PowerMode._fields, mode) if khz == UNKNOWN_KHZ]

    def _running(self) -> Dict[str, Limits]:
        """The limits of the clusters with a core online; those of others are meaningless."""
        online, limits = set(self.online.read()), self.cpu.read()
        return {policy.name: limits[policy.name] for policy in self.cpu.policies() if set(policy.cpus) & online}

    def begin(self) -> None:
        """Fan to its maximum (004 sec. 4.4), DVFS off; before any change, jetson_clocks stores the state."""
        if self.works(self.fan):
            self.fan.set(self.fan.maximum())
        if self.works(self.clocks):
            self.clocks.set(self.clocks.off())

    def apply(self, mode: PowerMode, booted: str, clocks: str = STATIC) -> Tuple[PowerMode, List[str]]:
        """Set a mode of the board's space and read it back, exactly: the space has the clocks that drivers list.

        An `UNKNOWN_KHZ` clock is left as it is. `booted` is the mode of the board's own conf whose masks it booted
        with, empty without nvpmodel. Returns the mode and its unknown dimensions.
        """
        self._prepare(clocks)
        is_capped = self.works(self.nvpmodel)
        if is_capped:
            try:
                self.nvpmodel.set(self.nvpmodel.custom(mode, booted))
            except RebootNeededError:  # for a mask that the kernel does not report: the rest is set through sysfs
                is_capped = False
        if not is_capped:
            self.online.set(self._cores(mode.cpu_cores))
        self._finish(mode, clocks, is_capped)
        read_back, unknown = self.read()
        wrong = [
            f"{name} is {is_now}, not {wanted}"
            for name, wanted, is_now in zip(PowerMode._fields, mode, read_back)
            if UNKNOWN_KHZ not in (wanted, is_now) and wanted != is_now
        ]
        if wrong:
            hint = "see `dmesg`, and check what else sets clocks on this board"
            if read_back.cpu_khz < mode.cpu_khz or read_back.gpu_khz < mode.gpu_khz:
                hint = (
                    "on some releases clocks can only be lowered until the next boot: reboot, and run from high to low"
                )
            raise ControlError(f"power mode {mode.name} did not take: {', '.join(wrong)}", hint)
        return _completed(read_back, mode), unknown

    def apply_own(
        self, name: str, expected: PowerMode, space: PowerModeSpace, clocks: str = STATIC
    ) -> Tuple[PowerMode, List[str]]:
        """Set one of the board's own nvpmodel modes by its name; like `apply`, but its caps may be rounded."""
        conf = self.nvpmodel.own_conf()
        limits = modes.to_power_mode(conf, conf.model(name))
        self._prepare(clocks)
        self.nvpmodel.set(self.nvpmodel.own(name))
        self._finish(expected, clocks, True)
        read_back, unknown = self.read()
        mode = _completed(read_back, expected)
        if not is_rounded(mode, limits, space):
            what = f"nvpmodel mode {name} did not take: {read_back.name} was read back, not {expected.name}"
            raise ControlError(what)
        return mode, unknown

    def _prepare(self, clocks: str) -> None:
        """Undo jetson_clocks for DVFS; this restores the state before the run, cores too, so the mode comes after."""
        if clocks != STATIC and self.works(self.clocks):
            self.clocks.apply({DVFS: ON})  # whether clocks can move shows once the mode is set
        # A memory clock held by limits is released in any case: nvpmodel would be refused a lower cap.
        lets_go = self.works(self.nvpmodel) and self.works(self.memory) and (clocks != STATIC or self.memory.limits)
        if lets_go and self.memory.read()["locked"]:
            self.memory.set(self.memory.free())

    def _finish(self, mode: PowerMode, clocks: str, is_capped: bool) -> None:
        """After the cores: hold all clocks at the mode's, or let CPU and GPU move, capped by nvpmodel or not."""
        if clocks == STATIC and is_capped and self.works(self.clocks):
            self.clocks.set(self.clocks.off())
        elif clocks == STATIC or not is_capped:
            if mode.cpu_khz != UNKNOWN_KHZ and self.works(self.cpu):
                pins, running = self.cpu.pinned(mode.cpu_khz), self._running()
                self.cpu.set({**self.cpu.read(), **{name: pins[name] for name in running}})
            if mode.gpu_khz != UNKNOWN_KHZ and self.works(self.gpu):
                self.gpu.set(self.gpu.pinned(mode.gpu_khz))
        holds_memory = clocks == STATIC or not is_capped
        if holds_memory and mode.mem_khz != UNKNOWN_KHZ and self.works(self.memory):
            wanted = self.memory.pinned(mode.mem_khz)
            if wanted != self.memory.read():
                self.memory.set(wanted)
        if clocks == STATIC:
            return
        # Clocks with equal limits may fall to their lowest. A minimum that nvpmodel sets below the mode's clock is the
        # board's own DVFS range and stays.
        lowest = {policy.name: policy.lowest_khz for policy in self.cpu.policies()}
        held = {name: [lowest[name], high] for name, (low, high) in self._running().items() if low == high}
        if held:
            self.cpu.set({**self.cpu.read(), **held})
        levels = {gpu.name: gpu.levels_hz for gpu in self.gpu.gpus() if gpu.levels_hz}
        limits = self.gpu.read()
        held = {name: [levels[name][0], limits[name][1]] for name in levels if limits[name][0] == limits[name][1]}
        if held:
            self.gpu.set({**limits, **held})

    def _cores(self, count: int) -> List[int]:
        """The cores to use, cluster by cluster as in the conf, else by number."""
        conf, cpus = self.conf, self.online.cpus()
        order = [core for cluster in (modes.clusters(conf) if conf else ()) for core in cluster.cores if core in cpus]
        return sorted([*order, *(core for core in cpus if core not in order)][:count])


def _completed(read_back: PowerMode, wanted: PowerMode) -> PowerMode:
    """A mode as read back; dimensions that the kernel or the space does not have are taken from `wanted`."""
    pairs = zip(read_back, wanted)
    return PowerMode(*(requested if UNKNOWN_KHZ in (is_now, requested) else is_now for is_now, requested in pairs))
