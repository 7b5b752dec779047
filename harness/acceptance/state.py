"""The state of an acceptance test on disk: finished lines, measured parts, and the board as it was before.

It is written after each line and before a power cut is requested, so that the next `doctor --accept` goes on there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

import msgspec

import harness
from harness.acceptance.lines import LineResult
from harness.board.saved_state import default_state_dir
from harness.core.errors import ControlError, InvalidValueError
from harness.core.files import read_bounded, write_durably
from harness.core.profiles import wall_clock

FORMAT = 1
_MOST_BYTES = 16 << 20


class AcceptanceRecord(msgspec.Struct):
    """The content of the state file."""

    device: str
    scale: float  # of all times; 1 unless it is a rehearsal
    started_at: str  # ISO 8601
    format: int = FORMAT
    jetwatt: str = harness.__version__
    before: Optional[Dict[str, Any]] = None  # the snapshot of the board before the first line
    results: Dict[str, LineResult] = {}
    parts: Dict[str, Any] = {}  # what unfinished lines measured so far, by a name of their own


class AcceptanceState:
    """The record of one device's acceptance test, and where it is stored."""

    def __init__(self, path: Path, record: AcceptanceRecord) -> None:
        self.path, self.record = path, record

    def save(self) -> None:
        try:
            write_durably(self.path, msgspec.json.encode(self.record))
        except OSError as error:
            raise ControlError(
                f"the state of the acceptance test cannot be stored in {self.path}: {error.strerror}",
                "free space there, or set XDG_STATE_HOME to a directory that can be written",
            ) from error

    def store(self, result: LineResult) -> None:
        self.record.results[result.name] = result
        self.save()

    def store_part(self, name: str, value: Any) -> None:
        self.record.parts[name] = value
        self.save()

    def remove_part(self, name: str) -> None:
        if self.record.parts.pop(name, None) is not None:
            self.save()


def state_path(lock: str, scale: float) -> Path:
    """A rehearsal has a file of its own, so that its figures never mix with those of the real test."""
    name = lock if scale == 1.0 else f"{lock}-rehearsal"
    return default_state_dir() / "acceptance" / f"{name}.json"


def open_state(device: str, lock: str, scale: float, start_over: bool = False) -> AcceptanceState:
    """The state that an earlier call left, or a new one.

    Args:
        device: the name of the device.
        lock: the name of its lock; each tree of files has its own.
        scale: of all times.
        start_over: ignore what is stored.

    Raises:
        InvalidValueError: the file is damaged or of another version.
    """
    path = state_path(lock, scale)
    if not start_over and path.exists():
        record = _read(path)
        if record.scale == scale:
            return AcceptanceState(path, record)
    return AcceptanceState(path, AcceptanceRecord(device, scale, wall_clock()))


def _read(path: Path) -> AcceptanceRecord:
    hint = "start over: jetwatt doctor --accept=again"
    try:
        record = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=AcceptanceRecord)
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"the state of the acceptance test {path} cannot be read: {error}", hint) from error
    if (record.format, record.jetwatt) != (FORMAT, harness.__version__):
        what = f"{path} is of jetwatt {record.jetwatt} and this is {harness.__version__}"
        raise InvalidValueError(what, hint)
    return record
