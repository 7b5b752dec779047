"""The state of a device before a run: saved to disk before the first change, and restored in any case.

save all knobs --- set --- set --- ... --- put back in reverse order --- remove the file
                |_______________________|
                   killed here: `jetwatt restore` restores what the file contains
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import stat
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import msgspec

from harness.board.knob import Knob, KnobSpec, Value, open_knob
from harness.board.lock import ending_signals_interrupt, interrupt_kept, locked, signals_wait
from harness.core.device_types import EMULATED
from harness.core.errors import ControlError
from harness.core.files import remove_durably, write_durably

FORMAT = 2
"""Version of the saved file: {format, device, root, pid, saved_at, knobs: [{module, options, value}, ...]}."""

RESTORE_COMMAND = "jetwatt restore"


def default_state_dir() -> Path:
    """`$XDG_STATE_HOME/jetwatt`, or `~/.local/state/jetwatt`; ControlError if neither variable is set."""
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "jetwatt"
    try:
        return Path.home() / ".local/state/jetwatt"
    except (RuntimeError, KeyError) as error:  # Python 3.8 raises the second
        what = f"there is no place for the state of a device: HOME is not set, and user {os.getuid()} has no home"
        raise ControlError(what, "set XDG_STATE_HOME to a directory that can be written") from error


@contextlib.contextmanager
def preserved(knobs: Sequence[Knob], device: str, *, root: str = "/") -> Iterator[None]:
    """Save knobs before the block, and restore them at its end, on an exception, on Ctrl-C, SIGTERM or SIGHUP.

    They are in the order in which the block sets them, opened with `root`; the caller holds the lock of `device`.
    """
    path = _path(device)
    if path.exists():
        raise ControlError(f"a run on {device} was killed before it could put back what it changed", RESTORE_COMMAND)
    before = [(knob, knob.read()) for knob in knobs]
    owner = os.getpid()
    with ending_signals_interrupt():
        try:
            _save(path, device, root, before)
            with interrupt_kept():
                yield
        finally:
            # A worker that was forked in the block and unwinds its stack must not put back what its parent still needs.
            if os.getpid() == owner:
                with signals_wait():
                    _put_back(before, device)
                    if path.exists():
                        remove_durably(path)


def left_behind() -> List[str]:
    return sorted(path.stem for path in default_state_dir().glob("*.json"))


def left_behind_of(device: str) -> List[str]:
    """Of the devices with a saved state, the one of that name, or those that it begins: boards emulated in a folder."""
    left = left_behind()
    beginnings = f"{device}-", f"{EMULATED}{device}-"
    return [device] if device in left else [name for name in left if name.startswith(beginnings)]


def saved_root(device: str) -> str:
    """The root of the files that a saved state puts back; empty if it cannot be read, or is gone."""
    try:
        return msgspec.json.decode(_content(_path(device)), type=_Root).root
    except (OSError, ValueError, ControlError):
        return ""


def restore(device: str) -> List[str]:
    """Restore what a killed run saved, and return the names of the knobs; none if nothing is saved."""
    path = _path(device)
    with locked(device), signals_wait():
        if not path.exists():
            return []
        knobs = _load(path, device)
        _put_back(knobs, device, was_killed=True)
        remove_durably(path)
        return [knob.name for knob, _ in knobs]


def _path(device: str) -> Path:
    return default_state_dir() / f"{device}.json"


def _save(path: Path, device: str, root: str, before: Sequence[Tuple[Knob, Value]]) -> None:
    entries = [
        {"module": knob.spec.name, "options": knob.spec.options, "value": value}
        for knob, value in before
        if knob.outlives_process
    ]
    if not entries:
        return
    state = {
        "format": FORMAT,
        "device": device,
        "root": os.path.abspath(root),
        "pid": os.getpid(),
        "saved_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "knobs": entries,
    }
    try:
        write_durably(path, json.dumps(state, indent=1).encode())
    except OSError as error:
        raise ControlError(
            f"the state of {device} cannot be saved in {path}: {error.strerror}; nothing was changed",
            "free space there, or set XDG_STATE_HOME to a directory that can be written",
        ) from error


class _Entry(msgspec.Struct):
    module: str
    options: Dict[str, Union[str, float, None]]
    value: Any


class _Root(msgspec.Struct):
    root: str


class _State(msgspec.Struct):
    device: str
    root: str
    knobs: List[_Entry]


def _content(path: Path) -> bytes:
    """The bytes of a saved state, if it is a file that only root and this user can have written."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        owner, writable = status.st_uid, status.st_mode & stat.S_IWOTH
        if not stat.S_ISREG(status.st_mode) or writable or owner not in (0, os.geteuid()):
            raise ControlError(
                f"the saved state {path} is not believed: user {owner} owns it, and every user "
                f"{'may' if writable else 'may not'} write it",
                "restore as the user whose run it was",
            )
        return file.read(1 << 20)  # a board with 16 CPUs has 10,000 bytes


def _load(path: Path, device: str) -> List[Tuple[Knob, Value]]:
    """The knobs of a file, opened, with their saved settings; refuses what no run on this device can have saved."""
    try:
        content = json.loads(_content(path))
        if content["format"] != FORMAT:
            what = f"the saved state {path} has format {content['format']}, not {FORMAT}"
            raise ControlError(what, "restore with the version that saved it")
        state = msgspec.convert(content, _State)
        if state.device != device:
            raise ValueError(f"it is of {state.device!r}")
        knobs = [(open_knob(KnobSpec(one.module, one.options), state.root), one.value) for one in state.knobs]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, msgspec.ValidationError) as error:
        what = f"the saved state {path} cannot be read: {error!r}"
        raise ControlError(what, "put the device back by hand, remove it") from error
    for knob, value in knobs:
        knob.check(value)
    return knobs


def _put_back(before: Sequence[Tuple[Knob, Value]], device: str, *, was_killed: bool = False) -> None:
    """Restore knobs in reverse order, except those that are correct; last, remove the files that they created."""
    refusals: Dict[str, Optional[ControlError]] = {}
    for first_round in (True, False):  # putting one back may move another (an nvpmodel mode sets clock limits)
        for knob, value in reversed(before):
            suspect = was_killed and first_round and knob.sets_in_steps  # whatever it reads
            if suspect or _refusal(knob.verify, value):
                refusals[knob.name] = _refusal(knob.restore, value)
    verified = [(knob, _refusal(knob.verify, value)) for knob, value in before]
    wrong = [str(refusals.get(knob.name) or error) for knob, error in verified if error]
    hint = f"mend the cause, then {RESTORE_COMMAND}"
    if wrong:
        raise ControlError(f"{device} is not as it was before: {'; '.join(wrong)}", hint)
    left = [str(error) for error in (_refusal(knob.forget, value) for knob, value in reversed(before)) if error]
    if left:
        raise ControlError(f"{device} is set as it was before, and this is left over: {'; '.join(left)}", hint)


def _refusal(act: Callable[[Value], None], value: Value) -> Optional[ControlError]:
    try:
        act(value)
    except ControlError as error:
        return error
    return None
