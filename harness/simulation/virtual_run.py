"""A case run on a simulated board: its minibatches and its telemetry, in virtual time."""

from __future__ import annotations

import hashlib
import statistics
from typing import Dict, List, NamedTuple, Tuple

import numpy as np

from harness.core.cases import CUT_MINIBATCHES, DVFS, STATIC, Case
from harness.core.metrics import MAX_SETTLING_S, MIN_POWER_SAMPLES, STABLE_WINDOW_S
from harness.core.power_modes import PowerMode
from harness.core.profiles import Minibatch, Series, Telemetry
from harness.core.units import s_to_ms
from harness.simulation.idle import idle_power_mw
from harness.simulation.load import Load, Response
from harness.simulation.model import dvfs_modes, simulate
from harness.simulation.parameters import BoardParameters, WorkloadParameters, load_physics
from harness.simulation.timeline import (
    DROP_S,
    LEAD_S,
    TUNING_CYCLES,
    WORKER_START_CYCLES,
    Steady,
    choose_clean,
    run_minibatches,
    steady_state,
)
from harness.simulation.virtual_data import VirtualData
from harness.simulation.virtual_telemetry import (
    Surroundings,
    idle_channels,
    observe,
    power_series,
    ticks,
    total_mw,
)


class SimulatedBoard(NamedTuple):
    """One board in one power mode.

    Attributes:
        parameters: of the board.
        instance: which copy of it.
        mode: the power mode.
        tpc_share: share of the GPU's clusters that are on.
        peak_mw: the module's greatest power.
    """

    parameters: BoardParameters
    instance: int
    mode: PowerMode
    tpc_share: float
    peak_mw: float

    def respond(self, workload: WorkloadParameters, load: Load) -> Response:
        """The steady state under a load."""
        return simulate(
            self.parameters,
            workload,
            np.array([self.mode]),
            load,
            tpc_share=self.tpc_share,
            instance=self.instance,
        )

    def clocks(self, workload: WorkloadParameters, load: Load) -> PowerMode:
        """The clocks that the board runs at under a load: lower than the mode's where DVFS is on."""
        if load.clocks != DVFS:
            return self.mode
        static = self.respond(workload, load._replace(clocks=STATIC))
        lowered = dvfs_modes(self.parameters, np.array([self.mode], dtype=float), static, load_physics())
        return PowerMode(*np.rint(lowered[0]).astype(int).tolist())


def noise_of(case: Case) -> np.random.Generator:
    """The noise of a case: the same for the same seed and case, whatever runs before."""
    digest = hashlib.sha256(f"{case.settings.seed} {case.id}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big")))


def run_training(
    board: SimulatedBoard, workload: WorkloadParameters, case: Case, data: VirtualData
) -> Tuple[List[Minibatch], Telemetry]:
    """Minibatches and telemetry of a case that trains or infers; the clock is 0 when telemetry begins."""
    settings, noise, parameters = case.settings, noise_of(case), board.parameters
    time_factor, power_factor = np.exp(
        noise.standard_normal(2) * (parameters.time_noise, parameters.power_noise)
    ).tolist()
    load = Load(case.batch_size, case.workers, case.storage, data.before, case.task, settings.clocks)
    states = [
        steady_state(board.respond(workload, load._replace(cached_share=share)), share)
        for share in (data.before, data.later)
    ]
    cycles_per_ms = parameters.cpu_speed * board.mode.cpu_khz
    timeline = run_minibatches(
        states,
        *_schedule(case, data, states),
        workers=case.workers,
        worker_start_ms=WORKER_START_CYCLES / cycles_per_ms,
        tuning_ms=TUNING_CYCLES / cycles_per_ms,
        pause_s=DROP_S if settings.cache == "drop-each-epoch" else 0.0,
        time_factor=time_factor,
        noise=noise,
    )
    idle_mw = idle_power_mw(parameters, board.mode)
    at, clean_from = ticks(float(timeline.end_s[-1]), settings.interval_s, noise), 1
    if settings.minibatches is not None:
        power_mw = total_mw(power_series(at, timeline, states, idle_mw, power_factor))
        clean_from, count = choose_clean(
            timeline, at.times_s, power_mw, settings.minibatches, MIN_POWER_SAMPLES, MAX_SETTLING_S
        )
        if settings.limit_s is not None:
            in_time = int(np.searchsorted(timeline.end_s, settings.limit_s)) + 1
            count = min(count, max(in_time, clean_from + min(settings.minibatches, CUT_MINIBATCHES)))
        timeline = timeline.up_to(count)
    at = at.until(float(timeline.end_s[-1]) + LEAD_S)
    series = observe(
        at,
        timeline,
        states,
        data.held(len(timeline.epoch)),
        power_series(at, timeline, states, idle_mw, power_factor),
        Surroundings(
            mode=board.clocks(workload, load),
            idle_mw=idle_mw,
            peak_mw=board.peak_mw,
            memory_bytes=memory_bytes(parameters, workload, case.workers),
            batch_bytes=case.batch_size * workload.bytes_per_sample,
            batch_size=case.batch_size,
            cached_before=data.before,
        ),
    )
    return timeline.minibatches(clean_from), _telemetry(settings.interval_s, series)


def _schedule(case: Case, data: VirtualData, states: List[Steady]) -> Tuple[np.ndarray, np.ndarray]:
    """State and epoch of each minibatch; without epochs as many as may be needed until power has settled and longer."""
    settings = case.settings
    if settings.epochs is not None:
        epoch = np.repeat(np.arange(settings.epochs), data.per_pass)
        return np.minimum(epoch, 1), epoch
    longest_s = MAX_SETTLING_S + STABLE_WINDOW_S + MIN_POWER_SAMPLES * settings.interval_s
    spare = int(s_to_ms(longest_s) / min(state.e2e_ms for state in states) * 1.2) + 2
    number = np.arange(1 + settings.minibatches + spare)
    return np.minimum(number // max(data.per_pass, 1), 1), np.zeros_like(number)


def memory_bytes(board: BoardParameters, workload: WorkloadParameters, workers: int) -> float:
    """RAM that a workload takes while it trains, the system's own included; the rest is page cache."""
    return min(board.system_bytes + workload.model_bytes + workers * board.worker_bytes, board.ram_bytes)


def run_idle(board: SimulatedBoard, case: Case, state: str, interval_s: float) -> Telemetry:
    """Telemetry of a board that does nothing, in one of `IDLE_STATES`."""
    noise = noise_of(case)
    at = ticks(case.settings.idle_s, interval_s, noise).until(case.settings.idle_s)
    power_mw = idle_power_mw(board.parameters, board.mode, state) * np.exp(
        board.parameters.power_noise * noise.standard_normal()
    )
    return _telemetry(
        interval_s, idle_channels(at, power_mw, board.mode, board.parameters.system_bytes, state == "logging")
    )


def _telemetry(interval_s: float, series: Dict[str, Series]) -> Telemetry:
    times_s = next(iter(series.values())).times_s
    gaps_s = [later - earlier for earlier, later in zip(times_s, times_s[1:])]
    return Telemetry(
        interval_s=interval_s,
        real_interval_s=statistics.median(gaps_s) if gaps_s else None,
        series=series,
        notes={"power_total_mw": POWER_DEFINITION, "simulation": "every channel is simulated"},
    )


POWER_DEFINITION = "simulated: base, CPU, GPU and memory of the module"
"""What the total power is made of."""
