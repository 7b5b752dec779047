#!/usr/bin/python3 -IS
"""The few acts that need root: a fixed list, run through sudo by the one rule that `doctor --sudoers` prints.

    privileged list KIND                         names of the nodes of a kind (see KINDS)
    privileged read KIND NAME
    privileged write KIND NAME VALUE
    privileged store-conf CUSTOM                 custom-1 or custom-2; the nvpmodel conf comes from standard input
    privileged forget-conf CUSTOM
    privileged nvpmodel own|CUSTOM ID
    privileged jetson-clocks show|store|pin|restore|forget
    privileged gpu UUID gpu-clocks|memory-clocks LOW,HIGH|reset       MHz, by nvidia-smi
    privileged gpu UUID power-limit WATT
    privileged fan full|back                     full speed, no automatic control; back to the state before
    privileged stream                            reads sensors (see sensor_files) until its input ends

What runs with root's rights is a copy of this file that only root can change. It needs only the standard library, from
Python 3.6 on, which is what JetPack 4 calls python3; no environment variable is read or handed on, no limit or signal
mask of the caller's is kept. No argument becomes part of a path: a node is one of those listed under /sys,
and files lie in one folder of root's.
"""

# No `from __future__ import annotations` here: Python 3.6 does not know it.

import contextlib
import errno
import fcntl
import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import time
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

DONE, FAILED, REFUSED, TIMED_OUT = 0, 1, 2, 124
"""Exit statuses: done; tried and failed; refused, because the request is not on the list; begun and ended early."""

STATE = "var/lib/jetwatt"
OWN_CONF = "etc/nvpmodel.conf"
NVPMODEL = "usr/sbin/nvpmodel"
JETSON_CLOCKS = "usr/bin/jetson_clocks"
NVIDIA_SMI = "usr/bin/nvidia-smi"
SYSTEMCTL = "usr/bin/systemctl"
FAN_SERVICE = "nvfancontrol"
CUSTOM_CONFS = ("custom-1", "custom-2")
CLOCKS_FILE = "jetson_clocks.conf"
CLOCKS_FAN_FILE = ".jetsonclocks_fan.txt"  # in its HOME: whether nvfancontrol ran when jetson_clocks stored
FAN_FILE = "fan.json"
FAN_LOCK = "fan.lock"
BOOT_ID = "proc/sys/kernel/random/boot_id"
FULL_PWM = 255
DRAFT = ".part"  # ends the name of a file until it is whole
ONLY = "-"  # the name of a node whose kind has no others
NVPMODEL_TIMEOUT_S = 30.0  # switching cores and clocks takes a second or two
JETSON_CLOCKS_TIMEOUT_S = 90.0  # it waits for nvpmodel and the GPU, and writes some hundred files
SYSTEMCTL_TIMEOUT_S = 60.0
NVIDIA_SMI_TIMEOUT_S = 30.0

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_NONE = resource.RLIM_INFINITY
_LIMITS = {
    **{f"RLIMIT_{name}": (_NONE, _NONE) for name in ("AS", "CPU", "DATA", "FSIZE", "MEMLOCK", "NPROC", "RSS")},
    "RLIMIT_STACK": (8 << 20, _NONE),
    "RLIMIT_NOFILE": (1024, 4096),
    "RLIMIT_CORE": (0, 0),
}
_FROM_TERMINALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip
_FAN_WAIT_S = 20.0  # another helper holds the lock for the second or two that systemctl takes
_POLL_S = 0.1
_GRACE_S = 5.0  # a killed process is gone in milliseconds, unless the kernel holds it
_LONGEST_INPUT = 256 * 1024  # NVIDIA's confs have some 30 KiB
_HIGHEST_KHZ = 10**7
_CORE_SWITCH = re.compile(r"/sys/devices/system/cpu/cpu[0-9]{1,4}/online")
_HIGHEST_HZ = 10**10
_WORD = re.compile(r"[A-Za-z0-9_]{1,64}")
_MODE_HEAD = re.compile(r"POWER_MODEL ID=[0-9]{1,4} NAME=[A-Za-z0-9_.-]{1,64}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,10})")
STREAM = "stream"
RAIL_DRIVERS = ("ina3221", "ina238")
_RAIL_FILE = re.compile(
    r"in[1-3]_(label|input)|curr[1-3]_(input|crit|max)|label|power1_input|update_interval"  # hwmon
    r"|rail_name_[0-9]|in_(voltage|current|power)[0-9]_input|(crit|warn)_current_limit_[0-9]"  # IIO, JetPack 4
)
_LONGEST_REQUEST = 16 * 1024  # a board has some 30 such files, of some 80 bytes of path
_LONGEST_ANSWER = 4096  # a file of sysfs shows no more than a page
_REQUEST_ID = re.compile(rb"[0-9-]{1,40}")


