"""What is recorded while minibatches run, whichever loop runs them: telemetry, settled power, peak memory, the quota.

with recorder:          before the first minibatch: sampler, CPU quota so far
...                 the loop, which may ask a `PowerWatch` whether power has settled
recorder.profile(...)   minibatches and telemetry to aggregates and conditions
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import msgspec

from harness.board.control_groups import throttled_periods
from harness.board.lock import interrupt_kept
from harness.board.sampler import SAMPLER, Sampler
from harness.board.saved_state import default_state_dir
from harness.board.source import SourceSpec
from harness.core import board_threshold, metrics
from harness.core.cases import IDLE, Case
from harness.core.device import RealDevice
from harness.core.errors import SourceUnavailableError
from harness.core.frequency_residency import clock_use
from harness.core.power_modes import PowerMode
from harness.core.profiles import CLEAN, FIRST, NO_SERIES, SETTLING, Minibatch, Profile, Series, Telemetry, wall_clock
from harness.measure.flags import find_flags
from harness.measure.peak_memory import FIGURES as MEMORY_FIGURES
from harness.measure.peak_memory import PeakMemory

MAX_SILENCE_INTERVALS = 10  # without a sample a power sensor counts as gone; on a busy machine several may pass


@dataclasses.dataclass(frozen=True)
class Instruments:
    sources: Sequence[SourceSpec]  # telemetry to record
    power_source: str  # the source of them that measures power
    sampler_cpus: Optional[Sequence[int]]  # CPUs of the sampler, preferably not those of training; None for every CPU
    root: Path  # the folder with `/sys` and `/proc`
    limits_c: Mapping[str, float]  # channel of a temperature to the limit that ends the run

    @classmethod
    def of(
        cls,
        machine: RealDevice,
        sources: Sequence[SourceSpec],
        power_mode: Mapping[str, int],
        limits_c: Mapping[str, float],
    ) -> Instruments:
        """Those of a device in a power mode, as its conditions have it."""
        return cls(sources, machine.power_source, machine.sampler_cpus(PowerMode(**power_mode)), machine.root, limits_c)

    @classmethod
    def of_case(cls, case: Case, machine: RealDevice, directory: Path) -> Tuple[Dict[str, Any], Instruments]:
        """Bring a device into the state that a case asks for; returns what is in effect, and the instruments of that.

        `directory` is on the medium of the data, whose disk is watched.
        """
        with interrupt_kept():
            in_effect = machine.set_case(case)
        sources = machine.telemetry_sources(directory)
        limits_c = {} if case.task == IDLE else machine.temperature_limits_c(case.settings.max_temperature_c)
        return in_effect, cls.of(machine, sources, in_effect["power_mode"], limits_c)

    def sampler(self, interval_s: float) -> Sampler:
        return Sampler(self.sources, interval_s, root=str(self.root), cpus=self.sampler_cpus)


class Recorder:
    """Records from the start of a `with` block to its end, and makes the profile of what ran in it."""

    def __init__(self, instruments: Instruments, interval_s: float, memory: PeakMemory) -> None:
        self.sampler = instruments.sampler(interval_s)
        self.memory = memory
        self._power_source = instruments.power_source
        self._root = instruments.root
        self._telemetry: Optional[Telemetry] = None
        self._throttled: Optional[int] = None

    def __enter__(self) -> Recorder:
        self._owner = os.getpid()
        self.started_at = wall_clock()
        self._throttled_before = throttled_so_far(self._root)
        self.sampler.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the last sample and end the sampler; idempotent. A forked worker's copy leaves it to its parent."""
        if self._telemetry is None and os.getpid() == self._owner:
            self._telemetry = self.sampler.stop()
            self._throttled = throttled_since(self._throttled_before, self._root)

    @property
    def telemetry(self) -> Telemetry:
        """What was recorded, once it has been stopped."""
        assert self._telemetry is not None, "the recording has been stopped"
        return self._telemetry

    def conditions(self, power_mode: Mapping[str, int], start_s: float, end_s: float) -> Dict[str, Any]:
        """Conditions that only a recording shows, of what ran from `start_s` to `end_s`.

        What measured power, or why nothing did; waits for the CPU quota; how the clocks of the power mode were used.
        """
        telemetry, source = self.telemetry, self._power_source
        own: Dict[str, Any] = {}
        if self._throttled is not None:
            own["cpu_quota_throttled_periods"] = self._throttled
        if metrics.POWER_CHANNEL in telemetry.series:
            own.update(power_source=source, power_definition=telemetry.notes[metrics.POWER_CHANNEL])
        else:
            names = (source, metrics.POWER_CHANNEL, SAMPLER)
            why = "; ".join(telemetry.missing[name] for name in names if name in telemetry.missing)
            own.update(power_source=None, power_definition=f"no power sensor: {why or f'{source} gave no total'}")
        own["clock_use"] = clock_use(telemetry, PowerMode(**power_mode), start_s, end_s)
        return own

    def power_watch(self) -> PowerWatch:
        """Watches power from now on."""
        return PowerWatch(self.sampler, self._power_source)

    def profile(
        self,
        case: Case,
        conditions: Mapping[str, Any],
        minibatches: Sequence[Minibatch],
        batch_size: Optional[float] = None,
    ) -> Profile:
        """The profile of what ran, with the recorder's own conditions, without flags.

        `batch_size` is the mean over the clean minibatches if it differs from the case's.
        """
        telemetry = self.telemetry
        own = self.conditions(conditions["power_mode"], minibatches[0].start_s, metrics.end_s(minibatches[-1]))
        samples = case.batch_size if batch_size is None else batch_size
        whole_epochs = case.settings.epochs is not None
        aggregates = metrics.summarise(minibatches, telemetry, samples, whole_epochs=whole_epochs)
        aggregates.update(self.memory.figures(telemetry))
        return Profile(case, "measured", {**conditions, **own}, minibatches, telemetry, aggregates, [], self.started_at)


