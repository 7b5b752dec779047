"""The helper for what needs root: does its list, and nothing else whatever is asked of it."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.board import privileged
from harness.board.nvpmodel_conf import parse, write
from harness.board.nvpmodel_modes import custom_conf
from harness.board.privileged import DONE, KINDS, Machine, RefusedError, checked_conf, nodes, perform, untrusted_part
from harness.core.power_modes import PowerMode
from tests.harness.board.kernel_trees import CPU, EMC, cpus, emc, gpu, policy
from tests.harness.board.killed import end
from tests.harness.board.nvpmodel_samples import SAMPLES, TX2
from tests.messages import says
from tests.time_limit import ended_after

OWN_CONF = SAMPLES["orin-agx"][0]


@pytest.fixture(autouse=True)
def usual_rights_of_new_files():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def board(tree):
    """A board with a node of each kind, the programs, and what lies beside the kernel's trees."""
    tree.write(
        {
            **cpus(4),
            **policy(0, "0 1"),
            **policy(2, "2 3"),
            **emc(),
            "sys/kernel/nvpmodel_clk_cap/emc": 3199000000,
            "sys/kernel/debug/clk/override.emc/clk_state": 0,
            "sys/kernel/debug/clk/override.emc/clk_rate": 1,
            "sys/kernel/debug/clk/override.emc/clk_update_rate": 1,
            "sys/kernel/debug/tegra_bwmgr/emc_min_rate": 1,
            "sys/kernel/debug/tegra_bwmgr/emc_max_rate": 1,
            "sys/class/hwmon/hwmon3/name": "pwmfan",
            "sys/class/hwmon/hwmon3/pwm1": 77,
            "sys/class/hwmon/hwmon4/name": "voltage",
            "sys/class/hwmon/hwmon4/pwm1": 5,
            "sys/devices/pwm-fan/target_pwm": 80,
            "sys/devices/pwm-fan/temp_control": 1,
            "proc/sys/vm/drop_caches": 0,
            "proc/sysrq-trigger": "",
            "proc/sys/kernel/random/boot_id": "first",
            "etc/shadow": "secret",
            "etc/nvpmodel.conf": OWN_CONF,
            "var/lib/other": "",
        }
    )
    gpu(tree)
    gpu(tree, "15340000.vic", "vic", place="vic")
    for name in ("usr/sbin/nvpmodel", "usr/bin/jetson_clocks", "usr/bin/systemctl", "usr/bin/nvidia-smi"):
        tree.write({name: f'#!/bin/sh\necho {name} "$@"\necho "$@" >> {tree.root}/log\nenv > {tree.root}/env'})
        (tree.path / name).chmod(0o755)
    return tree


@pytest.fixture
def ask(board):
    """Ask the helper as its command line does, on the board."""

    def ask(*words, given=b""):
        return perform(words, Machine(board.root, os.getuid()), lambda size: given[:size])

    return ask


def refused(ask, board, *words, given=b""):
    """The helper's refusal; nothing was changed."""
    before = board.contents()
    refusal = refusal_of(ask, *words, given=given)
    assert board.contents() == before
    return refusal


def refusal_of(ask, *words, given=b""):
    with pytest.raises((RefusedError, OSError)) as caught:
        ask(*words, given=given)
    return str(caught.value)


UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    ("what", "value", "options"),
    [
        ("gpu-clocks", "210,1695", "-lgc 210,1695"),
        ("gpu-clocks", "reset", "-rgc"),
        ("memory-clocks", "405,405", "-lmc 405,405"),
        ("power-limit", "250.5", "-pl 250.5"),
    ],
)
def test_gpu_settings_go_to_nvidia_smi(ask, board, what, value, options):
    assert ask("gpu", UUID, what, value) == (DONE, f"usr/bin/nvidia-smi -i {UUID} {options}\n")


VALUES = {
    "cpu-online": ("cpu3", "0"),
    "cpufreq-min": ("policy0", "729600"),
    "cpufreq-max": ("policy2", "1497600"),
    "cpufreq-governor": ("policy0", "performance"),
    "devfreq-min": ("17000000.ga10b", "114750000"),
    "devfreq-max": ("17000000.ga10b", "306000000"),
    "devfreq-governor": ("17000000.ga10b", "userspace"),
    "emc-rate": ("-", "665600000"),
    "emc-lock": ("-", "1"),
    "emc-cap": ("-", "2133000000"),
    "emc-clock-cap": ("-", "2133000000"),
    "emc-override": ("-", "1"),
    "emc-override-rate": ("-", "204000000"),
    "page-cache": ("-", "3"),
}

WRITABLE = [name for name, kind in KINDS.items() if kind.is_value]  # each has its line in VALUES