class RefusedError(Exception):
    pass


class Machine(NamedTuple):
    """Where the trees are, and who alone may own what is trusted: `/` and root, in tests a folder and its owner."""

    root: str
    owner: int


THIS_MACHINE = Machine("/", 0)


class Kind(NamedTuple):
    """Nodes that are alike."""

    pattern: str  # their path below the root; a `*` matches the name
    # whether a text may be written to a node at a path; None where nothing may
    is_value: Optional[Callable[[str, str], bool]] = None
    fits: Callable[[str], bool] = os.path.lexists  # whether the node at a path is one of them


def whole_number(text: str, lowest: int, highest: int) -> bool:
    """Whether a text is a decimal number in a range, written as the kernel writes it."""
    return _NUMBER.fullmatch(text) is not None and text != "-0" and lowest <= int(text) <= highest


def _between(lowest: int, highest: int) -> Callable[[str, str], bool]:
    return lambda text, path: whole_number(text, lowest, highest)


unread = {}  # type: Dict[str, str]
"""Files that should identify a node and could not be read: path to the reason. The suite's processes report them."""


def _beside(path: str, name: str) -> str:
    """What the file `name` in the folder of `path` holds; empty where there is none, or it cannot be read.

    These are names and limits that the kernel keeps in memory: no driver has to answer. A pipe in their place is left.
    """
    file = os.path.join(os.path.dirname(path), name)
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            content = os.read(fd, 65536)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.EACCES):
            unread[file] = error.strerror or str(error)
        return ""
    unread.pop(file, None)
    return content.decode("utf-8", "replace").strip("\0\n ")


def _cpu_clock(text: str, path: str) -> bool:
    bounds = _beside(path, "cpuinfo_min_freq"), _beside(path, "cpuinfo_max_freq")
    return all(whole_number(bound, 0, _HIGHEST_KHZ) for bound in bounds) and whole_number(text, *map(int, bounds))


def _listed_in(name: str) -> Callable[[str, str], bool]:
    return lambda text, path: _WORD.fullmatch(text) is not None and text in _beside(path, name).split()


def _can_go_offline(path: str) -> bool:
    name = os.path.basename(os.path.dirname(path))
    return re.fullmatch(r"cpu[1-9][0-9]{0,3}", name) is not None and os.path.lexists(path)


def _names(path: str) -> List[str]:
    """What a devfreq folder is called, by itself and by the device tree."""
    return [os.path.basename(os.path.dirname(path)), _beside(path, "device/of_node/name")]


def is_gpu(path: str) -> bool:
    """Whether a file of a devfreq folder belongs to a GPU (17000000.ga10b, gpu-gpc-0, ..., also of chips to come)."""
    pattern = r"([0-9a-f]+\.)?(gpu|g[a-z][0-9]{2}[a-z]|gpu-(gpc|nvd)-[0-9]+)"
    return any(re.fullmatch(pattern, name) for name in _names(path))


def hides_clocks(path: str) -> bool:
    """Whether a file holds a clock whose reading is reported to hang: of GPU and memory below devfreq, on Thor.

    Orin has a bwmgr too since L4T r39; no such report exists for it.
    """
    folder, name = os.path.dirname(os.path.dirname(path)), os.path.basename(path)
    if os.path.basename(folder) != "devfreq" or name.endswith("governors") or name == "governor":
        return False
    is_thor = any(re.match(r"gpu-(gpc|nvd)-", name) for name in (os.listdir(folder) if os.path.isdir(folder) else ()))
    return is_thor and any(re.match(r"gpu-(gpc|nvd)-|bwmgr", name) for name in _names(path))


def _gpu_or_memory(path: str) -> bool:
    return os.path.lexists(path) and (is_gpu(path) or os.path.basename(os.path.dirname(path)) == "bwmgr")


FAN_NAMES = ("pwmfan", "pwm_fan", "pwm-fan")
USER_SPACE = "user_space"  # the thermal governor that leaves a zone's cooling devices to programs


def _is_fan(path: str) -> bool:
    return os.path.lexists(path) and _beside(path, "name") in FAN_NAMES


