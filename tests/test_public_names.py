"""The public names: the list of them is that of the code, and a change after 1.0.0 has an entry in CHANGELOG.md."""

from __future__ import annotations

import os

import pytest

import harness
from tests import public_names
from tests.golden.golden_files import REMAKE
from tests.messages import says
from tests.public_names import CHANGELOG, LIST, STUB, Listed

pytestmark = pytest.mark.one_python

VERSION = public_names.base_version(harness.__version__)


def test_the_list_has_the_names_of_the_code():
    text = LIST.read_text(encoding="utf-8")
    rows = public_names.read_list(text)
    names = public_names.public_names()
    if os.environ.get(REMAKE):
        released = public_names.is_released(CHANGELOG.read_text(encoding="utf-8"), VERSION)
        assert not released, f"{VERSION} is released: set harness.__version__ to the coming version first"
        LIST.write_text(public_names.write_list(public_names.update(rows, names, VERSION)), encoding="utf-8")
        STUB.write_text(public_names.write_stub(), encoding="utf-8")
        return
    listed = {(row.kind, row.name) for row in rows if not row.until}
    hint = f"{REMAKE}=1 pytest {__file__}, and name each in CHANGELOG.md (docs/promise.md)"
    assert not names - listed, f"new names: {sorted(names - listed)}; {hint}"
    assert not listed - names, f"removed names: {sorted(listed - names)}; {hint}"


def test_no_line_of_the_list_was_lost_or_written_by_hand():
    assert public_names.lost_lines(LIST.read_text(encoding="utf-8")) == []


def test_every_change_of_the_list_has_an_entry_in_the_changelog():
    rows = public_names.read_list(LIST.read_text(encoding="utf-8"))
    assert public_names.unexplained(rows, CHANGELOG.read_text(encoding="utf-8")) == []


OLD = Listed("1.0.0", "", "option", "fit --corpus")
SAMPLE = [OLD, Listed("1.0.0", "", "call", "fit")]
CHANGES = """# Changelog

## 2.0.0 (unreleased)

- `fit --corpus` is gone: use
  `--table`.

## 1.1.0 (2031-01-02)

- `fit` has the option `--table`; `fit --corpus` is deprecated.

## 1.0.0 (2030-01-02)

- The first.
"""


def test_a_new_name_needs_an_entry_of_its_version_that_names_it():
    rows = public_names.update(
        SAMPLE, {("option", "fit --corpus"), ("call", "fit"), ("option", "fit --table")}, "1.1.0"
    )
    assert [str(row).split() for row in rows if row not in SAMPLE] == [["1.1.0", "option", "fit", "--table"]]
    assert public_names.unexplained(rows, CHANGES) == []
    for lost in ("option `--table`", "`fit` has"):
        [fault] = public_names.unexplained(rows, CHANGES.replace(lost, "").replace("`fit --corpus` is dep", ""))
        assert says(fault, "option fit --table", "1.1.0")
    assert public_names.unexplained(rows, CHANGES.replace("1.1.0", "1.2.0")) != []
    assert public_names.unexplained(rows, CHANGES.replace("`--table`", "`--tables`")) != []


def test_a_name_is_removed_by_a_major_version_after_a_minor_one_deprecated_it():
    rows = public_names.update(SAMPLE, {("call", "fit")}, "2.0.0")
    assert rows[0] == OLD._replace(until="2.0.0")
    assert public_names.unexplained(rows, CHANGES) == []
    [fault] = public_names.unexplained(rows, CHANGES.replace("is deprecated", "is here"))
    assert says(fault, "2.0.0", "deprecated")
    [fault] = public_names.unexplained(rows, CHANGES.replace("`fit --corpus` is gone", "Less"))
    assert "2.0.0 in CHANGELOG.md" in fault
    early = public_names.update(SAMPLE, {("call", "fit")}, "1.2.0")
    assert "1.2.0 is not a major version" in "\n".join(public_names.unexplained(early, CHANGES))


def test_a_line_that_is_deleted_or_dated_back_by_hand_is_noticed():
    text = public_names.write_list(SAMPLE)
    assert public_names.lost_lines(text) == []
    assert public_names.read_list(text) == sorted(SAMPLE, key=lambda row: row.kind)
    kept = [line for line in text.splitlines() if "fit --corpus" not in line]
    assert public_names.lost_lines("\n".join(kept)) == ["1.0.0"]
    later = public_names.write_list([*SAMPLE, Listed("1.1.0", "", "option", "fit --table")])
    assert public_names.lost_lines(later.replace("1.1.0         option", "1.0.0         option")) == ["1.0.0", "1.1.0"]
    assert public_names.lost_lines(later.replace("# 1.1.0", "# ")) == ["1.1.0"]


def test_names_of_a_version_not_released_yet_come_and_go_freely():
    assert public_names.update(SAMPLE, {("call", "fit")}, "1.0.0") == SAMPLE[1:]
    assert public_names.is_released(CHANGES, "1.1.0")
    assert not public_names.is_released(CHANGES, "2.0.0")


def test_a_development_version_leads_to_the_version_that_the_list_names():
    assert public_names.base_version("1.1.0.dev0") == public_names.base_version("1.1.0") == "1.1.0"
