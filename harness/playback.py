"""What pytest-benchmark is told of minibatches that another clock timed: a simulated board's, a corpus', a meter's."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque

from harness.core.cases import IDLE, IDLE_STATES, Case
from harness.core.device import Device, is_self_profiling
from harness.core.profiles import Profile
from harness.core.units import ms_to_s

_readings: Deque[float] = deque()

MAX_ROUNDS = 250
"""pytest-benchmark's JSON holds every round; of more that are played back, as many are taken at even distances."""


def is_played_back(device: Device, case: Case) -> bool:
    """Whether another clock than this machine's tells the times of a case; a socket meter's states have own names."""
    is_metered = case.task == IDLE and case.workload not in (name for name, _ in IDLE_STATES)
    return is_self_profiling(device) or is_metered


def recorded_time() -> float:
    """The next reading of the play-back; a marker `benchmark(timer=recorded_time)` makes pytest-benchmark use it."""
    return _readings.popleft()


def play_back(benchmark: Any, measured: Profile) -> None:
    """Make pytest-benchmark record a profile's minibatches, a round each.

    Of an idle state it is its time, of a replayed case the one median that there is.
    """
    times_ms = [minibatch.e2e_ms for minibatch in measured.counted] or [measured.aggregates["minibatch_time_ms"]]
    idle_s = measured.case.settings.idle_s
    durations_s = [ms_to_s(time_ms) for time_ms in times_ms] if idle_s is None else [idle_s]
    count = min(len(durations_s), MAX_ROUNDS)
    _readings.clear()
    for place in range(count):
        _readings.extend((0.0, durations_s[place * len(durations_s) // count]))
    benchmark.pedantic(lambda: None, rounds=count)
    _readings.clear()
