"""`with tuning(...)`: a power mode found while your own training loop runs.

    from predictors.tuning import tuning

    with tuning("xavier-agx", power_budget_w=20) as tuner:
        for batch in loader:
            train_step(batch)          # ends with torch.cuda.synchronize() or loss.item()
            tuner.step()

The device is held for as long as the block runs, and put back as it was at its end, also after an error; then it tells
what the search came to. DataLoader workers follow each change of the CPUs that this process may use.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Callable, Iterator, Optional, Tuple

import numpy as np

from harness.board.affinity import workers_follow
from harness.board.sampler import Sampler
from harness.core.boards import BOARDS
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import Device
from harness.core.errors import CannotRunError
from harness.core.metrics import POWER_CHANNEL, between
from harness.core.power_modes import PowerMode
from harness.core.units import w_to_mw
from harness.devices.registry import open_device
from predictors.models.base import Predictor, make_predictor, predictor_class
from predictors.models.tables import Table
from predictors.strategies.closed_loop import ClosedLoop, design_for
from predictors.strategies.goals import Goal, power_budget
from predictors.strategies.online import SILENCE_S, OnlineTuner, Power
from predictors.strategies.registry import OURS

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
    root: Path = Path("/"),
    power_mw: Optional[Power] = None,
    report: Callable[[str], None] = print,
) -> Iterator[OnlineTuner]:
    """Search for a power mode while the block trains; `step()` belongs after each minibatch.

    Args:
        device: a board's name, or `host`.
        power_budget_w: the least time under this module power; or give `goal`.
        goal: what to reach instead.
        profiles: modes that may be tried.
        minibatches: that count in each mode.
        batch_size: of the loop.
        interval_s: of the power sensor.
        silence_s: the search ends where the power meter says nothing for so long.
        references: tables of other workloads on this device, which make the search shorter.
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
    board = device if device in BOARDS else None

    def make() -> Predictor:
        return make_predictor(predictor_class(OURS), references=references, board=board)

    strategy = ClosedLoop(make, design_for(references, board, 0), least_gain=LEAST_GAIN)

    def apply(mode: PowerMode) -> None:
        with workers_follow():
            opened.apply(mode)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_held(opened))
        meter = power_mw or stack.enter_context(_sensor(opened, interval_s, root))
        tuner = OnlineTuner(
            strategy,
            wanted,
            list(opened.power_mode_space()),
            apply,
            meter,
            profiles=profiles,
            minibatches=minibatches,
            batch_size=batch_size,
            silence_s=silence_s,
            report=report,
        )
        try:
            yield tuner
        finally:
            report(tuner.close().describe())


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
    sources = getattr(device, "telemetry_sources", None)
    if sources is None:
        raise CannotRunError(f"{device.name} does not run your training loop", "tune on host or on a board")
    with Sampler(sources(Path.cwd()), interval_s, root=str(root)) as sampler:
        sampler.poll()
        if sampler.series(POWER_CHANNEL) is None:
            raise CannotRunError(
                f"{device.name} has no power sensor that can be read: {sampler.missing}",
                "`python -m harness doctor` says why; or give power_mw=, a meter of your own",
            )

        def median_mw(start_s: float, end_s: float) -> Optional[float]:
            sampler.poll()
            power = sampler.series(POWER_CHANNEL)
            values = between(power, start_s, end_s).values if power is not None else ()
            return float(np.median(values)) if len(values) else None

        yield median_mw
