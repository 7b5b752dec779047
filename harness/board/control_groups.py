"""The control groups of this process, version 1 or 2: the CPU time they allow, and one that holds down what it reads.

A quota is no CPU list: the process sees every CPU, and is held up once its cores together have used their time in a
period. So a container of 1.5 cores measures neither the machine nor a core count of it.

    make the group --- limit it --- move this process there --- ... --- move everybody back --- remove the group

In version 1 of control groups the new group is below this process's own one in the hierarchy of the controller blkio,
apart from all other controllers. In version 2 it is beside it, so that the limits above still hold. The kernel counts
what comes from the disk: what is in the page cache is read as fast as ever. It counts whole disks, never a partition.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional

from harness.board.bounded_reads import unread
from harness.board.cpu import ProcessTree
from harness.board.disk import Mount, disk_under, read_mounts
from harness.board.kernel_file import (
    is_read_only,
    may_read,
    not_writable,
    path_below,
    read_int,
    read_paths,
    read_setting,
    read_text,
    text_of,
    write,
)
from harness.board.knob import Knob, KnobSpec
from harness.board.lock import locked
from harness.board.saved_state import preserved
from harness.core.errors import CannotRunError, ControlError, SourceUnavailableError


def own_groups(root: str, controller: str, process: str = "self") -> Iterator[List[str]]:
    """By hierarchy of cgroup v1 or v2 that may have a controller (`cpu`): a process's group, then those above.

    ControlError: below an emulated board's root, the mounts or groups lead out of it.
    """
    path = os.path.join(root, "proc", process, "cgroup")
    if not may_read(path):
        return
    mounts = read_mounts(root)
    # cgroups(7): hierarchy number, comma list of controllers (none for version 2), path; the path may hold anything
    for line in filter(None, read_paths(path).split("\n")):
        _, controllers, group = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            directories = group_directories(group, mounts, controller if controllers else None)
            yield [path_below(root, directory) for directory in directories]


def group_directories(group: str, mounts: List[Mount], controller: Optional[str]) -> List[str]:
    """Where a group is mounted, and those above it, its own first; `controller` is None in version 2."""
    for mount in mounts:
        is_shown = mount.filesystem == "cgroup2" if controller is None else mount.filesystem == "cgroup"
        has_it = controller is None or controller in mount.options
        if is_shown and has_it and os.path.commonpath([group, mount.origin]) == mount.origin:
            below = os.path.relpath(group, mount.origin)
            names = [] if below == os.curdir else below.split(os.sep)
            return [os.path.join(mount.mount_point, *names[:depth]) for depth in range(len(names), -1, -1)]
    return []


def cpu_quota(root: str = "/") -> Optional[float]:
    """How many cores' time this process may take, by its groups' tightest quota; None if none is set or seen.

    A quota that cannot be read is none, and entered in `unread`.
    """
    quotas = []
    for group in itertools.chain.from_iterable(own_groups(root, "cpu")):
        try:
            quotas.append(_quota_of(group))
        except (OSError, ValueError, ZeroDivisionError) as error:
            unread[group] = f"its CPU quota cannot be read: {error}"
    return min(filter(None, quotas), default=None)


def _quota_of(group: str) -> Optional[float]:
    limit, quota, period = (f"{group}/{name}" for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
    if may_read(limit):
        return parse_cpu_max(read_text(limit))
    if may_read(quota) and may_read(period):
        quota_us = read_int(quota)
        return None if quota_us < 0 else quota_us / read_int(period)  # -1: no quota
    return None


def parse_cpu_max(text: str) -> Optional[float]:
    """Cores by the text of a `cpu.max`, quota and period in microseconds; None for `max`, no quota."""
    try:
        quota, period = text.split()
        return None if quota == "max" else int(quota) / int(period)
    except ValueError:
        raise ValueError(f"a cpu.max holds {text!r}, not a quota and a period in microseconds") from None


def throttled_periods(root: str = "/") -> Optional[int]:
    """Periods so far in which this process's groups used up their CPU quota and waited; None if not reported."""
    stats = (os.path.join(group, "cpu.stat") for group in itertools.chain.from_iterable(own_groups(root, "cpu")))
    throttled: List[int] = []
    for path in filter(may_read, stats):
        try:
            throttled += map(int, re.findall(r"^nr_throttled (\d+)$", read_text(path), re.MULTILINE))
        except OSError as error:
            unread[path] = error.strerror or str(error)
    return sum(throttled) if throttled else None


