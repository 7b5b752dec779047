"""The tools in a tree: they print what the real ones print, and do to the tree what those do to a board."""

from __future__ import annotations

import io
import re
import subprocess

import pytest

from boards.jetson_clocks_executable import JetsonClocks
from boards.kernel import Kernel
from boards.layouts import PAIRS
from boards.nvpmodel_executable import Nvpmodel
from boards.processor_files import CPU
from boards.tree import boot, build_board
from harness.board.bounded_process import run_bounded
from harness.board.nvpmodel import asks_for_reboot, find_refusal, parse_listing, parse_query
from harness.core.errors import ControlError

pytestmark = pytest.mark.exhaustive


def call(tree, name, *arguments, answer="n\n"):
    folder = "usr/sbin" if name == "nvpmodel" else "usr/bin"
    return run_bounded([f"{tree.root}/{folder}/{name}", *arguments], timeout_s=30, answer=answer)


def first_lines(tree, count, *arguments):
    """The first lines of tegrastats, which runs until it is ended."""
    command = [f"{tree.root}/usr/bin/tegrastats", "--interval", "10", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline().rstrip("\n") for _ in range(count)]
        process.terminate()
    return lines


# -- nvpmodel ---------------------------------------------------------------------------------------------------------


def test_a_mode_is_set_and_named(tmp_path):
    tree = build_board(tmp_path / "root", "xavier-agx", "r32.7")
    kernel = Kernel(tree.root)
    done = call(tree, "nvpmodel", "-m", "3")
    assert (done.status, done.output) == (0, "")
    answer = call(tree, "nvpmodel", "-q").output
    assert answer == "NV Fan Mode:quiet\nNV Power Mode: MODE_30W_ALL\n3\n"
    assert kernel.read(f"{CPU}/online") == "0-7"
    assert kernel.read(f"{CPU}/cpu6/cpufreq/scaling_max_freq") == "1190400"
    assert kernel.read(f"{tree.layout.gpu_devfreq}/max_freq") == "905250000"
    assert kernel.read("sys/kernel/nvpmodel_emc_cap/emc_iso_cap") == "1600000000"


def test_every_mode_can_follow_every_other(tmp_path):
    tree = build_board(tmp_path / "root", "xavier-nx", "r35.4")
    kernel, said = Kernel(tree.root), io.StringIO()
    online = {}
    for preset in (*tree.spec.presets, *reversed(tree.spec.presets)):
        assert Nvpmodel(kernel, said).run(["-m", str(preset.id)]) == 0
        seen = [kernel.read(f"{CPU}/online"), kernel.read(f"{CPU}/cpu0/cpufreq/scaling_max_freq")]
        assert online.setdefault(preset.name, seen) == seen
    assert said.getvalue() == ""


def test_the_listing_has_modes_masks_and_the_default(orin):
    listing = call(orin, "nvpmodel", "-p", "--verbose").output
    assert parse_listing(listing) == [(preset.id, preset.name) for preset in orin.spec.presets]
    assert "TPC_POWER_GATING TPC_PG_MASK 248" in listing
    assert "PM_CONFIG: DEFAULT=MODE_30W(2)" in listing


def test_a_mode_from_another_file_is_set_by_its_id_and_forgotten_with_the_file(orin, tmp_path):
    conf = tmp_path / "custom.conf"
    text = (orin.path / "etc/nvpmodel.conf").read_text()
    custom = re.search(r"< POWER_MODEL ID=2 NAME=MODE_30W >.*?\n\n", text, re.DOTALL)[0]
    custom = custom.replace("ID=2 NAME=MODE_30W", "ID=9 NAME=CUSTOM").replace("MAX_FREQ 1728000", "MAX_FREQ 652800")
    conf.write_text(text.replace("# the mode", custom.replace("MIN_FREQ 729600", "MIN_FREQ 0") + "# the mode"))
    assert call(orin, "nvpmodel", "-f", str(conf), "-m", "9").status == 0
    assert Kernel(orin.root).read(f"{CPU}/cpu0/cpufreq/scaling_max_freq") == "652800"
    assert parse_query(call(orin, "nvpmodel", "-f", str(conf), "-q").output) == ("CUSTOM", 9)
    assert parse_query(call(orin, "nvpmodel", "-q").output) is None
    # Back to a mode whose minimum, which stands before its maximum, is above the present maximum.
    assert call(orin, "nvpmodel", "-m", "2").status == 0
    assert Kernel(orin.root).read(f"{CPU}/cpu0/cpufreq/scaling_min_freq") == "729600"


