"""The shape of the tree: which way imports point, where torch may be loaded, what modules say of themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Tuple

PROJECT = Path(__file__).resolve().parents[1]

TORCH_AND_ITS_KIN = ("torch", "torchvision", "ultralytics", "transformers")

HEAVY = (*TORCH_AND_ITS_KIN, "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "jtop")
"""What takes a good part of a second to import, or may not be there."""

MAY_LOAD_TORCH = ("harness.measure.profiling", "harness.workloads.models")
"""Modules of the harness that import torch at their top; others of `MAY_NAME_TORCH` do so inside functions."""

MAY_NAME_TORCH = (
    "harness.measure.profiling",
    "harness.workloads",
    "predictors.models.neural",
    "predictors.models.powertrain",
)

PREDICTORS_MAY_IMPORT = ("harness.core",)
"""A predictor learns from a corpus and speaks of power modes; it knows nothing of devices, stores and measurements."""

PUT_TOGETHER = ("predictors.cli", "predictors.__main__", "predictors.tuning")
"""Where predictors and strategies meet boards, simulated boards and devices: the commands, and tuning a user's loop."""

MEANINGLESS = {"utils", "util", "helpers", "helper", "common", "misc"}


def modules_of(package: str) -> List[Tuple[str, Path]]:
    """Every module of a package: its dotted name and its file."""
    found = []
    for file in sorted((PROJECT / package).rglob("*.py")):
        parts = file.relative_to(PROJECT).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), file))
    return found


def imports_of(file: Path) -> Iterator[str]:
    """Every module that a file imports, inside functions and by name too; `from a import b` counts as `a.b`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in ("require", "import_module"):
            yield from (argument.value for argument in node.args if isinstance(argument, ast.Constant))


def _name(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


def within(module: str, *packages: str) -> bool:
    """Whether a module is one of some packages or lies in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


HARNESS = modules_of("harness")
PREDICTORS = modules_of("predictors")
EVERY_MODULE = [*HARNESS, *PREDICTORS, *modules_of("baselines"), *modules_of("benchmarks")]


def imports_within(modules: Iterable[Tuple[str, Path]], *packages: str) -> Dict[str, List[str]]:
    """What modules import from some packages; those that import nothing from there are left out."""
    found = {module: [name for name in imports_of(file) if within(name, *packages)] for module, file in modules}
    return {module: names for module, names in found.items() if names}


def test_the_harness_depends_on_nothing_above_it():
    assert imports_within(HARNESS, "predictors", "benchmarks", "tests", "conftest") == {}


def test_predictors_know_of_the_harness_only_power_modes_and_the_corpus():
    known = imports_within([one for one in PREDICTORS if not within(one[0], *PUT_TOGETHER)], "harness")
    beyond = {
        module: [name for name in names if not within(name, *PREDICTORS_MAY_IMPORT)] for module, names in known.items()
    }
    assert {module: names for module, names in beyond.items() if names} == {}


def test_only_commands_import_commands():
    others = [one for one in PREDICTORS if not within(one[0], *PUT_TOGETHER)]
    assert imports_within(others, *PUT_TOGETHER) == {}


def test_torch_is_imported_only_where_training_happens():
    elsewhere = [(module, file) for module, file in EVERY_MODULE if not within(module, *MAY_NAME_TORCH)]
    assert imports_within(elsewhere, *TORCH_AND_ITS_KIN) == {}


def test_every_module_says_its_idea_in_its_first_line():
    first_lines = {
        module: (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        for module, file in EVERY_MODULE
    }
    assert {module: line for module, line in first_lines.items() if not line.endswith((".", ":", "?"))} == {}


def test_no_module_has_a_name_that_says_nothing():
    everywhere = [*EVERY_MODULE, *modules_of("tests")]
    assert [str(file) for module, file in everywhere if MEANINGLESS & set(module.split("."))] == []


def test_torch_is_loaded_nowhere_else_and_nothing_heavy_anywhere():
    """Import each module in turn, in one process; whoever loads something heavy is named."""
    light = [module for module, _ in (*HARNESS, *PREDICTORS) if not within(module, *MAY_LOAD_TORCH)]
    script = (
        "import importlib, sys\n"
        f"for module in {light!r}:\n"
        "    importlib.import_module(module)\n"
        f"    heavy = sorted(set(sys.modules) & {set(HEAVY)!r})\n"
        "    if heavy: sys.exit(f'{module} loads {heavy}')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=str(PROJECT), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
