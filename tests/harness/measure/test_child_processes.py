"""Processes of a case end, or are left behind; workers have sockets, or the case is refused before it begins."""

from __future__ import annotations

import multiprocessing
import tempfile
import time

import pytest

from harness.core.errors import CannotRunError
from harness.measure.child_processes import check_sockets, end_workers


class Held:
    """A process that the kernel holds (state D): no signal ends it, and no wait for it returns."""

    pid = 4711
    exitcode = None

    def kill(self):
        pass

    def join(self, timeout):
        time.sleep(timeout)


def test_a_process_that_the_kernel_holds_is_left_behind_and_python_does_not_wait_for_it():
    children = multiprocessing.process._children
    held = Held()
    children.add(held)
    try:
        assert end_workers([held], within_s=0.05) == [4711]
        assert held not in children  # which Python joins without a limit when it ends
    finally:
        children.discard(held)


class Ending(Held):
    def kill(self):
        self.exitcode = -9
        raise RuntimeError("DataLoader worker (pid 4711) is killed by signal: Killed.")  # as torch's handler of SIGCHLD


def test_a_process_that_ends_is_not():
    assert end_workers([Ending(), Ending()], within_s=60.0) == []


def own_folder(patch):
    """Have multiprocessing make a folder for its sockets, as in a new process."""
    process = multiprocessing.current_process()
    patch.setattr(process, "_config", {name: value for name, value in process._config.items() if name != "tempdir"})


def test_a_folder_that_is_too_long_for_sockets_is_named_before_a_case(tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    with monkeypatch.context() as patch:
        own_folder(patch)
        # Newer Pythons take another folder by themselves if this one is too long.
        patch.setattr("multiprocessing.util._get_base_temp_dir", lambda given: str(folder), raising=False)
        with pytest.raises(CannotRunError) as refused:
            check_sockets()
    assert str(folder) in refused.value.what
    assert "TMPDIR" in refused.value.hint
