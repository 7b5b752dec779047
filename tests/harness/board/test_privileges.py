"""The door to the helper: used where this user may not write, only for this machine, and shown where it is closed."""

from __future__ import annotations

import os
import pwd
import shlex

import pytest

from harness.__main__ import main
from harness.board import kernel_file, privileged, privileges
from harness.board.emc import Emc
from harness.board.fan import Fan
from harness.board.jetson_clocks import JetsonClocks
from harness.cli import doctor  # noqa: F401 - loaded now: a plain user may not see root's Python
from harness.core.errors import ControlError
from tests.harness.board.kernel_trees import cpus, emc, gpu, policy
from tests.harness.board.privileged_user import DROP, needs_linux


@needs_linux
def test_what_this_user_may_not_write_goes_through_the_helper(user):
    log = user()
    assert kernel_file.may_write(DROP)
    kernel_file.write(DROP, 3)
    assert log.read_text().splitlines() == [
        f"-n -l {privileges.HELPER}",
        f"-n {privileges.HELPER} write page-cache - 3",
    ]


@needs_linux
def test_what_this_user_may_not_read_goes_through_the_helper(user, plain_user, monkeypatch):
    log = user(says="665600000")
    closed = plain_user / "debug"
    closed.mkdir(mode=0)
    monkeypatch.setattr(privileges, "node_of", lambda path: ("emc-rate", "-") if path.startswith(str(closed)) else None)
    assert kernel_file.read_int_setting(str(closed / "rate")) == 665600000
    assert log.read_text() == f"-n {privileges.HELPER} read emc-rate -\n"
    user(says="-")
    assert kernel_file.exists(str(closed / "rate"))
    assert kernel_file.entries(str(closed)) == ["-"]
    user(says="")
    assert not kernel_file.exists(str(closed / "rate"))
    closed.chmod(0o755)


@needs_linux
def test_without_the_helper_the_command_is_shown_that_prints_the_rule(nothing_installed):
    assert not kernel_file.may_write(DROP)
    assert "doctor --sudoers" in kernel_file.grant([DROP])
    with pytest.raises(ControlError, match=r"root: .*No such file") as caught:
        kernel_file.write(DROP, 3)
    assert "`jetwatt doctor --sudoers`" in caught.value.hint


@needs_linux
def test_a_helper_of_another_version_is_not_used(user, plain_user):
    log = user()
    (plain_user / "privileged").write_text("older")
    assert "of another version" in privileges.closed()
    with pytest.raises(ControlError, match=r"another version.*--sudoers"):
        kernel_file.write(DROP, 3)
    assert not log.exists()


@needs_linux
def test_where_sudo_refuses_the_rule_is_shown(user):
    user(says="sudo: a password is required", status=1, to_stderr=True)
    with pytest.raises(ControlError, match=r"a password is required; .*--sudoers"):
        kernel_file.write(DROP, 3)


@needs_linux
def test_what_the_helper_refuses_is_told_and_needs_no_rule(user):
    user(says="refused: page-cache of - may not be set to this value", status=2, to_stderr=True)
    with pytest.raises(ControlError, match=r"page-cache - 9` .*refused: page-cache") as caught:
        kernel_file.write(DROP, 9)
    assert caught.value.hint == ""
    assert privileges.ask("write", "page-cache", "-", "9").status == 2


@needs_linux
def test_input_reaches_the_helper(user):
    log = user()
    privileges.call("store-conf", "custom-1", given="a conf\n")
    assert log.read_text().endswith("store-conf custom-1\na conf\n")


@pytest.mark.parametrize(("mode", "why"), [(0o755, "No such file or directory"), (0, "Permission denied")])
def test_a_user_without_sudo_or_whose_path_may_not_be_searched_is_told(user, plain_user, monkeypatch, mode, why):
    user()
    folder = plain_user / "folder"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("PATH", str(folder))
    assert privileges.closed() == f"sudo: sudo cannot be run: {why}"
    folder.chmod(0o755)


