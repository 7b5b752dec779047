"""A second user of the machine attacks the helper through the real sudo, as `doctor --sudoers` installs both."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.board import privileged, privileges

ATTACKER = 65534

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to allow the helper to a second user"),
    pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="needs /usr/bin/python3, which runs the helper"),
]


@pytest.fixture
def installed():
    """The helper and its rule, for the attacker, as an administrator installs them; one test at a time has them."""
    helper, rule = Path(privileges.HELPER), Path(privileges.SUDOERS_FILE)
    with open(Path(tempfile.gettempdir()) / "jetwatt-second-user.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if helper.exists() or rule.exists():
            pytest.skip("the helper is installed here")
        made = [folder for folder in (helper.parent, rule.parent) if not folder.exists()]
        try:
            for folder in made:
                folder.mkdir(parents=True, mode=0o755)
            shutil.copy(privileged.__file__, helper)
            helper.chmod(0o755)
            rule.write_text(f"#{ATTACKER} {privileges.sudo_rule().partition(' ')[2]}\n")
            rule.chmod(0o440)
            yield
        finally:
            helper.unlink()
            rule.unlink()
            for folder in reversed(made):
                folder.rmdir()


@pytest.fixture
def sudo(installed):
    """Runs sudo as the attacker, who sets limits and variables and chooses the folder; returns how it ended."""

    def run(*words, variables=None, cwd="/", limits=()):
        def become():
            for number, values in limits:
                resource.setrlimit(number, values)
            os.setgroups([])
            os.setgid(ATTACKER)
            os.setuid(ATTACKER)

        environment = {"PATH": os.environ["PATH"], **(variables or {})}
        return subprocess.run(
            ["sudo", "-n", *words],
            env=environment, cwd=cwd, preexec_fn=become, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    return run


def test_what_the_rule_allows_is_done(sudo):
    done = sudo(privileges.HELPER, "list", "page-cache")
    assert (done.returncode, done.stdout) == (0, "-\n"), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("id",), ("/bin/sh", "-c", "id"), (sys.executable, "-c", "import os; os.system('id')"),
        ("/usr/bin/python3", privileges.HELPER, "list", "page-cache"),
        (f"{privileges.HELPER}/../privileged", "list", "page-cache"), ("-u", "#0", "-s"),
        ("PYTHONPATH=/tmp", privileges.HELPER, "list", "page-cache"),
        ("-E", privileges.HELPER, "list", "page-cache"),
    ],
)  # fmt: skip
def test_sudo_gives_nothing_beside_the_helper(sudo, words):
    done = sudo(*words)
    assert done.returncode == 1
    assert "uid=" not in done.stdout
    assert done.stderr.startswith("sudo:")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("exec", "id"),
        ("write", "fan-pwm", "hwmon0", "0"),
        ("write", "/etc/shadow", "-", "1"),
        ("write", "cpufreq-max", "../../../../../etc", "1"),
        ("write", "page-cache", "-", "99"),
        ("read", "emc-rate", "/etc/shadow"),
        ("nvpmodel", "/tmp/evil.conf", "0"),
        ("fan", "stop"),
        ("fan-service", "stop"),
    ],
)  # fmt: skip
def test_the_helper_does_nothing_that_is_not_on_its_list(sudo, words):
    done = sudo(privileges.HELPER, *words)
    assert (done.returncode, done.stdout) == (privileged.REFUSED, "")
    assert done.stderr.startswith("refused: ")


def test_neither_variables_nor_folder_nor_limits_of_the_attacker_reach_it(sudo):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        for module in ("os", "re", "json", "site", "sitecustomize", "usercustomize", "subprocess"):
            (folder / f"{module}.py").write_text(f"open({str(folder / 'loaded')!r}, 'w')\n")
        variables = {name: str(folder) for name in ("PYTHONPATH", "PYTHONHOME", "HOME", "PYTHONUSERBASE")}
        limits = [(resource.RLIMIT_FSIZE, (0, 0)), (resource.RLIMIT_CPU, (5, 5))]
        done = sudo(privileges.HELPER, "list", "page-cache", variables=variables, cwd=folder, limits=limits)
        assert (done.returncode, done.stdout) == (0, "-\n"), done.stderr
        assert not (folder / "loaded").exists()


def test_an_attacker_who_locks_all_that_he_can_open_does_not_hold_the_fan_up(sudo):
    state = Path("/", privileged.STATE)
    if state.exists():
        pytest.skip(f"{state} is in use here")
    hold = (
        "import fcntl, os, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "folder = sys.argv[1]\n"
        "for path in [folder, *(os.path.join(folder, name) for name in os.listdir(folder))]:\n"
        "    try: fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)\n"
        "    except PermissionError: print('closed', os.path.basename(path), end=' ')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    try:
        first = sudo(privileges.HELPER, "fan", "back")  # makes folder and lock
        with subprocess.Popen([sys.executable, "-c", hold, str(state)], **pipes) as attacker:
            assert attacker.stdout.readline() == "closed fan.lock held\n"
            second = sudo(privileges.HELPER, "fan", "back")
            attacker.stdin.close()
        assert (first.returncode, first.stderr) == (privileged.FAILED, "no fan was set to full speed\n")
        assert (second.returncode, second.stderr) == (first.returncode, first.stderr)
    finally:
        shutil.rmtree(state, ignore_errors=True)


def test_the_attacker_can_change_neither_helper_nor_rule(installed):
    for path in (privileges.HELPER, privileges.SUDOERS_FILE):
        assert privileged.untrusted_part(path, privileged.THIS_MACHINE) is None
