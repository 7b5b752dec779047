"""The load of an acceptance test: a workload of the suite, trained for a time under telemetry; numpy without torch."""

from __future__ import annotations

import time
from typing import Callable, Collection, List, NamedTuple, Optional, Tuple

import numpy as np

from harness.acceptance.context import AcceptanceContext
from harness.board.sampler import Sampler
from harness.board.thermal import refuse_heat
from harness.core.cases import TRAINING
from harness.core.errors import CannotRunError, DependencyError
from harness.core.metrics import between
from harness.core.mode_texts import MAXN
from harness.core.profiles import CLEAN, NO_SERIES, Minibatch, Series, Telemetry
from harness.core.units import s_to_ms
from harness.measure.recording import Instruments
from harness.measure.run import bench_of
from harness.workloads.optional_packages import require

LEAST_SAMPLES, PATIENCE_S = 3, 10.0  # of a stretch; how much longer it may last to have them
MATRIX = 512  # rows of the matrices that numpy multiplies where torch is missing


class LoadRecording(NamedTuple):
    """What was recorded while the device was idle or under load."""

    telemetry: Telemetry
    start_s: float
    end_s: float
    minibatches: List[Minibatch]  # none of an idle stretch
    load: str  # in words

    def series(self, channel: str) -> Series:
        """A channel's samples of the stretch; empty where there are none."""
        return between(self.telemetry.series.get(channel, NO_SERIES), self.start_s, self.end_s)


def until(sampler: Sampler, start_s: float, seconds: float) -> Callable[[], bool]:
    """Whether a stretch from `start_s` is over: after so many seconds, and no sooner than it has samples.

    A rehearsal's stretch is short, and a busy machine may run the sampler late.
    """
    before = sampler.samples

    def is_over() -> bool:
        late_s = time.monotonic() - start_s - seconds
        return late_s >= 0 and (late_s >= PATIENCE_S or sampler.samples >= before + LEAST_SAMPLES)

    return is_over


def sampler_of(context: AcceptanceContext, names: Collection[str], interval_s: float) -> Sampler:
    """A sampler of the device's sources of these names, or of all, as a measurement has it."""
    device = context.device
    cpus = device.sampler_cpus(context.mode) if context.mode is not None else None
    sources = list(context.specs(names))
    instruments = Instruments(sources, device.power_source, cpus, device.root, {})
    return instruments.sampler(interval_s)


def idle_for(
    context: AcceptanceContext,
    seconds: float,
    names: Collection[str] = (),
    interval_s: Optional[float] = None,
    meanwhile: Callable[[float], None] = time.sleep,
) -> LoadRecording:
    """Telemetry while nothing runs; `meanwhile` takes the seconds and lasts as long."""
    with sampler_of(context, names, interval_s or context.interval_s) as sampler:
        start_s = time.monotonic()
        is_over = until(sampler, start_s, seconds)
        meanwhile(seconds)
        while not is_over():
            time.sleep(0.01)
        end_s = time.monotonic()
        telemetry = sampler.stop()
    return LoadRecording(telemetry, start_s, end_s, [], "idle")


def load_for(
    context: AcceptanceContext,
    seconds: float,
    names: Collection[str] = (),
    interval_s: Optional[float] = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> LoadRecording:
    """Telemetry under load; `meanwhile` is called after each minibatch. Heat ends it as it ends a run."""
    limits_c = context.device.temperature_limits_c(None)
    names = [*names, "thermal"] if names and limits_c else names
    with sampler_of(context, names, interval_s or context.interval_s) as sampler:
        start_s = time.monotonic()

        def after_minibatch() -> None:
            refuse_heat(sampler, limits_c)
            meanwhile()

        minibatches, load = run_load(context, until(sampler, start_s, seconds), after_minibatch)
        end_s = time.monotonic()
        telemetry = sampler.stop()
    return LoadRecording(telemetry, start_s, end_s, minibatches, load)


def run_load(
    context: AcceptanceContext, is_over: Callable[[], bool], after_minibatch: Callable[[], None] = lambda: None
) -> Tuple[List[Minibatch], str]:
    """Minibatches until `is_over`, at least two; and what ran, in words."""
    try:
        training = require("harness.measure.training_loop")
    except (CannotRunError, DependencyError) as error:
        return multiply(is_over, after_minibatch), f"numpy, {MATRIX} x {MATRIX} matrices, as there is no torch: {error}"
    case = context.case(MAXN)
    bench = bench_of(case, context.device, lambda line: None)
    training.torch.set_num_threads(context.threads)
    with training.failures_explained(case.workload):
        trainer = training.LOOPS[TRAINING](bench.workload, bench.samples, case.batch_size, 0, case.settings.seed)
        minibatches = training.profile_minibatches(
            trainer, 1, lambda now_s: True, is_over, lambda minibatch: after_minibatch()
        )
    return minibatches, f"{case.workload} on {training.accelerator_name()}"


def multiply(is_over: Callable[[], bool], after_minibatch: Callable[[], None]) -> List[Minibatch]:
    """Matrix products in the form of minibatches."""
    matrix = np.random.default_rng(0).standard_normal((MATRIX, MATRIX)).astype(np.float32)
    products: List[Minibatch] = []
    while len(products) < 2 or not is_over():
        start_s = time.monotonic()
        _ = matrix @ matrix
        ms = s_to_ms(time.monotonic() - start_s)
        products.append(Minibatch(0, len(products), CLEAN, start_s, 0.0, ms, ms))
        after_minibatch()
    return products
