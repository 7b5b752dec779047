"""Peak memory of a profile: of the accelerator, the process with its DataLoader workers, the machine, its swap.

accelerator   torch's own peaks of a GPU, allocated and reserved
process       PSS of the process and its workers, sampled; at least the kernel's own peak of the process (VmHWM)
machine       memory in use, sampled, above what was in use before the model was built
swap, zram    in use, sampled
"""

from __future__ import annotations

import contextlib
import gc
import re
from pathlib import Path
from typing import Any, Dict, Optional

from harness.board.memory import PROCESSES, SWAP, USED, ZRAM, open_source
from harness.core.profiles import NO_SERIES, Telemetry
from harness.core.units import kib_to_bytes

PROC = Path("/proc/self")  # this process trains, wherever the device's files are looked for

FIGURES = (
    "memory_peak_bytes", "process_memory_peak_bytes", "machine_memory_peak_bytes", "gpu_memory_allocated_peak_bytes",
    "gpu_memory_reserved_peak_bytes", "swap_peak_bytes", "zram_peak_bytes",
)  # fmt: skip
"""Aggregates of a profile, as `harness.core.aggregates` documents them."""


class PeakMemory:
    """The peaks since this object was made, which is best before the model is."""

    def __init__(self, torch: Any, root: Path) -> None:
        gc.collect()  # what the case before left
        self._torch = torch
        self._used_before_bytes = open_source(str(root)).read(0.0).values.get(USED)
        self._counts_own_peak = _forget_own_peak()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def figures(self, telemetry: Telemetry) -> Dict[str, Optional[float]]:
        """The aggregates of `FIGURES`, in bytes; None if there is no sensor."""

        def peak(channel: str) -> Optional[float]:
            return max(telemetry.series.get(channel, NO_SERIES).values, default=None)

        own = own_peak_bytes() if self._counts_own_peak else None
        of_processes = [each for each in (peak(PROCESSES), own) if each is not None]
        used, before = peak(USED), self._used_before_bytes
        figures: Dict[str, Optional[float]] = {
            **dict.fromkeys(FIGURES),
            "process_memory_peak_bytes": max(of_processes, default=None),
            "machine_memory_peak_bytes": None if used is None or before is None else max(0.0, used - before),
            "swap_peak_bytes": peak(SWAP),
            "zram_peak_bytes": peak(ZRAM),
        }
        where = "process_memory_peak_bytes"
        if self._torch.cuda.is_available():
            figures["gpu_memory_allocated_peak_bytes"] = float(self._torch.cuda.max_memory_allocated())
            figures["gpu_memory_reserved_peak_bytes"] = float(self._torch.cuda.max_memory_reserved())
            is_unified = getattr(self._torch.cuda.get_device_properties(0), "is_integrated", 0)
            where = "machine_memory_peak_bytes" if is_unified else "gpu_memory_reserved_peak_bytes"
        figures["memory_peak_bytes"] = figures[where]
        return figures


def own_peak_bytes(proc: Path = PROC) -> Optional[float]:
    """The kernel's peak resident size of this process (VmHWM of proc(5)), the figure of `/usr/bin/time -v`."""
    with contextlib.suppress(OSError):
        match = re.search(r"^VmHWM:\s*(\d+) kB", (proc / "status").read_text(), re.MULTILINE)
        return kib_to_bytes(int(match[1])) if match else None
    return None


def _forget_own_peak(proc: Path = PROC) -> bool:
    """Start the kernel's peak anew, at the size now; False if this kernel cannot, as its peak is an earlier case's."""
    try:
        (proc / "clear_refs").write_text("5")  # proc(5): resets the peak resident set size
    except OSError:
        return False
    return True
