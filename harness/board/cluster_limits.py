"""The CPU clock limits of every cluster, also of one without a core online, which takes no write while it sleeps."""

from __future__ import annotations

import os
from typing import Dict, List

from harness.board.cpu_online import CpuOnline
from harness.board.cpufreq import CpuFrequency, Limits
from harness.board.knob import KnobSpec


class ClusterLimits(CpuFrequency):
    """Policy name to [lowest, highest] clock in kHz.

    A run that had all cores online leaves its limits on clusters that slept before: to put those back, a core of each
    is woken for as long as the write takes. Where a kernel does not tell the limits of a sleeping cluster they are not
    saved: nvpmodel sets them whenever it wakes one.
    """

    spec = KnobSpec("cluster_limits")

    def __init__(self, root: str) -> None:
        """The policies below `root`."""
        super().__init__(root)
        self._online = CpuOnline(root)

    def apply(self, value: Dict[str, Limits]) -> None:
        """Set the policies that `value` names and that are there: some kernels remove those that sleep."""
        told = self.read()
        value = {name: limits for name, limits in value.items() if os.path.isdir(os.path.join(self._directory, name))}
        online = self._online.read()
        woken = self._asleep([name for name, limits in value.items() if told.get(name) != limits], online)
        if not woken:
            super().apply(value)
            return
        self._online.set(sorted([*online, *woken]))
        try:
            super().apply(value)
        finally:
            self._online.set(online)

    def _asleep(self, names: List[str], online: List[int]) -> List[int]:
        """The first core of each of these policies that has none online."""
        told = {policy.name: policy.cpus for policy in self.policies()}
        cpus = [told.get(name, (self.first_cpu(name),)) for name in names]
        return [some[0] for some in cpus if not set(some) & set(online)]


def open_knob(root: str) -> ClusterLimits:
    """The clusters below `root`."""
    return ClusterLimits(root)