@pytest.mark.parametrize("kind", WRITABLE)
def test_each_kind_is_written_and_read_and_nothing_else_changes(ask, board, kind):
    name, value = VALUES[kind]
    before = board.contents()
    assert ask("write", kind, name, value) == (0, "")
    assert ask("read", kind, name) == (0, f"{value}\n")
    after = board.contents()
    changed = {path for path in after if after[path] != before[path]}
    real = os.path.realpath(nodes(KINDS[kind], board.root)[name])
    assert {os.path.realpath(board.path / path) for path in changed} == {real}


def test_nodes_are_listed_by_name(ask):
    assert ask("list", "cpu-online") == (0, "cpu1\ncpu2\ncpu3\n")
    assert ask("list", "devfreq-max") == (0, "17000000.ga10b\n")
    assert ask("list", "fan-pwm") == (0, "hwmon3\n")
    assert ask("list", "emc-level") == (0, "204000\n2133000\n3199000\n665600\n")


NAMES = [
    "", ".", "..", "/", "-", "*", "policy*", "policy[0]", "policy9", "policy0/", "policy0/.", "policy0/../policy2",
    "../cpufreq/policy0", "../../../../../../etc/shadow", "/etc/shadow", "/sys/devices/system/cpu/cpufreq/policy0",
    "policy0\n", " policy0", "policy0\0", "policy\uff10", "policy0;id", "$(id)", "--", "--help", "-m", "cpu0", "cpu",
    "cpu01", "cpu+1", "cpu\u0661", "cpuidle", "hwmon4", "15340000.vic", "policy" + "0" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("kind", WRITABLE)
def test_a_name_that_was_not_found_is_refused(ask, board, kind):
    (found, value), before = VALUES[kind], board.contents()
    for name in set(NAMES) - {found}:
        assert "there is no such" in refusal_of(ask, "write", kind, name, value)
        assert "there is no such" in refusal_of(ask, "read", kind, name)
    assert board.contents() == before


BAD_VALUES = [
    "", " ", "1 ", " 1", "+1", "-1", "-0", "01", "1.0", "1e3", "0x1", "1_0", "1\n", "1\n1", "1\r", "1\0", "\uff11",
    "\u0661", "\u00b2", "nan", "true", "99999999999", "9" * 5000, "1;id", "$(id)", "../1", "/etc/shadow", "--help",
    "per*", "ondemand", "performance\n", "performance userspace", "-",
]  # fmt: skip


OUT_OF_RANGE = {
    "cpu-online": ["2"], "cpufreq-min": ["115199", "2201601", "0"], "cpufreq-max": ["115199", "2201601"],
    "devfreq-max": ["10000000001"], "emc-rate": ["0"], "page-cache": ["0", "4"],
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITABLE)
def test_a_value_that_is_none_or_out_of_range_is_refused(ask, board, kind):
    before = board.contents()
    for value in BAD_VALUES + OUT_OF_RANGE.get(kind, []):
        assert "may not be set" in refusal_of(ask, "write", kind, VALUES[kind][0], value)
    assert board.contents() == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.sampled_from(WRITABLE), st.text(max_size=12) | st.from_regex(r"[-+0-9\s_.]+"))
@example("cpu-online", "1\n")
@pytest.mark.exhaustive
def test_what_is_written_is_a_plain_number_or_a_word_of_the_kernels(board, ask, kind, value):
    name = VALUES[kind][0]
    try:
        ask("write", kind, name, value)
    except RefusedError:
        return
    assert value == str(int(value)) if value.lstrip("-").isdigit() else value in ("performance", "userspace")
    assert ask("read", kind, name) == (0, f"{value}\n")