def test_a_tree_elsewhere_is_never_written_through_the_helper(user, plain_user):
    log = user()
    file = plain_user / "proc/sys/vm/drop_caches"
    file.parent.mkdir(parents=True)
    file.write_text("0\n")
    file.chmod(0o444)
    assert not kernel_file.may_write(str(file))
    with pytest.raises(ControlError, match="was refused: Permission denied; ask"):
        kernel_file.write(str(file), 3, hint="ask")
    assert not log.exists()


@needs_linux
def test_programs_of_this_machine_are_run_by_the_helper(user):
    log = user(says="cpu0: Online=1 MinFreq=1 MaxFreq=2\nGPU MinFreq=1 MaxFreq=2")
    assert JetsonClocks("/").read()["dvfs"] == "on"
    knob = Fan("/")
    knob.apply({**knob.maximum(), "service": False})
    knob.apply({"service": True})
    assert [line.split()[2:] for line in log.read_text().splitlines()] == [
        ["jetson-clocks", "show"],
        ["fan", "full"],
        ["fan", "back"],
    ]


def test_the_helper_and_the_knobs_mean_the_same_file_by_a_name(tree):
    tree.write({**cpus(4), **policy(0, "0 1"), **emc()})
    tree.write(
        {"sys/class/hwmon/hwmon3/name": "pwmfan", "sys/class/hwmon/hwmon3/pwm1": 7, "proc/sys/vm/drop_caches": 0}
    )
    zone = "sys/class/thermal/thermal_zone8"
    tree.write({f"{zone}/policy": "step_wise", f"{zone}/available_policies": "user_space step_wise"})
    tree.write({f"{zone}/cdev0/type": "pwm-fan"})
    gpu(tree)
    seen = set()
    for kind, description in privileged.KINDS.items():
        for name, path in privileged.nodes(description, tree.root).items():
            assert privileges.node_of(path[len(tree.root) :]) == (kind, name)
            seen.add(kind)
    assert len(seen) > 12
    assert "fan-policy" in seen


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/sys/devices/system/cpu/cpu1", "/sys/devices/system/cpu/a/cpu1/online", "", "sys/x"]
)
def test_other_files_have_no_name(path):
    assert privileges.node_of(path) is None


@needs_linux
def test_a_memory_clock_that_only_root_sees_asks_for_the_rule(nothing_installed, plain_user, monkeypatch):
    hidden = plain_user / "sys/kernel/debug"
    hidden.mkdir(parents=True, mode=0o755)
    hidden.chmod(0)
    monkeypatch.setattr(privileges, "node_of", lambda path: ("emc-lock", "-"))
    capability = Emc(str(plain_user)).available()
    assert not capability.available
    assert "doctor --sudoers" in capability.hint
    hidden.chmod(0o755)


def test_a_user_without_a_name_is_known_by_number(monkeypatch):
    """As in a container that was started with `--user 1234`."""

    def no_entry(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    assert privileges.sudo_rule().startswith(f"#{os.getuid()} ALL=(root) NOPASSWD:")


def test_the_rule_allows_the_helper_and_nothing_else():
    user, _, command = privileges.sudo_rule().partition(" ALL=(root) NOPASSWD:NOSETENV: ")
    assert user
    assert command == "/usr/local/lib/jetwatt/privileged"


def test_doctor_prints_the_rule_and_how_it_is_installed_and_removed(capsys, nothing_installed, plain_user):
    assert main(["doctor", "--sudoers"]) == 0
    text = capsys.readouterr().out
    helper = plain_user / "privileged"
    commands = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert commands == [
        f"sudo install -d -o root -g root -m 0755 {plain_user}",
        f"sudo install -o root -g root -m 0755 {shlex.quote(privileged.__file__)} {helper}",
        f"echo '{privileges.sudo_rule()}' | sudo tee /etc/sudoers.d/jetwatt.new",
        "sudo chmod 0440 /etc/sudoers.d/jetwatt.new && sudo visudo -c -f /etc/sudoers.d/jetwatt.new "
        "&& sudo mv /etc/sudoers.d/jetwatt.new /etc/sudoers.d/jetwatt",
    ]
    assert "cannot be read: No such file" in text
    assert f"sudo rm -rf /etc/sudoers.d/jetwatt {plain_user} /var/lib/jetwatt" in text
