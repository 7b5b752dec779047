"""The papers' formulas and the aggregates of a profile: pure functions of its minibatches and telemetry."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.errors import CannotRunError
from harness.core.files import read_toml
from harness.core.interleaving import Interleaved
from harness.core.profiles import NO_SERIES, Minibatch, Series, Telemetry, counted_minibatches
from harness.core.units import ms_to_s, mws_to_mwh, s_to_ms

# The window that finds stable power is as long as power takes to settle at most (PowerTrain sec. 2.5: 2-3 s), so that
# it cannot lie inside the transient. The means of its halves may lie apart by more than the noise of a sensor (repeated
# modes of PowerTrain differ by about 1 %), and by no more than its predictors err, as a share of its mean.
STABLE_WINDOW_S, STABLE_TOLERANCE = 3.0, 0.05
MAX_SETTLING_S = 30.0  # a profile whose power has not settled by then continues, flagged
MIN_POWER_SAMPLES = 3  # fewer give no meaningful median (001 sec. 2.5: a fast mode has few, or none)
MAX_GAP_INTERVALS = 3.0  # samples further apart do not cover the time between them: reads failed there


class EpochSums(NamedTuple):
    """One epoch: its start and end (monotonic seconds) and the sums over its minibatches, in seconds."""

    epoch: int
    start_s: float
    end_s: float
    e2e_s: float
    stall_s: float
    compute_s: float
    overhead_s: float


def overhead_ms(minibatch: Minibatch) -> float:
    """Framework overhead of a minibatch: E2E - stall - compute (SIGMETRICS sec. 4.5)."""
    return minibatch.e2e_ms - minibatch.stall_ms - minibatch.compute_ms


def epoch_sums(minibatches: Sequence[Minibatch]) -> List[EpochSums]:
    """Sums over the minibatches of each epoch, every phase included, in order (SIGMETRICS sec. 4.5)."""
    epochs: Dict[int, List[Minibatch]] = {}
    for minibatch in minibatches:
        epochs.setdefault(minibatch.epoch, []).append(minibatch)
    sums = []
    for epoch, members in sorted(epochs.items()):
        times_ms = [(each.e2e_ms, each.stall_ms, each.compute_ms, overhead_ms(each)) for each in members]
        start, end = min(each.start_s for each in members), max(end_s(each) for each in members)
        sums.append(EpochSums(epoch, start, end, *(ms_to_s(sum(column)) for column in zip(*times_ms))))
    return sums


def end_s(minibatch: Minibatch) -> float:
    return minibatch.start_s + ms_to_s(minibatch.e2e_ms)


def integral(
    times_s: Union[Sequence[float], np.ndarray],
    values: Union[Sequence[float], np.ndarray],
    start_s: Optional[float] = None,
    end_s: Optional[float] = None,
) -> Optional[float]:
    """A sampled rate times time: sum of p(t_i) x (t_i - t_(i-1)), the papers' formula of energy (SIGMETRICS sec. 4.5).

    A sample represents the time since the previous sample. In a window only the overlap counts. At either end of the
    samples, and of a gap of more than `MAX_GAP_INTERVALS` median intervals among them, the nearest one is taken to hold
    for at most one median interval more. `times_s` ascend; the window is by default from the first sample to the last.
    None if there are fewer than two samples, or they do not cover the window.
    """
    if len(times_s) < 2:
        return None
    times = np.asarray(times_s, dtype=float)
    rates = np.asarray(values, dtype=float)
    window_start = times[0] if start_s is None else start_s
    window_end = times[-1] if end_s is None else end_s
    if window_end < window_start:
        return None
    intervals = np.diff(times)
    hold_s = float(np.median(intervals))
    # What is held on both sides of a gap does not meet in its middle: a window is covered by one part or by none.
    after_gaps = np.flatnonzero(intervals > MAX_GAP_INTERVALS * hold_s) + 1
    for part, held in zip(np.split(times, after_gaps), np.split(rates, after_gaps)):
        if part[0] - hold_s <= window_start and window_end <= part[-1] + hold_s:
            edges = np.concatenate([[min(window_start, part[0])], part, [max(window_end, part[-1])]])
            clipped = np.clip(edges, window_start, window_end)
            return float(np.sum(np.append(held, held[-1]) * np.diff(clipped)))
    return None


def energy_mwh(
    times_s: Sequence[float], values_mw: Sequence[float], start_s: Optional[float] = None, end_s: Optional[float] = None
) -> Optional[float]:
    """Energy from power samples in mW, in mWh: their `integral`, whose arguments and rules hold here too."""
    energy_mws = integral(times_s, values_mw, start_s, end_s)
    return None if energy_mws is None else mws_to_mwh(energy_mws)


def stable_from(
    times_s: Sequence[float], values_mw: Sequence[float], window_s: float = STABLE_WINDOW_S
) -> Optional[float]:
    """The time at which power is stable: the start of the first stable sliding window (PowerTrain sec. 2.5).

    There the means of the two halves differ by no more than `STABLE_TOLERANCE` of the window's: a transient moves them,
    the turns of stall and compute do not. `times_s` ascend; a window holds two samples at least. None if no window
    that was observed to its end is stable.
    """
    times = np.asarray(times_s, dtype=float)
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values_mw, dtype=float))])
    # The last sample of a window is the first that is as far away as the window is long, but for rounding.
    last = np.searchsorted(times, times + (1 - 1e-9) * window_s)
    for first, stop in enumerate(last + 1):
        if stop > len(times):
            return None
        half = (stop - first) // 2
        early = (sums[first + half] - sums[first]) / half
        late = (sums[stop] - sums[stop - half]) / half
        mean = (sums[stop] - sums[first]) / (stop - first)
        if abs(late - early) <= STABLE_TOLERANCE * abs(mean):
            return float(times[first])
    return None


def quartiles(values: Union[Sequence[float], np.ndarray]) -> Tuple[float, float, float]:
    first, median, third = np.percentile(np.asarray(values, dtype=float), [25, 50, 75])
    return float(first), float(median), float(third)


def between(series: Series, start_s: float, end_s: float) -> Series:
    """The samples taken from `start_s` to `end_s`, both included."""
    kept = [(time, value) for time, value in zip(series.times_s, series.values) if start_s <= time <= end_s]
    return Series(tuple(time for time, _ in kept), tuple(value for _, value in kept))


def smallest_step(values: Sequence[float]) -> Optional[float]:
    """The smallest difference between the levels that a sensor's readings take; None if they show no levels.

    Power is voltage times current, so readings of one level differ by up to `SAME_READING` if the voltage moves a
    little. There are levels if `MIN_READINGS` or more lie on two or more of them that are narrow beside the step, and
    each was seen twice on average: the readings of a fine sensor hardly ever repeat.
    """
    distinct = np.unique(np.asarray(values, dtype=float))
    if len(values) < MIN_READINGS or len(distinct) < 2:
        return None
    for share in (SAME_READING, 0.0):
        reach = share * np.abs(distinct)
        levels = np.split(distinct, np.flatnonzero(np.diff(distinct) > reach[1:]) + 1)
        if len(levels) == 1 or 2 * len(levels) > len(values):
            continue
        step = float(np.min(np.diff([np.median(level) for level in levels])))
        if all(level[-1] - level[0] <= NARROW * step for level in levels):
            return step
    return None


def power_step_mw(series: Mapping[str, Series], spans: Sequence[Tuple[float, float]]) -> Optional[float]:
    """The coarsest step of the rails that the total power is made of, within stretches of time (monotonic seconds).

    A total that is one rail (`VDD_IN`) has that rail's step. Rails that are not in a sum of several count too; they are
    those of lower voltages, whose steps are finer. None if no levels show.
    """

    def values_of(channel: str) -> List[float]:
        return [value for span in spans for value in between(series[channel], *span).values]

    rails = [name for name in series if name.startswith("power_") and name.endswith("_mw") and name != POWER_CHANNEL]
    total = values_of(POWER_CHANNEL)
    sampled = [values_of(name) for name in rails]
    if total in sampled:
        sampled = []
    steps = [smallest_step(values) for values in [total, *sampled]]
    return max((step for step in steps if step is not None and step <= LARGEST_STEP_MW), default=None)


def total(parts: Sequence[Optional[float]]) -> Optional[float]:
    """The sum of some figures; None if one is missing."""
    there = [part for part in parts if part is not None]
    return sum(there) if len(there) == len(parts) else None


def typical_power_mw(values_mw: Sequence[float], step_mw: Optional[float]) -> float:
    """The median of power samples; their mean if the sensor's step is coarser than `COARSE_STEP` of it."""
    median_mw = float(np.median(values_mw))
    is_coarse = step_mw is not None and step_mw > COARSE_STEP * median_mw
    return float(np.mean(values_mw)) if is_coarse else median_mw


