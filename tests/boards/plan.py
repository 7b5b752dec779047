"""What a tree is made of before it is written: texts, links, and which files follow a rule or show a reading."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List

Rule = Dict[str, Any]
"""A control file's rule as plain values: its `kind`, and what that kind needs to know."""


@dataclasses.dataclass
class Plan:
    """The content of a tree; paths without a leading slash."""

    files: Dict[str, str] = dataclasses.field(default_factory=dict)  # path to text, without the last newline
    raw: Dict[str, bytes] = dataclasses.field(default_factory=dict)  # path to bytes (device tree, confs)
    links: Dict[str, str] = dataclasses.field(default_factory=dict)  # to what it links to, below the root too
    controls: Dict[str, Rule] = dataclasses.field(default_factory=dict)  # each file that can be written
    places: Dict[str, List[Any]] = dataclasses.field(default_factory=dict)  # where readings find their files

    def control(self, path: str, text: object, kind: str, **known: Any) -> None:
        """A file that can be written, by a rule."""
        self.files[path] = str(text)
        self.controls[path] = {"kind": kind, **known}

    def show(self, path: str, text: object = "0") -> str:
        """A file that cannot; returns its path."""
        self.files[path] = str(text)
        return path
