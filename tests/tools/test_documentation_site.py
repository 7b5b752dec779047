"""The site: its navigation, what it generates from the code, and what it refuses."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import shutil
import sys

import pytest

import jetwatt
from jetwatt.cli import COMMANDS
from tools.docs import build, calls, commands, fields, reference
from tools.docs.markdown import UndocumentedError, escape, sentence

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="the site is built on Python 3.11 or later"),
]

INDEX = """\
# A project

## Tutorials

- [First](first.md): a lesson

## How-to

## Reference

- [Second](second.md): to look up

## Explanation
"""


@pytest.fixture
def docs(tmp_path):
    """A folder with a navigation and the two pages that it names."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "index.md").write_text(INDEX)
    (folder / "first.md").write_text("# First\n\nSee [the second](second.md#a-part).\n")
    (folder / "second.md").write_text("# Second\n\n## A part\n\nText.\n")
    return folder


def test_every_page_is_in_the_navigation_once_and_their_words_are_within_the_limit():
    assert build.navigation_faults() == []
    assert build.count_words() <= build.MOST_WORDS


def test_a_page_outside_the_navigation_and_one_of_two_kinds_are_refused(docs):
    assert build.navigation_faults(docs) == []
    (docs / "third.md").write_text("# Third\n")
    (docs / "index.md").write_text(INDEX + "\n- [First](first.md): again\n- [Fourth](fourth.md): missing\n")
    faults = build.navigation_faults(docs)
    assert [fault.split(",")[0] for fault in faults] == [
        "docs/first.md is in the navigation 2 times",
        "docs/third.md is in the navigation 0 times",
        "docs/index.md names fourth.md",
    ]
    with pytest.raises(build.SiteError, match="third"):
        build.write_sources(docs.parent / "sources", docs)


def test_a_page_that_is_no_tutorial_how_to_reference_or_explanation_has_no_heading(docs):
    (docs / "index.md").write_text(INDEX.replace("## How-to", "## Recipes"))
    with pytest.raises(build.SiteError, match="Recipes"):
        build.navigation_faults(docs)


def test_more_words_than_the_limit_are_refused_but_recorded_blocks_are_not_counted(docs, monkeypatch):
    (docs / "index.md").write_text("one two")
    (docs / "second.md").write_text("three `four` ...\n<!-- figures: a-block -->\n\n| 5 | 6 |\n\n<!-- end -->\n")
    monkeypatch.setattr(build, "OTHER_PAGES", {})
    assert build.count_words(docs) == 2 + 5 + 3
    monkeypatch.setattr(build, "MOST_WORDS", 9)
    with pytest.raises(build.SiteError, match="10 words, at most 9"):
        build.build(docs.parent / "out", docs)


@pytest.mark.parametrize("name", build.OTHER_PAGES)
def test_a_page_outside_docs_that_grows_over_the_limit_is_refused(name, tmp_path, monkeypatch):
    grown = tmp_path / "grown.md"
    grown.write_text((build.PROJECT / name).read_text(encoding="utf-8") + "word " * build.MOST_WORDS)
    pages = {other: page for other, page in build.OTHER_PAGES.items() if other != name}
    monkeypatch.setattr(build, "OTHER_PAGES", {**pages, str(grown): build.OTHER_PAGES[name]})
    assert build.count_words() > build.MOST_WORDS
    with pytest.raises(build.SiteError, match=f"at most {build.MOST_WORDS} "):
        build.build(tmp_path / "out")


def test_links_lead_to_the_sites_pages_or_to_copies_but_code_stays(tmp_path):
    names = {build.DOCS / "install.md": "install.md", build.PROJECT / "SECURITY.md": "security.md"}
    text = (
        "[a](install.md#on-a-board) [b](../SECURITY.md) [c](../pytest.ini) [d](https://a.org/b.md) [e](#here)\n"
        "`[f](../SECURITY.md)`\n```\n[g](../SECURITY.md)\n```\n[h](../CONTRIBUTING.md#gates)\n"
    )
    assert build.adapted(text, build.DOCS, names, tmp_path) == (
        "[a](install.md#on-a-board) [b](security.md) [c](files/pytest.ini) [d](https://a.org/b.md) [e](#here)\n"
        "`[f](../SECURITY.md)`\n```\n[g](../SECURITY.md)\n```\n[h](files/CONTRIBUTING.txt)\n"
    )
    assert [(tmp_path / "files" / name).is_file() for name in ("pytest.ini", "CONTRIBUTING.txt")] == [True, True]


def test_texts_of_the_code_are_not_markup():
    assert escape("see docs/own_tests.md, `docs/ci.md`") == "see [docs/own_tests.md](own_tests.md), `docs/ci.md`"
    assert escape("see --a-b, x--y and `--c d`") == "see `--a-b`, x--y and `--c d`"
    assert escape("a_b *c* <d> | `e_*f`") == r"a\_b \*c\* \<d\> \| `e_*f`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the folder", "The folder."),
        ("one, or several", "One, or several."),
        ("comma-separated list", "Comma-separated list."),
        ("lab.toml", "lab.toml."),
        ("num_workers of the DataLoader", r"num\_workers of the DataLoader."),
        ("`maxn` or a preset.", "`maxn` or a preset."),
        ("orin-agx, ...; an unknown name lists all", "orin-agx, ...; an unknown name lists all."),
        ("mobilenetv3-gld23k, ..., or your own", "mobilenetv3-gld23k, ..., or your own."),
    ],
)
def test_a_sentence_begins_with_a_capital_unless_it_begins_with_code(text, expected):
    assert sentence(escape(text)) == expected


