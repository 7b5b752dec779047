"""The sampler's process: reads all sources at a fixed rate and writes each sample as one line of JSON.

           open    tick 0     tick 1     tick 2        stop
    start ---|-------*----------*----------*------------*--- end
                     |<-interval->|                     last sample, off the grid

`harness.board.sampler` starts it as `python -m harness.board.sampler_process ORDER`, beside the training it watches: it
imports little, starts fast, and keeps to its CPUs.
"""

from __future__ import annotations

import functools
import json
import math
import os
import select
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.board import helper_stream
from harness.board.bounded_reads import StuckError, unanswered, watched_each
from harness.board.cpu import sampler_cpu_s
from harness.board.source import READ_S, Reading, Source, SourceSpec, open_watched
from harness.core.errors import HarnessError, SourceUnavailableError

PARENT_CHECK_S = 1.0


class Order(NamedTuple):
    """What the parent requests of the sampler, in types that JSON has."""

    sources: Sequence[SourceSpec]  # plain lists once they come from JSON
    interval_s: float
    root: str
    cpus: Optional[List[int]]  # to run on; None for every CPU
    parent_pid: int  # whose child this is; once it is another's, the parent has died
    out_fd: int  # where the lines go
    stop_fd: int  # anything to read here, or its end, means stop
    helper: helper_stream.Inherited  # the run's helper for sensors that only root may read; a plain list from JSON


class TickSchedule:
    """Ticks at `start_s + k * interval_s`: no delay of one tick moves the next (M1)."""

    def __init__(self, start_s: float, interval_s: float) -> None:
        self._start_s, self._interval_s, self._next_tick = start_s, interval_s, 1

    @property
    def due_s(self) -> float:
        return self._start_s + self._next_tick * self._interval_s

    def advance(self, now_s: float) -> int:
        """Take a tick at `now_s`, when it is due or later, and return how many were lost by that delay."""
        reached = max(self._next_tick, math.floor((now_s - self._start_s) / self._interval_s))
        lost = reached - self._next_tick
        self._next_tick = reached + 1
        return lost


def run(order: Order) -> None:
    helper_stream.inherit(helper_stream.Inherited(*order.helper))
    sources, notes, missing = _open_all([SourceSpec(*one) for one in order.sources], order.root)
    try:
        # Of every CPU the kernel leaves out those that do not exist or are not allowed.
        os.sched_setaffinity(0, range(4096) if order.cpus is None else order.cpus)
    except OSError as error:
        missing["sampler: its own CPUs"] = f"could not be kept on {order.cpus}: {error}"
    _write_line(order.out_fd, {"notes": notes, "missing": missing})

    schedule = TickSchedule(time.monotonic(), order.interval_s)
    cpu_before_s = sampler_cpu_s()
    lost = 0
    stopping = False
    while True:
        sample = _sample(sources)
        sample.update(lost=lost, cpu_s=sampler_cpu_s() - cpu_before_s, last=stopping)
        _write_line(order.out_fd, sample)
        if stopping:
            return
        stopping = _wait(order, schedule.due_s)
        if not stopping:
            lost += schedule.advance(time.monotonic())


def _open_all(specs: List[SourceSpec], root: str) -> Tuple[Dict[str, Source], Dict[str, str], Dict[str, str]]:
    sources: Dict[str, Source] = {}
    missing: Dict[str, str] = {}
    notes: Dict[str, str] = {}
    for spec in specs:
        # Whatever is wrong with one source, the profile goes on without it and its record states why.
        try:
            sources[spec.name] = source = open_watched(spec, root)
        except Exception as error:
            missing[spec.name] = _reason(error)
        else:
            notes.update(source.notes)
    missing.update(unanswered(missing.values()))
    return sources, notes, missing


def _sample(sources: Dict[str, Source]) -> Dict[str, Any]:
    now_s = time.monotonic()
    values: Dict[str, Dict[str, float]] = {}
    failed: Dict[str, str] = {}
    acts = {name: functools.partial(source.read, now_s) for name, source in sources.items()}
    for name, reading in watched_each(acts, READ_S, "telemetry source").items():
        # A sensor that vanishes, hangs or reads garbage costs its own values only: the record states when and why.
        if isinstance(reading, Exception):
            failed[name] = _reason(reading)
            if isinstance(reading, StuckError):
                sources[name] = Source({}, functools.partial(_stay_away, failed[name]))
        else:
            values[name] = reading.values
            failed.update(reading.failed)
    failed.update(unanswered(failed.values()))
    return {"time_s": now_s, "values": values, "failed": failed}


def _stay_away(why: str, now_s: float) -> Reading:
    raise SourceUnavailableError(f"{why}, and is not read again")


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"


def _wait(order: Order, due_s: float) -> bool:
    while True:
        if os.getppid() != order.parent_pid:
            # DataLoader workers inherit the other end of the pipe: its closing alone would not show the parent's death.
            return True
        left_s = max(0.0, due_s - time.monotonic())
        readable, _, _ = select.select([order.stop_fd], [], [], min(left_s, PARENT_CHECK_S))
        if readable:
            return True
        if time.monotonic() >= due_s:
            return False


def _write_line(fd: int, line: Dict[str, Any]) -> None:
    os.write(fd, (json.dumps(line, separators=(",", ":")) + "\n").encode())


if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])))