def minibatch_energy_mws(time_ms: Union[float, np.ndarray], power_mw: Union[float, np.ndarray]) -> np.ndarray:
    """Energy of a minibatch in mW s (mJ): power x time (001 sec. 1.1)."""
    return ms_to_s(np.asarray(time_ms, dtype=float)) * np.asarray(power_mw, dtype=float)


POWER_CHANNEL = "power_total_mw"  # the source of power and energy figures: the device's own definition of its total

COARSE_STEP = 0.01  # of the power: a median of readings on a coarser grid is off by up to half a step
LARGEST_STEP_MW = 1000.0  # rails of AGX Orin step by 0.4 W (40 uV over 2 mOhm at 20 V); no sensor of a board by more
MIN_READINGS = 8  # a few readings of a fine sensor lie on a grid by chance
NARROW = 0.1  # the width of a level, as a share of the step
SAME_READING = 0.005  # of a reading: how far the voltage moves the power of one and the same step of the current

_TEXTS = read_toml(Path(__file__).with_name("aggregates.toml"))
AGGREGATES: Dict[str, str] = _TEXTS["profile"]  # name to meaning, of every profile
CONCURRENT_AGGREGATES: Dict[str, str] = _TEXTS["concurrent"]  # further ones of a concurrent case


def summarise(
    minibatches: Sequence[Minibatch], telemetry: Telemetry, batch_size: float, *, whole_epochs: bool = False
) -> Dict[str, Optional[float]]:
    """The aggregates of a profile; of whole epochs, epoch 0 is in separate figures only (SIGMETRICS sec. 4.4)."""
    clean = counted_minibatches(minibatches, whole_epochs)
    figures: Dict[str, Optional[float]] = dict.fromkeys(AGGREGATES)
    figures["clean_minibatches"] = float(len(clean))
    if clean:
        times_ms = [minibatch.e2e_ms for minibatch in clean]
        e2e_s = ms_to_s(sum(times_ms))
        figures.update(
            _times(times_ms),
            fetch_stall_ms=_median_of_known([minibatch.stall_ms for minibatch in clean]),
            compute_ms=_median_of_known([minibatch.compute_ms for minibatch in clean]),
            overhead_ms=_median_of_known([overhead_ms(minibatch) for minibatch in clean]),
            e2e_s=e2e_s,
            samples_per_s=len(clean) * batch_size / e2e_s if e2e_s > 0 else None,
        )
        figures.update(_power_and_disk(minibatches[0].start_s, epoch_sums(clean), telemetry, len(clean) * batch_size))
    if whole_epochs:
        figures.update(_epochs(epoch_sums(minibatches), telemetry.series.get(POWER_CHANNEL, NO_SERIES)))
    return figures