@pytest.mark.parametrize(
    "words",
    [
        (), ("",), ("--help",), ("write",), ("gpu", "0", "gpu-clocks", "210,1695"),
        ("gpu", UUID + "\n", "gpu-clocks", "reset"), ("gpu", UUID, "persistence", "1"),
        ("gpu", UUID, "gpu-clocks", "210"), ("gpu", UUID, "gpu-clocks", "210,1695 -pl 500"),
        ("gpu", UUID, "power-limit", "reset"), ("gpu", UUID, "power-limit", "-250"),
        ("write", "cpu-online", "cpu3"), ("write", "cpu-online", "cpu3", "0", "0"),
        ("write", "emc-level", "204000", "1"), ("write", "emc-highest", "-", "1"),
        ("write", "bwmgr-highest", "-", "1"), ("write", "/etc/shadow", "-", "1"),
        ("write", "../cpu-online", "cpu3", "0"), ("read", "emc-level", "204000"), ("list", "sys/devices/*"),
        ("list", "*"), ("exec", "id"), ("perform", "x"), ("nvpmodel", "own"), ("nvpmodel", "/tmp/evil.conf", "0"),
        ("nvpmodel", "../../tmp/evil", "0"), ("nvpmodel", "custom-3", "0"), ("nvpmodel", "custom-1", "0"),
        ("nvpmodel", "own", "-1"), ("nvpmodel", "own", "0 -f /tmp/evil"), ("nvpmodel", "own", "-f"),
        ("nvpmodel", "own", "\uff10"), ("nvpmodel", "own", "10000"), ("jetson-clocks", "--store"),
        ("jetson-clocks", "/tmp/evil"), ("jetson-clocks", "store", "/tmp/evil"), ("jetson-clocks", "restore"),
        ("fan", "stop"), ("fan", "full", "0"), ("fan", "back", "nvfancontrol"), ("fan-service", "stop"),
        ("write", "fan-pwm", "hwmon3", "0"), ("write", "fan-target", "-", "0"),
        ("write", "fan-automatic", "-", "0"), ("store-conf", "custom-3"), ("store-conf", "../custom-1"),
        ("store-conf", "/etc/cron.d/x"), ("forget-conf", "../other"), ("forget-conf", "jetson_clocks"),
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_refused(ask, board, words):
    """Nor what was not stored before: custom-1, jetson-clocks restore."""
    refused(ask, board, *words, given=OWN_CONF.encode())


def outside(board, tmp_path, name="victim"):
    victim = tmp_path / name
    victim.write_text("as it was\n")
    return victim


def test_a_node_that_is_a_link_is_not_followed(ask, board, tmp_path):
    victim = outside(board, tmp_path)
    node = board.path / CPU / "cpufreq/policy0/scaling_min_freq"
    node.unlink()
    node.symlink_to(victim)
    refused(ask, board, "write", "cpufreq-min", "policy0", "729600")
    refused(ask, board, "read", "cpufreq-min", "policy0")
    assert victim.read_text() == "as it was\n"


@pytest.mark.parametrize("place", ["beside", "etc", "proc"])
def test_a_folder_that_leads_out_of_the_kernels_trees_is_refused(ask, board, tmp_path, place):
    folder = {"beside": tmp_path / "evil", "etc": board.path / "etc/evil", "proc": board.path / "proc/evil"}[place]
    shutil.copytree(board.path / CPU / "cpufreq/policy0", folder)
    (board.path / CPU / "cpufreq/policy7").symlink_to(folder)
    assert "leads out" in refused(ask, board, "write", "cpufreq-min", "policy7", "729600")
    assert "leads out" in refused(ask, board, "read", "cpufreq-min", "policy7")
    assert (folder / "scaling_min_freq").read_text() == "115200\n"


def test_a_tree_that_is_itself_a_link_elsewhere_is_refused(ask, board, tmp_path):
    shutil.move(str(board.path / "sys"), str(tmp_path / "moved"))
    (board.path / "sys").symlink_to(tmp_path / "moved")
    assert "leads out" in refused(ask, board, "write", "emc-lock", "-", "1")
    assert (tmp_path / "moved" / EMC[4:] / "mrq_rate_locked").read_text() == "0\n"


def test_a_node_that_is_no_file_is_refused(ask, board):
    node = board.path / EMC / "mrq_rate_locked"
    node.unlink()
    os.mkfifo(str(node))
    with pytest.raises((RefusedError, OSError)):  # and does not wait for a reader
        ask("write", "emc-lock", "-", "1")


def test_clocks_of_thor_are_set_too(ask, board):
    gpu(board, "gpu-gpc-0", "", place="thor")
    assert ask("write", "devfreq-max", "gpu-gpc-0", "612000000") == (0, "")
    assert ask("write", "devfreq-governor", "gpu-gpc-0", "performance") == (0, "")


# Confs: nvpmodel writes as root to the paths that they name.

CUSTOM = OWN_CONF.replace(
    "< PM_CONFIG", "< POWER_MODEL ID=9 NAME=CUSTOM >\nCPU_ONLINE CORE_1 0\nGPU MAX_FREQ 408000000\n\n< PM_CONFIG"
)


@pytest.mark.parametrize("board_name", sorted(SAMPLES))
def test_a_custom_mode_of_each_board_is_taken(board_name):
    text, _, booted = SAMPLES[board_name]
    own = parse(text).conf
    conf = custom_conf(own, booted, PowerMode(2, 1113600, 408000, 665600), "CUSTOM", model_id=40)
    assert parse(checked_conf(text, write(conf, "A comment"))).conf == conf


def test_a_stored_conf_is_used_by_its_name(ask, board):
    assert ask("store-conf", "custom-1", given=CUSTOM.encode()) == (0, "")
    stored = board.path / "var/lib/jetwatt/custom-1.conf"
    assert parse(stored.read_text()).conf == parse(CUSTOM).conf
    assert (stored.stat().st_mode & 0o777, stored.parent.stat().st_mode & 0o777) == (0o644, 0o755)
    assert ask("nvpmodel", "custom-1", "9") == (0, f"usr/sbin/nvpmodel -f {stored} -m 9\n")
    assert ask("nvpmodel", "own", "2")[1].endswith("etc/nvpmodel.conf -m 2\n")
    assert ask("forget-conf", "custom-1") == (0, "")
    assert not stored.exists()
    assert ask("forget-conf", "custom-1") == (0, "")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("/sys/devices/system/cpu/cpu1/online", "/etc/shadow"),
        lambda text: text.replace(
            "< POWER_MODEL ID=9", "< PARAM TYPE=FILE NAME=X >\nA /etc/shadow\n< POWER_MODEL ID=9"
        ),
        lambda text: f"< PARAM TYPE=FILE NAME=CPU_ONLINE >\nCORE_1 /etc/shadow\n{text}",
        lambda text: text.replace("CORE_1 0\nGPU", "CORE_1 0\nX A 1\nGPU"),
        lambda text: text.replace("GPU MAX_FREQ 408000000", "GPU MAX_FREQ 408000000 /etc/shadow"),
        lambda text: text.replace("GPU MAX_FREQ 408000000", "GPU MAX_FREQ /etc/shadow"),
        lambda text: text.replace("GPU MAX_FREQ 408000000", "GPU MAX_FREQ 1;id"),
        lambda text: text.replace("GPU MAX_FREQ 408000000", "GPU MAX_FREQ 999999999999"),
        lambda text: text.replace("GPU MAX_FREQ 408000000", "GPU /etc/shadow 1"),
        lambda text: text.replace("GPU MAX_FREQ 408000000", "GPU MAX_FREQ\x0b1"),
        lambda text: text.replace("GPU MAX_FREQ 408000000", "GPU MAX_FREQ 1\u2028CPU_ONLINE X /etc/shadow"),
        lambda text: text.replace("ID=9 NAME=CUSTOM", "ID=9 NAME=CUSTOM EXTRA=1"),
        lambda text: text.replace("ID=9", "ID=-9"),
        lambda text: text.replace("NAME=CUSTOM", "NAME=../CUSTOM"),
        lambda text: text.replace("< POWER_MODEL ID=9", "< power_model ID=9"),
        lambda text: text.replace("NAME=CUSTOM >", "NAME=CUSTOM > CPU_ONLINE CORE_1 0"),
        lambda text: text.replace("< PM_CONFIG DEFAULT=2 >", "< PM_CONFIG DEFAULT=9 >"),
        lambda text: text.replace("< PARAM TYPE=FILE NAME=CPU_ONLINE >", "< TYPE=FILE PARAM NAME=CPU_ONLINE >"),
        lambda text: f"{text}\n< INCLUDE /etc/shadow >\n",
        lambda text: f"/etc/shadow\n{text}",
        lambda text: text.replace("CORE_1 0\nGPU", "CORE_1 0\0\nGPU"),
        lambda text: text + "#" * 300_000,
    ],
)
def test_a_conf_that_reaches_further_than_the_boards_own_is_refused(ask, board, change):
    assert change(CUSTOM) != CUSTOM
    refused(ask, board, "store-conf", "custom-1", given=change(CUSTOM).encode())


