"""Peak memory of a profile: of the accelerator, the process with its DataLoader workers, the machine, its swap.

accelerator   torch's own peaks of a GPU, allocated and reserved
process       PSS of the process and its workers, sampled; at least the kernel's own peak of the process (VmHWM)
machine       memory in use, sampled, above what was in use before the model was built
swap, zram    in use, sampled
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Sequence

from harness.board.memory import PROCESSES, SWAP, USED, ZRAM, open_source
from harness.board.sampler import Sampler
from harness.core.errors import OverMemoryLimitError, SourceUnavailableError
from harness.core.profiles import NO_SERIES, Telemetry
from harness.core.units import bytes_to_mib, kib_to_bytes

PROC = Path("/proc/self")  # this process trains, wherever the device's files are looked for

FIGURES = (
    "memory_peak_bytes", "process_memory_peak_bytes", "machine_memory_peak_bytes", "gpu_memory_allocated_peak_bytes",
    "gpu_memory_reserved_peak_bytes", "swap_peak_bytes", "zram_peak_bytes",
)  # fmt: skip
"""Aggregates of a profile, as `harness.core.aggregates` documents them."""


class GpuPeak(NamedTuple):
    """Peaks of torch's memory on the GPU in one process, in bytes."""

    allocated: float
    reserved: float


def gpu_peak(torch: Any, gpu: Optional[int] = None) -> Optional[GpuPeak]:
    """The peaks of this process since they were last reset, on the current GPU by default; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    return GpuPeak(float(torch.cuda.max_memory_allocated(gpu)), float(torch.cuda.max_memory_reserved(gpu)))


class PeakMemory:
    """The peaks since this object was made, which is best before the model is.

    Without `torch`, for a case that runs no network, there are no figures of the GPU. With `resets` false, counters of
    this process and of torch go on: peaks of the GPU are those of the process so far, the kernel's own counts if it
    rises, and the machine's is unknown, because the model may exist already.
    """

    def __init__(self, torch: Optional[Any], root: Path, resets: bool = True) -> None:
        self.torch = torch
        self.gpu: Optional[int] = None  # whose peaks they are; None for the current one
        self._used_before_bytes: Optional[float] = None
        self._own_before_bytes = 0.0
        if not resets:
            before_bytes = own_peak_bytes()
            self._counts_own_peak = before_bytes is not None
            self._own_before_bytes = before_bytes or 0.0
            return
        gc.collect()  # what the case before left
        with contextlib.suppress(SourceUnavailableError, OSError, ValueError):
            self._used_before_bytes = open_source(str(root)).read(0.0).values.get(USED)
        self._counts_own_peak = _forget_own_peak()
        if torch is not None and torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def figures(self, telemetry: Telemetry, others: Sequence[GpuPeak] = ()) -> Dict[str, Optional[float]]:
        """The aggregates of `FIGURES`, in bytes; None if there is no sensor.

        `others` are the peaks of further processes that ran a network. The GPU's figures are the sums over processes.
        """

        def peak(channel: str) -> Optional[float]:
            return max(telemetry.series.get(channel, NO_SERIES).values, default=None)

        own_bytes = own_peak_bytes() if self._counts_own_peak else None
        is_new = own_bytes is not None and own_bytes > self._own_before_bytes
        of_processes = [each for each in (peak(PROCESSES), own_bytes if is_new else None) if each is not None]
        used, before = peak(USED), self._used_before_bytes
        figures: Dict[str, Optional[float]] = {
            **dict.fromkeys(FIGURES),
            "process_memory_peak_bytes": max(of_processes, default=None),
            "machine_memory_peak_bytes": None if used is None or before is None else max(0.0, used - before),
            "swap_peak_bytes": peak(SWAP),
            "zram_peak_bytes": peak(ZRAM),
        }
        where = "process_memory_peak_bytes"
        of_gpu = None if self.torch is None else gpu_peak(self.torch, self.gpu)
        if self.torch is not None and of_gpu is not None:
            peaks = [of_gpu, *others]
            figures["gpu_memory_allocated_peak_bytes"] = sum(each.allocated for each in peaks)
            figures["gpu_memory_reserved_peak_bytes"] = sum(each.reserved for each in peaks)
            is_unified = getattr(self.torch.cuda.get_device_properties(self.gpu or 0), "is_integrated", 0)
            counts_machine = is_unified and before is not None
            where = "machine_memory_peak_bytes" if counts_machine else "gpu_memory_reserved_peak_bytes"
        figures["memory_peak_bytes"] = figures[where]
        return figures

    def refuse_more(self, limit_bytes: float, sampler: Sampler) -> None:
        """Refuse a case that has taken more than a limit so far; `OverMemoryLimitError`."""
        sampler.poll()
        sampled = {channel: sampler.series(channel) for channel in (PROCESSES, USED, SWAP, ZRAM)}
        series = {channel: each for channel, each in sampled.items() if each is not None}
        peak_bytes = self.figures(Telemetry(sampler.interval_s, series=series))["memory_peak_bytes"]
        if peak_bytes is not None and peak_bytes > limit_bytes:
            peak_mib, limit_mib = bytes_to_mib(peak_bytes), bytes_to_mib(limit_bytes)
            raise OverMemoryLimitError(
                f"it took {peak_mib:.0f} MiB, more than the limit of {limit_mib:.0f} MiB",
                "a smaller batch size, or a higher limit",
                peak_bytes,
            )


def bytes_before(torch: Any) -> float:
    """What the peak of a case contains before its model is built: of a GPU nothing, without one this process.

    Memory that earlier cases freed is given back to the kernel before: a case may use it again. Where the C library
    cannot do that (it is not glibc), only the loaded libraries count.
    """
    if torch.cuda.is_available():
        return 0.0
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return _status_bytes("RssFile") or 0.0
    trim(0)
    return _status_bytes("VmRSS") or 0.0


def own_peak_bytes(proc: Path = PROC) -> Optional[float]:
    """The kernel's peak resident size of this process (VmHWM of proc(5)), the figure of `/usr/bin/time -v`."""
    return _status_bytes("VmHWM", proc)


def _status_bytes(field: str, proc: Path = PROC) -> Optional[float]:
    with contextlib.suppress(OSError):
        match = re.search(rf"^{field}:\s*(\d+) kB", (proc / "status").read_text(), re.MULTILINE)
        return kib_to_bytes(int(match[1])) if match else None
    return None


def _forget_own_peak(proc: Path = PROC) -> bool:
    """Start the kernel's peak anew, at the size now; False if this kernel cannot, as its peak is an earlier case's."""
    try:
        (proc / "clear_refs").write_text("5")  # proc(5): resets the peak resident set size
    except OSError:
        return False
    return True