class GroupMemory:
    """The peak memory, with page cache, of the control group that a process made its own after this one started it."""

    def __init__(self, root: str, pid: int) -> None:
        self._root, self._pid = root, pid
        self._files: List[str] = []
        self.peak_bytes: Optional[int] = None  # None as long as it shares its group with others

    def sample(self) -> None:
        """Look at the peak, which only rises; the group goes with its last process."""
        with contextlib.suppress(OSError, ValueError, ControlError):
            self._files = self._files or self._peak_files()
            for path in self._files:
                self.peak_bytes = max(self.peak_bytes or 0, read_int(path))

    def _peak_files(self) -> List[str]:
        proc = os.path.join(self._root, "proc")
        if read_text(f"{proc}/self/cgroup") == read_text(f"{proc}/{self._pid}/cgroup"):
            return []
        ours = set(itertools.chain.from_iterable(own_groups(self._root, "memory")))
        theirs = own_groups(self._root, "memory", str(self._pid))
        family = set(ProcessTree(proc, self._pid, without=()).pids())
        alone = [groups[0] for groups in theirs if groups[:1] and groups[0] not in ours]
        alone = [group for group in alone if set(_members(group)) <= family]
        paths = [os.path.join(group, name) for group in alone for name in ("memory.peak", "memory.max_usage_in_bytes")]
        return [path for path in paths if may_read(path)]


# -- reads held to a limit ---------------------------------------------------------------------------------------------

ReadLimits = Dict[str, int]  # bytes per second by the number of a disk: `{"254:0": 20000000}`
MEMBERS = "cgroup.procs"
LIMITS_V1, LIMITS_V2 = "blkio.throttle.read_bps_device", "io.max"

_CONTROLLER = "blkio"


class ReadGroup(NamedTuple):
    """The group with the limit, as plain values: another process can remove it."""

    path: str  # its directory
    origin: str  # that of the group where its processes come from and go back to
    file: str  # the name of the file in it that takes limits


class ReadLimit(Knob):
    """Bytes per second by disk number; None if there is no group with a limit."""

    name = "read limit"
    topic = "hold reads to a limit"

    def __init__(self, root: str = "/", **group: str) -> None:
        """`group`, the fields of a `ReadGroup`, is one that another process made; none for one of this process."""
        self._root = root
        self._given = ReadGroup(**group) if group else None

    @property
    def spec(self) -> KnobSpec:
        return KnobSpec("read_limit", self._group._asdict())

    @functools.cached_property
    def _group(self) -> ReadGroup:
        return self._given or find_group(self._root)

    def usable(self) -> str:
        place = os.path.dirname(self._group.path)
        return f"--storage NAME@MB_PER_S, by {self._group.file} of a control group in {place}"

    def on_disk_under(self, path: str, limit_bytes_per_s: int) -> ReadLimits:
        """The setting that holds the disk under a path, there or not, to a limit; CannotRunError: it cannot be."""
        here = self.available()
        if not here.available:
            raise CannotRunError(f"reads cannot be held down here: {here.detail}", here.hint)
        try:
            disk = disk_under(path, self._root)
        except SourceUnavailableError as error:
            hint = "choose a storage on a disk of this machine"
            raise CannotRunError(f"reads cannot be held down there: {error.what}", hint) from error
        number = read_setting(os.path.join(disk, "dev"))
        groups = itertools.chain.from_iterable(own_groups(self._root, _CONTROLLER))  # its own and those above
        files = (os.path.join(group, self._group.file) for group in groups)
        limits = [one[number] for one in (parse_limits(text_of(file)) for file in files) if number in one]
        if limits and min(limits) < limit_bytes_per_s:
            raise CannotRunError(
                f"reads from disk {number} are held to {min(limits)} bytes/s already, by the control group of this "
                f"process or one above, and {limit_bytes_per_s} were requested",
                "ask for less, or run outside of that group",
            )
        return {number: limit_bytes_per_s}

    def read(self) -> Optional[ReadLimits]:
        if not os.path.isdir(self._group.path):
            return None
        return parse_limits(read_setting(os.path.join(self._group.path, self._group.file)))

    def apply(self, value: Optional[ReadLimits]) -> None:
        self._remove()
        if value is None:
            return
        try:
            os.mkdir(self._group.path)
        except OSError as error:
            raise ControlError(f"the control group {self._group.path} cannot be made: {error.strerror}") from error
        key = "rbps=" if self._group.file == LIMITS_V2 else ""
        for number, limit_bytes_per_s in value.items():
            write(os.path.join(self._group.path, self._group.file), f"{number} {key}{limit_bytes_per_s}", hint="")
        write(os.path.join(self._group.path, MEMBERS), os.getpid(), hint="")

    def check(self, saved: Optional[ReadLimits]) -> None:
        path, origin, file = self._group
        groups = os.path.join(os.path.abspath(self._root), "sys/fs/cgroup", "")
        is_own = re.fullmatch(r"jetwatt-reads-\d+", os.path.basename(path)) and file in (LIMITS_V1, LIMITS_V2)
        if not is_own or any(
            os.path.abspath(folder) != folder or not folder.startswith(groups) for folder in (path, origin)
        ):
            raise ControlError(f"{path} is no control group of a run, or {origin} not where its processes came from")
        super().check(saved)

    def verify(self, value: Optional[ReadLimits]) -> None:
        super().verify(value)
        if value is not None and os.getpid() not in _members(self._group.path):
            raise ControlError(f"process {os.getpid()} was moved to {self._group.path} and is not in it")

    def _remove(self) -> None:
        path, origin, _ = self._group
        if not os.path.isdir(path):
            return
        while True:
            left = _members(path)
            if not left:
                break
            for member in left:  # one that is not moved yet may start others meanwhile
                try:
                    write(os.path.join(origin, MEMBERS), member, hint="")
                except ControlError:
                    if member in _members(path):  # else it has ended
                        raise
        try:
            os.rmdir(path)
        except OSError as error:
            raise ControlError(f"the control group {path} cannot be removed: {error.strerror}") from error


