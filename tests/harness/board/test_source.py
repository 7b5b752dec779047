"""Sources are found by name; counters become growth per window, and none of it is lost between the windows."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.source import MIN_WINDOW_S, SOURCES, Counters, SourceSpec, open_source
from harness.core.errors import SourceUnavailableError


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_has_a_function_that_opens_it(name):
    module, _, function = SOURCES[name].partition(":")
    assert callable(getattr(importlib.import_module(f"harness.board.{module}"), function))


def test_a_source_of_another_name_is_refused_with_those_that_are_known():
    with pytest.raises(SourceUnavailableError, match=r"no telemetry source 'powr'; known: .*rapl"):
        open_source(SourceSpec("powr"), "/")


def test_a_counter_that_appears_later_waits_for_its_second_reading():
    counters = Counters()
    counters.growth(0.0, {"reads": 5})
    assert counters.growth(1.0, {"reads": 6, "writes": 7}) == (1.0, {"reads": 1})
    assert counters.growth(2.0, {"reads": 6, "writes": 9}) == (1.0, {"reads": 0, "writes": 2})


steps = st.tuples(st.floats(MIN_WINDOW_S / 10, 10 * MIN_WINDOW_S), st.integers(0, 1000))


@given(st.lists(steps, min_size=1))
def test_windows_add_up_however_close_the_readings_are(readings):
    counters = Counters()
    counters.growth(0.0, {"reads": 0})
    now_s, total = 0.0, 0
    windows = []
    for step_s, step in readings:
        now_s, total = now_s + step_s, total + step
        windows.append(counters.growth(now_s, {"reads": total}))
    # One more reading, far enough away, closes whatever window is open.
    windows.append(counters.growth(now_s + 1.0, {"reads": total}))
    complete = [window for window in windows if window is not None]
    assert sum(growth["reads"] for _, growth in complete) == total
    assert sum(window_s for window_s, _ in complete) == pytest.approx(now_s + 1.0)
    assert all(window_s >= MIN_WINDOW_S for window_s, _ in complete)