def _median_of_known(times_ms: Sequence[float]) -> Optional[float]:
    """The median; None if a time is unknown: a minibatch of which the loop did not show its fetch stall."""
    return None if np.isnan(times_ms).any() else float(np.median(times_ms))


def summarise_idle(telemetry: Telemetry, start_s: float, end_s: float) -> Dict[str, Optional[float]]:
    """Power and energy while nothing ran; all other aggregates are None."""
    figures: Dict[str, Optional[float]] = dict.fromkeys(AGGREGATES)
    power = between(telemetry.series.get(POWER_CHANNEL, NO_SERIES), start_s, end_s)
    if power.values:
        step_mw = power_step_mw(telemetry.series, [(start_s, end_s)])
        figures.update(_sampled_power(power, step_mw), energy_mwh=energy_mwh(power.times_s, power.values))
    return figures


def summarise_command(
    minibatches: Sequence[Minibatch], telemetry: Telemetry, start_s: float, end_s: float
) -> Dict[str, Optional[float]]:
    """The aggregates of a command from its start to its end; `minibatches` are those that its output showed.

    A command that ends between two samples has the next one, which the sampler takes at the command's end.
    """
    figures: Dict[str, Optional[float]] = dict.fromkeys(AGGREGATES)
    wall_time_s = end_s - start_s
    figures["wall_time_s"] = wall_time_s
    clean = counted_minibatches(minibatches, whole_epochs=False)
    if clean:
        times_ms = [minibatch.e2e_ms for minibatch in clean]
        figures.update(_times(times_ms), clean_minibatches=float(len(clean)), e2e_s=ms_to_s(sum(times_ms)))

    def over_command(channel: str) -> Optional[float]:
        rate = telemetry.series.get(channel, NO_SERIES)
        return integral(rate.times_s, rate.values, start_s, end_s)

    reads = over_command("disk_reads_per_s")
    figures["disk_read_bytes"] = over_command("disk_read_bytes_per_s")
    figures["disk_reads_per_s"] = None if reads is None else reads / wall_time_s
    figures["other_cpu_time_s"] = over_command("cpu_other_cores")
    power = telemetry.series.get(POWER_CHANNEL, NO_SERIES)
    sampled = between(power, start_s, end_s)
    if not sampled.values:
        after = [(time_s, value) for time_s, value in zip(*power) if time_s > end_s][:1]
        sampled = Series(tuple(time_s for time_s, _ in after), tuple(value for _, value in after))
    if sampled.values:
        figures.update(_sampled_power(sampled, power_step_mw(telemetry.series, [(start_s, end_s)])))
        energy_mws = over_command(POWER_CHANNEL)
        figures["power_mean_mw"] = None if energy_mws is None else energy_mws / wall_time_s
        figures["energy_mwh"] = None if energy_mws is None else mws_to_mwh(energy_mws)
    return figures


