"""`with tuning(...)`: a power mode found while your own training loop runs.

    from jetwatt import tuning

    with tuning("xavier-agx", power_budget_w=20) as tuner:
        for batch in loader:
            train_step(batch)          # ends with torch.cuda.synchronize() or loss.item()
            tuner.step()

The device is held for as long as the block runs, and put back as it was at its end, also after an error; then it tells
what the search came to. DataLoader workers follow each change of the CPUs that this process may use.

A simulated board, `sim:xavier-agx`, is for rehearsing: the loop runs as it does without tuning, and each of its
minibatches counts as one of `workload` on that board, with the board's time and power.
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple

import numpy as np

from harness.board.cpu import workers_follow
from harness.core.cases import Case
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import Device
from harness.core.errors import CannotRunError
from harness.core.metrics import POWER_CHANNEL, between
from harness.core.mode_texts import MAXN
from harness.core.power_modes import PowerMode
from harness.core.units import ms_to_s, w_to_mw
from harness.devices.registry import open_device
from harness.devices.simulated import SimulatedDevice
from harness.measure.run import check
from harness.workloads import get_workload
from predictors.cli.device_profiler import board_of, power_sampler
from predictors.models.tables import Table
from predictors.strategies.goals import Goal, power_budget
from predictors.strategies.online import SILENCE_S, OnlineTuner, Power
from predictors.strategies.protocol import Strategy
from predictors.strategies.registry import StrategySetting, make_closed_loop

LEAST_GAIN = 0.005  # the search ends where another mode promises less than this share of the time


@contextlib.contextmanager
def tuning(
    device: str,
    *,
    power_budget_w: Optional[float] = None,
    goal: Optional[Goal] = None,
    profiles: int = 15,
    minibatches: int = 40,
    batch_size: int = 16,
    interval_s: float = 1.0,
    silence_s: float = SILENCE_S,
    references: Tuple[Table, ...] = (),
    workload: str = "resnet18-imagenet",
    root: Path = Path("/"),
    power_mw: Optional[Power] = None,
    report: Callable[[str], None] = print,
) -> Iterator[OnlineTuner]:
    """Search for a power mode while the block trains; `step()` belongs after each minibatch.

    Args:
        device: a board's name, `host`, or `sim:BOARD` to rehearse.
        power_budget_w: the least time under this module power; or give `goal`.
        goal: what to reach instead.
        profiles: modes that may be tried.
        minibatches: that count in each mode.
        batch_size: of the loop.
        interval_s: of the power sensor.
        silence_s: the search ends where the power meter says nothing for so long.
        references: tables of other workloads on this device, which make the search shorter.
        workload: what a simulated board takes your loop for.
        root: below it lie the board's /sys, /proc and /etc.
        power_mw: a power meter of your own, instead of the device's sensors.
        report: takes a line for each mode that was tried.

    Raises:
        CannotRunError: the device has no power sensor, or neither budget nor goal was given; while the block runs,
            power is no longer told, or several modes in a row did not take.
        ControlError: the device is in use, or the chosen mode did not take. Whatever ends the block, the device is put
            back.
    """
    if goal is None and power_budget_w is None:
        raise CannotRunError("tuning needs a goal", "give power_budget_w=30, or goal=Goal(...)")
    wanted = goal if goal is not None else power_budget(w_to_mw(float(power_budget_w or 0)))
    opened = open_device(device, load_configuration(Path(FILE_NAME)), root)
    strategy = make_closed_loop(StrategySetting(board_of(opened), references), 0, LEAST_GAIN)
    modes = list(opened.power_mode_space())
    options = {
        "profiles": profiles, "minibatches": minibatches, "batch_size": batch_size, "silence_s": silence_s,
        "report": report,
    }  # fmt: skip

    def apply(mode: PowerMode) -> None:
        with workers_follow():
            opened.apply(mode)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_held(opened))
        if isinstance(opened, SimulatedDevice):
            case = Case(device, get_workload(workload).name, MAXN, 4, "ssd", batch_size)
            report(f"rehearsal on {device}, simulated: each minibatch counts as one of {case.workload}")
            tuner: OnlineTuner = RehearsedTuner(opened, case, strategy, wanted, modes, **options)
        else:
            meter = power_mw or stack.enter_context(_sensor(opened, interval_s, root))
            tuner = OnlineTuner(strategy, wanted, modes, apply, meter, **options)
        try:
            yield tuner
        finally:
            report(tuner.close().describe())


class RehearsedTuner(OnlineTuner):
    """Tunes on a simulated board, in its time: each `step` is a minibatch of `case` there."""

    def __init__(
        self, board: SimulatedDevice, case: Case, strategy: Strategy, goal: Goal, modes: List[PowerMode], **options: Any
    ) -> None:
        check(case, board)
        self._now_s = 0.0

        def run_in(mode: PowerMode) -> None:
            found = board.profile(dataclasses.replace(case, power_mode=mode.name)).aggregates
            self._minibatch_s, self._drawn_mw = ms_to_s(found["minibatch_time_ms"]), found["power_mw"]

        run_in(board.power_mode_space().greatest)
        super().__init__(
            strategy, goal, modes, run_in, lambda start_s, end_s: self._drawn_mw, clock=lambda: self._now_s, **options
        )

    def step(self) -> None:
        self._now_s += self._minibatch_s
        super().step()


@contextlib.contextmanager
def _held(device: Device) -> Iterator[None]:
    """The device's session; its end, too, changes the CPUs that this process may use."""
    with contextlib.ExitStack() as stack:
        end = contextlib.ExitStack()
        stack.push(end)  # workers are bound once the device is put back
        stack.enter_context(device.session())
        stack.callback(lambda: end.enter_context(workers_follow()))
        yield


@contextlib.contextmanager
def _sensor(device: Device, interval_s: float, root: Path) -> Iterator[Power]:
    """The device's own power sensors, sampled in a process of their own."""
    if not hasattr(device, "telemetry_sources"):
        raise CannotRunError(
            f"{device.name} does not run your training loop", "tune on host, on a board, or on sim:BOARD"
        )
    with power_sampler(device, interval_s, root, "; or give power_mw=, a meter of your own") as sampler:

        def median_mw(start_s: float, end_s: float) -> Optional[float]:
            sampler.poll()
            values = between(sampler.series(POWER_CHANNEL), start_s, end_s).values
            return float(np.median(values)) if len(values) else None

        yield median_mw
