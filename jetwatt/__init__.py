"""The public names of the suite, each imported when it is first used; docs/api.md shows them at work."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, List

# The stub tells type checkers, and here, which module has each public name: one list, as lazy_loader does it for
# relative imports.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULES = {name: module for module, name in re.findall(r"from ([\w.]+) import (\w+) as \2", _STUB)}

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it (PEP 562)."""
    if name == "__version__":
        return importlib.import_module("harness").__version__
    if name not in _MODULES:
        raise AttributeError(f"module 'jetwatt' has no attribute {name!r}; it has {', '.join(sorted(_MODULES))}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> List[str]:
    return sorted(__all__)
