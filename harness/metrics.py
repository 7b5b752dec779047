"""The papers' formulas as pure functions: fetch stall, overhead, epoch sums, energy, power settling, aggregates."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.profiles import CLEAN, Minibatch, Series, Telemetry
from harness.units import S_PER_HOUR, ms_to_s, mws_to_mwh, s_to_ms

POWER_CHANNEL = "power_total_mw"
"""The telemetry channel that power and energy are taken from: the device's own definition of its total."""

STABLE_WINDOW_S = 3.0
"""Length of the sliding window that finds stable power.

PowerTrain sec. 2.5 leaves it open but says that power settles in 2-3 s after a change of mode: a window as long as the
longest of these cannot lie inside the transient.
"""

STABLE_TOLERANCE = 0.05
"""How far the means of a stable window's two halves may lie apart, as a share of the window's mean.

PowerTrain leaves it open too. Repeated modes of its corpus differ by about 1 % and its predictors err by 5 % or more:
5 % is above the noise of a sensor and no greater than what the figures are used for.
"""


class Aggregate(NamedTuple):
    """What an aggregate of a profile is: its unit and its meaning in one sentence."""

    unit: str
    meaning: str


AGGREGATES: Dict[str, Aggregate] = {
    "minibatch_time_ms": Aggregate("ms", "median end-to-end time of a clean minibatch"),
    "minibatch_time_q1_ms": Aggregate("ms", "first quartile of the end-to-end time of the clean minibatches"),
    "minibatch_time_q3_ms": Aggregate("ms", "third quartile of the end-to-end time of the clean minibatches"),
    "minibatch_time_mean_ms": Aggregate("ms", "mean end-to-end time of a clean minibatch"),
    "fetch_stall_ms": Aggregate("ms", "median fetch stall of a clean minibatch"),
    "compute_ms": Aggregate("ms", "median compute time of a clean minibatch"),
    "overhead_ms": Aggregate("ms", "median framework overhead of a clean minibatch: E2E - stall - compute"),
    "clean_minibatches": Aggregate("1", "minibatches that count: not the first, not before power settled"),
    "e2e_s": Aggregate("s", "sum of the end-to-end times of the clean minibatches"),
    "samples_per_s": Aggregate("1/s", "clean minibatches x batch size / e2e_s"),
    "power_mw": Aggregate("mW", "median over the stable power samples in the clean window"),
    "power_mean_mw": Aggregate("mW", "energy of the clean window / its length"),
    "power_samples": Aggregate("1", "power samples behind power_mw"),
    "power_settled_s": Aggregate(
        "s", "from the start of the first minibatch until power is stable; empty: never stable"
    ),
    "energy_mwh": Aggregate(
        "mWh", "energy from the first to the end of the last clean minibatch: sum of p(i) x (t(i) - t(i-1))"
    ),
    "energy_per_sample_mws": Aggregate("mWs", "energy of the clean window / samples trained in it"),
    "disk_read_bytes": Aggregate("B", "read from the storage's disk in the clean window, by whichever process"),
    "disk_reads_per_s": Aggregate("1/s", "mean read requests to the storage's disk in the clean window"),
    "epochs": Aggregate("1", "whole epochs that count: all but epoch 0"),
    "epoch_time_s": Aggregate("s", "mean end-to-end time of epochs 1 and later"),
    "epoch_stall_s": Aggregate("s", "mean fetch stall of epochs 1 and later, each a sum over its minibatches"),
    "epoch_compute_s": Aggregate("s", "mean compute time of epochs 1 and later, each a sum over its minibatches"),
    "epoch_overhead_s": Aggregate("s", "mean framework overhead of epochs 1 and later"),
    "epoch_energy_mwh": Aggregate("mWh", "mean energy of epochs 1 and later"),
    "epoch0_time_s": Aggregate("s", "end-to-end time of epoch 0, its first minibatch included"),
    "epoch0_stall_s": Aggregate("s", "fetch stall of epoch 0"),
    "epoch0_compute_s": Aggregate("s", "compute time of epoch 0"),
    "epoch0_overhead_s": Aggregate("s", "framework overhead of epoch 0"),
    "epoch0_energy_mwh": Aggregate("mWh", "energy of epoch 0"),
}
"""Every aggregate of a profile. Its value is None, never 0, where there was nothing to measure it with or over."""


