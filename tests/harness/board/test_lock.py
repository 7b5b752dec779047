"""One run per device: the second is told who runs, and a lock never outlives its process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

from harness.board import bounded_reads, lock
from harness.board.lock import locked
from harness.core.errors import ControlError
from tests.harness.board.killed import is_open


@pytest.fixture(autouse=True)
def in_the_folder_of_the_test(tmp_path, monkeypatch):
    monkeypatch.setenv(lock.LOCK_DIR_VARIABLE, str(tmp_path))


@pytest.fixture
def holder():
    """A process that holds the lock of `host`."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with locked("host"):
            os.write(write_end, b"locked")
            signal.pause()
    os.read(read_end, 6)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_second_run_is_told_who_holds_the_device(holder):
    who = rf"host is in use by process {holder} of user {os.getuid()} since \d{{4}}-\d\d-\d\dT.*: .*python"
    with pytest.raises(ControlError, match=who), locked("nano"), locked("host"):  # another device is free
        pytest.fail("two runs at once")


def test_a_killed_run_leaves_no_lock_with_its_workers():
    """DataLoader workers notice only after seconds that their parent was killed."""
    read_end, write_end = os.pipe()
    run = os.fork()
    if run == 0:
        with locked("host"):
            if os.fork() == 0:
                os.write(write_end, str(os.getpid()).encode())
            signal.pause()
    worker = int(os.read(read_end, 20))
    try:
        os.kill(run, signal.SIGKILL)
        os.waitpid(run, 0)
        with locked("host"):
            os.kill(worker, 0)  # it lives
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(read_end)
        os.close(write_end)


def test_a_worker_that_ends_in_the_block_frees_nothing():
    try:
        with locked("host"):
            worker = os.fork()
            if worker == 0:
                number = os.dup(0)  # may get the number that the lock's file had
                raise SystemExit  # unwinds the worker's own copy of this block
            assert os.WEXITSTATUS(os.waitpid(worker, 0)[1]) == 0
            with pytest.raises(ControlError, match="host is in use by process"), locked("host"):
                pytest.fail("the worker has freed its parent's lock")
    except SystemExit:
        os._exit(0 if is_open(number) else 1)  # nor has it closed a file of its own


def test_a_lock_can_be_taken_again_while_a_worker_of_the_run_before_lives():
    with locked("host"):
        worker = os.fork()
        if worker == 0:
            signal.pause()
    try:
        with locked("host"):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def test_an_error_in_the_run_frees_the_device():
    with pytest.raises(ValueError, match="of the run"), locked("host"):
        raise ValueError("of the run")
    with locked("host"):
        pass


def test_every_user_may_lock(tmp_path):
    umask = os.umask(0o077)
    try:
        with locked("host"):
            pass
    finally:
        os.umask(umask)
    assert (tmp_path / "jetwatt-host.lock").stat().st_mode & 0o666 == 0o666


@pytest.mark.parametrize(
    "lay",
    [
        lambda path: path.symlink_to(path.with_name("precious")),
        lambda path: path.symlink_to("nowhere"),
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
        lambda path: os.close(os.open(path, os.O_CREAT, 0o600)),
    ],
    ids=["link", "dangling link", "pipe", "folder", "file that is closed to others"],
)
def test_what_another_laid_in_the_way_holds_nobody_up_and_all_runs_pass_over_it(tmp_path, lay):
    (tmp_path / "precious").write_text("content")
    lay(tmp_path / "jetwatt-host.lock")
    refused = pytest.raises(ControlError, match="host is in use")
    with locked("host"), refused, locked("host"):
        pytest.fail("two runs at once")
    assert (tmp_path / "precious").read_text() == "content"
    assert not (tmp_path / "nowhere").exists()


def test_what_stands_in_the_file_is_neither_believed_nor_changed(holder, tmp_path):
    """A user may write there what clears a terminal, or blames another process."""
    file = tmp_path / "jetwatt-host.lock"
    file.write_text("process 1 \x1b]0;owned\x07")
    with pytest.raises(ControlError, match=f"in use by process {holder} ") as caught, locked("host"):
        pytest.fail("two runs at once")
    assert "\x1b" not in str(caught.value)
    assert "JETWATT_LOCK_DIR" not in caught.value.hint  # with a lock of its own, a run would change the same board
    assert file.read_text().endswith("owned\x07")


def test_the_command_of_a_holder_reaches_the_terminal_as_printable_text(tmp_path):
    (tmp_path / "jetwatt-host.lock").touch()
    (tmp_path / "jetwatt-host.lock").chmod(0o666)
    hold = "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    # What is printed of a command is its beginning, and the path of an interpreter may be long: it has another name.
    command = ["python\x1b[2J\u202e", "-c", hold, str(tmp_path / "jetwatt-host.lock")]
    with subprocess.Popen(
        command,
        executable=sys.executable,
        env={**os.environ, "PYTHONHOME": sys.base_prefix},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        refused = pytest.raises(ControlError, match=rf"process {process.pid} .*x1b\[2J")
        with refused as caught, locked("host"):
            pytest.fail("two runs at once")
        process.stdin.close()
    assert str(caught.value).isprintable()


def test_the_usual_place_is_one_that_every_user_can_write(tmp_path, monkeypatch):
    for_root, for_all = tmp_path / "root", tmp_path / "all"
    for_root.mkdir(mode=0o755)
    for_all.mkdir()
    for_all.chmod(0o1777)
    monkeypatch.delenv(lock.LOCK_DIR_VARIABLE)
    monkeypatch.setattr(lock, "_OPEN_TO_ALL", (str(tmp_path / "none"), str(for_root), str(for_all)))
    assert lock.default_lock_dir() == for_all
    for_all.chmod(0o755)
    with pytest.raises(ControlError, match="can be written by every user"):
        lock.default_lock_dir()


def test_a_folder_that_cannot_lock_is_said_with_the_way_out(monkeypatch):
    def refused(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refused)
    with pytest.raises(ControlError, match="No locks available") as caught, locked("host"):
        pytest.fail("not locked")
    assert lock.LOCK_DIR_VARIABLE in caught.value.hint


def test_a_holder_whose_command_cannot_be_read_holds_nobody_up(holder, monkeypatch):
    """The kernel waits with it for memory that a process in state D holds."""
    released = threading.Event()
    monkeypatch.setattr(bounded_reads, "WAIT_S", 0.02)
    monkeypatch.setattr(bounded_reads, "HANG_S", 0.1)
    monkeypatch.setattr(lock.Path, "read_bytes", lambda path: released.wait(60))
    with pytest.raises(ControlError, match=f"in use by process {holder};"), locked("host"):
        pytest.fail("two runs at once")
    released.set()
