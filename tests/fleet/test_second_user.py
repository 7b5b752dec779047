"""A second user of the lab host attacks a fleet with real Slurm and munge, whose user is an ordinary account."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from pathlib import Path

import pytest

from harness.core.configuration import Configuration
from harness.devices.registry import open_device
from harness.fleet.lab import Fleet
from tests.fleet.simulated_lab import why_not
from tests.messages import says

# Accounts that every Debian has: a slurmd that is not root runs all jobs as its own user.
OWNER, ATTACKER = "daemon", "nobody"
POOL = "sim-orin-agx-jp6"
LAB = """port = {port}
check_seconds = 3600
known_hosts = "{folder}/known_hosts"
[[board]]
name = "board1"
type = "sim:orin-agx@1"
jetpack = "6.2"
ssh = "daemon@127.0.0.1"
folder = "{folder}"
"""


def become(user):
    account = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def run_as(user, *words, **variables):
    """Run a command as an account of this machine; returns how it ended."""
    environment = {"PATH": f"{os.environ['PATH']}:/usr/sbin", "HOME": "/", "USER": user, "LOGNAME": user}
    return subprocess.run(
        words, env={**environment, **variables}, cwd="/", preexec_fn=lambda: become(user),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def initialize_as(user, lab_file):
    """`fleet init` as an account that may not be able to run this Python, so in a fork of this process."""
    open_device("sim:orin-agx", Configuration())  # imports what `init` needs
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            become(user)
            Fleet(lab_file).init()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become two other users"),
]


class OwnedLab:
    """A fleet of one board that belongs to an account; nothing measures, so its board need not answer."""

    def __init__(self, folder, account):
        self.folder, self.fleet, self.account, self.daemons = folder, folder / "fleet", account, None
        self.proof = folder / "ran"  # only the account may create it
        self.conf = self.fleet / "slurm.conf"

    def start(self):
        port = random.randrange(20000, 40000)
        (self.folder / "lab.toml").write_text(LAB.format(port=port, folder=self.folder))
        initialize_as(self.account, self.folder / "lab.toml")
        (self.fleet / "bin/check").write_text("#!/bin/sh\necho fit, boot a\n")
        identity = [f"--reuid={self.account}", f"--regid={self.account}"]
        self.daemons = subprocess.Popen(
            ["setpriv", *identity, "--init-groups", str(self.fleet / "bin/daemons")],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.wait_until_idle()

    def owner(self, *words):
        return run_as(self.account, *words, SLURM_CONF=str(self.conf))

    def wait_until_idle(self):
        for _ in range(60):
            states = self.owner("sinfo", "-h", "-o", "%T").stdout.split()
            if states == ["idle"]:
                return
            if states == ["drained"]:
                self.owner("scontrol", "update", "NodeName=board1", "State=RESUME")
            time.sleep(0.5)
        raise AssertionError(f"board1 is {states}: {self.owner('sinfo', '-R').stdout}")

    def attack(self, *words, conf=None):
        """Run a command of Slurm as ATTACKER; a job that waits is ended after some seconds."""
        command = ["timeout", "-k", "5", "15", words[0], f"--partition={POOL}", *words[1:]]
        return run_as(ATTACKER, *command, SLURM_CONF=str(conf or self.conf))

    def reset(self):
        self.owner("scancel", "--user", self.account)
        self.owner("scancel", "--user", ATTACKER)
        with contextlib.suppress(FileNotFoundError):
            self.proof.unlink()

    def stop(self):
        self.reset()
        self.daemons.send_signal(signal.SIGTERM)
        self.daemons.wait(60)


@contextlib.contextmanager
def made_lab(owner):
    # a short path for munge's socket, that both users may enter
    parent = Path(tempfile.mkdtemp(prefix="lab", dir="/tmp"))
    parent.chmod(0o755)
    folder = parent / "lab"
    folder.mkdir()
    shutil.chown(str(folder), owner)
    owned = OwnedLab(folder, owner)
    try:
        owned.start()
        yield owned
    finally:
        if owned.daemons is not None:
            owned.stop()
        shutil.rmtree(str(parent))


@pytest.fixture(scope="module")
def lab():
    with made_lab(OWNER) as owned:
        yield owned


@pytest.fixture
def quiet_lab(lab):
    lab.reset()
    lab.wait_until_idle()
    yield lab
    lab.reset()


def attacks(lab):
    """Each way to have Slurm run something, by the program that it begins with."""
    touch = f"touch {lab.proof}"
    return {
        "srun": ["srun", "sh", "-c", f"id -un; {touch}"],
        "sbatch": ["sbatch", "--wait", "--output=/dev/null", f"--wrap={touch}"],
        "salloc": ["salloc", "srun", "sh", "-c", touch],
    }


WAYS = ("srun", "sbatch", "salloc")


@pytest.mark.parametrize("way", WAYS)
def test_jobs_of_the_fleets_own_user_run(quiet_lab, way):
    lab = quiet_lab
    command = attacks(lab)[way]
    allowed = lab.owner(command[0], f"--partition={POOL}", *command[1:])
    assert allowed.returncode == 0, allowed.stderr
    for _ in range(50):
        if lab.proof.exists():
            break
        time.sleep(0.2)
    assert pwd.getpwuid(lab.proof.stat().st_uid).pw_name == OWNER


@pytest.fixture(params=["as it is", "open folder", "open folder and partition"])
def breached_lab(quiet_lab, request):
    """The fleet with none, one or two of its three barriers down; the prolog is the last."""
    lab = quiet_lab
    if request.param != "as it is":
        lab.fleet.chmod(0o755)
    lab.admits_all = request.param == "open folder and partition"
    if lab.admits_all:
        opened = lab.owner("scontrol", "update", f"PartitionName={POOL}", "AllowGroups=ALL")
        assert opened.returncode == 0, opened.stderr
    yield lab
    lab.fleet.chmod(0o700)
    lab.owner("scontrol", "update", f"PartitionName={POOL}", "AllowGroups=root")


@pytest.mark.parametrize("way", WAYS)
def test_another_user_cannot_have_slurm_run_anything(breached_lab, way):
    lab = breached_lab
    attempt = lab.attack(*attacks(lab)[way])
    assert not lab.proof.exists(), attempt
    assert OWNER not in attempt.stdout.split()
    if not lab.admits_all:  # else the job is accepted, and refused by the prolog
        assert "Submitted batch job" not in attempt.stdout
        assert "Granted job allocation" not in attempt.stderr


def test_each_barrier_refuses_by_itself(quiet_lab):
    lab = quiet_lab
    command = attacks(lab)["srun"]
    assert "slurm.conf" in lab.attack(*command).stderr
    copied = lab.folder.parent / "slurm.conf"  # which holds no secret
    shutil.copy(str(lab.conf), str(copied))
    assert "Munge encode failed" in lab.attack(*command, conf=copied).stderr
    log = lab.fleet / "log/health.log"
    log.write_text("")
    shutil.chown(str(log), OWNER)
    lab.fleet.chmod(0o755)
    try:
        assert "group not permitted to use this partition" in lab.attack(*command).stderr
        assert log.read_text() == ""
        lab.owner("scontrol", "update", f"PartitionName={POOL}", "AllowGroups=ALL")
        lab.attack(*command)
        assert f" of user id {pwd.getpwnam(ATTACKER).pw_uid}\n" in log.read_text()
    finally:
        lab.fleet.chmod(0o700)
        lab.owner("scontrol", "update", f"PartitionName={POOL}", "AllowGroups=root")


def test_another_user_reads_no_file_of_the_fleet(quiet_lab):
    files = [str(path) for path in quiet_lab.fleet.rglob("*") if path.is_file()]
    assert str(quiet_lab.fleet / "munge.key") in files
    for path in files:
        assert run_as(ATTACKER, "cat", path).returncode != 0, path


@pytest.fixture(scope="module")
def root_lab():
    """A fleet of root's, which can run this Python wherever it is, with a rule for ATTACKER to book its boards."""
    rule = Path(f"/etc/sudoers.d/jetwatt-fleet-test-{os.getpid()}")  # several runs may share a machine
    with made_lab("root") as lab:
        rule.write_text(f"{ATTACKER} ALL=(root) NOPASSWD: {lab.fleet}/bin/book\n")
        rule.chmod(0o440)
        try:
            yield lab
        finally:
            rule.unlink()


