"""A board that has a name but is not this machine: its cases are listed and skipped with the reason."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Tuple

from harness.core.boards import BoardSpec
from harness.core.cases import Case
from harness.core.device import Capability, Identity
from harness.core.environment import cpu_model
from harness.core.errors import CannotRunError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace


class AbsentBoard:
    """Stands for a board off-board: what its spec file says is answered, the rest is refused with the way out."""

    provenance = "measured"
    clocks_only_fall = False  # nothing runs

    def __init__(self, spec: BoardSpec, root: Path) -> None:
        """Stand for the board of `spec` on the machine under `root`."""
        self.name = spec.name
        self._spec = spec
        self._root = root

    def _refuse(self) -> NoReturn:
        here = cpu_model(self._root) or "of unknown make"
        raise CannotRunError(
            f"{self.name} is not this machine (an {self._spec.product} is asked for, this CPU is {here})",
            "run on the board, or `--device host` for this machine",
        )

    def identity(self) -> Identity:
        """The product that was named; what the very board is like, only it can tell."""
        return Identity(self._spec.product, {})

    def power_mode_space(self) -> PowerModeSpace:
        """The power modes known off-board, for planning; the board itself may list others.

        Raises:
            CannotRunError: nothing is known of one of its clocks.
        """
        return self._spec.power_mode_space()

    def power_modes(self, text: str, workload: str = "") -> List[Tuple[str, PowerMode]]:
        """The modes known off-board that `text` stands for.

        Where nothing is known of the board's clocks any text is taken as the name of a mode: its cases are listed, and
        the board will tell whether it has it.
        """
        try:
            self._spec.power_mode_space()
        except CannotRunError:
            return [(text, PowerMode(0, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ))]
        return self._spec.power_modes(text)

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

    def conditions(self, case: Case) -> Dict[str, Any]:
        """Known only to the board."""
        self._refuse()
