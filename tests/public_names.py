"""The public names of jetwatt, read from its code, the list of them in `public.txt`, and the stub for type checkers.

A line of the list has the first version with the name, the kind of the name and the name. A removed name keeps its
line, which then has the version without it too: `1.0.0-2.0.0`. A change needs an entry in CHANGELOG.md that names it;
docs/promise.md explains why.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import inspect
import re
import sqlite3
from pathlib import Path
from types import ModuleType
from typing import Dict, Iterator, List, Mapping, NamedTuple, Set, Tuple

import jetwatt
from harness import fixtures
from harness.cli.command_line import INTERRUPTED, REFUSED
from harness.core import device_types
from harness.core.boards import board_names
from harness.core.campaigns import SHIPPED
from harness.core.corpus import CORPUS, POWER_LIMIT
from harness.core.errors import NOTHING_COMPARED
from harness.core.files import read_toml
from harness.core.metrics import AGGREGATES
from harness.judge.statistics import STATISTICS
from harness.store import database, frames
from harness.workloads import registry as workloads
from jetwatt.cli import COMMANDS
from predictors.models.registry import ENTRY_POINTS, MODULES
from predictors.strategies.registry import STRATEGIES
from tools.docs.commands import EXIT_CODES, Action, actions_of
from tools.docs.reference import OURS, fixtures_of, own_classes_returned

PROJECT = Path(__file__).resolve().parents[1]
LIST = PROJECT / "tests" / "public.txt"
STUB = PROJECT / "jetwatt" / "__init__.pyi"
CHANGELOG = PROJECT / "CHANGELOG.md"

NOT_PROMISED = {"progress", "planned_case", "hold_device", "measure", "judging", "judged_device"}
"""Fixtures that other fixtures are made of; docs/own_tests.md has those for tests."""

HEADER = """\
# Public names and the versions that have them; docs/promise.md has the rules. JETWATT_REMAKE_GOLDEN=1 pytest
# tests/test_public_names.py writes this file and jetwatt's stub anew.
"""

Name = Tuple[str, str]  # kind, and the words of the name: ("option", "fit --corpus")


class Listed(NamedTuple):
    since: str
    until: str  # the version without the name; empty while it exists
    kind: str
    name: str

    def __str__(self) -> str:
        versions = f"{self.since}-{self.until}" if self.until else self.since
        return f"{versions:<13} {self.kind:<12} {self.name}"


def public_names() -> Set[Name]:
    """All public names that the code has now."""
    return {
        *_calls_and_classes(),
        *_commands(),
        *(("option", f"pytest {name}") for name in read_toml(PROJECT / "harness" / "options.toml")),
        *(("fixture", name) for name in _fixtures()),
        *_columns(),
        *_tables_of_the_results_file(),
        *_values(),
    }


def _calls_and_classes() -> Iterator[Name]:
    classes: List[type] = []
    for name, module_name in jetwatt._MODULES.items():
        module = importlib.import_module(module_name)
        value = getattr(module, name)
        if inspect.isclass(value):
            yield "class", name
            classes.append(value)
            continue
        yield "call", name
        function = inspect.unwrap(value)
        for parameter in inspect.signature(function).parameters.values():
            yield from (("argument", f"{name} {argument}") for argument in _arguments(parameter, module))
        classes += own_classes_returned(function)
    for kind in classes:
        for member in _members(kind):
            yield "member", f"{kind.__name__} {member}"


def _arguments(parameter: inspect.Parameter, module: ModuleType) -> List[str]:
    """The name of a parameter, or of each argument that it unpacks: of `**conditions`, the keys of their class."""
    unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
    return list(getattr(module, unpacked[1]).__annotations__) if unpacked else [parameter.name]


def _members(kind: type) -> Set[str]:
    """Attributes, properties and methods that the suite's own classes in the line of a class give it."""
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] in OURS]
    names = {name for base in own for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    return {name for name in names if not name.startswith("_")}


def _commands() -> Iterator[Name]:
    yield from (("exit code", f"jetwatt {code}") for code in (0, REFUSED, INTERRUPTED))
    yield "exit code", f"pytest {NOTHING_COMPARED}"
    for command in COMMANDS:
        for action in actions_of(command):
            yield from _names_of_action(action)


def _names_of_action(action: Action) -> Iterator[Name]:
    yield "command", action.name
    for codes in EXIT_CODES.finditer(action.parser.epilog or ""):
        yield from (("exit code", f"{action.name} {code}") for code in re.findall(r"(?:^|[,;])\s*(\d+) ", codes[2]))
    for argument in action.parser._actions:
        if argument.option_strings:
            options = set(argument.option_strings) - {"-h", "--help"}
            yield from (("option", f"{action.name} {option}") for option in options)
        elif not isinstance(argument, argparse._SubParsersAction):
            yield "option", f"{action.name} {argument.metavar or argument.dest}"


def _fixtures() -> Set[str]:
    """The fixtures for tests, and the statistics."""
    return ({name for name, _, _ in fixtures_of(fixtures)} | set(STATISTICS)) - NOT_PROMISED


def _columns() -> Iterator[Name]:
    yield from (("column", f"corpus {column.name}") for column in (*CORPUS, POWER_LIMIT, *frames.FURTHER))
    yield from (("column", f"profiles {name}") for name in frames.framed([]).columns)
    yield from (("column", f"minibatches {name}") for name in frames.MINIBATCH_COLUMNS)
    yield from (("column", f"telemetry {name}") for name in frames.TELEMETRY_COLUMNS)
    yield from (("quantity", name) for name in AGGREGATES)


def _tables_of_the_results_file() -> Iterator[Name]:
    yield "results", f"file version {database.VERSION}"
    connection = sqlite3.connect(":memory:")
    connection.executescript(f"{database.TABLES};{database.VERDICTS}")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if not table.startswith("sqlite_"):
            yield from (("results", f"{table} {row[1]}") for row in connection.execute(f"PRAGMA table_info({table})"))
    connection.close()


def _values() -> Iterator[Name]:
    """Names that options and calls take as values, and the groups of entry points."""
    yield from (("workload", name) for name in workloads.WORKLOADS)
    yield from (("board", name) for name in board_names())
    yield from (("campaign", name) for name in SHIPPED)
    yield from (("predictor", name) for name in MODULES)
    yield from (("strategy", name) for name in STRATEGIES)
    yield from (("entry point", group) for group in (workloads.ENTRY_POINTS, device_types.ENTRY_POINTS, ENTRY_POINTS))


def base_version(version: str) -> str:
    """The version that a development version leads to: 1.1.0 of 1.1.0.dev0."""
    return re.match(r"\d+\.\d+\.\d+", version)[0]


def _order(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def read_list(text: str) -> List[Listed]:
    rows = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            versions, kind, name = re.split(r"\s{2,}|(?<=\d)\s+", line, maxsplit=2)
            since, _, until = versions.partition("-")
            rows.append(Listed(since, until, kind, name))
    return rows


def write_list(rows: List[Listed]) -> str:
    """The text of the list, with a digest of each version's names, so that a released line is not lost unnoticed."""
    ordered = sorted(rows, key=lambda row: (row.kind, row.name, _order(row.since)))
    versions = sorted({row.since for row in ordered}, key=_order)
    digests = [f"# {version}: {digest(ordered, version)}\n" for version in versions]
    return HEADER + "".join(digests) + "".join(f"{row}\n" for row in ordered)


def digest(rows: List[Listed], version: str) -> str:
    names = sorted(f"{row.kind} {row.name}" for row in rows if row.since == version)
    return f"{len(names)} names, sha256 {hashlib.sha256(chr(10).join(names).encode()).hexdigest()[:16]}"


def write_stub() -> str:
    """The text of jetwatt's stub, which gives type checkers the names that `jetwatt` imports on first use."""
    names = sorted((module, name) for name, module in jetwatt._MODULES.items())
    imports = "".join(f"from {module} import {name} as {name}\n" for module, name in names)
    return f"from typing import Dict\n\n{imports}\n_MODULES: Dict[str, str]\n__version__: str\n"


def lost_lines(text: str) -> List[str]:
    """The versions whose lines are not those that their digest was computed of."""
    rows = read_list(text)
    recorded = dict(re.findall(r"^# ([\d.]+): (.+)$", text, re.MULTILINE))
    versions = {*recorded, *(row.since for row in rows)}
    return sorted(version for version in versions if recorded.get(version) != digest(rows, version))


def update(rows: List[Listed], names: Set[Name], version: str) -> List[Listed]:
    """The list with the names of now: new ones since `version`, missing ones until it."""
    existing = {(row.kind, row.name) for row in rows if not row.until}
    kept = []
    for row in rows:
        if row.until or (row.kind, row.name) in names:
            kept.append(row)
        elif row.since != version:
            kept.append(row._replace(until=version))
    return kept + [Listed(version, "", *name) for name in names - existing]


def sections(changelog: str) -> Dict[str, List[str]]:
    """The entries of each version of a changelog: `- ...` with the indented lines below it."""
    parts = re.split(r"^## (\d+\.\d+\.\d+).*$", changelog, flags=re.MULTILINE)
    return {
        version: re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE) for version, text in zip(parts[1::2], parts[2::2])
    }


def is_released(changelog: str, version: str) -> bool:
    return re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE) is not None


