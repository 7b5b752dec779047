"""A device with a command as its only workload, which profiles cases of it as other devices do.

On hardware and on an emulated board the command runs, under the case's power mode. A simulated board cannot tell how
long a program would take: a rehearsal there profiles the workload `rehearse_as`, and the command is not started.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict, List, Tuple, cast

from harness.board.nvml import needed_setting, visible_to_programs
from harness.core.cases import COMMAND, DEFAULT_MINIBATCHES, TRAINING, Case, CaseSettings
from harness.core.device import Device, Identity, RealDevice, is_real, is_self_profiling
from harness.core.errors import CannotRunError
from harness.core.power_modes import NamedMode, PowerMode, PowerModeSpace
from harness.core.profiles import Profile
from harness.core.units import ms_to_s, mws_to_mwh
from harness.measure.command import measure_command
from harness.measure.command_process import check_command
from harness.measure.flags import find_flags
from harness.measure.recording import Instruments, attribute, own_threshold
from harness.workloads.command import Command

NO_SETTINGS = CaseSettings()  # clocks, interval, seed and limits as a case has them by default
REHEARSED_STORAGE, REHEARSED_BATCH = "ssd", 16


def command_case(
    device: str,
    command: Command,
    power_mode: NamedMode,
    asked: CaseSettings = NO_SETTINGS,
) -> Case:
    """The case of a command in a power mode, with the settings that it can have.

    It has no minibatches, workers, storage or batch size to ask for.
    """
    settings = dataclasses.replace(asked, minibatches=None, cache="as-is")
    return Case(device, command.workload, power_mode, None, None, 1, settings, COMMAND)


class CommandDevice:
    """A device that the caller holds, whose cases are those of a command.

    With `keeps_lines`, the error of a command that fails has the last lines of its output.
    """

    def __init__(self, device: Device, command: Command, keeps_lines: bool = False) -> None:
        if device.provenance == "replayed":
            raise CannotRunError(f"{device.name} replays a corpus, and runs no command", "device='host', or a board")
        self.device, self.command, self.keeps_lines = device, command, keeps_lines
        self.name, self.board_instance = device.name, device.board_instance
        self.provenance, self.clocks_only_fall = device.provenance, device.clocks_only_fall
        if is_real(device):
            check_command(command.words)
        elif is_self_profiling(device) and command.rehearse_as is None:
            raise CannotRunError(
                f"{device.name} is simulated and cannot run a command: how long it would take there is unknown",
                "rehearse with a workload in its place: rehearse_as='lenet-mnist'; or device='host'",
            )

    @property
    def is_rehearsal(self) -> bool:
        """Whether a workload stands for the command, which is not started."""
        return not is_real(self.device)

    def __getattr__(self, name: str) -> Any:
        """What else the device has, such as its board's name; but neither sensors nor limits to set for a case."""
        if name in ("telemetry_sources", "settable_limits_mw", "device"):
            raise AttributeError(name)
        return getattr(self.device, name)

    def identity(self) -> Identity:
        return self.device.identity()

    def power_mode_space(self) -> PowerModeSpace:
        return self.device.power_mode_space()

    def power_modes(self, text: str, workload: str = "") -> List[Tuple[str, PowerMode]]:
        return self.device.power_modes(text)

    def session(self) -> Any:
        return self.device.session()

    def apply(self, mode: PowerMode) -> PowerMode:
        return self.device.apply(mode)

    def check(self, case: Case) -> None:
        """Refuse a case that cannot run, before anything is changed."""
        self.device.check(self._rehearsed(case) if self.is_rehearsal else case)
        if not self.is_rehearsal:
            needed_setting(cast(RealDevice, self.device).gpu_uuid)  # refuses a GPU that is hidden

    def conditions(self, case: Case) -> Dict[str, Any]:
        """The conditions before measuring, as those of the profile later: what tells the command from others."""
        if not self.is_rehearsal:
            return {**self.device.conditions(case), **self.command.identity()}
        return self._as_rehearsed(self.device.conditions(self._rehearsed(case)))

    def profile(self, case: Case) -> Profile:
        """Run the command in the case's power mode; see `measure_command` for what it raises."""
        if self.is_rehearsal:
            return self._rehearse(case)
        machine = cast(RealDevice, self.device)
        own = self.conditions(case)
        in_effect, instruments = Instruments.of_case(case, machine, Path.cwd())
        described = {**own, **in_effect, **own_threshold(machine)}
        with visible_to_programs(machine.gpu_uuid):
            profile = measure_command(case, self.command, described, instruments, self.keeps_lines)
        return attribute(profile, machine)

    def _rehearsed(self, case: Case) -> Case:
        """The case of the workload that stands for the command."""
        workload = self.command.rehearse_as
        assert workload is not None, "a simulated board is refused without it"
        settings = dataclasses.replace(case.settings, minibatches=DEFAULT_MINIBATCHES, cache="warm")
        return dataclasses.replace(
            case,
            workload=workload,
            workers=0,
            storage=REHEARSED_STORAGE,
            batch_size=REHEARSED_BATCH,
            settings=settings,
            task=TRAINING,
        )

    def _as_rehearsed(self, conditions: Dict[str, Any]) -> Dict[str, Any]:
        return {**conditions, **self.command.identity(), "rehearsed_as": self.command.rehearse_as}

    def _rehearse(self, case: Case) -> Profile:
        """The simulated profile of a workload's minibatches as that of a command which takes as long as they do."""
        simulated = cast(Any, self.device).profile(self._rehearsed(case))
        wall_time_s = DEFAULT_MINIBATCHES * ms_to_s(simulated.aggregates["minibatch_time_mean_ms"])
        aggregates = {**simulated.aggregates, "wall_time_s": wall_time_s}
        if self.command.minibatch_pattern is None:
            aggregates.update({name: None for name in aggregates if name.startswith("minibatch_time")})
        power_mw = aggregates["power_mean_mw"]
        if power_mw is not None:
            aggregates["energy_mwh"] = mws_to_mwh(power_mw * wall_time_s)
        rehearsed = dataclasses.replace(
            simulated,
            case=case,
            conditions=self._as_rehearsed(simulated.conditions),
            minibatches=[],
            aggregates=aggregates,
        )
        return dataclasses.replace(rehearsed, flags=find_flags(rehearsed))
