"""A file is replaced as a whole, and is on the medium before anyone relies on it."""

from __future__ import annotations

import errno
import os
import resource
import stat

import pytest

from harness.core.errors import StoreError
from harness.core.files import remove_durably, write_durably, write_output
from harness.store.results import ResultsStore
from tests.another_user import give_away


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "folder" / "state.json"
    path.parent.mkdir()
    path.write_text("old")
    return path


@pytest.fixture
def calls(monkeypatch):
    """What was asked of the system, in order: what was synced, replaced and removed."""
    log = []

    def watch(name, describe):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *arguments, **options: (log.append(describe(*arguments)), real(*arguments))[1]
        )

    watch("fsync", lambda fd: "sync directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync file")
    watch("replace", lambda source, target: "replace")
    return log


def test_the_text_is_on_the_medium_before_the_name_and_the_name_before_the_return(file, calls):
    write_durably(file, b"new")
    assert calls == ["sync file", "replace", "sync directory"]
    assert file.read_text() == "new"
    assert os.listdir(file.parent) == ["state.json"]


def test_what_another_laid_where_the_draft_goes_is_replaced_not_followed(file):
    victim = file.parent.parent / "victim"
    victim.write_text("as it was")
    file.with_name(f".{file.name}.{os.getpid()}.part").symlink_to(victim)
    write_durably(file, b"new")
    assert (victim.read_text(), file.read_text(), file.is_symlink()) == ("as it was", "new", False)


def test_a_link_of_another_user_is_not_followed(file, monkeypatch):
    link = file.with_name("link")
    link.symlink_to(file)
    write_durably(link, b"own link")
    assert (link.is_symlink(), file.read_text()) == (True, "own link")
    file.parent.chmod(0o1777)
    give_away(link, monkeypatch)
    with pytest.raises(StoreError, match="link of another user"):
        write_output(link, b"theirs")
    assert file.read_text() == "own link"


def test_nothing_is_written_through_a_link_of_another_user(file, tmp_path, monkeypatch):
    """A folder of the path may be such a link, too."""
    shared = tmp_path / "shared"
    shared.mkdir()
    folder = shared / "folder"
    folder.symlink_to(file.parent)
    shared.chmod(0o1777)
    give_away(folder, monkeypatch)
    with pytest.raises(StoreError, match="link of another user"):
        ResultsStore(folder / "r.sqlite")
    with pytest.raises(StoreError, match="link of another user"):
        write_output(folder / "new", b"theirs")
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_removal_is_on_the_medium_before_the_return(file, calls):
    remove_durably(file)
    assert calls == ["sync directory"]
    assert not file.exists()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_text(file, monkeypatch, step):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_durably(file, b"new")
    assert file.read_text() == "old"


def test_a_file_that_cannot_be_written_to_its_end_leaves_the_old_one(tmp_path):
    path = tmp_path / "f.txt"
    write_output(path, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(StoreError, match=r"cannot write .*f\.txt"):
            write_output(path, b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"old"
    assert os.listdir(str(tmp_path)) == ["f.txt"]


def test_folders_are_made_but_not_in_place_of_a_file(tmp_path):
    write_output(tmp_path / "a" / "f", b"new")
    assert (tmp_path / "a" / "f").read_bytes() == b"new"
    with pytest.raises(StoreError, match="cannot write"):
        write_output(tmp_path / "a" / "f" / "g.txt", b"new")
