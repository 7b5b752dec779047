"""Which CPUs are online. CPU 0 always is."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from typing import Iterator, List

from harness.board.kernel_file import read_int_setting, why_closed, write
from harness.board.knob import Knob, KnobSpec
from harness.core.capability import Capability
from harness.core.errors import ControlError


class CpuOnline(Knob):
    """The sorted numbers of the CPUs that are online."""

    spec = KnobSpec("cpu_online")
    name = "online CPUs"

    def __init__(self, root: str) -> None:
        """The CPUs below `root`."""
        self._directory = os.path.join(root, "sys/devices/system/cpu")

    def cpus(self) -> List[int]:
        """Every CPU that there is, online or not."""
        directories = map(os.path.basename, glob.glob(os.path.join(self._directory, "cpu[0-9]*")))
        return sorted(int(name[len("cpu") :]) for name in directories if re.fullmatch(r"cpu\d+", name))

    def available(self) -> Capability:
        """Needs CPUs with a switch, and the right to use it."""
        topic = "take CPUs offline"
        switches = [self._switch(cpu) for cpu in self._switchable()]
        if not switches:
            return Capability(topic, False, f"no CPU in {self._directory} can be switched")
        closed = why_closed(switches)
        if closed:
            return Capability(topic, False, *closed)
        return Capability(topic, True, f"{len(self.read())} of {len(self.cpus())} CPUs are online")

    def read(self) -> List[int]:
        """Those that are online now; a CPU without a switch always is."""
        switchable = self._switchable()
        return [cpu for cpu in self.cpus() if cpu not in switchable or read_int_setting(self._switch(cpu))]

    def apply(self, value: List[int]) -> None:
        """Bring CPUs up, then take others down: at no time are there fewer than before or after.

        Raises:
            ControlError: a CPU is not there, cannot be switched, or does not come up; names it.
        """
        online, switchable = self.read(), self._switchable()
        fixed = sorted(set(self.cpus()) - set(switchable))
        if not set(fixed) <= set(value) <= set(self.cpus()):
            raise ControlError(
                f"CPUs {value} cannot be the ones online",
                f"CPUs {fixed} always are, CPUs {switchable} may be",
            )
        for cpu in sorted(set(value) - set(online)):
            self._turn(cpu, 1)
        for cpu in sorted(set(online) - set(value), reverse=True):
            self._turn(cpu, 0)

    def _turn(self, cpu: int, state: int) -> None:
        switch = self._switch(cpu)
        write(switch, state)
        if read_int_setting(switch) != state:
            raise ControlError(
                f"CPU {cpu} was turned {'on' if state else 'off'} and did not {'come back' if state else 'go'}",
                "see `dmesg` for why; a reboot brings it back",
            )

    def _switchable(self) -> List[int]:
        # A kernel may show a switch for CPU 0 too; the boards' boot CPU must stay.
        return [cpu for cpu in self.cpus() if cpu != 0 and os.path.exists(self._switch(cpu))]

    def _switch(self, cpu: int) -> str:
        return os.path.join(self._directory, f"cpu{cpu}", "online")


@contextlib.contextmanager
def kept_online(root: str, cpu: int) -> Iterator[None]:
    """Have a CPU online during the block: what belongs to CPUs that are all offline takes no write.

    Raises:
        ControlError: it does not come up, or does not go again.
    """
    knob = CpuOnline(root)
    before = knob.read()
    knob.set(sorted({*before, cpu}))
    try:
        yield
    finally:
        knob.set(before)


def open_knob(root: str) -> CpuOnline:
    """The CPUs below `root`."""
    return CpuOnline(root)
