"""Packages that only training needs: imported where they are used, with an error that says how to get them."""

from __future__ import annotations

import importlib
from typing import Any

from harness.core.errors import DependencyError


def require(module: str) -> Any:
    """Import a module of an optional package; `DependencyError` also where its binary parts do not load."""
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        raise DependencyError(
            f"{module} cannot be imported: {error}",
            "run `make install`; on a Jetson board use the torch and torchvision made for its JetPack",
        ) from error
