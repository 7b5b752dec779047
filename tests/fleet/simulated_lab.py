"""A lab of simulated boards with real daemons, made by `tools/simulated_lab.sh` and driven by the commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.__main__ import main
from harness.fleet.lab import PROGRAMS, program
from harness.fleet.on_board import CASE_BEGINS

PROJECT = Path(__file__).resolve().parents[2]
TOOL = PROJECT / "tools/simulated_lab.sh"
POOL = "sim-orin-agx-jp6"
SETTINGS = """check_seconds = 5
requeue_seconds = 5
silent_seconds = 45
free_mb = 20
most_boots = 100
slice_minutes = 30
reboot_seconds = 120
"""
SLICE_S = 30 * 60.0  # slice_minutes; a run may take three times as long, on a busy machine and while a test holds it


PACKAGES = "slurm-wlm munge openssh-server iproute2 iptables"


def why_not():
    """What is not installed here; empty where all is."""
    missing = [name for name in (*PROGRAMS, "sshd", "ssh-keygen", "flock", "ip", "iptables") if program(name) is None]
    return f"{', '.join(missing)} not installed: apt-get install {PACKAGES}" if missing else ""


def pythons():
    """The interpreters of JetPack 5, 6 and 7 where `make fleet-test` has made environments of them, else this one."""
    found = [PROJECT / f".venv-board-{version}/bin/python" for version in ("3.8", "3.10", "3.12")]
    return [str(path) if path.exists() else sys.executable for path in found]


class SimulatedLab:
    """Boards and daemons; `stop` ends all of them."""

    def __init__(self, networks=False, boards=3, settings=SETTINGS, sshd=""):
        # munge's socket has a short path that every user may enter: no folder of pytest
        self.folder = Path(tempfile.mkdtemp(prefix="lab", dir="/tmp"))
        self.folder.chmod(0o755)
        environment = {**os.environ, "NETWORKS": "yes" if networks else "no", "LAB": settings}
        subprocess.run([str(TOOL), "make", str(self.folder / "lab"), *pythons()[:boards]], env=environment, check=True)
        self.folder /= "lab"
        self.fleet = self.folder / "fleet"
        if sshd:  # the first value of an option counts
            for board in self.folder.glob("board*"):
                config = board / "sshd_config"
                config.write_text(f"{sshd}\n{config.read_text()}")
                self.power("cut", board.name)
                self.power("start", board.name)
        self.call("init", str(self.folder / "lab.toml"))
        self.start_daemons()

    def start_daemons(self):
        self.daemons = subprocess.Popen(
            [str(self.fleet / "bin/daemons")], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def stop_daemons(self):
        self.daemons.send_signal(signal.SIGTERM)
        self.daemons.wait(300)

    def rounds(self):
        """The process ids of the daemons' script's sleep of a second, of which there is another one in each round."""
        children = Path(f"/proc/{self.daemons.pid}/task/{self.daemons.pid}/children")
        pids = children.read_text().split() if children.exists() else []
        for pid in pids:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001\0":
                    yield pid

    def reboot_host(self):
        """Kill all that runs on the lab host, of which no board hears anything; `start_daemons` starts it again."""
        for board in self.folder.glob("board*"):  # no packet that ends a connection reaches a board
            namespace = (board / "settings").read_text().partition("=")[2].strip()
            firewall = ["ip", "netns", "exec", namespace, "iptables", "-A", "INPUT", "-p", "tcp", "--tcp-flags"]
            for flag in ("FIN", "RST"):
                subprocess.run([*firewall, flag, flag, "-j", "DROP"], check=True)
        # A slice that ends has its ssh tell its board; an ssh that ends has its slice go on: all stop before any ends.
        self._signal_host(signal.SIGSTOP)
        self._signal_host(signal.SIGKILL, b"ssh\0")
        self._signal_host(signal.SIGKILL)
        self.daemons.wait(300)

    def _signal_host(self, number, program=b""):
        for _ in range(2):  # the second time to those that began meanwhile
            for pid, text in list(processes()):
                if self.is_of_host(text) and text.startswith(program):
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)

    def is_of_host(self, text):
        """Whether a process with this command and environment belongs to the lab host, not to a board."""
        is_sshd = os.fsencode(f"{self.folder}/board") in text and b"sshd" in text.partition(b"\n")[0]
        return os.fsencode(self.fleet) in text and b"SIMULATED_BOARD=" not in text and not is_sshd

    def stop(self):
        self.slurm("scancel", "--user", str(os.getuid())).communicate(timeout=300)
        for _ in range(600):
            if not self.slurm("squeue", "-h").communicate(timeout=300)[0]:
                break
            time.sleep(0.5)
        self.daemons.send_signal(signal.SIGTERM)
        self.daemons.wait(300)
        subprocess.run([str(TOOL), "stop", str(self.folder)], check=True)
        for pid in self.processes():  # a step whose slurmctld is gone would tell it for long
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for _ in range(600):
            leftover = self.processes()
            if not leftover:
                break
            time.sleep(0.5)
        if os.environ.get("JETWATT_KEEP_FLEET"):  # for whoever wants to know why a test failed
            shutil.copytree(
                str(self.fleet),
                str(Path(os.environ["JETWATT_KEEP_FLEET"]) / self.folder.parent.name),
                ignore=shutil.ignore_patterns("*.socket*", "spool"),  # no sockets
                dirs_exist_ok=True,
            )
        shutil.rmtree(str(self.folder.parent))
        assert leftover == []

    def processes(self):
        """The processes whose command or environment names the lab's folder."""
        return [pid for pid, told in processes() if os.fsencode(self.folder) in told]

    def start(self, action, *words):
        command = [sys.executable, "-m", "harness", "fleet", action, *words]
        return subprocess.Popen(
            command,
            cwd=str(PROJECT),
            env={**os.environ, "JETWATT_LAB": str(self.folder / "lab.toml")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, action, *words, code=0):
        process = self.start(action, *words)
        said = process.communicate(timeout=600)[0]
        assert process.returncode == code, said
        return said

    def status(self):
        """What `fleet status --json` prints; None while slurmctld does not answer."""
        printed, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            code = main(["fleet", "status", "--json", "--lab", str(self.folder / "lab.toml")])
        return json.loads(printed.getvalue()) if code == 0 else None

    def board(self, name):
        status = self.status()
        return next((one for one in status["boards"] if one["name"] == name), None) if status else None

    def wait(self, what, is_so, at_most_s=3600.0, every_s=1.0):
        """Wait until something is so; returns it."""
        end = time.monotonic() + at_most_s
        while time.monotonic() < end:
            found = is_so()
            if found:
                print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
                return found
            time.sleep(every_s)
        raise AssertionError(f"not within {at_most_s:g} s: {what}; {self.status()}")

    def wait_until_idle(self):
        def is_idle():
            status = self.status()
            return status and all(board["state"] == "idle" for board in status["boards"])

        self.wait("all boards are idle", is_idle)

    @property
    def gate_words(self):
        """Arguments of pytest with which `hold` stops runs: tests/fleet/gate.py."""
        return ("-p", "tests.fleet.gate", "--gate", str(self.folder / "gate"))

    def hold(self, *boards):
        """Have runs on boards stop before their second case, until `release`."""
        (self.folder / "gate").mkdir(exist_ok=True)
        for board in boards:
            (self.folder / "gate" / board).touch()

    def release(self, *boards):
        for board in boards:
            (self.folder / "gate" / board).unlink()

    def wait_until_held(self, submission, *boards):
        """The slices of a submission that boards hold, once each of them holds one."""

        def waiting(board):
            return self.wait(f"{board} holds a slice", lambda: held_slice(submission, board), every_s=0.2)

        return [waiting(board) for board in boards]

    def power(self, action, board):
        subprocess.run([str(TOOL), action, str(self.folder / board)], check=True)

    def kill_controller(self):
        [pid] = [pid for pid, told in processes() if b"slurmctld\0-D\0" in told and os.fsencode(self.fleet) in told]
        os.kill(pid, signal.SIGKILL)

    def slurm(self, *command):
        environment = {**os.environ, "SLURM_CONF": str(self.fleet / "slurm.conf")}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def attempts(submission, number):
    """The attempts at a slice: when, on which board, why it failed, at which case."""
    path = submission.file(number, "attempts")
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def held_slice(submission, board):
    """The slice that a board holds: its first case is stored, its second one has begun. None if there is none."""
    for number in range(1, len(submission.slices) + 1):
        log = submission.folder / "log" / f"{number}.log"
        rows = attempts(submission, number)
        if rows and rows[-1][1] == board and log.exists() and not submission.file(number, "ended").exists():
            own = log.read_text().rpartition(f" of {submission.id} on {board}: ")[2]
            if own.count(CASE_BEGINS) > 1:
                return number
    return None


def processes():
    """Process ids with command and environment, but for this one."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(path.name) != os.getpid():
                yield int(path.name), (path / "cmdline").read_bytes() + b"\n" + (path / "environ").read_bytes()
