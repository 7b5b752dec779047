"""What telemetry would have seen of a simulated board: power that settles, clocks, use, heat, memory, disk."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Sequence

import numpy as np

from harness.core.metrics import POWER_CHANNEL
from harness.core.power_modes import PowerMode
from harness.core.profiles import Series
from harness.core.units import MS_PER_S
from harness.simulation.timeline import Steady, Timeline

SETTLING_S = 0.8
"""Time constant of power after a change of mode: 8 % of the step are left after 2 s, 2 % after 3 s (001 sec. 2.5)."""

SAMPLE_NOISE = 0.015
"""Standard deviation of a power sample's logarithm. No paper prints it; 004 sec. 4.5 averages over such samples."""

TICK_JITTER_S = 0.002
"""How late a sample is. The papers' own sampling was up to 200 ms late (M1); this suite's is not."""

COOL_C, RISE_C, HEATING_S = 35.0, 40.0, 60.0
"""Temperature of a board that draws nothing, what its peak power adds, and the time constant. No paper prints them."""

REQUEST_BYTES = 128 * 1024
"""The largest read that Linux asks a disk for by default (read_ahead_kb)."""

BASE = "base"
"""The rail that no clock and no load changes."""


class Surroundings(NamedTuple):
    """What stays the same during a profile."""

    mode: PowerMode  # the clocks in effect
    idle_mw: float  # power before the run
    peak_mw: float  # the module's greatest power
    memory_bytes: float  # RAM in use
    batch_bytes: float  # of a minibatch on the medium
    batch_size: int  # samples per minibatch
    cached_before: float  # share of the data set in the page cache before


class Ticks(NamedTuple):
    """When telemetry is sampled and how far each power sample is off; arrays of shape (n,)."""

    times_s: np.ndarray
    noise: np.ndarray

    def until(self, end_s: float) -> Ticks:
        """Those up to a time, and one at that very time: the sampler takes a last one when it is told to stop."""
        kept = int(np.searchsorted(self.times_s, end_s))
        return Ticks(np.append(self.times_s[:kept], end_s), np.append(self.noise[:kept], self.noise[-1]))


def ticks(end_s: float, interval_s: float, noise: np.random.Generator) -> Ticks:
    """Samples at an interval from 0 to beyond a time."""
    count = int(end_s / interval_s) + 2
    late = np.abs(noise.standard_normal(count)) * min(TICK_JITTER_S, interval_s / 10)
    late[0] = 0.0
    return Ticks(np.arange(count) * interval_s + late, np.exp(SAMPLE_NOISE * noise.standard_normal(count)))


def settled_share(times_s: np.ndarray) -> np.ndarray:
    """How far power has come from what it was before the run, 0 to 1."""
    return 1.0 - np.exp(-times_s / SETTLING_S)


def rails(at: Ticks, steady_mw: Mapping[str, np.ndarray], idle_mw: float, power_factor: float) -> Dict[str, np.ndarray]:
    """Power of each rail at each sample, in mW.

    All rails but the base go together from the idle board's power to the steady state's. `steady_mw` has each rail's
    steady power at each sample.
    """
    base = steady_mw[BASE]
    moving = sum(power for name, power in steady_mw.items() if name != BASE)
    before = max(idle_mw - float(base[0]), 0.0)
    now = before + (moving - before) * settled_share(at.times_s)
    factor = now / moving * at.noise * power_factor
    return {name: power * power_factor if name == BASE else power * factor for name, power in steady_mw.items()}


def power_series(
    at: Ticks, timeline: Timeline, states: Sequence[Steady], idle_mw: float, power_factor: float
) -> Dict[str, np.ndarray]:
    now = _state_at(at.times_s, timeline)
    steady = {name: np.array([one.rails_mw[name] for one in states])[now] for name in states[0].rails_mw}
    return rails(at, steady, idle_mw, power_factor)


def total_mw(rails_mw: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.sum(list(rails_mw.values()), axis=0)


def _state_at(times_s: np.ndarray, timeline: Timeline) -> np.ndarray:
    """The steady state at each time: that of the minibatch that runs."""
    return timeline.state[np.clip(np.searchsorted(timeline.start_s, times_s, side="right") - 1, 0, None)]


def observe(
    at: Ticks,
    timeline: Timeline,
    states: Sequence[Steady],
    held: np.ndarray,
    rails_mw: Mapping[str, np.ndarray],
    around: Surroundings,
) -> Dict[str, Series]:
    """Every channel.

    `held` is the share of the data set in the page cache after each minibatch, shape (n,).
    """
    number = np.searchsorted(timeline.start_s, at.times_s, side="right") - 1
    running = number >= 0
    now = _state_at(at.times_s, timeline)
    per_s = MS_PER_S / np.array([one.e2e_ms for one in states])[now]
    missed = 1.0 - np.array([one.cached_share for one in states])[now]
    reads = missed * max(around.batch_size, around.batch_bytes / REQUEST_BYTES) * per_s * running
    cpu = np.array([one.cpu_utilisation for one in states])[now] * running
    channels = {
        **power_channels(rails_mw),
        **still_channels(len(at.times_s), around.mode, around.memory_bytes),
        "temperature_tj_c": temperature_c(at.times_s, total_mw(rails_mw), around.idle_mw, around.peak_mw),
        "cpu_own_cores": cpu * around.mode.cpu_cores,
        "gpu_load_share": np.array([one.gpu_utilisation for one in states])[now] * running,
        "disk_read_bytes_per_s": missed * around.batch_bytes * per_s * running,
        "disk_reads_per_s": reads,
        "data_cached_share": np.where(running, held[np.clip(number, 0, None)], around.cached_before),
    }
    return as_series(at, channels)


def power_channels(rails_mw: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
    return {POWER_CHANNEL: total_mw(rails_mw), **{f"power_{name}_mw": power for name, power in rails_mw.items()}}


def still_channels(count: int, mode: PowerMode, memory_bytes: float) -> Dict[str, np.ndarray]:
    """Channels that show the same at each of `count` samples: clocks, memory, and that nobody else is there."""
    values = {
        **{f"cpu{core}_khz": mode.cpu_khz for core in range(mode.cpu_cores)},
        "gpu_khz": mode.gpu_khz,
        "emc_khz": mode.mem_khz,
        "memory_used_bytes": memory_bytes,
        "cpu_other_cores": 0.0,
    }
    return {name: np.full(count, float(value)) for name, value in values.items()}


def idle_channels(
    at: Ticks, power_mw: float, mode: PowerMode, memory_bytes: float, is_logged: bool
) -> Dict[str, Series]:
    """Channels of a board that does nothing: power alone, or all that there is."""
    power = {POWER_CHANNEL: power_mw * at.noise}
    return as_series(at, {**power, **(still_channels(len(at.times_s), mode, memory_bytes) if is_logged else {})})


def temperature_c(times_s: np.ndarray, power_mw: np.ndarray, idle_mw: float, peak_mw: float) -> np.ndarray:
    """Temperature of the chip, which follows power slowly."""
    came_from, goes_to = idle_mw / peak_mw, power_mw / peak_mw
    return COOL_C + RISE_C * (came_from + (goes_to - came_from) * (1.0 - np.exp(-times_s / HEATING_S)))


def as_series(at: Ticks, channels: Mapping[str, np.ndarray]) -> Dict[str, Series]:
    times = tuple(at.times_s.tolist())
    return {name: Series(times, tuple(np.asarray(values, dtype=float).tolist())) for name, values in channels.items()}
