"""Telemetry during a profile: a sampler in its own process, and what it saw so far.

The sampler's lines go through a file in memory: it never waits for this process, its samples survive it, and nothing is
written to the medium that is being measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Collection, Dict, Optional, Sequence

import harness
from harness.board.record import Record
from harness.board.sampling import Order
from harness.board.source import SourceSpec
from harness.core.errors import HarnessError, InvalidValueError
from harness.core.profiles import Series, Telemetry

_IMPORT_PATH = str(Path(harness.__file__).resolve().parents[1])
_ANSWER_S = 10.0  # how long the sampler may take for its first sample, or its last


class Sampler:
    """Samples `sources` every `interval_s` seconds from `start` to `stop`, once at each of the two besides.

    A failing source, or the death of the sampler itself, is recorded in the `Telemetry` and raises nothing.

    Args:
        sources: what to sample; some want this process's id (`SourceSpec("cpu", {"pid": os.getpid()})`).
        interval_s: seconds between two samples.
        root: the directory below which `/sys` and `/proc` are looked for.
        cpus: CPUs the sampler may run on, best those that are not measured; None for every CPU.

    Raises:
        InvalidValueError: `interval_s` is not above 0, or a source is named twice.
    """

    def __init__(
        self,
        sources: Sequence[SourceSpec],
        interval_s: float,
        *,
        root: str = "/",
        cpus: Optional[Collection[int]] = None,
    ) -> None:
        """Nothing starts yet."""
        if not interval_s > 0:
            raise InvalidValueError(f"interval_s must be above 0, got {interval_s}")
        names = [source.module for source in sources]
        if len(set(names)) < len(names):
            raise InvalidValueError(f"each telemetry source may be given once, got {', '.join(names)}")
        self._names = names
        self._sources = [tuple(source) for source in sources]
        self.interval_s = interval_s
        self._root = str(root)
        self._cpus = None if cpus is None else sorted(cpus)
        self._process: Optional[subprocess.Popen] = None
        self._record = Record(names)
        self._telemetry: Optional[Telemetry] = None

    @property
    def pid(self) -> int:
        """The process id of the sampler, once started."""
        return self._process.pid

    def start(self) -> None:
        """Start the sampler and wait for its first sample.

        To wait keeps the sampler's own start out of what is measured next.

        Raises:
            HarnessError: it was started before.
        """
        if self._process is not None:
            raise HarnessError("this sampler was started before", "make a new Sampler for each profile")
        self._started_s = time.monotonic()
        # Whatever breaks in here, Ctrl-C among it, leaves nothing open: without a start there is no stop.
        with contextlib.ExitStack() as on_failure:
            self._fd = _memory_file()
            on_failure.callback(os.close, self._fd)
            stop_fd, self._stop_fd = os.pipe()
            on_failure.callback(os.close, self._stop_fd)
            try:
                self._process = self._launch(stop_fd)
            finally:
                os.close(stop_fd)
            on_failure.pop_all()
            on_failure.callback(self.stop)
            deadline_s = self._started_s + _ANSWER_S
            while not self.poll() and self._process.poll() is None and time.monotonic() < deadline_s:
                time.sleep(0.002)
            on_failure.pop_all()

    def _launch(self, stop_fd: int) -> subprocess.Popen:
        order = Order(self._sources, self.interval_s, self._root, self._cpus, os.getpid(), self._fd, stop_fd)
        return subprocess.Popen(
            [sys.executable, "-m", "harness.board", json.dumps(order._asdict())],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_IMPORT_PATH, os.getenv("PYTHONPATH")]))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[self._fd, stop_fd],
            start_new_session=True,  # Ctrl-C goes to every process of the terminal's group: it is this one's to handle
        )

    def poll(self) -> int:
        """Take in the samples that arrived since the last call and return how many those are; cheap if none."""
        return self._record.take_in(self._fd)

    @property
    def missing(self) -> Dict[str, str]:
        """The sources that give nothing (any more), and why, as far as `poll` has seen; all once the sampler died."""
        if self._process.poll() is None:
            return dict(self._record.missing)
        return {**dict.fromkeys(self._names, "the sampler has died"), **self._record.missing}

    def series(self, channel: str) -> Optional[Series]:
        """One channel as far as `poll` has seen it; None where it has no value yet."""
        return self._record.series(channel)

    def newest(self, channel: str) -> Optional[float]:
        """The newest value of one channel as far as `poll` has seen it; None where it has none yet."""
        return self._record.newest(channel)

    def stop(self) -> Telemetry:
        """Let the sampler take its last sample and end, and return all it saw; the same again when asked again."""
        if self._telemetry is not None:
            return self._telemetry
        stopped_s = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has died: its record lacks the last sample, and says so below
            os.write(self._stop_fd, b"stop")
        os.close(self._stop_fd)
        why_died = self._reap()
        self.poll()
        os.close(self._fd)
        self._telemetry = self._record.telemetry(self.interval_s, self._started_s, stopped_s, why_died)
        return self._telemetry

    def _reap(self) -> str:
        """Wait for the end of the process, and say how it ended where that was before its time."""
        try:
            _, errors = self._process.communicate(timeout=_ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return f"gave no answer for {_ANSWER_S:g} s"
        last_words = errors.decode(errors="replace").strip().splitlines()[-1:]
        return ": ".join([f"ended with status {self._process.returncode}", *last_words])

    def __enter__(self) -> Sampler:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End the sampler where `stop` has not done so."""
        self.stop()


def _memory_file() -> int:
    """A new file without a name, in memory where the C library knows how (glibc 2.27)."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("telemetry")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
