"""Files about the project: citation, archive, templates; each has the form that its readers require, and agrees."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Dict

import pytest

import harness
from tools.wheel import check_tag

pytestmark = pytest.mark.one_python

PROJECT = Path(__file__).resolve().parents[1]
TEMPLATES = PROJECT / ".github" / "ISSUE_TEMPLATE"

MOST_LINES = {"README.md": 120, "CHANGELOG.md": 60}
"""A screen and a half, and what a user would read of a version."""

ZENODO = {
    "type": "object",
    "required": ["title", "upload_type", "description", "creators", "license"],
    "additionalProperties": False,
    "properties": {
        "title": {"type": "string", "minLength": 10},
        "description": {"type": "string", "minLength": 50},
        "upload_type": {"const": "software"},
        "access_right": {"enum": ["open", "embargoed", "restricted", "closed"]},
        "license": {"const": "Apache-2.0"},
        "keywords": {"type": "array", "items": {"type": "string"}},
        "creators": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name"],
                "additionalProperties": False,
                "properties": {name: {"type": "string"} for name in ("name", "affiliation", "orcid")},
            },
        },
        "related_identifiers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["identifier", "relation"],
                "additionalProperties": False,
                "properties": {
                    "identifier": {"type": "string", "pattern": "^10\\.\\d{4,}/"},
                    "relation": {"enum": ["cites", "references", "isSupplementTo", "isDerivedFrom"]},
                    "resource_type": {"enum": ["publication-article", "publication-report", "software"]},
                },
            },
        },
    },
}
"""The fields of Zenodo's metadata that are used here, as its documentation of deposits describes them."""


def read(path: Path) -> Dict[str, Any]:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(path)


def is_valid(path: Path, *schema: str) -> bool:
    from check_jsonschema import main

    with pytest.raises(SystemExit) as ended:
        main([*schema, str(path)], standalone_mode=True)
    return ended.value.code == 0


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("CITATION.cff", "vendor.citation-file-format"),
        (".github/ISSUE_TEMPLATE/config.yml", "vendor.github-issue-config"),
        (".github/ISSUE_TEMPLATE/bug.yml", "vendor.github-issue-forms"),
        (".github/ISSUE_TEMPLATE/board.yml", "vendor.github-issue-forms"),
    ],
)
def test_a_file_is_valid_by_its_schema(name, schema):
    import check_jsonschema

    file = Path(check_jsonschema.__file__).parent / "builtin_schemas" / f"{schema.replace('.', '/')}.json"
    if not file.is_file():
        pytest.skip(f"this check-jsonschema has no {schema}: the newest for Python 3.8 is older")
    assert is_valid(PROJECT / name, "--builtin-schema", schema)


def test_the_metadata_of_the_archive_are_valid_and_agree_with_the_citation(tmp_path):
    schema, metadata = tmp_path / "zenodo.json", PROJECT / ".zenodo.json"
    schema.write_text(json.dumps(ZENODO))
    assert is_valid(metadata, "--schemafile", str(schema))
    archived, cited = json.loads(metadata.read_text(encoding="utf-8")), read(PROJECT / "CITATION.cff")
    assert archived["title"] == cited["title"]
    assert archived["license"] == cited["license"]
    assert archived["keywords"] == cited["keywords"]
    assert archived["description"].split() == cited["abstract"].split()
    assert [creator["name"] for creator in archived["creators"]] == [author["name"] for author in cited["authors"]]
    dois = {paper["doi"] for paper in cited["references"] if "doi" in paper}
    assert {related["identifier"] for related in archived["related_identifiers"]} == dois


def test_the_citation_has_this_version_and_the_five_papers():
    cited = read(PROJECT / "CITATION.cff")
    assert cited["version"] == harness.__version__
    papers = (PROJECT / "baselines" / "published" / "README.md").read_text(encoding="utf-8")
    titles = {paper["title"].partition(":")[0] for paper in cited["references"]}
    assert len(titles) == 5
    assert sorted(title for title in titles if title not in papers) == []


def test_a_bug_report_asks_for_doctors_output_and_a_board_report_for_the_record():
    for name, field, command in (("bug", "doctor", "doctor --json"), ("board", "record", "doctor --record")):
        form = read(TEMPLATES / f"{name}.yml")
        [asked] = [part for part in form["body"] if part.get("id") == field]
        assert asked["validations"]["required"] is True
        assert command in (TEMPLATES / f"{name}.yml").read_text(encoding="utf-8")


def test_a_tag_is_released_only_if_code_citation_and_changelog_have_its_version(tmp_path):
    for name in ("harness/__init__.py", "CITATION.cff", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    assert [fault.split()[0] for fault in check_tag.faults_of("v9.9", tmp_path)] == [
        "harness/__init__.py", "CITATION.cff", "CHANGELOG.md"
    ]  # fmt: skip
    for name, line in (
        ("harness/__init__.py", '__version__ = "9.9"'),
        ("CITATION.cff", "version: 9.9"),
        ("CHANGELOG.md", "## 9.9 (2031-01-02)"),
    ):
        text = (tmp_path / name).read_text(encoding="utf-8")
        text = re.sub(rf"^{re.split('[0-9]', line)[0]}.*$", line, text, count=1, flags=re.MULTILINE)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert check_tag.faults_of("v9.9", tmp_path) == []
    assert check_tag.main([]) == 2


@pytest.mark.parametrize("name", MOST_LINES)
def test_the_first_pages_stay_short(name):
    assert len((PROJECT / name).read_text(encoding="utf-8").splitlines()) <= MOST_LINES[name]