@pytest.mark.parametrize(
    ("board_name", "line"),
    [
        ("xavier-nx", "VDDIN_OC_LIMIT WARN 99999"),  # TYPE=HWMON
        ("tx2", "VDDIN_OC_LIMIT WARN 99999"),  # TYPE=FILE on older releases
        ("orin-agx", "TPC_POWER_GATING TPC_PG_MASK 3"),
        ("orin-agx", "CPU_ONLINE CORE_1 -1"),
        ("orin-agx", "THROTTLE TRIP 120"),
    ],
)
def test_limits_that_protect_the_board_keep_the_values_of_its_own_modes(board_name, line):
    own = SAMPLES[board_name][0] if board_name in SAMPLES else TX2
    section = "< PARAM TYPE=FILE NAME={} >\n{} /sys/x\n\n< POWER_MODEL"
    own = own.replace("< POWER_MODEL", section.format("THROTTLE", "TRIP"), 1)
    if board_name == "tx2":
        own = own.replace("< POWER_MODEL", section.format("VDDIN_OC_LIMIT", "WARN"), 1)
        own = own.replace("\n\n# the mode of", "\nVDDIN_OC_LIMIT WARN 3000\n\n# the mode of")
    custom = own.replace("< PM_CONFIG", f"< POWER_MODEL ID=40 NAME=CUSTOM >\n{line}\n\n< PM_CONFIG")
    with pytest.raises(RefusedError, match=r"neither .*clock nor .*conf"):
        checked_conf(own, custom)
    if "OC_LIMIT" in line:
        checked_conf(own, custom.replace("99999", "3000"))


def test_what_a_comment_hides_is_not_stored(ask, board):
    assert ask("store-conf", "custom-1", given=f"# /etc/shadow\r# x\n{CUSTOM} # /etc/shadow".encode())[0] == 0
    assert "shadow" not in (board.path / "var/lib/jetwatt/custom-1.conf").read_text()


