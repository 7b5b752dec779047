"""What chooses the clocks between their limits: the governors of CPU policies, GPUs and Thor's memory."""

from __future__ import annotations

import contextlib
import os
from typing import Dict

from harness.board.cpu_clocks import CpuFrequency
from harness.board.gpu import none_found
from harness.board.kernel_file import read_setting, why_closed, write
from harness.board.knob import Knob, KnobSpec
from harness.board.privileged import KINDS, nodes
from harness.core.capability import Capability
from harness.core.errors import ControlError, InvalidValueError

CPU, DEVFREQ = "cpu", "devfreq"

_KINDS = {CPU: "cpufreq-governor", DEVFREQ: "devfreq-governor"}


class Governor(Knob):
    """Policy or device name to the name of its governor."""

    has_parts = True

    def __init__(self, root: str, of: str) -> None:
        if of not in _KINDS:
            raise InvalidValueError(f"there are no governors of {of!r}", f"known: {', '.join(_KINDS)}")
        self._root, self._of = root, of
        self._cpus = CpuFrequency(root)
        self.spec = KnobSpec("governor", {"of": of})
        self.name = "CPU governors" if of == CPU else "GPU and memory governors"

    def available(self) -> Capability:
        topic = f"set {self.name}"
        files = list(self._files().values())
        if not files:
            folder = os.path.join(self._root, "sys/devices/system/cpu/cpufreq")
            missing = (f"there is no cpufreq policy in {folder}", "") if self._of == CPU else none_found(self._root)
            return Capability(topic, False, *missing)
        closed = why_closed(files)
        if closed:
            return Capability(topic, False, *closed)
        return Capability(topic, True, ", ".join(f"{name}: {governor}" for name, governor in self.read().items()))

    def read(self) -> Dict[str, str]:
        return {name: read_setting(file) for name, file in self._files().items()}

    def apply(self, value: Dict[str, str]) -> None:
        for name, governor in value.items():
            files = self._files()
            if name not in files:
                raise ControlError(f"there is no {name} with a governor", f"found: {', '.join(files) or 'none'}")
            if read_setting(files[name]) != governor:
                with self._cpus.writable(name) if self._of == CPU else contextlib.nullcontext():
                    write(files[name], governor)

    def _files(self) -> Dict[str, str]:
        found = nodes(KINDS[_KINDS[self._of]], self._root)
        if self._of != CPU:
            return found
        return {policy.name: found[policy.name] for policy in self._cpus.policies() if policy.name in found}
