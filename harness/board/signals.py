"""What signals do while a machine is changed: they end the run through its finalizers, and never cut those short."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Iterator, List

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ending_signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP (a lost terminal) do what Ctrl-C does: raise KeyboardInterrupt, which runs finalizers.

    A signal that is ignored or handled already stays so. Outside the main thread, where Python delivers none, this does
    nothing.
    """

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")

    changed = [number for number in _ENDING if _in_main_thread() and signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Hold back Ctrl-C, SIGTERM, SIGHUP and the death of a child until the end of the block, then let them act.

    The last because torch handles it by raising where a DataLoader worker has died, as they all do on Ctrl-C.
    """
    if not _in_main_thread():
        yield
        return
    came: List[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD, *_ENDING)}
    for number in before:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
