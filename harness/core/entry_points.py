"""Entry points of installed packages, by group, each with the package that declares it."""

from __future__ import annotations

import importlib.metadata
from typing import Any, List, NamedTuple


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
    points = {}
    for distribution in importlib.metadata.distributions():
        for point in distribution.entry_points:
            if point.group == group:
                package = f"{distribution.metadata['Name']} {distribution.version}"
                points.setdefault((point.name, point.value), EntryPoint(point.name, point.value, package, point))
    return [points[key] for key in sorted(points)]
