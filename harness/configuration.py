"""Where things lie on this machine: storage media and data sets, from `jetwatt.toml` and the command line."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from harness.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.toml_files import read_toml

FILE_NAME = "jetwatt.toml"
DEFAULT_STORAGE = "ssd"
SECOND_STORAGE = "disk"
"""A second medium that every machine has, so that a small campaign can compare two."""
DEFAULT_DATA_DIRECTORY = Path("out") / "data"
DEFAULT_RESULTS = Path("out") / "results.sqlite"


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Places, by name.

    Attributes:
        storage: storage name to a directory on that medium. `ssd`, the papers' default, is the working directory's
            medium where nothing else is said, and `disk` that of the temporary directory.
        data_root: where real data sets lie, if anywhere.
    """

    storage: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    data_root: Optional[Path] = None

    def data_directory(self, storage: str) -> Path:
        """The directory for data sets on a storage medium.

        Raises:
            CannotRunError: no place is known for that name.
        """
        if storage in self.storage:
            if not self.storage[storage].is_dir():
                raise CannotRunError(
                    f"storage {storage!r} is {self.storage[storage]}, which is not a directory now", "mount it"
                )
            return self.storage[storage] / "jetwatt-data"
        if storage == DEFAULT_STORAGE:
            return DEFAULT_DATA_DIRECTORY
        if storage == SECOND_STORAGE:
            return Path(tempfile.gettempdir()) / "jetwatt-data"
        raise CannotRunError(
            f"storage {storage!r} has no place on this machine",
            f'--storage {storage}=/mount/point, or [storage] {storage} = "/mount/point" in {FILE_NAME}; '
            "`python -m harness doctor` proposes what it finds",
        )

    def is_default_place(self, storage: str) -> bool:
        """Whether a storage name stands for a directory only because nothing else was said."""
        return storage in (DEFAULT_STORAGE, SECOND_STORAGE) and storage not in self.storage


def load_configuration(
    path: Path, storage: Optional[Mapping[str, str]] = None, data_root: Optional[str] = None
) -> Configuration:
    """Read `jetwatt.toml` where there is one; what is given on the command line goes first.

    Args:
        path: the file; it need not exist.
        storage: storage name to mount point, from `--storage NAME=PATH`.
        data_root: from `--data-root`.

    Raises:
        InvalidValueError, UnknownNameError: the file holds something else than places, or a place is not a directory.
    """
    content = read_toml(path) if path.exists() else {}
    unknown = sorted(set(content) - {"storage", "data_root"})
    if unknown:
        raise UnknownNameError(f"{path}: key {unknown[0]!r} is unknown", "known: data_root, storage")
    places: Dict[str, Any] = content.get("storage", {})
    if not isinstance(places, dict):
        raise InvalidValueError(f'{path}: storage must be a table of NAME = "/mount/point", got {places!r}')
    places = {**places, **(storage or {})}
    root = data_root if data_root is not None else content.get("data_root")
    for name, place in (storage or {}).items():
        _refuse_missing(f"storage {name}", place)
    if data_root is not None:
        _refuse_missing("data root", data_root)
    return Configuration(
        storage={name: _path(f"{path}: storage {name}", place) for name, place in places.items()},
        data_root=None if root is None else _path(f"{path}: data_root", root),
    )


def _refuse_missing(what: str, place: str) -> None:
    """What was typed just now must be there; what stands in a file may be a medium that is not mounted today."""
    if not Path(place).expanduser().is_dir():
        raise InvalidValueError(f"{what} is {place!r}, which is not a directory", "create it or mount the medium first")


def _path(what: str, place: Any) -> Path:
    if not isinstance(place, str):
        raise InvalidValueError(f"{what} must be a path in quotes, got {place!r}")
    return Path(place).expanduser()
