"""jetson_clocks, NVIDIA's script that holds all clocks at the mode's maximum: DVFS off (A7), and on again.

    --show -- --store FILE, once in a run -- jetson_clocks -- ... -- --restore FILE -- remove FILE

It holds CPU, GPU and memory at the maximum of the nvpmodel mode in effect, keeps CPUs from idling and the GPU powered:
set the mode first. It keeps neither the highest limits nor the memory's rate in its file: those are the knobs
`cpufreq`, `devfreq` and `emc`. The fan, which it does keep, is taken out of the file: that is the knob `fan`.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from harness.board import privileges
from harness.board.bounded_process import run_checked
from harness.board.gpu import find_gpus
from harness.board.kernel_file import left_alone, uptime_s
from harness.board.knob import Knob, KnobSpec
from harness.board.privileged import (
    CLOCKS_FAN_FILE,
    CLOCKS_FILE,
    DRAFT,
    JETSON_CLOCKS,
    JETSON_CLOCKS_TIMEOUT_S,
    STATE,
    without_fan,
)
from harness.core.errors import ControlError

DVFS, ON, OFF = "dvfs", "on", "off"

Shown = Dict[str, Dict[str, str]]  # by the first word of a line of `--show`: `cpu0`, ..., `EMC`, and `GPU` or,
# on Thor, `gpu-gpc-0` and `gpu-nvd-0`


class JetsonClocks(Knob):
    """`dvfs`: `on` or `off`; as read also `shown`, what jetson_clocks changes, and `leftover`, a killed run's file."""

    name = "jetson_clocks"
    topic = "switch DVFS off"
    sets_in_steps = True

    def __init__(self, root: str, *, timeout_s: float = JETSON_CLOCKS_TIMEOUT_S, holds_thor: bool = False) -> None:
        """A jetson_clocks below `root` that does not end in time is killed. `holds_thor`: as of `GpuFrequency`."""
        self._root = os.path.abspath(root)
        self._executable = os.path.join(self._root, JETSON_CLOCKS)
        self._file = os.path.join(self._root, STATE, CLOCKS_FILE)
        self._draft = self._file + DRAFT
        self._timeout_s = timeout_s
        self._holds_thor = holds_thor
        self._has_stored = False
        self._spec = KnobSpec("jetson_clocks", {"timeout_s": timeout_s})

    def usable(self) -> str:
        if not os.path.exists(self._executable):
            raise ControlError(f"there is no {self._executable}", "it comes with JetPack")
        thors = [gpu.directory for gpu in find_gpus(self._root) if gpu.is_thors and not self._holds_thor]
        if thors:
            raise left_alone(thors[0])
        return f"{self._executable}; DVFS is {self.read()[DVFS]}"

    def off(self) -> Dict[str, Any]:
        return {DVFS: OFF}

    def read(self) -> Dict[str, Any]:
        shown = parse_show(self._do("show"))
        if not any(name.startswith("cpu") for name in shown):
            raise ControlError(f"`{self._executable} --show` names no CPU", "run it by hand and look")
        if not any(map(_is_gpu, shown)):  # whether its clock is held could not be seen
            raise ControlError(f"`{self._executable} --show` names no GPU", "run it by hand and look")
        return {DVFS: OFF if is_held(shown) else ON, "shown": shown, "leftover": self._stored_at_ns()}

    def apply(self, value: Dict[str, Any]) -> None:
        """Hold the clocks, storing the previous state the first time; or restore the stored state."""
        if value[DVFS] == OFF:
            if not self._has_stored:
                if os.path.exists(self._file):
                    refuse_stored_clocks(self._root, are_held=self.read()[DVFS] == OFF)
                self._do("store")  # replaces what is left from before the boot
                self._has_stored = True
            self._do("pin")
        elif self._has_stored:
            self._do("restore")
        elif self.read()[DVFS] == OFF:
            what = "DVFS was off before this run, and there are no stored settings to return to"
            raise ControlError(what, "`sudo jetson_clocks --restore FILE` with a file of your own, or reboot")

    def verify(self, value: Dict[str, Any]) -> None:
        """Compare what `value` names: the setting of a run has no `shown`, what was saved has."""
        now = self.read()
        if now[DVFS] != value[DVFS]:
            what = f"DVFS was switched {value[DVFS]} and is {now[DVFS]}"
            free = [f"{name} runs from {low} to {high}" for name, (low, high) in free_clocks(now["shown"]).items()]
            raise ControlError(": ".join([what, *filter(None, [", ".join(free)])]), "look at `jetson_clocks --show`")
        different = [name for name, was in value.get("shown", {}).items() if now["shown"].get(name) != was]
        if different:
            name = different[0]
            raise ControlError(
                f"{', '.join(different)} were not restored: {name} was {value['shown'][name]} "
                f"and is {now['shown'].get(name)}"
            )

    def check(self, saved: Dict[str, Any]) -> None:
        """What it showed is compared only; neither becomes part of a path."""
        if not (isinstance(saved, dict) and saved.get(DVFS) in (ON, OFF) and "leftover" in saved):
            raise ControlError(f"the saved value of {self.name} is {saved!r}, expected {DVFS} {ON} or {OFF}")

    def restore(self, saved: Dict[str, Any]) -> None:
        if self._stored_in_this_run(saved):
            self._do("restore")
        elif saved[DVFS] == OFF:
            self._do("pin")
        self.verify(saved)

    def forget(self, saved: Dict[str, Any]) -> None:
        if self._stored_in_this_run(saved) or os.path.exists(self._draft):
            self._do("forget")
        self._has_stored = False

    def _stored_in_this_run(self, saved: Dict[str, Any]) -> bool:
        return self._stored_at_ns() not in (None, saved["leftover"])

    def _stored_at_ns(self) -> Optional[int]:
        return os.stat(self._file).st_mtime_ns if os.path.exists(self._file) else None

    def _do(self, act: str) -> str:
        if privileges.needed(self._root):
            return privileges.call("jetson-clocks", act)
        folder = os.path.dirname(self._file)
        fan_file = Path(folder, CLOCKS_FAN_FILE)
        try:
            if act == "forget":
                Path(self._file).unlink(missing_ok=True)
                Path(self._draft).unlink(missing_ok=True)
                fan_file.unlink(missing_ok=True)
                return ""
            if act == "store":
                os.makedirs(folder, exist_ok=True)
                Path(self._draft).unlink(missing_ok=True)  # it appends to a file that is there
        except OSError as error:
            raise ControlError(f"{error.filename} is in the way: {error.strerror}", "make it writable") from error
        words = {"show": ["--show"], "store": ["--store", self._draft], "pin": [], "restore": ["--restore", self._file]}
        command = [self._executable, *words[act]]
        hint = "run it by hand and look"
        output = run_checked(command, timeout_s=self._timeout_s, hint=hint, variables={"HOME": folder})
        if act == "store":
            stored = Path(self._draft).read_bytes().decode("utf-8", "surrogateescape")
            # A kill in between leaves the draft or the fan's file, which `forget` removes.
            Path(self._draft).write_bytes(without_fan(stored).encode("utf-8", "surrogateescape"))
            os.replace(self._draft, self._file)
            fan_file.unlink(missing_ok=True)
        return output