def _cools_by_fan(path: str) -> bool:
    """Whether a file belongs to a thermal zone whose governor sets the fan, unless the governor is `user_space`.

    Since L4T r36 it overrides what programs write to the fan; NVIDIA's `jetson_clocks --fan` writes `user_space` first.
    """
    try:
        entries = os.listdir(os.path.dirname(path))
    except OSError:
        return False
    devices = [entry for entry in entries if re.fullmatch(r"cdev[0-9]{1,3}", entry)]
    sets_fan = any(_beside(path, os.path.join(device, "type")) in FAN_NAMES for device in devices)
    return sets_fan and os.path.lexists(path) and USER_SPACE in _beside(path, "available_policies").split()


_CPU, _DEVFREQ, _DEBUG = "sys/devices/system/cpu", "sys/class/devfreq/*", "sys/kernel/debug"

KINDS = {
    "cpu-online": Kind(_CPU + "/cpu*/online", _between(0, 1), _can_go_offline),
    "cpufreq-min": Kind(_CPU + "/cpufreq/policy*/scaling_min_freq", _cpu_clock),
    "cpufreq-measured": Kind(_CPU + "/cpufreq/policy*/cpuinfo_cur_freq"),
    "cpufreq-max": Kind(_CPU + "/cpufreq/policy*/scaling_max_freq", _cpu_clock),
    "cpufreq-governor": Kind(_CPU + "/cpufreq/policy*/scaling_governor", _listed_in("scaling_available_governors")),
    "devfreq-min": Kind(_DEVFREQ + "/min_freq", _between(0, _HIGHEST_HZ), _gpu_or_memory),
    "devfreq-max": Kind(_DEVFREQ + "/max_freq", _between(0, _HIGHEST_HZ), _gpu_or_memory),
    "devfreq-governor": Kind(_DEVFREQ + "/governor", _listed_in("available_governors"), _gpu_or_memory),
    "emc-rate": Kind(_DEBUG + "/bpmp/debug/clk/emc/rate", _between(1, _HIGHEST_HZ)),
    "emc-lock": Kind(_DEBUG + "/bpmp/debug/clk/emc/mrq_rate_locked", _between(0, 1)),
    "emc-lowest": Kind(_DEBUG + "/bpmp/debug/clk/emc/min_rate"),
    "emc-highest": Kind(_DEBUG + "/bpmp/debug/clk/emc/max_rate"),
    "emc-level": Kind(_DEBUG + "/bpmp/debug/emc/tables/regular/*"),
    "emc-cap": Kind("sys/kernel/nvpmodel_emc_cap/emc_iso_cap", _between(0, _HIGHEST_HZ)),
    "emc-clock-cap": Kind("sys/kernel/nvpmodel_clk_cap/emc", _between(0, _HIGHEST_HZ)),
    "emc-override": Kind(_DEBUG + "/clk/override.emc/clk_state", _between(0, 1)),
    "emc-override-rate": Kind(_DEBUG + "/clk/override.emc/clk_update_rate", _between(0, _HIGHEST_HZ)),
    "emc-override-current": Kind(_DEBUG + "/clk/override.emc/clk_rate"),
    "bwmgr-lowest": Kind(_DEBUG + "/tegra_bwmgr/emc_min_rate"),
    "bwmgr-highest": Kind(_DEBUG + "/tegra_bwmgr/emc_max_rate"),
    # Not one by one: by the operation `fan`, which never leaves a board that gets hot with a slow fan.
    "fan-pwm": Kind("sys/class/hwmon/*/pwm1", None, _is_fan),
    "fan-target": Kind("sys/devices/pwm-fan/target_pwm"),
    "fan-automatic": Kind("sys/devices/pwm-fan/temp_control"),
    "fan-policy": Kind("sys/class/thermal/thermal_zone*/policy", None, _cools_by_fan),
    "page-cache": Kind("proc/sys/vm/drop_caches", _between(1, 3)),
}


def nodes(kind: Kind, root: str) -> Dict[str, str]:
    """The nodes of a kind that are there: name to path."""
    path = os.path.join(root, kind.pattern)
    if "*" not in path[len(root) :]:
        return {ONLY: path} if kind.fits(path) else {}
    before, _, after = path.rpartition("*")
    folder, prefix = os.path.split(before)
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return {}
    paths = {entry: os.path.join(folder, entry) + after for entry in entries if entry.startswith(prefix)}
    return {name: path for name, path in paths.items() if kind.fits(path)}


