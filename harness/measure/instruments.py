"""What a measurement is taken with: the telemetry, where its sampler runs, and when heat ends it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Mapping, Optional, Sequence

from harness.board.sampler import Sampler
from harness.board.source import SourceSpec


@dataclasses.dataclass(frozen=True)
class Instruments:
    """What a device measures with.

    Attributes:
        sources: telemetry to record.
        power_source: which of them measures power; None where none does.
        sampler_cpus: where the sampler may run: best where training does not.
        root: where `/sys` and `/proc` are.
        limits_c: channel of a temperature to where it ends the run, from `temperature_limits_c`.
    """

    sources: Sequence[SourceSpec]
    power_source: Optional[str]
    sampler_cpus: Sequence[int]
    root: Path
    limits_c: Mapping[str, float]

    def only_power(self) -> Instruments:
        """The sensor of power alone."""
        return dataclasses.replace(self, sources=[one for one in self.sources if one.name == self.power_source])

    def sampler(self, interval_s: float) -> Sampler:
        """A sampler of all sources, not started yet."""
        return Sampler(self.sources, interval_s, root=str(self.root), cpus=self.sampler_cpus)
