"""A second user of the machine attacks the helper through the real sudo, as `doctor --sudoers` installs both."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pytest
from boards.jtop_service import skip_or_fail

from harness.board import helper_stream, privileged, privileges
from harness.board import sampler as sampler_module
from harness.board.sampler import Sampler
from harness.board.source import SourceSpec
from harness.devices.host import source_capability
from tests.messages import says

ATTACKER = 65534
LOCK = "/run/jetwatt-second-user.lock"  # of the machine, as helper and rule are; only root may write there
PROJECT = Path(privileged.__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to allow the helper to a second user; .ci/run runs these tests by sudo"
)


def skip_here(why):
    skip_or_fail(why, tests="the attacks of a second user")


@pytest.fixture
def installed():
    """The helper and its rule, for the attacker, as an administrator installs them; one test at a time has them."""
    helper, rule = Path(privileges.HELPER), Path(privileges.SUDOERS_FILE)
    if shutil.which("sudo") is None:
        skip_here("sudo is not installed")
    if not os.path.exists("/usr/bin/python3"):
        skip_here("there is no /usr/bin/python3, which runs the helper")
    with os.fdopen(os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if helper.exists() or rule.exists():
            skip_here("the helper is installed on this machine")
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


def become_attacker():
    os.setgroups([])
    os.setgid(ATTACKER)
    os.setuid(ATTACKER)


@pytest.fixture
def sudo(installed):
    """Runs sudo as the attacker, who sets limits and variables and chooses the folder; returns how it ended."""

    def run(*words, variables=None, cwd="/", limits=()):
        def become():
            for number, values in limits:
                resource.setrlimit(number, values)
            become_attacker()

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
        ("stream", "/etc/shadow"),
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
        skip_here(f"{state} is in use on this machine")
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


# -- sensors that only root may read -----------------------------------------------------------------------------------


def measure(root):
    """What a run says of power and clocks, and two profiles with their missing sensors; how many helpers they had."""
    sources = [SourceSpec("ina"), SourceSpec("cpufreq", {"measured": True})]
    power, clocks = (source_capability(source, root) for source in sources)
    profiles, helpers = [], set()
    for _ in range(2):
        with Sampler(sources, 0.05, root=root) as sampler:
            helpers.add(tuple(helper_stream.pids()))
        telemetry = sampler.stop()
        values = {channel: series.values[0] for channel, series in telemetry.series.items()}
        profiles.append([values, telemetry.missing])
    return [power.available, power.detail, power.hint], clocks.available, profiles, len(helpers)


def as_attacker(work, *arguments):
    """What a function returns in a process of the second user; this one's Python may be root's to read."""
    result, given = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become_attacker()
            with os.fdopen(given, "w") as file:
                json.dump(work(*arguments), file)
            helper_stream.close()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(given)
    with os.fdopen(result) as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


@pytest.fixture
def sensors(installed, monkeypatch):
    """A tree with sensors that only root may read, of which the helper and its copy in the suite think as this machine.

    Gives the folder of the tree and of a copy of the suite that the second user can read, for the sampler.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for package in ("core", "board"):
            shutil.copytree(PROJECT / "harness" / package, folder / "suite/harness" / package)
        shutil.copy(PROJECT / "harness/__init__.py", folder / "suite/harness/__init__.py")
        here = 'THIS_MACHINE = Machine("/", 0)'
        source = Path(privileged.__file__).read_text()
        assert here in source
        moved = source.replace(here, f"THIS_MACHINE = Machine({str(folder / 'tree')!r}, 0)")
        for copy in (Path(privileges.HELPER), folder / "suite/harness/board/privileged.py"):
            copy.write_text(moved)
        chip, policy = "sys/bus/i2c/devices/1-0040", "sys/devices/system/cpu/cpufreq/policy0"
        hwmon = f"{chip}/hwmon/hwmon3"
        for path, (content, mode) in {
            f"{chip}/name": ("ina3221", 0o444),
            f"{hwmon}/in1_label": ("VDD_IN", 0o400),
            f"{hwmon}/in1_input": ("5000", 0o400),
            f"{hwmon}/curr1_input": ("1000", 0o400),
            f"{policy}/related_cpus": ("0", 0o444),
            f"{policy}/scaling_cur_freq": ("2601000", 0o444),
            f"{policy}/cpuinfo_cur_freq": ("649000", 0o400),
            "etc/shadow": ("secret", 0o400),
        }.items():
            file = folder / "tree" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content + "\n")
            file.chmod(mode)
        for made in folder.rglob("*"):
            if made.is_dir():
                made.chmod(0o755)

        monkeypatch.setattr(privileged, "__file__", str(folder / "suite/harness/board/privileged.py"))
        monkeypatch.setattr(privileges, "needed", lambda root: True)
        monkeypatch.setattr(sampler_module, "_IMPORT_PATH", str(folder / "suite"))
        monkeypatch.setattr(sys, "executable", "/usr/bin/python3")  # for the sampler
        helper_stream.close()
        yield folder


def test_a_plain_user_measures_power_and_clocks_that_only_root_may_read_with_one_helper_for_the_run(sensors):
    (available, detail, _), clocks, profiles, helpers = as_attacker(measure, str(sensors / "tree"))
    assert available, detail
    assert clocks
    values = {"power_vdd_in_mw": 5000.0, "power_total_mw": 5000.0, "cpu0_khz": 2601000, "cpu0_measured_khz": 649000}
    assert profiles == [[values, {}]] * 2
    assert helpers == 1


def test_without_the_rule_doctor_says_no_and_a_profile_gives_the_reason(sensors):
    Path(privileges.SUDOERS_FILE).write_text("# no rule\n")
    (available, detail, hint), _, profiles, _ = as_attacker(measure, str(sensors / "tree"))
    assert not available
    assert says(detail, "label", "cannot be read")
    assert says(detail, "only root", "sudo: a password is required")
    assert "doctor --sudoers" in hint
    for values, missing in profiles:
        assert values == {"cpu0_khz": 2601000}
        assert "in1_label" in missing["ina"]
        assert "doctor --sudoers" in missing["ina"]
        assert "cpuinfo_cur_freq" in missing["cpu0_measured_khz"]


def test_the_stream_gives_the_attacker_no_other_file(sensors):
    tree = sensors / "tree"
    (tree / "sys/bus/i2c/devices/2-0040").symlink_to(tree / "etc")
    paths = [
        "etc/shadow", "sys/bus/i2c/devices/1-0040/hwmon/hwmon3/../../../../../../../etc/shadow",
        "sys/bus/i2c/devices/2-0040/shadow", "sys/bus/i2c/devices/1-0040/name",
    ]  # fmt: skip
    done = subprocess.run(
        ["sudo", "-n", privileges.HELPER, "stream"],
        input="\t".join(["1", "/etc/shadow", *(str(tree / path) for path in paths)]) + "\n",
        preexec_fn=become_attacker, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    answers = json.loads(done.stdout.splitlines()[1])["files"]
    assert len(answers) == 5
    assert all(reason.startswith("refused: ") for _, reason in answers)