def test_other_masks_take_a_reboot_that_is_asked_for(orin):
    before = orin.controls()
    done = call(orin, "nvpmodel", "-m", "0")
    assert asks_for_reboot(done.output)
    assert done.output.startswith("NVPM WARN: Golden image context is already created\n")
    assert done.status != 0
    assert orin.controls() == before
    assert call(orin, "nvpmodel", "-m", "0", answer="YES\n").status == 0
    assert Kernel(orin.root).state()["reboot_wanted"] == "MAXN"
    boot(orin.root)
    assert parse_query(call(orin, "nvpmodel", "-q").output) == ("MAXN", 0)
    assert Kernel(orin.root).read(f"{orin.layout.gpu_device}/tpc_pg_mask") == "0"


def test_masks_are_refused_where_nvpmodel_does_not_ask(orin):
    Kernel(orin.root).overlook_context()
    done = call(orin, "nvpmodel", "-m", "0")
    assert re.search(r"Error writing 0 to /sys/\S*tpc_pg_mask: 19", done.output)
    assert "at boot only" in find_refusal(done.output)[1]
    assert parse_query(call(orin, "nvpmodel", "-q").output) == ("MODE_30W", 2)


def test_a_mode_that_is_not_there_is_refused(orin):
    done = call(orin, "nvpmodel", "-m", "77")
    assert done.status != 0
    assert find_refusal(done.output) is not None


def test_it_hangs_when_told_to(orin):
    Kernel(orin.root).hang_nvpmodel()
    with pytest.raises(ControlError, match="did not end"):
        run_bounded([f"{orin.root}/usr/sbin/nvpmodel", "-q"], timeout_s=0.5)


# -- jetson_clocks ----------------------------------------------------------------------------------------------------


def test_clocks_are_pinned_to_the_mode_s_maxima(orin):
    assert call(orin, "jetson_clocks").status == 0
    kernel = Kernel(orin.root)
    assert kernel.read(f"{CPU}/cpu0/cpufreq/scaling_min_freq") == "1728000"
    assert kernel.read(f"{CPU}/cpu0/cpufreq/scaling_cur_freq") == "1728000"
    assert kernel.read(f"{CPU}/cpu0/cpuidle/state1/disable") == "1"
    assert kernel.read(f"{orin.layout.gpu_device}/railgate_enable") == "0"
    assert kernel.read(f"{orin.layout.gpu_devfreq}/cur_freq") == "612000000"
    assert kernel.read("sys/kernel/debug/bpmp/debug/clk/emc/rate") == "3199000000"
    shown = call(orin, "jetson_clocks", "--show").output
    assert "GPU MinFreq=612000000 MaxFreq=612000000 CurrentFreq=612000000\n" in shown
    assert "EMC MinFreq=204000000 MaxFreq=3199000000 CurrentFreq=3199000000 FreqOverride=1\n" in shown
    assert "Active GPU TPCs: 4\n" in shown


def test_restore_brings_back_what_was_stored_but_no_maximum(orin, tmp_path):
    kernel, file = Kernel(orin.root), tmp_path / "stored"
    before = orin.controls()
    assert call(orin, "jetson_clocks", "--store", str(file)).status == 0
    assert not re.search(r"scaling_max_freq|/max_freq|emc/rate", file.read_text())
    maximum = f"{CPU}/cpufreq/policy0/scaling_max_freq"
    kernel.write(maximum, 1036800)
    call(orin, "jetson_clocks")
    assert call(orin, "jetson_clocks", "--restore", str(file)).status == 0
    changed = {name for name, text in orin.controls().items() if before[name] != text}
    assert changed == {maximum}


def test_a_second_store_appends(orin, tmp_path):
    file = tmp_path / "stored"
    for _ in range(2):
        call(orin, "jetson_clocks", "--store", str(file))
    lines = file.read_text().splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]


