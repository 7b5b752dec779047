"""A case on a simulated board, in virtual time: its data in the page cache, its minibatches, what telemetry sees."""

from __future__ import annotations

import functools
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.boards import BoardSpec
from harness.core.cases import CUT_MINIBATCHES, DVFS, INFERENCE, STATIC, Case, Mix, case_duration_s, workers_and_storage
from harness.core.interleaving import Interleaved, alone_s, interleave
from harness.core.metrics import MAX_SETTLING_S, MIN_POWER_SAMPLES, POWER_CHANNEL, STABLE_WINDOW_S
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.profiles import CLEAN, Minibatch, Minibatches, Series, Telemetry
from harness.core.units import MS_PER_S, ms_to_s, s_to_ms
from harness.simulation import model
from harness.simulation.model import (
    Load,
    Response,
    cached_share,
    dvfs_modes,
    idle_power_mw,
    limited_modes,
    seed_of,
    simulate,
)
from harness.simulation.parameters import BoardParameters, WorkloadParameters, load_physics
from harness.simulation.timeline import (
    COMPUTE_JITTER,
    DROP_S,
    LEAD_S,
    TUNING_CYCLES,
    WORKER_START_CYCLES,
    Steady,
    Timeline,
    choose_clean,
    run_minibatches,
    steady_state,
)

SETTLING_S = 0.8
"""Time constant of power after a change of mode: 8 % of the step are left after 2 s, 2 % after 3 s (001 sec. 2.5)."""

SAMPLE_NOISE = 0.015
"""Standard deviation of a power sample's logarithm. No paper prints it; 004 sec. 4.5 averages over such samples."""

TICK_JITTER_S = 0.002  # how late a sample is. The papers' own sampling was up to 200 ms late (M1); this suite's is not
COOL_C, RISE_C, HEATING_S = 35.0, 40.0, 60.0
"""Temperature of a board that draws nothing, what its peak power adds, and the time constant. No paper prints them."""

REQUEST_BYTES = 128 * 1024  # the largest read that Linux asks a disk for by default (read_ahead_kb)
BASE = "base"  # the rail that no clock and no load changes


class VirtualData(NamedTuple):
    samples: int  # in one pass
    scale: float  # the same as a share of the real data set
    byte_count: int  # on the medium
    per_pass: int  # whole minibatches of a pass
    before: float  # share of it in the page cache before the run
    later: float  # share of it that every pass but the first finds there
    holds: float  # the most that the page cache has room for

    def held(self, count: int) -> np.ndarray:
        """Share of the data set in the page cache after each of `count` minibatches."""
        number = np.arange(count)
        resident = np.where(number < self.per_pass, self.before, self.later)
        return np.minimum(np.maximum(resident, (number % self.per_pass + 1) / self.per_pass), self.holds)


def virtual_data(
    board: BoardParameters,
    workload: WorkloadParameters,
    batch_size: int,
    workers: int,
    cache: str,
    default_samples: int,
    data_scale: Optional[float],
) -> VirtualData:
    """The data set of a case. A simulated board is switched on for each case: only `warm` finds anything cached."""
    samples = default_samples if data_scale is None else max(1, round(workload.samples * data_scale))
    scale = samples / workload.samples
    holds = cached_share(board, workload, scale, workers=workers)
    return VirtualData(
        samples=samples,
        scale=scale,
        byte_count=round(workload.dataset_bytes * scale),
        per_pass=samples // batch_size,
        before=holds if cache == "warm" else 0.0,
        later=0.0 if cache == "drop-each-epoch" else holds,
        holds=holds,
    )


class SimulatedBoard(NamedTuple):
    parameters: BoardParameters  # of the board
    instance: int  # which copy of it
    mode: PowerMode  # the power mode
    tpc_share: float  # share of the GPU's clusters that are on
    slowdown: float = 0.0  # a share by which every minibatch is slower, put there on purpose
    limit_mw: Optional[float] = None  # the power limit of a discrete GPU; None for its greatest

    def respond(self, workload: WorkloadParameters, load: Load) -> Response:
        return simulate(
            self.parameters,
            workload,
            np.array([self.mode]),
            load,
            tpc_share=self.tpc_share,
            instance=self.instance,
            limit_mw=self.limit_mw,
        )

    def under_limit(self, workload: WorkloadParameters, task: str) -> PowerMode:
        """The mode with the GPU clock that the power limit leaves."""
        mode = np.array([self.mode], dtype=float)
        limited = limited_modes(self.parameters, workload, mode, task, self.limit_mw, load_physics())
        return PowerMode(*np.rint(limited[0]).astype(int).tolist())

    def clocks(self, workload: WorkloadParameters, load: Load) -> PowerMode:
        """The clocks that the board runs at under a load: lower than the mode's with DVFS or under a power limit."""
        limited = self.under_limit(workload, load.task)
        if load.clocks != DVFS:
            return limited
        static = self.respond(workload, load._replace(clocks=STATIC))
        lowered = dvfs_modes(self.parameters, np.array([limited], dtype=float), static, load_physics())
        return PowerMode(*np.rint(lowered[0]).astype(int).tolist())


