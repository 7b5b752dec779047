"""Scatter plots in plain text."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from predictors.choose.recommendation_report import scatter

points = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=40)


def test_corners_are_drawn_where_they_belong_and_labelled():
    drawn = scatter([("*", np.array([1.0, 9.0]), np.array([2.0, 8.0]))], "x", "y", width=20, height=5).splitlines()
    assert drawn[0] == "y"
    assert drawn[1] == "8 |" + " " * 19 + "*"
    assert drawn[5] == "2 |*"
    assert drawn[7].split() == ["1", "9"]
    assert drawn[8].strip() == "x"


def test_the_last_layer_lies_on_top():
    x, y = np.array([1.0]), np.array([1.0])
    assert "X" in scatter([("o", x, y), ("X", x, y)], "x", "y")
    assert "X" not in scatter([("X", x, y), ("o", x, y)], "x", "y")


@given(points)
def test_every_line_fits_and_something_is_drawn(pairs):
    x, y = (np.array(values) for values in zip(*pairs))
    lines = scatter([("*", x, y)], "x", "y", width=30, height=8).splitlines()
    plot = [line.partition("|")[2] for line in lines[1:9]]
    assert max(len(line) for line in plot) <= 30
    assert any("*" in line for line in plot)