def unit_time_ms(aggregates: Mapping[str, Optional[float]], has_pattern: bool = False) -> Optional[float]:
    """The time of a profile's unit of work: of a minibatch, or of a whole command, unless a pattern shows minibatches.

    None if there is none, also with a pattern that no minibatch came of: one table has one unit.
    """
    minibatch_ms, wall_time_s = aggregates.get("minibatch_time_ms"), aggregates.get("wall_time_s")
    if minibatch_ms is not None and minibatch_ms == minibatch_ms:  # NaN in a frame
        return minibatch_ms
    return None if wall_time_s is None or has_pattern else s_to_ms(wall_time_s)


def summarise_socket(series: Series, spans: Sequence[Tuple[float, float]]) -> Dict[str, Optional[float]]:
    """Power at the plug over stretches of time (monotonic seconds), of samples that may lie between them."""
    values = [value for span in spans for value in between(series, *span).values]
    energies = [energy_mwh(series.times_s, series.values, *span) for span in spans]
    return {
        "socket_power_mw": float(np.median(values)) if values else None,
        "socket_peak_mw": max(values, default=None),
        "socket_energy_mwh": total(energies),
    }


def summarise_concurrent(
    both: Interleaved,
    series: Mapping[str, Series],
    training_batch: int,
    alone: Optional[Tuple[Interleaved, Interleaved]] = None,
    epoch_samples: int = 0,
) -> Dict[str, Optional[float]]:
    """`AGGREGATES` and `CONCURRENT_AGGREGATES` of `both` workloads; `alone` has training and inference by themselves.

    `series` are the telemetry's, by channel.

    `CannotRunError` if no training minibatch completed.
    """
    if not both.training_ms:
        raise CannotRunError(
            f"no training minibatch completed within the {both.duration_s:.3g} s of both workloads, "
            f"{len(both.inference_ms)} inference batches did",
            "give a longer --duration, or fewer requests or larger inference batches if these leave no time to train",
        )
    figures: Dict[str, Optional[float]] = {**dict.fromkeys(AGGREGATES), **dict.fromkeys(CONCURRENT_AGGREGATES)}
    figures.update(
        _times(both.training_ms),
        clean_minibatches=float(len(both.training_ms)),
        e2e_s=both.duration_s,
        samples_per_s=both.training_per_s(training_batch),
        training_samples_per_s=both.training_per_s(training_batch),
        inference_per_s=len(both.latency_ms) / both.duration_s,
        waiting=float(both.waiting),
        switching_ms=float(np.median(both.switching_ms)) if both.switching_ms else None,
        **_latencies(both, "latency"),
    )
    if both.latency_ms:
        figures["inference_time_ms"] = float(np.median(both.inference_ms))
    power = series.get(POWER_CHANNEL, NO_SERIES)
    sampled = between(power, both.began_s, both.end_s)
    if sampled.values:
        energy = energy_mwh(power.times_s, power.values, both.began_s, both.end_s)
        step_mw = power_step_mw(series, [(both.began_s, both.end_s)])
        figures.update(_sampled_power(sampled, step_mw), energy_mwh=energy)
    if alone is not None:
        figures.update(_against_alone(both, *alone, power, training_batch, epoch_samples))
    return figures


