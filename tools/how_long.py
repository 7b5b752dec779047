"""Prints how long the tests take on this machine: `python -m tools.how_long quick 2` (`make test`, in two processes).

Their CPU time was measured on one machine. A small fixed load, timed there and here, gives the speed of this one and of
what else it does at the moment.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from typing import Dict, NamedTuple

import numpy as np


class CpuMinutes(NamedTuple):
    """User and system time of a part of the tests, children included, and where there is no torch."""

    with_torch: float
    without: float


MEASURED: Dict[str, CpuMinutes] = {"quick": CpuMinutes(8.7, 7.0), "all": CpuMinutes(37.0, 25.0)}
"""On two cores of an AMD EPYC, with Python 3.11: measured for the quick ones without torch, else estimated."""
LOAD_THERE_S = 0.05
"""What `load` took on that machine while nothing else ran."""
RUNS = 5


def load() -> None:
    """Some of what the tests do: Python's own objects and text, and arrays that fit into a processor's cache."""
    words = [f"{number}:{number % 7}" for number in range(40_000)]
    counts: Dict[str, int] = {}
    for word in words:
        ending = word.rpartition(":")[2]
        counts[ending] = counts.get(ending, 0) + len(word)
    values = np.random.default_rng(0).normal(size=(200, 200))
    for _ in range(20):
        np.sort(np.exp(values), axis=0)
    for _ in range(200):
        np.linalg.cholesky(np.eye(20) + values[:20, :20] @ values[:20, :20].T)


def load_here_s() -> float:
    """The median of some runs, as a clock on the wall shows it: other processes slow the tests, too."""
    seconds = []
    for _ in range(RUNS):
        start_s = time.perf_counter()
        load()
        seconds.append(time.perf_counter() - start_s)
    return statistics.median(seconds)


def minutes_here(cpu_minutes: float, load_s: float, jobs: int, cores: int) -> float:
    """How long tests of so much CPU time take where the load takes `load_s`, in `jobs` processes (0: only this one)."""
    processes = max(1, min(jobs, cores))
    return cpu_minutes * load_s / LOAD_THERE_S / processes


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(part: str, jobs: int) -> str:
    """The line that `make test` begins with."""
    measured = MEASURED[part]
    cpu_minutes = measured.with_torch if importlib.util.find_spec("torch") else measured.without
    minutes = max(1, round(minutes_here(cpu_minutes, load_here_s(), jobs, usable_cores())))
    tests = "all tests" if part == "all" else f"all {part} tests"
    processes = "1 process" if jobs <= 1 else f"{jobs} processes"
    return f"{tests} take about {minutes} minute{'s' * (minutes > 1)} here, in {processes}"


if __name__ == "__main__":
    print(describe(sys.argv[1], int(sys.argv[2])), flush=True)
