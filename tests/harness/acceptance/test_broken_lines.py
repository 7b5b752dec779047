"""Each line of the acceptance test fails where the tree is broken in what the line is about.

That the same lines pass on a whole tree is shown in `test_accepted_boards.py`.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
from boards.kernel import Kernel

from harness.acceptance import identity, load, own_cost, repeatability
from harness.acceptance.lines import Findings
from harness.acceptance.load import LoadRecording
from harness.acceptance.modes import Shown, disagrees
from harness.acceptance.own_cost import judge_cost
from harness.acceptance.rails import Resolution, judge_meter, judge_rails, plug_against_module, resolution_of
from harness.acceptance.repeatability import judge_runs, repeatability_limit
from harness.board.saved_state import default_state_dir
from harness.board.socket_meter import MeterSamples
from harness.core.board_threshold import CONDITION, path_of
from harness.core.boards import load_board
from harness.core.capability import Capability
from harness.core.configuration import Configuration
from harness.core.errors import DependencyError
from harness.core.profiles import Series, Telemetry
from harness.measure.doctor import device_to_examine
from harness.measure.recording import own_threshold
from tests.harness.acceptance.accepted_board import accepted, add_tegrastats, booted, built, line_of
from tests.harness.store.profile_examples import make_profile
from tests.messages import says

pytest.importorskip("torch")

pytestmark = pytest.mark.training

MISSED = 77  # exit status of a child that would have slept on


@pytest.fixture
def orin(tmp_path):
    return built(tmp_path)


def fails(tree, name, words, **options):
    line = line_of(accepted(tree, name, **options), name)
    assert line["verdict"] == "FAIL", line
    assert words in "; ".join(line["reasons"])
    return line


def when(words, act):
    """A `report` that acts once, at the line of progress with these words."""
    done = []

    def report(line):
        if words in line and not done:
            done.append(line)
            act()

    return report


def rail_file(tree, name):
    return str(next(tree.path.glob(f"sys/bus/i2c/devices/1-0040/hwmon/hwmon*/{name}")))


def test_identity_fails_without_a_release(orin):
    (orin.path / "etc/nv_tegra_release").unlink()
    fails(orin, "identity", "release of L4T is unknown")


def test_identity_fails_where_jtops_service_does_not_answer(orin):
    (orin.path / "run").mkdir()
    (orin.path / "run/jtop.sock").touch()
    fails(orin, "identity", "jtop: ")


def test_identity_fails_with_the_whole_import_error_of_torch(orin, monkeypatch):
    why = "torch: ImportError: libcusparseLt.so.0: cannot open shared object file"
    monkeypatch.setattr(identity, "training_capabilities", lambda uuid: [Capability("training", False, why, "install")])
    fails(orin, "identity", why)


def test_the_load_is_numpys_where_there_is_no_torch(orin, monkeypatch):
    def refuse(module):
        raise DependencyError(f"{module} needs torch")

    monkeypatch.setattr(load, "require", refuse)
    line = line_of(accepted(orin, "rails"), "rails")
    assert says(line["evidence"]["load"], "numpy", "512 x 512", "no torch")


def test_rights_fail_where_a_rail_gives_no_value_twice(orin):
    Kernel(orin.root).garble(rail_file(orin, "in1_input"))
    fails(orin, "rights", "power_vdd_gpu_soc_mw gives no value twice")


def test_rails_fail_where_one_reads_less_than_a_sensor_is_off(orin):
    Kernel(orin.root).garble(rail_file(orin, "curr2_input"), "-300")
    fails(orin, "rails", "VDD_CPU_CV reads -1500 mW, below -1000 mW")


def test_rails_fail_where_tegrastats_has_another_total(orin):
    add_tegrastats(orin)
    script = orin.path / "usr/bin/tegrastats"
    script.write_text(script.read_text().replace("// 1000", "// 900"))
    fails(orin, "rails", "by tegrastats")


def test_modes_fail_where_a_clock_is_not_that_of_the_mode(orin):
    Kernel(orin.root).throttle()
    fails(orin, "modes", "MODE_30W: gpu_khz is 306000, set 612000")


def test_modes_fail_where_the_board_is_not_restored_and_keep_what_they_saw(orin):
    Kernel(orin.root).refuse("*/scaling_max_freq", after=200)
    line = fails(orin, "modes", "is not as it was before")
    assert "MODE_30W" in line["evidence"]


def test_a_line_fails_where_the_board_was_not_restored_before(orin):
    Kernel(orin.root).refuse("*/scaling_max_freq", after=200)
    findings = accepted(orin, "modes", "limits")
    assert "was killed before it could put back" in line_of(findings, "limits")["reasons"][0]


@pytest.mark.exhaustive
def test_hold_fails_where_something_else_turns_the_fan_down(orin):
    kernel = Kernel(orin.root)
    pwm = kernel.state()["places"]["fan"][0]
    fails(orin, "hold", "PWM left 255", report=when("under load", lambda: kernel.garble(pwm, "88")))


def test_hold_fails_where_a_clock_falls_under_load(orin):
    kernel = Kernel(orin.root)
    line = fails(orin, "hold", "gpu_khz left 1300500 kHz", report=when("under load", kernel.throttle))
    assert not any("PWM" in why for why in line["reasons"])


@pytest.mark.exhaustive
def test_own_cost_fails_where_a_file_takes_long_to_read(tmp_path, monkeypatch):
    monkeypatch.setattr(own_cost, "REHEARSED_CORES", own_cost.MOST_CORES)
    tree = built(tmp_path, "nano", "r32.7")
    others = "45:  0  2  0  0  GICv2  81 Level  some-other-interrupt-with-a-long-name\n" * 300_000
    (tree.path / "proc/interrupts").write_text(f"{others}44:  0  2  GICv2 80 Level  soctherm_edp\n")
    fails(tree, "own cost", "cores, at most 0.05 are allowed")


def test_limits_fail_where_the_board_throttles_under_load(orin):
    fails(orin, "limits", "maxn: throttled from", report=when("under load", Kernel(orin.root).throttle))


def test_limits_fail_where_a_trip_cannot_be_true(orin):
    for kind in orin.path.glob("sys/class/thermal/thermal_zone*/trip_point_*_type"):
        if kind.read_text().strip() == "critical":
            kind.with_name(kind.name.replace("_type", "_temp")).write_text("999000\n")
    fails(orin, "limits", "999 C, expected 60 to 130")


def test_restoring_fails_where_a_core_does_not_come_back(orin):
    Kernel(orin.root).stick_core(7)
    fails(orin, "restoring", "restore after kill -9")


def test_restoring_fails_where_a_run_leaves_a_file_behind(orin):
    stray = orin.path / ".jetsonclocks_fan.txt"
    line = fails(orin, "restoring", "after Ctrl-C, folder /", report=when("Ctrl-C", stray.touch))
    assert line["evidence"]["kill -9"].endswith(", 0 differ")


def test_restoring_does_not_miss_a_ctrl_c_that_comes_just_before_a_sleep_begins(orin, monkeypatch):
    """Such a signal ends no sleep: it stays blocked here from when the mode is set to the end of the sleep."""
    write, sleep = os.write, time.sleep

    def write_and_block(file, data):
        if data == b".":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        return write(file, data)

    def sleep_to_its_end(seconds):
        if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            while signal.SIGINT not in signal.sigpending():
                sleep(0.01)
            if seconds > 1:
                os._exit(MISSED)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        sleep(seconds)

    monkeypatch.setattr(os, "write", write_and_block)
    monkeypatch.setattr(time, "sleep", sleep_to_its_end)
    line = line_of(accepted(orin, "restoring"), "restoring")
    assert not any("Ctrl-C" in reason for reason in line["reasons"]), line


def test_the_record_fails_where_a_file_cannot_be_recorded(orin):
    release = orin.path / "etc/nv_tegra_release"
    release.write_bytes(release.read_bytes() + b"\xff\n")  # no text, which a record leaves out
    fails(
        orin,
        "record",
        "doctor on the record: know the board is ['True: NVIDIA Jetson AGX Orin, p3701-0005, L4T unknown",
    )


@pytest.mark.exhaustive
@pytest.mark.long
def test_repeatability_fails_where_power_is_another_after_the_reboot(orin):
    first = line_of(accepted(orin, "repeatability", reboots=True), "repeatability")
    assert first["verdict"] == "SKIP"
    booted(orin, "second")
    Kernel(orin.root).throttle()
    fails(orin, "repeatability", "after the reboot", reboots=True)


# -- judgements of figures that no emulated board has ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "is_wrong"),
    [
        (Shown("CPU_ONLINE", "CORE_3", "0", "1"), True),
        (Shown("CPU_ONLINE", "CORE_3", "1", "1"), False),
        (Shown("GPU", "MAX_FREQ", "522750000", "600000000"), False),  # rounded down by 13 %, to the next clock
        (Shown("GPU", "MAX_FREQ", "420750000", "600000000"), True),
        (Shown("CPU_A78_0", "MAX_FREQ", "1113600", "1120000"), False),
        (Shown("CPU_A78_0", "MAX_FREQ", "729600", "1120000"), True),
        (Shown("DLA0_CORE", "MAX_FREQ", "1408000000", "1400000000"), False),  # no table
        (Shown("GPU", "MAX_FREQ", "306000000", "612000000"), True),
        (Shown("GPU", "MAX_FREQ", "1300500000", "-1"), False),
        (Shown("GPU", "MIN_FREQ", "612000000", "0"), False),  # raised by jetson_clocks
        (Shown("TPC_POWER_GATING", "TPC_PG_MASK", "0", "240"), True),
        (Shown("GPU_POWER_CONTROL_ENABLE", "GPU_PWR_CNTL_EN", "on", "on"), False),
    ],
)
def test_a_value_of_nvpmodel_disagrees_with_its_conf_beyond_rounding(shown, is_wrong):
    assert disagrees(shown, load_board("orin-agx").power_mode_space()) == is_wrong


def test_the_resolution_of_a_sensor_is_its_smallest_step_and_how_often_it_changes():
    times_s = tuple(0.1 * tick for tick in range(8))
    series = Series(times_s, (-398.0, -398.0, 0.0, 0.0, 1592.0, 1592.0, 1990.0, 1990.0))
    resolution = resolution_of([series])
    assert resolution == Resolution(398.0, pytest.approx(0.2), -398.0, 1990.0, 2)
    assert says(resolution.words(), "-398 to 1990 mW", "step 398 mW", "0.2 s", "2 below 0")


def stretch(*values_mw):
    series = Series(tuple(map(float, range(len(values_mw)))), values_mw)
    return LoadRecording(Telemetry(1.0, series={"power_total_mw": series}), 0.0, 100.0, [], "lenet-mnist on cuda")


@pytest.mark.parametrize(
    ("load_mw", "failures"),
    [((9000.0, 9400.0), 0), ((5000.0, 5000.0), 1), ((4000.0, 4200.0), 1)],
)
def test_a_total_that_does_not_follow_the_load_fails(load_mw, failures):
    findings = Findings()
    judge_rails(findings, stretch(5000.0, 5000.0), stretch(*load_mw), is_emulated=False)
    assert len(findings.failures) == failures
    assert all("does not follow the load" in why for why in findings.failures)


def test_a_rehearsal_does_not_judge_whether_the_total_follows_the_load():
    findings = Findings()
    judge_rails(findings, stretch(5000.0, 5000.0), stretch(4000.0, 4200.0), is_emulated=False, is_rehearsal=True)
    assert findings.failures == []
    assert "not judged in a rehearsal" in findings.evidence["load"]


def test_a_rail_that_falls_far_below_0_under_load_fails():
    findings = Findings()
    judge_rails(findings, stretch(5000.0, 5100.0), stretch(9000.0, -1500.0, 9000.0), is_emulated=False)
    [failure] = findings.failures
    assert says(failure, "power_total_mw", "-1500 mW", "-1000 mW")


def test_the_plug_is_a_line_of_the_module():
    assert plug_against_module([13_000, 25_000], [10_000, 20_000]) == pytest.approx((1.2, 1000))
    assert plug_against_module([13_000, 25_000], [10_000, 10_000]) is None


class Meter:
    """Watts at the plug in two stretches, one after the other, and the samples that the file lost."""

    def __init__(self, idle_mw, load_mw):
        self._samples = [MeterSamples(Series((1.0,), (idle_mw,)), ((0.5, "line 7: power_w is 'x'"),))]
        self._samples.append(MeterSamples(Series((2.0,), load_mw), ((1.5, "line 9: power_w is 'y'"),)))

    def during(self, start_s, end_s):
        return self._samples.pop(0)


def test_samples_that_a_meter_lost_are_in_the_evidence_and_no_failure():
    findings = Findings()
    judge_meter(findings, Meter(13_000.0, (25_000.0,)), stretch(10_000.0), stretch(20_000.0))
    assert findings.failures == []
    evidence = findings.evidence["socket meter"]
    assert "1.200 x total + 1000 mW" in evidence
    assert says(evidence, "line 7", "power_w is 'x'", "1 of 2 samples", "line 9")


def test_a_meter_without_any_sample_of_the_load_fails():
    findings = Findings()
    judge_meter(findings, Meter(13_000.0, ()), stretch(10_000.0), stretch(20_000.0))
    [failure] = findings.failures
    assert says(failure, "line 9", "power_w is 'y'", "1 of 1 samples")


@pytest.mark.parametrize(
    ("with_telemetry_ms", "cores", "words"),
    [
        ((101, 101, 101), 0.01, ""),
        ((103, 103, 103), 0.01, "3.0% slower"),
        ((110, 101, 92), 0.01, "noise hides"),
        ((101, 101, 101), 0.06, "0.060 cores"),
    ],
)
def test_telemetry_may_cost_two_percent_of_the_time_and_a_twentieth_of_a_core(with_telemetry_ms, cores, words):
    findings = Findings()
    judge_cost(findings, cores, {True: list(with_telemetry_ms), False: [100, 100, 100]}, is_rehearsal=False)
    assert words in "; ".join(findings.failures)
    assert bool(findings.failures) == bool(words)


def runs_of(*times_ms):
    return [{"minibatch_time_ms": time_ms, "power_mw": 20_000.0, "flags": []} for time_ms in times_ms]


@pytest.mark.parametrize(
    ("times_ms", "again_ms", "words"),
    [
        ((100.0, 100.4, 99.8, 100.1, 100.2), 100.3, ""),
        ((100.0, 100.4, 99.8, 100.1, 100.2), 110.0, "after the reboot"),
        ((100.0, 110.0, 95.0, 104.0, 92.0), 100.0, "two runs of one case differ"),
    ],
)
def test_runs_of_one_case_differ_by_less_than_the_gate_notices(times_ms, again_ms, words):
    findings = Findings()
    judge_runs(findings, runs_of(*times_ms), runs_of(again_ms)[0])
    assert words in "; ".join(findings.failures)
    assert bool(findings.failures) == bool(words)
    assert findings.evidence["minibatch_time_ms"]["threshold (%)"] >= 1.0


@pytest.fixture
def measured_runs(orin, monkeypatch):
    """Line 10 at full scale with profiles of these power figures, none of which is measured."""
    monkeypatch.setattr(repeatability, "RUNS", 3)

    def accept_runs(*powers_mw):
        profiles = (
            make_profile(power_mw=power_mw, conditions={"l4t": "36.4.3", "torch": "2.15.0"}) for power_mw in powers_mw
        )
        monkeypatch.setattr(repeatability, "_measure", lambda context: next(profiles))
        return line_of(accepted(orin, "repeatability", scale=1.0, start_over=True), "repeatability")

    return accept_runs


def test_the_threshold_of_a_board_is_stored_for_its_profiles(orin, measured_runs):
    line = measured_runs(9000.0, 9050.0, 9000.0)
    assert line["verdict"] == "PASS", line
    device = device_to_examine(None, Configuration(), orin.path)
    carried = own_threshold(device)[CONDITION]
    assert carried["shares"] == pytest.approx({"minibatch_time_ms": 0.01, "power_mw": 0.02})
    assert (carried["device"], carried["runs"], carried["software"]["l4t"]) == ("emulated-orin-agx", 3, "36.4.3")
    assert carried["board_instance"] == device.board_instance
    assert line["evidence"]["stored"] == str(path_of(default_state_dir(), device.name, device.board_instance))


def test_a_board_that_fails_has_no_threshold_any_more(orin, measured_runs):
    measured_runs(9000.0, 9050.0, 9000.0)
    assert measured_runs(9000.0, 10_000.0, 9000.0)["verdict"] == "FAIL"
    assert own_threshold(device_to_examine(None, Configuration(), orin.path)) == {}


def test_the_repeatability_limit_is_that_of_the_standard():
    values = [100.0, 101.0, 99.0, 100.5, 99.5]  # standard deviation 0.79 %, Student's t of 4 degrees 2.776
    assert repeatability_limit(values) == pytest.approx(2.776 * 2**0.5 * 0.0079, rel=0.01)
