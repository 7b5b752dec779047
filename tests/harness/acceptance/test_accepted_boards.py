"""The acceptance test on emulated boards and on the host: all lines, stored one by one, continued where it was left."""

from __future__ import annotations

import pytest
from boards.kernel import Kernel

from harness.acceptance.runner import accept
from harness.core.errors import HarnessError
from tests.harness.acceptance.accepted_board import accepted, built

pytest.importorskip("torch")


def test_lines_that_passed_are_kept_and_the_others_are_checked_again(tmp_path):
    tree = built(tmp_path)
    kernel = Kernel(tree.root)
    rail = next(tree.path.glob("sys/bus/i2c/devices/1-0040/hwmon/hwmon*/in1_input"))
    kernel.garble(str(rail))
    first = accepted(tree, "identity", "rights")
    assert first["counts"] == {"PASS": 1, "FAIL": 1, "SKIP": 0}
    kernel.heal()
    said = []
    second = accepted(tree, "identity", "rights", report=said.append)
    assert second["counts"] == {"PASS": 2, "FAIL": 0, "SKIP": 0}
    assert "identity: PASS, from an earlier call" in said
    assert second["started_at"] == first["started_at"]
    again = accepted(tree, "identity", start_over=True)
    assert again["started_at"] != first["started_at"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": 0}, "scale of times"),
        ({"lines": ["colour"]}, "available: identity"),
        ({"device": "sim:orin-agx"}, "not a device that can be accepted here"),
        ({"root": "/no/such/root"}, "is not a folder"),
    ],
)
def test_what_cannot_be_accepted_is_refused(options, words):
    with pytest.raises(HarnessError, match=words):
        accept(**options)