@pytest.fixture
def door(root_lab):
    """Runs sudo as ATTACKER, who may book boards."""
    if shutil.which("sudo") is None:
        pytest.skip("needs sudo: apt-get install sudo")
    yield lambda *words: run_as(ATTACKER, "sudo", "-n", str(root_lab.fleet / "bin/book"), *words)
    root_lab.owner("scontrol", "delete", f"ReservationName={ATTACKER}_board1")


def test_a_person_books_a_board_and_ends_the_booking(root_lab, door):
    booked = door("board1", "0.5")
    assert booked.stdout.splitlines()[0].startswith(f"board1 is booked by {ATTACKER} until "), booked.stderr
    assert booked.stdout.splitlines()[-1] == f"board1 is free for {ATTACKER}"
    assert f"booked: board1 by {ATTACKER}, " in door().stdout
    for _ in range(60):  # Slurm marks the node some seconds later
        node = root_lab.owner("scontrol", "show", "node", "board1").stdout
        if "+RESERVED" in node:
            break
        time.sleep(0.5)
    assert "State=IDLE+RESERVED" in node
    again = door("board1", "1")
    assert f"board1 is booked by {ATTACKER} until " in again.stderr
    ended = door("board1", "end")
    assert ended.stdout == f"board1: {ATTACKER}'s booking has ended\n"
    assert "booked:" not in door().stdout
    assert says(door("board1", "end").stderr, ATTACKER, "board1", "available: none")


def test_the_person_who_booked_a_board_has_nothing_run_on_the_lab_host(root_lab, door):
    assert door("board1", "0.5").returncode == 0
    root_lab.fleet.chmod(0o755)
    try:
        words = attacks(root_lab)["srun"]
        attempt = root_lab.attack(words[0], f"--reservation={ATTACKER}_board1", *words[1:])
    finally:
        root_lab.fleet.chmod(0o700)
        door("board1", "end")
    assert attempt.returncode != 0
    assert not root_lab.proof.exists()


def test_nobody_ends_the_booking_of_another_person(root_lab, door):
    flags = ["StartTime=now", "Duration=10", "Flags=IGNORE_JOBS"]
    names = ["ReservationName=root_board1", "Nodes=board1", "Users=root"]
    assert root_lab.owner("scontrol", "create", "reservation", *names, *flags).returncode == 0
    try:
        assert says(door("board1", "end").stderr, ATTACKER, "board1", "available: root_board1 by root")
        assert "board1 is booked by root until " in door("board1", "1").stderr
    finally:
        assert root_lab.owner("scontrol", "delete", "ReservationName=root_board1").returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["board9", "1"], "there is no board 'board9'; available: board1"),
        (["board1", "nan"], "a booking of nan hours"),
        (["board1", "169"], "a booking of 169 hours"),
        (["--lab", "/tmp/evil.toml"], "invalid float value: '/tmp/evil.toml'"),
        (["board1", "1", "--person=root"], "book BOARD HOURS"),
    ],
)
def test_the_door_refuses_what_is_no_booking(door, words, expected):
    refused = door(*words)
    assert expected in refused.stderr
    assert refused.returncode != 0
