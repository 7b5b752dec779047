"""A limit for each test: one that hangs fails, and shows the stack of every thread."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from typing import ContextManager, Iterator

import pytest

from harness.core.alarm import interrupted_after

LIMIT_S = 600.0
"""Seconds of wall time for each phase of a test (set-up, call, teardown): some ten times what the longest takes."""

FLEET_LIMIT_S = 3600.0
"""The same for the tests of the fleet with real daemons, which wait for boards to boot."""

GRACE_S = 60.0
"""How long after the limit a process is ended that Python cannot interrupt."""


def ended_after(seconds: float) -> ContextManager[None]:
    """Within the block, a test that takes longer fails; blocks may be nested.

    What fails it is not an `Exception`: code under test that handles errors would handle it too. It is raised again
    after each further `seconds`, for the case that something handles it all the same.
    """

    def fail(frame: object) -> None:
        faulthandler.dump_traceback(sys.__stderr__)
        pytest.fail(f"it did not end within {seconds:g} s")

    return interrupted_after(seconds, fail, again_s=seconds)


class TimeLimit:
    """A pytest plugin that ends each phase of each test after `limit_s`, and the process where that does not help."""

    def __init__(self, limit_s: float, grace_s: float = GRACE_S) -> None:
        self._limit_s = limit_s
        self._grace_s = grace_s
        self._stderr = os.dup(2)  # not captured yet, so that what a process says as it is ended is seen

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        faulthandler.dump_traceback_later(self._limit_s + self._grace_s, exit=True, file=self._stderr)
        try:
            with ended_after(self._limit_s):
                yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Limit the fixtures."""
        with self._limited():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Limit the test itself."""
        with self._limited():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """Limit what the fixtures do after their `yield`."""
        with self._limited():
            return (yield)

    def pytest_unconfigure(self) -> None:
        """Limit what comes after the tests: a thread that one of them left would keep the process for ever."""
        sys.stdout.flush()
        faulthandler.dump_traceback_later(self._limit_s, exit=True, file=self._stderr)
