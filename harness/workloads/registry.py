"""The workloads by name: the papers', some of today, and a user's own from a module or an installed package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from harness.core.cases import LOGGING, QUIET
from harness.core.entry_points import EntryPoint, entry_points
from harness.core.errors import CannotRunError, HarnessError, InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint
from harness.workloads import classification, language_models, yolov8n_coco
from harness.workloads.failures import own_code_failed
from harness.workloads.workload import Workload

WORKLOADS: Dict[str, Workload] = {
    item.name: item
    for module in (classification, yolov8n_coco, language_models)
    for item in vars(module).values()
    if isinstance(item, Workload)
}
"""Every workload that one of these modules defines."""

ENTRY_POINTS = "jetwatt.workloads"  # the group of entry points by which a package brings workloads

_RESERVED = (LOGGING, QUIET, "all")
_own: Dict[str, Workload] = {}  # users' workloads that were loaded in this process, by their names


def get_workload(given: Union[str, Workload]) -> Workload:
    """A workload by its name; a user's by `module:NAME`, by its entry point, or by its own name once it was loaded.

    A `Workload` is returned as it is, and known by its name from then on; it takes the place of an earlier one of that
    name, as after a change in a notebook.
    """
    if isinstance(given, Workload):
        _refuse_taken(given, "a Workload", may_replace=True)
        _own[given.name] = given
        return given
    registered = WORKLOADS.get(given) or _own.get(given)
    if registered is not None:
        return registered
    workload = _from_module(given) if ":" in given else _from_entry_point(given)
    if workload is None:
        names = dict.fromkeys([*WORKLOADS, *_own, *(point.name for point in _entry_points())])
        raise UnknownNameError(
            f"workload {given!r} is unknown",
            f"{available_hint(given, names)}; your own is module:NAME, such as my_model:WORKLOAD",
        )
    if not isinstance(workload, Workload):
        raise InvalidValueError(
            f"{given} is a {type(workload).__name__}, expected a Workload", "NAME = Workload(...), from jetwatt"
        )
    _refuse_taken(workload, given)
    _own[workload.name] = workload
    return workload


def _refuse_taken(workload: Workload, text: str, may_replace: bool = False) -> None:
    """Refuse a name that is reserved or that of another workload; `may_replace` allows that of a user's own."""
    other = WORKLOADS.get(workload.name) or (None if may_replace else _own.get(workload.name))
    if workload.name in _RESERVED or (other is not None and other is not workload):
        whose = "reserved" if other is None else "that of another workload"
        raise InvalidValueError(f"the name {workload.name!r} of {text} is {whose}", "give it another name")


def _from_module(text: str) -> Any:
    module_name, _, attribute = text.partition(":")
    module = _imported(module_name, text)
    target = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            names = [name for name, value in vars(module).items() if isinstance(value, Workload)]
            raise UnknownNameError(f"{module_name} has no {attribute!r}", f"workloads there: {', '.join(names) or '-'}")
        target = getattr(target, part)
    return target


def _imported(name: str, text: str) -> Any:
    """The module, from the current folder or from what is installed.

    After an import the folder stays on the path, as its last: so spawned DataLoader workers, and functions that import
    when they are called, find the module again.
    """
    try:
        folder, path = str(Path.cwd()), list(sys.path)
    except FileNotFoundError as error:
        raise CannotRunError(
            f"workload {text}: the working directory, in which its module is searched for, was deleted",
            "change to the directory of the module: cd DIR",
        ) from error
    sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the file may be younger than what was read of the folder
    try:
        module = importlib.import_module(name)
        path += [] if folder in path else [folder]
        return module
    except HarnessError as error:
        raise type(error)(f"{text}: {error.what}", error.hint) from error
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            stem, dot, suffix = name.rpartition(".")
            hint = f"start in the folder that holds {missing.partition('.')[0]}.py"
            if dot and suffix == "py":
                hint = f"write {stem}:{text.partition(':')[2]}, without .py"
            raise UnknownNameError(
                f"workload {text}: there is no module {missing!r} in {Path.cwd()}, and none is installed",
                f"workload= takes module:NAME; {hint}",
            ) from error
        hint = f"install {missing}" if missing else ""
        raise own_code_failed(f"workload {text}: importing {name}", error, hint) from error
    finally:
        sys.path[:] = path


def _from_entry_point(name: str) -> Optional[Any]:
    points = [point for point in _entry_points() if point.name == name]
    if not points:
        return None
    if len({point.value for point in points}) > 1:
        places = " and ".join(sorted(point.value for point in points))
        raise InvalidValueError(f"workload {name!r} is declared twice: {places}", "name one of them: module:NAME")
    try:
        return points[0].load()
    except HarnessError:
        raise
    except (Exception, SystemExit) as error:
        raise own_code_failed(f"workload {name}: importing {points[0].value}", error) from error


def _entry_points() -> List[EntryPoint]:
    return entry_points(ENTRY_POINTS)
