"""What `-p jetwatt` loads: the suite's options and, once pytest is configured, its hooks and fixtures.

It imports pytest only. numpy and others load after the conftest files of the command line, which may set what they
read, such as `OPENBLAS_NUM_THREADS`. It may be imported before pytest loads it: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import functools
import inspect
import os
from pathlib import Path
from typing import Any, Dict, List, Sequence, Set, Tuple

import pytest

OPTED_IN = "jetwatt"  # the name of `-p jetwatt`, and of `-p no:jetwatt`
OPTIONS = "jetwatt-options"  # the name under which pytest knows the `OptionNames` of a run
INSTALLED = "jetwatt.harness.opt_in"  # the name of this module in the wheel, where all is in one package
LONG = "--jetwatt-"
OPTIONS_FILE = Path(__file__).with_name("options.toml")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Take the options from the command line; refuses to be the second copy, if an installed one is loaded already."""
    installed = pluginmanager.get_plugin(INSTALLED)
    if installed is not None and __name__ != INSTALLED:
        what = f"two copies of jetwatt: pytest has loaded {installed.__file__}, and this clone has {__file__}"
        raise pytest.UsageError(f"{what}; run `python -m pytest`, or install the clone (make install)")
    pluginmanager.register(OptionNames(parser, pluginmanager), OPTIONS)


def pytest_configure(config: pytest.Config) -> None:
    """Load the hooks and fixtures, unless `-p no:jetwatt` follows `-p jetwatt`, as in `addopts`."""
    options = options_of(config)
    if not options.is_added:  # pytest has parsed its arguments already
        from harness.options import set_defaults

        options.add()
        set_defaults(config)
    if not config.pluginmanager.is_blocked(OPTED_IN):
        config.pluginmanager.import_plugin("harness.plugin")


def options_of(config: pytest.Config) -> OptionNames:
    names = config.pluginmanager.get_plugin(OPTIONS)
    assert isinstance(names, OptionNames)
    return names


