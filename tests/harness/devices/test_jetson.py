"""Jetson boards as devices, on trees of their files: who they are, their modes, and that everything is put back."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess

import pytest
from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.layouts import PAIRS
from boards.tools_in_process import tools_in_process
from boards.tree import boot, build_board

from harness.board import bounded_process
from harness.board.nvpmodel import Nvpmodel
from harness.board.saved_state import left_behind
from harness.board.source import open_source
from harness.core.cases import DVFS, STATIC, Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError, ControlError
from harness.core.frequency_residency import clock_use
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.profiles import Series, Telemetry
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import Board, read_board
from harness.measure import run as measuring
from harness.measure.run import Bench, conditions
from tests.messages import says
from tests.named_modes import mode_on


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch, tmp_path):
    """Its tools are functions, and a state of the test's own is saved."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with tools_in_process(str(tmp_path / "root")):
        yield


def device_of(tree, **changes):
    return JetsonDevice(read_board(tree.path), Configuration(**changes), tree.path)


@contextlib.contextmanager
def running(tree, device=None):
    """A session on the tree, whose kernel takes the writes; faults end with the block, and then all is as before."""
    device, kernel, before = device or device_of(tree), Kernel(tree.root), tree.controls()
    with intercepted(kernel), device.session():
        try:
            yield device, kernel
        finally:
            kernel.heal()  # also after a failure: a tool that hangs would keep the session from ending
    assert tree.controls() == before


ONE_OF_EACH_RELEASE = {("nano", "r32.7"), ("xavier-nx", "r35.4"), ("orin-nano", "r36.4"), ("thor", "r38.2")}


@pytest.mark.parametrize(
    ("board", "l4t"),
    [pytest.param(*pair, marks=[] if pair in ONE_OF_EACH_RELEASE else pytest.mark.exhaustive) for pair in PAIRS],
)
def test_every_mode_is_read_back_and_the_board_is_as_before(tmp_path, board, l4t):
    with running(build_board(tmp_path / "root", board, l4t)) as (device, kernel):
        space = device.power_mode_space()
        low_high = PowerMode(space.cpu_cores[-1], space.cpu_khz[0], space.gpu_khz[-1], space.mem_khz[0])
        for mode in (space.greatest, next(iter(space)), low_high, space.greatest):
            assert device.apply(mode) == mode
        online = sum(kernel.read(f"sys/devices/system/cpu/cpu{core}/online") != "0" for core in space.cpu_cores[:-1])
        assert online == space.greatest.cpu_cores - 1
    assert left_behind() == []


