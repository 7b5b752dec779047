"""Clock limits: the minimum is never above the maximum on the way from any pair to any other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import kernel_file
from harness.board.kernel_file import LimitFiles

limits = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted)


@given(limits, limits)
def test_the_minimum_is_never_above_the_maximum_on_the_way(now, target):
    at = dict(zip(("min", "max"), now))

    def write(name, value):
        at[name] = value
        assert at["min"] <= at["max"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_file, "write", write)
        patch.setattr(kernel_file, "read_int_setting", at.__getitem__)
        LimitFiles("min", "max").write(target)
    assert list(at.values()) == target


def test_a_minimum_that_somebody_left_above_the_maximum_is_mended(tree):
    tree.write({"min": 5, "max": 3})
    files = LimitFiles(*(f"{tree.root}/{name}" for name in ("min", "max")))
    files.write([1, 4])
    assert files.read() == [1, 4]
