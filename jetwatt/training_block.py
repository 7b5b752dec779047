"""`with measuring(...)`: profiles the training that a script has anyway.

    import jetwatt

    with jetwatt.measuring("host", workload="my-run", results="r.sqlite", batch_size=16) as run:
        for batch in run.fetch(loader):
            train_step(batch)
            run.step()
    print(run.profile.minibatch_time_ms, run.profile.power_mw)

The module is not named after the call: an attribute of the package is either.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Union

from harness.core.cases import STATIC
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import Device
from harness.core.environment import describe_environment
from harness.core.errors import HarnessError, InvalidValueError
from harness.core.metrics import POWER_CHANNEL
from harness.core.notes import note
from harness.core.profiles import Profile, is_disqualified
from harness.devices.registry import open_device
from harness.measure.fingerprint import fingerprints
from harness.measure.own_loop import FurtherLoop, OwnLoop
from harness.measure.own_training import OwnTraining, further_process, measured_training
from harness.store.conditions import with_job
from harness.store.results import ResultsStore

_blocks: Dict[int, str] = {}
"""The workload of the block that runs in a process, by the process: a forked child has its parent's."""


@contextlib.contextmanager
def measuring(
    device: Union[str, Device],
    *,
    workload: str,
    batch_size: int,
    results: Union[str, Path, None] = None,
    model: Any = None,
    data: Any = None,
    hold: bool = False,
    power_mode: Optional[str] = None,
    clocks: str = STATIC,
    simulated_workload: Optional[str] = None,
) -> Iterator[OwnLoop]:
    """Measure the training in the block: `step()` belongs after each minibatch, `fetch(loader)` around the loader.

    Of your process nothing is changed: no seed, thread count, signal handler or counter of torch. However the block
    ends, `profile` has what was measured; after an error or Ctrl-C it is flagged, and the error goes on. Further
    processes of the same training (other ranks, DataLoader workers) measure nothing, and their `profile` is None.

    Args:
        device: `host`, a board's name, or `sim:BOARD` to rehearse: each minibatch counts as one on that board.
        workload: the name of your training; profiles of one name are compared with each other.
        batch_size: samples per minibatch, unless `step(samples=...)` says otherwise.
        results: the results file that the profile is added to; None stores nothing.
        model: your torch module, or a text; only profiles of an equal one are compared.
        data: your data set, DataLoader or the Path of the files, or a text; likewise.
        hold: whether to lock the device, set its power mode and clocks, and restore it after the block. If not, the
            power mode and whether DVFS is on are recorded as found.
        power_mode: the mode to hold; None for `maxn`.
        clocks: `static` holds the clocks of that mode, `dvfs` lets them go lower.
        simulated_workload: a workload of the suite that a simulated board runs in place of yours.

    Raises:
        CannotRunError: the device cannot be measured here.
        ControlError: a device to hold is in use, or its mode cannot be set.
        StoreError: the results file cannot be written.
        InvalidValueError: an argument is of the wrong kind, or another block of this process has not ended.
    """
    further = further_process()
    if further is not None:
        unmeasured = FurtherLoop(further.reason)
        yield unmeasured
        if not further.is_certain:
            unmeasured.say_once()
        return
    identity = fingerprints(model, data)
    training = OwnTraining(workload, batch_size, identity, hold, power_mode, clocks, simulated_workload, model)
    training.check()
    configuration = load_configuration(Path(FILE_NAME))
    opened = open_device(device, configuration) if isinstance(device, str) else device
    if results is not None:
        results = Path(results).absolute()  # a training may change the folder
        ResultsStore(results).close()  # refused before anything is measured
    directory = data if isinstance(data, Path) else Path.cwd()
    loop: Optional[OwnLoop] = None
    is_failing = True
    try:
        with _only_block(workload), measured_training(training, opened, configuration, directory) as loop:
            yield loop
        is_failing = False
    finally:
        if loop is not None:
            _keep(loop, results, is_failing)


@contextlib.contextmanager
def _only_block(workload: str) -> Iterator[None]:
    """Refuse a second block while one runs: each would have the time and energy of both."""
    process = os.getpid()
    if process in _blocks:
        what = f"this process is measuring {_blocks[process]!r} already, and a block takes no other in it"
        raise InvalidValueError(what, "end that block first")
    _blocks[process] = workload
    try:
        yield
    finally:
        _blocks.pop(process, None)


def _keep(loop: OwnLoop, results: Union[str, Path, None], is_failing: bool) -> None:
    """Store the profile, and note its doubts; an error of that does not replace one that ends the block."""
    profile = loop.profile
    if not is_failing:
        _note_doubts(profile, loop.minibatches)
    if profile is None or results is None:
        return
    try:
        with ResultsStore(results) as store:
            store.add(with_job(profile), describe_environment(), uuid.uuid4().hex)
    except HarnessError as error:
        if not is_failing:
            raise
        note(f"the profile is not stored: {error}")


def _note_doubts(profile: Optional[Profile], steps: int) -> None:
    """Note what a script that prints figures would not show: what is missing of them, and their flags."""
    if profile is None and steps:
        note(f"no minibatch was measured: the GPU had computed none of {steps} when the block ended")
        return
    if profile is None:
        note("no minibatch was measured: call step() after each one")
        return
    if POWER_CHANNEL not in profile.telemetry.series:
        note(f"power and energy are missing: {profile.conditions['power_definition']}")
    if profile.flags:
        left_out = "; compare and baseline leave it out" if is_disqualified(profile.flags) else ""
        note(f"the profile of {profile.case.workload!r} is flagged{left_out}: {'; '.join(profile.flags)}")
