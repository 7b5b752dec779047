"""A lab: `lab.toml`, and the folder that `fleet init` makes of it: Slurm's configuration, keys, scripts."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import stat
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import msgspec

import harness
from harness.core.cases import INSTANCE_MARK
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.files import read_toml, typed, write_durably

SCRIPTS = Path(__file__).parent / "scripts"
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch", "squeue", "sinfo", "scancel", "ssh")
MOST_FAILURES = 3

_NAME = re.compile(r"[a-z][a-z0-9]{0,30}", re.ASCII)
_MODE = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,30}", re.ASCII)
_ADDRESS = re.compile(r"([\w.-]+@)?[\w.:-]+", re.ASCII)
_LONGEST_SOCKET = 100  # a socket's path has room for 107


class BoardEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table `[[board]]` of `lab.toml`."""

    name: str  # as Slurm and people call it
    type: str  # as `--device` takes it: `orin-agx`; `sim:orin-agx@1` is a simulated one
    jetpack: str  # `6.2`, or `6`
    ssh: str  # `user@host`
    folder: str  # of the suite on the board
    port: int = 22
    python: str = ".venv/bin/python"  # on the board, from that folder
    work: str = "out/fleet"  # where the runs of the fleet lie on the board, from that folder
    root: str = "/"  # where /proc, /sys and /etc of the board are looked for
    modes: Tuple[str, ...] = ()  # modes that take a reboot, the usual one first
    reboot: str = "sudo -n reboot"  # on the board; {mode} stands for the mode to boot into
    mode: str = ""  # a command on the board that prints the mode that it is in
    power: str = ""  # a program on the lab host: PROGRAM NAME cycle
    clocks_only_fall: bool = False  # raising a clock takes a reboot: there is one before each slice

    @property
    def device(self) -> str:
        """What the cases of the pool are planned for."""
        return self.type if self.type.startswith("replay:") else self.type.partition(INSTANCE_MARK)[0]

    @property
    def pool(self) -> str:
        """Board type and JetPack: profiles of different ones never compare."""
        return re.sub("[^a-z0-9]+", "-", self.device.lower()).strip("-") + "-jp" + self.jetpack.partition(".")[0]