def noise_of(case: Case) -> np.random.Generator:
    """The noise of a case: the same for the same seed and case, whatever runs before."""
    return np.random.Generator(np.random.PCG64(seed_of(f"{case.settings.seed} {case.id}")))


def run_factors(board: SimulatedBoard, noise: np.random.Generator) -> Tuple[float, float]:
    """By how much a whole run is slower and draws more than others of its board."""
    time, power = model.repetition_factors(board.parameters, noise, 1)[:, 0].tolist()
    return time * (1 + board.slowdown), power


class Ticks(NamedTuple):
    """When telemetry is sampled and how far each power sample is off; arrays of shape (n,)."""

    times_s: np.ndarray
    noise: np.ndarray

    def until(self, end_s: float) -> Ticks:
        """The ticks up to a time, and one at that time: the sampler takes a last sample when it stops."""
        kept = int(np.searchsorted(self.times_s, end_s))
        return Ticks(np.append(self.times_s[:kept], end_s), np.append(self.noise[:kept], self.noise[-1]))


def ticks(end_s: float, interval_s: float, noise: np.random.Generator) -> Ticks:
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


def run_training(
    board: SimulatedBoard, workload: WorkloadParameters, case: Case, data: VirtualData
) -> Tuple[Minibatches, Telemetry]:
    """Minibatches and telemetry of a case that trains or infers; the clock is 0 when telemetry begins."""
    settings, noise, parameters = case.settings, noise_of(case), board.parameters
    time_factor, power_factor = run_factors(board, noise)
    workers, storage = workers_and_storage(case)
    load = Load(case.batch_size, workers, storage, data.before, case.task, settings.clocks)
    states = [
        steady_state(board.respond(workload, load._replace(cached_share=share)), share)
        for share in (data.before, data.later)
    ]
    cycles_per_ms = parameters.cpu_speed * board.mode.cpu_khz
    timeline = run_minibatches(
        states,
        *_schedule(case, data, states),
        workers=workers,
        worker_start_ms=WORKER_START_CYCLES / cycles_per_ms,
        tuning_ms=TUNING_CYCLES / cycles_per_ms,
        pause_s=DROP_S if settings.cache == "drop-each-epoch" else 0.0,
        time_factor=time_factor,
        noise=noise,
    )
    idle_mw = idle_power_mw(parameters, board.mode)
    at, clean_from = ticks(float(timeline.end_s[-1]), settings.interval_s, noise), 1
    if settings.minibatches is not None:
        power_mw = total_mw(rails(at, timeline, states, idle_mw, power_factor))
        clean_from, count = choose_clean(
            timeline, at.times_s, power_mw, settings.minibatches, MIN_POWER_SAMPLES, MAX_SETTLING_S
        )
        if settings.limit_s is not None:
            in_time = int(np.searchsorted(timeline.end_s, settings.limit_s)) + 1
            count = min(count, max(in_time, clean_from + min(settings.minibatches, CUT_MINIBATCHES)))
        timeline = timeline.up_to(count)
    at = at.until(float(timeline.end_s[-1]) + LEAD_S)
    rails_mw, mode = rails(at, timeline, states, idle_mw, power_factor), board.clocks(workload, load)
    channels = observe(at, timeline, states, rails_mw, board, workload, case, data, mode, idle_mw)
    return timeline.minibatches(clean_from), _telemetry(board, settings.interval_s, at, channels)


