"""Containers: whether there is an engine, and the command that runs the suite's cases inside one (F17)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import List, Optional, Sequence

ENGINES = ("docker", "podman", "nerdctl")
"""In the order in which they are looked for; all three take the same options here."""


def find_engine(path: Optional[str] = None) -> Optional[str]:
    """The first container engine on the `PATH`, as it is called there; None where there is none."""
    return next((found for engine in ENGINES for found in [shutil.which(engine, path=path)] if found), None)


def container_command(
    engine: str, image: str, folders: Sequence[Path], directory: Path, command: Sequence[str], gpus: bool = False
) -> List[str]:
    """The command that runs another one in a container that sees some folders where they are."""
    mounts = [word for folder in dict.fromkeys(map(str, folders)) for word in ("--volume", f"{folder}:{folder}")]
    accelerator = ["--gpus", "all"] if gpus else []
    return [
        engine,
        "run",
        "--rm",
        "--network",
        "none",
        *accelerator,
        *mounts,
        "--workdir",
        str(directory),
        image,
        *command,
    ]
