"""The public names of the suite, each imported on first use; docs/api.md has examples.

`help(jetwatt.fit)` explains one of them:

    predict, choose   fit, load, evaluate, recommend, tuning, concurrent, advise
    their settings    Job, Budget, Search, Learning, Runs, BudgetSweep
    measure           measuring
    results           open_results, compare, history, report, record_baseline, check_baseline, check_requirements
    tables            import_table, read_corpus, check_corpus, write_corpus, load_table, simulate_corpus
    your programs     run_command, Command
    boards            load_board, doctor, accept, restore, nvpmodel_conf, nvpmodel_modes
    your own          Workload, HostDevice, DeviceType, file_source, claim

As a pytest plugin (`pytest -p jetwatt`) this module loads the one that has the hooks. Its assertions are plain, and it
may be imported before pytest loads it: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import importlib
from typing import Any, List

_MODULES = {
    "accept": "harness.acceptance.runner",
    "nvpmodel_conf": "harness.devices.nvpmodel_making",
    "nvpmodel_modes": "harness.devices.nvpmodel_making",
    "restore": "harness.board.saved_state",
    "file_source": "harness.board.source",
    "load_board": "harness.core.boards",
    "run_command": "harness.command_runs",
    "check_corpus": "harness.core.corpus",
    "read_corpus": "harness.core.corpus",
    "write_corpus": "harness.core.corpus",
    "DeviceType": "harness.core.device_types",
    "HarnessError": "harness.core.errors",
    "SourceUnavailableError": "harness.core.errors",
    "load_table": "harness.core.measured_tables",
    "PowerMode": "harness.core.power_modes",
    "PowerModeSpace": "harness.core.power_modes",
    "HostDevice": "harness.devices.host",
    "record_baseline": "harness.judge.baseline",
    "bisect_versions": "harness.judge.bisection",
    "claim": "harness.judge.claims",
    "doctor": "harness.measure.doctor",
    "simulate_corpus": "harness.simulation.corpus",
    "archive_results": "harness.store.archive",
    "merge_results": "harness.store.maintenance",
    "prune_results": "harness.store.maintenance",
    "openmetrics": "harness.openmetrics",
    "ResultsStore": "harness.store.results",
    "import_table": "harness.table_import",
    "Command": "harness.workloads.command",
    "Workload": "harness.workloads.workload",
    "check_baseline": "jetwatt.judging",
    "measuring": "jetwatt.training_block",
    "check_requirements": "jetwatt.judging",
    "compare": "jetwatt.judging",
    "history": "jetwatt.judging",
    "report": "jetwatt.reporting",
    "open_results": "harness.store.results_file",
    "make_predictor": "predictors.models.registry",
    "predictor_class": "predictors.models.registry",
    "concurrent": "predictors.plans.concurrent",
    "Runs": "predictors.contest.runs",
    "evaluate": "predictors.contest.evaluate",
    "Budget": "predictors.choose.request",
    "Job": "predictors.choose.request",
    "Learning": "predictors.choose.learning",
    "Search": "predictors.choose.request",
    "fit": "predictors.choose.fitting",
    "load": "predictors.choose.fitting",
    "evaluate_prior": "predictors.contest.prior",
    "learn_prior": "predictors.contest.prior",
    "published": "predictors.contest.published",
    "recommend": "predictors.choose.recommend",
    "scenario": "predictors.contest.scenarios",
    "scenarios": "predictors.contest.scenarios",
    "BudgetSweep": "predictors.contest.strategies",
    "evaluate_strategies": "predictors.contest.strategies",
    "tuning": "predictors.choose.tuning",
    "advise": "predictors.strategies.advise",
    "Goal": "predictors.goals",
    "power_budget": "predictors.goals",
}
"""Each public name and the module that has it; type checkers read the same from the stub, `__init__.pyi`."""

pytest_plugins = ["harness.opt_in"]
"""What `-p jetwatt` and `pytest_plugins = ["jetwatt"]` load. No entry point does: nobody's pytest loads it unasked."""

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it (PEP 562)."""
    if name == "__version__":
        from harness import __version__

        return __version__
    if name not in _MODULES:
        from harness.core.terminal import available_hint

        raise AttributeError(f"module 'jetwatt' has no attribute {name!r}; {available_hint(name, sorted(_MODULES))}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value  # found without this function the next time
    return value


def __dir__() -> List[str]:
    return sorted(__all__)
