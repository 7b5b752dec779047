"""What telemetry would have seen of a simulated board: power that settles, clocks, use, heat, memory, disk."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Sequence

import numpy as np

from harness.core.boards import BoardSpec
from harness.core.metrics import POWER_CHANNEL
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.profiles import Series
from harness.core.units import MS_PER_S
from harness.simulation.timeline import Steady, Timeline

SETTLING_S = 0.8
"""Time constant of power after a change of mode: 8 % of the step are left after 2 s, 2 % after 3 s (001 sec. 2.5)."""

SAMPLE_NOISE = 0.015
"""Standard deviation of a power sample's logarithm. No paper prints it; 004 sec. 4.5 averages over such samples."""

TICK_JITTER_S = 0.002  # how late a sample is. The papers' own sampling was up to 200 ms late (M1); this suite's is not
COOL_C, RISE_C, HEATING_S = 35.0, 40.0, 60.0
"""Temperature of a board that draws nothing, what its peak power adds, and the time constant. No paper prints them."""

REQUEST_BYTES = 128 * 1024  # the largest read that Linux asks a disk for by default (read_ahead_kb)
BASE = "base"  # the rail that no clock and no load changes


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


def rails(
    at: Ticks, timeline: Timeline, states: Sequence[Steady], idle_mw: float, power_factor: float
) -> Dict[str, np.ndarray]:
    """Power of each rail at each sample, in mW: all but the base settle from idle to the steady state."""
    now = timeline.state_at(at.times_s)
    steady_mw = {name: np.array([one.rails_mw[name] for one in states])[now] for name in states[0].rails_mw}
    moving = sum(power for name, power in steady_mw.items() if name != BASE)
    before = max(idle_mw - float(steady_mw[BASE][0]), 0.0)
    reached = before + (moving - before) * (1.0 - np.exp(-at.times_s / SETTLING_S))
    factor = reached / moving * at.noise * power_factor
    return {name: power * power_factor if name == BASE else power * factor for name, power in steady_mw.items()}


def total_mw(rails_mw: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.sum(list(rails_mw.values()), axis=0)


def observe(
    at: Ticks,
    timeline: Timeline,
    states: Sequence[Steady],
    rails_mw: Mapping[str, np.ndarray],
    *,
    board: BoardSpec,
    mode: PowerMode,
    idle_mw: float,
    memory_bytes: float,
    batch_size: int,
    batch_bytes: float,
    held: np.ndarray,
    held_before: float,
) -> Dict[str, Series]:
    """Every channel of a board that trains, at the samples `at`, in mode `mode`.

    `idle_mw` and `held_before` are power and cached share before the run; `held` is the share of the data set in the
    page cache after each minibatch, shape (n,); `batch_bytes` are those of a minibatch on the medium.
    """
    number = np.searchsorted(timeline.start_s, at.times_s, side="right") - 1
    running = number >= 0
    now = timeline.state_at(at.times_s)

    def steady(name: str) -> np.ndarray:
        return np.array([getattr(one, name) for one in states])[now]

    per_s = MS_PER_S / steady("e2e_ms")
    missed = 1.0 - steady("cached_share")
    power_mw = total_mw(rails_mw)
    warmth = (idle_mw + (power_mw - idle_mw) * (1.0 - np.exp(-at.times_s / HEATING_S))) / board.peak_power_mw
    channels = {
        POWER_CHANNEL: power_mw,
        **on_channels(board, rails_mw),
        **still_channels(len(at.times_s), board, mode, memory_bytes),
        "temperature_tj_c": COOL_C + RISE_C * warmth,
        "cpu_own_cores": steady("cpu_utilisation") * running * mode.cpu_cores,
        **({"gpu_load_share": steady("gpu_utilisation") * running} if board.gpu.cuda_cores else {}),
        "disk_read_bytes_per_s": missed * batch_bytes * per_s * running,
        "disk_reads_per_s": missed * max(batch_size, batch_bytes / REQUEST_BYTES) * per_s * running,
        "data_cached_share": np.where(running, held[np.clip(number, 0, None)], held_before),
    }
    return as_series(at, channels)


def on_channels(board: BoardSpec, rails_mw: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """The parts of the power by the channels that show them: several parts may be on one."""
    found: Dict[str, np.ndarray] = {}
    for part, power_mw in rails_mw.items():
        channel = f"power_{board.rails.parts.get(part, part)}_mw"
        found[channel] = found[channel] + power_mw if channel in found else power_mw
    return found


def still_channels(count: int, board: BoardSpec, mode: PowerMode, memory_bytes: float) -> Dict[str, np.ndarray]:
    """Channels that show the same at each of `count` samples: clocks, memory, and that nobody else is there."""
    memory = "gpu_mem_khz" if board.memory.host_bytes else "emc_khz"
    clocks = {"gpu_khz": mode.gpu_khz, memory: mode.mem_khz}
    values = {
        **{f"cpu{core}_khz": mode.cpu_khz for core in range(mode.cpu_cores)},
        **{name: khz for name, khz in clocks.items() if khz != UNKNOWN_KHZ},
        "memory_used_bytes": memory_bytes,
        "cpu_other_cores": 0.0,
    }
    return {name: np.full(count, float(value)) for name, value in values.items()}


def as_series(at: Ticks, channels: Mapping[str, np.ndarray]) -> Dict[str, Series]:
    times = tuple(at.times_s.tolist())
    return {name: Series(times, tuple(np.asarray(values, dtype=float).tolist())) for name, values in channels.items()}
