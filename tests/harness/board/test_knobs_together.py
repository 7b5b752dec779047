"""All the knobs of a board together are put back from any sequence of settings, with no write that a kernel refuses."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.board.cpu import CpuOnline
from harness.board.cpu_clocks import CpuFrequency
from harness.board.emc import Emc
from harness.board.fan import Fan
from harness.board.governor import Governor
from harness.board.gpu import GpuFrequency
from harness.board.saved_state import preserved
from tests.harness.board.kernel_trees import LEVELS_KHZ, cpus, emc, gpu, kernel, policy


def build(tree):
    tree.write(
        {
            **cpus(4, offline=(2, 3)),
            **policy(0, "0 1"),
            **policy(2, "2 3", limits=(729600, 1497600), governor="userspace"),
            **emc(lock=1),
            "sys/class/hwmon/hwmon3/name": "pwmfan",
            "sys/class/hwmon/hwmon3/pwm1": 77,
        }
    )
    gpu(tree)
    return tree


def knobs_of(root):
    """In the order in which a device sets them."""
    return [
        Fan(root),
        CpuOnline(root),
        CpuFrequency(root),
        Governor(root, "cpu"),
        GpuFrequency(root),
        Governor(root, "devfreq"),
        Emc(root),
    ]


ONLINE, GOVERNORS, PINNED = 1, {3: "policy0", 5: "17000000.ga10b"}, (2, 4, 6)
"""Places in `knobs_of`."""

changes = st.one_of(
    st.tuples(st.just(ONLINE), st.sets(st.integers(1, 3)).map(lambda some: [0, *sorted(some)])),
    st.tuples(st.sampled_from(sorted(GOVERNORS)), st.sampled_from(("performance", "userspace"))),
    st.tuples(st.just(PINNED[0]), st.sampled_from(LEVELS_KHZ)),
    st.tuples(st.just(PINNED[1]), st.sampled_from((114750, 306000, 1300500))),
    st.tuples(st.just(PINNED[2]), st.sampled_from((204000, 665600, 3199000))),
)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("states")
@settings(max_examples=min(40, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(changes, max_size=8))
def test_no_write_of_any_sequence_is_refused_and_all_comes_back(tmp_path_factory, tree_in, monkeypatch, sequence):
    tree = build(tree_in(tmp_path_factory.mktemp("sequence")))
    before = tree.contents()
    knobs = knobs_of(tree.root)
    with kernel(monkeypatch), preserved(knobs, "orin-agx", root=tree.root):
        for index, target in sequence:
            knob = knobs[index]
            if index in PINNED:
                knob.set(knob.pinned(target))
            elif index in GOVERNORS:
                knob.set({GOVERNORS[index]: target})
            else:
                knob.set(target)
    assert tree.contents() == before
