"""A change of power mode while a device trains: what is recorded around it, and how long it took to take effect."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any, Dict, List, cast

from harness.board.thermal import refuse_heat
from harness.core.cases import Case
from harness.core.device import Device, RealDevice, Report, is_self_profiling
from harness.core.device_types import EMULATED
from harness.core.errors import CannotRunError
from harness.core.power_modes import PowerMode, PowerModeSpace
from harness.core.profiles import Minibatch
from harness.core.terminal import Progress
from harness.core.transitions import MeasuredTransition, RecordedTransition, transition_of
from harness.measure.concurrent import Work
from harness.measure.recording import Instruments
from harness.measure.run import bench_of

BEFORE_S, AFTER_S = 6.0, 12.0  # power settles in 2 to 3 s (001 sec. 2.5), before the change too
INTERVAL_S = 0.05  # of the samples, unless the case has a shorter one


def lower_mode(space: PowerModeSpace, mode: PowerMode) -> PowerMode:
    """The mode of a space with as many cores and the middle of its clocks below those of another mode.

    Raises:
        CannotRunError: no mode of the space has lower clocks.
    """

    def middle(values: Any, khz: int) -> int:
        lower = [value for value in values if value <= khz]
        return int(lower[len(lower) // 2]) if lower else khz

    clocks = zip(("cpu_khz", "gpu_khz", "mem_khz"), space.dimensions[1:])
    lower = mode._replace(**{name: middle(values, getattr(mode, name)) for name, values in clocks})
    lower = space.nearest(lower)
    if lower == mode:
        raise CannotRunError(f"no mode has lower clocks than {mode.name}", "begin in a higher power mode")
    return lower


def record_transition(case: Case, to: PowerMode, device: Device, report: Report) -> RecordedTransition:
    """Train in a case's mode, change to another one, and train on; the device is held by the caller.

    Raises:
        CannotRunError: the device plays profiles back.
    """
    interval_s = min(case.settings.interval_s, INTERVAL_S)
    case = dataclasses.replace(case, settings=dataclasses.replace(case.settings, interval_s=interval_s))
    change: Any = getattr(device, "change_mode", None)
    if change is not None:
        return cast("RecordedTransition", change(case, to, BEFORE_S, AFTER_S))
    if is_self_profiling(device):
        raise CannotRunError(f"{device.name} changes no mode while it trains", "use a board, or a simulated one")
    machine = cast("RealDevice", device)
    bench = bench_of(case, machine, report)
    in_effect, instruments = Instruments.of_case(case, machine, bench.directory)
    assert bench.workload is not None, "only an idle case lacks it"
    work = Work(case, bench.workload, bench.samples, in_effect["power_mode"]["cpu_cores"])
    minibatches: List[Minibatch] = []
    sampler = instruments.sampler(interval_s)

    def work_until(end_s: float) -> None:
        while time.monotonic() < end_s:
            refuse_heat(sampler, instruments.limits_c)
            minibatches.append(work.step()._replace(index=len(minibatches)))
            report(f"    minibatch {len(minibatches)}")

    with contextlib.closing(work), sampler:
        work_until(time.monotonic() + BEFORE_S)
        changed_s = time.monotonic()
        machine.apply(to)
        set_s = time.monotonic() - changed_s
        work_until(changed_s + AFTER_S)
        telemetry = sampler.stop()
    return RecordedTransition(changed_s, set_s, minibatches, telemetry.series)


class ModeTransitions:
    """The transitions of a run, by device: one for each case, judged together."""

    def __init__(self) -> None:
        self._measured: Dict[str, List[MeasuredTransition]] = {}

    def measure(self, device: Device, case: Case, progress: Progress) -> MeasuredTransition:
        """Measure one from a case's mode to a lower one, keep it, and print a line."""
        to = lower_mode(device.power_mode_space(), case.power_mode.mode)
        transition = transition_of(record_transition(case, to, device, progress.update))
        measured = MeasuredTransition(case, to, transition)
        self._measured.setdefault(case.device, []).append(measured)
        figures = [
            f"{name} {'within' if name == 'clock' else 'after'} {getattr(transition, f'{name}_ms'):.0f} ms"
            for name in ("set", "clock", "minibatch", "power")
            if getattr(transition, f"{name}_ms") is not None
        ]
        sampled = "" if transition.sampled_ms is None else f" (sampled every {transition.sampled_ms:.0f} ms)"
        progress.line(f"    to {to.name}: {'; '.join(figures) or 'no figure shows the change'}{sampled}")
        return measured

    def of(self, device: str) -> List[MeasuredTransition]:
        return self._measured.get(device, [])

    def check(self, device: str) -> None:
        """CannotRunError if no transition was measured on a device, or only on files in the place of a board."""
        if device.startswith(EMULATED):
            raise CannotRunError(f"power of {device} is none that a board draws", "judge it on a board")
        if not self.of(device):
            raise CannotRunError(f"on {device} no change of mode was measured in this run")
