"""The page cache: dropped by those who may, evicted by anyone; residency is what the kernel says, or unknown."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from pathlib import Path

import pytest

from harness.board import page_cache
from harness.board.page_cache import PageCache, residency
from harness.core.errors import ControlError, DataSetError
from tests.harness.board.privileged_user import needs_linux
from tests.messages import says

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks this machine's kernel")

DROP_FILE = "proc/sys/vm/drop_caches"


def test_all_of_it_is_dropped_by_writing_3(tree):
    tree.write({DROP_FILE: 0})
    cache = PageCache(tree.root)
    assert cache.available().available
    assert cache.drop() == f"3 written to {tree.path / DROP_FILE}"
    assert (tree.path / DROP_FILE).read_text() == "3\n"


@needs_linux
def test_a_user_without_the_rule_is_shown_what_prints_it(nothing_installed):
    capability = PageCache().available()
    assert not capability.available
    assert "doctor --sudoers" in capability.hint
    assert "evicted needs no right" in capability.hint
    with pytest.raises(ControlError, match=r"page-cache - 3` .*root.*doctor --sudoers"):
        PageCache().drop()


@pytest.fixture
def write(tmp_path):
    """Write a file of some size to the disk and return its path; just written, it is in the page cache."""

    def write_file(name, size):
        path = tmp_path / name
        path.write_bytes(b"x" * size)
        return path

    return write_file


def test_files_just_written_are_resident_to_the_byte(write):
    files = [write("small", 1), write("odd", 3 * mmap.PAGESIZE + 7), write("even", 2 * mmap.PAGESIZE)]
    size = 5 * mmap.PAGESIZE + 8
    assert residency(files) == (size, size, "")
    assert residency(files).share == 1.0


def test_evicted_files_are_not(write):
    kept, evicted = write("kept", 4 * mmap.PAGESIZE), write("evicted", 12 * mmap.PAGESIZE)
    PageCache().evict([evicted])
    measured = residency([kept, evicted])
    if measured.share == 1.0:
        pytest.skip("this file system is the page cache (tmpfs): nothing can be evicted from it")
    assert measured == (4 * mmap.PAGESIZE, 16 * mmap.PAGESIZE, "")
    assert measured.share == 0.25


def test_empty_files_have_no_share(write):
    assert residency([write("empty", 0)]) == (0, 0, "")
    assert residency([write("empty", 0)]).share is None
    assert residency([]).share is None


def test_a_file_that_vanished_is_named(write, tmp_path):
    files = [write("there", 1), tmp_path / "gone"]
    for use in (residency, PageCache().evict):
        with pytest.raises(DataSetError, match=r"gone cannot be opened .*: No such file"):
            use(files)


def test_what_the_kernel_does_not_tell_is_unknown(write, tree, monkeypatch):
    """The file of another user that this one may not write, seen without the privilege to."""
    tree.write({"proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000"})
    monkeypatch.setattr(page_cache, "_kernel_tells_all", lambda release: False)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "access", lambda path, mode, effective_ids: False)
    path = write("foreign", 5)
    hidden = residency([path], tree.root)
    assert (hidden.resident_bytes, hidden.total_bytes, hidden.share) == (None, 5, None)
    assert says(hidden.reason, path, "own the file", "write access")


def test_a_file_that_cannot_be_mapped_is_unknown(write, monkeypatch):
    """Files in sysfs, like those of some network file systems, have a size and no mapping."""
    monkeypatch.setattr(page_cache, "_kernel_tells_all", lambda release: True)
    unmappable = Path("/sys/devices/system/cpu/online")
    size = unmappable.stat().st_size
    assert size > 0
    with unmappable.open("rb") as file, contextlib.suppress(OSError):
        mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ).close()
        pytest.skip("/sys is not the kernel's here: its files can be mapped")
    resident_bytes, total_bytes, reason = residency([unmappable, write("plain", 5)])
    assert (resident_bytes, total_bytes) == (None, size + 5)
    assert says(reason, unmappable, f"{size} bytes", "No such device")


def test_the_right_to_act_as_any_owner_is_read_from_the_process(write, tree, monkeypatch):
    tree.write({"proc/self/status": "CapEff:\t0000000000000008"})
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "access", lambda path, mode, effective_ids: False)
    assert residency([write("foreign", 5)], tree.root) == (5, 5, "")


@pytest.mark.parametrize(
    ("release", "tells"), [("4.9.337-tegra", True), ("5.1.21", True), ("5.2-rc1", False), ("5.10.104-tegra", False)]
)
def test_kernels_before_5_2_answer_for_every_file(release, tells):
    assert page_cache._kernel_tells_all(release) is tells