def _latencies(stretch: Interleaved, name: str) -> Dict[str, float]:
    shares = {"median": 0.5, "p95": 0.95, "p99": 0.99} if stretch.latency_ms else {}
    return {f"{name}_{word}_ms": float(np.quantile(stretch.latency_ms, share)) for word, share in shares.items()}


def _against_alone(
    both: Interleaved, training: Interleaved, serving: Interleaved, power: Series, training_batch: int, samples: int
) -> Dict[str, float]:
    """Slowdowns, speedup and energy of both against each alone; an epoch has `samples`."""
    figures = _latencies(serving, "latency_alone")
    if not training.training_ms:
        return figures
    trained = len(both.training_ms) * training_batch
    per_s = training.training_per_s(training_batch)
    figures.update(training_alone_per_s=per_s, training_slowdown=per_s / both.training_per_s(training_batch))
    if serving.inference_ms and both.inference_ms:
        batch_ms = float(np.median(serving.inference_ms))
        figures["inference_alone_ms"] = batch_ms
        figures["inference_slowdown"] = float(np.median(both.inference_ms)) / batch_ms
        figures["speedup"] = (trained / per_s + ms_to_s(batch_ms * len(both.inference_ms))) / both.duration_s
    both_mws, training_mws, serving_mws = (_drawn_mws(power, stretch) for stretch in (both, training, serving))
    if both_mws is not None and training_mws is not None and serving_mws is not None:
        sample_mws = training_mws / (len(training.training_ms) * training_batch)
        figures["energy_per_epoch_mwh"] = mws_to_mwh(both_mws / trained * samples)
        figures["energy_per_epoch_alone_mwh"] = mws_to_mwh(sample_mws * samples)
        if both.latency_ms and serving.latency_ms:
            figures["energy_per_request_mws"] = (both_mws - sample_mws * trained) / len(both.latency_ms)
            figures["energy_per_request_alone_mws"] = serving_mws / len(serving.latency_ms)
    return figures


def _drawn_mws(power: Series, stretch: Interleaved) -> Optional[float]:
    """Energy of a stretch in mW s. Its first sample also covers the time before it and does not count."""
    values = between(power, stretch.began_s, stretch.end_s).values[1:]
    return float(np.mean(values)) * stretch.duration_s if values else None


def _times(times_ms: Sequence[float]) -> Dict[str, float]:
    first, median, third = quartiles(times_ms)
    slow, slowest = np.quantile(times_ms, (0.95, 0.99)).tolist()
    return {
        "minibatch_time_ms": median,
        "minibatch_time_q1_ms": first,
        "minibatch_time_q3_ms": third,
        "minibatch_time_p95_ms": slow,
        "minibatch_time_p99_ms": slowest,
        "minibatch_time_max_ms": float(max(times_ms)),
        "minibatch_time_mean_ms": float(np.mean(times_ms)),
    }


