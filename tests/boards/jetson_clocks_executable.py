"""The jetson_clocks of a tree: pins the clocks to the mode's maxima, shows, stores and restores what the real one does.

It stores cores, CPU minima, idle states, the GPU's minimum and rail, and the memory's lock; neither maxima nor the
memory's rate. It appends to the file.
"""

from __future__ import annotations

import glob
import os
import sys
from typing import List, TextIO

from boards.kernel import Kernel
from boards.processor_files import CPU, STATES


class JetsonClocks:
    """The command line of jetson_clocks, on a tree."""

    def __init__(self, kernel: Kernel, output: TextIO = sys.stdout) -> None:
        self._kernel = kernel
        self._output = output
        self._state = kernel.state()
        self._nodes = self._state["places"]["gpu"][0]
        self._device = os.path.dirname(os.path.dirname(self._nodes[0]))
        self._lock, self._wish, self._cap, self._rate = self._state["places"]["emc"]

    def run(self, arguments: List[str]) -> int:
        """A call; returns the exit status."""
        option, *rest = arguments or [""]
        if option == "":
            with self._kernel.together():
                return self._pin()
        if option == "--show":
            return self._show()
        if option == "--store":
            return self._store(rest[0])
        if option == "--restore":
            return self._restore(rest[0])
        self._say(f"Unknown option: {option}")
        return 1

    def _say(self, text: str) -> None:
        print(text, file=self._output, flush=True)

    def _all(self, pattern: str) -> List[str]:
        """The files that a pattern names, as they are called below the root."""
        root = self._kernel.root
        return [os.path.relpath(path, root) for path in sorted(glob.glob(os.path.join(root, pattern)))]

    def _try(self, path: str, value: object, complain: str = "") -> None:
        try:
            self._kernel.write(path, value)
        except OSError:
            if complain:
                self._say(complain)

    def _emc_max(self) -> int:
        table = self._state["places"]["emc_table"]
        return min(int(self._kernel.read(self._cap)) or table[-1], table[-1])

    def _pin(self) -> int:
        for folder in self._all(f"{CPU}/cpufreq/policy*"):
            self._try(f"{folder}/scaling_min_freq", self._kernel.read(f"{folder}/scaling_max_freq"))
        for state in self._all(f"{CPU}/cpu[0-9]*/cpuidle/state[0-9]*/disable"):
            self._try(state, 1)
        if f"{self._device}/railgate_enable" in self._state["controls"]:
            self._try(f"{self._device}/railgate_enable", 0)
        for node in self._nodes:
            self._try(f"{node}/min_freq", self._kernel.read(f"{node}/max_freq"), "Error: Failed to max GPU frequency!")
        if not self._lock:  # since r38: its limits, like those of the GPU
            folder = os.path.dirname(self._rate)
            self._try(f"{folder}/min_freq", self._kernel.read(f"{folder}/max_freq"))
        else:
            self._try(self._lock, 1)
            self._try(self._wish, self._emc_max())
        return 0

    def _stored(self) -> List[str]:
        files = self._all(f"{CPU}/cpu[0-9]*/online")
        files += self._all(f"{CPU}/cpu[0-9]*/cpufreq/scaling_min_freq")
        files += self._all(f"{CPU}/cpu[0-9]*/cpuidle/state[0-9]*/disable")
        files += [f"{node}/{name}" for node in self._nodes for name in ("min_freq",)]
        files += self._all(f"{self._device}/railgate_enable")
        return [*files, self._lock or f"{os.path.dirname(self._rate)}/min_freq"]

    def _store(self, file: str) -> int:
        os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
        with open(file, "a") as stored:
            for path in self._stored():
                stored.write(f"/{path}:{self._kernel.read(path)}\n")
        return 0

    def _restore(self, file: str) -> int:
        if not os.path.exists(file):
            self._say(f"Error: {file} file not found !")
            return 1
        with open(file) as stored:
            lines = [line.rstrip("\n").rpartition(":") for line in stored]
        with self._kernel.together():
            for path, _, value in lines:
                quiet = path.endswith("/scaling_min_freq") or self._kernel.read(path) == value
                self._try(path, value, "" if quiet else f"Error: Failed to restore {path}")
        return 0

    def _show(self) -> int:
        read = self._kernel.read
        release = int(self._state["l4t"][1:3])
        family, machine = (self._device_tree(name) for name in ("compatible", "model"))
        self._say(f"SOC family:{family.rpartition(',')[2]}  Machine:{machine}")
        self._say(f"Online CPUs: {read(f'{CPU}/online')}")
        for core in range(self._state["cores"]):
            folder = f"{CPU}/cpu{core}"
            governor = read(f"{folder}/cpufreq/scaling_governor")
            if governor:
                disabled = [read(f"{folder}/cpuidle/state{number}/disable") for number in range(len(STATES))]
                states = " ".join(f"{name}={int(off == '0')}" for name, off in zip(STATES, disabled))
                clocks = self._clocks(f"{folder}/cpufreq/scaling_{{}}_freq")
                online = read(f"{folder}/online") or "1"
                self._say(f"cpu{core}:  Online={online} Governor={governor} {clocks} IdleStates: {states}")
        for node in self._nodes:
            name = os.path.basename(node) if len(self._nodes) > 1 else "GPU"  # Thor has gpu-gpc-0 and gpu-nvd-0
            self._say(f"{name} {self._clocks(f'{node}/{{}}_freq')}")
        if release >= 36 and self._state["tpcs"]:
            off = int(read(self._state["places"]["masks"][0]))
            self._say(f"Active GPU TPCs: {bin(~off & ((1 << self._state['tpcs']) - 1)).count('1')}")
        lowest = self._state["places"]["emc_table"][0]
        override = f" FreqOverride={read(self._lock)}" if self._lock else ""
        self._say(f"EMC MinFreq={lowest} MaxFreq={self._emc_max()} CurrentFreq={read(self._rate)}{override}")
        pwm = self._state["places"]["fan"][0]
        if release == 32:
            self._say(f"Fan: PWM={read(pwm)}")
        else:
            service = "active" if self._state["fan_service"] else "inactive"
            self._say(f"FAN Dynamic Speed control={service} {pwm.split('/')[-2]}_pwm1={read(pwm)}")
        return 0

    def _device_tree(self, name: str) -> str:
        with open(os.path.join(self._kernel.root, "proc/device-tree", name)) as file:
            return file.read().rstrip("\0")

    def _clocks(self, pattern: str) -> str:
        words = (("Min", "min"), ("Max", "max"), ("Current", "cur"))
        return " ".join(f"{word}Freq={self._kernel.read(pattern.format(which))}" for word, which in words)


def main(root: str, arguments: List[str]) -> int:
    return JetsonClocks(Kernel(root)).run(arguments)
