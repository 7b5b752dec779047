"""The page cache: dropped by those who may, evicted by anyone, and the way out named where it is closed."""

from __future__ import annotations

import pytest

from harness.board import privileges
from harness.board.page_cache import PageCache, residency
from harness.core.errors import ControlError, DataSetError
from tests.harness.board.privileged_user import DROP, needs_linux

DROP_FILE = "proc/sys/vm/drop_caches"


def test_all_of_it_is_dropped_by_writing_3(tree):
    tree.write({DROP_FILE: 0})
    cache = PageCache(tree.root)
    assert cache.available().available
    assert cache.drop() == f"3 written to {tree.path / DROP_FILE}"
    assert (tree.path / DROP_FILE).read_text() == "3\n"


def test_a_tree_elsewhere_is_never_dropped_through_sudo(user, plain_user):
    log = user()
    cache = PageCache(str(plain_user))
    assert not cache.available().available
    with pytest.raises(ControlError, match="drop_caches was refused: No such file"):
        cache.drop()
    assert not log.exists()


@needs_linux
def test_a_user_drops_it_through_the_helper(user):
    log = user()
    cache = PageCache()
    assert cache.available().detail == f"dropped through {DROP}"
    assert cache.drop() == f"3 written to {DROP}"
    assert log.read_text().splitlines()[-1] == f"-n {privileges.HELPER} write page-cache - 3"


@needs_linux
def test_a_user_without_the_rule_is_shown_what_prints_it(nothing_installed):
    capability = PageCache().available()
    assert not capability.available
    assert "doctor --sudoers" in capability.hint
    assert "evicted needs no right" in capability.hint
    with pytest.raises(ControlError, match=r"write page-cache - 3` needs root: .*doctor --sudoers"):
        PageCache().drop()


@needs_linux
def test_given_files_leave_the_cache_and_others_stay(tmp_path):
    kept, evicted = tmp_path / "kept", tmp_path / "evicted"
    for path in (kept, evicted):
        path.write_bytes(b"x" * 100_000)
    PageCache().evict([evicted])
    if residency([evicted]).share == 1.0:
        pytest.skip("this file system is the page cache (tmpfs): nothing can be evicted from it")
    assert residency([evicted]).share == 0.0
    assert residency([kept]).share == 1.0


def test_a_file_that_vanished_is_named(tmp_path):
    with pytest.raises(DataSetError, match="gone cannot be opened"):
        PageCache().evict([tmp_path / "gone"])
