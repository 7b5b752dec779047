"""Training and inference on one device: the loop, on a real or a virtual clock (000 sec. 4.1), and its results.

Requests arrive evenly. A whole inference batch is served as soon as it has arrived; between batches the device trains.
Nothing is interrupted, so a batch may have to wait for the current training minibatch:

    arrivals   . . . . . . . . . . . . . . . .
    device     train |train |serve|train |train |serve|train ...
                         ^ batch complete: waits, is served

Either kind of work may be left out. Two loops of one kind each, in processes or threads of their own, overlap instead.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, List, Optional, Tuple, Union

import numpy as np

from harness.core.units import ms_to_s, s_to_ms

ALONE_SHARE = 0.25  # of the time that both run at once, each runs alone too, and until it could serve some batches
BATCHES_ALONE = 3
SHORTEST_WAIT_S = 1e-4  # rounding may put the completion of a batch just before its last arrival is counted


@dataclasses.dataclass(frozen=True)
class Interleaved:
    """The result of a stretch of training, inference, or both."""

    duration_s: float
    training_ms: Tuple[float, ...]  # times of the training minibatches, in order
    inference_ms: Tuple[float, ...]  # times of the inference batches, in order
    latency_ms: Tuple[float, ...]  # of each served request, from its arrival to the end of its batch
    waiting: int  # requests that had arrived and were not served at the end
    switching_ms: Tuple[float, ...]  # times of mode changes between training and inference; empty without any
    began_s: float = 0.0  # by the clock of the loop

    @property
    def end_s(self) -> float:
        return self.began_s + self.duration_s

    def training_per_s(self, batch_size: int) -> float:
        return len(self.training_ms) * batch_size / self.duration_s


def interleave(
    *,
    clock: Callable[[], float],
    train: Optional[Callable[[], None]],
    serve: Optional[Callable[[], None]],
    arrivals_per_s: float,
    batch_size: int,
    duration_s: float,
    switch_to: Optional[Callable[[str], None]] = None,
    wait: Callable[[float], None] = time.sleep,
    began_s: Optional[float] = None,
) -> Interleaved:
    """Train, and serve each inference batch once it has arrived; requests come after `began_s`, by default now.

    `clock` returns seconds; `train` and `serve` do one minibatch or batch, and the one that is running after
    `duration_s` is finished. `switch_to` is called with `training` or `inference` before the kind of work changes.
    Without `train` it waits for requests; without `serve` it only trains. On a busy machine this thread may wake after
    `duration_s`: it still does one minibatch or batch, if one could have been done.
    """
    training_ms: List[float] = []
    inference_ms: List[float] = []
    latency_ms: List[float] = []
    switching_ms: List[float] = []
    began_s = clock() if began_s is None else began_s
    served, doing = 0, ""

    def run(task: str, work: Callable[[], None], times_ms: List[float]) -> float:
        nonlocal doing
        if switch_to is not None and doing and doing != task:
            changed_s = clock()
            switch_to(task)
            switching_ms.append(s_to_ms(clock() - changed_s))
        doing = task
        start_s = clock()
        work()
        end_s = clock()
        times_ms.append(s_to_ms(end_s - start_s))
        return end_s

    def is_over() -> bool:
        elapsed_s = clock() - began_s
        could_work = train is not None or int(elapsed_s * arrivals_per_s) >= batch_size
        has_worked = bool(training_ms or inference_ms)
        return elapsed_s >= duration_s and (has_worked or not could_work)

    while not is_over():
        arrived = int((clock() - began_s) * arrivals_per_s)
        if serve is None or arrived - served < batch_size:
            if train is not None:
                run("training", train, training_ms)
            else:
                complete_s = min((served + batch_size) / arrivals_per_s, duration_s)
                wait(max(began_s + complete_s - clock(), SHORTEST_WAIT_S))
            continue
        end_s = run("inference", serve, inference_ms)
        arrival_s = began_s + (served + 1 + np.arange(batch_size)) / arrivals_per_s
        latency_ms.extend(s_to_ms(float(latency_s)) for latency_s in end_s - arrival_s)
        served += batch_size
    lasted_s = clock() - began_s
    return Interleaved(
        lasted_s,
        tuple(training_ms),
        tuple(inference_ms),
        tuple(latency_ms),
        0 if serve is None else int(lasted_s * arrivals_per_s) - served,
        tuple(switching_ms),
        began_s,
    )


def alone_s(duration_s: float, arrivals_per_s: float, batch_size: int) -> float:
    """How long each kind of work runs alone, for comparison with `duration_s` of both."""
    return min(max(ALONE_SHARE * duration_s, BATCHES_ALONE * batch_size / arrivals_per_s), duration_s)


@dataclasses.dataclass(frozen=True)
class Expected:
    """Expected results of both, from the times of each kind of work; all arrays have the same shape."""

    training_per_s: np.ndarray  # training minibatches per second; 0 where inference leaves no time
    # the longest latency: of the first request of a batch which, interleaved, waited for a whole training minibatch
    latency_ms: np.ndarray
    power_mw: np.ndarray  # mean power
    load: np.ndarray  # share of time that inference and switching need; not sustained from 1 up


def expect(
    training_ms: np.ndarray,
    training_mw: np.ndarray,
    inference_ms: np.ndarray,
    inference_mw: np.ndarray,
    batch_size: np.ndarray,
    arrivals_per_s: float,
    switching_ms: Union[float, np.ndarray] = 0.0,
    slowdowns: Optional[Tuple[float, float]] = None,
) -> Expected:
    """The steady state of interleaving; with `slowdowns`, of both at once, where each takes so many times as long.

    Serving a batch takes inference_ms and two changes of mode (`switching_ms` each, at training's power; 0 where both
    have the same mode) of its period, batch_size / arrivals_per_s; what is left is for training. At once, no batch
    waits for training, training has all the time there is, and at least what training draws is drawn.
    """
    period_ms = s_to_ms(np.asarray(batch_size) / arrivals_per_s)
    filling_ms = s_to_ms((np.asarray(batch_size) - 1) / arrivals_per_s)
    if slowdowns is not None:
        training_ms, training_mw, inference_ms, _ = np.broadcast_arrays(
            training_ms * slowdowns[0], training_mw, inference_ms * slowdowns[1], batch_size
        )
        return Expected(1 / ms_to_s(training_ms), filling_ms + inference_ms, training_mw, inference_ms / period_ms)
    busy_ms = inference_ms + 2 * switching_ms
    load = busy_ms / period_ms
    left = np.maximum(1 - load, 0.0)
    share = np.minimum(inference_ms / period_ms, 1.0)
    return Expected(
        training_per_s=left / ms_to_s(training_ms),
        latency_ms=filling_ms + training_ms + busy_ms - switching_ms,
        power_mw=share * inference_mw + (1 - share) * training_mw,
        load=load,
    )