@pytest.mark.exhaustive
def test_no_page_capitalises_a_key_or_a_file_at_the_start_of_a_meaning():
    pages = "\n".join(reference.generated().values())
    assert re.findall(r"^(?:: |\| )(?:Lab\.toml|Num\\?_workers|Maxn|Ssd|Host,|Orin-agx)", pages, re.MULTILINE) == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_page_of_a_command_has_all_its_options(command):
    page = commands.command_page(list(commands.actions_of(command)))
    for action in commands.actions_of(command):
        assert f"# jetwatt {action.name}\n" in page
        for argument in action.parser._actions:
            assert all(name in page for name in argument.option_strings if name not in ("-h", "--help"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_page_of_a_command_has_calls_with_arguments_that_exist_or_says_why_it_has_none(command):
    actions = list(commands.actions_of(command))
    page = commands.command_page(actions)
    for action in actions[1:] or actions:
        if command.name in calls.WITHOUT_CALL:
            assert f"no call for it in Python: {calls.WITHOUT_CALL[command.name]}." in page
            continue
        for case, text in calls.CALLS[action.name].items():
            assert f"`{text}`" in page
            assert not case.startswith("-") or case in action.parser._option_string_actions
            for call in public_calls(text):
                parameters = inspect.signature(getattr(jetwatt, call.func.attr)).parameters
                assert {keyword.arg for keyword in call.keywords} <= set(parameters)
                assert len(call.args) <= len(parameters)


def public_calls(text):
    """The calls of `jetwatt.NAME` in an expression."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    found = [node for node in nodes if isinstance(node.func.value, ast.Name) and node.func.value.id == "jetwatt"]
    assert found
    return found


def test_every_call_is_that_of_a_command_and_a_command_without_one_is_refused():
    names = {action.name for command in COMMANDS for action in commands.actions_of(command)}
    assert set(calls.CALLS) | set(calls.WITHOUT_CALL) <= names
    with pytest.raises(UndocumentedError, match="`made-up` has no call"):
        calls.call_of("made-up")


def test_the_pages_of_options_columns_and_names_have_all_of_them():
    from harness.core.corpus import CORPUS_COLUMNS
    from harness.store.frames import _ALL, MINIBATCH_COLUMNS

    options = (build.PROJECT / "harness" / "options.toml").read_text(encoding="utf-8")
    declared = re.findall(r'^\["(--[\w-]+)"\]', options, re.MULTILINE)
    assert re.findall(r"^`(--[\w-]+)", reference.pytest_options_page(), re.MULTILINE) == declared
    columns = set(re.findall(r"^\| `(\w+)`", reference.columns_page(), re.MULTILINE))
    assert {*CORPUS_COLUMNS, *(column.name for column in _ALL), *MINIBATCH_COLUMNS} <= columns
    names = re.findall(r"^\.\. auto\w+:: jetwatt\.(\w+)$", reference.api_page(), re.MULTILINE)
    assert sorted(names) == sorted(reference.jetwatt._MODULES)
    fixtures = set(re.findall(r"^`(\w+)`", reference.fixtures_page(), re.MULTILINE))
    assert {"train", "infer", "device", "power_mode", "baseline", "results", "ratio", "value"} <= fixtures


def test_the_codes_of_commands_with_codes_of_their_own_are_listed():
    page = commands.exit_codes_page()
    for name in ("compare", "history", "baseline check", "fleet submit", "doctor"):
        assert f"[`{name}`](" in page
    assert "| 130 |" in page
    assert "| 0 green, 1 red, 2 wrong option. |" in page


def test_the_page_of_scripts_has_the_options_of_a_night_and_all_that_the_helper_does():
    from harness.board import privileged

    page = commands.scripts_page()
    assert "  --device D   " in page
    assert "exit code: 0 green, 1 red, 2 wrong option.\n```" in page
    assert re.findall(r"^\| `([\w-]+)` \| `/", page, re.MULTILINE) == list(privileged.KINDS)
    assert "124 begun" in page


def test_what_calls_return_is_on_the_page_with_its_attributes():
    page = reference.api_page()
    for name in ("FittedModel", "Answer", "ResultsFile", "Evaluation"):
        assert f"### {name}\n" in page
    assert "Returned by `evaluate`, `evaluate_prior`, `scenario`." in page
    assert "| `costs` | a row for each approach" in page


def test_ci_builds_the_site_and_a_release_deploys_the_folder_that_the_build_writes():
    release = (build.PROJECT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    written = build.OUT.relative_to(build.PROJECT)
    assert re.search(rf"make docs .*\n.*actions/upload-pages-artifact@.*\n *with:\n *path: {written}\n", release)
    ci = (build.PROJECT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^stage .+ make (.+ )?docs$", ci, re.MULTILINE)


class Undocumented:
    """A class of which `what` has no comment."""

    size: int = 3  # documented
    what: str = ""

    def method(self):
        return self.size


def made_up() -> Undocumented:
    """A call that returns it."""


def test_an_option_without_help_is_refused():
    parser = argparse.ArgumentParser("jetwatt made-up")
    parser.add_argument("--named", help="has one")
    parser.add_argument("--silent")
    with pytest.raises(UndocumentedError, match=r"`made-up` .*--silent SILENT$"):
        commands.options_of(commands.Action("made-up", parser, "a help"))
    with pytest.raises(UndocumentedError, match="no description"):
        commands.description_of(commands.Action("made-up", parser, ""))


def test_a_pytest_option_without_help_is_refused(monkeypatch):
    from harness import options

    added = options.add_options

    def with_another(parser):
        added(parser)
        parser.getgroup("jetwatt").addoption("--silent")

    monkeypatch.setattr(options, "add_options", with_another)
    with pytest.raises(UndocumentedError, match="--silent"):
        reference.pytest_options_page()


def test_a_fixture_without_a_docstring_is_refused(monkeypatch):
    @pytest.fixture
    def silent():
        return 1

    monkeypatch.setattr(reference, "public_fixtures", lambda module: {"silent": silent})
    with pytest.raises(UndocumentedError, match="silent"):
        reference.fixtures_page()


def test_a_public_name_or_a_method_of_one_without_a_docstring_is_refused(monkeypatch):
    monkeypatch.setitem(reference.jetwatt._MODULES, "made_up", __name__)
    monkeypatch.setitem(vars(reference.jetwatt), "made_up", Undocumented)
    with pytest.raises(UndocumentedError, match=r"made_up\.method$"):
        reference.api_page()


def test_what_a_call_returns_without_a_docstring_is_refused(monkeypatch):
    monkeypatch.setitem(reference.jetwatt._MODULES, "made_up", __name__)
    monkeypatch.setitem(vars(reference.jetwatt), "made_up", made_up)
    monkeypatch.setattr(Undocumented, "__module__", "harness.made_up")
    with pytest.raises(UndocumentedError, match=r"returned by made_up.*Undocumented\.method$"):
        reference._results_of_calls()


def test_a_public_name_that_no_heading_of_the_page_takes_is_refused(monkeypatch):
    monkeypatch.setitem(reference.jetwatt._MODULES, "made_up", "elsewhere")
    monkeypatch.setitem(vars(reference.jetwatt), "made_up", commands.page_of)  # setattr would look for it in its module
    with pytest.raises(UndocumentedError, match="made_up"):
        reference.api_page()


def test_a_key_without_a_comment_and_a_metric_without_a_meaning_are_refused(monkeypatch):
    from harness.core import metrics

    with pytest.raises(UndocumentedError, match=r"Undocumented\.what"):
        fields.fields_of(Undocumented)
    monkeypatch.setitem(metrics.AGGREGATES, "made_up_ms", "")
    with pytest.raises(UndocumentedError, match="made_up_ms"):
        reference.metrics_page()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
@pytest.mark.exhaustive
def test_a_dash_separates_an_argument_from_its_meaning_and_options_keep_their_hyphens(docs, monkeypatch):
    pytest.importorskip("sphinx")
    (docs / "index.md").write_text(f"{INDEX}\n```{{toctree}}\nfirst\nsecond\n```\n")
    (docs / "first.md").write_text("# First\n\n--resume\n\n```{eval-rst}\n.. autofunction:: jetwatt.load_table\n```\n")
    monkeypatch.setattr(build, "write_sources", lambda sources, docs: shutil.copytree(docs, sources))
    build.build(docs.parent / "out", docs)
    page = (docs.parent / "out" / "first.html").read_text(encoding="utf-8")
    assert "<strong>name</strong> \N{EN DASH} " in page
    assert " -- " not in page
    assert "<p>--resume</p>" in page


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
@pytest.mark.long
def test_a_broken_link_an_anchor_and_a_picture_that_do_not_exist_are_refused(docs, monkeypatch):
    pytest.importorskip("sphinx")
    menu = "\n```{toctree}\nfirst\nsecond\n```\n"
    (docs / "index.md").write_text(INDEX + menu)
    monkeypatch.setattr(build, "write_sources", lambda sources, docs: shutil.copytree(docs, sources))
    assert build.build(docs.parent / "out", docs)[0] == 3
    (docs / "first.md").write_text("# First\n\n[a](nowhere.md) [b](second.md#no-part) ![c](none.png)\n")
    (docs / "third.md").write_text("# Third\n")
    with pytest.raises(build.SiteError) as refused:
        build.build(docs.parent / "out", docs)
    faults = sorted(str(refused.value).splitlines())
    assert [fault.partition(": ")[0] for fault in faults] == ["docs/first.md:3"] * 3 + ["docs/third.md"]
    for name in ("nowhere.md", "no-part", "none.png", "toctree"):
        assert any(name in fault for fault in faults), name
