"""The shape of the tree: which way imports point, where torch may be loaded, what modules say of themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Set, Tuple

import pytest

pytestmark = pytest.mark.one_python

PROJECT = Path(__file__).resolve().parents[1]

TORCH_AND_ITS_KIN = ("torch", "torchvision", "ultralytics", "transformers")

HEAVY = (*TORCH_AND_ITS_KIN, "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "jinja2", "vl_convert", "jtop")
"""What takes a good part of a second to import, or may not be there."""

MAY_LOAD_TORCH = ("harness.measure.training_loop", "harness.workloads.networks")
"""Modules of the harness that import torch at their top; others of `MAY_NAME_TORCH` do so inside functions."""

MAY_NAME_TORCH = ("harness.measure.training_loop", "harness.workloads", "jetwatt.callbacks")

MAY_IMPORT = {
    "harness.core": (),
    "harness.stats": ("harness.core",),
    "harness.board": ("harness.core",),
    "harness.workloads": ("harness.core",),
    "harness.simulation": ("harness.core",),
    "harness.store": ("harness.core",),
    "harness.devices": ("harness.core", "harness.board", "harness.workloads", "harness.simulation"),
    "harness.measure": ("harness.core", "harness.board", "harness.devices", "harness.workloads"),
    "harness.acceptance": (
        *("harness.core", "harness.stats", "harness.board", "harness.devices", "harness.workloads", "harness.measure"),
        "harness.store",
    ),
    "harness.judge": ("harness.core", "harness.stats", "harness.store"),
    "harness.report": ("harness.core", "harness.stats", "harness.store", "harness.judge"),
    "harness.table_import": ("harness.core", "harness.board", "harness.simulation", "harness.store"),
    "harness.openmetrics": (
        *("harness.core", "harness.board", "harness.devices", "harness.measure", "harness.store", "harness.judge"),
    ),
    "harness.command_runs": (
        *("harness.core", "harness.stats", "harness.board", "harness.devices", "harness.workloads", "harness.measure"),
        *("harness.store", "harness.judge"),
    ),
    "harness.fleet": (
        *("harness.core", "harness.board", "harness.store", "harness.devices", "harness.measure", "harness.workloads"),
    ),
    "harness.cli": ("harness", "tools"),
    "harness": ("harness",),
    "predictors.cli": ("harness", "predictors"),
    "predictors.choose": ("harness", "predictors"),
    "predictors.plans": ("harness", "predictors"),
    "predictors.contest": ("harness", "predictors"),
    "predictors.__main__": ("harness", "predictors"),
    "predictors": ("harness.core", "predictors"),
    "tools.docs": ("harness", "predictors", "jetwatt", "tools"),
    "tools": ("harness", "predictors"),
    "jetwatt": ("harness", "predictors"),
    "benchmarks": ("harness", "predictors"),
}
"""The floors of the house: what each room may import beside itself. The longest name that fits a module is its room.

