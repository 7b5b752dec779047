"""What a running `tegrastats` prints, beside the board's own sensors: every channel starts with `tegrastats_`."""

from __future__ import annotations

import os
import subprocess
import weakref
from typing import Dict, Optional, Sequence

from harness.board.rail_total import TOTAL, choose_total
from harness.board.source import Reading
from harness.board.tegrastats_format import parse_line
from harness.board.tegrastats_log import DEFAULT_INTERVAL_S, channel_values
from harness.core.errors import InvalidValueError, SourceUnavailableError
from harness.core.units import s_to_ms

PREFIX = "tegrastats_"
SILENT_INTERVALS = 3
"""After as many intervals without a line it is said to be silent."""

_READ_BYTES = 1 << 16


class TegrastatsSource:
    """The last line that a process printed, given once and never again.

    Args:
        process: it runs already; its output is a pipe. It is ended with this source.
        interval_s: how often it prints a line.
        total: labels of the rails that make up the board's total; None where that is not known.
        remark: what is to be known of that total.
    """

    def __init__(
        self, process: subprocess.Popen, interval_s: float, total: Optional[Sequence[str]] = None, remark: str = ""
    ) -> None:
        """Take over the process."""
        self._process = process
        self._end = weakref.finalize(self, _end_process, process)
        os.set_blocking(process.stdout.fileno(), False)
        self._interval_s = interval_s
        self._definition = total
        self._remark = remark
        self._rest = b""
        self._last_s: Optional[float] = None
        self.notes = {"tegrastats": f"the last line of tegrastats, which prints one every {interval_s:g} s"}
        if total is not None:
            self.notes[PREFIX + TOTAL] = f"sum of the rails {', '.join(total)}. {remark}".strip()

    def read(self, now_s: float) -> Reading:
        """What the last line says, if it is new; nothing between two lines.

        Raises:
            SourceUnavailableError: it ended, or is silent for several intervals.
            ValueError: its line says nothing that is known.
        """
        text = self._newest_line()
        if text is None:
            self._check(now_s)
            return Reading({}, {})
        self._last_s = now_s
        line = parse_line(text)
        if line.is_empty:
            raise ValueError(f"tegrastats printed {text[:80]!r}")
        values = channel_values(line)
        failed: Dict[str, str] = {}
        try:
            values[TOTAL] = choose_total(list(line.rails_mw), self._definition, self._remark).of(line.rails_mw)
        except ValueError as error:
            failed[PREFIX + TOTAL] = str(error)
        return Reading({PREFIX + channel: value for channel, value in values.items()}, failed)

    def _newest_line(self) -> Optional[str]:
        """The last whole line that was printed since the last reading, without waiting for one."""
        while True:
            try:
                block = os.read(self._process.stdout.fileno(), _READ_BYTES)
            except BlockingIOError:
                break
            if not block:
                break
            self._rest += block
        *whole, self._rest = self._rest.split(b"\n")
        lines = [line.decode(errors="replace").strip() for line in whole]
        return next((line for line in reversed(lines) if line), None)

    def _check(self, now_s: float) -> None:
        """Complain where no line means that there will be none."""
        status = self._process.poll()
        if status is not None:
            raise SourceUnavailableError(f"tegrastats ended with status {status}")
        self._last_s = now_s if self._last_s is None else self._last_s
        if now_s - self._last_s > SILENT_INTERVALS * self._interval_s:
            raise SourceUnavailableError(f"tegrastats has printed nothing for {now_s - self._last_s:.1f} s")

    def close(self) -> None:
        """End the process."""
        self._end()


def _end_process(process: subprocess.Popen) -> None:
    process.kill()  # it has nothing to put back
    process.wait()
    process.stdout.close()


def open_source(
    root: str,
    executable: str = "",
    interval_s: float = DEFAULT_INTERVAL_S,
    total: Optional[Sequence[str]] = None,
    remark: str = "",
) -> TegrastatsSource:
    """Start tegrastats.

    Args:
        root: the directory below which `/usr/bin/tegrastats` is looked for.
        executable: another path of it.
        interval_s: how often it is to print a line, in seconds; whole milliseconds count.
        total: labels of the rails that make up the board's total; None where that is not known.
        remark: what is to be known of that total.

    Raises:
        SourceUnavailableError: it is not there or cannot be run.
        InvalidValueError: `interval_s` is below a millisecond.
    """
    interval_ms = round(s_to_ms(interval_s))
    if interval_ms < 1:
        raise InvalidValueError(f"the interval of tegrastats must be 0.001 s or more, got {interval_s}")
    path = executable or os.path.join(root, "usr/bin/tegrastats")
    try:
        process = subprocess.Popen(
            [path, "--interval", str(interval_ms)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # what it complains of becomes the reason in the record
        )
    except OSError as error:
        raise SourceUnavailableError(
            f"tegrastats cannot be run: {error}", "it comes with a Jetson board's L4T"
        ) from error
    return TegrastatsSource(process, interval_s, total, remark)
