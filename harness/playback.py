"""Timing by pytest-benchmark: the minibatches that count, each by the clock of the loop that ran it.

A profile and pytest-benchmark's table then cover the same minibatches and the same times. If this machine trains,
pytest-benchmark runs them; minibatches of another clock (a simulated board's, a corpus', a meter's) are played back.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

from harness.core.cases import IDLE, IDLE_STATES, Case
from harness.core.device import Device, is_self_profiling
from harness.core.profiles import Profile
from harness.core.units import ms_to_s
from harness.measure.rounds import Step, never

_now_s: Optional[float] = None  # the reading while minibatches are timed: the time of the current one

MAX_ROUNDS = 250
"""pytest-benchmark's JSON holds all rounds; of more minibatches, so many evenly spaced ones are played back.

So the median of the rounds may differ from the profile's, by 0.2 % for 900 minibatches of LeNet.
"""


def is_played_back(device: Device, case: Case) -> bool:
    """Whether a case is timed by another clock than this machine's; a socket meter's states have their own names."""
    is_metered = case.task == IDLE and case.workload not in (name for name, _ in IDLE_STATES)
    return is_self_profiling(device) or is_metered


def recorded_time() -> float:
    """The clock of minibatches while `time_rounds` runs them, else this machine's.

    A marker `benchmark(timer=recorded_time)` makes pytest-benchmark use it.
    """
    return time.perf_counter() if _now_s is None else _now_s


def time_rounds(
    benchmark: Any,
    prepare: Callable[[], None],
    step: Step,
    count: int,
    goes_on: Callable[[], bool] = never,
) -> None:
    """Have pytest-benchmark run and record minibatches as `harness.measure.rounds.run_rounds` runs them.

    It fixes the number of rounds before the first; those that follow while `goes_on()` are added to its record.
    """
    _record(benchmark, step, count, prepare)
    while goes_on():
        prepare()
        seconds = step()
        if benchmark.stats is not None:  # none with --benchmark-disable
            benchmark.stats.update(seconds)


def _record(benchmark: Any, step: Step, count: int, prepare: Optional[Callable[[], None]] = None) -> None:
    """Have pytest-benchmark run and record `count` rounds, each as long as `step` says."""
    global _now_s

    def begin() -> None:
        global _now_s
        if prepare is not None:
            prepare()
        _now_s = 0.0

    def run() -> None:
        global _now_s
        _now_s = step()

    try:
        benchmark.pedantic(run, setup=begin, rounds=count)
    finally:
        _now_s = None


def play_back(benchmark: Any, measured: Profile) -> None:
    """Make pytest-benchmark record a profile's minibatches, a round each.

    For an idle state that is its duration, for a replayed case its median.
    """
    idle_s, median_ms = measured.case.settings.idle_s, measured.minibatch_time_ms
    durations_s = [ms_to_s(minibatch.e2e_ms) for minibatch in measured.counted]
    if idle_s is not None:
        durations_s = [idle_s]
    elif not durations_s and median_ms is not None:
        durations_s = [ms_to_s(median_ms)]
    count = min(len(durations_s), MAX_ROUNDS)
    picked = iter([durations_s[place * len(durations_s) // count] for place in range(count)])
    _record(benchmark, lambda: next(picked), count)
