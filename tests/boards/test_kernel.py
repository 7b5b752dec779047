"""The emulated kernel: what it refuses, what it rounds, what it moves."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boards.emulator import Emulator, intercepted
from boards.kernel import Kernel
from boards.power_model import Load, Ratios, domain_power_mw, rail_power_mw
from boards.processor_files import CPU
from boards.tree import boot, build_board
from harness.board.cpu_clocks import CpuFrequency
from harness.board.kernel_file import read_int
from harness.core.errors import ControlError

pytestmark = pytest.mark.exhaustive

MINIMUM, MAXIMUM = (f"{CPU}/cpufreq/policy0/scaling_{end}_freq" for end in ("min", "max"))


def refused(kernel, path, value):
    """The error number of a write; None where it was taken."""
    try:
        kernel.write(path, value)
    except OSError as error:
        return error.errno
    return None


@pytest.mark.parametrize("value", ["", "fast", "1.5", "-1"])
def test_what_is_no_clock_is_refused_and_on_record(kernel, value):
    before = kernel.read(MAXIMUM)
    assert refused(kernel, MAXIMUM, value) == errno.EINVAL
    assert kernel.read(MAXIMUM) == before
    assert kernel.refusals == [(MAXIMUM, value, errno.EINVAL)]


def test_a_minimum_above_the_maximum_is_refused_both_ways(kernel):
    assert refused(kernel, MAXIMUM, 1036800) is None
    assert refused(kernel, MINIMUM, 1113600) == errno.EINVAL
    assert refused(kernel, MAXIMUM, 652800) == errno.EINVAL
    assert (kernel.read(MINIMUM), kernel.read(MAXIMUM)) == ("729600", "1036800")


def test_newer_kernels_clamp_a_minimum_instead(kernel):
    kernel.clamp_minimum()
    kernel.write(MINIMUM, 2201600)
    assert kernel.read(MINIMUM) == kernel.read(MAXIMUM) == "1728000"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(wanted=st.lists(st.integers(0, 3_000_000), min_size=1, max_size=4), low=st.booleans())
def test_limits_are_always_clocks_of_the_table_in_order(orin, kernel, wanted, low):
    for khz in wanted:
        refused(kernel, MINIMUM if low else MAXIMUM, khz)
        minimum, maximum = int(kernel.read(MINIMUM)), int(kernel.read(MAXIMUM))
        assert minimum <= maximum
        assert {minimum, maximum} <= set(orin.spec.clocks.cpu_khz)
        current = read_int(os.path.join(orin.root, CPU, "cpufreq/policy0/scaling_cur_freq"))
        assert minimum <= current <= maximum


def test_a_cap_between_two_clocks_means_the_one_below_or_above_as_the_chip_has_it(tmp_path, kernel, orin):
    gpu = orin.layout.gpu_devfreq
    kernel.write(f"{gpu}/max_freq", 700_000_000)
    assert kernel.read(f"{gpu}/max_freq") == "612000000"
    xavier = build_board(tmp_path / "xavier", "xavier-agx", "r32.7")
    Kernel(xavier.root).write(f"{xavier.layout.gpu_devfreq}/max_freq", 900_000_000)
    assert Kernel(xavier.root).read(f"{xavier.layout.gpu_devfreq}/max_freq") == "905250000"


def test_a_link_and_its_target_are_one_file(kernel, orin):
    kernel.write(f"/{CPU}/cpu2/cpufreq/scaling_max_freq", 1036800)
    kernel.write(f"{orin.root}/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq", 408_000_000)
    assert kernel.read(MAXIMUM) == "1036800"
    assert kernel.read(f"{orin.layout.gpu_devfreq}/max_freq") == "408000000"


@pytest.mark.parametrize(
    ("path", "value", "number"),
    [
        (f"{CPU}/cpufreq/policy0/scaling_governor", "warp", errno.EINVAL),
        (f"{CPU}/cpu0/online", "0", errno.EPERM),
        (f"{CPU}/cpu3/online", "2", errno.EINVAL),
        (f"{CPU}/cpufreq/policy8/scaling_max_freq", "1036800", errno.EINVAL),  # its cores are off
        (f"{CPU}/cpufreq/policy0/scaling_cur_freq", "1036800", errno.EACCES),
        (f"{CPU}/cpu99/online", "1", errno.ENOENT),
        ("sys/kernel/debug/bpmp/debug/clk/emc/max_rate", "204000000", errno.EACCES),
        ("sys/devices/platform/pwm-fan/hwmon/hwmon0/pwm1", "256", errno.EINVAL),
        ("sys/devices/platform/gpu.0/power/control", "off", errno.EINVAL),
        ("sys/devices/platform/gpu.0/tpc_pg_mask", "0", errno.ENODEV),  # a context exists
        ("proc/sys/vm/drop_caches", "9", errno.EINVAL),
    ],
)
def test_every_file_refuses_what_its_kernel_refuses(kernel, path, value, number):
    assert refused(kernel, path, value) == number


def test_masks_change_without_a_context_or_at_boot(kernel, orin):
    mask = f"{orin.layout.gpu_device}/tpc_pg_mask"
    assert refused(kernel, mask, 240) is None  # the booted one
    boot(orin.root, "MAXN")
    assert kernel.read(mask) == "0"
    assert kernel.read(f"{CPU}/online") == "0-11"
    assert refused(kernel, mask, 240) == errno.ENODEV


def test_a_core_that_is_off_has_less_in_sysfs(tmp_path):
    tree = build_board(tmp_path / "root", "xavier-agx", "r32.7", mode="MAXN")
    kernel, before = Kernel(tree.root), tree.controls()
    for core in (6, 7):
        kernel.write(f"{CPU}/cpu{core}/online", 0)
        assert not (tree.path / CPU / f"cpu{core}/topology").exists()
        assert not (tree.path / CPU / f"cpu{core}/cpufreq").exists()
    assert kernel.read(f"{CPU}/online") == "0-5"
    assert kernel.read(f"{CPU}/offline") == "6-7"
    assert "cpu7" not in kernel.read("proc/stat")
    assert [policy.name for policy in CpuFrequency(tree.root).policies()] == ["policy0", "policy2", "policy4"]
    for core in (7, 6):
        kernel.write(f"{CPU}/cpu{core}/online", 1)
    assert tree.controls() == before
    assert (tree.path / CPU / "cpu7/cpufreq/related_cpus").read_text() == "6 7\n"


def test_clocks_power_and_temperature_rise_with_the_load(kernel, orin):
    def seen():
        rails = kernel.state()["places"]["rails"]
        power_mw = sum(
            int(kernel.read(volts)) * int(kernel.read(amps)) / 1000
            for label, _, volts, amps, _, _ in rails
            if label in orin.spec.rails.total
        )
        zone = kernel.read("sys/class/thermal/thermal_zone0/temp")
        gpu = kernel.read(f"{orin.layout.gpu_devfreq}/cur_freq")
        return [int(gpu), int(kernel.read(kernel.state()["places"]["emc"][3])), power_mw, int(zone)]

    idle = seen()
    kernel.set_load(cpu=0.4, gpu=0.6, mem=0.4)
    half = seen()
    kernel.set_load(cpu=1, gpu=1, mem=1)
    full = seen()
    assert all(low < high for low, high in zip(idle, half))
    assert all(low < high for low, high in zip(half, full))
    assert full[0] == 612_000_000  # the mode's cap
    assert full[2] < orin.spec.peak_power_mw


def test_the_memory_clock_moves_unless_it_is_locked(kernel, orin):
    clock = "sys/kernel/debug/bpmp/debug/clk/emc"
    kernel.write(f"{clock}/rate", 2_133_000_000)
    assert kernel.read(f"{clock}/rate") == "204000000"
    kernel.write(f"{clock}/mrq_rate_locked", 1)
    kernel.write(f"{clock}/rate", 2_000_000_000)
    assert kernel.read(f"{clock}/rate") == "2133000000"
    kernel.write("sys/kernel/nvpmodel_clk_cap/emc", 665_600_000)
    assert kernel.read(f"{clock}/rate") == "665600000"


def test_throttling_halves_clocks_and_counts_events(kernel, orin):
    kernel.set_load(cpu=1, gpu=1)
    kernel.throttle(events=3)
    assert kernel.read(f"{orin.layout.gpu_devfreq}/cur_freq") == "306000000"
    # As seen on Thor: scaling_cur_freq is what was asked for, cpuinfo_cur_freq what the chip does.
    assert kernel.read(f"{CPU}/cpufreq/policy0/scaling_cur_freq") == "1728000"
    assert int(kernel.read(f"{CPU}/cpufreq/policy0/cpuinfo_cur_freq")) <= 864_000
    assert "1" in {kernel.read(path) for path in kernel.state()["places"]["throttles"]}
    kernel.stop_throttling()
    assert kernel.read(f"{orin.layout.gpu_devfreq}/cur_freq") == "612000000"
    assert kernel.read(kernel.state()["places"]["over_current"][-1]) == "3"


@given(
    st.tuples(*[st.floats(0, 1) for _ in range(5)]),
    st.tuples(*[st.floats(0, 1) for _ in range(3)]),
    st.integers(0, 4),
    st.integers(0, 2),
)
def test_power_never_falls_when_something_rises_and_stays_below_the_peak(ratios, load, ratio, busy):
    def power(ratios, load):
        return rail_power_mw("VDD_IN", domain_power_mw(60_000, Ratios(*ratios), Load(*load)))

    more = [1.0 if at == ratio else value for at, value in enumerate(ratios)]
    busier = [1.0 if at == busy else value for at, value in enumerate(load)]
    assert power(ratios, load) <= power(more, busier) + 1e-6
    assert power(more, busier) <= 60_000


@pytest.mark.parametrize("pair", [("orin-nx", "r35.4"), ("nano", "r32.7")], ids="-".join)
def test_the_fan_stays_where_it_is_put_only_while_nobody_else_sets_it(tmp_path, pair):
    kernel = Kernel(build_board(tmp_path / "root", *pair).root)
    pwm, _, rpm, automatic = kernel.state()["places"]["fan"]

    def leave_alone(left_alone):
        if automatic:
            kernel.write(automatic, int(not left_alone))
        else:
            kernel.set_fan_service(not left_alone)

    usual = kernel.read(pwm)
    kernel.write(pwm, 255)
    assert kernel.read(pwm) == usual
    leave_alone(True)
    kernel.write(pwm, 255)
    assert kernel.read(pwm) == "255"
    assert int(kernel.read(rpm)) > 4000
    leave_alone(False)
    assert kernel.read(pwm) == usual


def test_cpu_time_grows_with_the_load(kernel):
    def ticks():
        kernel.settle()
        return [int(word) for word in kernel.read("proc/stat").split("\n")[1].split()[1:]]

    kernel.set_load(cpu=1)
    before = ticks()
    with Emulator(kernel.root) as emulator:
        emulator.wait(lambda: ticks()[0] > before[0])
    assert ticks()[3] <= before[3] + 1


def test_knobs_get_the_kernel_s_errors_at_once(kernel, orin):
    knob = CpuFrequency(orin.root)
    with intercepted(kernel):
        knob.set({"policy0": [1036800, 1036800]})
        kernel.refuse("*/scaling_max_freq", errno.EIO)
        with pytest.raises(ControlError, match="Input/output error"):
            knob.apply({"policy0": [115200, 115200]})
        kernel.heal()
        knob.apply({"policy0": [1000000, 1000000]})
        with pytest.raises(ControlError, match="reads back"):
            knob.verify({"policy0": [1000000, 1000000]})


def test_a_write_is_refused_half_way_and_only_then(kernel):
    kernel.refuse("*", errno.EIO, after=1, times=1)
    values = [refused(kernel, f"{CPU}/cpu{core}/online", 0) for core in (3, 2, 1)]
    assert values == [None, errno.EIO, None]


def test_writes_can_be_counted_before_they_happen(kernel, orin):
    seen = []
    with intercepted(kernel, lambda number, path: seen.append((number, os.path.basename(path)))):
        CpuFrequency(orin.root).apply({"policy0": [1036800, 1036800]})
    assert seen == [(0, "scaling_min_freq"), (1, "scaling_max_freq")]


def test_a_core_may_not_come_back(kernel):
    kernel.write(f"{CPU}/cpu7/online", 0)
    kernel.stick_core(7)
    assert refused(kernel, f"{CPU}/cpu7/online", 1) == errno.EIO
    assert kernel.read(f"{CPU}/cpu7/online") == "0"
    kernel.heal()
    assert refused(kernel, f"{CPU}/cpu7/online", 1) is None


def test_sensors_vanish_come_back_and_talk_nonsense(kernel, orin):
    sensor = "sys/class/thermal/thermal_zone0/temp"
    kernel.vanish(sensor)
    kernel.set_load(cpu=1)
    assert not (orin.path / sensor).exists()
    kernel.reappear("sys/devices/virtual/thermal/thermal_zone0/temp")
    assert int(kernel.read(sensor)) > 30_000
    kernel.garble(sensor, "N/A")
    kernel.set_load(cpu=0)
    assert kernel.read(sensor) == "N/A"
    kernel.heal()
    assert int(kernel.read(sensor)) > 30_000


def test_a_read_may_hang(kernel, orin):
    path = orin.path / orin.layout.gpu_devfreq / "cur_freq"
    kernel.hang_reads(str(path))
    assert path.is_fifo()
    kernel.settle()
    kernel.heal()
    assert path.read_text() == "306000000\n"


def test_who_writes_past_the_kernel_is_corrected_within_moments(orin):
    maximum, minimum = orin.path / MAXIMUM, orin.path / MINIMUM
    with Emulator(orin.root) as emulator:
        maximum.write_text("1000000\n")
        emulator.wait(lambda: maximum.read_text() == "960000\n")
        minimum.write_text("2201600\n")
        emulator.wait(lambda: minimum.read_text() == "729600\n")
        (orin.path / CPU / "cpu5/online").write_text("0")
        emulator.wait(lambda: emulator.kernel.read(f"{CPU}/online") == "0-4,6-7")
    assert (MINIMUM, "2201600", errno.EINVAL) in emulator.kernel.refusals
