"""The folder of the virtual environment: whether it can be gone on with, and the stamp that tells at once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Optional

from harness.core.errors import HarnessError
from harness.install.plan import Request, environment_python

STAMP = "jetwatt-installation.json"

INPUTS = ("pyproject.toml", "constraints.txt", "constraints-board.txt")
"""Files of the project that decide what is installed."""

_CUT_OFF, _INCOMPLETE = "cut off", "incomplete"

# Which Python an environment is made of, if it starts at all and has pip.
_PROBE = "import os, pip, sys; print(os.path.realpath(sys.executable))"


def installation_key(request: Request, on_board: bool) -> str:
    """A hash of everything that decides what is installed; an environment with this key in its stamp is up to date."""
    digest = hashlib.sha256()
    for name in INPUTS:
        digest.update((request.project / name).read_bytes())
    digest.update(json.dumps([sorted(request.extras), request.python, request.version, on_board]).encode())
    return digest.hexdigest()


def is_up_to_date(environment: Path, key: str) -> bool:
    """Whether nothing has to be done, from the stamp alone."""
    return _read_stamp(environment) == _stamp(environment, key) and environment_python(environment).exists()


def begin(environment: Path, remove: bool) -> None:
    """Make the folder, and note that an installation has begun in it: one that is killed leaves this note behind.

    Args:
        environment: the folder.
        remove: whether to delete what is there first.

    Raises:
        HarnessError: the folder cannot be written or deleted.
    """
    try:
        if remove:
            shutil.rmtree(str(environment))
        environment.mkdir(parents=True, exist_ok=True)
        (environment / ".gitignore").write_text("*\n")
        _write_stamp(environment, _CUT_OFF)
    except OSError as error:
        raise HarnessError(
            f"{environment} cannot be written: {error}", "make it writable, or name another folder: VENV=FOLDER"
        ) from error


def mark_failed(environment: Path) -> None:
    """Note that a command ended with an error: pip leaves things in order then, and the next run goes on from there."""
    _write_stamp(environment, _INCOMPLETE)


def mark_done(environment: Path, key: str) -> None:
    """Note that the installation with this key is complete."""
    _write_stamp(environment, key)


def reason_to_remake(request: Request, on_board: bool) -> Optional[str]:
    """Why the environment that is there cannot be gone on with; None where it can, or where there is none.

    Raises:
        HarnessError: something is there that this installation may not delete.
    """
    environment = request.environment
    if is_absent(environment):
        return None
    stamp = _read_stamp(environment)
    if stamp is None and not (environment / "pyvenv.cfg").is_file():
        raise HarnessError(
            f"{environment} is there and is no virtual environment",
            "move it away, or name another folder: VENV=FOLDER",
        )
    reason = _reason_of_stamp(environment, stamp) or _reason_of_python(request, on_board)
    if reason is not None and stamp is None and request.project not in environment.parents:
        # Somebody's own environment: only a folder of the clone, or one that was made here, may be deleted.
        raise HarnessError(
            f"{environment} was not made by this installation and cannot be gone on with: {reason}",
            "remove it, or name another folder: VENV=FOLDER",
        )
    return reason


def is_absent(environment: Path) -> bool:
    """Whether there is nothing at the environment's place, or an empty folder."""
    return not environment.exists() or (environment.is_dir() and not any(environment.iterdir()))


def _reason_of_stamp(environment: Path, stamp: Optional[dict]) -> Optional[str]:
    if stamp is None:
        return None
    if stamp.get("key") == _CUT_OFF or not (environment / "pyvenv.cfg").is_file():
        return "an installation was cut off in it"
    if stamp.get("environment") != str(environment):
        return f"it was made as {stamp.get('environment')} and its scripts point there"
    return None


def _reason_of_python(request: Request, on_board: bool) -> Optional[str]:
    environment = request.environment
    if on_board and "include-system-site-packages = true" not in (environment / "pyvenv.cfg").read_text():
        return "it does not see the system's packages, and on a board torch is one of them"
    try:
        probe = subprocess.run([str(environment_python(environment)), "-c", _PROBE], capture_output=True, text=True)
    except OSError as error:
        return f"its Python cannot be started ({error})"
    if probe.returncode != 0:
        return f"its Python or its pip does not work ({probe.stderr.strip().rpartition(chr(10))[2]})"
    made_of = probe.stdout.strip()
    return None if made_of == request.python else f"it is made of {made_of}, and {request.python} is asked for"


def holds_torch(environment: Path) -> bool:
    """Whether a torch or torchvision lies in the environment itself."""
    return any(environment.glob("lib/python*/site-packages/torch*"))


def size_bytes(environment: Path) -> int:
    """Disk space that the folder takes; 0 where there is none."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(str(environment)) for name in names)
    return sum(os.lstat(file).st_blocks * 512 for file in files)


def _stamp(environment: Path, key: str) -> dict:
    return {"environment": str(environment), "key": key}


def _read_stamp(environment: Path) -> Optional[dict]:
    try:
        stamp = json.loads((environment / STAMP).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return _stamp(environment, _CUT_OFF)
    return stamp if isinstance(stamp, dict) else _stamp(environment, _CUT_OFF)


def _write_stamp(environment: Path, key: str) -> None:
    (environment / STAMP).write_text(json.dumps(_stamp(environment, key)) + "\n")
