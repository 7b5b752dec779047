"""The page cache: dropped by those who may, evicted by anyone, and the way out named where it is closed."""

from __future__ import annotations

import os
import pwd
import sys

import pytest

from harness.control.page_cache import DROP_COMMAND, PageCache, sudo_rule
from harness.errors import ControlError, DataSetError
from harness.telemetry.page_cache_residency import residency

DROP_FILE = "proc/sys/vm/drop_caches"


def test_all_of_it_is_dropped_by_writing_3(tree):
    tree.write({DROP_FILE: 0})
    cache = PageCache(tree.root)
    assert cache.available().available
    assert cache.drop() == f"3 written to {tree.path / DROP_FILE}"
    assert (tree.path / DROP_FILE).read_text() == "3\n"


def test_a_tree_elsewhere_is_never_dropped_through_sudo(tree, fake_sudo, tmp_path):
    log = fake_sudo(tmp_path)
    cache = PageCache(tree.root)
    capability = cache.available()
    assert not capability.available
    with pytest.raises(ControlError, match="drop_caches was refused: No such file"):
        cache.drop()
    assert not log.exists()


@pytest.fixture
def fake_sudo(monkeypatch):
    """Put a `sudo` in a directory and on the PATH that writes down its arguments, then refuses or not."""

    def install(directory, refuses=False):
        log = directory / "log"
        ending = "echo 'sudo: a password is required' >&2; exit 1" if refuses else "exit 0"
        sudo = directory / "sudo"
        sudo.write_text(f'#!/bin/sh\necho "called with $*" >> {log}\n{ending}\n')
        sudo.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        return log

    return install


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks this machine's kernel")


@needs_linux
def test_a_user_drops_it_through_the_one_sudo_command(plain_user, fake_sudo):
    log = fake_sudo(plain_user)
    cache = PageCache()
    assert cache.available().detail == f"dropped by `sudo {' '.join(DROP_COMMAND)}`"
    assert cache.drop() == f"sudo {' '.join(DROP_COMMAND)}"
    assert log.read_text().splitlines() == [
        f"called with -n -l {' '.join(DROP_COMMAND)}",
        f"called with -n {' '.join(DROP_COMMAND)}",
    ]


@needs_linux
def test_a_user_without_the_rule_is_shown_it(plain_user, fake_sudo):
    fake_sudo(plain_user, refuses=True)
    cache = PageCache()
    assert not cache.available().available
    assert sudo_rule() in cache.available().way_out
    with pytest.raises(ControlError, match="a password is required") as caught:
        cache.drop()
    assert f"echo '{sudo_rule()}' | sudo tee /etc/sudoers.d/" in caught.value.way_out


@needs_linux
def test_a_user_without_sudo_is_shown_the_rule(plain_user, monkeypatch):
    monkeypatch.setenv("PATH", str(plain_user))
    with pytest.raises(ControlError, match="it is not installed"):
        PageCache().drop()


@needs_linux
def test_a_path_that_may_not_be_searched_is_no_way_to_sudo(plain_user, monkeypatch):
    closed = plain_user / "closed"
    closed.mkdir(mode=0)
    monkeypatch.setenv("PATH", str(closed))
    try:
        assert not PageCache().available().available
        with pytest.raises(ControlError, match="sudo says: it cannot be run: Permission denied"):
            PageCache().drop()
    finally:
        closed.chmod(0o755)


def test_a_user_without_a_name_is_known_by_number(monkeypatch):
    """As in a container that was started with `--user 1234`."""

    def no_entry(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    assert sudo_rule().startswith(f"#{os.getuid()} ALL=(root) NOPASSWD: ")


def test_the_rule_allows_one_command_and_no_other():
    user, _, command = sudo_rule().partition(" ALL=(root) NOPASSWD: ")
    assert user
    assert command == "/usr/sbin/sysctl -w vm.drop_caches=3"


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
