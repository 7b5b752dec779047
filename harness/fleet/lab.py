"""A lab: `lab.toml`, and the folder that `fleet init` makes of it: Slurm's configuration, keys, scripts."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import shutil
import socket
import stat
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import msgspec

import harness
from harness.core.cases import INSTANCE_MARK
from harness.core.configuration import Configuration
from harness.core.environment import import_path
from harness.core.errors import CannotRunError, DependencyError, InvalidValueError, UnknownNameError
from harness.core.files import make_own_folder, read_toml, typed, write_durably
from harness.core.terminal import available_hint
from harness.devices.registry import open_device

SCRIPTS, TEMPLATES = Path(__file__).parent / "scripts", Path(__file__).parent / "templates"
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch", "squeue", "sinfo", "scancel", "ssh")

_NAME = re.compile(r"[a-z][a-z0-9]{0,30}", re.ASCII)
_MODE = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,30}", re.ASCII)
_ADDRESS = re.compile(r"([\w.-]+@)?[\w.:-]+", re.ASCII)
_LONGEST_SOCKET = 100  # a socket's path has room for 107


class BoardEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str  # in Slurm and for users: small letters and digits
    type: str  # as `--device` takes it: `orin-agx`; `sim:orin-agx@1` is a simulated board
    jetpack: str  # `6.2`, or `6`
    ssh: str  # `user@host`
    folder: str  # of the suite on the board
    port: int = 22  # of sshd
    python: str = ".venv/bin/python"  # on the board, from that folder
    work: str = "out/fleet"  # folder of the fleet's runs on the board, relative to that folder
    root: str = "/"  # the folder with /proc, /sys and /etc of the board
    modes: Tuple[str, ...] = ()  # modes that need a reboot, the usual one first
    reboot: str = "sudo -n reboot"  # on the board; {mode} is replaced by the mode to boot into
    mode: str = ""  # a command on the board that prints its current mode
    power: str = ""  # a program on the lab host: PROGRAM NAME cycle
    clocks_only_fall: bool = False  # raising a clock needs a reboot, which precedes each slice

    @property
    def device(self) -> str:
        return self.type if self.type.startswith("replay:") else self.type.partition(INSTANCE_MARK)[0]

    @property
    def pool(self) -> str:
        """Board type and JetPack: profiles of different ones never compare."""
        return re.sub("[^a-z0-9]+", "-", self.device.lower()).strip("-") + "-jp" + self.jetpack.partition(".")[0]


class Lab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    board: Tuple[BoardEntry, ...]  # `[[board]]` tables
    folder: str = "fleet"  # of everything that `init` makes and the fleet keeps, relative to `lab.toml`
    host: str = "127.0.0.1"  # the lab host, where the daemons listen
    port: int = 17000  # of slurmctld; the boards' slurmd use the following ones
    identity: str = ""  # the private ssh key
    known_hosts: str = "~/.ssh/known_hosts"  # the boards' public keys, as ssh keeps them
    slice_minutes: float = 20.0  # how long a slice takes, as estimated
    check_seconds: int = 300  # between checks of boards that are idle or out of service
    free_mb: float = 500.0  # on the disks of a board and of the folder, at least
    reboot_seconds: int = 300  # how long a reboot may take
    silent_seconds: int = 45  # time without an answer after which a board counts as lost
    requeue_seconds: int = 30  # time that a slice waits before another board takes it
    most_boots: int = 3  # the most boots that the fleet did not cause


class Fleet:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        if not path.is_file():
            raise UnknownNameError(f"there is no lab {path}", "name it with --lab FILE; docs/fleet_setup.md shows one")
        self.lab = typed(read_toml(path), Lab, str(path))
        self.folder = (self.path.parent / Path(self.lab.folder).expanduser()).absolute()
        _check(self.lab, path)

    @property
    def pools(self) -> Dict[str, List[BoardEntry]]:
        pools: Dict[str, List[BoardEntry]] = {}
        for board in self.lab.board:
            pools.setdefault(board.pool, []).append(board)
        return pools

    def pool(self, name: str) -> List[BoardEntry]:
        if name not in self.pools:
            raise UnknownNameError(f"there is no pool {name!r}", available_hint(name, self.pools))
        return self.pools[name]

    def init(self) -> str:
        """Create or update the folder; returns the steps for root and the user. Nothing else is changed."""
        missing = [name for name in PROGRAMS if program(name) is None]
        if missing:
            what = f"{', '.join(missing)} not found"
            raise CannotRunError(what, "apt-get install slurm-wlm munge openssh-client")
        self._refuse_absent()
        self._refuse_used_ports()
        try:
            make_own_folder(self.folder)
            _refuse_place(self.folder)
            self.folder.chmod(0o700)  # jobs run as this user, so no other may reach munge's socket and its key
            for name in ("bin", "boards", "log", "run", "spool", "state", "submissions"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = (
                f"sudo install -d -m 700 -o {user_name()} {self.folder}, or set folder in lab.toml to a writable place"
            )
            raise CannotRunError(f"{error.filename} cannot be used: {error.strerror}", hint) from error
        for source in sorted(SCRIPTS.iterdir()):
            self._write(f"bin/{source.name}", source.read_text(), 0o755)
        self._make_key()
        self._rename_boards()
        self._write_board_settings()
        self._write_ssh_config()
        self._write_slurm_conf()
        self._fill("jetwatt-fleet.service")
        first = self.lab.board[0]
        checks = "\n".join(f"  ssh -F {self.folder}/ssh_config {board.name} true" for board in self.lab.board)
        return self._filled("todo.txt", checks=checks, board=first.name)

    def _refuse_absent(self) -> None:
        """Refuse missing files and programs, which would otherwise show only when a board measures or is lost."""
        identity = self._beside(self.lab.identity)
        if self.lab.identity and not identity.is_file():
            raise CannotRunError(
                f"identity of {self.path} is {identity}, which does not exist", "make it by ssh-keygen"
            )
        for board in self.lab.board:
            with contextlib.suppress(CannotRunError, DependencyError):  # a device that exists on its board only
                open_device(board.device, Configuration())
            if board.power and shutil.which(board.power) is None:
                what = f"power of board {board.name!r} is {board.power}, which is not a program here"
                raise CannotRunError(what, "leave power out if no program switches the board")

    def _refuse_used_ports(self) -> None:
        """Refuse ports on which another lab's daemons listen, which would answer in the place of this one's."""
        configuration = self.folder / "slurm.conf"
        own = configuration.read_text() if configuration.exists() else ""
        if f"SlurmctldPort={self.lab.port}\n" in own:
            return  # this fleet's own daemons may run
        for port in range(self.lab.port, self.lab.port + 1 + len(self.lab.board)):
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.settimeout(2.0)
                probe.connect((self.lab.host, port))
                what = f"port {port} of {self.lab.host} is in use, perhaps by the daemons of another lab"
                hint = f"set port in {self.path} to the first of {1 + len(self.lab.board)} free ones"
                raise CannotRunError(what, hint)

    def _rename_boards(self) -> None:
        """Let what the fleet recorded of a board that has another name now follow it: same address, port and folder."""
        places = {(board.ssh, str(board.port), board.folder): board.name for board in self.lab.board}
        names = set(places.values())
        for settings in (self.folder / "boards").iterdir():
            lines = [line.partition("=") for line in settings.read_text().splitlines()]
            before = {name: "".join(shlex.split(text)) for name, _, text in lines if name in ("SSH", "PORT", "FOLDER")}
            name = places.get((before.get("SSH", ""), before.get("PORT", ""), before.get("FOLDER", "")))
            if settings.name in names or name is None or (self.folder / "boards" / name).exists():
                continue
            for file in (self.folder / "run").glob(f"{settings.name}.*"):
                file.rename(file.with_name(f"{name}.{file.name.partition('.')[2]}"))

    def _filled(self, name: str, **values: Any) -> str:
        fields = {**msgspec.structs.asdict(self.lab), "folder": self.folder, "user": user_name(), **values}
        return (TEMPLATES / name).read_text().format(**fields)

    def _fill(self, name: str, **values: Any) -> None:
        self._write(name, self._filled(name, **values))

    def _beside(self, path: str) -> Path:
        return self.path.parent / Path(path).expanduser()

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.folder / name
        if not path.exists() or path.read_text() != text:
            write_durably(path, text.encode())
        if stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)

    def _make_key(self) -> None:
        key = self.folder / "munge.key"
        if not key.exists():
            descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
            with os.fdopen(descriptor, "wb") as file:
                file.write(os.urandom(128))
        owner, mode = key.stat().st_uid, stat.S_IMODE(key.stat().st_mode)
        if mode & 0o077 or owner != os.geteuid():
            what = f"{key} has mode {mode:o} and owner {owner}: other users may read or own it"
            raise CannotRunError(what, f"remove it to get a new one, or: chmod 400 {key}")
        key.chmod(0o400)

    def _write_board_settings(self) -> None:
        for board in self.lab.board:
            values = {name.upper(): value for name, value in msgspec.structs.asdict(board).items()}
            values["DEVICE"] = board.type
            values["MODES"] = " ".join(board.modes)
            values["CLOCKS_ONLY_FALL"] = "yes" if board.clocks_only_fall else "no"
            values.update(FREE_MB=self.lab.free_mb, REBOOT_S=self.lab.reboot_seconds, VERSION=harness.__version__)
            self._write(f"boards/{board.name}", _assignments(values))
        names = [board.name for board in self.lab.board]
        for gone in {path.name for path in (self.folder / "boards").iterdir()} - set(names):
            (self.folder / "boards" / gone).unlink()
        values = {
            "BOARDS": " ".join(names),
            "LIMIT_S": round(3 * 60 * self.lab.slice_minutes),  # a slice that takes longer is stuck
            "LAB": self.path,
            "SUITE": import_path(),
            "PYTHON": sys.executable,
            "MOST_BOOTS": self.lab.most_boots,
            **{name.upper(): program(name) for name in PROGRAMS},
            "SLURM_CONF": self.folder / "slurm.conf",
        }
        self._write("fleet.env", _assignments(values, "SLURM_CONF"))

    def _write_ssh_config(self) -> None:
        lines = []
        for board in self.lab.board:
            user, _, host = board.ssh.rpartition("@")
            lines += [f"Host {board.name}", f"    HostName {host}", f"    Port {board.port}"]
            lines += [f"    User {user}"] if user else []
            lines += [f'    IdentityFile "{self._beside(self.lab.identity)}"'] if self.lab.identity else []
        third_seconds, known_hosts = max(1, self.lab.silent_seconds // 3), self._beside(self.lab.known_hosts)
        self._fill("ssh_config", boards="\n".join(lines), third_seconds=third_seconds, known_hosts=known_hosts)

    def _write_slurm_conf(self) -> None:
        lines, host_name = [], os.uname().nodename.partition(".")[0]
        for number, board in enumerate(self.lab.board, start=1):
            features = f" Features={','.join(board.modes)}" if board.modes else ""
            here = f"NodeHostname={host_name} NodeAddr={self.lab.host} Port={self.lab.port + number}"
            lines.append(f"NodeName={board.name} {here}{features}")
        for pool, boards in self.pools.items():
            names = ",".join(board.name for board in boards)
            limits = "MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE"
            # SlurmUser may always submit, members of no other group but root's: AllowAccounts would need slurmdbd.
            lines.append(f"PartitionName={pool} Nodes={names} AllowGroups=root {limits}")
        modes = list(dict.fromkeys(mode for board in self.lab.board for mode in board.modes))
        if modes:
            helpers = [f"Feature={mode} Helper={self.folder / 'bin/mode'}" for mode in modes]
            exclusive = f"MutuallyExclusive={','.join(modes)}"
            self._write("helpers.conf", "\n".join([*helpers, exclusive, "ExecTime=60"]) + "\n")
        is_local = self.lab.host.startswith("127.")
        self._fill(
            "slurm.conf",
            nodes="\n".join(lines),
            features="NodeFeaturesPlugins=node_features/helpers\n" if modes else "",
            loopback="CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n" if is_local else "",
            resume_seconds=self.lab.reboot_seconds + 60,
        )


def program(name: str) -> Optional[str]:
    """The path of a program; daemons are not on the PATH of every user."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


