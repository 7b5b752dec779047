"""Training with inference in between on a simulated board: `harness.core.interleaving` by a virtual clock."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy as np

from harness.core.cases import Case, Mix
from harness.core.interleaving import Interleaved, interleave
from harness.core.metrics import POWER_CHANNEL
from harness.core.profiles import CLEAN, Minibatch, Telemetry
from harness.core.units import ms_to_s
from harness.simulation.load import Load
from harness.simulation.parameters import WorkloadParameters
from harness.simulation.timeline import COMPUTE_JITTER, steady_state
from harness.simulation.virtual_data import VirtualData
from harness.simulation.virtual_run import POWER_DEFINITION, SimulatedBoard, noise_of, total_mw
from harness.simulation.virtual_telemetry import as_series, ticks

Part = Tuple[Case, WorkloadParameters, VirtualData]


def run_interleaved(
    board: SimulatedBoard, case: Case, parts: Sequence[Part]
) -> Tuple[Interleaved, List[Minibatch], Telemetry]:
    """What comes out of the loop, its training minibatches, and the power meanwhile; the clock begins at 0.

    Each kind of work takes what it takes alone: that a change between them cools caches is not modelled.

    Args:
        board: in its power mode.
        case: the concurrent case.
        parts: its training and its inference.
    """
    noise, mix = noise_of(case), Mix.parse(case.workload)
    time_factor, power_factor = np.exp(
        noise.standard_normal(2) * (board.parameters.time_noise, board.parameters.power_noise)
    ).tolist()
    states, powers = [], []
    for part, workload, data in parts:
        share = data.holds  # by the time that both take turns, what fits has been read
        load = Load(part.batch_size, part.workers, part.storage, share, part.task, case.settings.clocks)
        states.append(steady_state(board.respond(workload, load), share))
        powers.append(float(total_mw({name: np.array(mw) for name, mw in states[-1].rails_mw.items()})))
    clock_s, began_s, doing, trained = 0.0, [], [], []

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

    found = interleave(
        clock=lambda: clock_s,
        train=lambda: work(0),
        serve=lambda: work(1),
        arrivals_per_s=mix.arrivals_per_s,
        batch_size=mix.batch_size,
        duration_s=case.settings.duration_s,
    )
    at = ticks(found.duration_s, case.settings.interval_s, noise).until(found.duration_s)
    # A sensor integrates over its interval: what it says is the mean of what was done since the sample before.
    busy_s = np.array([*began_s, found.duration_s])
    spent_mws = np.concatenate([[0.0], np.cumsum(np.array(powers)[doing] * np.diff(busy_s))])
    spent_at = np.interp(at.times_s, busy_s, spent_mws)
    means = np.diff(spent_at) / np.maximum(np.diff(at.times_s), 1e-9)
    power_mw = np.append(means[:1], means) * at.noise * power_factor
    channels = as_series(at, {POWER_CHANNEL: power_mw, "cpu_other_cores": np.zeros(len(power_mw))})
    return (
        found,
        trained,
        Telemetry(
            interval_s=case.settings.interval_s,
            real_interval_s=case.settings.interval_s,
            series=channels,
            notes={POWER_CHANNEL: POWER_DEFINITION, "simulation": "every channel is simulated"},
        ),
    )