def test_the_fan_goes_to_its_maximum_and_its_service_stops(orin):
    call(orin, "jetson_clocks", "--fan")
    assert Kernel(orin.root).read("sys/devices/platform/pwm-fan/hwmon/hwmon0/pwm1") == "255"
    assert "control=inactive" in call(orin, "jetson_clocks", "--show").output


def test_the_service_that_sets_the_fan_can_be_stopped(orin):
    assert call(orin, "systemctl", "is-active", "nvfancontrol").output == "active\n"
    assert call(orin, "systemctl", "stop", "nvfancontrol").status == 0
    assert call(orin, "systemctl", "is-active", "nvfancontrol") == (3, "inactive\n")
    assert call(orin, "systemctl", "start", "sshd").status != 0


# -- tegrastats -------------------------------------------------------------------------------------------------------

FORMATS = {
    ("nano", "r32.7"): r"RAM \d+/3932MB .* CPU \[50%@\d+(,50%@\d+){3}\] EMC_FREQ \d+%@\d+ GR3D_FREQ 70%@\d+ .*"
    r"PMIC@50C .*POM_5V_IN \d+/\d+ POM_5V_GPU \d+/\d+ POM_5V_CPU \d+/\d+",
    (
        "xavier-agx",
        "r32.7",
    ): r"RAM .*CPU \[(50%@\d+,){4}off,off,off,off\] .* GPU \d+/\d+ CPU \d+/\d+ SOC .* SYS5V \d+/\d+",
    ("orin-agx", "r35.4"): r"\d\d-\d\d-\d{4} \d\d:\d\d:\d\d RAM .* GR3D_FREQ 70%@\[\d+,\d+\] .*CV0@-256C .*"
    r"VDD_GPU_SOC \d+mW/\d+mW VDD_CPU_CV \d+mW/\d+mW VIN_SYS_5V0 \d+mW/\d+mW VDDQ_VDD2_1V8AO \d+mW/\d+mW",
    ("orin-nano-super", "r36.4"): r"\d\d-.* GR3D_FREQ 70%@\[\d+,\d+\] .*cpu@[\d.]+C .*VDD_IN \d+mW/\d+mW .*",
    ("thor", "r38.2"): r"\d\d-.* CPU \[50%(,50%){13}\]@\d+ .* GR3D_FREQ 70%@\[\d+,\d+,\d+\] .* VIN \d+mW/\d+mW",
}


@pytest.mark.parametrize("pair", FORMATS, ids="-".join)
def test_a_line_has_the_format_of_its_release(tmp_path, pair):
    tree = build_board(tmp_path / "root", *pair)
    Kernel(tree.root).set_load(cpu=0.5, gpu=0.7, mem=0.2)
    first, second = first_lines(tree, 2)
    assert re.fullmatch(FORMATS[pair], first)
    assert re.fullmatch(FORMATS[pair], second)


def test_an_idle_thor_shows_no_load(tmp_path):
    [line] = first_lines(build_board(tmp_path / "root", "thor", "r38.2"), 1)
    assert "GR3D_FREQ @[315,315,315]" in line


def test_power_comes_with_its_mean_since_the_start(orin):
    kernel = Kernel(orin.root)
    command = [f"{orin.root}/usr/bin/tegrastats", "--interval", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        idle = process.stdout.readline()
        kernel.set_load(gpu=1)
        rails = (re.search(r"VDD_GPU_SOC (\d+)mW/(\d+)mW", line) for line in process.stdout)
        busy = next(match for match in rails if int(match[1]) > 1.5 * int(re.search(r"VDD_GPU_SOC (\d+)", idle)[1]))
        process.terminate()
    assert int(busy[2]) < int(busy[1])


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_tools_of_every_board_answer(tmp_path, pair):
    tree = build_board(tmp_path / "root", *pair)
    assert parse_query(call(tree, "nvpmodel", "-q").output)[0] == tree.spec.default_preset
    before = tree.controls()
    stored, said = str(tmp_path / "stored"), io.StringIO()
    for arguments in (["--store", stored], [], ["--restore", stored]):
        assert JetsonClocks(Kernel(tree.root), said).run(arguments) == 0
    assert said.getvalue() == ""
    left = {name for name, text in tree.controls().items() if before[name] != text}
    # Not stored: the memory's rate where it is a file of its own, Thor's governors.
    assert all(name.endswith(("clk_update_rate", "/governor")) for name in left)