def test_an_own_conf_that_others_may_change_is_not_believed(ask, board):
    (board.path / "etc/nvpmodel.conf").chmod(0o666)
    assert "nvpmodel.conf may be changed by others" in refused(
        ask, board, "store-conf", "custom-1", given=CUSTOM.encode()
    )


# Programs, and the files that they get.


def test_jetson_clocks_gets_a_file_in_the_folder_and_no_other(ask, board):
    script = board.path / "usr/bin/jetson_clocks"
    script.write_text(f'#!/bin/sh\necho "$@" >> {board.root}/log\n[ "$1" != --store ] || echo stored >> "$2"\n')
    for act in ("store", "store", "pin", "restore", "show"):
        assert ask("jetson-clocks", act)[0] == 0
    state = board.path / "var/lib/jetwatt"
    assert (state / "jetson_clocks.conf").read_text() == "stored\n"  # not added to
    part, whole = state / "jetson_clocks.conf.part", state / "jetson_clocks.conf"
    assert (board.path / "log").read_text().splitlines() == [
        f"--store {part}",
        f"--store {part}",
        "",
        f"--restore {whole}",
        "--show",
    ]
    assert ask("jetson-clocks", "forget")[0] == 0
    assert list(state.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [(("jetson-clocks", "forget"), "jetson_clocks.conf"), (("forget-conf", "custom-1"), "custom-1.conf")],
)
def test_forgetting_removes_what_was_stored_and_what_a_kill_left_of_it_and_follows_no_link(
    ask, board, tmp_path, words, name
):
    victim, state = outside(board, tmp_path), board.path / "var/lib/jetwatt"
    state.mkdir()
    (state / name).symlink_to(victim)
    os.link(str(victim), str(state / f"{name}.part"))
    (state / "other").write_text("")
    assert ask(*words) == (0, "")
    assert victim.read_text() == "as it was\n"
    assert [path.name for path in state.iterdir()] == ["other"]
    (state / name).mkdir()
    refused(ask, board, *words)


def test_a_program_that_hangs_is_ended_with_its_children(ask, board, monkeypatch):
    (board.path / "usr/sbin/nvpmodel").write_text(
        f"#!/bin/sh\nsleep 600 &\necho $$ $! > {board.root}/pids\nsleep 600\n"
    )
    monkeypatch.setattr(privileged, "NVPMODEL_TIMEOUT_S", 0.5)
    status, output = ask("nvpmodel", "own", "2")
    assert status == privileged.TIMED_OUT
    assert says(output, "nvpmodel.conf -m 2`", "0.5 s", "ended")
    assert end((board.path / "pids").read_text().split())


def test_a_store_that_fails_leaves_what_was_stored(ask, board):
    (board.path / "usr/bin/jetson_clocks").write_text("#!/bin/sh\necho no; exit 3\n")
    state = board.path / "var/lib/jetwatt"
    state.mkdir()
    (state / "jetson_clocks.conf").write_text("before\n")
    assert ask("jetson-clocks", "store") == (3, "no\n")
    assert (state / "jetson_clocks.conf").read_text() == "before\n"


def test_programs_get_an_environment_of_their_own(ask, board, monkeypatch):
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "BASH_ENV", "ENV", "IFS", "HOME"):
        monkeypatch.setenv(name, "/tmp/evil")
    monkeypatch.setenv("PATH", "/tmp/evil")
    for words in (("nvpmodel", "own", "2"), ("jetson-clocks", "show"), ("fan", "full")):
        assert ask(*words)[0] == 0
        assert "/tmp/evil" not in (board.path / "env").read_text()


@pytest.mark.parametrize("name", ["usr/sbin/nvpmodel", "usr/sbin", "usr", "usr/bin/nvidia-smi"])
def test_a_program_that_others_may_change_is_not_run(ask, board, name):
    (board.path / name).chmod(0o777)
    words = ("gpu", UUID, "gpu-clocks", "reset") if "smi" in name else ("nvpmodel", "own", "2")
    assert "may be changed by others" in refused(ask, board, *words)
    assert not (board.path / "log").exists()


def test_a_program_that_is_a_link_into_an_open_folder_is_not_run(ask, board):
    (board.path / "tmp").mkdir()
    (board.path / "tmp").chmod(0o777)
    shutil.move(str(board.path / "usr/sbin/nvpmodel"), str(board.path / "tmp/nvpmodel"))
    board.link("usr/sbin/nvpmodel", board.path / "tmp/nvpmodel")
    assert "may be changed by others" in refused(ask, board, "nvpmodel", "own", "2")


FAN_PWM = "sys/class/hwmon/hwmon3/pwm1"
SERVICE = """#!/bin/sh
case "$1" in
is-active) [ ! -e {root}/stopped ];;
stop) touch {root}/stopped; cat {root}/{pwm} > {root}/before;;
start) rm {root}/stopped;;
esac"""