class Lab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `lab.toml` holds."""

    board: Tuple[BoardEntry, ...]
    folder: str = "fleet"  # of everything that `init` makes and the fleet keeps, from the folder of `lab.toml`
    host: str = "127.0.0.1"  # the lab host, where the daemons listen
    port: int = 17000  # of slurmctld; the boards' slurmd have those that follow
    identity: str = ""  # the private ssh key
    known_hosts: str = "~/.ssh/known_hosts"
    slice_minutes: float = 20.0
    check_seconds: int = 300
    free_mb: float = 500.0  # on a board's disk, at least
    reboot_seconds: int = 300
    silent_seconds: int = 45  # how long a board may say nothing before it counts as lost
    requeue_seconds: int = 30  # how long a slice waits that another board shall take
    most_boots: int = 3  # not by the fleet


class Fleet:
    """A lab, and the folder that it has."""

    def __init__(self, path: Path) -> None:
        """Read a `lab.toml`.

        Raises:
            InvalidValueError, UnknownNameError: what is wrong in it, and what was expected.
        """
        self.path = path.absolute()
        if not path.is_file():
            raise UnknownNameError(f"there is no lab {path}", "--lab FILE names it; docs/fleet.md shows one")
        self.lab = typed(read_toml(path), Lab, str(path))
        self.folder = (self.path.parent / Path(self.lab.folder).expanduser()).absolute()
        _check(self.lab, path)

    @property
    def pools(self) -> Dict[str, List[BoardEntry]]:
        found: Dict[str, List[BoardEntry]] = {}
        for board in self.lab.board:
            found.setdefault(board.pool, []).append(board)
        return found

    def pool(self, name: str) -> List[BoardEntry]:
        if name not in self.pools:
            raise UnknownNameError(f"there is no pool {name!r}", f"known: {', '.join(self.pools)}")
        return self.pools[name]

    @property
    def limit_s(self) -> int:
        """After how long a slice counts as stuck."""
        return round(3 * 60 * self.lab.slice_minutes)

    def init(self) -> List[str]:
        """Make or bring up to date the folder; returns what root and the user must do. Nothing else is touched.

        Raises:
            CannotRunError: a program is missing, or the folder's place does not fit.
        """
        missing = [name for name in PROGRAMS if program(name) is None]
        if missing:
            raise CannotRunError(
                f"{', '.join(missing)} cannot be found", "apt-get install slurm-wlm munge openssh-client"
            )
        for name in ("", "bin", "boards", "log", "run", "spool", "state", "submissions"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        _refuse_place(self.folder)
        for source in sorted(SCRIPTS.iterdir()):
            self._write(f"bin/{source.name}", source.read_text(), 0o755)
        key = self.folder / "munge.key"
        if not key.exists():
            descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(os.urandom(128))
        _refuse_open(key)
        for board in self.lab.board:
            self._write(f"boards/{board.name}", _assignments(self._of_board(board)))
        for gone in {path.name for path in (self.folder / "boards").iterdir()} - {one.name for one in self.lab.board}:
            (self.folder / "boards" / gone).unlink()
        self._write("fleet.env", _assignments(self._of_fleet()))
        self._write("ssh_config", self._ssh_config())
        self._write("slurm.conf", self._slurm_conf())
        modes = list(dict.fromkeys(mode for board in self.lab.board for mode in board.modes))
        helper = self.folder / "bin/mode"
        lines = [*(f"Feature={mode} Helper={helper}" for mode in modes), f"MutuallyExclusive={','.join(modes)}"]
        if modes:
            self._write("helpers.conf", "\n".join([*lines, "ExecTime=60"]) + "\n")
        self._write("jetwatt-fleet.service", self._unit())
        return self._for_people()

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.folder / name
        if not path.exists() or path.read_text() != text:
            write_durably(path, text.encode())
        if stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)

    def _of_fleet(self) -> Dict[str, Any]:
        return {
            "BOARDS": " ".join(board.name for board in self.lab.board),
            "LIMIT_S": self.limit_s,
            "MOST_BOOTS": self.lab.most_boots,
            **{name.upper(): program(name) for name in PROGRAMS},
            "SLURM_CONF": self.folder / "slurm.conf",
        }

    def _of_board(self, board: BoardEntry) -> Dict[str, Any]:
        return {
            "NAME": board.name,
            "DEVICE": board.type,
            "JETPACK": board.jetpack,
            "FOLDER": board.folder,
            "PYTHON": board.python,
            "WORK": board.work,
            "ROOT": board.root,
            "MODES": " ".join(board.modes),
            "MODE": board.mode,
            "REBOOT": board.reboot,
            "POWER": board.power,
            "CLOCKS_ONLY_FALL": "yes" if board.clocks_only_fall else "no",
            "FREE_MB": self.lab.free_mb,
            "REBOOT_S": self.lab.reboot_seconds,
            "VERSION": harness.__version__,
        }

    def _ssh_config(self) -> str:
        silent_s = self.lab.silent_seconds
        known_hosts = Path(self.lab.known_hosts).expanduser()
        lines = []
        for board in self.lab.board:
            user, _, host = board.ssh.rpartition("@")
            lines += [f"Host {board.name}", f"    HostName {host}", f"    Port {board.port}"]
            lines += [f"    User {user}"] if user else []
        lines += [
            "Host *",
            "    BatchMode yes",
            "    StrictHostKeyChecking yes",
            f'    UserKnownHostsFile "{self.path.parent / known_hosts}"',
            "    IdentitiesOnly yes",
            "    IdentityAgent none",
            "    ForwardAgent no",
            "    ForwardX11 no",
            "    ClearAllForwardings yes",
            "    ControlPath none",
            f"    ConnectTimeout {max(1, silent_s // 3)}",
            f"    ServerAliveInterval {max(1, silent_s // 3)}",
            "    ServerAliveCountMax 3",
        ]
        if self.lab.identity:
            lines.append(f'    IdentityFile "{self.path.parent / Path(self.lab.identity).expanduser()}"')
        return "\n".join(lines) + "\n"

    def _slurm_conf(self) -> str:
        lab, folder, user = self.lab, self.folder, getpass.getuser()
        with_modes = any(board.modes for board in lab.board)
        settings = {
            "ClusterName": "jetwatt",
            "SlurmctldHost": f"localhost({lab.host})",
            "SlurmctldPort": lab.port,
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/run/munge.socket,cred_expire={lab.requeue_seconds}",
            "SlurmUser": user,
            "SlurmdUser": user,
            "StateSaveLocation": f"{folder}/state",
            "SlurmdSpoolDir": f"{folder}/spool/%n",
            "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
            "SlurmdPidFile": f"{folder}/run/%n.slurmd.pid",
            "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
            "SlurmdLogFile": f"{folder}/log/%n.log",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "MpiDefault": "none",
            "MailProg": "/bin/true",
            **({"CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny"} if lab.host.startswith("127.") else {}),
            "SelectType": "select/linear",
            "SchedulerParameters": "batch_sched_delay=0",
            "SlurmdTimeout": 60,
            "ReturnToService": 2,
            "JobRequeue": 1,
            "RequeueExit": 75,
            "RequeueExitHold": 76,
            "MaxArraySize": 20001,
            "MaxJobCount": 100000,
            "HealthCheckProgram": f"{folder}/bin/health",
            "HealthCheckInterval": lab.check_seconds,
            "HealthCheckNodeState": "IDLE",
            "ResumeTimeout": lab.reboot_seconds + 60,
            "RebootProgram": f"{folder}/bin/reboot",
            **({"NodeFeaturesPlugins": "node_features/helpers"} if with_modes else {}),
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        for number, board in enumerate(lab.board, start=1):
            features = f" Features={','.join(board.modes)}" if board.modes else ""
            here = f"NodeHostname={os.uname().nodename.partition('.')[0]} NodeAddr={lab.host} Port={lab.port + number}"
            lines.append(f"NodeName={board.name} {here}{features}")
        for pool, boards in self.pools.items():
            names = ",".join(board.name for board in boards)
            lines.append(f"PartitionName={pool} Nodes={names} MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE")
        return "\n".join(["# Written by `jetwatt fleet init`, which overwrites it.", *lines]) + "\n"

    def _unit(self) -> str:
        return (
            "[Unit]\nDescription=The jetwatt fleet: munged, slurmctld, a slurmd a board\nAfter=network.target\n"
            f"[Service]\nUser={getpass.getuser()}\nExecStart={self.folder}/bin/daemons\nRestart=always\nRestartSec=5\n"
            "[Install]\nWantedBy=multi-user.target\n"
        )

    def _for_people(self) -> List[str]:
        folder = shlex.quote(str(self.folder))
        return [
            "root, once (Debian's own daemons are not used):",
            "  systemctl disable --now slurmctld slurmd munge",
            f"  cp {folder}/jetwatt-fleet.service /etc/systemd/system/ && systemctl daemon-reload",
            "  systemctl enable --now jetwatt-fleet",
            "where there is no systemd, this user:",
            f"  setsid {folder}/bin/daemons &",
            "after a change of lab.toml: fleet init again, then restart jetwatt-fleet",
            "each board's host key must be known (ssh-keyscan, and compare it), and the key of this user be let in:",
            *(f"  ssh -F {folder}/ssh_config {board.name} true" for board in self.lab.board),
            "people who want a board for themselves:",
            f"  export SLURM_CONF={folder}/slurm.conf",
            f"  salloc --partition {self.lab.board[0].pool} --nodelist {self.lab.board[0].name} --time 2:00:00",
        ]


def program(name: str) -> Optional[str]:
    """Where a program lies; daemons are not on the path of every user."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


