"""What an emulated board shows: clocks that follow the load within their limits, power, temperature, use."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from boards.power_model import Load, Ratios, domain_power_mw, rail_power_mw
from boards.processor_files import CPU
from boards.tree_files import put_text, show_text, take_text
from boards.write_rules import at_least, at_most

AMBIENT_C, RISE_C = 30.0, 45.0  # at the module's peak power
AUTOMATIC_PWM = 66  # what nvfancontrol sets, or the kernel of r32
GOVERNOR_PWM = 88  # what the thermal governor of r36 makes of 255
HEADROOM = 1.25  # schedutil asks for a quarter more than the load needs
TICKS_PER_S = 100
STILL = "PMIC-Die", 50.0  # a zone that shows the same always


def settle(root: str, state: Dict[str, Any]) -> None:
    """Write every reading as load, limits and faults have it now."""
    _Settling(root, state).run()


def sets_fan(state: Dict[str, Any]) -> bool:
    """Whether a thermal governor sets the fan's speed (r36 on): one that is not `user_space`."""
    return any(state["accepted"][policy] != "user_space" for policy in state["places"]["fan_policies"])


def follow(table: List[int], low: int, high: int, load: float) -> int:
    """The clock that a governor picks: the lowest with headroom for the load, within the limits."""
    wanted = at_least(table, int(min(HEADROOM * load, 1.0) * high))
    return min(max(wanted, low), high)


