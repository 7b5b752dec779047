"""Settings of this machine: storage media, data sets, its name; from `jetwatt.toml` and the command line."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from pathlib import Path
from typing import Dict, Mapping, Optional

import msgspec

from harness.core.capability import Capability
from harness.core.cases import parse_storage
from harness.core.environment import board_instance
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.files import is_shared, read_toml, typed

FILE_NAME = "jetwatt.toml"
DEFAULT_STORAGE = "ssd"
ASKED, REQUIRED, NOT_FRESH = "asked", "required", "not-fresh"
SECOND_STORAGE = "disk"  # a second medium that every machine has, so that a small campaign can compare two
DEFAULT_DATA_DIRECTORY = Path("out") / "data"
DEFAULT_RESULTS = Path("out") / "results.sqlite"

_NAME = re.compile(r"[\w.-]{1,40}", re.ASCII)


class Places(msgspec.Struct, forbid_unknown_fields=True):
    """Contents of `jetwatt.toml`."""

    storage: Dict[str, str] = {}  # a table: name of a medium to a folder on it, such as `ssd = "/media/ssd"`
    data_root: Optional[str] = None  # folder of real data sets
    board_instance: Optional[str] = None  # name of this board among several of its type, such as `"orin3"`
    hold_thor_clocks: bool = False  # as `--hold-thor-clocks`


@dataclasses.dataclass(frozen=True)
class Configuration:
    # medium to a directory on it; by default `ssd`, the papers' default, is the medium of the working directory and
    # `disk` that of the temporary directory
    storage: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    data_root: Optional[Path] = None  # folder of real data sets
    board_instance: Optional[str] = None  # name of this board among several, if its owner gave it one
    default_storage: str = DEFAULT_STORAGE  # name of the medium of the working directory
    # treatment of a board that was not booted recently: `asked` adds a remark, `required` refuses, empty ignores it
    fresh_boot: str = ""
    hold_thor_clocks: bool = False  # whether GPU and memory clocks of a Thor are set, not only read

    def data_directory(self, storage: str) -> Path:
        """The directory for data sets on a storage; one per user if every user may create files there."""
        medium, place = parse_storage(storage).medium, self.place(storage)
        if place is not None:
            if not place.is_dir():
                raise CannotRunError(f"storage {medium!r} is {place}, which is not a directory now", "mount it")
        elif medium == self.default_storage:
            return DEFAULT_DATA_DIRECTORY
        elif medium == SECOND_STORAGE:
            place = Path(tempfile.gettempdir())
        else:
            raise CannotRunError(
                f"storage {medium!r} has no place on this machine",
                f'--storage {medium}=/mount/point, or [storage] {medium} = "/mount/point" in {FILE_NAME}; '
                "`jetwatt doctor` lists places",
            )
        return place / (f"jetwatt-data-{os.getuid()}" if is_shared(place) else "jetwatt-data")

    def place(self, storage: str) -> Optional[Path]:
        return self.storage.get(parse_storage(storage).medium)

    def instance(self, root: Path) -> Optional[str]:
        """The instance name of the machine below `root`: the configured one, or a hash of its serial number or id."""
        return self.board_instance or board_instance(root)

    def knows_instance(self, root: Path) -> Capability:
        name = "tell it from others of its type"
        instance = self.instance(root)
        if instance is None:
            return Capability(name, False, "no serial number, no machine id", f'board_instance = "NAME" in {FILE_NAME}')
        return Capability(name, True, f"board instance {instance}")

    def is_default_place(self, storage: str) -> bool:
        """Whether the directory of a storage is a default and was not configured."""
        return parse_storage(storage).medium in (self.default_storage, SECOND_STORAGE) and self.place(storage) is None


def load_configuration(
    path: Path,
    storage: Optional[Mapping[str, str]] = None,
    data_root: Optional[str] = None,
    hold_thor_clocks: bool = False,
) -> Configuration:
    """Read `jetwatt.toml` if it exists; the other arguments, options of the command line, take precedence."""
    places_file = typed(read_toml(path), Places, str(path)) if path.exists() else Places()
    places = {**_by_medium(places_file.storage), **_by_medium(storage or {})}
    for name in places:
        _check_name(f"storage {name!r}", name, "ssd")
    root = data_root if data_root is not None else places_file.data_root
    given_now = {f"storage {name}": place for name, place in (storage or {}).items()}
    if data_root is not None:
        given_now["data root"] = data_root
    for what, place in given_now.items():  # a file may list media that are not mounted now
        if not Path(place).expanduser().is_dir():
            hint = "create it or mount the medium first"
            raise InvalidValueError(f"{what} is {place!r}, which is not a directory", hint)
    instance = places_file.board_instance
    if instance is not None:
        _check_name(f"board_instance of {path} is {instance!r}", instance, "orin3")
    return Configuration(
        storage={name: Path(place).expanduser() for name, place in places.items()},
        data_root=None if root is None else Path(root).expanduser(),
        board_instance=places_file.board_instance,
        hold_thor_clocks=hold_thor_clocks or places_file.hold_thor_clocks,
    )


def _check_name(what: str, name: str, example: str) -> None:
    if not _NAME.fullmatch(name):
        expected = "letters, digits, dots, dashes and underscores, at most 40"
        raise InvalidValueError(what, f"a name has {expected}: {example}")


def _by_medium(storage: Mapping[str, str]) -> Dict[str, str]:
    """Directories by medium; several names may share a medium: `ssd`, `ssd@20`."""
    directories: Dict[str, str] = {}
    for name, place in storage.items():
        medium = parse_storage(name).medium
        if directories.setdefault(medium, place) != place:
            both = f"{directories[medium]!r} and {place!r}"
            raise InvalidValueError(f"storage {medium} has two directories: {both}", "give one")
    return directories
