"""Baseload: which idle states there are, what is recorded of each, and what a socket meter adds."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process
from boards.tree import build_board

from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError, InvalidValueError
from harness.devices.host import HostDevice
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board
from harness.measure import idle
from harness.measure.idle import idle_cases, metered_profile, read_meter_logs
from harness.measure.run import check, run
from harness.store.conditions import comparable_conditions, key
from harness.store.corpora import export
from harness.store.results import ResultsStore
from harness.summary import describe_result, extra_info, format_summary
from tests.named_modes import mode_on

CASE = Case("host", "lenet-mnist", mode_on(), 0, "ssd", 16, CaseSettings(interval_s=0.1))


@pytest.fixture(autouse=True)
def at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(idle, "SETTLING_S", 0.0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def states(case=CASE, **logs):
    return idle_cases([case], 1.0, logs)


@contextlib.contextmanager
def emulated(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    device = JetsonDevice(read_board(tree.path), Configuration(), tree.path)
    with intercepted(Kernel(tree.root)), tools_in_process(tree.root), device.session():
        yield device


def test_each_device_and_power_mode_has_the_three_states_that_it_can_tell_by_itself():
    cases = [
        CASE,
        Case("host", "resnet18-cifar10", mode_on(), 4, "ssd", 16),
        Case("host", "lenet-mnist", mode_on("host", "1c"), 0, "hdd", 1),
    ]
    assert [case.id for case in idle_cases(cases, 60.0, {})] == [
        "host-idle-maxn", "host-idle-quiet-maxn", "host-idle-quiet-maxn-dvfs",
        "host-idle-1c", "host-idle-quiet-1c", "host-idle-quiet-1c-dvfs",
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_idle_states_of_a_board_are_measured_stored_and_shown_and_stay_out_of_the_corpus(tmp_path):
    with emulated(tmp_path) as device:
        named = named_mode(device, "maxn")
        cases = states(Case(device.name, "lenet-mnist", named, 0, "ssd", 16, CaseSettings(interval_s=0.1)))
        for case in cases:
            check(case, device)
        measured = [run(case, device) for case in cases]
    logged, quiet, free = measured
    assert all(profile.provenance == "simulated" and profile.minibatches == [] for profile in measured)
    assert "cpu_other_cores" in logged.telemetry.series
    assert {name[:6] for name in quiet.telemetry.series} == {"power_"}  # nothing else was read
    assert quiet.telemetry.interval_s == pytest.approx(0.1)
    assert [profile.conditions["dvfs"] for profile in measured] == ["off", "off", "on"]
    assert logged.conditions["clock_use"]["gpu_khz"]["residency"] == {"1": 1.0}
    assert free.aggregates["power_mean_mw"] < quiet.aggregates["power_mean_mw"]
    assert quiet.aggregates["power_samples"] >= 8
    assert quiet.aggregates["minibatch_time_ms"] is None
    keys = {key(comparable_conditions(profile.conditions, profile.case, "simulated")) for profile in measured}
    assert len(keys) == 3
    assert "idle for 1 s" in describe_result(quiet)
    assert extra_info(quiet)["task"] == "idle"
    assert f"{device.name}-idle-quiet-maxn-dvfs" in format_summary(measured)
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for profile in measured:
            store.add(profile, {}, "run")
        assert list(store.profiles()) == measured
        with pytest.raises(Exception, match="no profile with a clean minibatch"):
            export(store, tmp_path / "c.csv")


@pytest.mark.exhaustive
def test_an_idle_state_has_the_memory_of_the_process_that_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "harness.measure.recording.MEMORY_FIGURES", ()
    )  # left out of an emulated board's figures otherwise
    with emulated(tmp_path) as device:
        named = named_mode(device, "maxn")
        cases = states(Case(device.name, "lenet-mnist", named, 0, "ssd", 16, CaseSettings(interval_s=0.1)))
        logged, quiet = (run(case, device).aggregates for case in cases[:2])
    for figures in (logged, quiet):
        assert figures["memory_peak_bytes"] == figures["process_memory_peak_bytes"] > 20 * 2**20
        assert figures["gpu_memory_reserved_peak_bytes"] is None
    assert logged["machine_memory_peak_bytes"] is not None
    assert quiet["machine_memory_peak_bytes"] is None  # only power was sampled


def test_without_a_sensor_of_power_there_is_nothing_to_wait_for(tmp_path):
    (tmp_path / "proc").symlink_to("/proc")
    device = HostDevice(Configuration(), tmp_path)
    first, *_ = states(dataclasses.replace(CASE, power_mode=named_mode(device, "maxn")))
    with device.session(), pytest.raises(CannotRunError, match=r"no power sensor.*--socket-meter STATE=FILE\.csv"):
        run(first, device)


@pytest.mark.parametrize("why", ["none", pytest.param("label", marks=pytest.mark.exhaustive), "total"])
@pytest.mark.exhaustive
def test_an_idle_case_asks_for_power_before_it_begins(tmp_path, why):
    """Without a sensor, with a label that cannot be read, and on a Thor whose input has no sensor."""
    if why == "none":
        (tmp_path / "proc").symlink_to("/proc")
        device = HostDevice(Configuration(), tmp_path)
    else:
        tree = build_board(tmp_path / "root", *(("thor", "r38.2") if why == "total" else ("orin-nx", "r36.4")))
        if why == "label":
            [label, *_] = sorted(tree.path.glob("sys/bus/i2c/devices/1-004*/**/in1_label"))
            label.unlink()
            label.mkdir()  # reading it fails, whoever reads
        for chip in tree.path.glob("sys/bus/i2c/devices/*/name"):
            if why == "total" and chip.read_text().startswith("ina238"):
                chip.write_text("none\n")
        device = JetsonDevice(read_board(tree.path), Configuration(), tree.path)
    case = idle_cases([dataclasses.replace(CASE, device=device.name)], 60.0, {})[1]
    with pytest.raises(CannotRunError, match=r"no power sensor: .*--socket-meter STATE=FILE\.csv"):
        check(case, device)
    [power] = [each for each in device.capabilities() if each.name == "measure power"]
    assert not power.available
    if why == "total":
        assert "--socket-meter" in power.hint
        assert "what answers: power_" in power.detail


def test_what_a_socket_meter_recorded_becomes_a_profile_of_its_state(tmp_path):
    path = tmp_path / "wol.csv"
    path.write_text("time_s,power_w\n0,0.9\n20,1.1\n40,1\n")
    logs = read_meter_logs(f"wol={path}")
    case = states(**logs)[-1]
    assert (case.id, case.settings.idle_s) == ("host-idle-wol-maxn", 40.0)
    profile = metered_profile(case, {"power_mode": {}, "device_model": "a board"}, "measured", logs["idle-wol"])
    assert profile.aggregates["power_mean_mw"] == pytest.approx(1000)
    assert profile.aggregates["energy_mwh"] == pytest.approx((1.1 + 1.0) * 20 / 3.6)
    assert profile.conditions["power_source"] == "socket meter"
    assert "at its plug" in profile.conditions["power_definition"]
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(profile, {}, "run")
        assert list(store.profiles()) == [profile]


@pytest.mark.parametrize("text", ["=x.csv", "WoL=x.csv", "wol="])
def test_a_record_without_state_or_file_is_refused(text):
    with pytest.raises(InvalidValueError, match=r"takes STATE=FILE\.csv"):
        read_meter_logs(text)