class EpochSums(NamedTuple):
    """One epoch: when it ran (monotonic seconds) and the sums over its minibatches, in seconds."""

    epoch: int
    start_s: float
    end_s: float
    e2e_s: float
    stall_s: float
    compute_s: float
    overhead_s: float


def fetch_stall_ms(fetch_ms: float, preprocess_ms: float, compute_ms: float, workers: int) -> float:
    """The part of fetching and pre-processing a minibatch that the accelerator waits for.

    With workers, fetching overlaps computing and only the excess is visible: max(fetch + pre-process - compute, 0)
    (SIGMETRICS sec. 4.5). Without workers nothing overlaps and all of it is visible.

    Args:
        fetch_ms: time to read the minibatch from storage.
        preprocess_ms: time to decode and transform it.
        compute_ms: compute time of a minibatch.
        workers: `num_workers` of the DataLoader.
    """
    if workers == 0:
        return fetch_ms + preprocess_ms
    return max(fetch_ms + preprocess_ms - compute_ms, 0.0)


def overhead_ms(minibatch: Minibatch) -> float:
    """Framework overhead of a minibatch: E2E - stall - compute (SIGMETRICS sec. 4.5)."""
    return minibatch.e2e_ms - minibatch.stall_ms - minibatch.compute_ms


def epoch_sums(minibatches: Sequence[Minibatch]) -> List[EpochSums]:
    """Sums over the minibatches of each epoch, every phase included, in order (SIGMETRICS sec. 4.5)."""
    epochs: Dict[int, List[Minibatch]] = {}
    for minibatch in minibatches:
        epochs.setdefault(minibatch.epoch, []).append(minibatch)
    return [
        EpochSums(
            epoch=epoch,
            start_s=min(minibatch.start_s for minibatch in members),
            end_s=max(end_s(minibatch) for minibatch in members),
            e2e_s=ms_to_s(sum(minibatch.e2e_ms for minibatch in members)),
            stall_s=ms_to_s(sum(minibatch.stall_ms for minibatch in members)),
            compute_s=ms_to_s(sum(minibatch.compute_ms for minibatch in members)),
            overhead_s=ms_to_s(sum(overhead_ms(minibatch) for minibatch in members)),
        )
        for epoch, members in sorted(epochs.items())
    ]


def end_s(minibatch: Minibatch) -> float:
    """When a minibatch ended, on the clock of its `start_s`."""
    return minibatch.start_s + ms_to_s(minibatch.e2e_ms)


def integral(
    times_s: Sequence[float],
    values: Sequence[float],
    start_s: Optional[float] = None,
    end_s: Optional[float] = None,
) -> Optional[float]:
    """A sampled rate times time: sum of p(t_i) x (t_i - t_(i-1)), the papers' formula of energy (SIGMETRICS sec. 4.5).

    A sample stands for the time since the sample before it, however long that was. In a window only the overlap counts.
    At either end of the samples the nearest one is taken to hold for at most one median interval more.

    Args:
        times_s: when the samples were taken, ascending, in seconds.
        values: the rate, as many as `times_s`.
        start_s: start of the window; default: the first sample.
        end_s: end of the window; default: the last sample.

    Returns:
        The integral over seconds; None where there are fewer than two samples or they do not cover the window.
    """
    if len(times_s) < 2:
        return None
    times = np.asarray(times_s, dtype=float)
    rates = np.asarray(values, dtype=float)
    window_start = times[0] if start_s is None else start_s
    window_end = times[-1] if end_s is None else end_s
    hold_s = float(np.median(np.diff(times)))
    if window_end < window_start or window_start < times[0] - hold_s or window_end > times[-1] + hold_s:
        return None
    edges = np.concatenate([[min(window_start, times[0])], times, [max(window_end, times[-1])]])
    held = np.concatenate([rates, rates[-1:]])
    clipped = np.clip(edges, window_start, window_end)
    return float(np.sum(held * np.diff(clipped)))


