"""Telemetry during a profile: a sampler in its own process, and the record of what it has seen so far.

The sampler's lines go through a file in memory: it never waits for this process, its samples survive it, and nothing is
written to the medium that is being measured.
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Collection, DefaultDict, Dict, List, Optional, Sequence, Tuple

from harness.board import helper_stream
from harness.board.bounded_process import ended_by_kill
from harness.board.sampler_process import Order
from harness.board.source import SourceSpec
from harness.core.environment import import_path
from harness.core.errors import HarnessError, InvalidValueError
from harness.core.profiles import Series, Telemetry

SAMPLER = "sampler"  # the name by which `Telemetry.missing` calls the sampler itself
_IMPORT_PATH = str(import_path())
_RUN_MODULE = (
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module('harness.board.sampler_process', run_name='__main__', alter_sys=True)"
)
"""As `python -m`, but without the working folder, whose `json.py` or clone of this suite is not meant."""

_ANSWER_S = 10.0  # how long the sampler may take for its first sample, or its last
_EXIT_S = 1.0  # how long it may take to exit after its last sample, or once it is killed
_READ_BYTES = 1 << 20


class Sampler:
    """Samples `sources` every `interval_s` seconds from `start` to `stop`, and once at each of the two.

    A failing source, or the death of the sampler itself, is recorded in the `Telemetry` and raises nothing. `cpus` are
    those that the sampler may run on, best those that are not measured; None for every CPU.
    """

    def __init__(
        self,
        sources: Sequence[SourceSpec],
        interval_s: float,
        *,
        root: str = "/",
        cpus: Optional[Collection[int]] = None,
    ) -> None:
        if not interval_s > 0:
            raise InvalidValueError(f"interval_s must be above 0, got {interval_s}")
        names = [source.name for source in sources]
        if len(set(names)) < len(names):
            raise InvalidValueError(f"each telemetry source may be given once, got {', '.join(names)}")
        self._names = names
        self._sources = list(sources)
        self.interval_s = interval_s
        self._root = str(root)
        self._cpus = None if cpus is None else sorted(cpus)
        self._started_process: Optional[subprocess.Popen[bytes]] = None
        self._record = SamplerRecord(names)
        self._telemetry: Optional[Telemetry] = None

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        if self._started_process is None:
            raise HarnessError("this sampler was not started", "call `start`, or use the sampler in a `with` statement")
        return self._started_process

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start the sampler and wait for its first sample, which keeps its start-up out of what is measured next."""
        if self._started_process is not None:
            raise HarnessError("this sampler was started before", "make a new Sampler for each profile")
        self._started_s = time.monotonic()
        # Whatever breaks in here, Ctrl-C among it, leaves nothing open: without a start there is no stop.
        with contextlib.ExitStack() as on_failure:
            if hasattr(os, "memfd_create"):  # glibc 2.27
                self._fd = os.memfd_create("telemetry")
            else:
                with tempfile.TemporaryFile() as file:
                    self._fd = os.dup(file.fileno())
            on_failure.callback(os.close, self._fd)
            stop_fd, self._stop_fd = os.pipe()
            on_failure.callback(os.close, self._stop_fd)
            try:
                self._started_process = self._launch(stop_fd)
            finally:
                os.close(stop_fd)
            on_failure.pop_all()
            on_failure.callback(self.stop)
            deadline_s = self._started_s + _ANSWER_S
            while not self.poll() and self._process.poll() is None and time.monotonic() < deadline_s:
                time.sleep(0.002)
            on_failure.pop_all()

    def _launch(self, stop_fd: int) -> subprocess.Popen[bytes]:
        helper = helper_stream.bequest(self._sources, self._root)
        order = Order(self._sources, self.interval_s, self._root, self._cpus, os.getpid(), self._fd, stop_fd, helper)
        return subprocess.Popen(
            [sys.executable, "-c", _RUN_MODULE, json.dumps(order._asdict())],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_IMPORT_PATH, os.getenv("PYTHONPATH")]))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[self._fd, stop_fd, *(helper.ends[:3] if helper.ends else ())],
            start_new_session=True,  # Ctrl-C goes to every process of the terminal's group: it is this one's to handle
        )

    def poll(self) -> int:
        """Take in the samples that arrived since the last call and return how many there are; cheap if none."""
        return self._record.take_in(self._fd)

    @property
    def samples(self) -> int:
        """How many samples have arrived so far."""
        self.poll()
        return self._record.samples

    @property
    def missing(self) -> Dict[str, str]:
        """The sources that give nothing (any more), and why, as far as `poll` has seen; all once the sampler died."""
        if self.is_running:
            return dict(self._record.missing)
        return {**dict.fromkeys(self._names, "the sampler has died"), **self._record.missing}

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def silence_s(self) -> float:
        """Seconds since the newest sample; since the start if there is none."""
        newest_s = self._record.newest_sample_s
        return time.monotonic() - (self._started_s if newest_s is None else newest_s)

    def series(self, channel: str) -> Optional[Series]:
        return self._record.series(channel)

    def first_of(self, channel: str) -> Optional[Series]:
        """A channel's samples so far, waiting for the second sample if the first has none; None if there are none.

        What counts energy has no power before its second reading.
        """
        deadline_s = time.monotonic() + self.interval_s + _ANSWER_S
        while self.samples < 2 and self.series(channel) is None and self.is_running and time.monotonic() < deadline_s:
            time.sleep(0.002)
        self.poll()
        return self.series(channel)

    def newest(self, channel: str, within_s: float = math.inf) -> Optional[float]:
        return self._record.newest(channel, time.monotonic() - within_s)

    def stop(self) -> Telemetry:
        """Let the sampler take its last sample and end, and return all samples; a repeated call returns the same."""
        if self._telemetry is not None:
            return self._telemetry
        process, stopped_s = self._process, time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has died: its record lacks the last sample, and states so below
            os.write(self._stop_fd, b"stop")
        os.close(self._stop_fd)
        how_it_ended, is_left = self._end(process)
        self.poll()
        os.close(self._fd)
        self._telemetry = self._record.telemetry(self.interval_s, self._started_s, stopped_s, how_it_ended)
        if is_left:
            self._telemetry.missing.setdefault(SAMPLER, how_it_ended)
        return self._telemetry

    def _end(self, process: subprocess.Popen[bytes]) -> Tuple[str, bool]:
        """Wait for the sampler's end, or end it. Returns how it ended, and whether it is left behind.

        One that the kernel holds (in a sensor's driver, or a frozen control group) cannot be ended. It is left behind:
        restoring the device must not wait for it.
        """
        deadline_s = time.monotonic() + _ANSWER_S
        while True:
            was_last = self._record.has_ended  # after its last sample it only has to exit
            try:
                _, errors = process.communicate(timeout=_EXIT_S)
            except subprocess.TimeoutExpired:
                self.poll()
                if was_last or time.monotonic() > deadline_s:
                    break
            else:
                last_words = errors.decode(errors="replace").strip().splitlines()[-1:]
                return ": ".join([f"ended with status {process.returncode}", *last_words]), False
        what = "did not exit" if self._record.has_ended else f"gave no answer for {_ANSWER_S:g} s"
        if ended_by_kill(process, _EXIT_S):
            return what, False
        return f"{what} and cannot be ended: process {process.pid} is left behind", True

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


