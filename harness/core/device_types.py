"""Kinds of devices, and those that installed packages bring by entry points of the group `jetwatt.devices`.

A package that cannot be loaded, or that uses a name of the suite's, is left out with a warning, so that runs on other
devices continue. Only a run that names its device gets the error.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from pathlib import Path
from typing import Callable, Dict, List, Optional, Set

from harness.core.configuration import Configuration
from harness.core.device import Device
from harness.core.entry_points import EntryPoint, entry_points
from harness.core.errors import DependencyError, HarnessError, InvalidValueError

ENTRY_POINTS = "jetwatt.devices"
BOARDS_FOLDER = Path(__file__).parent / "boards"  # the suite's own facts of boards

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_RESERVED = ("host", "jetson")
EMULATED = "emulated-"  # prefix of a board that is a tree of files, so that its figures never look like a real board's
_RESERVED_BEGINNINGS = ("nvidia-", EMULATED)  # "nvidia-" is what GPUs call themselves

Opener = Callable[[Configuration, Path, bool], Device]


@dataclasses.dataclass(frozen=True)
class DeviceType:
    """A kind of device, by the name of its entry point: `my-board = "my_package.boards:MY_BOARD"`.

    Attributes:
        device: Opens one, a class such as a subclass of `HostDevice`: called with the configuration, the root below
            which `/sys` and `/proc` are, and whether that is a tree of files instead of this machine. It touches
            nothing before its `session()` is entered; its `name` is the entry point's. None for a Jetson module: its
            facts suffice, the suite's own class opens it.
        is_here: Whether the machine at a root is such a device: it is then the default of `--device` there. None for a
            device that is opened wherever it is named.
        facts: A TOML file like those in `harness/core/boards/`: what can be planned without the device. None for none.
    """

    device: Optional[Opener] = None
    is_here: Optional[Callable[[Path], bool]] = None
    facts: Optional[Path] = None

    def __post_init__(self) -> None:
        if self.device is None and self.facts is None:
            raise InvalidValueError(
                "a DeviceType has neither a device nor facts", "give device=CLASS, facts=PATH or both"
            )


@functools.lru_cache(maxsize=None)
def declared_devices() -> Dict[str, List[EntryPoint]]:
    """The entry points of `jetwatt.devices` by name; nothing is imported."""
    declared: Dict[str, List[EntryPoint]] = {}
    for point in entry_points(ENTRY_POINTS):
        declared.setdefault(point.name, []).append(point)
    return declared


def is_brought(name: str) -> bool:
    """Whether a package brings a device of that name, loadable or not; the suite's own names are never brought."""
    return name in declared_devices() and not _fault_of_name(name)


def package_of(name: str) -> str:
    """The package, or packages, that declare a device, with versions."""
    return " and ".join(sorted({point.package for point in declared_devices()[name]}))


def _fault_of_name(name: str) -> str:
    if name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS) or (BOARDS_FOLDER / f"{name}.toml").is_file():
        return "that name is the suite's own"
    return "" if _NAME.fullmatch(name) else "a name has small letters, digits, '.', '_' and '-'"


def brought_type(name: str) -> DeviceType:
    """The device type that a package brings under a name; an error names the package where it cannot be loaded."""
    fault, package = _fault_of_name(name), package_of(name)
    if fault:
        raise InvalidValueError(f"device {name!r} of package {package}: {fault}", "rename its entry point")
    point, *others = declared_devices()[name]
    if others:
        places = " and ".join(each.value for each in (point, *others))
        raise InvalidValueError(f"device {name!r} is declared by {package}: {places}", "uninstall one of them")
    try:
        kind = point.load()
    except (Exception, SystemExit) as error:
        raise DependencyError(
            f"device {name!r} of package {package} cannot be loaded: {point.value}: {type(error).__name__}: {error}",
            "fix or uninstall that package",
        ) from error
    if not isinstance(kind, DeviceType):
        what = f"device {name!r} of package {package}: {point.value} is a {type(kind).__name__}, expected a DeviceType"
        raise InvalidValueError(what, "NAME = DeviceType(...), from jetwatt")
    return kind


def brought_types() -> Dict[str, DeviceType]:
    """The device types of all packages, by name; of one that cannot be loaded a warning says why."""
    kinds = {}
    for name in declared_devices():
        try:
            kinds[name] = brought_type(name)
        except HarnessError as error:
            warn_of(error)
    return kinds


def warn_of(error: HarnessError) -> None:
    """Warn about a package that is left out, once per process."""
    if str(error) not in _SAID:
        _SAID.add(str(error))
        warnings.warn(f"left out: {error}", stacklevel=3)


_SAID: Set[str] = set()
