"""What the documents name is there: files, tests, and links between them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
DOCUMENTS = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "baselines/README.md")]
DOCUMENTS += sorted((PROJECT / "docs").glob("*.md"))
ROOTS = ("", "harness", "tests", "tests/harness")
"""A document names files from here, and from its own folder."""


def is_there(name: str, folder: Path) -> bool:
    return any((root / name).exists() for root in [folder, *(PROJECT / root for root in ROOTS)])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_links_of_a_document_exist(document):
    text = document.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|toml|csv|md))(?:`|::)", text)
    named = [name for name in named if not re.search(r"[A-Z]{3,}\.|^out/|/me\.json|/media/", name)]
    assert [name for name in [*links, *named] if name and not is_there(name, document.parent)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_a_document_names_exist(document):
    for name, test in re.findall(r"`([\w./-]*test_\w+\.py)::(\w+)", document.read_text(encoding="utf-8")):
        files = [PROJECT / root / name for root in ROOTS if (PROJECT / root / name).is_file()]
        assert files, f"{document.name} names {name}"
        assert f"def {test}(" in files[0].read_text(encoding="utf-8"), f"{document.name} names {name}::{test}"