class SamplerRecord:
    """What the sampler wrote so far, put together into series and, at the end, into a `Telemetry`.

    A line that is not complete is left: a sampler killed while it writes loses that one sample.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = list(sources)
        self._offset = 0
        self._opened = False
        self._notes: Dict[str, str] = {}
        self.missing: Dict[str, str] = {}  # the sources that could not be opened, and why
        self._times_s: List[float] = []
        self._series: DefaultDict[str, Tuple[List[float], List[float]]] = collections.defaultdict(lambda: ([], []))
        self._source_of: Dict[str, str] = {}
        self._failures: Dict[str, Tuple[str, float]] = {}  # why, and when first
        self._failure_counts: Dict[str, int] = collections.Counter()
        self._last_sample: Dict[str, Any] = {"lost": 0, "cpu_s": 0.0, "last": False}

    @property
    def samples(self) -> int:
        return len(self._times_s)

    @property
    def has_ended(self) -> bool:
        """Whether the last sample is there."""
        return bool(self._last_sample["last"])

    @property
    def newest_sample_s(self) -> Optional[float]:
        """Monotonic seconds; None if there is no sample."""
        return self._times_s[-1] if self._times_s else None

    def take_in(self, fd: int) -> int:
        samples_before = len(self._times_s)
        while True:
            block = os.pread(fd, _READ_BYTES, self._offset)
            complete = block[: block.rfind(b"\n") + 1]
            if not complete:
                return len(self._times_s) - samples_before
            self._offset += len(complete)
            for text in complete.splitlines():
                line = json.loads(text)
                if self._opened:
                    self._add(line)
                else:
                    self._notes, self.missing, self._opened = line["notes"], line["missing"], True

    def _add(self, sample: Dict[str, Any]) -> None:
        time_s = sample["time_s"]
        self._times_s.append(time_s)
        self._last_sample = sample
        for source, values in sample["values"].items():
            for channel, value in values.items():
                owner = self._source_of.setdefault(channel, source)
                if owner == source:
                    times, samples = self._series[channel]
                    times.append(time_s)
                    samples.append(value)
                else:
                    self.missing[f"{source}: {channel}"] = f"{owner} gives this channel too, and comes first"
        for name, why in sample["failed"].items():
            self._failures.setdefault(name, (why, time_s))
            self._failure_counts[name] += 1

    def series(self, channel: str) -> Optional[Series]:
        if channel not in self._series:
            return None
        times, values = self._series[channel]
        return Series(tuple(times), tuple(values))

    def newest(self, channel: str, since_s: float) -> Optional[float]:
        if channel not in self._series or self._series[channel][0][-1] < since_s:
            return None
        return self._series[channel][1][-1]

    def telemetry(self, interval_s: float, started_s: float, stopped_s: float, how_it_ended: str) -> Telemetry:
        times_s = self._times_s
        samples = len(times_s)
        missing = dict(self.missing)
        for source in self._sources:
            if source not in self.missing and source not in self._source_of.values():
                missing[source] = f"gave no value in {samples} samples"
        for name, (why, first_s) in self._failures.items():
            since_s = first_s - times_s[0]
            count = self._failure_counts[name]
            missing[name] = f"{why} ({count} of {samples} samples, the first {since_s:.1f} s after the start)"
        lost = self._last_sample["lost"]
        died_at_s = None
        if not self._last_sample["last"]:
            died_at_s = times_s[-1] if times_s else started_s
            lost += max(0, math.floor((stopped_s - died_at_s) / interval_s))
            missing[SAMPLER] = f"died, last seen {died_at_s - started_s:.1f} s after its start: {how_it_ended}"
        gaps_s = [later - earlier for earlier, later in zip(times_s, times_s[1:])]
        sampled_s = sum(gaps_s)
        return Telemetry(
            interval_s=interval_s,
            real_interval_s=statistics.median(gaps_s) if gaps_s else None,
            lost_samples=lost,
            series={channel: Series(tuple(times), tuple(values)) for channel, (times, values) in self._series.items()},
            missing=missing,
            notes=self._notes,
            died_at_s=died_at_s,
            sampler_cpu_share=self._last_sample["cpu_s"] / sampled_s if sampled_s else None,
        )
