"""A limit of time for a block of code, by the alarm of the process."""

from __future__ import annotations

import contextlib
import signal
import threading
from time import monotonic  # a name of its own: tests replace `time.monotonic`
from types import FrameType
from typing import Callable, Iterator, Optional


@contextlib.contextmanager
def interrupted_after(
    limit_s: float, interrupt: Callable[[Optional[FrameType]], None], again_s: float
) -> Iterator[None]:
    """Call `interrupt`, which raises, in this thread after `limit_s`, and each `again_s` from there on.

    It takes the frame in which the block is, and is called again for the case that its error is caught. Signals reach
    the main thread alone: in others there is no limit. Blocks may be nested: an alarm of the caller goes on, and counts
    if it is earlier.
    """
    outer_left_s, outer_interval_s = signal.getitimer(signal.ITIMER_REAL)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or 0 < outer_left_s < limit_s:
        yield
        return
    began_s = monotonic()
    handler_before = signal.signal(signal.SIGALRM, lambda number, frame: interrupt(frame))
    signal.setitimer(signal.ITIMER_REAL, limit_s, again_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler_before)
        if outer_left_s:
            left_s = max(outer_left_s - (monotonic() - began_s), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left_s, outer_interval_s)
