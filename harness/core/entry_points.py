"""Entry points of installed packages, by group, each with the package that declares it.

A package whose `entry_points.txt` cannot be read is left out with a warning.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any, Dict, List, NamedTuple, Set, Tuple


class EntryPoint(NamedTuple):
    name: str
    value: str  # where it is: `package.module:ATTRIBUTE`
    package: str  # name and version of the distribution that declares it
    declared: Any  # the `importlib.metadata.EntryPoint`

    def load(self) -> Any:
        """The object; whatever importing its module raises."""
        return self.declared.load()


def entry_points(group: str) -> List[EntryPoint]:
    """The entry points of a group, each once, by name; nothing is imported.

    Goes through distributions one by one: before Python 3.10 an entry point does not name its own.
    """
    points: Dict[Tuple[str, str], EntryPoint] = {}
    for distribution in importlib.metadata.distributions():
        for point in _declared_by(distribution):
            if point.group == group:
                package = _package(distribution)
                points.setdefault((point.name, point.value), EntryPoint(point.name, point.value, package, point))
    return [points[key] for key in sorted(points)]


def _package(distribution: Any) -> str:
    return f"{distribution.metadata['Name']} {distribution.version}"


def _declared_by(distribution: Any) -> List[Any]:
    """The entry points of a distribution; none, with a warning once per process, if its file is malformed."""
    try:
        return list(distribution.entry_points)
    except Exception as error:  # the parser of each Python version raises other classes
        package = _package(distribution)
        if package not in _MALFORMED:
            _MALFORMED.add(package)
            warnings.warn(
                f"left out: the entry points of package {package}: its entry_points.txt in"
                f" {distribution.locate_file('')} cannot be read: {type(error).__name__}: {error};"
                " reinstall or uninstall that package",
                stacklevel=2,
            )
        return []


_MALFORMED: Set[str] = set()
