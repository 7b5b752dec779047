"""What the suite needs of a device, be it a board, this machine, a simulated board or a replayed corpus."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, ContextManager, Dict, List, Protocol, Tuple

from harness.core.capability import Capability
from harness.core.cases import Case
from harness.core.power_modes import PowerMode, PowerModeSpace
from harness.core.profiles import Profile

Report = Callable[[str], None]
"""Takes one line of progress: what is being done now."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """Who a device is.

    Attributes:
        model: the product in words (`NVIDIA Jetson AGX Orin`, a CPU model, ...).
        specification: plain values that tell it from others: part number, cores, memory, GPU, ...
    """

    model: str
    specification: Dict[str, Any]


class Device(Protocol):
    """One device. Nothing touches hardware before `session` is entered.

    Attributes:
        name: as given to `--device`.
        provenance: of every profile it yields: `measured`, `simulated` or `replayed`.
        clocks_only_fall: whether its CPU and GPU clocks may not rise during a run (C11): its cases are then run in an
            order in which they do not.
    """

    name: str
    provenance: str
    clocks_only_fall: bool

    def identity(self) -> Identity:
        """Who this device is."""

    def power_mode_space(self) -> PowerModeSpace:
        """The values that each dimension of a power mode may take now."""

    def power_modes(self, text: str, workload: str = "") -> List[Tuple[str, PowerMode]]:
        """The modes that a `--power-mode` value stands for, each with the name it has in a case's id.

        Args:
            text: the value.
            workload: what runs in them; matters where a corpus is replayed, which holds other modes of each workload.

        Raises:
            UnknownNameError, InvalidValueError: `text` is no mode of this device; lists what is.
        """

    def capabilities(self) -> List[Capability]:
        """What can be measured and controlled here, and what it would take for the rest."""

    def check(self, case: Case) -> None:
        """Refuse a case before anything is changed.

        Raises:
            CannotRunError: this device cannot run the case now.
        """

    def session(self) -> ContextManager[None]:
        """Hold the device: lock it and save its state; on leaving, put back what was changed."""

    def apply(self, mode: PowerMode) -> PowerMode:
        """Set a power mode and return it as read back.

        Raises:
            ControlError: the mode did not take.
        """

    def conditions(self, case: Case, report: Report) -> Dict[str, Any]:
        """What is known of a case's conditions before it is measured, as plain values; makes its data set ready.

        `--resume` compares these with what is stored, and `profile` puts them into the record.

        Raises:
            CannotRunError, DataSetError: the data set cannot be had here.
        """

    def profile(self, case: Case, report: Report) -> Profile:
        """Apply the case's power mode and measure it.

        Raises:
            CannotRunError, ControlError, DataSetError: the case could not be measured.
        """
