"""Durations as people write them."""

from __future__ import annotations

import pytest

from harness.core.errors import InvalidValueError
from harness.core.units import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5min", 300), ("300s", 300), ("1h30min", 5400), ("1.5h", 5400), ("1h 2min 3s", 3723), ("0.5s", 0.5)],
)
def test_a_duration_is_read_in_seconds(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "min", "5m", "-5min", "0s", "5min1h", "1.2.3s", "5 minutes", "infs"])
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidValueError, match=r"not a duration.*5min, 300s, 1h30min"):
        parse_duration(text)
