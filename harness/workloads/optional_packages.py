"""Packages that only training needs: imported where they are used, with an error that says how to get them."""

from __future__ import annotations

import importlib
import re
from typing import Any

from harness.core.errors import DependencyError


def require(module: str) -> Any:
    """Import a module of an optional package; `DependencyError` also where its binary parts do not load."""
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        what = f"{module} cannot be imported: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            what = f"{error.name} is not installed"
        raise DependencyError(what, _hint(error)) from error


def _hint(error: Exception) -> str:
    library = re.search(r"\blib[\w+.-]*\.so[.\d]*", str(error))
    if library is None:
        return "run `make install`; on a Jetson board use the torch and torchvision made for its JetPack"
    return (
        f"the package is installed, but the system library {library[0]} is missing or of another version: install it, "
        "then `sudo ldconfig`; docs/install.md names the libraries that NVIDIA's torch needs on a Jetson board"
    )
