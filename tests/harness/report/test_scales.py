"""Axes: every value is shown, ticks lie within, ascend, and read differently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.figure import LOG, SYMLOG, Axis
from harness.report.layout import figure_text, nice_step, scale_for, tick_texts, ticks

VALUES = st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=20)


@given(values=VALUES, kind=st.sampled_from(["linear", LOG, SYMLOG]), from_zero=st.booleans())
def test_a_scale_shows_every_value_and_its_ticks_ascend_within_it(values, kind, from_zero):
    scale = scale_for(Axis("time (s)", kind, from_zero=from_zero), values, 40.0, 330.0)
    assert all(39.9 <= scale(value) <= 330.1 for value in values)
    found = ticks(scale)
    assert all(scale.low * (1 - 1e-9) - 1e-9 <= value <= scale.high * (1 + 1e-9) for value in found)
    assert found == sorted(found)
    texts = tick_texts(found)
    assert len(set(texts)) == len(texts)


@given(span=st.floats(min_value=1e-6, max_value=1e9), about=st.integers(min_value=2, max_value=10))
def test_a_step_divides_a_span_into_about_as_many_parts(span, about):
    assert about / 5.1 <= span / nice_step(span, about) <= about * 1.01


@given(values=st.lists(st.floats(min_value=-1e4, max_value=1e6), min_size=1, max_size=20))
def test_a_symlog_axis_shows_zero_and_both_sides_in_order(values):
    scale = scale_for(Axis("a (%)", SYMLOG), values, 0.0, 1.0)
    assert all(-1e-9 <= scale(value) <= 1 + 1e-9 for value in (*values, 0.0))
    assert [scale(value) for value in sorted(values)] == sorted(scale(value) for value in values)
    assert 0.0 in ticks(scale)
    assert ticks(scale) == sorted(ticks(scale))


def test_an_axis_begins_at_zero_unless_told_otherwise():
    assert scale_for(Axis("a (s)"), [90.0, 100.0], 0.0, 1.0).low == 0.0
    assert scale_for(Axis("a (s)", from_zero=False), [90.0, 100.0], 0.0, 1.0).low >= 80.0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.01234, "0.0123"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1,234"), (-2.5, "-2.50")],
)
def test_figures_are_told_with_three_digits(value, text):
    assert figure_text(value) == text