@pytest.mark.parametrize("pair", [("nano", "r32.7"), ("xavier-nx", "r35.4"), ("orin-nano", "r36.4"), ("thor", "r38.2")])
def test_the_fan_runs_at_full_speed_through_a_session_whatever_else_would_set_it(tmp_path, pair):
    tree = build_board(tmp_path / "root", *pair)
    with running(tree) as (device, kernel):
        case = Case(device.name, "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 16)
        assert device.set_case(case)["fan_set_pwm"] == 255
        kernel.set_load(cpu=1.0, gpu=1.0)
        [spec] = [spec for spec in device.telemetry_sources(tmp_path) if spec.name == "fan"]
        assert open_source(spec, "/").read(0.0).values == {"fan_pwm": 255, "fan_rpm": 5100}
    assert kernel.read(kernel.state()["places"]["fan"][0]) == "66"


@pytest.mark.parametrize(
    ("board", "l4t", "part_number", "jetpack", "modes"),
    [
        ("orin-agx", "r35.4", "p3701-0005", "5.1.2", 18_096),
        ("xavier-agx", "r32.7", "p2888-0004", "4.6.4", 29_232),
        ("orin-nano", "r36.4", "p3767-0005", "6.2", 1_800),
        ("orin-agx", "r39.2", "p3701-0005", "7.2", 15_312),
    ],
)
def test_a_board_is_told_from_its_device_tree_and_its_modes_from_what_it_lists(
    tmp_path, board, l4t, part_number, jetpack, modes
):
    tree = build_board(tmp_path / "root", board, l4t)
    found = read_board(tree.path)
    assert (found.name, found.part_number, found.jetpack) == (board, part_number, jetpack)
    assert len(device_of(tree).power_mode_space()) == modes


@pytest.mark.exhaustive
def test_an_unknown_board_runs_with_what_discovery_finds(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    folder = tree.path / "proc/device-tree"
    (folder / "compatible").write_bytes(b"nvidia,p9999-0000+p9998-0001\0nvidia,tegra999\0")
    (folder / "model").write_bytes(b"Something new\0")
    with running(tree) as (device, _):
        assert device.name == "emulated-jetson"
        assert device.identity().model.startswith("Something new")
        assert device.apply(device.power_mode_space().greatest).gpu_khz == 1_300_500


def test_where_board_and_spec_file_differ_the_board_wins_and_it_is_reported(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    table = next(tree.path.glob("sys/class/devfreq/17000000.gpu/available_frequencies"))
    table.write_text("306000000 408000000\n")
    device = device_of(tree)
    assert device.power_mode_space().gpu_khz == (306_000, 408_000)
    [difference] = [found.detail for found in device.capabilities() if found.name == "agree with its spec file"]
    assert "GPU clocks differ from the spec file" in difference
    assert "1300500" in difference


@pytest.mark.parametrize(("board", "l4t", "input_mw"), [("orin-agx", "r36.4", 108_000), ("xavier-nx", "r35.4", None)])
def test_peaks_are_held_against_the_limits_of_rails_and_of_the_input_where_known(tmp_path, board, l4t, input_mw):
    device = device_of(build_board(tmp_path / "root", board, l4t))
    case = Case(device.name, "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 16)
    limits = device.conditions(case)["power_limits"]
    assert [limit for channel, limit, _ in limits if channel == "power_total_mw"] == ([input_mw] if input_mw else [])
    assert any("curr1_crit" in words for _, _, words in limits)


def test_figures_of_a_tree_never_look_like_those_of_a_board(tmp_path):
    device = device_of(build_board(tmp_path / "root", "orin-agx", "r36.4"))
    assert device.name == "emulated-orin-agx"
    assert device.provenance == "simulated"
    assert device.identity().model.endswith("(emulated)")
    assert JetsonDevice(read_board(tmp_path / "root"), Configuration()).provenance == "measured"


@pytest.mark.parametrize(("clocks", "dvfs"), [(STATIC, "off"), (DVFS, "on")])
@pytest.mark.exhaustive
def test_a_mode_of_the_boards_own_is_set_by_its_name_and_keeps_its_caps(tmp_path, clocks, dvfs):
    with running(build_board(tmp_path / "root", "xavier-agx", "r35.4")) as (device, kernel):
        [(name, mode)] = device.power_modes("mode_30w_all")
        assert device._apply(name, mode, clocks) == (mode, [])
        assert device._control.dvfs() == dvfs
        assert kernel.read("var/lib/nvpmodel/status").endswith("3")
    assert mode.cpu_cores == 8


def test_a_mode_with_other_masks_is_refused_before_anything_is_changed_with_the_way_out(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    case = Case("emulated-orin-agx", "lenet-mnist", mode_on("emulated-orin-agx", "MODE_15W"), 0, "ssd", 16)
    with pytest.raises(CannotRunError, match=r"TPC_PG_MASK 248 .*240.*sudo nvpmodel -m 1"):
        device_of(tree).check(case)


@pytest.mark.exhaustive
def test_where_the_kernel_keeps_other_masks_than_every_mode_has_its_own_count(tmp_path):
    """Orin Nano Super: nvpmodel would ask for a reboot at each mode, and the masks would be the same after it."""
    tree = build_board(tmp_path / "root", "orin-nano-super", "r36.4")
    case = Case("emulated-orin-nano", "lenet-mnist", mode_on("emulated-orin-nano", "15W"), 0, "ssd", 16)
    with running(tree) as (device, _):
        device.check(case)
        [(name, mode)] = device.power_modes("15W")
        assert device._apply(name, mode) == (mode, [])
        assert device.conditions(case)["tpc_mask"] == 0
    hiding = device_of(tree)
    hiding._control.nvpmodel.told = lambda param, argument: None  # nvpmodel is asked, and would not without a reboot
    low = next(iter(hiding.power_mode_space()))
    with running(tree, hiding):
        assert hiding.apply(low) == low


GATED = {"board": "orin-nano-super", "l4t": "r36.4", "fixed_mask": False}


@pytest.mark.exhaustive
def test_an_orin_nano_super_that_shows_its_modes_mask_changes_between_them_by_nvpmodel_without_a_reboot(tmp_path):
    """As reported of two boards: TPC_PG_MASK 240, and from 15W to MAXN_SUPER without a reboot."""
    tree = build_board(tmp_path / "root", mode="15W", **GATED)
    device = device_of(tree)
    found = {each.name: each for each in device.capabilities()}
    assert found["set nvpmodel modes"].available
    assert found["use the whole GPU"] == (
        *("use the whole GPU", True),
        *("TPC mask 240: 4 clusters of the GPU are off, as in every mode of this module", ""),
    )
    with running(tree, device) as (device, kernel):
        for number, name in ((2, "MAXN_SUPER"), (1, "25W"), (0, "15W")):
            named = named_mode(device, name)
            case = Case("emulated-orin-nano", "lenet-mnist", named, 0, "ssd", 16)
            device.check(case)
            assert device._apply(named.name, named.mode) == (named.mode, [])
            assert kernel.read("var/lib/nvpmodel/status").endswith(str(number))
            assert device.conditions(case)["tpc_mask"] == 240
        lowest = next(iter(device.power_mode_space()))
        assert device.apply(lowest) == lowest


def test_the_mode_of_an_orin_nano_super_with_another_mask_is_refused_with_the_way_out_and_no_other(tmp_path):
    """Releases whose conf also has 7W, with six of eight clusters off."""
    tree = build_board(tmp_path / "root", mode="15W", **GATED)
    conf = tree.path / "etc/nvpmodel.conf"
    text = conf.read_text()
    start, end = text.index("< POWER_MODEL ID=0 NAME=15W >"), text.index("< POWER_MODEL ID=1 ")
    low = text[start:end].replace("ID=0 NAME=15W", "ID=3 NAME=7W").replace("TPC_PG_MASK 240", "TPC_PG_MASK 252")
    conf.write_text(text[:start] + low + text[start:])
    device = device_of(tree)
    low = Case("emulated-orin-nano", "lenet-mnist", named_mode(device, "7W"), 0, "ssd", 16)
    with pytest.raises(CannotRunError, match=r"7W .*reboot.*TPC_PG_MASK 252 .*240") as refusal:
        device.check(low)
    assert "sudo nvpmodel -m 3" in refusal.value.hint
    device.check(low.in_mode(named_mode(device, "MAXN_SUPER")))
    boot(tree.root, "7W")
    booted = {each.name: each for each in device_of(tree).capabilities()}["use the whole GPU"]
    assert not booted.available
    assert says(booted.detail, "6 clusters", "since the boot")
    assert says(booted.hint, "15W", "`sudo nvpmodel -m 0`", "YES")


@pytest.mark.parametrize(
    ("l4t", "jetpack"),
    [("36.4.7", "6.2.1"), ("36.5.0", "6.2.2"), ("38.4.0", "7.1"), ("39.2.0", "7.2"), ("99.1.0", None)],
)
def test_a_release_is_named_by_the_jetpack_that_brought_it(l4t, jetpack):
    assert Board((), "", l4t, None).jetpack == jetpack


@pytest.mark.exhaustive
def test_where_the_kernel_does_not_tell_its_mask_sysfs_takes_over_once_nvpmodel_wants_a_reboot(tmp_path, monkeypatch):
    """Orin Nano Super, whose mask may be for root only."""
    monkeypatch.setattr(Nvpmodel, "_other_masks", lambda knob: "")
    with running(build_board(tmp_path / "root", "orin-nano-super", "r36.4")) as (device, _):
        assert device._control.works(device._control.nvpmodel)
        for mode in (next(iter(device.power_mode_space())), device.power_mode_space().greatest):
            assert device.apply(mode) == mode


@pytest.mark.parametrize("holds", [False, True])
def test_thors_clocks_are_held_where_that_is_asked_for(tmp_path, holds):
    tree = build_board(tmp_path / "root", "thor", "r38.2")
    with running(tree, device_of(tree, hold_thor_clocks=holds)) as (device, _):
        space = device.power_mode_space()
        assert (space.gpu_khz != (UNKNOWN_KHZ,)) == holds
        assert device.apply(space.greatest) == space.greatest
        assert device._control.dvfs() == ("off" if holds else "on")
        if holds:  # the media engines have a table of their own, up to 1,692 MHz
            assert space.gpu_khz[-1] == space.greatest.gpu_khz == 1_575_000
            lowest = next(iter(space))
            assert device.apply(lowest) == lowest
            assert device._control.dvfs() == "off"
            source = open_source(next(one for one in device.telemetry_sources(tmp_path) if one.name == "devfreq"), "/")
            now = source.read(0.0).values
            assert now["gpu_khz"] == lowest.gpu_khz
            telemetry = Telemetry(1.0, series={name: Series((0.0, 1.0), (khz, khz)) for name, khz in now.items()})
            assert {name: use["off"] for name, use in clock_use(telemetry, lowest, 0.0, 1.0).items()} == {
                "gpu_khz": 0, "emc_khz": 0
            }  # fmt: skip


@pytest.mark.parametrize("has_files", [True, False])
def test_a_memory_clock_that_is_not_held_is_said(tmp_path, has_files):
    """A kernel without the BPMP's files: nvpmodel caps the clock, and nothing holds it."""
    tree = build_board(tmp_path / "root", "orin-nano", "r36.4")
    if not has_files:
        shutil.rmtree(tree.path / "sys/kernel/debug/bpmp")
    device = device_of(tree)
    with intercepted(Kernel(tree.root)), device.session():
        said = device.set_case(case_of(device, CaseSettings())).get("memory_clock_free", "")
        assert ("no file that holds it" in said) == (not has_files)
        assert "memory_clock_free" not in device.set_case(case_of(device, CaseSettings(clocks=DVFS)))


@pytest.mark.parametrize(
    ("source", "copied", "words"),
    [
        (("orin-agx", "r36.4"), False, "nvpmodel_p3701_0000.conf .*Orin NX.*: it is for p3701"),
        (("orin-agx", "r36.4"), True, "nvpmodel.conf .*Orin NX.*: it switches on cores 8, 9, 10, 11"),
        (("orin-nano", "r36.4"), True, "its modes are those of NVIDIA Jetson Orin Nano"),
    ],
)
def test_the_conf_of_another_board_is_named_and_none_of_its_modes_is_offered(tmp_path, source, copied, words):
    tree = build_board(tmp_path / "root", "orin-nx", "r36.4")
    theirs = build_board(tmp_path / "theirs", *source)
    file = theirs.path / "etc/nvpmodel.conf"
    place = tree.path / "etc/nvpmodel.conf"
    place.unlink()
    if copied:
        place.write_bytes(file.read_bytes())
    else:
        (tree.path / "etc/nvpmodel" / file.resolve().name).write_bytes(file.read_bytes())
        place.symlink_to(f"nvpmodel/{file.resolve().name}")
    device = device_of(tree)
    by_topic = {one.name: one for one in device.capabilities()}
    assert not by_topic["set nvpmodel modes"].available
    assert re.search(words, by_topic["set nvpmodel modes"].detail)
    assert "answer YES" not in str(by_topic)
    assert not {"MODE_15W", "7W"} & set(device._named)
    assert any(re.search(words, difference) for difference in device._differences())


@pytest.mark.parametrize(("board", "l4t"), [pair for pair in PAIRS if pair[0] != "thor"])
def test_the_conf_of_every_board_is_its_own(tmp_path, board, l4t):
    tree = build_board(tmp_path / "root", board, l4t)
    assert device_of(tree)._control.foreign_conf == ""


def test_a_mode_that_waits_for_a_reboot_is_read_where_nvpmodel_keeps_it(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4", mode="MAXN")
    assert device_of(tree)._control.nvpmodel.waiting() == ""
    status = tree.path / "var/lib/nvpmodel/status"
    status.write_text("pmode:0002\n")  # MODE_30W was answered YES, and the board runs on
    device = device_of(tree)
    assert device._control.nvpmodel.waiting() == "MODE_30W"
    knob = {one.name: one for one in device.capabilities()}["set nvpmodel modes"]
    assert (knob.available, knob.hint) == (False, "`sudo reboot`, and run again")
    assert "MODE_30W waits for a reboot" in knob.detail
    assert device.conditions(case_of(device, CaseSettings()))["booted_mode"] is None
    boot(tree.root)
    assert device_of(tree)._control.nvpmodel.waiting() == ""


# -- DVFS: free below the mode's clocks, held again after, and put back at the end -------------------------------------


def case_of(device, settings):
    return Case(device.name, "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 16, settings)


@pytest.mark.parametrize(
    ("board", "l4t"), [("orin-agx", "r35.4"), ("orin-nano", "r36.4"), ("xavier-agx", "r32.7"), ("nano", "r32.7")]
)
@pytest.mark.exhaustive
def test_clocks_of_a_board_are_free_below_the_mode_and_held_again_and_put_back(tmp_path, board, l4t):
    with running(build_board(tmp_path / "root", board, l4t)) as (device, kernel):
        space = device.power_mode_space()
        lowest = next(iter(space))
        middle = space.nearest(PowerMode(*(values[len(values) // 2] for values in space.dimensions)))
        for mode in (space.greatest, middle, lowest, space.greatest):
            assert device._apply(mode.name, mode, DVFS) == (mode, [])
            limits = [*device._control._running().values(), *device._control.gpu.read().values()]
            if mode == lowest:  # there is nothing below
                assert all(low == high for low, high in limits)
            else:
                assert all(low < high for low, high in limits)
                assert device._control.dvfs() == "on"
            assert not device._control.memory.read()["locked"]
        kernel.set_load(cpu=0.2, gpu=0.2, mem=0.2)
        shown_hz = int(kernel.read(f"{kernel.state()['places']['gpu'][0][0]}/cur_freq"))
        assert 0 < shown_hz < space.gpu_khz[-1] * 1000
        assert device._apply(middle.name, middle, STATIC) == (middle, [])
        assert device._control.dvfs() == "off"
        assert device._control.memory.read()["locked"]


@pytest.mark.exhaustive
def test_without_nvpmodel_and_jetson_clocks_clocks_are_freed_and_held_through_sysfs(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r35.4", mode="MAXN")
    for tool in ("usr/sbin/nvpmodel", "usr/bin/jetson_clocks"):
        (tree.path / tool).unlink()
    mode = PowerMode(5, 1_113_600, 624_750, 2_133_000)
    with running(tree) as (device, _):
        for clocks, dvfs in ((DVFS, "on"), (STATIC, "off")):
            assert device._apply(mode.name, mode, clocks) == (mode, [])
            assert device._control.dvfs() == dvfs


def test_what_a_board_would_record_of_clocks_is_known_before_a_case_is_measured(tmp_path):
    device = device_of(build_board(tmp_path / "root", "orin-nano", "r36.4"))
    free, static = (case_of(device, CaseSettings(clocks=clocks)) for clocks in (DVFS, STATIC))
    assert device.conditions(free)["dvfs"] == "on"
    assert device.conditions(static)["dvfs"] == "off"


def test_the_data_set_of_a_board_case_is_made_ready_once(tmp_path, monkeypatch):
    device = device_of(build_board(tmp_path / "root", "orin-nano", "r36.4"))
    made = []
    monkeypatch.setattr(measuring, "make_ready", lambda case, *_: made.append(case) or Bench(case, None, None, {}))
    for settings in (CaseSettings(), CaseSettings(), CaseSettings(seed=1)):
        for _ in range(2):
            conditions(case_of(device, settings), device, made.append)
    assert [case.settings.seed for case in made] == [0, 1]


# -- faults -------------------------------------------------------------------------------------------------------


@pytest.fixture
def nano(tmp_path):
    return build_board(tmp_path / "root", "orin-nano", "r36.4")


@pytest.mark.parametrize("after", range(0, 40, 4))
def test_a_write_refused_half_way_is_an_error_and_everything_is_put_back(nano, after):
    with running(nano) as (device, kernel):
        kernel.refuse("*", after=after, times=2)
        with contextlib.suppress(ControlError):  # some writes are tried again, and then the mode has taken
            mode = next(iter(device.power_mode_space()))
            assert device.apply(mode) == mode


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "pattern", ["*/scaling_max_freq", "*/devfreq/*/max_freq", "*/cpu3/online", "*/nvpmodel_clk_cap/emc"]
)
def test_einval_in_the_middle_of_a_mode_is_an_error_and_everything_is_put_back(nano, pattern):
    with running(nano) as (device, kernel):
        kernel.refuse(pattern, errno.EINVAL)
        with pytest.raises(ControlError, match=r"Invalid argument|did not take|reads back"):
            device.apply(next(iter(device.power_mode_space())))
        assert errno.EINVAL in [refusal.number for refusal in kernel.refusals]


def test_a_core_that_does_not_come_back_is_an_error_that_names_what_is_missing(nano):
    with running(nano) as (device, kernel):
        device.apply(next(iter(device.power_mode_space())))
        kernel.stick_core(5)
        with pytest.raises(ControlError, match=r"cpu5/online|cpu_cores is 5, not 6"):
            device.apply(device.power_mode_space().greatest)


def test_an_nvpmodel_that_hangs_is_ended_and_named(nano, monkeypatch):
    with running(nano) as (device, kernel):
        kernel.hang_nvpmodel()
        monkeypatch.setattr(device._control.nvpmodel, "_timeout_s", 0.1)
        with monkeypatch.context() as patch:
            patch.setattr(bounded_process, "subprocess", subprocess)  # the tools are programs
            with pytest.raises(ControlError, match="did not end within"):
                device.apply(device.power_mode_space().greatest)


def test_two_runs_at_once_are_refused_with_the_other_one_named(nano):
    held = pytest.raises(ControlError, match=f"in use by process {os.getpid()}")
    with running(nano), held, device_of(nano).session():
        pass


@pytest.mark.parametrize(
    ("asked", "flags", "refusal"),
    [
        ("", 0, contextlib.nullcontext()),
        ("asked", 1, contextlib.nullcontext()),
        ("required", 1, pytest.raises(CannotRunError, match=r"25\.0 h .*at most 1 h .*reboot")),
    ],
)
def test_a_board_that_was_not_rebooted_for_the_campaign_says_so(tmp_path, asked, flags, refusal):
    tree = build_board(tmp_path / "root", "nano", "r32.7")
    case = Case("emulated-nano", "lenet-mnist", mode_on("emulated-nano"), 0, "sd", 16)
    device = device_of(tree, fresh_boot=asked)
    (tree.path / "proc/uptime").write_text("90000.00 1.00\n")
    device.check(case)  # booted before the run: its own hours do not count
    assert not [one for one in device.remarks if one.startswith("not-fresh")]
    stale = device_of(tree, fresh_boot=asked)
    assert len([one for one in stale.remarks if says(one, "not-fresh: emulated-nano", "25.0 h")]) == flags
    with refusal:
        stale.check(case)
    [found] = [one for one in stale.capabilities() if one.name == "start fresh"]
    assert found[:3] == ("start fresh", False, "booted 25.0 h ago")
    assert "`sudo reboot`" in found.hint