class OptionNames:
    """Each option is `--jetwatt-NAME`, and `--NAME` too if no other plugin and no conftest file has that one.

    Theirs may be added before or after the suite's, and pytest raises at once or much later if two options have one
    name. So the parser is given the long names only, after the last conftest file of the command line was read; a short
    name in the arguments is replaced by its long one.
    """

    def __init__(self, parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
        self._parser, self._plugins = parser, pluginmanager
        self._parse, self._parse_known = parser.parse, parser.parse_known_and_unknown_args
        # A hook for the moment before the arguments are parsed exists for plugins, but not for those of conftest files.
        parser.parse = self.parse  # type: ignore[method-assign]
        parser.parse_known_and_unknown_args = self.parse_known  # type: ignore[method-assign]
        self.is_added = False
        self.taken: Set[str] = set()  # short names that are others' and were given in this run

    @functools.cached_property
    def _options(self) -> Dict[str, Dict[str, Any]]:
        """The options by short name."""
        from harness.core.files import read_toml

        return read_toml(OPTIONS_FILE)

    def add(self, with_short_names: bool = False) -> None:
        """Add the options to the parser, unless they are there; short names for `--help` only, which runs no test."""
        if self.is_added:
            return
        self.is_added = True
        from harness.options import add_options

        taken = [name for name in self._options if self.is_others(name)] if with_short_names else list(self._options)
        remarks = {name: self.remark(name) for name in taken} if with_short_names else {}
        add_options(self._parser, taken, remarks)

    def parse(self, args: Sequence[Any], namespace: Any = None) -> Any:
        """Parse all arguments, as `pytest.Parser.parse` does, once the options are added."""
        words = list(map(os.fspath, args))
        helps = not {"-h", "--help"}.isdisjoint(_before_end(words))
        self.add(with_short_names=helps)
        if helps:
            return self._parse(words, namespace)
        long = {word: self._in_full(word) for word in _before_end(words)}
        names = {word.partition("=")[0] for word, full in long.items() if full == word}
        self.taken = {name for name in names if name in self._options}
        words = [long.get(word, word) for word in words]
        replaced = {full.partition("=")[0]: word.partition("=")[0] for word, full in long.items() if full != word}
        try:
            self._hint(words)
            return self._parse(words, namespace)
        except pytest.UsageError as error:
            text = str(error)
            for full, short in replaced.items():  # as they were given
                text = text.replace(f"argument {full}", f"argument {short}")
            raise pytest.UsageError(self._with_owners(text, words)) from None

    def parse_known(self, args: Sequence[Any], namespace: Any = None) -> Tuple[Any, List[str]]:
        """Parse what is known so far, as `pytest.Parser.parse_known_and_unknown_args` does.

        The suite's options and their values are left out until they are added: a value is no test file.
        """
        words_given = list(map(os.fspath, args))
        words, others = iter(words_given), []
        for word in words:
            name, _, value = self._in_full(word).partition("=")
            short = f"--{name[len(LONG) :]}"
            if word == "--":
                others += [word, *words]
            elif self.is_added or not name.startswith(LONG) or short not in self._options:
                others.append(self._in_full(word))
            elif not value and "takes" in self._options[short]:
                next(words, None)
        try:
            return self._parse_known(others, namespace)
        except pytest.UsageError as error:
            raise pytest.UsageError(self._with_owners(str(error), words_given)) from None

    def given(self, args: Sequence[Any]) -> List[str]:
        """The suite's options among some arguments, by their long names."""
        names = [self._in_full(str(word)).partition("=")[0] for word in _before_end(list(args))]
        return [name for name in names if name.startswith(LONG) and f"--{name[len(LONG) :]}" in self._options]

    def is_others(self, name: str) -> bool:
        """Whether the parser has an option of this name that is not the suite's."""
        word = f"{name}=?"
        try:
            _, unknown = self._parse_known([word])
        except pytest.UsageError:  # it takes another value, or none
            return True
        return word not in unknown

    def remarks(self) -> List[str]:
        """Whose the short names are that were given in this run and are not the suite's."""
        return [self.remark(name) for name in sorted(self.taken)]

    def remark(self, name: str) -> str:
        """Whose a short name is, and what to write."""
        return f"{name} is an option of {self._owner(name)} here; write {LONG}{name[2:]}"

    def _in_full(self, word: str) -> str:
        """A word of the command line, by its long name if it is one of the suite's options."""
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name not in self._options or self.is_others(name):
            return word
        return f"{LONG}{name[2:]}{equals}{value}"

    def _with_owners(self, text: str, words: Sequence[str]) -> str:
        """An error on a short name that is another's, with whose it is: pytest 8 leaves out hints on wrong values."""
        for word in _before_end(words):
            name = word.partition("=")[0]
            if name in self._options and f"argument {name}:" in text and self.is_others(name):
                remark = self.remark(name)
                return text if remark in text else f"{text.rstrip()}\n  hint: {remark}"
        return text

    def _hint(self, words: Sequence[str]) -> None:
        """Let pytest's error on its arguments say whose a short name is, or which option was probably meant."""
        from harness.core.terminal import options_meant

        if self.taken:
            self._parser.extra_info["hint"] = "; ".join(self.remarks())
        _, unknown = self._parse_known(words)
        meant = options_meant(unknown, list(self._options))
        if meant:
            self._parser.extra_info["hint"] = meant

    def _owner(self, name: str) -> str:
        """The distribution, plugin or conftest file in whose module the name of an option is written."""
        distributions = {id(plugin): found.project_name for plugin, found in self._plugins.list_plugin_distinfo()}
        for plugin_name, plugin in self._plugins.list_name_plugin():
            hook = getattr(plugin, "pytest_addoption", None)
            try:
                source = inspect.getsource(inspect.getmodule(hook)) if hook is not None else ""  # type: ignore[arg-type]
            except (OSError, TypeError):
                continue
            if f'"{name}"' in source or f"'{name}'" in source:
                return str(distributions.get(id(plugin), plugin_name))
        return "another plugin"


def _before_end(words: Sequence[Any]) -> List[str]:
    """The words before `--`, after which there are no options."""
    texts = list(map(str, words))
    return texts[: texts.index("--")] if "--" in texts else texts
