"""The tegrastats of a tree: one line an interval, in the format of its release.

r32: `RAM ... CPU [9%@1190,off] EMC_FREQ 0%@665 GR3D_FREQ 0%@318 APE 150 ... GPU@37.5C ... VDD_IN 933/933`;
r35, r36: a date before it, `GR3D_FREQ 14%@[407,407]` on Orin, `VDD_IN 933mW/933mW`, zones that are off `CV0@-256C`;
r38: `CPU [0%,5%,off]@2601 EMC_FREQ @4266 GR3D_FREQ @[314,314,314]`, loads only where there is one.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Dict, List

from boards.kernel import Kernel
from harness.core.units import KHZ_PER_MHZ

HZ_PER_MHZ = 1_000_000
DEFAULT_INTERVAL_MS = 1000


class Averages:
    """The mean of each rail since the start, which stands behind the slash."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._sums: Dict[str, int] = {}
        self._count = 0

    def add(self, rails: Dict[str, int]) -> Dict[str, int]:
        """Take a reading in; returns the means."""
        self._count += 1
        for label, mw in rails.items():
            self._sums[label] = self._sums.get(label, 0) + mw
        return {label: total // self._count for label, total in self._sums.items()}


def line_of(kernel: Kernel, averages: Averages, now: str) -> str:
    """A line, as the board is now.

    Args:
        kernel: of the tree.
        averages: of the lines before.
        now: date and time, printed since r35.
    """
    state = kernel.state()
    release = int(state["l4t"][1:3])
    total_mb = int(_meminfo(kernel)["MemTotal"]) // 1024
    words = [f"RAM {total_mb // 4}/{total_mb}MB (lfb 400x4MB) SWAP 0/{total_mb // 2}MB (cached 0MB)"]
    if state["board"] == "nano":
        words.append("IRAM 0/252kB(lfb 252kB)")
    words += [_cpu(kernel, state, release), _emc(kernel, state, release), _gpu(kernel, state, release)]
    words.append("VIC off" if release >= 38 else "VIC_FREQ 115" if release >= 35 else "APE 25")
    if state["board"].startswith("xavier") and release == 32:
        words.append("MTS fg 0% bg 0%")
    words += _temperatures(kernel, state, release)
    rails = {label: _power(kernel, *files) for label, _, *files in state["places"]["rails"] if label != "NC"}
    means = averages.add(rails)
    unit = "mW" if release >= 35 else ""
    words += [f"{label} {mw}{unit}/{means[label]}{unit}" for label, mw in rails.items()]
    return " ".join([now, *words] if release >= 35 else words)


def _meminfo(kernel: Kernel) -> Dict[str, str]:
    lines = (line.split() for line in kernel.read("proc/meminfo").splitlines())
    return {name.rstrip(":"): value for name, value, *_ in lines}


def _cpu(kernel: Kernel, state: Dict[str, Any], release: int) -> str:
    online = kernel_cores(kernel.read("sys/devices/system/cpu/online"))
    use = round(100 * state["load"]["cpu"])
    clocks = {}
    for policy, cores in state["places"]["clusters"]:
        clocks.update({core: kernel.read(f"{policy}/scaling_cur_freq") for core in cores if core in online})
    mhz = {core: int(khz) // KHZ_PER_MHZ for core, khz in clocks.items()}
    if release >= 38:
        cores = [f"{use}%" if core in online else "off" for core in range(state["cores"])]
        return f"CPU [{','.join(cores)}]@{max(mhz.values())}"
    cores = [f"{use}%@{mhz[core]}" if core in online else "off" for core in range(state["cores"])]
    return f"CPU [{','.join(cores)}]"


def kernel_cores(text: str) -> List[int]:
    """The cores of a list as the kernel writes it: `0-3,6`."""
    cores: List[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def _emc(kernel: Kernel, state: Dict[str, Any], release: int) -> str:
    mhz = int(kernel.read(state["places"]["emc"][3])) // HZ_PER_MHZ
    use = round(100 * state["load"]["mem"])
    return f"EMC_FREQ @{mhz}" if release >= 38 and not use else f"EMC_FREQ {use}%@{mhz}"


def _gpu(kernel: Kernel, state: Dict[str, Any], release: int) -> str:
    mhz = int(kernel.read(f"{state['places']['gpu'][0][0]}/cur_freq")) // HZ_PER_MHZ
    use = round(100 * state["load"]["gpu"])
    if release >= 38:
        return f"GR3D_FREQ {f'{use}%' if use else ''}@[{mhz},{mhz},{mhz}]"
    if "orin" in state["board"]:
        return f"GR3D_FREQ {use}%@[{mhz},{mhz}]"
    return f"GR3D_FREQ {use}%@{mhz}"


def _temperatures(kernel: Kernel, state: Dict[str, Any], release: int) -> List[str]:
    words = []
    for zone, path, _ in state["places"]["zones"]:
        name = zone.replace("-thermal", "").replace("-therm", "").replace("-Die", "").replace("_tegra", "")
        name = {"thermal-fan-est": "thermal"}.get(zone, name)
        text = kernel.read(path)
        if text.lstrip("-").isdigit():
            words.append(f"{name}@{int(text) / 1000:g}C")
        elif release >= 35:
            words.append(f"{name}@-256C")  # a zone that is switched off
    return words


def _power(kernel: Kernel, volts: str, amps: str, watts: str, micro: bool) -> int:
    if watts:
        return int(kernel.read(watts)) // (1000 if micro else 1)
    return int(kernel.read(volts)) * int(kernel.read(amps)) // 1000


def main(root: str, arguments: List[str]) -> int:
    """`usr/bin/tegrastats` of the tree at `root`: runs until it is killed or its reader is gone."""
    interval_ms = DEFAULT_INTERVAL_MS
    if "--interval" in arguments:
        interval_ms = int(arguments[arguments.index("--interval") + 1])
    if "--stop" in arguments:
        return 0
    kernel, averages = Kernel(root), Averages()
    with contextlib.ExitStack() as stack:
        output = sys.stdout
        if "--logfile" in arguments:
            output = stack.enter_context(open(arguments[arguments.index("--logfile") + 1], "a"))
        try:
            while True:
                kernel.settle()
                print(line_of(kernel, averages, time.strftime("%m-%d-%Y %H:%M:%S")), file=output, flush=True)
                time.sleep(interval_ms / 1000)
        except (BrokenPipeError, KeyboardInterrupt):
            return 0