def energy_mwh(
    times_s: Sequence[float],
    values_mw: Sequence[float],
    start_s: Optional[float] = None,
    end_s: Optional[float] = None,
) -> Optional[float]:
    """Energy from power samples in mW, in mWh: their `integral`, whose arguments and rules hold here too."""
    energy_mws = integral(times_s, values_mw, start_s, end_s)
    return None if energy_mws is None else mws_to_mwh(energy_mws)


def stable_from(
    times_s: Sequence[float],
    values_mw: Sequence[float],
    window_s: float = STABLE_WINDOW_S,
    tolerance: float = STABLE_TOLERANCE,
) -> Optional[float]:
    """When power has become stable: the start of the first stable one of sliding windows (PowerTrain sec. 2.5).

    A window is stable where the means of its two halves differ by no more than `tolerance` of the window's mean. A
    transient moves the mean; the alternation of stall and compute inside a minibatch does not.

    Args:
        times_s: when the samples were taken, ascending, in seconds; from the change that power has to settle after.
        values_mw: power in mW, as many as `times_s`.
        window_s: length of the window; it holds at least two samples however rare they are.
        tolerance: allowed difference as a share of the mean.

    Returns:
        A time out of `times_s`; None where no window that was observed to its end is stable.
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
        if abs(late - early) <= tolerance * abs(mean):
            return float(times[first])
    return None


def samples_per_s(minibatches: int, batch_size: int, seconds: float) -> Optional[float]:
    """Training throughput; None where no time has passed."""
    return minibatches * batch_size / seconds if seconds > 0 else None


def quartiles(values: Sequence[float]) -> Tuple[float, float, float]:
    """First quartile, median and third quartile of one value or more, linearly interpolated."""
    first, median, third = np.percentile(np.asarray(values, dtype=float), [25, 50, 75])
    return float(first), float(median), float(third)


def between(series: Series, start_s: float, end_s: float) -> Series:
    """The samples taken from `start_s` to `end_s`, both included."""
    kept = [(time, value) for time, value in zip(series.times_s, series.values) if start_s <= time <= end_s]
    return Series(tuple(time for time, _ in kept), tuple(value for _, value in kept))


def counted_minibatches(minibatches: Sequence[Minibatch], whole_epochs: bool) -> List[Minibatch]:
    """The clean minibatches that aggregates are made of; of whole epochs those of epoch 1 and later, if any."""
    clean = [minibatch for minibatch in minibatches if minibatch.phase == CLEAN]
    later = [minibatch for minibatch in clean if minibatch.epoch > 0]
    return later if whole_epochs and later else clean


def summarise(
    minibatches: Sequence[Minibatch],
    telemetry: Telemetry,
    batch_size: int,
    *,
    whole_epochs: bool = False,
) -> Dict[str, Optional[float]]:
    """The aggregates of a profile, named and explained in `AGGREGATES`.

    Args:
        minibatches: the raw series, in order.
        telemetry: what was sampled meanwhile; `POWER_CHANNEL` is used where it is there.
        batch_size: samples per minibatch.
        whole_epochs: every epoch ran to its end. Adds the epoch figures and, where there is an epoch 1, keeps epoch 0
            out of all others (SIGMETRICS sec. 4.4).

    Returns:
        Every name of `AGGREGATES`; None where there is nothing to say.
    """
    clean = counted_minibatches(minibatches, whole_epochs)
    figures: Dict[str, Optional[float]] = dict.fromkeys(AGGREGATES)
    figures["clean_minibatches"] = float(len(clean))
    if clean:
        figures.update(_times(clean, batch_size))
        figures.update(_power(minibatches, clean, telemetry, batch_size))
        figures.update(_disk(clean, telemetry))
    if whole_epochs:
        figures.update(_epochs(minibatches, telemetry))
    return figures


def _times(clean: Sequence[Minibatch], batch_size: int) -> Dict[str, Optional[float]]:
    times_ms = [minibatch.e2e_ms for minibatch in clean]
    first, median, third = quartiles(times_ms)
    e2e_s = ms_to_s(sum(times_ms))
    return {
        "minibatch_time_ms": median,
        "minibatch_time_q1_ms": first,
        "minibatch_time_q3_ms": third,
        "minibatch_time_mean_ms": s_to_ms(e2e_s) / len(clean),
        "fetch_stall_ms": float(np.median([minibatch.stall_ms for minibatch in clean])),
        "compute_ms": float(np.median([minibatch.compute_ms for minibatch in clean])),
        "overhead_ms": float(np.median([overhead_ms(minibatch) for minibatch in clean])),
        "e2e_s": e2e_s,
        "samples_per_s": samples_per_s(len(clean), batch_size, e2e_s),
    }


def _power(
    minibatches: Sequence[Minibatch], clean: Sequence[Minibatch], telemetry: Telemetry, batch_size: int
) -> Dict[str, Optional[float]]:
    power = telemetry.series.get(POWER_CHANNEL)
    if power is None:
        return {}
    began_s = minibatches[0].start_s
    start_s, stop_s = clean[0].start_s, end_s(clean[-1])
    since_first = between(power, began_s, stop_s)
    settled_s = stable_from(since_first.times_s, since_first.values)
    # Where power never settles there is no better sample than all of the clean window; power_settled_s tells so.
    counted = between(power, start_s if settled_s is None else max(start_s, settled_s), stop_s).values
    energy = energy_mwh(power.times_s, power.values, start_s, stop_s)
    figures: Dict[str, Optional[float]] = {
        "power_mw": float(np.median(counted)) if counted else None,
        "power_samples": float(len(counted)),
        "power_settled_s": None if settled_s is None else settled_s - began_s,
        "energy_mwh": energy,
    }
    if energy is not None and stop_s > start_s:
        energy_mws = energy * S_PER_HOUR
        figures["power_mean_mw"] = energy_mws / (stop_s - start_s)
        figures["energy_per_sample_mws"] = energy_mws / (len(clean) * batch_size)
    return figures


def _disk(clean: Sequence[Minibatch], telemetry: Telemetry) -> Dict[str, Optional[float]]:
    start_s, stop_s = clean[0].start_s, end_s(clean[-1])

    def total(channel: str) -> Optional[float]:
        return integral(*telemetry.series.get(channel, Series((), ())), start_s, stop_s)

    reads = total("disk_reads_per_s")
    return {
        "disk_read_bytes": total("disk_read_bytes_per_s"),
        "disk_reads_per_s": None if reads is None or stop_s <= start_s else reads / (stop_s - start_s),
    }


def _epochs(minibatches: Sequence[Minibatch], telemetry: Telemetry) -> Dict[str, Optional[float]]:
    sums = epoch_sums(minibatches)
    power = telemetry.series.get(POWER_CHANNEL, Series((), ()))
    columns: Dict[str, List[Optional[float]]] = {
        "time_s": [epoch.e2e_s for epoch in sums],
        "stall_s": [epoch.stall_s for epoch in sums],
        "compute_s": [epoch.compute_s for epoch in sums],
        "overhead_s": [epoch.overhead_s for epoch in sums],
        "energy_mwh": [energy_mwh(power.times_s, power.values, epoch.start_s, epoch.end_s) for epoch in sums],
    }
    later = [place for place, epoch in enumerate(sums) if epoch.epoch > 0]
    figures: Dict[str, Optional[float]] = {"epochs": float(len(later))}
    for name, values in columns.items():
        for place, epoch in enumerate(sums):
            if epoch.epoch == 0:
                figures[f"epoch0_{name}"] = values[place]
        figures[f"epoch_{name}"] = _mean([values[place] for place in later])
    return figures


def _mean(values: Sequence[Optional[float]]) -> Optional[float]:
    """The mean; None without values, or where one of them is missing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
