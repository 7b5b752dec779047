"""What a board knows beyond its files: rules, load, faults, refusals; shared by the processes that act on it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any, Dict, Iterator

FOLDER = ".emulator"
"""Below the root; nothing of a real board is there."""

_STATE, _LOCK = f"{FOLDER}/state.json", f"{FOLDER}/lock"


def read_state(root: str) -> Dict[str, Any]:
    """The state, to look at."""
    with open(os.path.join(root, _STATE)) as file:
        return json.load(file)


@contextlib.contextmanager
def changing_state(root: str) -> Iterator[Dict[str, Any]]:
    """The state, to change; others wait. It is on disk after the block, also when that ends with an error."""
    with open(os.path.join(root, _LOCK), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read_state(root)
        try:
            yield state
        finally:
            write_state(root, state)


def write_state(root: str, state: Dict[str, Any]) -> None:
    """Replace the state."""
    path = os.path.join(root, _STATE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w") as file:
        file.write(json.dumps(state))  # several times as fast as `dump`
    os.replace(beside, path)
