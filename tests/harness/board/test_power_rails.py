"""Rails of a Jetson board: every layout of every kernel is found, the total is what its definition says or nothing."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import power_rails
from harness.board.kernel_file import read_text
from harness.board.power_rails import TOTAL, choose_total, open_source
from harness.board.source import SourceSpec
from harness.core.errors import InvalidValueError
from harness.devices.host import source_capability
from tests.messages import says

I2C = "sys/bus/i2c/devices"


ORIN_TOTAL = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")


def iio_chip(address, rails, driver="ina3221x", device="iio:device0"):
    """A sensor as JetPack 4 shows it; `rails` are pairs of label and mW."""
    files = {f"{I2C}/{address}/name": driver}
    for number, (label, power_mw) in enumerate(rails):
        directory = f"{I2C}/{address}/{device}"
        files[f"{directory}/rail_name_{number}"] = label
        files[f"{directory}/in_voltage{number}_input"] = 5000
        files[f"{directory}/in_current{number}_input"] = power_mw // 5
        files[f"{directory}/in_power{number}_input"] = power_mw
    return files


def hwmon_files(directory, rails):
    """The files of a sensor as JetPack 5 shows them; `rails` are triples of label, mV and mA."""
    files = {f"{directory}/name": "ina3221"}
    for number, (label, millivolt, milliampere) in enumerate(rails, start=1):
        files[f"{directory}/in{number}_label"] = label
        files[f"{directory}/in{number}_input"] = millivolt
        files[f"{directory}/curr{number}_input"] = milliampere
    files[f"{directory}/in7_label"] = "sum of shunt voltages"
    files[f"{directory}/in7_input"] = 12345
    return files


def hwmon_chip(address, rails, below="hwmon/hwmon3"):
    return {f"{I2C}/{address}/name": "ina3221", **hwmon_files(f"{I2C}/{address}/{below}", rails)}


def agx_orin():
    return {
        **hwmon_chip("1-0040", [("VDD_GPU_SOC", 20000, 150), ("VDD_CPU_CV", 20000, 50), ("VIN_SYS_5V0", 5000, 800)]),
        **hwmon_chip("1-0041", [("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 5000, 100), ("NC", 0, 0)], "hwmon/hwmon4"),
    }


def test_jetpack_4_gives_power_itself(tree):
    tree.write(iio_chip("6-0040", [("POM_5V_IN", 2130), ("POM_5V_GPU", 80), ("POM_5V_CPU", 280)]))
    source = power_rails.open_source(tree.root)
    assert source.read(0.0) == (
        {"power_pom_5v_in_mw": 2130, "power_pom_5v_gpu_mw": 80, "power_pom_5v_cpu_mw": 280, TOTAL: 2130},
        {},
    )
    assert says(source.notes[TOTAL], "POM_5V_IN", "not added: POM_5V_GPU, POM_5V_CPU")


@pytest.mark.parametrize("below", ["hwmon/hwmon3", "hwmon3", "hwmon/hwmon3/device"])
def test_jetpack_5_gives_voltage_and_current_however_deep(tree, below):
    tree.write(
        hwmon_chip("1-0040", [("VDD_IN", 4984, 1856), ("VDD_CPU_GPU_CV", 4984, 100), ("VDD_SOC", 4984, 300)], below)
    )
    values, failed = power_rails.open_source(tree.root).read(0.0)
    assert values == {
        "power_vdd_in_mw": pytest.approx(9250.304),
        "power_vdd_cpu_gpu_cv_mw": pytest.approx(498.4),
        "power_vdd_soc_mw": pytest.approx(1495.2),
        TOTAL: pytest.approx(9250.304),
    }
    assert failed == {}


def test_the_rail_inside_another_is_recorded_and_not_added(tree):
    tree.write(agx_orin())
    source = power_rails.open_source(tree.root, list(ORIN_TOTAL), "VDDQ is reported to lie inside VIN_SYS_5V0")
    values, failed = source.read(0.0)
    assert values == {
        "power_vdd_gpu_soc_mw": 3000,
        "power_vdd_cpu_cv_mw": 1000,
        "power_vin_sys_5v0_mw": 4000,
        "power_vddq_vdd2_1v8ao_mw": 500,
        TOTAL: 8000,
    }
    assert failed == {}
    assert says(
        source.notes[TOTAL],
        "VDD_GPU_SOC, VDD_CPU_CV, VIN_SYS_5V0",
        "not added: VDDQ_VDD2_1V8AO",
        "VDDQ",
        "inside VIN_SYS_5V0",
    )


def test_a_rail_states_the_step_of_its_sensor_where_the_kernel_names_the_shunt(tree):
    tree.write(agx_orin())
    tree.write({f"{I2C}/1-0040/hwmon/hwmon3/shunt1_resistor": 2000, f"{I2C}/1-0040/hwmon/hwmon3/shunt3_resistor": 5000})
    tree.write({f"{I2C}/1-0040/hwmon/hwmon3/shunt2_resistor": 0})  # not a resistance
    assert power_rails.steps_mw(tree.root) == {"VDD_GPU_SOC": 400, "VIN_SYS_5V0": 40}
    notes = power_rails.open_source(tree.root, ORIN_TOTAL).notes
    assert "in steps of 400 mW" in notes["power_vdd_gpu_soc_mw"]
    assert "steps" not in notes["power_vdd_cpu_cv_mw"]


def test_a_rail_a_little_below_0_counts_as_0_in_the_total_and_keeps_its_reading(tree):
    """Seen on an AGX Orin at idle: one step of the sensor."""
    tree.write(agx_orin())
    tree.write({f"{I2C}/1-0040/hwmon/hwmon3/curr2_input": -20})
    source = power_rails.open_source(tree.root, ORIN_TOTAL)
    values, failed = source.read(0.0)
    assert (values["power_vdd_cpu_cv_mw"], values[TOTAL], failed) == (-400, 7000, {})
    assert "below 0 counts as 0" in source.notes["ina"]


def test_a_rail_far_below_0_is_no_offset_and_leaves_no_total(tree):
    tree.write(agx_orin())
    tree.write({f"{I2C}/1-0040/hwmon/hwmon3/curr2_input": -60})
    values, failed = power_rails.open_source(tree.root, ORIN_TOTAL).read(0.0)
    assert TOTAL not in values
    assert failed == {TOTAL: "its rail VDD_CPU_CV reads -1200 mW, below -1000 mW"}


def test_a_rail_of_the_carrier_may_read_more_than_the_module_that_lies_beside_it(tree):
    tree.write(hwmon_chip("1-0041", [("VDD_IN", 5000, 1000), ("VDD_SYS_CPU", 5000, 200)]))
    tree.write(hwmon_chip("1-0042", [("VDD_MUX", 19000, 600), ("VDD_3V3_SYS", 3300, 400)]))
    values, failed = power_rails.open_source(tree.root).read(0.0)
    assert (values["power_vdd_mux_mw"], values[TOTAL], failed) == (11400, 5000, {})
    tree.write(hwmon_chip("1-0041", [("VDD_IN", 5000, 1000), ("VDD_SYS_CPU", 5000, 1200)]))
    assert says(power_rails.open_source(tree.root).read(0.0).failed[TOTAL], "VDD_SYS_CPU", "6000 mW", "inside")


def test_without_an_input_rail_and_a_definition_there_is_no_total_but_every_rail(tree):
    tree.write(agx_orin())
    source = power_rails.open_source(tree.root)
    values, failed = source.read(0.0)
    assert len(values) == 4
    assert list(failed) == [TOTAL]
    assert says(failed[TOTAL], "none", "VDD_GPU_SOC, VDD_CPU_CV")
    assert TOTAL not in source.notes


@pytest.mark.parametrize(("register", "power_mw"), [({"power1_input": 28_906_000}, 28_906), ({}, 28_900)])
def test_thor_takes_the_input_that_an_ina238_measures_or_whose_voltage_and_current_it_multiplies(
    tree, register, power_mw
):
    tree.write(
        hwmon_chip("2-0040", [("VDD_GPU", 12000, 500), ("VDD_CPU_SOC_MSS", 12000, 400), ("VIN_SYS_5V0", 5000, 900)])
    )
    files = {"in1_input": 20000, "curr1_input": 1445, **register}
    tree.write({f"{I2C}/2-0044/name": "ina238", **{f"{I2C}/2-0044/hwmon/hwmon5/{k}": v for k, v in files.items()}})
    values = power_rails.open_source(tree.root).read(0.0).values
    assert values["power_vin_mw"] == values[TOTAL] == power_mw


def test_a_machine_that_shows_only_the_classes_is_read_too(tree):
    tree.write(hwmon_files("sys/class/hwmon/hwmon3", [("VDD_IN", 5000, 1000)]))
    tree.write({"sys/class/hwmon/hwmon0/name": "pwmfan", "sys/class/hwmon/hwmon0/in1_label": "fan"})
    assert power_rails.open_source(tree.root).read(0.0).values == {"power_vdd_in_mw": 5000, TOTAL: 5000}


def test_later_readings_open_nothing(tree, monkeypatch):
    tree.write(agx_orin())
    source = power_rails.open_source(tree.root, ORIN_TOTAL)
    source.read(0.0)
    monkeypatch.setattr(os, "open", None)
    tree.write({f"{I2C}/1-0040/hwmon/hwmon3/curr3_input": 1000})
    assert source.read(0.05).values[TOTAL] == 9000


def test_links_that_lead_back_up_are_not_followed_and_the_chips_own_interval_is_told(tree):
    tree.write({**hwmon_chip("1-0040", [("VDD_IN", 5000, 1000)]), f"{I2C}/1-0040/hwmon/hwmon3/update_interval": 105})
    tree.link(f"{I2C}/1-0040/hwmon/hwmon3/device", tree.path / I2C / "1-0040")
    source = power_rails.open_source(tree.root)
    assert set(source.read(0.0).values) == {"power_vdd_in_mw", TOTAL}
    assert source.notes["power_vdd_in_mw"].endswith("; renewed every 105 ms")


@pytest.mark.parametrize("broken", ["", "-", "12 mA", None])
def test_a_rail_that_reads_garbage_or_vanishes_takes_the_total_with_it_and_comes_back(tree, broken):
    tree.write(agx_orin())
    source = power_rails.open_source(tree.root, ORIN_TOTAL)
    assert source.read(0.0).values[TOTAL] == 8000
    file = tree.path / I2C / "1-0040/hwmon/hwmon3/curr2_input"
    if broken is None:
        file.unlink()
    else:
        file.write_text(broken)
    values, failed = source.read(0.0)
    assert set(values) == {"power_vdd_gpu_soc_mw", "power_vin_sys_5v0_mw", "power_vddq_vdd2_1v8ao_mw"}
    assert set(failed) == {"power_vdd_cpu_cv_mw", TOTAL}
    assert str(file) in failed["power_vdd_cpu_cv_mw"]
    assert "VDD_CPU_CV gave no value" in failed[TOTAL]
    tree.write({f"{I2C}/1-0040/hwmon/hwmon3/curr2_input": 60})
    assert source.read(1.0).values[TOTAL] == 8200


def test_a_rail_of_the_definition_that_is_not_there_is_never_summed_short(tree):
    tree.write(agx_orin())
    values, failed = power_rails.open_source(tree.root, [*ORIN_TOTAL, "SYS3V3"]).read(0.0)
    assert TOTAL not in values
    assert says(failed[TOTAL], "SYS3V3", "not among", "VDD_GPU_SOC")


def test_a_rail_without_its_files_stands_in_the_record(tree):
    tree.write(agx_orin())
    (tree.path / I2C / "1-0040/hwmon/hwmon3/curr3_input").unlink()
    assert set(power_rails.open_source(tree.root, ORIN_TOTAL).read(0.0).failed) == {"power_vin_sys_5v0_mw", TOTAL}


def test_a_board_that_draws_nothing_is_not_believed(tree):
    tree.write(iio_chip("6-0040", [("POM_5V_IN", 0)]))
    values, failed = power_rails.open_source(tree.root).read(0.0)
    assert values == {"power_pom_5v_in_mw": 0}
    assert "draws more" in failed[TOTAL]


@pytest.mark.parametrize(("inside_mw", "is_believed"), [(2130, True), (2300, True), (8949, False)])
def test_a_total_that_a_rail_inside_it_exceeds_is_not_believed(tree, inside_mw, is_believed):
    tree.write(iio_chip("6-0040", [("POM_5V_IN", 2130), ("POM_5V_GPU", inside_mw), ("POM_5V_CPU", 280)]))
    values, failed = power_rails.open_source(tree.root).read(0.0)
    assert (TOTAL in values, TOTAL in failed) == (is_believed, not is_believed)
    assert values["power_pom_5v_in_mw"] == 2130


def test_equal_labels_hide_no_rail(tree):
    tree.write({**hwmon_chip("1-0040", [("VDD", 5000, 1000)]), **hwmon_chip("1-0041", [("vdd", 5000, 2000)])})
    values = power_rails.open_source(tree.root, ["VDD"]).read(0.0).values
    assert values == {"power_vdd_mw": 5000, "power_vdd_2_mw": 10_000, TOTAL: 5000}


@pytest.mark.parametrize("definition", [[], ["VDD_IN", "VDD_IN"]])
def test_a_definition_that_makes_no_sum_is_refused(definition):
    with pytest.raises(InvalidValueError, match="each once"):
        choose_total(["VDD_IN"], definition)


LABELS = st.lists(st.sampled_from(["A", "B", "C", "D", "VDD_IN", "VIN"]), min_size=1, unique=True)


@given(LABELS, LABELS, st.data())
def test_a_total_is_the_sum_of_its_whole_definition_or_an_error(labels, definition, data):
    powers = data.draw(st.fixed_dictionaries({label: st.integers(1, 60_000) for label in labels}))
    seen = {label: power for label, power in powers.items() if data.draw(st.booleans())}
    total = choose_total(labels, definition)
    is_input = definition[0] in power_rails.INPUT_RAILS
    if set(definition) <= set(seen) and not (
        is_input and max(seen.values()) > power_rails.SKEW * sum(seen[label] for label in definition)
    ):
        assert total.of(seen) == sum(seen[label] for label in definition)
    else:
        with pytest.raises(ValueError, match="rail"):
            total.of(seen)


def test_over_current_limits_of_rails_are_what_the_kernel_shows_at_the_voltage_now(tree):
    limits = {"curr1_crit": 5000, "curr1_max": 3000, "curr2_crit": 0}
    tree.write(hwmon_chip("1-0040", [("VDD_IN", 4984, 1856), ("VDD_SOC", 4984, 300)]))
    tree.write({f"{I2C}/1-0040/hwmon/hwmon3/{name}": value for name, value in limits.items()})
    tree.write(iio_chip("1-0041", [("POM_5V_IN", 2130)]))
    tree.write({f"{I2C}/1-0041/iio:device0/crit_current_limit_0": 4000})
    limits = power_rails.current_limits(tree.root)
    assert [(channel, limit_mw) for channel, limit_mw, _ in limits] == [
        ("power_vdd_in_mw", pytest.approx(24_920)),
        ("power_vdd_in_mw", pytest.approx(14_952)),
        ("power_pom_5v_in_mw", 20_000),
    ]
    assert says(limits[0][2], "over-current", "VDD_IN", "curr1_crit")
    assert says(limits[1][2], "mean", "VDD_IN", "curr1_max")
    assert says(limits[2][2], "over-current", "POM_5V_IN", "crit_current_limit_0")


RAILS = [("VDD_GPU", 5000, 1000), ("VDD_CPU_SOC_MSS", 5000, 200)]


def test_rails_without_a_total_are_no_power_and_the_way_out_is_a_meter(tree):
    """A Thor whose INA238 is not there."""
    tree.write(hwmon_chip("1-0040", RAILS))
    line = source_capability(SourceSpec("ina"), tree.root)
    assert not line.available
    assert "of a Thor only VIN is the total" in line.detail
    assert "power_vdd_gpu_mw" in line.detail
    assert "--socket-meter" in line.hint
    tree.write(hwmon_chip("1-0041", [("VIN", 12_000, 1000)], "hwmon/hwmon4"))
    assert source_capability(SourceSpec("ina"), tree.root).available


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.EAGAIN])
def test_a_label_that_gives_an_error_costs_its_rail_and_asks_for_no_right(tree, monkeypatch, number):
    tree.write(hwmon_chip("1-0040", [("VDD_IN", 5000, 1000), *RAILS]))
    failing = "in2_label"

    def read(path, root):
        if path.endswith(failing):
            raise OSError(number, os.strerror(number), path)
        return read_text(path)

    monkeypatch.setattr(power_rails, "read_sensor", read)
    values, failed = open_source(tree.root, total=["VDD_IN"]).read(0.0)
    assert {"power_vdd_in_mw", "power_vdd_cpu_soc_mss_mw", TOTAL} <= set(values)
    [why] = failed.values()
    assert os.strerror(number) in why
    assert "root" not in source_capability(SourceSpec("ina", {"total": ["VDD_IN"]}), tree.root).hint
