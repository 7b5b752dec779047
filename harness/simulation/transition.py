"""A change of power mode on a simulated board that trains: minibatches and telemetry around it, in virtual time.

The model has no time in which clocks change: they do so at once, and so does what is left of a minibatch. Power
follows with the time constant by which it settles in every profile.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

import numpy as np

from harness.core.cases import Case, workers_and_storage
from harness.core.metrics import POWER_CHANNEL
from harness.core.profiles import CLEAN, Minibatch, Series
from harness.core.units import ms_to_s, s_to_ms
from harness.simulation.model import Load
from harness.simulation.parameters import WorkloadParameters
from harness.simulation.timeline import COMPUTE_JITTER, steady_state
from harness.simulation.virtual_run import (
    BASE,
    SETTLING_S,
    SimulatedBoard,
    VirtualData,
    noise_of,
    run_factors,
    still_channels,
    ticks,
    total_mw,
)


def run_transition(
    boards: Tuple[SimulatedBoard, SimulatedBoard],
    workload: WorkloadParameters,
    case: Case,
    data: VirtualData,
    changed_s: float,
    end_s: float,
) -> Tuple[List[Minibatch], Dict[str, Series]]:
    """Minibatches and channels of a board that changes from one mode to another; the clock is 0 at the beginning.

    Before the change the board has long been in its first mode: its power is steady.
    """
    noise = noise_of(case)
    time_factor, power_factor = run_factors(boards[0], noise)
    load = Load(case.batch_size, *workers_and_storage(case), data.holds, case.task, case.settings.clocks)
    states = [steady_state(board.respond(workload, load), data.holds) for board in boards]
    minibatches: List[Minibatch] = []
    clock_s = 0.0
    while clock_s < end_s:
        factor = time_factor * float(np.exp(COMPUTE_JITTER * noise.standard_normal()))
        times_s = [ms_to_s(state.e2e_ms * factor) for state in states]
        number = int(clock_s >= changed_s)
        took_s = times_s[number]
        if number == 0 and clock_s + took_s > changed_s:
            left = 1 - (changed_s - clock_s) / took_s
            took_s = changed_s - clock_s + left * times_s[1]
        share = took_s / times_s[number]
        stall_ms, compute_ms = (share * factor * part for part in (states[number].stall_ms, states[number].compute_ms))
        minibatches.append(Minibatch(0, len(minibatches), CLEAN, clock_s, stall_ms, compute_ms, s_to_ms(took_s)))
        clock_s += took_s
    at = ticks(end_s, case.settings.interval_s, noise).until(end_s)
    is_after = at.times_s >= changed_s
    moving = [float(total_mw({name: np.array(mw) for name, mw in s.rails_mw.items() if name != BASE})) for s in states]
    base = [float(state.rails_mw[BASE]) for state in states]
    reached = 1.0 - np.exp(-np.maximum(at.times_s - changed_s, 0.0) / SETTLING_S)
    power_mw = np.where(is_after, base[1], base[0]) + (moving[0] + (moving[1] - moving[0]) * reached) * at.noise
    channels = {POWER_CHANNEL: power_mw * power_factor}
    before, after = (
        still_channels(1, board.parameters.spec, board.clocks(workload, load), board.parameters.system_bytes)
        for board in boards
    )
    for name in before.keys() & after.keys():
        channels[name] = np.where(is_after, after[name], before[name])
    sampled_s = tuple(at.times_s.tolist())
    return minibatches, {name: Series(sampled_s, tuple(values.tolist())) for name, values in channels.items()}
