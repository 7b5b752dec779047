"""What the documents name is there: files, tests, links between them, commands and their options."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
from pathlib import Path
from typing import List, Set

import pytest

from harness.core.files import read_toml
from jetwatt.cli import COMMANDS
from tests.pages import shell_lines
from tools.docs.commands import parser_of

PROJECT = Path(__file__).resolve().parents[1]
ROOT_FILES = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md")
DOCUMENTS = [PROJECT / name for name in (*ROOT_FILES, "baselines/README.md")]
DOCUMENTS += sorted((PROJECT / "docs").glob("*.md"))
ROOTS = ("", "harness", "tests", "tests/harness")
"""A document names files from here, and from its own folder."""


def is_there(name: str, folder: Path) -> bool:
    return any((root / name).exists() for root in [folder, *(PROJECT / root for root in ROOTS)])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_links_and_tests_that_a_document_names_exist(document):
    text = document.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|toml|csv|md))(?:`|::)", text)
    named = [name for name in named if not re.search(r"[A-Z]{3,}\.|^out/|/me\.json|/media/", name)]
    assert [name for name in [*links, *named] if name and not is_there(name, document.parent)] == []
    for name, test in re.findall(r"`([\w./-]*test_\w+\.py)::(\w+)", text):
        files = [PROJECT / root / name for root in ROOTS if (PROJECT / root / name).is_file()]
        assert files, f"{document.name} names {name}"
        assert f"def {test}(" in files[0].read_text(encoding="utf-8"), f"{document.name} names {name}::{test}"


def anchors_of(text: str) -> Set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} (.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_anchors_that_a_document_links_to_exist(document):
    text = document.read_text(encoding="utf-8")
    for page, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text):
        linked = (document.parent / page).resolve() if page else document
        assert anchor in anchors_of(linked.read_text(encoding="utf-8")), f"{page}#{anchor}"


FENCED = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PYTESTS_OWN = {"-k", "-m", "-q", "-v", "-x", "-p", "--fixtures", "--help", "--junitxml", "--rootdir", "--strict"}
NIGHTLY = (PROJECT / "tools" / "nightly.sh").read_text(encoding="utf-8").partition("\nEND\n")[0]


@functools.lru_cache(maxsize=None)
def parser_named(name: str) -> argparse.ArgumentParser:
    [command] = [command for command in COMMANDS if command.name == name]
    return parser_of(command)


def options_of_pytest() -> Set[str]:
    return PYTESTS_OWN | set(read_toml(PROJECT / "harness" / "options.toml"))


def unknown_options(words: List[str]) -> List[str]:
    """Options of a line of a document that its command does not have; the command itself if there is none."""
    program, *rest = words
    place = rest.index("--") if "--" in rest else len(rest)
    rest, pytests = rest[:place], rest[place + 1 :]
    if program == "jetwatt":
        if rest[0] not in {command.name for command in COMMANDS}:
            return [rest[0]]
        parser = parser_named(rest[0])
        known = set(parser._option_string_actions)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                known |= {name for one in action.choices.values() for name in one._option_string_actions}
        known |= {"--root", "--version", "--help"}
        further = [] if rest[0] == "run" else unknown(pytests, options_of_pytest())  # the words of any program
        return unknown(rest[1:], known) + further
    if program == "pytest":
        return unknown(rest, options_of_pytest())
    return unknown(rest, set(re.findall(r"--[a-z-]+", NIGHTLY))) + unknown(pytests, options_of_pytest())


def unknown(words: List[str], known: Set[str]) -> List[str]:
    named = [word.partition("=")[0] for word in words if re.match(r"--?[a-z][^ ]*$", word)]
    return [name for name in named if name not in known and not name.startswith("--benchmark-")]


def commands_of(text: str) -> List[List[str]]:
    """Lines of fenced blocks that call a command of the suite, pytest or the nightly script, in words."""
    lines = [line for block in FENCED.findall(text) for line in shell_lines(block)]
    renamed = [
        re.sub(r"^(python -m (harness|predictors)|(\./)?\.venv/bin/jetwatt)\b", "jetwatt", line) for line in lines
    ]
    wanted = [line for line in renamed if re.match(r"jetwatt [a-z]|pytest |bash tools/nightly\.sh", line)]
    return [shlex.split(re.split(r" (?:\||>>?) ", line)[0]) for line in wanted]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_a_document_shows_have_the_options_it_gives_them(document):
    commands = commands_of(document.read_text(encoding="utf-8"))
    assert [(" ".join(words), unknown_options(words)) for words in commands if unknown_options(words)] == []


def test_an_option_that_a_command_lacks_is_seen():
    text = (
        "```\njetwatt fit --corpse c.csv\npytest benchmarks --wrkers 3\nbash tools/nightly.sh --slow -- --wrkers\n```\n"
    )
    assert [unknown_options(words) for words in commands_of(text)] == [
        ["--corpse"],
        ["--wrkers"],
        ["--slow", "--wrkers"],
    ]


def test_every_public_name_of_the_table_api_is_on_the_api_page():
    page = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
    tables = ("load_table", "read_corpus", "check_corpus", "write_corpus")
    for name in (*tables, "fit", "load", "recommend", "open_results", "tuning"):
        assert f"jetwatt.{name}(" in page
