"""Power of a Raspberry Pi 5 by an emulated `vcgencmd`."""

from __future__ import annotations

import pytest

from harness.board.pmic import open_source
from harness.core.errors import SourceUnavailableError

READINGS = """\
  VDD_CORE_A current(7)=2.00000000A
   3V3_SYS_A current(1)=0.10000000A
  VDD_CORE_V volt(15)=0.80000000V
   3V3_SYS_V volt(9)=3.30000000V
     EXT5V_V volt(24)=5.10000000V
      BATT_V volt(25)=0.00000000V
"""


class Pi:
    def __init__(self, root):
        self.root = root
        command = root / "usr/bin/vcgencmd"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\ncat "{root}/$1"\n[ ! -e "{root}/$1.fails" ] || exit 255\n')
        command.chmod(0o755)
        self.says(READINGS)
        self.bits("0x0")

    def says(self, text):
        (self.root / "pmic_read_adc").write_text(text)

    def bits(self, text):
        (self.root / "get_throttled").write_text(f"throttled={text}\n")


@pytest.fixture
def pi(tmp_path):
    return Pi(tmp_path)


def test_the_total_is_the_sum_of_the_rails_and_the_input_is_an_estimate_beside_it(pi):
    source = open_source(str(pi.root))
    values = source.read(0.0).values
    assert values["power_vdd_core_mw"] == pytest.approx(1600)
    assert values["power_3v3_sys_mw"] == pytest.approx(330)
    assert values["power_total_mw"] == pytest.approx(1930)
    assert values["power_input_estimate_mw"] == pytest.approx(1.1451 * 1930 + 587.9)
    assert values["input_v"] == 5.1
    assert "USB" in source.notes["power_total_mw"]


@pytest.mark.parametrize(
    ("before", "now", "states"),
    [
        ("0x0", "0x1", {"under_voltage": 1, "throttled": 0}),
        ("0x50000", "0x50000", {"under_voltage": 0, "throttled": 0}),  # long before the run
        ("0x0", "0x50000", {"under_voltage": 1, "throttled": 1}),  # came and went between two samples
        ("0x0", "0xe0008", {"soft_temperature_limit": 1, "capped_clock": 1}),
    ],
)
def test_what_holds_the_board_down(pi, before, now, states):
    pi.bits(before)
    source = open_source(str(pi.root))
    pi.bits(now)
    values = source.read(0.0).values
    assert {name: values[f"throttle_{name}_state"] for name in states} == states


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        (READINGS.replace("VDD_CORE_V", "OTHER_V"), "no voltage of VDD_CORE"),
        (READINGS.replace("2.00000000A", "0A").replace("0.10000000A", "0A"), "a running board draws more"),
        ("", "does not list VDD_CORE"),
    ],
)
def test_a_reading_that_cannot_be_is_missing_and_the_flags_still_come(pi, readings, said):
    source = open_source(str(pi.root))
    pi.says(readings)
    found = source.read(0.0)
    assert said in found.failed["power_total_mw"]
    assert "power_total_mw" not in found.values
    assert found.values["throttle_throttled_state"] == 0


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        (READINGS.replace("VDD_CORE_V", "OTHER_V"), "no voltage of VDD_CORE"),
        (READINGS.replace("2.00000000A", "2.0.0A"), "could not convert"),
        (READINGS.replace("2.00000000A", "error"), "does not list VDD_CORE"),
        (READINGS + "  VDD_CORE_A current(7)=9.00000000A\n", "lists VDD_CORE twice"),
    ],
    ids=["no-voltage", "no-number", "not-listed", "twice"],
)
def test_a_rail_that_fails_costs_its_channel_and_the_total(pi, readings, said):
    source = open_source(str(pi.root))
    pi.says(readings)
    found = source.read(0.0)
    assert said in found.failed["power_vdd_core_mw"]
    assert said in found.failed["power_total_mw"]
    assert "power_total_mw" not in found.values
    assert found.values["power_3v3_sys_mw"] == pytest.approx(330)
    assert found.values["input_v"] == 5.1
    pi.says(READINGS)
    assert open_source(str(pi.root)).read(0.0).values["power_total_mw"] == pytest.approx(1930)


def test_where_it_cannot_be_asked_the_way_out_is_said(pi, tmp_path):
    (pi.root / "pmic_read_adc.fails").touch()
    with pytest.raises(SourceUnavailableError, match="group `video`"):
        open_source(str(pi.root))
    with pytest.raises(SourceUnavailableError, match="raspi-utils"):
        open_source(str(tmp_path / "other"))