def observe(
    at: Ticks,
    timeline: Timeline,
    states: Sequence[Steady],
    rails_mw: Mapping[str, np.ndarray],
    board: SimulatedBoard,
    workload: WorkloadParameters,
    case: Case,
    data: VirtualData,
    mode: PowerMode,
    idle_mw: float,
) -> Dict[str, np.ndarray]:
    """Every channel of a board that runs a case in mode `mode`, at the samples `at`; before it drew `idle_mw`."""
    number = np.searchsorted(timeline.start_s, at.times_s, side="right") - 1
    running = number >= 0
    now = timeline.state_at(at.times_s)

    def steady(name: str) -> np.ndarray:
        return np.array([getattr(one, name) for one in states])[now]

    parameters, spec = board.parameters, board.parameters.spec
    missed, per_s = 1.0 - steady("cached_share"), MS_PER_S / steady("e2e_ms")
    batch_bytes = case.batch_size * workload.bytes_per_sample
    power_mw = total_mw(rails_mw)
    warmth = (idle_mw + (power_mw - idle_mw) * (1.0 - np.exp(-at.times_s / HEATING_S))) / spec.peak_power_mw
    # RAM in use, the system's own included; the rest is page cache
    workers, _ = workers_and_storage(case)
    used_bytes = parameters.system_bytes + workload.model_bytes + workers * parameters.worker_bytes
    channels = {POWER_CHANNEL: power_mw}
    for part, part_mw in rails_mw.items():  # several parts may be on one rail
        channel = f"power_{spec.rails.parts.get(part, part)}_mw"
        channels[channel] = channels[channel] + part_mw if channel in channels else part_mw
    held = data.held(len(timeline.epoch))
    return {
        **channels,
        **still_channels(len(at.times_s), spec, mode, min(used_bytes, spec.ram_bytes)),
        **_capped(board, workload, case, len(at.times_s)),
        "temperature_tj_c": COOL_C + RISE_C * warmth,
        "cpu_own_cores": steady("cpu_utilisation") * running * mode.cpu_cores,
        **({"gpu_load_share": steady("gpu_utilisation") * running} if spec.gpu.cuda_cores else {}),
        "disk_read_bytes_per_s": missed * batch_bytes * per_s * running,
        "disk_reads_per_s": missed * max(case.batch_size, batch_bytes / REQUEST_BYTES) * per_s * running,
        "data_cached_share": np.where(running, held[np.clip(number, 0, None)], data.before),
    }


def _capped(board: SimulatedBoard, workload: WorkloadParameters, case: Case, count: int) -> Dict[str, np.ndarray]:
    """Whether the power limit holds the GPU down, as NVML reports it."""
    if not board.parameters.spec.power_limits_mw:
        return {}
    is_capped = board.under_limit(workload, case.task).gpu_khz < board.mode.gpu_khz
    return {"gpu_power_capped_share": np.full(count, float(is_capped))}


def still_channels(count: int, board: BoardSpec, mode: PowerMode, memory_bytes: float) -> Dict[str, np.ndarray]:
    """Channels that are constant over `count` samples: clocks, memory, and no other process."""
    memory = "gpu_mem_khz" if board.memory.host_bytes else "emc_khz"
    clocks = {"gpu_khz": mode.gpu_khz, memory: mode.mem_khz}
    values = {
        **{f"cpu{core}_khz": mode.cpu_khz for core in range(mode.cpu_cores)},
        **{name: khz for name, khz in clocks.items() if khz != UNKNOWN_KHZ},
        "memory_used_bytes": memory_bytes,
        "cpu_other_cores": 0.0,
    }
    return {name: np.full(count, float(value)) for name, value in values.items()}


