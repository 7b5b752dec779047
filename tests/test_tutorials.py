"""README's examples, the tutorials and the API page run as written, line by line, where a clone has been made."""

from __future__ import annotations

import shutil

import pytest

from tests.pages import PROJECT, agrees, missing_line, run_page, shell_lines
from tools.wheel.try_lowest import ALL_EXPERIMENTS, with_one_network

PARTS = ("baselines", "benchmarks", "harness", "jetwatt", "predictors", "tools", "conftest.py", "pytest.ini")
TRAINS = ("README.md", "docs/first_figures.md", "docs/own_network.md", "docs/your_training.md")
PAGES = (*TRAINS, "docs/own_table.md", "docs/first_red_night.md")
# README comes first with the papers' experiments for one network: for all of them they take minutes.
CASES = [
    pytest.param(name, marks=pytest.mark.training if name.split()[0] in TRAINS else ())
    for name in ("README.md of one network", *PAGES)
]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with what the lines of a page need of a clone."""
    folder = tmp_path / "jetwatt"
    folder.mkdir()
    for name in PARTS:
        path = PROJECT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder / name)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.mark.exhaustive
@pytest.mark.one_python
@pytest.mark.parametrize("name", CASES)
def test_a_tutorial_runs_line_by_line(name, clone):
    name, *shortened = name.split()
    if name in TRAINS:
        pytest.importorskip("torchvision")
    page = PROJECT / name
    if shortened:
        text = page.read_text(encoding="utf-8")
        assert ALL_EXPERIMENTS in text
        page = clone / name
        page.write_text(with_one_network(text), encoding="utf-8")
    ran = run_page(page, clone)
    assert ran.lines >= 3


@pytest.mark.exhaustive
@pytest.mark.long
def test_the_api_page_runs_line_by_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = run_page(PROJECT / "docs" / "api.md", tmp_path)
    assert ran.compared + ran.left_out >= 10


def test_a_line_that_fails_or_prints_something_else_fails_its_page(tmp_path):
    page = tmp_path / "page.md"

    def run(text):
        page.write_text(text)
        return run_page(page, tmp_path)

    assert run("```sh\necho 7 modes  # a comment\n```\n\n```\n7 modes\n```\n").compared == 1
    for broken in (
        "```sh\nfalse\n```\n",
        "```sh\necho 7 modes\n```\n\n```\n8 modes\n```\n",
        "```sh\necho 7 modes\n```\n\n<!-- output: other figures -->\n```\n8 nodes\n```\n",
        "<!-- exit code: 1 or 2 -->\n```sh\ntrue\n```\n",
        "```sh\necho 'Traceback (most recent call last):'\n```\n",
        "```python\n1 + 1  # -> 3\n```\n",
    ):
        with pytest.raises(AssertionError):
            run(broken)


def test_lines_of_an_output_are_compared_in_order_with_their_figures():
    assert missing_line("a 1.00\n...\nc 3\n", "a 1.01\nb\nc 3\n", True) == ""
    assert missing_line("c 3\na 1\n", "a 1\nb\nc 3\n", True) == "a 1"
    assert not agrees("a 1.0", "a 1.1", True)
    assert agrees("a 1.0", "a  23", False)
    assert agrees("---- --- ...", "------  ---  ----", False)
    assert agrees("time 5 ms, since ...", "time 5 ms, since yesterday 4", True)
    assert not agrees("time 5 ms, by ...", "time 5 ms, since yesterday", True)
    assert shell_lines("a \\\n  b  # c\n\n# d\ne") == ["a    b", "# d", "e"]
