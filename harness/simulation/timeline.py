"""From a board's steady states to minibatches: jitter, slow beginnings, phases; time 0 is where telemetry begins."""

from __future__ import annotations

import dataclasses
from typing import Dict, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.metrics import STABLE_WINDOW_S, stable_from
from harness.core.profiles import CLEAN, FIRST, SETTLING, Minibatch, Minibatches
from harness.core.units import ms_to_s
from harness.simulation.model import Response

STALL_JITTER, COMPUTE_JITTER, OVERHEAD_JITTER = 0.08, 0.01, 0.15
"""Standard deviation of the logarithm of a minibatch's parts: little in compute, more in what many processes take part
in. The papers print no spread within a run."""

WORKER_START_CYCLES = 60e6  # CPU cycles of starting one DataLoader worker: 27 ms at 2.2 GHz. No paper prints it
TUNING_MINIBATCHES, TUNING_CYCLES = 3.0, 1.5e9
"""What choosing and loading kernels costs the first minibatch, which is discarded for it (C12; 001 sec. 2.5): compute
time in minibatches, and CPU cycles, 0.7 s at 2.2 GHz. No paper prints either."""

LEAD_S = 0.05  # from the first telemetry sample to the first minibatch
DROP_S = 0.5  # what dropping the page cache between two epochs takes


class Steady(NamedTuple):
    """A board's steady state in one mode, with a certain share of the data set in the page cache."""

    cached_share: float  # that share, 0 to 1
    stall_ms: float  # of a minibatch
    compute_ms: float
    overhead_ms: float
    supply_ms: float  # fetching and pre-processing one, by all workers together
    rails_mw: Dict[str, float]  # parts of the module's power
    cpu_utilisation: float  # 0 to 1
    gpu_utilisation: float

    @property
    def e2e_ms(self) -> float:
        return self.stall_ms + self.compute_ms + self.overhead_ms


def steady_state(response: Response, cached_share: float) -> Steady:
    names = ("stall_ms", "compute_ms", "overhead_ms", "cpu_utilisation", "gpu_utilisation")
    return Steady(
        cached_share=cached_share,
        supply_ms=float(response.fetch_ms[0] + response.preprocess_ms[0]),
        rails_mw={name: float(power[0]) for name, power in response.rails_mw.items()},
        **{name: float(getattr(response, name)[0]) for name in names},
    )


@dataclasses.dataclass(frozen=True)
class Timeline:
    epoch: np.ndarray  # number of the epoch
    state: np.ndarray  # number of the steady state that it is in
    start_s: np.ndarray  # when it began
    stall_ms: np.ndarray  # as of `Minibatch`
    compute_ms: np.ndarray
    e2e_ms: np.ndarray

    @property
    def end_s(self) -> np.ndarray:
        return self.start_s + ms_to_s(self.e2e_ms)

    def state_at(self, times_s: np.ndarray) -> np.ndarray:
        return self.state[np.clip(np.searchsorted(self.start_s, times_s, side="right") - 1, 0, None)]

    def up_to(self, count: int) -> Timeline:
        return Timeline(*(getattr(self, field.name)[:count] for field in dataclasses.fields(self)))

    def minibatches(self, clean_from: int = 1) -> Minibatches:
        """As they stand in a profile: the first, those that settle, and from number `clean_from` on the clean ones."""
        count = len(self.epoch)
        phases = np.repeat([FIRST, SETTLING, CLEAN], [1, clean_from - 1, count - clean_from])
        columns = (self.epoch, np.arange(count), phases, self.start_s, self.stall_ms, self.compute_ms, self.e2e_ms)
        return Minibatches(dict(zip(Minibatch._fields, columns)))


def run_minibatches(
    states: Sequence[Steady],
    state: np.ndarray,
    epoch: np.ndarray,
    workers: int,
    worker_start_ms: float,
    tuning_ms: float,
    pause_s: float,
    time_factor: float,
    noise: np.random.Generator,
) -> Timeline:
    """Run minibatches one after the other; `state` (of `states`) and `epoch` (ascending) are of each, shape (n,).

    Workers are started anew for each epoch, and each makes a minibatch by itself; `tuning_ms` is what the first takes
    on the CPU beside all else, `time_factor` how this run as a whole differs from others.
    """
    stall, compute, overhead = (
        np.array([getattr(one, name) for one in states])[state]
        * time_factor
        * np.exp(spread * noise.standard_normal(len(state)))
        for name, spread in (
            ("stall_ms", STALL_JITTER),
            ("compute_ms", COMPUTE_JITTER),
            ("overhead_ms", OVERHEAD_JITTER),
        )
    )
    begins = np.flatnonzero(np.diff(epoch, prepend=-1))
    supply = np.array([one.supply_ms for one in states])[state[begins]]
    stall[begins] += workers * (worker_start_ms + supply) if workers else 0.0
    compute[0] += TUNING_MINIBATCHES * compute[0] + tuning_ms
    e2e = stall + compute + overhead
    pauses = np.zeros(len(state))
    pauses[begins[1:]] = pause_s
    start = LEAD_S + np.cumsum(pauses) + np.concatenate([[0.0], np.cumsum(ms_to_s(e2e))[:-1]])
    return Timeline(epoch, state, start, stall, compute, e2e)


def choose_clean(
    timeline: Timeline, times_s: np.ndarray, power_mw: np.ndarray, wanted: int, least_samples: int, longest_s: float
) -> Tuple[int, int]:
    """Which minibatches count, from what number on, up to how many: as a loop finds that learns of power as it goes.

    The timeline has more than needed; clean ones must see `least_samples` power samples; `longest_s` is waited for
    power to settle, and then for samples.
    """
    since = times_s >= timeline.start_s[0]
    times, power = times_s[since], power_mw[since]
    stable = stable_from(times, power)
    seen_s = longest_s
    if stable is not None:  # known once the window's last sample is there
        seen_s = min(times[np.searchsorted(times, stable + (1 - 1e-9) * STABLE_WINDOW_S)], longest_s)
    clean_from = max(1, int(np.searchsorted(timeline.start_s, seen_s)))
    settled_s = timeline.start_s[min(clean_from, len(timeline.start_s) - 1)]
    heard = times[times >= settled_s][:least_samples]
    enough_s = heard[-1] if len(heard) == least_samples else settled_s + longest_s
    enough = int(np.searchsorted(timeline.end_s, min(enough_s, settled_s + longest_s))) + 1
    return clean_from, min(max(clean_from + wanted, enough), len(timeline.epoch))
