"""What the documents name is there, files, tests, links between them; and the API page runs, line by line."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Set

import pytest

import jetwatt as public
from jetwatt.cli import COMMANDS
from jetwatt.cli import main as jetwatt

PROJECT = Path(__file__).resolve().parents[1]
DOCUMENTS = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "baselines/README.md")]
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


BLOCK = re.compile(r"(?:<!-- (file|needs): (\S+) -->\n)?```(sh|python)\n(.*?)```", re.DOTALL)
"""Code of a page; a comment before it says that it is a file, or what it needs."""


def value_of(text):
    """A literal, or a repr as it is."""
    return text if text.startswith("<") else ast.literal_eval(text)


@pytest.mark.exhaustive
def test_the_api_page_runs_line_by_line(tmp_path, monkeypatch):
    """Each statement by itself; `# -> VALUE` behind one is what it has to be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    page, names, checked, left_out = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8"), {}, 0, 0
    for block in BLOCK.finditer(page):
        mark, value, language, code = block.groups()
        if mark == "file":
            Path(value).write_text(code, encoding="utf-8")
        elif language == "sh":
            assert [jetwatt(shlex.split(line)[1:]) for line in code.splitlines()] == [0]
        elif mark is None or importlib.util.find_spec(value) is not None:
            lines = code.splitlines()
            for statement in ast.parse(code).body:
                text = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
                where = f"docs/api.md:{page.count(chr(10), 0, block.start(4)) + statement.lineno}"
                if not isinstance(statement, ast.Expr):
                    exec(compile(text, where, "exec"), names)
                    continue
                found = eval(compile(text.partition("  #")[0], where, "eval"), names)
                expected = re.search(r"  # -> (.*)", text)
                if expected:
                    assert (repr(found) if expected[1].startswith("<") else found) == value_of(expected[1]), where
                    checked += 1
        else:
            left_out += code.count("  # -> ")
    assert checked + left_out >= 10


def test_every_public_name_of_the_table_api_is_on_the_api_page():
    page = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
    tables = ("load_table", "read_corpus", "check_corpus", "write_corpus")
    for name in (*tables, "fit", "load", "recommend", "open_results", "tuning"):
        assert f"jetwatt.{name}(" in page


def commands_with_actions():
    """Every command, or each of its actions."""
    for command in COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(command.module).add_arguments(parser)
        subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        actions = list(subparsers[0].choices) if subparsers else []
        yield from ([f"{command.name} {action}" for action in actions] or [command.name])


def test_the_api_page_has_the_call_of_every_command_or_says_why_it_has_none():
    page = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
    table = page[page.index("| command | call | returns |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]
    named = {text for command, *_ in rows for text in re.findall(r"`(?:jetwatt )?([^`]+)`", command)}
    assert sorted(set(commands_with_actions()) - named) == []
    for command, call, _ in rows:
        calls = re.findall(r"jetwatt\.(\w+)\(", call)
        assert calls or len(call.split()) == 3, f"{command} has neither a call nor the reason in three words"
        assert [name for name in calls if name not in public.__all__] == []