Predictors learn from a corpus and speak of power modes; where they meet files, boards and devices is
`predictors.choose` and above. What is measured against, and for the papers, is `predictors.contest`: only commands and
`jetwatt` import it.
"""

READ_RECORDS = {
    "harness.store.frames": "makes the frames of them",
    "harness.store.results": "finds the newest usable profile of a condition, reading only what was added since",
}
"""Modules that read records of a results file, and why; all others take frames (`harness.store.frames`)."""

READ_PROFILES = {
    "benchmarks.test_containers": "returns the profile that a run in a container stored, as one measured outside",
    "harness.command_runs": "hands on the profiles of power modes in which a command need not run again",
    "harness.store.frames": "makes the frames of raw series of them",
    "harness.store.results": "reads one after the other",
    "harness.judge.case_frame": "computes quantities of a stored profile as of one in memory, and holds one at a time",
    "harness.fleet.pool": "hands on the profile that a board stored, as a device hands on one that it measured",
    "harness.processes": "hands on the profiles that another process of a run stored, for its summary",
    "predictors.choose.device_profiler": "takes a stored profile for one that it need not measure again",
}
"""Modules that read whole profiles of a results file, raw series included, and why; all others take the long frames."""

STORES = {"store", "results", "source", "target", "own"}
"""Names of results files in code, with or without an underscore before them."""

MOST_PARAMETERS = 10
"""Of a function, without `self`: what belongs together is an object that the calls share."""

MEANINGLESS = {"utils", "util", "helpers", "helper", "common", "misc"}


def modules_of(package: str) -> List[Tuple[str, Path]]:
    """Every module of a package: its dotted name and its file."""
    found = []
    for file in sorted((PROJECT / package).rglob("*.py")):
        parts = file.relative_to(PROJECT).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), file))
    return found


@lru_cache(maxsize=None)
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@lru_cache(maxsize=None)
def imports_of(file: Path) -> List[str]:
    """Every module that a file imports, inside functions and by name too; `from a import b` counts as `a.b`."""
    return list(_imports(parsed(file)))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
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
EVERY_MODULE = [*HARNESS, *PREDICTORS, *modules_of("tools"), *modules_of("jetwatt"), *modules_of("benchmarks")]


def imports_within(modules: Iterable[Tuple[str, Path]], *packages: str) -> Dict[str, List[str]]:
    """What modules import from some packages; those that import nothing from there are left out."""
    found = {module: [name for name in imports_of(file) if within(name, *packages)] for module, file in modules}
    return {module: names for module, names in found.items() if names}


def room_of(module: str) -> str:
    """The room that a module, or a name in one, lies in."""
    return max((room for room in MAY_IMPORT if within(module, room)), key=len, default="")


def trespasses() -> Dict[str, List[str]]:
    """Imports of a room that are not on the list of what it may import."""
    found: Dict[str, List[str]] = {}
    for module, file in EVERY_MODULE:
        room = room_of(module)
        for name in imports_of(file):
            if name in ("harness", "harness.__version__"):
                continue
            if within(name, "harness", "predictors", "tools", "benchmarks", "tests", "jetwatt"):
                there = room_of(name)
                if there != room and not within(there, *MAY_IMPORT[room]):
                    found.setdefault(f"{room} -> {there}", []).append(f"{module} imports {name}")
    return found


def test_imports_go_up_the_floors_only():
    assert trespasses() == {}


PROGRAMS = ("harness.__main__", "predictors.__main__", "jetwatt.__main__")
DOCUMENTS_THEM = "tools.docs.commands"


def test_nothing_but_programs_and_commands_imports_a_command():
    """What a command can do the library does without it."""
    library = [(module, file) for module, file in EVERY_MODULE if "cli" not in module.split(".")]
    commands = imports_within(library, "harness.cli", "predictors.cli", "jetwatt.cli")
    assert {module: names for module, names in commands.items() if module not in (*PROGRAMS, DOCUMENTS_THEM)} == {}


TESTS_OF_COMMANDS = ("tests.harness.cli", "tests.predictors.cli", "tests.test_command_lines", "tests.public_names")
PROGRAM = {f"{package}.cli.{name}" for package in ("harness", "predictors", "jetwatt") for name in ("main", "COMMANDS")}


def test_only_tests_of_commands_import_a_command():
    """Other tests may run a whole program, by its `main`; gates use the library alone."""
    others = [(module, file) for module, file in modules_of("tests") if not within(module, *TESTS_OF_COMMANDS)]
    imported = imports_within(others, "harness.cli", "predictors.cli", "jetwatt.cli")
    # This test loads a command's module before it gives root up: the plain user may not read root's Python.
    imported.pop("tests.harness.board.test_privileges")
    allowed = {module: set() if within(module, "tests.gates") else PROGRAM for module in imported}
    trespassing = {module: sorted(set(names) - allowed[module]) for module, names in imported.items()}
    assert {module: names for module, names in trespassing.items() if names} == {}


def test_no_rooms_import_each_other_in_a_circle():
    above: Dict[str, Set[str]] = {room: set() for room in MAY_IMPORT}
    for module, file in EVERY_MODULE:
        room = room_of(module)
        there = {room_of(name) for name in imports_of(file) if name not in ("harness", "harness.__version__")}
        above[room] |= there - {room, ""}
    while True:  # take away who imports nobody that is left, until nobody is
        free = [room for room, others in above.items() if not others & set(above)]
        if not free:
            break
        above = {room: others for room, others in above.items() if room not in free}
    assert above == {}


def test_predictors_do_not_import_what_is_built_on_them():
    """The order is models and strategies, choose, plans, contest; commands and `jetwatt` import all of them."""
    above = ("predictors.choose", "predictors.plans", "predictors.contest")
    for place, room in enumerate(("predictors", *above)):
        own = [(name, file) for name, file in PREDICTORS if room_of(name) == room]
        assert own
        assert imports_within(own, *above[place:]) == {}


def test_a_call_loads_what_it_needs_when_it_needs_it():
    """Importing `recommend` loads nothing that opens or measures a device, and no fleet."""
    script = "import sys, jetwatt; jetwatt.recommend; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    loaded = [name for name in ran.stdout.split() if within(name, "harness", "predictors", "jetwatt")]
    assert len(loaded) <= 60
    assert [name for name in loaded if within(name, "harness.fleet", "harness.devices", "harness.measure")] == []


def test_a_class_name_stands_once():
    places: Dict[str, List[str]] = {}
    for module, file in EVERY_MODULE:
        for node in parsed(file).body:
            if isinstance(node, ast.ClassDef) and not within(module, "jetwatt.callbacks"):  # a name for each library
                places.setdefault(node.name, []).append(module)
    # The privileged helper is one file by itself, and an edit makes it another version of an installed one.
    twice = {name: [one for one in modules if one != "harness.board.privileged"] for name, modules in places.items()}
    assert {name: modules for name, modules in twice.items() if len(modules) > 1} == {}


def parameters_of(function: ast.AST) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_no_function_has_more_than_ten_parameters():
    many = {
        f"{module}.{node.name}"
        for module, file in (*EVERY_MODULE, *modules_of("tests"), *modules_of("examples"))
        for node in ast.walk(parsed(file))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and parameters_of(node) > MOST_PARAMETERS
    }
    assert many == set()


def test_what_a_results_file_holds_is_read_as_frames():
    """`ResultsStore.records` is for the store alone: a rule for which profiles count is then written once."""
    calls = {
        module
        for module, file in EVERY_MODULE
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "records"
    }
    assert calls == set(READ_RECORDS)


def test_raw_series_of_a_results_file_are_read_as_frames():
    calls = {
        module
        for module, file in EVERY_MODULE
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Attribute) and node.attr in ("profile", "profiles", "whole")
        if _name(node.value).lstrip("_") in STORES or (module, _name(node.value)) == ("harness.store.results", "self")
    }
    assert calls == set(READ_PROFILES)


def test_torch_is_imported_only_where_training_happens():
    elsewhere = [(module, file) for module, file in EVERY_MODULE if not within(module, *MAY_NAME_TORCH)]
    assert imports_within(elsewhere, *TORCH_AND_ITS_KIN) == {}


def test_every_module_says_its_idea_in_its_first_line():
    first_lines = {module: (ast.get_docstring(parsed(file)) or "").partition("\n")[0] for module, file in EVERY_MODULE}
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