def names_it(entry: str, row: Listed) -> bool:
    """Whether an entry has all words of a name; of `pytest --seed`, the option is enough."""
    words = [word for word in row.name.split() if word != "pytest"]
    return all(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", entry) for word in words)


def unexplained(rows: List[Listed], changelog: str) -> List[str]:
    """The changes since the first version of the list that the changelog does not name, or that break the promise."""
    entries: Mapping[str, List[str]] = sections(changelog)
    first = min((row.since for row in rows), key=_order)
    faults = []
    for row in rows:
        what = f"{row.kind} {row.name}"
        if row.since != first and not any(names_it(entry, row) for entry in entries.get(row.since, ())):
            faults.append(f"new {what}: no entry of {row.since} in CHANGELOG.md names it")
        if row.until:
            faults += [f"removed {what}: {fault}" for fault in _faults_of_removal(row, entries)]
    return faults


def _faults_of_removal(row: Listed, entries: Mapping[str, List[str]]) -> Iterator[str]:
    if not any(names_it(entry, row) for entry in entries.get(row.until, ())):
        yield f"no entry of {row.until} in CHANGELOG.md names it"
    if _order(row.until)[1:] != (0, 0):
        yield f"{row.until} is not a major version"
    before = [version for version in entries if _order(row.since) <= _order(version) < _order(row.until)]
    notices = [entry for version in before for entry in entries[version] if "deprecated" in entry.lower()]
    if not any(names_it(notice, row) for notice in notices):
        yield f"no entry before {row.until} in CHANGELOG.md says that it is deprecated"