def rail_chips(root: str) -> List[Tuple[str, str]]:
    """Folder and driver of each power sensor (INA3221, INA238); of their classes where the buses are missing."""
    # A container may have been given the classes without the buses.
    for patterns in (["sys/bus/i2c/devices/*"], ["sys/bus/iio/devices/iio:device*", "sys/class/hwmon/hwmon*"]):
        chips = []
        for pattern in patterns:
            parent, prefix = os.path.split(os.path.join(root, pattern[:-1]))
            try:
                entries = sorted(entry for entry in os.listdir(parent) if entry.startswith(prefix))
            except OSError:
                continue
            for folder in (os.path.join(parent, entry) for entry in entries):
                driver = _beside(os.path.join(folder, "name"), "name").lower()
                if driver.startswith(RAIL_DRIVERS):
                    chips.append((folder, driver))
        if chips:
            return chips
    return []


def folders_of_chip(chip: str) -> Iterator[Tuple[str, List[str]]]:
    """The folders where a power sensor's files may be, with the names of their files, sorted."""
    for directory, folders, files in os.walk(chip):
        depth = directory.count(os.sep) - chip.count(os.sep)
        # iio:device0, hwmon/hwmon3, and one more level on some kernels
        folders[:] = sorted(folders) if depth < 3 else []
        yield directory, sorted(files)


def sensor_files(root: str) -> Dict[str, List[str]]:
    """What `stream` reads, by the name of the telemetry source that needs it; many kernels show it to root only."""
    rails: List[str] = []
    for chip, _ in rail_chips(root):
        for directory, names in folders_of_chip(chip):
            rails += [os.path.join(directory, name) for name in names if _RAIL_FILE.fullmatch(name)]
    return {"ina": rails, "cpufreq": list(nodes(KINDS["cpufreq-measured"], root).values())}


def untrusted_part(path: str, machine: Machine) -> Optional[str]:
    """The first part of a path, from its end, that another than the owner may change; None where all is well."""
    top, part = os.path.realpath(machine.root), os.path.realpath(path)
    while True:
        info = os.lstat(part)
        if info.st_uid != machine.owner or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return part
        if part in (top, os.path.dirname(part)):
            return None
        part = os.path.dirname(part)


def perform(words: Sequence[str], machine: Machine, read_input: Callable[[int], bytes]) -> Tuple[int, str]:
    """Do one operation, and return the exit status and what to print.

    `read_input` gives at most so many bytes of standard input. RefusedError: it is not one of the list, or not with
    these arguments; OSError: the kernel refused.
    """
    operation = OPERATIONS.get((words[0], len(words) - 1)) if words else None
    if operation is None:
        raise RefusedError("there is no such operation")
    return operation(machine, read_input, *words[1:])


def _list(machine: Machine, read_input: Callable[[int], bytes], kind: str) -> Tuple[int, str]:
    return DONE, "".join(name + "\n" for name in nodes(_kind(kind), machine.root))


def _read(machine: Machine, read_input: Callable[[int], bytes], kind: str, name: str) -> Tuple[int, str]:
    return DONE, _text_of(_node(kind, name, machine), machine)


def _text_of(path: str, machine: Machine) -> str:
    fd = _open_node(path, os.O_RDONLY, machine)
    try:
        return os.read(fd, 65536).decode("ascii", "replace")
    finally:
        os.close(fd)


def _write(machine: Machine, read_input: Callable[[int], bytes], kind: str, name: str, value: str) -> Tuple[int, str]:
    path, is_value = _node(kind, name, machine), _kind(kind).is_value
    if is_value is None or not is_value(value, path):
        raise RefusedError(f"{kind} of {name} may not be set to this value")
    _set_node(path, value, machine)
    return DONE, ""


def _set_node(path: str, value: str, machine: Machine) -> None:
    fd = _open_node(path, os.O_WRONLY, machine)
    try:
        os.ftruncate(fd, 0)
        os.write(fd, (value + "\n").encode("ascii"))
    finally:
        os.close(fd)


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise RefusedError("there is no such kind; allowed: " + ", ".join(KINDS))
    return KINDS[name]


def _node(kind: str, name: str, machine: Machine) -> str:
    paths = nodes(_kind(kind), machine.root)
    if name not in paths:
        raise RefusedError(f"there is no such {kind} here; paths: {', '.join(paths) or 'none'}")
    return paths[name]


