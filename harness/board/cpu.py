"""The CPUs: which share a core, are online, may run this process; the time in use by it, the sampler, everyone else."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from typing import Collection, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

from harness.board import helper_stream
from harness.board.bounded_reads import unread
from harness.board.kernel_file import check_writable, entries, read_int_setting, read_setting, read_text, write
from harness.board.knob import Knob, KnobSpec
from harness.board.source import Counters, Reading, Source
from harness.core.errors import CannotRunError, ControlError, InvalidValueError, SourceUnavailableError


def parse_cpu_list(text: str) -> List[int]:
    """The kernel's list format: `0-3,8,10-11`; an empty text is no CPU."""
    cpus: List[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def read_siblings(cpus: Collection[int], root: str) -> Dict[int, List[int]]:
    """For each CPU those that share its physical core, itself included; itself alone where the kernel shows none."""
    siblings = {}
    for cpu in cpus:
        path = os.path.join(root, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings[cpu] = [cpu]
        if os.path.exists(path):
            try:
                siblings[cpu] = parse_cpu_list(read_setting(path))
            except (ControlError, ValueError) as error:
                unread[path] = str(error)
    return siblings


def choose_cpus(count: int, siblings: Mapping[int, Sequence[int]]) -> List[int]:
    """Pick `count` of the CPUs in `siblings`, ascending, one of each physical core before the second thread of any."""
    if not 1 <= count <= len(siblings):
        what = f"a core count of {count} is not possible here"
        raise InvalidValueError(what, f"1 to {len(siblings)} CPUs may be used")
    usable_before = {cpu: sum(other < cpu and other in siblings for other in siblings[cpu]) for cpu in siblings}
    return sorted(sorted(siblings, key=lambda cpu: (usable_before[cpu], cpu))[:count])


class CpuOnline(Knob):
    """The sorted numbers of the CPUs that are online."""

    spec = KnobSpec("cpu_online")
    name = "online CPUs"
    topic = "take CPUs offline"

    def __init__(self, root: str) -> None:
        self._directory = os.path.join(root, "sys/devices/system/cpu")

    def cpus(self) -> List[int]:
        directories = map(os.path.basename, glob.glob(os.path.join(self._directory, "cpu[0-9]*")))
        return sorted(int(name[len("cpu") :]) for name in directories if re.fullmatch(r"cpu\d+", name))

    def is_online(self, cpu: int) -> bool:
        return not self._is_switchable(cpu) or read_int_setting(self._switch(cpu)) != 0

    def usable(self) -> str:
        switches = [self._switch(cpu) for cpu in self.cpus() if self._is_switchable(cpu)]
        if not switches:
            raise ControlError(f"no CPU in {self._directory} can be switched")
        check_writable(switches)
        return f"{len(self.read())} of {len(self.cpus())} CPUs are online"

    def read(self) -> List[int]:
        return [cpu for cpu in self.cpus() if self.is_online(cpu)]

    def apply(self, value: List[int]) -> None:
        """Bring CPUs up, then take others down: at no time are there fewer than before or after."""
        online, cpus = self.read(), self.cpus()
        switchable = [cpu for cpu in cpus if self._is_switchable(cpu)]
        fixed = sorted(set(cpus) - set(switchable))
        if not set(fixed) <= set(value) <= set(cpus):
            what = f"CPUs {value} cannot be the ones online"
            raise ControlError(what, f"CPUs {fixed} always are, CPUs {switchable} may be")
        for cpu in sorted(set(value) - set(online)):
            self._turn(cpu, 1)
        for cpu in sorted(set(online) - set(value), reverse=True):
            self._turn(cpu, 0)

    def _turn(self, cpu: int, state: int) -> None:
        switch = self._switch(cpu)
        write(switch, state)
        if read_int_setting(switch) != state:
            what = f"CPU {cpu} was turned {'on' if state else 'off'} and did not {'come back' if state else 'go'}"
            raise ControlError(what, "see `dmesg` for why; a reboot brings it back")

    def _is_switchable(self, cpu: int) -> bool:
        # A kernel may show a switch for CPU 0 too; the boards' boot CPU must stay.
        return cpu != 0 and os.path.exists(self._switch(cpu))

    def _switch(self, cpu: int) -> str:
        return os.path.join(self._directory, f"cpu{cpu}", "online")


@contextlib.contextmanager
def kept_online(root: str, cpus: Collection[int]) -> Iterator[None]:
    """Have CPUs online during the block: what belongs to CPUs that are all offline takes no write."""
    if not cpus:
        yield
        return
    knob = CpuOnline(root)
    before = knob.read()
    knob.set(sorted({*before, *cpus}))
    try:
        yield
    finally:
        knob.set(before)


# -- what this process may run on --------------------------------------------------------------------------------------

_THREADS = "/proc/self/task"  # of this process, wherever the device's files are looked for


class Affinity(Knob):
    """The CPUs, ascending, of all threads of this process and, by inheritance, of its DataLoader workers."""

    name = "CPU affinity"
    topic = "set the core count"
    outlives_process = False

    def usable(self) -> str:
        return f"CPU affinity of this process: CPUs {self.read()}"

    def read(self) -> List[int]:
        if not os.path.isdir(_THREADS):
            what = f"this machine cannot be measured: it has no {_THREADS}, which only Linux has"
            raise CannotRunError(what, "run on Linux, or use a simulated or replayed board: --device sim:orin-agx")
        return sorted(set().union(*(_affinity_of(int(thread)) for thread in os.listdir(_THREADS))))

    def apply(self, value: List[int]) -> None:
        try:
            _bind(_THREADS, value)
        except (OSError, ValueError, OverflowError) as error:
            what = f"this process cannot be bound to CPUs {value}: {error}"
            raise ControlError(what, f"CPUs {self.read()} may be used") from error


@contextlib.contextmanager
def workers_follow() -> Iterator[None]:
    """Bind live workers, which inherit nothing, after the block to the CPUs that this thread is bound to then."""
    import multiprocessing  # the sampler's process does without

    # Those that may run elsewhere than this thread now were bound by another program, and stay.
    before = _affinity_of(0)
    children = multiprocessing.active_children()
    followers = [worker for worker in children if worker.pid is not None and _affinity_of(worker.pid) == before]
    try:
        yield
    finally:
        cpus = _affinity_of(0)
        for worker in followers:
            try:
                _bind(f"/proc/{worker.pid}/task", cpus)
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has ended
            except OSError as error:
                raise ControlError(f"worker {worker.pid} cannot be bound to CPUs {cpus}: {error}") from error


def _bind(threads: str, cpus: List[int]) -> None:
    bound: Set[int] = set()
    while True:
        new = set(map(int, os.listdir(threads))) - bound  # one that was not bound yet may have started others meanwhile
        if not new:
            return
        for thread in new:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, cpus)
        bound |= new


def _affinity_of(thread: int) -> List[int]:
    try:
        return sorted(os.sched_getaffinity(thread))
    except ProcessLookupError:
        return []  # it has ended


# -- time in use -------------------------------------------------------------------------------------------------------

NOTES = {
    "cpu_own_cores": "the run's process and all its descendants, without the sampler and the helper; 2.0 is two cores "
    "fully busy",
    "cpu_sampler_cores": "the telemetry sampler, with the programs it runs and the helper that reads root's sensors",
    "cpu_other_cores": "user, nice and system time of the whole machine, less the run's and the sampler's",
    "cpu_interrupt_cores": "hard and soft interrupts, for all processes",
    "cpu_steal_cores": "time that the hypervisor gave to other virtual machines",
}


def parse_process_stat(text: str, with_children: bool = True) -> Tuple[int, int]:
    """The parent, and the ticks used by threads and by children waited for, of the text of a `/proc/<pid>/stat`."""
    _, bracket, rest = text.rpartition(")")
    fields = rest.split()
    if not bracket or len(fields) < 15:
        raise ValueError(f"not the text of a /proc/<pid>/stat: {text!r}")
    # proc(5) counts from 1 and two fields stand before these: 4 ppid, 14 utime, 15 stime, 16 cutime, 17 cstime
    return int(fields[1]), sum(int(field) for field in fields[11 : 15 if with_children else 13])


def parse_cpu_ticks(text: str) -> Dict[str, int]:
    fields = text.partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        raise ValueError(f"/proc/stat begins with {text[:80]!r}, not with the line of all CPUs")
    # proc(5): guest time is part of user time already
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
    return {"processes": user + nice + system, "interrupt": irq + softirq, "steal": steal}


def sampler_cpu_s(proc: str = "/proc") -> float:
    """CPU time of the sampler: this process, its children that have ended, and the run's helper for root's sensors."""
    used = os.times()
    for pid in helper_stream.pids():
        with contextlib.suppress(OSError):  # it has ended; or (proc(5), hidepid) it is hidden
            _helper_ticks[pid] = parse_process_stat(read_text(os.path.join(proc, str(pid), "stat")))[1]
    helper_s = sum(_helper_ticks.values()) / os.sysconf("SC_CLK_TCK")
    if not _helper_ticks:
        helper_s = helper_stream.reported_cpu_s()
    return time.process_time() + used.children_user + used.children_system + helper_s


_helper_ticks: Dict[int, int] = {}  # of each of the helper's processes, as last seen: time in use never shrinks


class ProcessTree:
    def __init__(self, proc: str, pid: int, without: Collection[int]) -> None:
        self._proc, self._pid, self._without = proc, pid, without
        self._parents: Dict[int, int] = {}

    def ticks(self) -> int:
        """CPU time of the tree so far; OSError if its root is gone, or processes end faster than they are read."""
        for _ in range(4):
            # Parents are read before their children: a child that ends meanwhile, whose time goes to its parent, is
            # never counted twice; where one ends before it is read, its time is in neither, and all are read again.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                return self._sum()
        return self._sum()

    def pids(self) -> List[int]:
        """The processes of the tree now, its root first."""
        alive = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        for ended in self._parents.keys() - alive:
            above = self._parents.pop(ended)  # to whom its children go: they still belong to the run that started them
            self._parents.update({pid: above for pid, parent in self._parents.items() if parent == ended})
        for pid in alive - self._parents.keys():
            # It ended since it was listed; or (proc(5), hidepid) it is another user's, so none of this run's.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                self._parents[pid] = self._read(pid)[0]
        children: Dict[int, List[int]] = {}
        for pid, parent in self._parents.items():
            if pid not in self._without:
                children.setdefault(parent, []).append(pid)
        family = [self._pid]
        for pid in family:
            family.extend(children.pop(pid, []))
        return family

    def _sum(self) -> int:
        return sum(self._read(pid)[1] for pid in self.pids())

    def _read(self, pid: int) -> Tuple[int, int]:
        return parse_process_stat(read_text(os.path.join(self._proc, str(pid), "stat")))


def busiest(own: int, seconds: float, ticks_per_s: float, root: str = "/") -> Dict[str, float]:
    """The cores that others than `own` and its descendants use in `seconds` from now, by printable name, most first."""

    def read() -> Dict[int, Tuple[str, int, int]]:
        processes = {}
        for name in filter(str.isdigit, entries(os.path.join(root, "proc"))):
            with contextlib.suppress(OSError, ValueError):
                text = read_text(os.path.join(root, "proc", name, "stat"))
                command = text[text.index("(") + 1 : text.rindex(")")]
                printable = "".join(one if one.isprintable() else "?" for one in command)
                # Without children waited for: one that ended in between would count with all it ever used.
                processes[int(name)] = (printable, *parse_process_stat(text, with_children=False))
        return processes

    before = read()
    time.sleep(seconds)
    after = read()
    used: Dict[str, float] = {}
    for pid, (name, _, ticks) in after.items():
        ancestor = pid
        while ancestor != own and ancestor in after:
            ancestor = after[ancestor][1]
        if ancestor != own and pid in before:
            used[name] = used.get(name, 0.0) + (ticks - before[pid][2]) / ticks_per_s / seconds
    return dict(sorted(((name, cores) for name, cores in used.items() if cores > 0), key=lambda one: -one[1]))


class OthersOnCpu(NamedTuple):
    """What all processes but this one and its descendants use of the CPU."""

    cores: float  # in use, of them all
    by_name: Dict[str, float]  # of those that live and can be seen, most first
    all_cores: int  # of the machine


def others_on_cpu(own: int, seconds: float, root: str = "/") -> OthersOnCpu:
    """Watch the CPU for some seconds, without `own` and its descendants.

    The sum is of the whole machine: it also has processes that end meanwhile, and those outside of a container.
    """
    ticks_per_s, proc = os.sysconf("SC_CLK_TCK"), os.path.join(root, "proc")
    tree = ProcessTree(proc, own, without=())

    def in_use_s() -> float:
        machine = parse_cpu_ticks(read_text(os.path.join(proc, "stat")))
        return (machine["processes"] - tree.ticks()) / ticks_per_s

    began_s, before_s = time.monotonic(), in_use_s()
    by_name = busiest(own, seconds, ticks_per_s, root)
    cores = (in_use_s() - before_s) / (time.monotonic() - began_s)
    return OthersOnCpu(max(cores, 0.0), by_name, os.cpu_count() or 1)


def open_source(root: str, pid: int) -> Source:
    """Cores in use since the reading before, of the machine below `root` and of the process tree under `pid` there."""
    proc = os.path.join(root, "proc")
    for path in ("stat", f"{pid}/stat"):
        if not os.path.exists(os.path.join(proc, path)):
            raise SourceUnavailableError(f"{os.path.join(proc, path)} does not exist", "mount /proc")
    apart = (os.getpid(), *helper_stream.pids())
    tree, counters, ticks_per_s = ProcessTree(proc, pid, apart), Counters(), os.sysconf("SC_CLK_TCK")

    def read(now_s: float) -> Reading:
        ticks = {**parse_cpu_ticks(read_text(os.path.join(proc, "stat"))), "own": tree.ticks()}
        totals_s = {name: count / ticks_per_s for name, count in ticks.items()}
        growth = counters.growth(now_s, {**totals_s, "sampler": sampler_cpu_s(proc)})
        if growth is None:
            return Reading({}, {})
        window_s, busy_s = growth
        cores = {name: seconds / window_s for name, seconds in busy_s.items()}
        values = {f"cpu_{name}_cores": cores[name] for name in ("sampler", "interrupt", "steal")}
        if cores["own"] < 0:
            why = "a process of this run ended, and the one that waited for it is none of this run's"
            return Reading(values, {"cpu_own_cores": why, "cpu_other_cores": why})
        # The kernel rounds each side of this difference to ticks on its own: below 0 there is nothing but rounding.
        other = max(0.0, cores["processes"] - cores["own"] - cores["sampler"])
        return Reading({**values, "cpu_own_cores": cores["own"], "cpu_other_cores": other}, {})

    return Source(NOTES, read)