def _sampled_power(power: Series, step_mw: Optional[float]) -> Dict[str, Optional[float]]:
    return {
        "power_mw": typical_power_mw(power.values, step_mw),
        "power_step_mw": step_mw,
        "power_mean_mw": float(np.mean(power.values)),  # 004 sec. 5.6: the mean is the average of the samples
        "power_samples": float(len(power.values)),
        **_peak(power),
    }


def _peak(power: Series) -> Dict[str, Optional[float]]:
    """The highest sample, for supply and over-current limits, and the shortest peak that sampling can resolve."""
    window_s = float(np.median(np.diff(power.times_s))) if len(power.times_s) > 1 else None
    return {"power_peak_mw": max(power.values), "power_peak_window_s": window_s} if power.values else {}


def _power_and_disk(
    began_s: float, epochs: Sequence[EpochSums], telemetry: Telemetry, samples: float
) -> Dict[str, Optional[float]]:
    """Power, energy and disk traffic within epochs; the time between them is excluded."""
    seconds = sum(epoch.end_s - epoch.start_s for epoch in epochs)

    def over_epochs(channel: str) -> Optional[float]:
        rate = telemetry.series.get(channel, NO_SERIES)
        parts = [integral(rate.times_s, rate.values, epoch.start_s, epoch.end_s) for epoch in epochs]
        return total(parts)

    reads = over_epochs("disk_reads_per_s")
    figures: Dict[str, Optional[float]] = {
        "disk_read_bytes": over_epochs("disk_read_bytes_per_s"),
        "disk_reads_per_s": None if reads is None or seconds <= 0 else reads / seconds,
    }
    power = telemetry.series.get(POWER_CHANNEL)
    if power is None:
        return figures
    since_first = between(power, began_s, epochs[-1].end_s)
    figures.update(_peak(since_first))
    settled_s = stable_from(since_first.times_s, since_first.values)
    # If power never settles, all clean samples count; power_settled_s is None then.
    stable_since_s = epochs[0].start_s if settled_s is None else settled_s
    spans = [(max(epoch.start_s, stable_since_s), epoch.end_s) for epoch in epochs]
    counted = [value for span in spans for value in between(power, *span).values]
    figures["power_step_mw"] = power_step_mw(telemetry.series, spans)
    figures["power_mw"] = typical_power_mw(counted, figures["power_step_mw"]) if counted else None
    figures["power_samples"] = float(len(counted))
    figures["power_settled_s"] = None if settled_s is None else settled_s - began_s
    energy_mws = over_epochs(POWER_CHANNEL)
    if energy_mws is not None and seconds > 0:
        figures["energy_mwh"] = mws_to_mwh(energy_mws)
        figures["power_mean_mw"] = energy_mws / seconds
        figures["energy_per_sample_mws"] = energy_mws / samples
    return figures


def _epochs(epochs: Sequence[EpochSums], power: Series) -> Dict[str, Optional[float]]:
    """Figures of whole epochs, and the time of one as each paper takes it.

    004 sec. 4.4: the mean of epochs 1 and later. 003 sec. III: the median of three, of which the first starts cold and
    is outvoted. 000 sec. 3.4: the mean of all, epoch 0 included.
    """
    rows = {
        epoch.epoch: {
            "time_s": epoch.e2e_s,
            "stall_s": epoch.stall_s,
            "compute_s": epoch.compute_s,
            "overhead_s": epoch.overhead_s,
            "energy_mwh": energy_mwh(power.times_s, power.values, epoch.start_s, epoch.end_s),
        }
        for epoch in epochs
    }
    times_s = [epoch.e2e_s for epoch in epochs]
    figures_of_papers: Dict[str, Optional[float]] = {
        "epoch_time_median_of_3_s": float(np.median(times_s[:3])) if len(times_s) >= 3 else None,
        "epoch_time_with_epoch0_s": float(np.mean(times_s)) if times_s else None,
    }
    figures: Dict[str, Optional[float]] = {f"epoch0_{name}": value for name, value in rows.pop(0, {}).items()}
    figures["epochs"] = float(len(rows))
    for name in next(iter(rows.values()), {}):
        sum_of_epochs = total([row[name] for row in rows.values()])
        figures[f"epoch_{name}"] = None if sum_of_epochs is None else sum_of_epochs / len(rows)
    return {**figures, **figures_of_papers}
