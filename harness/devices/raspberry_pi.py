"""`raspberry-pi-5`: a host with power rails in its power-management chip; the papers 000 and 001 compare with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

from harness.board.source import SourceSpec
from harness.core.boards import load_board
from harness.core.cases import CONCURRENT, IDLE, Case, parts_of
from harness.core.environment import memory_bytes
from harness.core.errors import CannotRunError
from harness.core.units import BYTES_PER_GIB
from harness.devices.host import HostDevice
from harness.devices.jetson_board import device_tree_strings

NAME = "raspberry-pi-5"

TOO_LARGE = {"bert-squad": 16, "llama-lora-wikitext": 1}
"""Workload to the smallest batch size that does not fit into 8 GiB: BERT by 001's appendix (F578), where it ran out of
memory; the decoder because its weights and the backward pass alone need more."""


def is_raspberry_pi(root: Path) -> bool:
    return "raspberrypi,5-model-b" in device_tree_strings(root / "proc/device-tree/compatible")


class RaspberryPi(HostDevice):
    name = emulated_name = NAME
    power_source = "pmic"

    def telemetry_sources(self, data_directory: Path) -> List[SourceSpec]:
        """Those of the host, with measured CPU clocks: under-voltage lowers them, and the driver does not report it."""
        sources = super().telemetry_sources(data_directory)
        options: Dict[str, Dict[str, Any]] = {
            "cpufreq": {"measured": True},
            self.power_source: {"most_mw": load_board(NAME).most_mw},
        }
        return [each._replace(options=options.get(each.name, each.options)) for each in sources]

    def check(self, case: Case) -> None:
        """Refuse workloads that run out of memory: the kernel would kill the run, or another process, midway."""
        super().check(case)
        memory = memory_bytes(self._tree)
        if case.task == IDLE or memory is None or memory > 12 * BYTES_PER_GIB:
            return
        part = parts_of(case)[0] if case.task == CONCURRENT else case
        if part.batch_size >= TOO_LARGE.get(part.workload, part.batch_size + 1):
            raise CannotRunError(
                f"{part.workload} with batches of {part.batch_size} does not fit into {memory / BYTES_PER_GIB:.0f} GiB",
                "a smaller batch_size=, or a network that fits",
            )
