"""A socket meter beside a case: its own channel and figures, and meters that lie."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import pytest

from harness.board.socket_meter import MeterSamples
from harness.core.cases import Case
from harness.core.metrics import summarise
from harness.core.profiles import CLEAN, Minibatch, Profile, Series, Telemetry
from harness.measure.flags import find_flags
from harness.measure.run import metered
from harness.store.results import ResultsStore
from tests.messages import says
from tests.named_modes import mode_on

CONDITIONS = {
    "data_in_memory": True, "cache_method": "in memory", "storage_medium": {"kind": "in memory"}, "power_source": "ina",
}  # fmt: skip


class Meter:
    """What a `SocketMeter` found in its file: watts, a sample each second; those of `gap` are not there."""

    path = Path("meter.csv")

    def __init__(self, watt, gap=(), dropped=()):
        self.dropped = dropped
        self._samples = [(100.0 + second, watt * 1e3) for second in range(-2, 63) if second not in gap]

    def during(self, start_s, end_s):
        return MeterSamples(Series(*map(tuple, zip(*self._samples))), self.dropped)


def profile(power_mw=20_000.0):
    case = Case("orin-agx", "lenet-mnist", mode_on("orin-agx"), 0, "ssd", 16)
    made = [Minibatch(0, number, CLEAN, 100.0 + number, 0.0, 900.0, 1000.0) for number in range(60)]
    times_s = tuple(99.5 + second for second in range(63))
    telemetry = Telemetry(1.0, series={"power_total_mw": Series(times_s, (power_mw,) * 63)})
    return Profile(case, "measured", CONDITIONS, made, telemetry, summarise(made, telemetry, 16), [], "now")


def kinds(found):
    return [flag for flag in find_flags(found) if flag.startswith("socket-meter")]


def test_power_at_the_plug_is_a_channel_of_its_own_beside_the_modules():
    before = profile()
    found = metered(before, Meter(31.5))
    figures = found.aggregates
    assert found.telemetry.series["power_total_mw"] == before.telemetry.series["power_total_mw"]
    assert set(found.telemetry.series["power_socket_mw"].values) == {31_500}
    assert "at its plug, as recorded in meter.csv" in found.telemetry.notes["power_socket_mw"]
    assert (figures["power_mw"], figures["socket_power_mw"], figures["socket_peak_mw"]) == (20_000, 31_500, 31_500)
    assert figures["socket_energy_mwh"] == pytest.approx(31_500 * 60 / 3600)
    assert kinds(found) == []


@pytest.mark.parametrize(
    ("meter", "words"),
    [
        (Meter(0.0315), "shows 0.0315 W at the plug, the module alone 20 W"),
        (Meter(31_500), "shows 3.15e+04 W at the plug"),
        (Meter(12), "shows 12 W at the plug, the module alone 20 W"),  # that of another device
    ],
    ids=["watts-as-milliwatts", "milliwatts-as-watts", "another-plug"],
)
def test_a_meter_that_cannot_be_this_devices_is_flagged_and_not_believed(meter, words):
    found = metered(profile(), meter)
    assert "power_socket_mw" not in found.telemetry.series
    assert found.aggregates["socket_power_mw"] is None
    assert words in found.telemetry.missing["power_socket_mw"]
    (flag,) = kinds(found)
    assert words in flag


def test_gaps_leave_no_energy_and_a_flag():
    found = metered(profile(), Meter(31.5, gap=range(20, 40)))
    assert found.aggregates["socket_power_mw"] == 31_500
    assert found.aggregates["socket_energy_mwh"] is None
    assert "have gaps" in kinds(found)[0]


def test_without_a_sensor_of_the_module_the_meter_is_the_only_truth():
    bare = profile()
    bare = dataclasses.replace(bare, aggregates={**bare.aggregates, "power_mw": None})
    assert metered(bare, Meter(5)).aggregates["socket_power_mw"] == 5000


@pytest.mark.training
def test_a_case_is_measured_beside_a_meter_that_is_being_written(run_suite, tmp_path):
    pytest.importorskip("torch")
    path, stopped = tmp_path / "meter.csv", threading.Event()

    def write():
        while not stopped.wait(0.05):
            with path.open("a") as file:
                file.write(f"{time.time():.3f},42.5\n")

    path.write_text(f"time_s,power_w\n{time.time() - 2:.3f},42.5\n{time.time() - 1:.3f},42.5\n")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        arguments = ("--workload", "lenet-mnist", "--workers", "0", "--minibatches", "30", "--results", "r.sqlite")
        done = run_suite(*arguments, "--socket-meter", "meter.csv")
    finally:
        stopped.set()
        writer.join()
    assert "42.5 W at the plug" in done.stdout
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        (stored,) = store.profiles()
    assert stored.aggregates["socket_power_mw"] == 42_500
    assert stored.telemetry.series["power_socket_mw"].values


def test_a_meter_of_a_simulated_board_is_refused(run_suite, tmp_path):
    (tmp_path / "m.csv").write_text("time_s,power_w\n1800000000,1\n1800000001,1\n")
    done = run_suite("--collect-only", "--device", "sim:orin-agx", "--socket-meter", "m.csv", check=False)
    assert "sim:orin-agx is at no plug" in done.stderr + done.stdout


def test_a_sample_that_the_plug_cannot_give_is_left_out_and_flagged():
    meter = Meter(31.5)
    meter._samples[9] = (meter._samples[9][0], 5e9)
    found = metered(profile(), meter)
    assert found.aggregates["socket_peak_mw"] == 31_500
    assert set(found.telemetry.series["power_socket_mw"].values) == {31_500}
    (flag,) = kinds(found)
    assert "(1 of 65 samples)" in flag


def test_a_garbled_line_is_flagged_and_the_others_are_measured():
    found = metered(profile(), Meter(31.5, gap=[20], dropped=[(119.0, "line 24: power_w is 'x', not a number")]))
    assert found.aggregates["socket_power_mw"] == 31_500
    assert found.aggregates["socket_energy_mwh"] == pytest.approx(31_500 * 60 / 3600)
    (flag,) = kinds(found)
    assert says(flag, "meter.csv", "line 24", "power_w is 'x'", "1 of 65 samples")
