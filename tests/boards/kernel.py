"""The kernel of an emulated board: takes writes by its rules, and moves the readings to load and limits."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import shutil
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from boards.board_state import changing_state, read_state
from boards.power_model import Load
from boards.processor_files import CPU
from boards.readings import settle
from boards.tree_files import put_text, take_text
from boards.write_rules import RefusedError, accept

PARKED = ".emulator/parked"
"""Where files lie that are gone from the tree for now."""


class Refusal(NamedTuple):
    """A write that the kernel did not take: the file (below the root), the value, the error number."""

    path: str
    value: str
    number: int


class Kernel:
    """Acts on the tree at once, for whoever asks: the executables in the tree, tests, and knobs through `intercept`.

    Paths are below the root, with or without its name before them. All state is on disk, so that several of these in
    several processes are one kernel.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._real_root = os.path.realpath(self.root)
        self._held: Optional[Dict[str, Any]] = None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is written in the block shows in the readings at its end; other processes wait until then."""
        with changing_state(self.root) as state:
            self._held = state
            try:
                yield
            finally:
                self._held = None
            settle(self.root, state)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Dict[str, Any]]:
        if self._held is not None:
            yield self._held
            return
        with changing_state(self.root) as state:
            yield state

    def _settle(self, state: Dict[str, Any]) -> None:
        if state is not self._held:
            settle(self.root, state)

    def write(self, path: str, value: object) -> None:
        """What `echo VALUE > PATH` does on the board."""
        name = self.name_of(path)
        with self._changing() as state:
            self._take(state, name, str(value).strip())
            self._settle(state)

    def observe(self) -> None:
        """Do for writes that went past `write` what the kernel would have done; put back what it would have refused."""
        with self._changing() as state:
            for name in list(state["controls"]):
                text = take_text(self.root, name)
                if not text or text == state["accepted"][name]:
                    continue  # an empty file is one that is being written
                try:
                    self._take(state, name, text)
                except OSError:
                    put_text(self.root, name, state["accepted"][name])
            self._settle(state)

    def read(self, path: str) -> str:
        """The text of a file, without the newline."""
        return take_text(self.root, self.name_of(path))

    def name_of(self, path: str) -> str:
        """A path below the root, without links: what `state` calls the file."""
        if path.startswith(f"{self.root}/"):
            path = path[len(self.root) :]
        path = os.path.join(self._real_root, path.lstrip("/"))
        try:
            fd = os.open(path, os.O_PATH)  # several times as fast as `realpath`
        except OSError:
            return os.path.relpath(os.path.realpath(path), self._real_root)
        try:
            return os.readlink(f"/proc/self/fd/{fd}")[len(self._real_root) + 1 :]
        finally:
            os.close(fd)

    # -- what tests set ------------------------------------------------------------------------------------------

    def set_load(self, cpu: float = 0.0, gpu: float = 0.0, mem: float = 0.0) -> None:
        """How busy the board is from now on, each 0 to 1."""
        self._change(load=Load(cpu, gpu, mem)._asdict())

    def set_gpu_context(self, exists: bool) -> None:
        """Whether a GPU context exists: then masks are fixed until the next boot. A booted board has one."""
        self._change(gpu_context=exists)

    def throttle(self, events: int = 1) -> None:
        """Over-current: counters rise, clocks are halved, until `stop_throttling`."""
        with self._changing() as state:
            state["throttled"] = True
            state["over_current"] += events
            self._settle(state)

    def stop_throttling(self) -> None:
        """Clocks are free again; the counters stay."""
        self._change(throttled=False)

    def state(self) -> Dict[str, Any]:
        """All that the board knows beyond its files."""
        return read_state(self.root) if self._held is None else self._held

    @property
    def refusals(self) -> List[Refusal]:
        """Every write that was refused, the oldest first."""
        return [Refusal(*entry) for entry in self.state()["refusals"]]

    @property
    def writes(self) -> List[List[str]]:
        """Path and value of every write that was taken, the oldest first."""
        return self.state()["writes"]

    # -- faults --------------------------------------------------------------------------------------------------

    def refuse(self, pattern: str, number: int = errno.EIO, after: int = 0, times: Optional[int] = None) -> None:
        """Refuse writes to files that match, once `after` further writes to any file were taken."""
        with self._changing() as state:
            fault = {"pattern": pattern, "number": number, "from": len(state["writes"]) + after, "times": times}
            state["faults"].append(fault)

    def stick_core(self, core: int) -> None:
        """This core does not come back once it is off: EIO."""
        with self._changing() as state:
            state["stuck_cores"].append(core)

    def vanish(self, path: str) -> None:
        """A file or folder is gone until `heal`; its real place is meant, not a link to it."""
        name = self.name_of(path)
        with self._changing() as state:
            state["vanished"].append(name)
            self._park(name, state)

    def hang_nvpmodel(self, hangs: bool = True) -> None:
        """Whether nvpmodel never ends."""
        self._change(nvpmodel_hangs=hangs)

    def set_fan_service(self, runs: bool) -> None:
        """Whether nvfancontrol runs."""
        self._change(fan_service=runs)

    def forget_record(self) -> None:
        """Forget what was written and refused until now."""
        self._change(writes=[], refusals=[])

    def want_reboot(self, mode: str) -> None:
        """Somebody asked for a reboot into a mode; `tree.boot` does it."""
        self._change(reboot_wanted=mode)

    def garble(self, path: str, text: str = "??") -> None:
        """A reading shows this text from now on, whatever the load is."""
        name = self.name_of(path)
        with self._changing() as state:
            state["garbled"][name] = text
            put_text(self.root, name, text)

    def heal(self) -> None:
        """No more faults: what vanished is back, garbled readings are right again."""
        with self._changing() as state:
            for name in state["vanished"]:
                self._unpark(name, state)
            state.update(faults=[], stuck_cores=[], garbled={}, vanished=[], nvpmodel_hangs=False)
            self._settle(state)

    # -- inside --------------------------------------------------------------------------------------------------

    def _change(self, **values: Any) -> None:
        with self._changing() as state:
            state.update(values)
            self._settle(state)

    def _take(self, state: Dict[str, Any], name: str, text: str) -> None:
        """Check a write and do it."""
        try:
            rule = state["controls"].get(name)
            if rule is None:
                exists = os.path.exists(os.path.join(self.root, name))
                raise RefusedError(errno.EACCES if exists else errno.ENOENT)
            if not os.path.exists(os.path.join(self.root, name)):
                raise RefusedError(errno.ENOENT)
            self._check_faults(state, name)
            if state["inactive_policies_refuse"] and _policy_of(name) in _inactive(state):
                raise RefusedError(errno.EINVAL)
            value = accept({**rule, "path": name}, text, lambda other: state["accepted"][other], state)
        except RefusedError as refused:
            state["refusals"].append([name, text, refused.number])
            raise OSError(refused.number, os.strerror(refused.number), os.path.join(self.root, name)) from None
        put_text(self.root, name, value)
        before = state["accepted"][name]
        state["accepted"][name] = value
        state["writes"].append([name, text])
        if rule["kind"] == "online" and before != value:
            self._switch_core(state, rule["core"], value == "1")
        elif rule["kind"] == "mask":
            state["masks"][name] = value

    def _check_faults(self, state: Dict[str, Any], name: str) -> None:
        for fault in state["faults"]:
            due = len(state["writes"]) >= fault["from"] and fault["times"] != 0
            if due and fnmatch.fnmatchcase(name, fault["pattern"]):
                if fault["times"]:
                    fault["times"] -= 1
                raise RefusedError(fault["number"])

    def _switch_core(self, state: Dict[str, Any], core: int, on: bool) -> None:
        """A core that is off has no topology, and on old kernels a cluster no cpufreq folder.

        Its idle states stay: `jetson_clocks --show` of boards whose clocks are held gives `Online=0` and `c7=0`.
        """
        folders = [f"{CPU}/cpu{core}/topology"]
        if state["inactive_policy_is_gone"]:
            folders.append(f"{CPU}/cpu{core}/cpufreq")
            policy = next(policy for policy, cores in state["places"]["clusters"] if core in cores)
            if policy in _inactive(state) or policy in state["parked"]:
                folders.append(policy)
        for folder in folders:
            (self._unpark if on else self._park)(folder, state)

    def _park(self, name: str, state: Dict[str, Any]) -> None:
        """Take a file or folder out of the tree."""
        self._move(os.path.join(self.root, name), os.path.join(self.root, PARKED, name))
        state["parked"] = sorted({*state["parked"], name})

    def _unpark(self, name: str, state: Dict[str, Any]) -> None:
        """Put it back."""
        self._move(os.path.join(self.root, PARKED, name), os.path.join(self.root, name))
        state["parked"] = sorted({*state["parked"]} - {name})

    @staticmethod
    def _move(source: str, target: str) -> None:
        if os.path.lexists(source):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.move(source, target)


def _policy_of(name: str) -> str:
    return name.rpartition("/")[0] if "/cpufreq/policy" in name else ""


def _inactive(state: Dict[str, Any]) -> List[str]:
    """The policies without an online core."""
    on = {rule["core"] for name, rule in state["controls"].items()
          if rule["kind"] == "online" and state["accepted"][name] == "1"}  # fmt: skip
    switched = {rule["core"] for rule in state["controls"].values() if rule["kind"] == "online"}
    return [policy for policy, cores in state["places"]["clusters"] if not (set(cores) - switched) | (set(cores) & on)]