@pytest.mark.parametrize(("service", "automatic"), [(True, "1"), (False, "1"), (False, "0")])
def test_a_fan_runs_at_full_speed_or_as_before_and_no_slower(ask, board, service, automatic):
    pwm = board.path / "sys/class/hwmon/hwmon3/pwm1"
    board.write(
        {
            "sys/devices/pwm-fan/temp_control": automatic,
            "usr/bin/systemctl": SERVICE.format(root=board.root, pwm="sys/class/hwmon/hwmon3/pwm1"),
            **({} if service else {"stopped": ""}),
        }
    )
    (board.path / "usr/bin/systemctl").chmod(0o755)
    before = board.contents()
    assert ask("fan", "back")[0] == privileged.FAILED  # nothing to put back, and nothing done
    for _ in range(2):  # what was found is kept, also when it is asked for twice
        assert ask("fan", "full") == (0, "")
        assert pwm.read_text() == (board.path / "sys/devices/pwm-fan/target_pwm").read_text() == "255\n"
        assert (board.path / "sys/devices/pwm-fan/temp_control").read_text() == "0\n"
        assert (board.path / "stopped").exists()
    assert ask("fan", "back") == (0, "")
    assert (board.path / "stopped").exists() != service
    assert (board.path / "sys/devices/pwm-fan/temp_control").read_text().strip() == automatic
    is_automatic = service or automatic == "1"
    assert pwm.read_text() == ("255\n" if is_automatic else "77\n")  # who sets it then, does so from 255 on
    assert not set(board.contents()) - set(before) - {"before", "var/lib/jetwatt/fan.lock"}


ZONE = "sys/class/thermal/thermal_zone8"


def test_the_governor_that_overrides_the_fan_is_set_to_user_space_and_back(ask, board):
    """L4T r36: the board has no switch for the kernel's control of the fan."""
    shutil.rmtree(board.path / "sys/devices/pwm-fan")
    board.write(
        {
            f"{ZONE}/policy": "step_wise",
            f"{ZONE}/available_policies": "step_wise user_space",
            f"{ZONE}/cdev0/type": "pwm-fan",
            "sys/class/thermal/thermal_zone0/policy": "step_wise",
            "sys/class/thermal/thermal_zone0/available_policies": "step_wise user_space",
            "usr/bin/systemctl": "#!/bin/sh\n[ $1 != is-active ]",
        }
    )
    before = board.contents()
    for _ in range(2):
        assert ask("fan", "full") == (DONE, "")
        assert (board.path / ZONE / "policy").read_text() == "user_space\n"
        assert (board.path / FAN_PWM).read_text() == "255\n"
    assert (board.path / "sys/class/thermal/thermal_zone0/policy").read_text() == "step_wise\n"
    assert ask("fan", "back") == (DONE, "")
    after = board.contents()
    changed = {name for name in after if after[name] != before.get(name)}
    assert (board.path / ZONE / "policy").read_text() == "step_wise\n"
    assert changed <= {FAN_PWM, f"{ZONE}/policy", "var/lib/jetwatt/fan.lock"}  # the speed is the governor's again
    assert "may not be set" in refused(ask, board, "write", "fan-policy", "thermal_zone8", "user_space")


def test_what_a_helper_of_r35_saved_is_put_back(ask, board):
    board.write({"usr/bin/systemctl": "#!/bin/sh\n[ $1 != is-active ]"})
    assert ask("fan", "full")[0] == DONE
    saved = board.path / "var/lib/jetwatt/fan.json"
    content = json.loads(saved.read_text())
    del content["policies"]
    saved.write_text(json.dumps(content))
    assert ask("fan", "back")[0] == DONE
    assert not saved.exists()


CLOCKS_WITH_FAN = """#!/bin/sh
# As NVIDIA's: the state of nvfancontrol goes to a file in HOME, and restoring starts or stops it by that file.
fan="$HOME/.jetsonclocks_fan.txt"
case "$1" in
--store)
    if systemctl is-active nvfancontrol; then echo active > "$fan"; else echo inactive > "$fan"; fi
    printf '%s\\n' "{root}/clock:$(cat {root}/clock)" "$fan:$(cat "$fan")" "{root}/{pwm}:0" >> "$2"
    echo "{root}/sys/class/thermal/thermal_zone8/policy:none" >> "$2";;
--restore)
    while IFS=: read -r file value; do echo "$value" > "$file"; done < "$2"
    if [ -e "$fan" ]; then
        if [ "$(cat "$fan")" = active ]; then systemctl start nvfancontrol; else systemctl stop nvfancontrol; fi
    fi;;
*) echo 2201600 > {root}/clock;;
esac"""


