"""What chooses the clocks between their limits: the governors of CPU policies, GPUs and Thor's memory."""

from __future__ import annotations

import contextlib
import os
from typing import Dict

from harness.board.cpu_clocks import CpuFrequency
from harness.board.gpu import none_found
from harness.board.kernel_file import check_writable, read_setting, write
from harness.board.knob import Knob, KnobSpec
from harness.board.privileged import KINDS, nodes
from harness.core.errors import ControlError, InvalidValueError

CPU, DEVFREQ = "cpu", "devfreq"

_KINDS = {CPU: "cpufreq-governor", DEVFREQ: "devfreq-governor"}


class Governor(Knob):
    """Policy or device name to the name of its governor."""

    has_parts = True

    def __init__(self, root: str, of: str) -> None:
        if of not in _KINDS:
            raise InvalidValueError(f"there are no governors of {of!r}", f"available: {', '.join(_KINDS)}")
        self._root, self._of = root, of
        self._cpus = CpuFrequency(root)
        self._spec = KnobSpec("governor", {"of": of})
        self.name = "CPU governors" if of == CPU else "GPU and memory governors"
        self.topic = f"set {self.name}"

    def usable(self) -> str:
        files = list(self._files().values())
        if not files and self._of == CPU:
            folder = os.path.join(self._root, "sys/devices/system/cpu/cpufreq")
            raise ControlError(f"there is no cpufreq policy in {folder}")
        if not files:
            raise none_found(self._root)
        check_writable(files)
        return ", ".join(f"{name}: {governor}" for name, governor in self.read().items())

    def read(self) -> Dict[str, str]:
        return {name: read_setting(file) for name, file in self._files().items()}

    def apply(self, value: Dict[str, str]) -> None:
        for name, governor in value.items():
            files = self._files()
            if name not in files:
                raise ControlError(f"there is no {name} with a governor", f"available: {', '.join(files) or 'none'}")
            if read_setting(files[name]) != governor:
                with self._cpus.awake([name]) if self._of == CPU else contextlib.nullcontext():
                    write(files[name], governor)

    def _files(self) -> Dict[str, str]:
        files = nodes(KINDS[_KINDS[self._of]], self._root)
        if self._of != CPU:
            return files
        return {policy.name: files[policy.name] for policy in self._cpus.policies() if policy.name in files}
