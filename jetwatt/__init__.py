"""The public names of the suite, each imported when it is first used; docs/api.md shows them at work."""

from __future__ import annotations

import importlib
from typing import Any, List

_MODULES = {
    "Goal": "predictors.strategies.goals",
    "HarnessError": "harness.core.errors",
    "PowerMode": "harness.core.power_modes",
    "PowerModeSpace": "harness.core.power_modes",
    "ResultsStore": "harness.store.results",
    "Workload": "harness.workloads.workload",
    "check_corpus": "harness.core.corpus",
    "fit": "jetwatt.fitting",
    "load": "jetwatt.fitting",
    "load_board": "harness.core.boards",
    "make_predictor": "predictors.models.base",
    "open_results": "jetwatt.results",
    "power_budget": "predictors.strategies.goals",
    "predictor_class": "predictors.models.base",
    "read_corpus": "harness.core.corpus",
    "recommend": "jetwatt.recommending",
    "tuning": "predictors.tuning",
    "write_corpus": "harness.core.corpus",
}
"""The module that has each public name; `__init__.pyi` says the same to type checkers."""

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