def _open_node(path: str, flags: int, machine: Machine, below: Sequence[str] = ("sys", "proc/sys")) -> int:
    """Open a node and see that it is the kernel's, wherever links have led."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    opened = os.readlink(f"/proc/self/fd/{fd}")
    trees = [os.path.join(os.path.realpath(machine.root), tree, "") for tree in below]
    if not (opened.startswith(tuple(trees)) and stat.S_ISREG(os.fstat(fd).st_mode)):
        os.close(fd)
        raise RefusedError(f"{path} leads out of the kernel's files")
    return fd


def serve(machine: Machine, requests: BinaryIO, answers: BinaryIO) -> int:
    """Read sensors for one who may not, until the input ends.

    A request is a line `ID<tab>PATH<tab>PATH...`; its answer a line of JSON with `id`, `files`: of each path, in order,
    its text, or [errno, reason], and `cpu_s`: the CPU time that this process used so far. The first line has `pids`:
    this process, and the one that started it. Paths are compared with those of `sensor_files`, and files stay open.
    """
    kept = {}  # type: Dict[str, int]

    def send(answer: Dict[str, Any]) -> None:
        answers.write(json.dumps(answer).encode("ascii") + b"\n")
        answers.flush()

    send({"pids": [os.getpid(), os.getppid()]})
    while True:
        line = requests.readline(_LONGEST_REQUEST)
        if not line.endswith(b"\n"):
            break
        number, _, rest = line[:-1].partition(b"\t")
        if not _REQUEST_ID.fullmatch(number):
            break
        paths = [os.fsdecode(part) for part in rest.split(b"\t")]
        allowed = set()  # type: Set[str]
        if any(path not in kept for path in paths):
            allowed.update(*sensor_files(machine.root).values())
        files = [_answer(path, kept, allowed, machine) for path in paths]
        send({"id": number.decode("ascii"), "files": files, "cpu_s": time.process_time()})
    for fd in kept.values():
        os.close(fd)
    if line:
        raise RefusedError(f"a request is a number and paths, with tabs, in a line of {_LONGEST_REQUEST} bytes at most")
    return DONE


def _answer(path: str, kept: Dict[str, int], allowed: Set[str], machine: Machine) -> Any:
    try:
        if path not in kept:
            if path not in allowed:
                raise RefusedError("it is not a file of a power sensor or a CPU's measured clock")
            kept[path] = _open_node(path, os.O_RDONLY, machine, ["sys"])
        try:
            return os.pread(kept[path], _LONGEST_ANSWER, 0).decode("ascii", "replace")
        except OSError:
            os.close(kept.pop(path))  # a driver that is bound again gives its files anew
            raise
    except RefusedError as error:
        return [errno.EPERM, f"refused: {error}"]
    except OSError as error:
        return [error.errno, error.strerror]


def _store_conf(machine: Machine, read_input: Callable[[int], bytes], conf: str) -> Tuple[int, str]:
    given = read_input(_LONGEST_INPUT + 1)
    if len(given) > _LONGEST_INPUT:
        raise RefusedError(f"the conf is longer than {_LONGEST_INPUT} bytes")
    text = checked_conf(_conf_text(OWN_CONF, machine), given.decode("ascii", "replace"))
    with _state(machine) as folder:
        _replace(folder, _conf_file(conf), text.encode("ascii"))
    return DONE, ""


def _conf_text(name: str, machine: Machine) -> str:
    with open(_trusted(name, machine), "rb") as file:
        return file.read().decode("ascii", "replace")


def _forget_conf(machine: Machine, read_input: Callable[[int], bytes], conf: str) -> Tuple[int, str]:
    return _forget(machine, _conf_file(conf))


def _nvpmodel(machine: Machine, read_input: Callable[[int], bytes], conf: str, number: str) -> Tuple[int, str]:
    if not whole_number(number, 0, 9999):
        raise RefusedError("a mode's ID is a number from 0 to 9999")
    path = OWN_CONF if conf == "own" else os.path.join(STATE, _conf_file(conf))
    if conf != "own":  # an earlier helper may have stored it, for another conf of the board
        checked_conf(_conf_text(OWN_CONF, machine), _conf_text(path, machine))
    command = [_trusted(NVPMODEL, machine), "-f", _trusted(path, machine), "-m", number]
    return _run(command, NVPMODEL_TIMEOUT_S, b"n\n")  # should it ask whether to reboot


def _jetson_clocks(machine: Machine, read_input: Callable[[int], bytes], act: str) -> Tuple[int, str]:
    command = _trusted(JETSON_CLOCKS, machine)
    home = os.path.join(machine.root, STATE)  # without a HOME, jetson_clocks writes its file of the fan to /

    def run(*options: str) -> Tuple[int, str]:
        return _run([command, *options], JETSON_CLOCKS_TIMEOUT_S, home=home)

    if act == "show":
        return run("--show")
    if act == "pin":
        return run()
    if act == "restore":
        return run("--restore", _trusted(os.path.join(STATE, CLOCKS_FILE), machine))
    if act == "forget":
        _forget(machine, CLOCKS_FAN_FILE)  # of a store that was killed
        return _forget(machine, CLOCKS_FILE)
    if act != "store":
        raise RefusedError("jetson-clocks takes show, store, pin, restore or forget")
    draft = CLOCKS_FILE + DRAFT
    with _state(machine) as folder:
        _unlink(folder, draft)  # it appends to a file that is there
        status, output = run("--store", os.path.join(home, draft))
        if status == DONE:
            with os.fdopen(os.open(draft, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
                stored = file.read().decode("utf-8", "surrogateescape")
            _replace(folder, CLOCKS_FILE, without_fan(stored).encode("utf-8", "surrogateescape"))
        _unlink(folder, CLOCKS_FAN_FILE)
        return status, output


def without_fan(stored: str) -> str:
    """What jetson_clocks stored (FILE:VALUE in each line), without the fan.

    Restored, it would stop or start nvfancontrol and set speeds as they were when it was stored. If the fan was held at
    full speed then, and is not now, no one would control it. The fan is left to the operation `fan`.
    """
    of_fan = (
        r"/.*(/pwm-fan.*|/pwm[0-9]*|/target_pwm|/temp_control|/thermal_zone[0-9]+/policy|/"
        + re.escape(CLOCKS_FAN_FILE)
        + ")"
    )
    lines = stored.splitlines(True)
    return "".join(line for line in lines if re.fullmatch(of_fan, line.partition(":")[0]) is None)


def _fan(machine: Machine, read_input: Callable[[int], bytes], act: str) -> Tuple[int, str]:
    """Full speed, or what was before: no other speed, and the automatic control never goes without full speed."""
    if act not in ("full", "back"):
        raise RefusedError("fan takes full or back")
    systemctl = os.path.join(machine.root, SYSTEMCTL)
    service = [_trusted(SYSTEMCTL, machine)] if os.path.exists(systemctl) else []
    speeds, automatic, policies = (
        [path for kind in kinds for path in sorted(nodes(KINDS[kind], machine.root).values())]
        for kinds in (("fan-pwm", "fan-target"), ("fan-automatic",), ("fan-policy",))
    )
    policies = [] if automatic else policies  # r32 has one switch for all of it
    # Nothing that a terminal sends may end it between the control's end and full speed.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FROM_TERMINALS)
    try:
        with _state(machine) as folder, _fan_locked(folder, machine) as is_locked:
            if not is_locked:
                path = os.path.join(machine.root, STATE, FAN_LOCK)
                return FAILED, (
                    f"another helper still sets the fan after {_FAN_WAIT_S:g} s; nothing was changed. "
                    f"`sudo fuser -v {path}` shows which process\n"
                )
            before = _fan_before(folder)
            if act == "back":
                if before is None:
                    return FAILED, "no fan was set to full speed\n"
                kernel_sets_it = "1" in before["automatic"] or any(one != USER_SPACE for one in before["policies"])
                if not (before["service"] or kernel_sets_it):
                    for path, speed in zip(speeds, before["speeds"]):
                        _set_node(path, speed, machine)
                for path, policy in zip(policies, before["policies"]):
                    _set_node(path, policy, machine)
                for path, value in zip(automatic, before["automatic"]):
                    _set_node(path, value, machine)
                status, output = (
                    _run([*service, "start", FAN_SERVICE], SYSTEMCTL_TIMEOUT_S) if before["service"] else (DONE, "")
                )
                if status == DONE:
                    _unlink(folder, FAN_FILE)
                return status, output
            boot = _text_of(os.path.join(machine.root, BOOT_ID), machine)
            runs = bool(service) and _run([*service, "is-active", FAN_SERVICE], SYSTEMCTL_TIMEOUT_S)[0] == DONE
            if before is None or before["boot"] != boot:
                before = {"boot": boot, "service": runs}
                for name, paths in (("automatic", automatic), ("policies", policies), ("speeds", speeds)):
                    before[name] = [_text_of(path, machine).strip() for path in paths]
                _replace(folder, FAN_FILE, json.dumps(before).encode("ascii"))
            status, output = _run([*service, "stop", FAN_SERVICE], SYSTEMCTL_TIMEOUT_S) if runs else (DONE, "")
            settings = [(automatic, "0"), (policies, USER_SPACE), (speeds, str(FULL_PWM))]
            for path, value in ((path, value) for paths, value in settings for path in paths):
                _set_node(path, value, machine)
            return status, output
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _gpu(machine: Machine, read_input: Callable[[int], bytes], uuid: str, what: str, value: str) -> Tuple[int, str]:
    """Lock a GPU's clocks or set its power limit; the driver itself refuses what is out of the GPU's range."""
    options = {"gpu-clocks": ("-lgc", "-rgc"), "memory-clocks": ("-lmc", "-rmc"), "power-limit": ("-pl", None)}
    if re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid) is None:
        raise RefusedError("a GPU is named by its UUID")
    if what not in options:
        raise RefusedError("what is set of a GPU is one of " + ", ".join(options))
    setter, resetter = options[what]
    form = r"[1-9][0-9]{1,3}(\.[0-9]{1,3})?" if resetter is None else r"[1-9][0-9]{1,4},[1-9][0-9]{1,4}"
    if resetter is not None and value == "reset":
        option = [resetter]
    elif re.fullmatch(form, value) is not None:
        option = [setter, value]
    else:
        raise RefusedError("that is no setting of " + what)
    return _run([_trusted(NVIDIA_SMI, machine), "-i", uuid, *option], NVIDIA_SMI_TIMEOUT_S)


@contextlib.contextmanager
def _fan_locked(folder: int, machine: Machine) -> Iterator[bool]:
    """Whether this process got the lock of the fan in time. Only the owner can open the file, and so hold the lock."""
    fd = os.open(FAN_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        info = os.fstat(fd)
        if info.st_uid != machine.owner or stat.S_IMODE(info.st_mode) != 0o600:
            raise RefusedError(f"{FAN_LOCK} may be opened by others than its owner; remove it")
        yield _locks(fd, time.monotonic() + _FAN_WAIT_S)
    finally:
        os.close(fd)


def _locks(fd: int, deadline_s: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)


def _fan_before(folder: int) -> Optional[Dict[str, Any]]:
    try:
        fd = os.open(FAN_FILE, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(fd) as file:
        return dict({"policies": []}, **json.load(file))  # a helper before L4T r36 saved none


OPERATIONS = {
    ("list", 1): _list,
    ("read", 2): _read,
    ("write", 3): _write,
    ("store-conf", 1): _store_conf,
    ("forget-conf", 1): _forget_conf,
    ("nvpmodel", 2): _nvpmodel,
    ("jetson-clocks", 1): _jetson_clocks,
    ("fan", 1): _fan,
    ("gpu", 3): _gpu,
}  # type: Dict[Tuple[str, int], Callable[..., Tuple[int, str]]]


def checked_conf(own: str, given: str) -> str:
    """A conf that gives nvpmodel no other files than the board's `own` conf does, written anew from its words.

    nvpmodel writes with root's rights to whatever path its conf names: a conf from outside may add modes, which give
    values of their own to clocks and to the switches of cores alone. Over-current and thermal limits, power-gating
    masks and all else keep values that the board's own modes give them; RefusedError for anything else.
    """
    own_sections = _sections(own)
    free, words = set(), set()  # type: Set[Tuple[str, str]], Set[Tuple[str, ...]]
    for head, lines in own_sections:
        if head[0] == "PARAM":
            for name, line in ((word[5:], line) for word in head if word.startswith("NAME=") for line in lines):
                if "TYPE=CLOCK" in head:
                    free.add((name, line[0]))
                elif _CORE_SWITCH.fullmatch(line[-1]):
                    words.update([(name, line[0], "0"), (name, line[0], "1")])
        elif head[0] == "POWER_MODEL":
            words.update(lines)
    sections = _sections(given)
    for head, lines in sections:
        if head[0] != "POWER_MODEL":
            if not any((head[0], set(head), lines) == (name[0], set(name), content) for name, content in own_sections):
                raise RefusedError(f"section {' '.join(head)} is not one of the board's own conf")
        elif not _MODE_HEAD.fullmatch(" ".join(head)) or not all(_is_setting(line, free, words) for line in lines):
            raise RefusedError(f"mode {' '.join(head)} sets what is neither a clock nor in the board's own conf")
    return "".join(
        "".join([f"< {' '.join(head)} >\n", *(" ".join(line) + "\n" for line in lines), "\n"])
        for head, lines in sections
    )


_Section = Tuple[Tuple[str, ...], Tuple[Tuple[str, ...], ...]]


def _sections(text: str) -> List[_Section]:
    sections = []  # type: List[Tuple[Tuple[str, ...], List[Tuple[str, ...]]]]
    for line in re.split(r"[\r\n]+", text):
        content = re.split(r"(?:^|[ \t])#", line, maxsplit=1)[0].strip(" \t")
        if not content:
            continue
        if re.search(r"[^\x21-\x7e \t]", content):
            raise RefusedError("a conf is plain ASCII")
        if content.startswith("<"):
            head = re.fullmatch(r"<([^<>]*[A-Z][^<>]*)>?", content)
            if head is None:
                raise RefusedError("a conf has a line that begins with < and is no section")
            sections.append((tuple(re.sub(r"[ \t]*=[ \t]*", "=", head.group(1)).split()), []))
        elif not sections:
            raise RefusedError("a conf has a line before its first section")
        else:
            sections[-1][1].append(tuple(content.split()))
    return [(head, tuple(lines)) for head, lines in sections]


def _is_setting(line: Tuple[str, ...], free: Set[Tuple[str, str]], allowed: Set[Tuple[str, ...]]) -> bool:
    is_new = len(line) == 3 and line[:2] in free and _NUMBER.fullmatch(line[2]) is not None
    return line in allowed or is_new


def _conf_file(conf: str) -> str:
    if conf not in CUSTOM_CONFS:
        raise RefusedError("a conf is one of " + ", ".join(CUSTOM_CONFS))
    return conf + ".conf"


def _trusted(name: str, machine: Machine) -> str:
    """The path of a file that only the owner can change; RefusedError, with what, where others can."""
    path = os.path.join(machine.root, name)
    part = untrusted_part(path, machine)
    if part is not None:
        raise RefusedError(f"{part} may be changed by others than its owner")
    return path


@contextlib.contextmanager
def _state(machine: Machine) -> Iterator[int]:
    """The folder for files that programs get, made where it is missing; what is in it is reached through this."""
    path = os.path.join(machine.root, STATE)
    with contextlib.suppress(FileExistsError):  # whose it is, is seen below
        os.mkdir(path, 0o755)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        part = untrusted_part(f"/proc/self/fd/{folder}", machine)  # of what was opened, wherever the name leads now
        if part is not None:
            raise RefusedError(f"{part} may be changed by others than its owner")
        yield folder
    finally:
        os.close(folder)


def _replace(folder: int, name: str, content: bytes) -> None:
    draft = name + DRAFT
    _unlink(folder, draft)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def _forget(machine: Machine, name: str) -> Tuple[int, str]:
    with _state(machine) as folder:
        _unlink(folder, name)
        _unlink(folder, name + DRAFT)  # of one that was killed
    return DONE, ""


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _run(command: List[str], timeout_s: float, answer: bytes = b"", home: str = "/") -> Tuple[int, str]:
    """Run a program to its end, or kill it with its children."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(_ENVIRONMENT, HOME=home),
        cwd="/",
        start_new_session=True,  # a process group of its own, to be killed as a whole
        preexec_fn=undo_limits,
    )
    try:
        output, _ = process.communicate(answer, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        ended = "was ended" if _kill(process) else f"cannot be ended (process {process.pid})"
        return TIMED_OUT, f"`{' '.join(command)}` did not end within {timeout_s:g} s and {ended}\n"
    except BaseException:
        _kill(process)
        raise
    return process.returncode, output.decode("utf-8", "replace")


def _kill(process: "subprocess.Popen[bytes]") -> bool:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        return process.poll() is not None
    return True


def undo_limits() -> None:
    """Undo the limits and the signal mask that the caller may have set to end a program in the middle of its work."""
    for name, wanted in _LIMITS.items():
        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        try:
            resource.setrlimit(number, wanted)
        except (ValueError, OSError):  # no root, in tests
            resource.setrlimit(number, (hard, hard))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def main() -> int:
    """Do what the command line requests, as root, from a file that only root can change."""
    try:
        if not (sys.flags.isolated and sys.flags.no_site):
            raise RefusedError("run it by its own name: its first line keeps the environment out")
        part = untrusted_part(__file__, THIS_MACHINE)
        if part is not None:
            raise RefusedError(f"{part} may be changed by others than root")
        os.umask(0o022)
        undo_limits()
        if sys.argv[1:] == [STREAM]:
            return serve(THIS_MACHINE, sys.stdin.buffer, sys.stdout.buffer)
        status, output = perform(sys.argv[1:], THIS_MACHINE, sys.stdin.buffer.read)
    except RefusedError as error:
        status, output = REFUSED, f"refused: {error}\n"
    except OSError as error:
        status, output = FAILED, f"{error.filename or 'the kernel'}: {error.strerror}\n"
    (sys.stdout if status == DONE else sys.stderr).write(output)
    return status


if __name__ == "__main__":
    sys.exit(main())