def _check(lab: Lab, path: Path) -> None:
    if not lab.board:
        raise InvalidValueError(f"{path} has no [[board]]", "give at least one")
    names = [board.name for board in lab.board]
    for board in lab.board:
        told = f"board {board.name!r} of {path}"
        if not _NAME.fullmatch(board.name):
            raise InvalidValueError(f"{told}: its name is taken by Slurm", "small letters and digits: orin3")
        if names.count(board.name) > 1:
            raise InvalidValueError(f"{told} stands there twice", "give each a name of its own")
        if not _ADDRESS.fullmatch(board.ssh) or board.ssh.startswith("-"):
            raise InvalidValueError(f"{told}: ssh is {board.ssh!r}", "user@host, or host")
        if not re.fullmatch(r"\d+(\.\d+)*", board.jetpack):
            raise InvalidValueError(f"{told}: jetpack is {board.jetpack!r}", 'a release: "6.2", or "6" for any of them')
        wrong = [mode for mode in board.modes if not _MODE.fullmatch(mode)]
        if wrong:
            raise InvalidValueError(f"{told}: mode {wrong[0]!r}", "letters, digits, dots and underscores: mode_15w")
        if len(board.modes) > 1 and "{mode}" not in board.reboot:
            raise InvalidValueError(f"{told}: reboot is {board.reboot!r}", "with modes, it has {mode} in it")
        if board.work.startswith("-") or "\n" in "".join((board.folder, board.python, board.work, board.reboot)):
            raise InvalidValueError(f"{told}: folder, python, work or reboot is no name on one line")
    if not 1 <= lab.port <= 65535 - len(names):
        raise InvalidValueError(
            f"port of {path} is {lab.port}", "a number that leaves room for one more a board: 17000"
        )
    for key in ("slice_minutes", "check_seconds", "reboot_seconds", "silent_seconds", "requeue_seconds", "most_boots"):
        if getattr(lab, key) <= 0:
            raise InvalidValueError(f"{key} of {path} is {getattr(lab, key)}", "it must be above 0")


def _refuse_place(folder: Path) -> None:
    """Munge lets nobody in whose way to the socket is closed, and a socket's path must be short."""
    if len(str(folder)) > _LONGEST_SOCKET - len("/run/munge.socket") or " " in str(folder):
        raise CannotRunError(f"{folder} is too long, or has a space", "set folder in lab.toml to a short path")
    closed = [part for part in (folder, *folder.parents) if not part.stat().st_mode & stat.S_IXOTH]
    if closed:
        raise CannotRunError(
            f"users cannot enter {closed[0]}, on the way to munge's socket",
            f"chmod o+x {closed[0]}, or set folder in lab.toml to another place, such as /srv/jetwatt-fleet",
        )


def _refuse_open(key: Path) -> None:
    found = key.stat()
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
        raise CannotRunError(
            f"{key} has mode {stat.S_IMODE(found.st_mode):o} and owner {found.st_uid}: others may read it, or own it",
            f"remove it, so that a new one is made, or: chmod 600 {key}",
        )


def _assignments(values: Dict[str, Any]) -> str:
    """Lines for a shell to read."""
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in values.items()]
    exported: Sequence[str] = [f"export {name}" for name in values if name == "SLURM_CONF"]
    return "\n".join(["# Written by `jetwatt fleet init`, which overwrites it.", *lines, *exported]) + "\n"