@pytest.fixture
def clocks_with_fan(board, monkeypatch):
    """A board whose jetson_clocks stores and restores the fan, too; returns its state: service runs, speed, clock."""
    monkeypatch.setitem(privileged._ENVIRONMENT, "PATH", f"{board.root}/usr/bin:/usr/bin:/bin")
    board.write(
        {
            "clock": 729600,
            f"{ZONE}/policy": "kept",
            "usr/bin/systemctl": SERVICE.format(root=board.root, pwm=FAN_PWM),
            "usr/bin/jetson_clocks": CLOCKS_WITH_FAN.format(root=board.root, pwm=FAN_PWM),
        }
    )
    for name in ("systemctl", "jetson_clocks"):
        (board.path / "usr/bin" / name).chmod(0o755)

    def state():
        texts = ((board.path / name).read_text().strip() for name in (FAN_PWM, "clock"))
        return (not (board.path / "stopped").exists(), *texts)

    return state


@pytest.mark.parametrize(
    ("order", "after"),
    [
        ("full store pin back restore", (True, "255", "729600")),
        ("store pin full restore", (False, "255", "729600")),
        ("store pin full restore back", (True, "255", "729600")),
        ("store full pin back restore", (True, "255", "729600")),
    ],
)
def test_restored_clocks_leave_the_fan_as_the_fan_operation_set_it(ask, board, clocks_with_fan, order, after):
    assert clocks_with_fan() == (True, "77", "729600")
    for act in order.split():
        assert ask("fan" if act in ("full", "back") else "jetson-clocks", act)[0] == DONE
    assert clocks_with_fan() == after
    left = {path.name for path in (board.path / "var/lib/jetwatt").iterdir()}
    assert left <= {"fan.lock", "fan.json", "jetson_clocks.conf"}
    assert (board.path / ZONE / "policy").read_text().strip() == "kept"


def test_jetson_clocks_has_a_home_of_its_own_to_write_to(ask, board):
    ask("jetson-clocks", "show")
    assert f"HOME={board.root}/var/lib/jetwatt\n" in (board.path / "env").read_text()