class _Settling:
    def __init__(self, root: str, state: Dict[str, Any]) -> None:
        self._root = root
        self._state = state
        self._places = state["places"]
        self._load = Load(**state["load"])

    def run(self) -> None:
        online = self._online()
        self._show(f"{CPU}/online", _ranges(online))
        self._show(f"{CPU}/offline", _ranges([core for core in range(self._state["cores"]) if core not in online]))
        mem_hz = self._memory_clock()
        ratios = Ratios(
            cores=len(online) / self._state["cores"],
            tpcs=self._tpcs_on(),
            cpu_clock=self._cpu_clocks(online),
            gpu_clock=self._gpu_clock(),
            mem_clock=mem_hz / self._places["emc_table"][-1],
        )
        domains = domain_power_mw(self._state["peak_mw"], ratios, self._load)
        for rail in self._places["rails"]:
            self._rail(*rail, rail_power_mw(rail[0], domains))
        self._temperatures(sum(domains.values()))
        self._show(self._places["gpu"][1], str(round(1000 * self._load.gpu)))
        for path in self._places["emc_activity"]:
            self._show(path, str(int(self._load.mem * mem_hz / 1000 * 100)))
        self._fan()
        for path in self._places["throttles"]:
            self._show(path, str(int(self._state["throttled"])))
        if self._places["over_current"]:
            self._show(self._places["over_current"][-1], str(self._state["over_current"]))
        self._use(online)

    def _show(self, name: str, text: str) -> None:
        if name in self._state["garbled"]:
            text = self._state["garbled"][name]
        if take_text(self._root, name) != text:
            show_text(self._root, name, text)

    def _value(self, name: str) -> int:
        return int(self._state["accepted"][name])

    def _online(self) -> List[int]:
        switches = {name: rule["core"] for name, rule in self._state["controls"].items() if rule["kind"] == "online"}
        off = {core for name, core in switches.items() if self._state["accepted"][name] == "0"}
        return [core for core in range(self._state["cores"]) if core not in off]

    def _halved(self, table: List[int], clock: int) -> int:
        return at_most(table, clock // 2) if self._state["throttled"] else clock

    def _cpu_clocks(self, online: List[int]) -> float:
        """Each cluster's clock; returns that of the fastest as a share of the greatest."""
        fastest = 0.0
        for policy, cores in self._places["clusters"]:
            running = [core for core in cores if core in online]
            self._show(f"{policy}/affected_cpus", " ".join(map(str, running)))
            if not running:
                continue
            table = self._state["controls"][f"{policy}/scaling_max_freq"]["table"]
            low, high = (self._value(f"{policy}/scaling_{end}_freq") for end in ("min", "max"))
            governor = self._state["accepted"][f"{policy}/scaling_governor"]
            load = {"performance": 1.0, "powersave": 0.0}.get(governor, self._load.cpu)
            clock = follow(table, low, high, load)
            self._show(f"{policy}/scaling_cur_freq", str(clock))  # what was asked for, also while the chip throttles
            self._show(f"{policy}/cpuinfo_cur_freq", str(self._halved(table, clock)))
            fastest = max(fastest, self._halved(table, clock) / table[-1])
        return fastest

    def _gpu_clock(self) -> float:
        ratio = 0.0
        for node in self._places["gpu"][0]:
            table = self._state["controls"][f"{node}/max_freq"]["table"]
            low, high = (self._value(f"{node}/{end}_freq") for end in ("min", "max"))
            load = {"performance": 1.0}.get(self._state["accepted"][f"{node}/governor"], self._load.gpu)
            clock = self._halved(table, follow(table, low, high, load))
            self._show(f"{node}/cur_freq", str(clock))
            self._show(f"{node}/target_freq", str(clock))
            ratio = clock / table[-1]
        return ratio

    def _memory_clock(self) -> int:
        """Locked: the rate that was written, under the cap. Else as the load needs."""
        lock, wish, cap_file, shown = self._places["emc"]
        table = self._places["emc_table"]
        cap = self._value(cap_file) or table[-1]
        highest = at_most(table, cap)
        limits = [shown.replace("cur_freq", f"{end}_freq") for end in ("min", "max")]
        if lock and self._state["accepted"][lock] == "1":
            clock = min(self._value(wish), highest)
        elif lock:
            clock = follow(table, table[0], highest, self._load.mem)
        else:
            lowest, most = map(self._value, limits)
            clock = min(follow(table, lowest, most, self._load.mem), highest)
        if shown == wish:  # the BPMP shows the rate in the file that takes it
            self._state["accepted"][wish] = str(clock)
            if take_text(self._root, wish) != str(clock):
                put_text(self._root, wish, str(clock))
        else:
            self._show(shown, str(clock))
        return clock

    def _tpcs_on(self) -> float:
        """Share of the TPCs that are on; a set bit of the first mask is one that is off."""
        masks, tpcs = self._places["masks"], self._state["tpcs"]
        if not masks or not tpcs:
            return 1.0
        off = bin(self._value(masks[0]) & ((1 << tpcs) - 1)).count("1")
        return max(tpcs - off, 1) / tpcs

    def _rail(self, label: str, mv: int, volts: str, amps: str, watts: str, micro: bool, power_mw: float) -> None:
        ma = round(power_mw * 1000 / mv)
        connected = label != "NC"
        self._show(volts, str(mv if connected else 0))
        self._show(amps, str(ma))
        if watts:
            self._show(watts, str(mv * ma if micro else mv * ma // 1000))

    def _temperatures(self, power_mw: float) -> None:
        hot = AMBIENT_C + RISE_C * power_mw / self._state["peak_mw"]
        for zone, path, dark in self._places["zones"]:
            if not dark:
                self._show(path, str(round(1000 * (STILL[1] if zone == STILL[0] else hot))))

    def _fan(self) -> None:
        pwm, shown, rpm, automatic = self._places["fan"]
        service = self._state["accepted"].get(automatic) == "1" if automatic else self._state["fan_service"]
        governed = sets_fan(self._state)
        if service or governed:  # whoever sets the fan's speed does not leave it where somebody else put it
            speed = str(AUTOMATIC_PWM if service else GOVERNOR_PWM)
            self._state["accepted"][pwm] = speed
            if take_text(self._root, pwm) != speed:
                put_text(self._root, pwm, speed)
        if shown:
            self._show(shown, self._state["accepted"][pwm])
        self._show(rpm, str(self._value(pwm) * 20))

    def _use(self, online: List[int]) -> None:
        """CPU time since boot, which grows with the wall clock and the load."""
        now = time.monotonic()
        passed = max(now - self._state["used_until"], 0.0) * TICKS_PER_S
        self._state["used_until"] = now
        ticks = self._state["ticks"]
        for core in online:
            ticks[core][0] += passed * self._load.cpu
            ticks[core][1] += passed * (1 - self._load.cpu)
        rows = [(f"cpu{core}", int(ticks[core][0]), int(ticks[core][1])) for core in online]
        total = ("cpu ", sum(row[1] for row in rows), sum(row[2] for row in rows))
        lines = [f"{name} {busy} 0 0 {idle} 0 0 0 0 0 0" for name, busy, idle in [total, *rows]]
        put_text(self._root, "proc/stat", "\n".join([*lines, "ctxt 1000", "btime 1700000000", "processes 100"]))


def _ranges(cores: List[int]) -> str:
    """`0-3,6` as the kernel writes lists of cores."""
    parts: List[List[int]] = []
    for core in cores:
        if parts and parts[-1][-1] == core - 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