def user_name() -> str:
    """The account that this process runs as, regardless of LOGNAME and USER."""
    return pwd.getpwuid(os.geteuid()).pw_name


def _check(lab: Lab, path: Path) -> None:
    if not lab.board:
        raise InvalidValueError(f"{path} has no [[board]]", "give at least one")
    names = [board.name for board in lab.board]
    for board in lab.board:
        where = f"board {board.name!r} of {path}"
        if not _NAME.fullmatch(board.name):
            what = f"{where}: Slurm does not accept its name"
            raise InvalidValueError(what, "use lower-case letters and digits: orin3")
        if names.count(board.name) > 1:
            raise InvalidValueError(f"{where} is listed twice", "give each board its own name")
        if not _ADDRESS.fullmatch(board.ssh) or board.ssh.startswith("-"):
            raise InvalidValueError(f"{where}: ssh is {board.ssh!r}", "write user@host, or host")
        if not re.fullmatch(r"\d+(\.\d+)*", board.jetpack):
            what = f"{where}: jetpack is {board.jetpack!r}"
            raise InvalidValueError(what, 'write a release: "6.2", or "6" for any of them')
        wrong = [mode for mode in board.modes if not _MODE.fullmatch(mode)]
        if wrong:
            what = f"{where}: mode {wrong[0]!r} is not a valid name"
            raise InvalidValueError(what, "use letters, digits, dots and underscores: mode_15w")
        if len(board.modes) > 1 and "{mode}" not in board.reboot:
            raise InvalidValueError(f"{where}: reboot is {board.reboot!r}", "with modes, it must contain {mode}")
        if board.work.startswith("-") or "\n" in "".join((board.folder, board.python, board.work, board.reboot)):
            raise InvalidValueError(f"{where}: folder, python, work or reboot is not a name on one line")
    if not 1 <= lab.port <= 65535 - len(names):
        what = f"port of {path} is {lab.port}"
        raise InvalidValueError(what, "leave room for one more port per board: 17000")
    if lab.requeue_seconds < 5:  # Slurm ignores that, and waits for 120
        raise InvalidValueError(f"requeue_seconds of {path} is {lab.requeue_seconds}", "Slurm accepts 5 or more")
    for key in ("slice_minutes", "check_seconds", "reboot_seconds", "silent_seconds", "most_boots"):
        if getattr(lab, key) <= 0:
            raise InvalidValueError(f"{key} of {path} is {getattr(lab, key)}", "it must be above 0")