@contextlib.contextmanager
def flocked(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_what_any_user_can_lock_holds_no_fan_up(ask, board):
    ask("fan", "full")
    with flocked(board.path / "var/lib/jetwatt"), flocked(board.path / "var/lib/jetwatt/fan.json"), ended_after(60):
        assert ask("fan", "full") == (0, "usr/bin/systemctl stop nvfancontrol\n")
    assert (board.path / "var/lib/jetwatt/fan.lock").stat().st_mode & 0o777 == 0o600


def test_a_second_helper_waits_for_the_first_and_says_when_it_gives_up(ask, board, monkeypatch):
    ask("fan", "full")
    monkeypatch.setattr(privileged, "_FAN_WAIT_S", 0.3)
    before = board.contents()
    with flocked(board.path / "var/lib/jetwatt/fan.lock"), ended_after(60):
        status, said = ask("fan", "back")
    assert status == privileged.FAILED
    assert says(said, "another helper", "0.3 s")
    assert board.contents() == before
    assert ask("fan", "back")[0] == privileged.DONE


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_a_fan_lock_that_others_can_open_is_refused(ask, board, mode):
    ask("fan", "full")
    (board.path / "var/lib/jetwatt/fan.lock").chmod(mode)
    assert "may be opened by others" in refused(ask, board, "fan", "back")


def test_what_was_found_before_a_boot_is_not_what_the_next_run_puts_back(ask, board):
    board.write({"sys/devices/pwm-fan/temp_control": 0, "usr/bin/systemctl": "#!/bin/sh\n[ $1 != is-active ]"})
    pwm = board.path / "sys/class/hwmon/hwmon3/pwm1"
    ask("fan", "full")
    board.write({"proc/sys/kernel/random/boot_id": "second", "sys/class/hwmon/hwmon3/pwm1": 120})
    ask("fan", "full")
    ask("fan", "back")
    assert pwm.read_text() == "120\n"


def test_limits_of_the_caller_do_not_end_a_program_in_the_middle(ask, board):
    """A caller's `ulimit -f 0` kills who writes a file; sudo hands it on."""
    board.write({"usr/bin/jetson_clocks": "#!/bin/sh\nulimit -f; ulimit -n"})
    (board.path / "usr/bin/jetson_clocks").chmod(0o755)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        limit, files = ask("jetson-clocks", "show")[1].split()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert limit == ("unlimited" if before[1] == resource.RLIM_INFINITY else str(before[1] // 512))
    assert int(files) >= 1024 or os.geteuid()


# The folder of the state, and races for it.


@pytest.mark.parametrize(("lay", "why"), [("open", "may be changed by others"), ("link", "Not a directory")])
def test_a_state_folder_that_others_may_change_or_that_is_a_link_is_not_used(ask, board, tmp_path, lay, why):
    folder = board.path / "var/lib/jetwatt" if lay == "open" else tmp_path / "elsewhere"
    folder.mkdir()
    if lay == "open":
        folder.chmod(0o777)
    else:
        board.link("var/lib/jetwatt", folder)
    for words in (("store-conf", "custom-1"), ("jetson-clocks", "store")):
        assert why in refused(ask, board, *words, given=CUSTOM.encode())
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["custom-1.conf", "custom-1.conf.part"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_laid_in_the_state_folder_are_replaced_not_followed(ask, board, tmp_path, name, link):
    victim = outside(board, tmp_path)
    (board.path / "var/lib/jetwatt").mkdir()
    link(str(victim), str(board.path / "var/lib/jetwatt" / name))
    assert ask("store-conf", "custom-1", given=CUSTOM.encode())[0] == 0
    assert victim.read_text() == "as it was\n"
    assert not (board.path / "var/lib/jetwatt/custom-1.conf").is_symlink()


@pytest.mark.exhaustive
def test_a_folder_that_is_swapped_all_the_time_never_leads_elsewhere(ask, board, tmp_path):
    """What only root could do to the real folder: swap it for a link while the helper works."""
    state, elsewhere = board.path / "var/lib/jetwatt", tmp_path / "elsewhere"
    elsewhere.mkdir()
    state.mkdir()
    ended, swaps = threading.Event(), []

    def swap():
        while not ended.is_set():
            with contextlib.suppress(OSError):  # the helper made the folder anew meanwhile
                state.rename(board.path / f"var/lib/away{len(swaps)}")
                swaps.append(state)
                state.symlink_to(elsewhere)
                state.unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            with contextlib.suppress(RefusedError, OSError):
                ask("store-conf", "custom-1", given=CUSTOM.encode())
    finally:
        ended.set()
        thread.join()
    assert list(elsewhere.iterdir()) == []
    assert swaps


# The helper as it is installed.


def test_every_part_of_the_way_to_a_trusted_file_must_be_the_owners(tree):
    tree.write({"usr/lib/jetwatt/privileged": "x"})
    file, machine = str(tree.path / "usr/lib/jetwatt/privileged"), Machine(tree.root, os.getuid())
    assert untrusted_part(file, machine) is None
    for part in (file, os.path.dirname(file), str(tree.path / "usr"), tree.root):
        rights = os.stat(part).st_mode & 0o777
        for more in (0o020, 0o002):
            os.chmod(part, rights | more)
            assert untrusted_part(file, machine) == part
            os.chmod(part, rights)
    assert untrusted_part(file, Machine(tree.root, os.getuid() + 1)) == file


@pytest.mark.parametrize(
    ("is_open", "options", "why"),
    [
        (True, ["-I", "-S"], b"may be changed by others than root"),
        (False, ["-I"], b"its first line keeps the environment out"),
    ],
)
def test_it_does_nothing_where_others_may_change_it_or_the_environment_could_reach_it(tmp_path, is_open, options, why):
    file = privileged.__file__
    if is_open:
        folder = tmp_path / "open"
        folder.mkdir()
        folder.chmod(0o777)
        file = shutil.copy(file, str(folder / "privileged"))
    done = subprocess.run([sys.executable, *options, file, "list", "cpu-online"], capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    assert why in done.stderr


def test_modules_of_the_caller_are_not_loaded(tmp_path):
    for name in ("os", "re", "signal", "stat", "subprocess", "contextlib", "typing", "sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')\n")
    environment = {
        "PYTHONPATH": str(tmp_path),
        "PYTHONHOME": "",
        "PYTHONSTARTUP": str(tmp_path / "os.py"),
        "HOME": str(tmp_path),
    }
    command = [sys.executable, "-I", "-S", privileged.__file__, "exec", "id"]
    done = subprocess.run(command, capture_output=True, cwd=str(tmp_path), env=environment)
    assert done.returncode == 2
    assert b"refused: " in done.stderr
    assert not (tmp_path / "loaded").exists()


def test_neither_arguments_nor_environment_name_a_root():
    """`main` gives `perform` this machine, and reads nothing but its arguments and standard input."""
    source = Path(privileged.__file__).read_text()
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    performed = [node for node in calls if getattr(node.func, "id", "") == "perform"]
    served = [node for node in calls if getattr(node.func, "id", "") == "serve"]
    roots = [getattr(node.args[1], "id", "") for node in performed]
    assert roots == [getattr(node.args[0], "id", "") for node in served] == ["THIS_MACHINE"]
    assert tuple(privileged.THIS_MACHINE) == ("/", 0)
    for word in ("os.environ", "getenv", "shell=", "eval(", "exec(", "os.system", "pickle", "import harness"):
        assert word not in source


def test_it_is_readable_for_the_python_of_jetpack_4_and_keeps_the_environment_out():
    source = Path(privileged.__file__).read_text()
    assert source.splitlines()[0] == "#!/usr/bin/python3 -IS"
    tree = ast.parse(source, feature_version=(3, 6))
    imported = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in imported if isinstance(node, ast.ImportFrom)}
    standing_alone = "contextlib, errno, fcntl, json, os, re, resource, signal, stat, subprocess, sys, time, typing"
    assert ", ".join(sorted(names)) == standing_alone
