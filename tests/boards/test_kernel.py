"""The emulated kernel: what it refuses, what it rounds, what it moves."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boards.emulator import Emulator
from boards.kernel import Kernel
from boards.processor_files import CPU
from boards.tree import build_board
from harness.board.cpu_clocks import CpuFrequency
from harness.board.kernel_file import read_int

pytestmark = pytest.mark.one_python

MINIMUM, MAXIMUM = (f"{CPU}/cpufreq/policy0/scaling_{end}_freq" for end in ("min", "max"))


def refused(kernel, path, value):
    """The error number of a write; None where it was taken."""
    try:
        kernel.write(path, value)
    except OSError as error:
        return error.errno
    return None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(wanted=st.lists(st.integers(0, 3_000_000), min_size=1, max_size=4), low=st.booleans())
@pytest.mark.exhaustive
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


@pytest.mark.parametrize(
    ("path", "value", "number"),
    [
        *((MAXIMUM, value, errno.EINVAL) for value in ("", "fast", "-1")),
        (MINIMUM, "2201600", errno.EINVAL),  # above the maximum
        (MAXIMUM, "115200", errno.EINVAL),  # below the minimum
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
    assert kernel.refusals == [(kernel.name_of(path), value, number)]


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


@pytest.mark.parametrize("pair", [("orin-agx", "r36.4"), ("thor", "r38.2")], ids="-".join)
def test_since_r36_a_thermal_governor_overrides_the_fan_unless_it_leaves_it_to_user_space(tmp_path, pair):
    kernel = Kernel(build_board(tmp_path / "root", *pair).root)
    pwm, _, rpm, _ = kernel.state()["places"]["fan"]
    [policy] = kernel.state()["places"]["fan_policies"]
    assert kernel.read(f"{os.path.dirname(policy)}/cdev0/type") == "pwm-fan"
    kernel.set_fan_service(False)
    kernel.write(pwm, 255)
    assert kernel.read(pwm) == "88"
    kernel.write(policy, "user_space")
    kernel.write(pwm, 255)
    assert (kernel.read(pwm), kernel.read(rpm)) == ("255", "5100")
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.write(policy, "userspace")


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
