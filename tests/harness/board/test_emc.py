"""The memory clock: held and let go the way of each release, capped, and saved without what moves by itself."""

from __future__ import annotations

import pytest

from harness.board import emc as emc_module
from harness.board.emc import Emc
from harness.core.errors import ControlError, InvalidValueError
from tests.harness.board.kernel_trees import EMC, emc, kernel

NEWER_CAP = "sys/kernel/nvpmodel_clk_cap/emc"
OVERRIDE, BANDWIDTH = "sys/kernel/debug/clk/override.emc", "sys/kernel/debug/tegra_bwmgr"


@pytest.fixture
def orin(tree):
    tree.write(emc())
    return tree


@pytest.fixture
def nano(tree):
    tree.write(
        {
            f"{OVERRIDE}/clk_state": 0,
            f"{OVERRIDE}/clk_rate": 1600000000,
            f"{OVERRIDE}/clk_update_rate": 0,
            f"{BANDWIDTH}/emc_min_rate": 204000000,
            f"{BANDWIDTH}/emc_max_rate": 1600000000,
        }
    )
    return tree


@pytest.fixture
def writes(monkeypatch):
    """The names and values that are written, in their order."""
    written = []
    plain_write = emc_module.write

    def write(path, value, hint=None):
        written.append((path.rpartition("/")[2], value))
        plain_write(path, value)

    monkeypatch.setattr(emc_module, "write", write)
    return written


def test_a_free_clock_is_saved_without_its_rate_which_moves(orin):
    knob = Emc(orin.root)
    saved = knob.read()
    assert saved == {"cap_hz": 0, "locked": 0}
    orin.write({f"{EMC}/rate": 204000000})
    knob.verify(saved)


def test_a_clock_that_it_cannot_have_is_refused_with_those_that_it_can(orin):
    with pytest.raises(InvalidValueError, match="at 800000 kHz; allowed: 204000, 665600, 2133000, 3199000"):
        Emc(orin.root).pinned(800000)


def test_a_cap_that_rises_goes_first_and_one_that_falls_last(orin, writes):
    knob = Emc(orin.root)
    for cap, place in ((665600000, -1), (2133000000, 0), (0, 0), (204000000, -1)):
        writes.clear()
        knob.apply({"cap_hz": cap, "locked": 1, "rate_hz": 204000000})
        assert writes[place] == ("emc_iso_cap", cap)


def test_nano_gets_the_rate_of_its_override_before_it_counts(nano, writes):
    knob = Emc(nano.root)
    before, contents = knob.read(), nano.contents()
    assert before == {"locked": 0, "next_hz": 0}
    knob.apply(knob.pinned(204000))
    assert writes == [("clk_update_rate", 204000000), ("clk_state", 1)]
    nano.write({f"{OVERRIDE}/clk_rate": 204000000})  # as the clock driver does
    assert knob.read() == {"locked": 1, "rate_hz": 204000000}
    knob.restore(before)
    knob.forget(before)
    assert writes[2:] == [("clk_state", 0), ("clk_update_rate", 0)]
    nano.write({f"{OVERRIDE}/clk_rate": 1600000000})
    assert nano.contents() == contents


def test_the_rate_of_an_override_that_is_off_counts_for_nothing(nano, writes):
    knob = Emc(nano.root)
    before = knob.read()
    knob.forget(before)
    assert writes == []
    nano.write({f"{OVERRIDE}/clk_update_rate": 408000000})
    knob.verify(before)
    nano.write({f"{OVERRIDE}/clk_update_rate": ""})  # where it is for writing only
    assert knob.read() == {"locked": 0}


@pytest.mark.parametrize("cap", [3199000000, 2133000000])
def test_newer_releases_cap_it_elsewhere(tree, writes, cap):
    files = emc(cap=cap)
    files[NEWER_CAP] = files.pop("sys/kernel/nvpmodel_emc_cap/emc_iso_cap")
    tree.write(files)
    knob = Emc(tree.root)
    before, contents = knob.read(), tree.contents()
    assert before == {"cap_hz": cap, "locked": 0}
    knob.set({**knob.pinned(665600), "cap_hz": 665600000})
    assert ("emc", 665600000) in writes
    knob.restore(before)
    tree.write({f"{EMC}/rate": 2133000000})  # it moves again
    assert tree.contents() == contents


def test_what_it_cannot_have_is_refused_with_what_it_can(nano):
    for khz in (100000, 1700000):  # without tables the bounds count
        with pytest.raises(InvalidValueError, match="allowed: 204000000 to 1600000000 Hz"):
            Emc(nano.root).pinned(khz)
    with pytest.raises(ControlError, match="has no cap here"):
        Emc(nano.root).apply({"cap_hz": 1, "locked": 0})


def test_without_limits_bwmgr_has_a_governor_only(tree):
    """Thor, in a public image of it."""
    tree.write({"sys/class/devfreq/bwmgr/governor": "x", NEWER_CAP: 4266000000})
    knob = Emc(tree.root)
    assert knob.available().hint == "set the governor of bwmgr"
    assert knob.read() == {"cap_hz": 4266000000}
    with pytest.raises(ControlError, match="a governor only"):
        knob.apply(knob.free())


def test_since_r39_limits_hold_it_and_let_it_go(tree, monkeypatch):
    folder = "sys/class/devfreq/bwmgr"
    limits = {f"{folder}/min_freq": 204_000_000, f"{folder}/max_freq": 3_199_000_000}
    tree.write({**emc(), **limits, f"{folder}/cur_freq": 665_600_000})  # BPMP's files are there still, and do nothing
    knob = Emc(tree.root)
    assert knob.usable().startswith(str(tree.path / folder / "max_freq"))
    before = knob.read()
    assert before == {"cap_hz": 0, "locked": 0, "lowest_hz": 204_000_000, "highest_hz": 3_199_000_000}
    with kernel(monkeypatch) as written:
        knob.set(knob.pinned(2_133_000))
        assert knob.read() == knob.pinned(2_133_000)
        knob.restore(before)
        assert knob.read() == before
        written.clear()
        knob.apply({"locked": 0})
    assert [(path.rpartition("/")[2], value) for path, value in written] == [("min_freq", 0), ("max_freq", 0)]
