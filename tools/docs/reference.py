"""Reference pages that are generated: commands, pytest options, fixtures, columns, files, the Python API.

Each takes its texts from where the suite itself has them, so that a page cannot say anything else than the code.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple, Type

import jetwatt
from harness.fixture_names import public_fixtures
from tools.docs import commands
from tools.docs.fields import Field, fields_of
from tools.docs.markdown import UndocumentedError, block, code, escape, sentence, table, terms

OURS = ("harness", "predictors", "jetwatt")  # the suite's own packages
COLUMN_HEADER = ("column", "type", "meaning")


class Page:
    """A generated page that the navigation names; `title` and `about` are its entry there."""

    def __init__(self, name: str, about: str, text: str) -> None:
        self.name, self.about, self.text = name, about, text

    @property
    def title(self) -> str:
        """The heading."""
        return self.text.partition("\n")[0].lstrip("# ")


def pages() -> List[Page]:
    """The generated pages, in the order of the navigation; those of single commands are named by the page of commands.

    Raises:
        UndocumentedError: something that users see has no documentation.
    """
    return [
        Page("commands", "every command with its options", commands.pages()["commands"]),
        Page("pytest-options", "what `pytest benchmarks` and your own tests take", pytest_options_page()),
        Page("fixtures", "what a test can ask for", fixtures_page()),
        Page("python-api", "every public name, with its arguments and errors", api_page()),
        Page("columns", "of exported tables and of the frames in Python", columns_page()),
        Page("metrics", "what is computed of each profile", metrics_page()),
        Page("flags", "doubts about a profile, and what to do", flags_page()),
        Page("files", "the keys of `jetwatt.toml`, campaigns, requirements and `lab.toml`", files_page()),
        Page("scripts", "options of `tools/nightly.sh`, and what the privileged helper does", commands.scripts_page()),
        Page("exit-codes", "what a command ends with", commands.exit_codes_page()),
    ]


def pytest_options_page() -> str:
    """Options of the pytest plugin, from its own parser."""
    import pytest

    from harness.options import add_options

    parser = pytest.Parser(_ispytest=True)
    add_options(parser)
    rows, silent = [], []
    for option in parser.getgroup("jetwatt").options:
        name, attributes = option.names()[0], option.attrs()
        if not attributes.get("help"):
            silent.append(name)
            continue
        takes = attributes.get("metavar")
        text = attributes["help"].replace("%%", "%")
        rows.append((code(f"{name} {takes}" if takes else name), sentence(escape(text))))
    if silent:
        raise UndocumentedError(f"pytest options without help: {', '.join(silent)}")
    head = (
        "# Pytest options\n\n"
        "These options work with `pytest benchmarks` and, after `-p jetwatt`, with your own test files; each is "
        "`--jetwatt-NAME` too. `pytest --help` shows them in the group `jetwatt`.\n"
    )
    return f"{head}\n{terms(rows)}"


def fixtures_of(module: Any) -> Iterator[Tuple[str, str, str]]:
    """Name, scope and docstring of the fixtures of a module.

    Raises:
        UndocumentedError: a fixture has no docstring.
    """
    for value in public_fixtures(module).values():
        marker = getattr(value, "_fixture_function_marker", None) or getattr(value, "_pytestfixturefunction", None)
        if marker is None:
            continue
        function: Callable[..., Any] = value._get_wrapped_function() if hasattr(value, "_get_wrapped_function") else (
            value.__pytest_wrapped__.obj)  # fmt: skip
        name, text = marker.name or function.__name__, inspect.getdoc(function)
        if not text:
            raise UndocumentedError(f"the fixture {name} of {module.__name__} has no docstring")
        yield name, str(marker.scope), text


def fixtures_page() -> str:
    """Fixtures of the plugin, from their docstrings."""
    from harness import fixtures, judging

    parts = [
        "# Fixtures\n",
        "Each fixture works by itself, in any test, as `NAME` and as `jetwatt_NAME`. "
        "A fixture of scope `session` lives as long as the run.\n",
        "## Measure\n",
        terms(_fixture_terms(fixtures)),
        "## Judge\n",
        "These serve the papers' claims in `benchmarks/`: they read profiles that other tests of the run measured.\n",
        terms(_fixture_terms(judging)),
    ]
    return "\n".join(parts)


def _fixture_terms(module: Any) -> List[Sequence[str]]:
    rows: List[Sequence[str]] = []
    for name, scope, text in fixtures_of(module):
        kept = "" if scope == "function" else f" (scope `{scope}`)"
        rows.append((code(name) + kept, escape(text)))
    return rows


def columns_page() -> str:
    """Columns of corpora and of the frames of a results file, from the tables that make them."""
    from harness.core.corpus import CORPUS, POWER_LIMIT
    from harness.core.metrics import CONCURRENT_AGGREGATES
    from harness.core.profiles import Minibatch
    from harness.store import frames

    concurrent = [column for column in frames._ALL if column.name in CONCURRENT_AGGREGATES]
    exported = [*CORPUS, *frames.FURTHER]
    of_frame = [column for column in frames._ALL if column not in exported and column not in concurrent]
    raw = {field.name: field for field in fields_of(Minibatch)}
    raw_rows = [
        (code(name), *({**_OF_RAW_SERIES, **{key: (one.kind, one.meaning) for key, one in raw.items()}}[name]))
        for name in frames.MINIBATCH_COLUMNS
    ]
    return "\n".join(
        [
            "# Columns\n",
            "A unit ends the name of its column. A value that was not measured is missing, never 0.\n",
            "## Corpus\n",
            "The columns that every table of profiles begins with, in this order. `read_corpus`, `check_corpus` and "
            "`jetwatt import` refuse other values, with the place and the likely mistake.\n",
            _column_table(CORPUS),
            "A further column that predictors and strategies read where a table has it:\n",
            _column_table([POWER_LIMIT]),
            "## Exported tables\n",
            "`jetwatt export` writes these after the columns of a corpus.\n",
            _column_table(frames.FURTHER),
            "## Frames in Python\n",
            "`open_results(file).profiles()` has all of the above and these, with a row for each profile.\n",
            _column_table(of_frame),
            "## Concurrent training and inference\n",
            "Of profiles of the task `concurrent`.\n",
            _column_table(concurrent),
            "## Minibatches\n",
            "`open_results(file).minibatches()` has a row for each minibatch.\n",
            table(COLUMN_HEADER, [(name, kind, escape(meaning)) for name, kind, meaning in raw_rows]),
            "## Telemetry\n",
            "`open_results(file).telemetry()` has a row for each sample of a channel.\n",
            table(COLUMN_HEADER, [(code(name), *_OF_RAW_SERIES[name]) for name in frames.TELEMETRY_COLUMNS]),
        ]
    )


_OF_RAW_SERIES = {
    "profile_id": ("int", "the profile, as the index of `profiles()` has it"),
    "position": ("int", "the minibatch's place in the profile, from 0 on"),
    "counted": ("bool", "whether the minibatch counts for the profile's figures"),
    "channel": ("str", "what was sampled; its unit ends the name"),
    "time_s": ("float", "when, in seconds of the monotonic clock, as `start_s` of minibatches"),
    "value": ("float", "the sample"),
}


def _column_table(columns: Sequence[Any]) -> str:
    for column in columns:
        if not column.meaning:
            raise UndocumentedError(f"the column {column.name} has no meaning")
    return table(
        COLUMN_HEADER, [(code(column.name), column.kind.__name__, escape(column.meaning)) for column in columns]
    )


def metrics_page() -> str:
    """The aggregates of a profile, and the quantities that gates compare."""
    from harness.core.metrics import AGGREGATES, CONCURRENT_AGGREGATES
    from harness.judge.quantities import QUANTITIES

    def rows(meanings: Dict[str, str]) -> List[Sequence[str]]:
        silent = [name for name, meaning in meanings.items() if not meaning]
        if silent:
            raise UndocumentedError(f"metrics without a meaning: {', '.join(silent)}")
        return [(code(name), escape(meaning)) for name, meaning in meanings.items()]

    gated = [
        (quantity.name, code(quantity.column), f"{quantity.tolerance:.0%}", quantity.worse) for quantity in QUANTITIES
    ]
    return "\n".join(
        [
            "# Metrics\n",
            "What is computed of each profile; `profiles()` and exported tables have a column for each. A unit ends "
            "the name. What could not be measured is missing, never 0. [What each figure means](figures.md) explains "
            "how they are measured.\n",
            "## Of every profile\n",
            table(("metric", "meaning"), rows(AGGREGATES)),
            "## Of concurrent training and inference\n",
            "Beside those of the training.\n",
            table(("metric", "meaning"), rows(CONCURRENT_AGGREGATES)),
            "## Compared by gates\n",
            "`--baseline`, `baseline check`, `compare` and `history` compare these.\n",
            table(("quantity", "metric", "tolerance of a baseline", "verdict if it is worse"), gated),
        ]
    )


def flags_page() -> str:
    """Every kind of flag, from the table of their meanings.

    Raises:
        UndocumentedError: a flag has no meaning.
    """
    from harness.core.profiles import DISQUALIFYING
    from harness.measure.flags import flag_meanings

    meanings = flag_meanings()
    silent = [kind for kind, meaning in meanings.items() if not meaning.raised]
    if silent:
        raise UndocumentedError(f"flags without a meaning: {', '.join(silent)}")
    rows = [(code(kind), escape(meaning.raised), escape(meaning.remedy)) for kind, meaning in meanings.items()]
    left_out = " or ".join(map(code, DISQUALIFYING))
    return "\n".join(
        [
            "# Flags\n",
            "A flag is a doubt about a profile. Tables, reports and exports show it with the value that caused it. "
            f"Profiles flagged {left_out} are left out of comparisons; others count "
            "([what each figure means](figures.md#the-table)).\n",
            table(("flag", "raised when", "what to do"), rows),
        ]
    )


def files_page() -> str:
    """Keys of the TOML files that users write, from the classes that check them."""
    from harness.core.campaigns import AXIS_DEFAULTS, CampaignTable, ExperimentTable, SweepTable
    from harness.core.cases import AXES, CaseSettings
    from harness.core.configuration import Places
    from harness.fleet.lab import BoardEntry, Lab
    from harness.judge.requirements import MissRatio, Requirement

    axes = [(code(axis), escape(AXIS_TEXTS[axis]), code(", ".join(map(str, AXIS_DEFAULTS[axis])))) for axis in AXES]
    return "\n".join(
        [
            "# Configuration files\n",
            "An unknown key is refused, with the names that the table has.\n",
            "## `jetwatt.toml`\n",
            "Facts about this machine, in the folder where pytest runs, or where `--config` says.\n",
            _key_table([Places]),
            "## Campaigns\n",
            "`--campaign FILE.toml` runs one; the shipped `quick` and `paper` are such files.\n",
            _key_table([CampaignTable]),
            "### `[axes]`\n",
            "A value or a list of values each. `[[sweep]]` and `[experiment.NAME]` take the same keys.\n",
            table(("key", "meaning", "default"), axes),
            "### `[settings]`\n",
            "How every case is measured. `[sweep.settings]` and `[experiment.NAME.settings]` take the same keys. "
            "`None`: the key is left out.\n",
            _key_table([CaseSettings]),
            "### `[[sweep]]` and `[experiment.NAME]`\n",
            "Beside the axes and `settings`:\n",
            _key_table([SweepTable, ExperimentTable]),
            "## Requirements\n",
            "`--require FILE.toml` and `jetwatt check` read tables `[[require]]` ([requirements](requirements.md)).\n",
            _key_table([Requirement]),
            "### `miss_ratio`\n",
            _key_table([MissRatio]),
            "## `lab.toml`\n",
            "The boards of a [fleet](fleet.md).\n",
            _key_table([Lab]),
            "### `[[board]]`\n",
            _key_table([BoardEntry]),
        ]
    )


AXIS_TEXTS = {
    "device": "what training runs on, as `--device` takes it",
    "workload": "the network and its data set, as `--workload` takes it",
    "power_mode": "cores and clocks, as `--power-mode` takes it",
    "workers": "`num_workers` of the DataLoader",
    "storage": "the medium of the data set, as `--storage` takes it",
    "batch_size": "samples per minibatch",
}


def _key_table(classes: Sequence[Type[object]]) -> str:
    fields: List[Field] = [field for declared_in in classes for field in fields_of(declared_in)]
    rows = [
        (code(one.name), escape(one.meaning), "required" if one.is_required else code(one.default)) for one in fields
    ]
    return table(("key", "meaning", "default"), rows)


API_GROUPS = {
    "Tables": ("harness.core.corpus", "harness.core.measured_tables", "harness.simulation.corpus"),
    "Predict": ("predictors.models", "predictors.choose.fitting"),
    "Choose a power mode": (
        *("predictors.choose", "predictors.plans.concurrent", "predictors.strategies", "predictors.goals"),
    ),
    "Results": ("harness.store", "harness.openmetrics", "jetwatt", "harness.judge.baseline", "harness.judge.bisection"),
    "Boards and their state": ("harness.acceptance", "harness.board", "harness.measure", "harness.core.boards"),
    "Test predictors and strategies": ("predictors.contest",),
    "Extend the suite": ("harness",),
}
"""Headings of the API's page, and which modules' names are below each: the first whose prefix fits."""


def api_page() -> str:
    """Every public name with its signature and docstring.

    Raises:
        UndocumentedError: a public name, or a public method of a public class, has no docstring.
    """
    silent = [name for name in jetwatt._MODULES for name in _undocumented(name, getattr(jetwatt, name))]
    if silent:
        raise UndocumentedError(f"public names without a docstring: {', '.join(silent)}")
    parts = [
        "# Python API reference\n",
        "Every public name of `import jetwatt`, each imported when it is first used. [Python API](api.md) shows them "
        "at work.\n",
    ]
    left = dict(jetwatt._MODULES)
    for title, prefixes in API_GROUPS.items():
        names = [name for name, module in left.items() if any(_is_in(module, prefix) for prefix in prefixes)]
        parts.append(f"## {title}\n")
        parts += [_directive(name, left.pop(name)) for name in sorted(names, key=str.lower)]
    if left:
        raise UndocumentedError(f"public names without a group on the API's page: {', '.join(left)}")
    return "\n".join([*parts, *_results_of_calls()])


def _results_of_calls() -> List[str]:
    """The classes that public functions return, each with its fields and methods.

    Raises:
        UndocumentedError: one of them, a field or a method has no documentation.
    """
    parts = ["## What calls return\n", "Calls that return a DataFrame, a dict or a text are not listed here.\n"]
    for returned, calls in sorted(returned_classes().items(), key=lambda item: item[0].__name__):
        silent = list(_undocumented(returned.__name__, returned))
        if silent:
            raise UndocumentedError(f"returned by {calls[0]}, without a docstring: {', '.join(silent)}")
        shown = [field for field in fields_of(returned) if not field.name.startswith("_")]
        parts += [
            f"### {returned.__name__}\n",
            f"Returned by {', '.join(code(call) for call in calls)}.\n",
            _class_directive(returned, {field.name for field in shown}),
            table(("attribute", "meaning"), [(code(field.name), escape(field.meaning)) for field in shown])
            if shown
            else "",
        ]
    return parts


def returned_classes() -> Dict[Type[object], List[str]]:
    """The suite's own classes that public functions return, which are not public names, and these functions."""
    returned: Dict[Type[object], List[str]] = {}
    public = [getattr(jetwatt, name) for name in jetwatt._MODULES]
    for name in jetwatt._MODULES:
        call = getattr(jetwatt, name)
        if inspect.isclass(call):
            continue
        for value in own_classes_returned(call):
            if value not in public:
                returned.setdefault(value, []).append(name)
    return returned