def _refuse_place(folder: Path) -> None:
    """Refuse a path that is too long for a socket, or a folder that another user may replace."""
    if len(str(folder)) > _LONGEST_SOCKET - len("/run/munge.socket") or " " in str(folder):
        raise CannotRunError(f"{folder} is too long, or has a space", "set folder in lab.toml to a short path")
    for part in (folder, *folder.parents, *folder.resolve().parents):
        status = part.stat()
        mode = stat.S_IMODE(status.st_mode)
        group_writes = mode & stat.S_IWGRP and status.st_gid not in (0, os.getgid())
        others_write = part != folder and (group_writes or mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
        if others_write or status.st_uid not in (0, os.geteuid()):
            rights = f"mode {mode:o}, owner {status.st_uid} and group {status.st_gid}"
            what = f"another user may replace {folder}: {part} has {rights}"
            hint = "set folder in lab.toml to a place below folders of yours or root's, such as /srv/jetwatt-fleet"
            raise CannotRunError(what, hint)
    files = {path.name for path in folder.iterdir()}
    if folder.stat().st_mode & 0o077 and files and "slurm.conf" not in files:
        what = f"{folder} has other files, and init would close it to other users"
        raise CannotRunError(what, "set folder in lab.toml to a new folder")


def _assignments(values: Dict[str, Any], *exported: str) -> str:
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in values.items()]
    lines += [f"export {name}" for name in exported]
    return "\n".join(["# Written by `jetwatt fleet init`, which overwrites it.", *lines]) + "\n"
