"""Every knob says whether this user can set it here, and if not what to grant; what a driver refuses is an error."""

from __future__ import annotations

import errno
import os
import re
from typing import Any, Callable, NamedTuple

import pytest

from harness.board import emc as emc_module
from harness.board import governor as governor_module
from harness.board import kernel_file, privileges
from harness.board.cpu import CpuOnline
from harness.board.cpu_clocks import CpuFrequency
from harness.board.emc import Emc
from harness.board.fan import Fan
from harness.board.governor import CPU as CPU_GOVERNORS
from harness.board.governor import DEVFREQ as GPU_GOVERNORS
from harness.board.governor import Governor
from harness.board.gpu import GpuFrequency
from harness.board.page_cache import PageCache
from harness.core.errors import ControlError
from tests.harness.board.kernel_trees import CPU, DEVFREQ, EMC, cpus, emc, gpu, policy
from tests.messages import says

NODE = f"{DEVFREQ}/17000000.ga10b"


def write(files: Callable[[], Any]):
    return lambda tree: tree.write(files())


class Sample(NamedTuple):
    """A knob, a board that has it, what it says there, what it says without, and one of the files that it needs."""

    knob: Callable[[str], Any]
    build: Callable[[Any], None]
    detail: str
    none: str
    file: str


SAMPLES = {
    "cpus": Sample(
        CpuOnline,
        write(lambda: cpus(4, offline=(3,))),
        "3 of 4 CPUs are online",
        "no CPU in .* can be switched",
        f"{CPU}/cpu1/online",
    ),
    "cpu clocks": Sample(
        CpuFrequency,
        write(lambda: {**policy(0, "0 1"), **policy(2, "2 3")}),
        "cpufreq limits of policy0, policy2",
        "no cpufreq policy",
        f"{CPU}/cpufreq/policy2/scaling_max_freq",
    ),
    "cpu governors": Sample(
        lambda root: Governor(root, CPU_GOVERNORS),
        write(lambda: policy(0, "0 1")),
        "policy0: schedutil",
        "no cpufreq policy",
        f"{CPU}/cpufreq/policy0/scaling_governor",
    ),
    "gpu clocks": Sample(
        GpuFrequency,
        gpu,
        "devfreq limits of 17000000.ga10b",
        "shows no GPU; .*once it is powered",
        f"{NODE}/max_freq",
    ),
    "gpu governors": Sample(
        lambda root: Governor(root, GPU_GOVERNORS),
        gpu,
        "17000000.ga10b: nvhost_podgov",
        "shows no GPU; .*once it is powered",
        f"{NODE}/governor",
    ),
    "memory clock": Sample(
        Emc,
        write(emc),
        "clocks in kHz: 204000, 665600, 2133000, 3199000",
        "no memory clock .*mount -t debugfs",
        f"{EMC}/rate",
    ),
    "fan": Sample(
        Fan,
        write(lambda: {"sys/devices/pwm-fan/target_pwm": 80, "sys/class/hwmon/hwmon2/pwm1": 1}),
        "pwm-fan/target_pwm",
        "no fan is in",
        "sys/devices/pwm-fan/target_pwm",
    ),
}

samples = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)


@samples
def test_it_is_available_where_its_files_are(tree, tmp_path, sample):
    sample.build(tree)
    there, absent = (sample.knob(root).available() for root in (tree.root, str(tmp_path / "nothing")))
    assert (there.available, absent.available) == (True, False)
    assert sample.detail in there.detail
    assert re.search(sample.none, f"{absent.detail}; {absent.hint}")


@samples
def test_without_the_right_to_write_the_grant_is_named(tree_in, plain_user, sample):
    tree = tree_in(plain_user / "root")
    sample.build(tree)
    (tree.path / sample.file).chmod(0o444)
    capability = sample.knob(tree.root).available()
    assert not capability.available
    assert says(capability.detail, tree.path / sample.file, "may not be written")
    assert f"`sudo chown $USER {tree.path / sample.file}`" in capability.hint


def test_a_write_that_is_refused_names_file_value_and_grant(tree_in, plain_user):
    tree = tree_in(plain_user / "root")
    tree.write(policy(0, "0"))
    closed = tree.path / CPU / "cpufreq/policy0/scaling_max_freq"
    closed.chmod(0o444)
    knob = CpuFrequency(tree.root)
    with pytest.raises(ControlError, match=f"115200 to {closed} .*Permission denied; .*chown"):
        knob.set(knob.pinned(115200))


READ_ONLY = {**SAMPLES, "page cache": None}


@pytest.mark.parametrize("which", READ_ONLY)
def test_a_read_only_file_system_is_said_and_no_right_is_offered(tree, monkeypatch, which):
    """In most containers /sys and /proc/sys take no writes, not even root's."""
    sample = READ_ONLY[which]
    if sample is None:
        tree.write({"proc/sys/vm/drop_caches": 0})
        knob: Any = PageCache(tree.root)
    else:
        sample.build(tree)
        knob = sample.knob(tree.root)
    read_only = os.statvfs_result((4096, 4096, 1, 1, 1, 1, 1, 1, os.ST_RDONLY, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: read_only)
    monkeypatch.setattr(os, "access", lambda path, mode, **how: mode != os.W_OK)
    monkeypatch.setattr(privileges, "closed", lambda: None)  # sudo would allow the helper, and the kernel not
    found = knob.available()
    assert not found.available
    assert "lies on a read-only file system" in found.detail
    assert "docker run --privileged" in found.hint
    assert "sudo" not in found.detail + found.hint


def test_a_write_that_a_read_only_file_system_refuses_offers_no_right(tree, monkeypatch):
    def refused(path, text):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    read_only = os.statvfs_result((4096, 4096, 1, 1, 1, 1, 1, 1, os.ST_RDONLY, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: read_only)
    monkeypatch.setattr(kernel_file, "_write_text", refused)
    with pytest.raises(ControlError) as error:
        kernel_file.write("/proc/sys/vm/drop_caches", 3)
    assert "Read-only file system" in error.value.what
    assert "docker run --privileged" in error.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu clocks", {"policy0": [729600, 729600]}),
        ("cpu governors", {"policy0": "performance"}),
        ("gpu clocks", {"17000000.ga10b": [306000000, 306000000]}),
        ("memory clock", {"cap_hz": 0, "locked": 1, "rate_hz": 204000000}),
    ],
)
def test_what_a_driver_does_not_take_is_an_error(tree, monkeypatch, name, value):
    SAMPLES[name].build(tree)
    for module in (kernel_file, emc_module, governor_module):
        monkeypatch.setattr(module, "write", lambda path, value: None)
    knob = SAMPLES[name].knob(tree.root)
    with pytest.raises(ControlError, match=f"^{knob.name} was set to .*reads back "):
        knob.set(value)
