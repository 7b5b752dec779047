"""`raspberry-pi-5`: a host whose power is that of its power-management chip's rails; of 000's and 001's comparison."""

from __future__ import annotations

from pathlib import Path
from typing import List

from harness.board.source import SourceSpec
from harness.core.cases import CONCURRENT, IDLE, Case, parts_of
from harness.core.environment import memory_bytes
from harness.core.errors import CannotRunError
from harness.core.units import BYTES_PER_GIB
from harness.devices.host import HostDevice
from harness.devices.jetson_board import device_tree_strings

NAME = "raspberry-pi-5"

TOO_LARGE = {"bert-squad": 16, "llama-lora-wikitext": 1}
"""Workload to the batch size from which 8 GiB do not hold its training: of BERT by 001's appendix (F578), which saw it
run out of memory; of the decoder because its weights and the gradients' way back alone take more."""


def is_raspberry_pi(root: Path) -> bool:
    return "raspberrypi,5-model-b" in device_tree_strings(root / "proc/device-tree/compatible")


class RaspberryPi(HostDevice):
    name = emulated_name = NAME
    power_source = "pmic"

    def telemetry_sources(self, data_directory: Path) -> List[SourceSpec]:
        """The host's, and its clocks as the CPU has them, which under-voltage lowers and the driver does not tell."""
        found = super().telemetry_sources(data_directory)
        return [one._replace(options={"measured": True}) if one.name == "cpufreq" else one for one in found]

    def check(self, case: Case) -> None:
        """Refuse what is known to run out of memory: the kernel would end the run, or something else, in its middle."""
        super().check(case)
        memory = memory_bytes(self._tree)
        if case.task == IDLE or memory is None or memory > 12 * BYTES_PER_GIB:
            return
        part = parts_of(case)[0] if case.task == CONCURRENT else case
        if part.batch_size >= TOO_LARGE.get(part.workload, part.batch_size + 1):
            raise CannotRunError(
                f"{part.workload} with batches of {part.batch_size} does not fit into {memory / BYTES_PER_GIB:.0f} GiB",
                "a smaller --batch-size, or a network that fits",
            )