def attribute(profile: Profile, machine: RealDevice) -> Profile:
    """The profile as one of this device: with its provenance, and with flags."""
    if machine.provenance != "measured":  # an emulated board's memory is this machine's
        profile = dataclasses.replace(profile, aggregates={**profile.aggregates, **dict.fromkeys(MEMORY_FIGURES)})
    flags = [*machine.remarks, *find_flags(profile)]
    return dataclasses.replace(profile, provenance=machine.provenance, flags=flags)


def own_threshold(machine: RealDevice) -> Dict[str, Any]:
    """The threshold that the device's acceptance test stored, as a condition; empty without one."""
    path = board_threshold.path_of(default_state_dir(), machine.name, machine.board_instance)
    threshold = board_threshold.read(path)
    if threshold is None or threshold.provenance != machine.provenance:
        return {}
    return {board_threshold.CONDITION: msgspec.to_builtins(threshold)}


def next_phase(recorded: int, has_settled: Callable[[float], bool]) -> str:
    """The phase of the next minibatch: the first is kept apart (C12), and those before power has settled (C13)."""
    if not recorded:
        return FIRST
    return CLEAN if has_settled(time.monotonic()) else SETTLING


def throttled_so_far(root: Path) -> Optional[int]:
    """Periods in which this process waited for its CPU quota; None if the kernel does not show its control group."""
    with contextlib.suppress(SourceUnavailableError):
        return throttled_periods(str(root))
    return None


def throttled_since(before: Optional[int], root: Path) -> Optional[int]:
    """Periods since `before`, as of `throttled_so_far`; None if either was not shown."""
    now = throttled_so_far(root)
    return None if before is None or now is None else now - before


class PowerWatch:
    def __init__(self, sampler: Sampler, power_source: str) -> None:
        self._sampler = sampler
        self._source = power_source
        self._start_s = time.monotonic()  # power before training does not count
        self._settled_s: Optional[float] = None

    def has_settled(self, now_s: float) -> bool:
        """Whether power was stable by `now_s`; always True without a sensor, and after `MAX_SETTLING_S`."""
        if self._settled_s is None and (
            not self._senses()
            or metrics.stable_from(*self._power()) is not None
            or now_s > self._start_s + metrics.MAX_SETTLING_S
        ):
            self._settled_s = now_s
        return self._settled_s is not None

    def is_enough(self) -> bool:
        """Whether there are `MIN_POWER_SAMPLES` since power settled; always True without a sensor."""
        settled_s = self._settled_s
        assert settled_s is not None, "minibatches count once `has_settled` is true"
        if not self._senses() or time.monotonic() > settled_s + metrics.MAX_SETTLING_S:
            return True
        return sum(time_s >= settled_s for time_s in self._power().times_s) >= metrics.MIN_POWER_SAMPLES

    def _senses(self) -> bool:
        """Whether a sensor still delivers samples: it may vanish, or a counter may stop."""
        self._sampler.poll()
        if self._source in self._sampler.missing:
            return False
        heard_s = max((self._start_s, *self._power().times_s[-1:]))
        return time.monotonic() - heard_s <= MAX_SILENCE_INTERVALS * max(self._sampler.interval_s, 1.0)

    def _power(self) -> Series:
        power = self._sampler.series(metrics.POWER_CHANNEL) or NO_SERIES
        return metrics.between(power, self._start_s, math.inf)
