"""The memory clock (EMC): held at one rate, or free below a cap; and where sensors read it.

Its files are in debugfs, which only root sees: without root, the helper reads and writes them for the knob.
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from harness.board.kernel_file import (
    LimitFiles,
    check_writable,
    entries,
    exists,
    left_alone,
    may_read,
    numbers_in,
    read_int_setting,
    read_setting,
    write,
)
from harness.board.knob import Knob, KnobSpec
from harness.board.privileged import hides_clocks
from harness.core.errors import ControlError, InvalidValueError
from harness.core.units import HZ_PER_KHZ, hz_to_khz

_DEBUG = "sys/kernel/debug"
_BPMP, _OVERRIDE, _BANDWIDTH = f"{_DEBUG}/bpmp/debug/clk/emc", f"{_DEBUG}/clk/override.emc", f"{_DEBUG}/tegra_bwmgr"
_CAPS = ("sys/kernel/nvpmodel_clk_cap/emc", "sys/kernel/nvpmodel_emc_cap/emc_iso_cap")  # nvpmodel's: since r36, before

BWMGR = "sys/class/devfreq/bwmgr"
"""Since L4T r39 on Orin (6.8; jetson_stats#867), and on Thor: a devfreq folder, whose two limits hold the clock."""


class Clock(NamedTuple):
    lock: str  # 1 holds it, 0 lets it go
    rate: str  # what it is, in Hz
    target: str  # takes what it is to be held at
    lowest: str  # its bounds
    highest: str
    lock_first: bool  # whether the lock goes before the rate, or after it


CLOCKS = (
    # TX2, Xavier, Orin: locked before the rate, as jetson_clocks does.
    Clock(
        f"{_BPMP}/mrq_rate_locked",
        f"{_BPMP}/rate",
        f"{_BPMP}/rate",
        f"{_BPMP}/min_rate",
        f"{_BPMP}/max_rate",
        lock_first=True,
    ),
    # Nano: the override gets its rate before it counts.
    Clock(
        f"{_OVERRIDE}/clk_state",
        f"{_OVERRIDE}/clk_rate",
        f"{_OVERRIDE}/clk_update_rate",
        f"{_BANDWIDTH}/emc_min_rate",
        f"{_BANDWIDTH}/emc_max_rate",
        lock_first=False,
    ),
)

RATES = (*(one.rate for one in CLOCKS), f"{_BANDWIDTH}/emc_rate", f"{_DEBUG}/clk/emc/clk_rate", f"{BWMGR}/cur_freq")
"""Files of the current clock, in Hz: TX2 and later; Nano, in three releases' ways; r39."""

Setting = Dict[str, int]
"""`locked` 0 or 1, where it can be held; `rate_hz` where it is locked, otherwise it moves; `cap_hz` where there is a
cap, 0 for none (from r36 on no cap reads as the highest clock); `next_hz`, the rate of an override that is off: it
counts for nothing then, but is put back; `lowest_hz` and `highest_hz` where limits hold it, equal while they do."""


class Emc(Knob):
    spec = KnobSpec("emc")
    name = "memory clock"
    topic = "set the memory clock"
    has_parts = True

    def __init__(self, root: str, holds_thor: bool = False) -> None:
        self._root, self._holds_thor = root, holds_thor

    def usable(self) -> str:
        limits = self.limits
        if limits and not self._holds_thor and hides_clocks(limits.minimum):
            raise left_alone(self._path(BWMGR))
        files = list(limits) if limits else [self._path(file) for file in self._need_clock()[:3:2]]
        check_writable([*files, *([self._path(self._cap_file())] if self._cap_file() else [])])
        levels = ", ".join(map(str, self.levels_khz())) or "not listed"
        return f"{files[-1]}; clocks in kHz: {levels}"

    def levels_khz(self) -> List[int]:
        """The available clocks, ascending; empty if there is no table of them."""
        listed = self._path(f"{BWMGR}/available_frequencies")
        if self.limits and os.path.exists(listed) and (self._holds_thor or not hides_clocks(listed)):
            return [hz_to_khz(hz) for hz in numbers_in(read_setting(listed))]
        tables = self._path(f"{_DEBUG}/bpmp/debug/emc/tables/regular")
        return sorted(int(name) for name in entries(tables) if name.isdecimal())

    @property
    def limits(self) -> Optional[LimitFiles]:
        lowest, highest = (self._path(f"{BWMGR}/{name}") for name in ("min_freq", "max_freq"))
        return LimitFiles(lowest, highest) if os.path.exists(lowest) else None

    def pinned(self, khz: int) -> Setting:
        """The setting that holds it at one clock; its cap stays, and reading back shows if it forbids the clock."""
        levels, hz = self.levels_khz(), khz * HZ_PER_KHZ
        if levels and khz not in levels:
            raise InvalidValueError(f"the memory does not run at {khz} kHz", f"allowed: {', '.join(map(str, levels))}")
        if self.limits:
            return {**self._cap(), "locked": 1, "rate_hz": hz, "lowest_hz": hz, "highest_hz": hz}
        clock = self._need_clock()
        lowest, highest = self._value(clock.lowest), self._value(clock.highest)
        if not lowest <= hz <= highest:
            raise InvalidValueError(f"the memory does not run at {hz} Hz", f"allowed: {lowest} to {highest} Hz")
        return {**self._cap(), "locked": 1, "rate_hz": hz}

    def free(self) -> Setting:
        return {**self._cap(), "locked": 0}

    def read(self) -> Setting:
        setting, clock, limits = self._cap(), self._clock(), self.limits
        if limits:
            lowest, highest = limits.read()
            setting.update(locked=int(lowest == highest), lowest_hz=lowest, highest_hz=highest)
            setting.update({"rate_hz": lowest} if setting["locked"] else {})
        elif clock is not None:
            setting["locked"] = self._value(clock.lock)
            setting.update({"rate_hz": self._value(clock.rate)} if setting["locked"] else self._next(clock))
        return setting

    def apply(self, value: Setting) -> None:
        """Hold it or let it go; a cap that rises goes first, one that falls last."""
        writes: List[Tuple[str, int]] = []
        if self.limits:  # devfreq takes 0 for no limit
            self.limits.write([value.get("lowest_hz", 0), value.get("highest_hz", 0)])
        elif "locked" in value:
            clock = self._need_clock()
            writes = [(clock.lock, value["locked"])]
            if value["locked"]:
                writes.insert(1 if clock.lock_first else 0, (clock.target, value["rate_hz"]))
        if "cap_hz" in value:
            cap, now, file = value["cap_hz"], self._cap().get("cap_hz"), self._cap_file()
            if not file:
                paths = ", ".join(map(self._path, _CAPS))
                raise ControlError("the memory clock has no cap here", f"looked for {paths}")
            rises = cap == 0 or (now is not None and 0 < now <= cap)
            writes.insert(0 if rises else len(writes), (file, cap))
        for name, number in writes:
            write(self._path(name), number)

    def verify(self, value: Setting) -> None:
        """Compare what counts: not the rate of an override that is off, which the driver may move."""
        super().verify({name: hz for name, hz in value.items() if name != "next_hz"})

    def forget(self, saved: Setting) -> None:
        clock = self._clock()
        if clock is not None and "next_hz" in saved and self._next(clock).get("next_hz") != saved["next_hz"]:
            write(self._path(clock.target), saved["next_hz"])

    def _next(self, clock: Clock) -> Setting:
        """The rate that an override would have, if it has a file of its own for it."""
        if clock.target == clock.rate:
            return {}
        try:
            return {"next_hz": self._value(clock.target)}
        except ControlError:
            return {}  # it may be write-only, and does not matter while it is off

    def _cap(self) -> Setting:
        cap = self._cap_file()
        return {"cap_hz": self._value(cap)} if cap else {}

    def _cap_file(self) -> str:
        return next((name for name in _CAPS if exists(self._path(name))), "")

    def _clock(self) -> Optional[Clock]:
        return next((clock for clock in CLOCKS if exists(self._path(clock.lock))), None)

    def _need_clock(self) -> Clock:
        clock = self._clock()
        if clock is None and os.path.exists(self._path(BWMGR)):
            raise ControlError("the memory clock of this board has a governor only", "set the governor of bwmgr")
        if clock is None:
            what = f"no memory clock that can be set is in {self._path(_DEBUG)}"
            raise ControlError(what, "on a Jetson: `sudo mount -t debugfs none /sys/kernel/debug`")
        return clock

    def _value(self, name: str) -> int:
        return read_int_setting(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)


def readable_rate(root: str) -> Tuple[str, str]:
    """The file of the clock, in Hz, that this user may read, or empty; and why there is none."""
    debug = os.path.join(root, _DEBUG)
    there = [path for path in (os.path.join(root, rate) for rate in RATES) if os.path.exists(path)]
    readable = [path for path in there if may_read(path)]
    if readable:
        return readable[-1], ""
    if there or not os.access(debug, os.X_OK, effective_ids=True):
        return "", f"{(there or [debug])[0]} is for root only; jtop reports the clock to every user"
    return "", f"there is no clock of the memory below {debug}"
