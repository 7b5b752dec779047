"""A board that has a name but is not this machine: its cases are listed and skipped with the reason."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Tuple

from harness.cases import Case
from harness.devices.protocol import Capability, Identity, Report
from harness.environment import cpu_model
from harness.errors import CannotRunError
from harness.power_modes import PowerMode, PowerModeSpace
from harness.profiles import Profile


class AbsentBoard:
    """Stands for a board off-board; every question that only the board could answer is refused with the way out."""

    provenance = "measured"

    def __init__(self, name: str, model: str, root: Path) -> None:
        """Stand for the board `name`, a `model`, on the machine under `root`."""
        self.name = name
        self._model = model
        self._root = root

    def _refuse(self) -> NoReturn:
        here = cpu_model(self._root) or "of unknown make"
        raise CannotRunError(
            f"{self.name} is not this machine (an {self._model} is asked for, this CPU is {here})",
            "run on the board, or `--device host` for this machine",
        )

    def identity(self) -> Identity:
        """The product that was named."""
        return Identity(self._model, {})

    def power_mode_space(self) -> PowerModeSpace:
        """Known only to the board."""
        self._refuse()

    def power_modes(self, text: str) -> List[Tuple[str, PowerMode]]:
        """Any mode as it was named: only the board can tell whether it has it."""
        return [(text, PowerMode(0, 0, 0, 0))]

    def capabilities(self) -> List[Capability]:
        """Nothing can be done here."""
        return [Capability("device", False, f"{self.name} is not this machine", "run on the board")]

    def check(self, case: Case) -> None:
        """Refuse every case."""
        self._refuse()

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Nothing to hold."""
        self._refuse()
        yield

    def apply(self, mode: PowerMode) -> PowerMode:
        """Known only to the board."""
        self._refuse()

    def conditions(self, case: Case, report: Report) -> Dict[str, Any]:
        """Known only to the board."""
        self._refuse()

    def profile(self, case: Case, report: Report) -> Profile:
        """Known only to the board."""
        self._refuse()