def own_classes_returned(call: Any) -> List[Type[object]]:
    """The suite's own classes in the return annotation of a public function."""
    names = vars(importlib.import_module(call.__module__))
    values = [names.get(word) for word in re.findall(r"\w+", str(inspect.signature(call).return_annotation))]
    return [value for value in values if inspect.isclass(value) and value.__module__.partition(".")[0] in OURS]


def _is_in(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def _undocumented(name: str, value: Any) -> Iterator[str]:
    """A public name and its public methods, those that have no docstring."""
    if not inspect.getdoc(value):
        yield name
    for attribute, member in vars(value).items() if inspect.isclass(value) else ():
        is_documentable = callable(member) or isinstance(member, (property, classmethod, staticmethod))
        if not attribute.startswith("_") and is_documentable and not inspect.getdoc(getattr(value, attribute)):
            yield f"{name}.{attribute}"


def _directive(name: str, module: str) -> str:
    value = getattr(importlib.import_module(module), name)
    kind, options = ("autoclass", ["   :members:"]) if inspect.isclass(value) else ("autofunction", [])
    return block("\n".join([f".. {kind}:: jetwatt.{name}", *options]), "{eval-rst}")


def _class_directive(described: Type[object], left_out: Set[str]) -> str:
    """A class with its methods and properties; its fields are in a table."""
    lines = [f".. autoclass:: {described.__module__}.{described.__qualname__}", "   :no-index:", "   :members:"]
    if left_out:
        lines.append(f"   :exclude-members: {', '.join(sorted(left_out))}")
    return block("\n".join(lines), "{eval-rst}")


def generated() -> Dict[str, str]:
    """All generated pages by name, those of single commands too."""
    return {**commands.pages(), **{page.name: page.text for page in pages()}}