def _schedule(case: Case, data: VirtualData, states: List[Steady]) -> Tuple[np.ndarray, np.ndarray]:
    """State and epoch of each minibatch; without epochs as many as may be needed until power has settled and longer."""
    settings = case.settings
    if settings.epochs is not None:
        epoch = np.repeat(np.arange(settings.epochs), data.per_pass)
        return np.minimum(epoch, 1), epoch
    longest_s = MAX_SETTLING_S + STABLE_WINDOW_S + MIN_POWER_SAMPLES * settings.interval_s
    spare = int(s_to_ms(longest_s) / min(state.e2e_ms for state in states) * 1.2) + 2
    assert settings.minibatches is not None, "a case that trains or infers runs minibatches or epochs"
    number = np.arange(1 + settings.minibatches + spare)
    return np.minimum(number // max(data.per_pass, 1), 1), np.zeros_like(number)


def run_idle(board: SimulatedBoard, case: Case, state: str, interval_s: float) -> Telemetry:
    """Telemetry of a board that does nothing, in one of `IDLE_STATES`: power alone, or all that there is."""
    noise, parameters, idle_s = noise_of(case), board.parameters, case_duration_s(case)
    at = ticks(idle_s, interval_s, noise).until(idle_s)
    factor = np.exp(parameters.power_noise * noise.standard_normal())
    channels = {POWER_CHANNEL: idle_power_mw(parameters, board.mode, state) * factor * at.noise}
    if state == "logging":
        channels.update(still_channels(len(at.times_s), parameters.spec, board.mode, parameters.system_bytes))
    return _telemetry(board, interval_s, at, channels)


def _telemetry(board: SimulatedBoard, interval_s: float, at: Ticks, channels: Mapping[str, np.ndarray]) -> Telemetry:
    shown = board.parameters.spec.rails
    parts = "base, CPU, GPU and memory of the module"
    if shown.parts:
        parts = f"sum of {' and '.join(shown.total)}: {shown.note}"
    times_s = tuple(at.times_s.tolist())
    return Telemetry(
        interval_s=interval_s,
        real_interval_s=float(np.median(np.diff(at.times_s))) if len(times_s) > 1 else None,
        series={name: Series(times_s, tuple(np.asarray(each, float).tolist())) for name, each in channels.items()},
        notes={POWER_CHANNEL: f"simulated: {parts}", "simulation": "every channel is simulated"},
    )


Part = Tuple[Case, WorkloadParameters, VirtualData]


def run_interleaved(
    boards: Sequence[SimulatedBoard], case: Case, parts: Sequence[Part]
) -> Tuple[List[Interleaved], List[Minibatch], Telemetry]:
    """What came out of both, and of each alone, which takes as long; the training minibatches of both; telemetry.

    `boards` is the board in training's mode and in inference's. Where these differ, each change takes the case's
    `switching_ms`, in which nothing runs: the board draws the idle power of the mode that it changes to.
    """
    noise, mix = noise_of(case), Mix.parse(case.workload)
    time_factor, power_factor = run_factors(boards[0], noise)
    states, powers = [], []
    for board, (part, workload, data) in zip(boards, parts):
        share = data.holds  # by the time that both take turns, what fits has been read
        load = Load(part.batch_size, *workers_and_storage(part), share, part.task, case.settings.clocks)
        states.append(steady_state(board.respond(workload, load), share))
        powers.append(float(total_mw({name: np.array(mw) for name, mw in states[-1].rails_mw.items()})))
    clock_s = 0.0
    began_s: List[float] = []
    doing: List[int] = []
    trained: List[Minibatch] = []

    def work(kind: int) -> None:
        nonlocal clock_s
        factor = time_factor * float(np.exp(COMPUTE_JITTER * noise.standard_normal()))
        state = states[kind]
        began_s.append(clock_s)
        doing.append(kind)
        if kind == 0:
            times = (state.stall_ms * factor, state.compute_ms * factor, state.e2e_ms * factor)
            trained.append(Minibatch(0, len(trained), CLEAN, clock_s, *times))
        clock_s += ms_to_s(state.e2e_ms * factor)

    def idle(kind: int, seconds: float) -> None:
        nonlocal clock_s
        began_s.append(clock_s)
        doing.append(len(parts) + kind)
        clock_s += seconds

    def switch_to(task: str) -> None:
        assert case.settings.switching_ms is not None, "`check` requires it of a case with two modes"
        idle(int(task == INFERENCE), ms_to_s(case.settings.switching_ms))

    wait = functools.partial(idle, 1)  # only inference waits, for requests
    powers += [idle_power_mw(board.parameters, board.mode, "logging") for board in boards]
    changes_mode = boards[0].mode != boards[1].mode
    train, serve = (functools.partial(work, kind) for kind in range(len(parts)))
    both_s = case_duration_s(case)
    by_itself_s = alone_s(both_s, mix.arrivals_per_s, mix.batch_size)
    runs: List[Interleaved] = []
    minibatches: List[Minibatch] = []
    for first, second, duration_s in (
        (train, serve, both_s),
        (train, None, by_itself_s),
        (None, serve, by_itself_s),
    ):
        runs.append(
            interleave(
                clock=lambda: clock_s,
                train=first,
                serve=second,
                arrivals_per_s=mix.arrivals_per_s,
                batch_size=mix.batch_size,
                duration_s=duration_s,
                switch_to=switch_to if changes_mode else None,
                wait=wait,
            )
        )
        minibatches = minibatches or list(trained)
    at = ticks(clock_s, case.settings.interval_s, noise).until(clock_s)
    # A sensor integrates over its interval: what it says is the mean of what was done since the sample before.
    busy_s = np.array([*began_s, clock_s])
    spent_mws = np.concatenate([[0.0], np.cumsum(np.array(powers)[doing] * np.diff(busy_s))])
    spent_at = np.interp(at.times_s, busy_s, spent_mws)
    means = np.diff(spent_at) / np.maximum(np.diff(at.times_s), 1e-9)
    power_mw = np.append(means[:1], means) * at.noise * power_factor
    channels = {POWER_CHANNEL: power_mw, "cpu_other_cores": np.zeros(len(power_mw))}
    return runs, minibatches, _telemetry(boards[0], case.settings.interval_s, at, channels)