@contextlib.contextmanager
def reads_held(
    limit_bytes_per_s: Optional[int], directory: Path, device: str, root: str = "/"
) -> Iterator[Optional[int]]:
    """Hold down what this process and its children read from the disk under a directory; yields the limit read back."""
    if limit_bytes_per_s is None:
        yield None
        return
    knob = ReadLimit(root)
    limits = knob.on_disk_under(str(directory), limit_bytes_per_s)
    name = f"{device}-reads"
    with locked(name), preserved([knob], name, root=root):
        knob.set(limits)
        held = knob.read()
        assert held is not None, "`set` read back a group with a limit, and this process is in it"
        [held_bytes_per_s] = held.values()
        yield held_bytes_per_s


def find_group(root: str) -> ReadGroup:
    for own, *above in filter(None, own_groups(root, _CONTROLLER)):
        file, parent = "", ""
        if os.path.exists(os.path.join(own, LIMITS_V1)):
            file, parent = LIMITS_V1, own
        elif os.path.exists(os.path.join(own, "cgroup.subtree_control")):
            file, parent = LIMITS_V2, _parent_v2(own, above)
        if file:
            needed = (parent, os.path.join(parent, MEMBERS), os.path.join(own, MEMBERS))
            closed = [path for path in needed if not os.access(path, os.W_OK, effective_ids=True)]
            if closed and is_read_only(closed[0]):
                raise not_writable(closed)
            if closed:
                raise ControlError(f"{closed[0]} may not be written by this user", "run as root, outside of containers")
            path = os.path.abspath(os.path.join(parent, f"jetwatt-reads-{os.getpid()}"))
            return ReadGroup(path, os.path.abspath(own), file)
    what = "no control group of this process is seen that can limit reads"
    raise ControlError(what, "mount the control groups; the kernel needs CONFIG_BLK_DEV_THROTTLING")


def _parent_v2(own: str, above: List[str]) -> str:
    """The group above, in which one can be made beside this process's own; the topmost group has room below itself."""
    is_topmost = not os.path.exists(os.path.join(own, "cgroup.type"))  # a container's topmost group has a type
    if not is_topmost:
        if not above:
            raise ControlError("the control group above this process's own is not seen", "run outside of the container")
        names = ("cpu.max", "cpuset.cpus", "memory.high", "memory.max")  # without them this were another machine
        limits = {name: text_of(os.path.join(own, name)) for name in names}
        lost = [name for name, text in limits.items() if text and not text.startswith("max")]
        if lost:
            what = f"{', '.join(lost)} of the control group {own} would not hold beside it"
            raise ControlError(what, "run outside of that group")
        if set(_members(own)) <= {os.getpid()}:
            what = f"this process is alone in the control group {own}, which the system may remove once it is empty"
            raise ControlError(what, "start it from a shell")
    parent = own if is_topmost else above[0]
    handed_down = os.path.join(parent, "cgroup.subtree_control")
    if "io" not in read_setting(handed_down).split():
        what = f"{handed_down} has no io, so groups there cannot limit reads"
        raise ControlError(what, f"if that machine is yours: `echo +io | sudo tee {handed_down}`")
    return parent


def parse_limits(text: str) -> ReadLimits:
    # cgroup v1: `254:0 20000000`; v2: `254:0 rbps=20000000 wbps=max riops=max wiops=max`
    limits = {}
    for number, *fields in map(str.split, text.splitlines()):
        for key, _, value in (field.rpartition("=") for field in fields):
            if key in ("", "rbps") and value != "max":
                limits[number] = int(value)
    return limits


def _members(group: str) -> List[int]:
    """The processes of a group; without those of other PID namespaces, which all show as 0."""
    return [int(text) for text in read_setting(os.path.join(group, MEMBERS)).split() if text != "0"]