def stored_clocks(root: str, are_held: bool = False) -> Optional[Path]:
    """The settings that a run stored since the boot and has not restored: it goes on, or was killed. None without any.

    Booting resets what jetson_clocks changes, so that older ones are void. If clocks are held, none counts as older: a
    board without a battery for its clock may have set its time since the run.
    """
    file = Path(root, STATE, CLOCKS_FILE)
    try:
        age_s = time.time() - file.stat().st_mtime
    except OSError:
        return None
    since_boot_s = uptime_s(root)
    return file if are_held or since_boot_s is None or age_s <= since_boot_s else None


def refuse_stored_clocks(root: str, are_held: bool = False) -> None:
    """Refuse to change clocks that a killed run of another user, whose saved state is elsewhere, has to restore."""
    file = stored_clocks(root, are_held)
    if file is not None:
        raise ControlError(
            f"a run that was killed, of another user or with another XDG_STATE_HOME, left {file}, which is needed "
            "to put back the clocks",
            f"the user whose run it was: `jetwatt restore`; if that is not possible: `sudo rm {file}`, then reboot",
        )


def parse_show(text: str) -> Shown:
    """What `--show` prints of CPUs, GPU and memory, without what moves by itself."""
    shown: Shown = {}  # from `cpu0: Online=1 Governor=schedutil MinFreq=729600 ... IdleStates: WFI=1 c7=1`
    for line in text.splitlines():
        match = re.match(r"(cpu\d+|GPU|gpu-(?:gpc|nvd)-\d+|EMC)\b:?\s", line)
        if match:
            pairs = re.findall(r"([\w-]+)=(\S*)", line)
            shown[match[1]] = {name: value for name, value in pairs if name != "CurrentFreq"}
    return shown


def _is_gpu(name: str) -> bool:
    return name.lower().startswith("gpu")


def is_held(shown: Shown) -> bool:
    return not free_clocks(shown)


def free_clocks(shown: Shown) -> Dict[str, Tuple[str, str]]:
    """The CPUs that are on, and the GPUs, whose least and greatest clocks differ: both, as shown."""
    ranges = {
        name: (pairs.get("MinFreq") or "nothing", pairs.get("MaxFreq") or "nothing")
        for name, pairs in shown.items()
        if _is_gpu(name) or (name.startswith("cpu") and pairs.get("Online", "1") == "1")
    }
    return {name: (low, high) for name, (low, high) in ranges.items() if low != high}
