"""RAPL: the total adds what may be added, counters wrap without a spike, and what is missing is never zero."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import rapl
from harness.board.rapl import TOTAL, energy_growth_uj
from harness.core.errors import SourceUnavailableError
from tests.messages import says

RANGE_UJ = 262_143_328_850


def zone(number, name, energy_uj, kind="intel-rapl", range_uj=RANGE_UJ):
    directory = f"sys/class/powercap/{kind}:{number}"
    return {
        f"{directory}/name": name,
        f"{directory}/energy_uj": energy_uj,
        f"{directory}/max_energy_range_uj": range_uj,
    }


def two_sockets(joules=0):
    energy_uj = 10_000_000 + joules * 1_000_000
    return {
        **zone("0", "package-0", energy_uj),
        **zone("0:0", "core", energy_uj),
        **zone("0:1", "dram", energy_uj),
        **zone("1", "package-1", 2 * energy_uj),
        **zone("2", "psys", 3 * energy_uj),
    }


def test_the_total_is_packages_and_dram_and_says_so(tree):
    tree.write(two_sockets())
    source = rapl.open_source(tree.root)
    assert source.read(0.0) == ({}, {})
    tree.write(two_sockets(joules=20))
    assert source.read(2.0).values == {
        "power_package_0_mw": 10_000,
        "power_package_0_core_mw": 10_000,
        "power_package_0_dram_mw": 10_000,
        "power_package_1_mw": 20_000,
        "power_psys_mw": 30_000,
        TOTAL: 40_000,
    }
    assert says(source.notes[TOTAL], "package-0, package-0 dram, package-1", "not added: package-0 core, psys")
    assert "GPU" in source.notes[TOTAL]


PACKAGE_5_J = [zone("0", "package-0", 0), zone("0", "package-0", 5_000_000)]


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        pytest.param(
            zone("1", "dram", 0),
            zone("1", "dram", 1_000_000),
            {"power_dram_mw": 1_000, TOTAL: 6_000},
            id="dram beside the packages is added",
        ),
        pytest.param(
            zone("0", "package-0", 0, kind="intel-rapl-mmio"),
            zone("0", "package-0", 5_000_000, kind="intel-rapl-mmio"),
            {TOTAL: 5_000},
            id="a package that is shown in two ways counts once",
        ),
        pytest.param(
            zone("0", "package-0", RANGE_UJ - 1_000_000),
            zone("0", "package-0", 4_000_000),
            {TOTAL: 5_000},
            id="a counter that wraps gives the power that it counted",
        ),
        pytest.param(
            zone("0:0", "uncore", 7),
            zone("0:0", "uncore", 7),
            {"power_package_0_uncore_mw": 0, TOTAL: 5_000},
            id="an idle graphics unit may draw nothing",
        ),
    ],
)
def test_the_total_of_a_package_of_5_watts(tree, before, after, values):
    tree.write({**PACKAGE_5_J[0], **before})
    source = rapl.open_source(tree.root)
    source.read(0.0)
    tree.write({**PACKAGE_5_J[1], **after})
    assert source.read(1.0).values == {"power_package_0_mw": 5_000, **values}


@given(st.integers(1, 2**40), st.data())
def test_growth_is_right_across_any_wrap(range_uj, data):
    before = data.draw(st.integers(0, range_uj - 1))
    used = data.draw(st.integers(0, range_uj - 1))
    after = (before + used) % range_uj
    assert energy_growth_uj(after - before, range_uj) == used


@pytest.mark.parametrize("range_uj", [None, 5])
def test_a_fall_that_no_wrap_explains_is_an_error(range_uj):
    with pytest.raises(ValueError, match="fell by 10 uJ"):
        energy_growth_uj(-10, range_uj)


@pytest.mark.parametrize("broken", ["", "no number", 10_000_000])
def test_a_domain_without_a_value_takes_the_total_with_it_and_comes_back(tree, broken):
    """Garbage, or a counter that stands still, as in the last case."""
    tree.write(two_sockets())
    source = rapl.open_source(tree.root)
    source.read(0.0)
    tree.write(two_sockets(joules=1))
    tree.write({"sys/class/powercap/intel-rapl:0/energy_uj": broken})
    values, failed = source.read(1.0)
    assert "power_package_1_mw" in values
    assert TOTAL not in values
    assert set(failed) == {"power_package_0_mw", TOTAL}
    assert "power_package_0_mw" in failed[TOTAL]
    (tree.path / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    assert TOTAL in source.read(2.0).failed
    tree.write(two_sockets(joules=1))
    source.read(3.0)
    tree.write(two_sockets(joules=2))
    assert source.read(4.0).values[TOTAL] == 4_000


def test_without_permission_the_way_out_is_the_command(tree, monkeypatch):
    tree.write(two_sockets())
    # Root may read whatever the file's mode says, so the mode alone would not show what others meet.
    monkeypatch.setattr(os, "access", lambda path, mode, effective_ids: not path.endswith(":0/energy_uj"))
    with pytest.raises(SourceUnavailableError) as caught:
        rapl.open_source(tree.root)
    counters = " ".join(
        os.path.join(tree.root, f"sys/class/powercap/intel-rapl:{zone}/energy_uj") for zone in ("0", "0:0")
    )
    assert caught.value.hint == f"until the next boot: `sudo chmod a+r {counters}`"


def test_a_counter_outside_of_the_total_that_may_not_be_read_costs_itself_alone(tree, monkeypatch):
    tree.write({**zone("0", "package-0", 1_000_000), **zone("1", "psys", 1_000_000)})
    psys = f"{tree.root}/sys/class/powercap/intel-rapl:1/energy_uj"
    monkeypatch.setattr(rapl, "may_read", lambda path: path != psys)

    def refused(self):
        if self.path == psys:
            raise PermissionError(errno.EACCES, "Permission denied", psys)
        return 1_000_000 if len(seen) < 1 else 6_000_000

    seen = []
    monkeypatch.setattr(rapl.KeptFile, "read_int", refused)
    source = rapl.open_source(tree.root)
    source.read(0.0)
    seen.append(1)
    values, failed = source.read(1.0)
    assert values["power_total_mw"] == 5_000
    assert "Permission denied" in failed["power_psys_mw"]
