"""What the lines of an acceptance test share: the device, its tree, the scale of times, the state on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Dict, Iterable, Iterator, Optional

from harness.acceptance.lines import Findings
from harness.acceptance.state import AcceptanceState
from harness.board.socket_meter import SocketMeter
from harness.board.source import Source, SourceSpec, open_source
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import RealDevice, Report, named_mode
from harness.core.errors import HarnessError
from harness.core.power_modes import PowerMode
from harness.core.profiles import Series, Telemetry
from harness.devices.host import lock_name
from harness.devices.jetson_board import read_board
from harness.devices.jetson_control import JetsonControl

WORKLOAD = "lenet-mnist"  # the smallest workload of the suite: its data set is quickly written
BATCH_SIZE = 16
COMMAND = "jetwatt doctor --accept"
SHORTEST_S = 0.2  # of a scaled time: below it no sensor gives two values


@dataclasses.dataclass
class AcceptanceContext:
    device: RealDevice
    root: Path  # of the board's files
    configuration: Configuration
    state: AcceptanceState
    report: Report  # takes a line of progress
    scale: float = 1.0  # of all times; a rehearsal has less than 1
    reboots: bool = True  # whether the owner reboots or cuts the power when requested
    meter: Optional[SocketMeter] = None  # at the plug
    command: str = COMMAND  # which goes on with the test
    mode: Optional[PowerMode] = None  # the one that a line set last, as read back
    threads: int = 1  # of torch in that mode

    @property
    def is_emulated(self) -> bool:
        return self.device.provenance != "measured"

    @property
    def is_rehearsal(self) -> bool:
        return self.scale != 1.0

    @property
    def lock(self) -> str:
        """The name of the device's lock and saved state."""
        return lock_name(self.device.name, self.root)

    @functools.cached_property
    def control(self) -> Optional[JetsonControl]:
        """The knobs of a Jetson board; None on other devices."""
        if read_board(self.root) is None:
            return None
        return JetsonControl(self.root, self.configuration.hold_thor_clocks)

    def seconds(self, seconds: float) -> float:
        """A time of the test, scaled."""
        return max(seconds * self.scale, SHORTEST_S)

    @property
    def interval_s(self) -> float:
        """Between samples: 1 s, in a rehearsal less."""
        return max(self.scale, 0.1)

    def case(self, power_mode: str, minibatches: int = 40) -> Case:
        """A short training case in a power mode; all lines use this workload."""
        settings = CaseSettings(minibatches=minibatches, cache="as-is", interval_s=self.interval_s)
        storage = self.configuration.default_storage
        named = named_mode(self.device, power_mode, WORKLOAD)
        return Case(self.device.name, WORKLOAD, named, 0, storage, BATCH_SIZE, settings)

    @contextlib.contextmanager
    def held(self, findings: Findings) -> Iterator[None]:
        """Hold the device during the block; what ends the block, or is not restored after it, fails the line.

        HarnessError: the device cannot be held.
        """
        is_held = False
        try:
            with self.device.session():
                is_held = True
                yield
        except HarnessError as error:
            if not is_held:
                raise
            findings.fail(error.what, error.hint)
        finally:
            self.mode = None

    def set_mode(self, mode: str) -> PowerMode:
        """Set a power mode by its name and return it as read back; ControlError if it did not take."""
        in_effect = self.device.set_case(self.case(mode))
        self.mode = PowerMode(**in_effect["power_mode"])
        self.threads = in_effect["threads"]
        return self.mode

    def sources(self, names: Iterable[str] = ()) -> Dict[str, Source]:
        """The device's telemetry sources of these names, or all, that can be opened in this process."""
        opened = {}
        for spec in self.specs(names):
            opened[spec.name] = open_source(spec, str(self.device.root))
        return opened

    def specs(self, names: Iterable[str] = ()) -> Iterable[SourceSpec]:
        wanted = set(names)
        specs = self.device.telemetry_sources(Path.cwd())
        return [spec for spec in specs if not wanted or spec.name in wanted]


def telemetry_of(sources: Dict[str, Source], now_s: float) -> Telemetry:
    """One reading of each source as telemetry of one sample."""
    series: Dict[str, Series] = {}
    missing: Dict[str, str] = {}
    notes: Dict[str, str] = {}
    for source in sources.values():
        reading = source.read(now_s)
        notes.update(source.notes)
        missing.update(reading.failed)
        series.update((channel, Series((now_s,), (value,))) for channel, value in reading.values.items())
    return Telemetry(0.0, series=series, missing=missing, notes=notes)
