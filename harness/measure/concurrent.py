"""Training with inference in between, measured: both networks in one process, requests that arrive evenly (E21).

`harness.core.interleaving` has the loop. Here it runs on a real machine; simulated boards run it by a virtual clock.
"""

from __future__ import annotations

import time
from typing import Any, List

from harness.board.thermal import refuse_heat
from harness.core.cases import Mix
from harness.core.device import Report
from harness.core.frequency_residency import clock_use
from harness.core.interleaving import interleave
from harness.core.metrics import POWER_CHANNEL, summarise_concurrent
from harness.core.power_modes import PowerMode
from harness.core.profiles import CLEAN, Minibatch, Profile, wall_clock
from harness.measure.rounds import Rounds, nothing, run_rounds
from harness.workloads.optional_packages import require


def measure_concurrent(bench: Any, instruments: Any, report: Report, rounds: Rounds = run_rounds) -> Profile:
    training = require("harness.measure.training_loop")
    case, seed = bench.case, bench.case.settings.seed
    mix = Mix.parse(case.workload)
    training.torch.set_num_threads(bench.conditions["threads"])
    trained: List[Minibatch] = []
    is_own = bench.workload.is_own or bench.beside.workload.is_own
    with training.failures_explained(f"{mix.name} with batches of {case.batch_size}", is_own):
        trainer = training.Trainer(bench.workload, bench.samples, case.batch_size, case.workers, seed)
        inferrer = training.Inferrer(bench.beside.workload, bench.beside.samples, mix.batch_size, 0, seed)
        if case.settings.cache != "as-is":
            report("    page cache: warm")
            trainer.read_once()
            inferrer.read_once()
        train, serve = (training.time_minibatches(one, one.loader(), since_asked=True) for one in (trainer, inferrer))

        def train_one() -> None:
            trained.append(Minibatch(0, len(trained), CLEAN, *next(train)))
            refuse_heat(sampler, instruments.limits_c)
            report(f"    trained {len(trained)} minibatches")

        next(train), next(serve)  # the first of each chooses kernels (C12)
        started_at = wall_clock()
        with instruments.sampler(case.settings.interval_s) as sampler:
            refuse_heat(sampler, instruments.limits_c)
            start_s = time.monotonic()
            outcomes: List[Any] = []

            def train_and_serve() -> None:
                outcomes.append(
                    interleave(
                        clock=time.monotonic,
                        train=train_one,
                        serve=lambda: next(serve),
                        arrivals_per_s=mix.arrivals_per_s,
                        batch_size=mix.batch_size,
                        duration_s=case.settings.duration_s,
                    )
                )

            rounds(nothing, train_and_serve, 1)
            end_s = time.monotonic()
            telemetry = sampler.stop()
        train.close()
        serve.close()
    power = telemetry.series.get(POWER_CHANNEL)
    mode = PowerMode(**bench.conditions["power_mode"])
    conditions = {
        **bench.conditions,
        "temperature_limits_c": dict(instruments.limits_c),
        "power_source": instruments.power_source if power is not None else None,
        "power_definition": telemetry.notes.get(POWER_CHANNEL, "no power sensor"),
        "clock_use": clock_use(telemetry.series, mode, start_s, end_s, telemetry.notes),
    }
    aggregates = summarise_concurrent(outcomes[0], power, case.batch_size, start_s, end_s)
    return Profile(case, "measured", conditions, trained, telemetry, aggregates, [], started_at)
