"""The threshold of one board: what two runs of one case differ by there, as its acceptance test measured it.

`jetwatt doctor --accept` stores it on the board. Each profile of that board then carries it among its conditions, so
that it is there wherever profiles are compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import msgspec

from harness.core.errors import InvalidValueError
from harness.core.files import read_bounded, write_durably

CONDITION = "board_threshold"  # its name among the conditions of a profile, and in files of other formats
MOST_SHARE = 0.05  # the gate's own default: a board with more noise hides the changes that it is to show
SOFTWARE = ("l4t", "jetpack", "torch")
_MOST_BYTES = 1 << 16


class BoardThreshold(msgspec.Struct, frozen=True):
    """Shares by which runs of one case may differ on a board, and what they were measured from."""

    shares: Dict[str, float]  # by column, such as `minibatch_time_ms`; above 0, at most `MOST_SHARE`
    device: str
    board_instance: Optional[str]
    provenance: str
    case: str  # the id of the case that was repeated
    runs: int
    measured_at: str  # ISO 8601
    software: Dict[str, Optional[str]]  # versions of `SOFTWARE`; None where there is none

    @property
    def board(self) -> str:
        return f"{self.device}@{self.board_instance}" if self.board_instance else self.device

    @property
    def origin(self) -> str:
        """Where the shares come from, in words."""
        versions = [f"{name} {self.software[name]}" for name in SOFTWARE if self.software.get(name)]
        measured = f"doctor --accept of {self.measured_at[:10]}, {self.runs} runs of {self.case}"
        return ", ".join([measured, *versions])


def of_conditions(conditions: Mapping[str, Any]) -> Optional[BoardThreshold]:
    """The threshold that a profile carries; None without one.

    Raises:
        InvalidValueError: it is not one, or a share is not above 0 and at most `MOST_SHARE`.
    """
    value = conditions.get(CONDITION)
    return None if value is None else _checked(value, f"the condition {CONDITION}")


def path_of(folder: Path, device: str, board_instance: Optional[str]) -> Path:
    """Where the threshold of a device is stored, below the folder of the suite's state."""
    name = f"{device}@{board_instance}" if board_instance else device
    return folder / "thresholds" / f"{name.replace('/', '-')}.json"


def read(path: Path) -> Optional[BoardThreshold]:
    """The stored threshold; None without a file.

    Raises:
        InvalidValueError: the file cannot be read, or has another form.
    """
    try:
        value = msgspec.json.decode(read_bounded(path, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.DecodeError) as error:  # no ValueError in the release for Python 3.8
        raise InvalidValueError(f"the board's threshold {path} cannot be read: {error}", _HINT) from error
    return _checked(value, str(path))


def write(path: Path, threshold: BoardThreshold) -> None:
    write_durably(path, msgspec.json.format(msgspec.json.encode(threshold), indent=1) + b"\n")


_HINT = "remove the file, or measure it again: jetwatt doctor --accept=again"


def _checked(value: Any, place: str) -> BoardThreshold:
    try:
        threshold = msgspec.convert(value, BoardThreshold)
    except msgspec.ValidationError as error:
        raise InvalidValueError(f"{place} is no threshold of a board: {error}", _HINT) from error
    for column, share in threshold.shares.items():
        if not 0 < share <= MOST_SHARE:
            what = f"{place}: the threshold of {column} is {share:g}, expected above 0 and at most {MOST_SHARE:g}"
            raise InvalidValueError(what, _HINT)
    return threshold
