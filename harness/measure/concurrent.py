"""Training with inference in between, measured: both networks in one process, requests that arrive evenly (E21).

`harness.core.interleaving` has the loop. Here it is run on a real machine; simulated boards run the same loop by a
virtual clock. Whoever wants to know what a device gives under both, be it a benchmark or a strategy, calls
`run_concurrent`.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from harness.board.frequency_residency import clock_use
from harness.board.thermal import refuse_heat
from harness.core.cases import CONCURRENT, DEFAULT_MINIBATCHES, INFERENCE, TRAINING, Case, Mix
from harness.core.device import Device, Report
from harness.core.errors import CannotRunError
from harness.core.interleaving import Interleaved, interleave
from harness.core.metrics import AGGREGATES, POWER_CHANNEL, between, energy_mwh, quartiles
from harness.core.power_modes import PowerMode
from harness.core.profiles import CLEAN, Minibatch, Profile, Series
from harness.measure.flags import find_concurrent_flags
from harness.measure.instruments import Instruments
from harness.workloads.optional_packages import require

FIGURES = {
    "latency_median_ms": "of a request, from its arrival to the end of its batch",
    "latency_p95_ms": "the latency that 95 % of the requests do not exceed",
    "inference_time_ms": "median time of an inference batch",
    "inference_per_s": "requests that were served per second",
    "training_samples_per_s": "samples that were trained per second, inference included in the time",
    "waiting": "requests that had arrived and were not served at the end",
}
"""What the profile of a concurrent case has beside the usual aggregates, which are those of the training in it."""


def run_concurrent(
    device: Device,
    training: Case,
    inference: Case,
    arrivals_per_s: float,
    duration_s: float,
    report: Report = lambda line: None,
) -> Profile:
    """Train one workload while another one answers requests, on a device that is held by the caller.

    Args:
        device: where.
        training: what is trained: workload, power mode, workers, storage, batch size.
        inference: what answers: its workload and its batch size are used.
        arrivals_per_s: requests per second.
        duration_s: how long.
        report: takes lines of progress.

    Returns:
        A profile of the task `concurrent`; `FIGURES` says what it has beside the usual aggregates.

    Raises:
        CannotRunError: the device cannot run it.
    """
    case = concurrent_case(training, inference, arrivals_per_s, duration_s)
    device.check(case)
    return device.profile(case, report)


def concurrent_case(training: Case, inference: Case, arrivals_per_s: float, duration_s: float) -> Case:
    """The case that stands for both."""
    settings = dataclasses.replace(training.settings, minibatches=None, epochs=None, duration_s=duration_s)
    mix = Mix(training.workload, inference.workload, inference.batch_size, arrivals_per_s)
    return dataclasses.replace(training, workload=mix.name, task=CONCURRENT, settings=settings)


def parts_of(case: Case) -> Tuple[Case, Case]:
    """The training and the inference in a concurrent case, each as a case of its own; requests come without workers."""
    mix = Mix.parse(case.workload)
    settings = dataclasses.replace(case.settings, minibatches=DEFAULT_MINIBATCHES, duration_s=None)
    training = dataclasses.replace(case, workload=mix.training, task=TRAINING, settings=settings)
    return training, dataclasses.replace(
        training, workload=mix.inference, task=INFERENCE, batch_size=mix.batch_size, workers=0
    )


def measure_concurrent(bench: Any, instruments: Instruments, report: Report) -> Profile:
    """Measure a concurrent case under the power mode that is set now.

    Args:
        bench: of `harness.measure.measurement`, that of the inference in its `beside`.
        instruments: what it is measured with.
        report: takes lines of progress.

    Raises:
        CannotRunError: both do not fit into the accelerator's memory.
        DataSetError: a file of a data set is damaged.
        OverheatedError: a sensor rose above its limit.
    """
    profiling = require("harness.measure.profiling")
    case, seed = bench.case, bench.case.settings.seed
    mix = Mix.parse(case.workload)
    profiling.use_threads(bench.conditions["threads"])
    trained: List[Minibatch] = []
    with profiling.memory_explained(f"{mix.name} with batches of {case.batch_size}"):
        trainer = profiling.Trainer(
            bench.workload, bench.workload.build_data_set(bench.data, seed), case.batch_size, case.workers, seed
        )
        inferrer = profiling.Inferrer(
            bench.beside.workload,
            bench.beside.workload.build_data_set(bench.beside.data, seed),
            mix.batch_size,
            0,
            seed,
        )
        if case.settings.cache != "as-is":
            report("    page cache: warm")
            trainer.read_once()
            inferrer.read_once()
        train, serve = profiling.one_by_one(trainer), profiling.one_by_one(inferrer)

        def train_one() -> None:
            trained.append(_as_minibatch(next(train), len(trained)))
            refuse_heat(sampler, instruments.limits_c)
            report(f"    trained {len(trained)} minibatches")

        next(train), next(serve)  # the first of each chooses kernels (C12)
        started_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        with instruments.sampler(case.settings.interval_s) as sampler:
            refuse_heat(sampler, instruments.limits_c)
            start_s = time.monotonic()
            found = interleave(
                clock=time.monotonic,
                train=train_one,
                serve=lambda: next(serve),
                arrivals_per_s=mix.arrivals_per_s,
                batch_size=mix.batch_size,
                duration_s=case.settings.duration_s,
            )
            end_s = time.monotonic()
            telemetry = sampler.stop()
        train.close()
        serve.close()
    power = telemetry.series.get(POWER_CHANNEL)
    uses = clock_use(telemetry.series, PowerMode(**bench.conditions["power_mode"]), start_s, end_s)
    conditions = {
        **bench.conditions,
        "temperature_limits_c": dict(instruments.limits_c),
        "power_source": instruments.power_source if power is not None else None,
        "power_definition": telemetry.notes.get(POWER_CHANNEL, "no power sensor"),
        "clock_use": {channel: use._asdict() for channel, use in uses.items()},
    }
    aggregates = summarise_concurrent(found, power, case.batch_size, mix.batch_size, start_s, end_s)
    profile = Profile(case, "measured", conditions, trained, telemetry, aggregates, [], started_at)
    return dataclasses.replace(profile, flags=find_concurrent_flags(profile, start_s, end_s))


def _as_minibatch(timing: Any, index: int) -> Minibatch:
    return Minibatch(0, index, CLEAN, *timing)


def summarise_concurrent(
    found: Interleaved,
    power: Optional[Series],
    training_batch: int,
    inference_batch: int,
    start_s: float,
    end_s: float,
) -> Dict[str, Optional[float]]:
    """The aggregates of a concurrent case: `AGGREGATES`, as far as they have a meaning here, and `FIGURES`.

    Args:
        found: what came out of the loop.
        power: samples of the total; None without a sensor.
        training_batch: samples in a training minibatch.
        inference_batch: requests in an inference batch.
        start_s: when the loop began, on the clock of the samples.
        end_s: when it ended.

    Raises:
        CannotRunError: inference left no time for a single training minibatch.
    """
    if not found.training_ms:
        raise CannotRunError("inference leaves no time to train", "fewer requests per second, or a larger batch")
    figures: Dict[str, Optional[float]] = {**dict.fromkeys(AGGREGATES), **dict.fromkeys(FIGURES)}
    first, median, third = quartiles(found.training_ms)
    figures.update(
        minibatch_time_ms=median,
        minibatch_time_q1_ms=first,
        minibatch_time_q3_ms=third,
        minibatch_time_mean_ms=float(np.mean(found.training_ms)),
        clean_minibatches=float(len(found.training_ms)),
        e2e_s=found.duration_s,
        samples_per_s=found.training_per_s(training_batch),
        training_samples_per_s=found.training_per_s(training_batch),
        inference_per_s=len(found.latency_ms) / found.duration_s,
        waiting=float(found.waiting),
    )
    if found.latency_ms:
        figures["latency_median_ms"] = found.latency_quantile_ms(0.5)
        figures["latency_p95_ms"] = found.latency_quantile_ms(0.95)
        figures["inference_time_ms"] = float(np.median(found.inference_ms))
    sampled = between(power or Series((), ()), start_s, end_s)
    if sampled.values:
        figures["power_mw"] = float(np.median(sampled.values))
        figures["power_mean_mw"] = float(np.mean(sampled.values))
        figures["power_samples"] = float(len(sampled.values))
        figures["energy_mwh"] = energy_mwh(power.times_s, power.values, start_s, end_s)
    return figures


def concurrent_conditions(conditions: Mapping[str, Any], beside: Mapping[str, Any]) -> Dict[str, Any]:
    """The conditions of the training, and of the inference what differs: its data set."""
    kept = ("data_source", "data_samples", "data_bytes")
    return {**conditions, "inference": {name: beside[name] for name in kept if name in beside}}
