"""A written folder is whole or not there, is found again, and is never written twice at the same time."""

import errno
import fcntl
import multiprocessing
import os
import shutil
import threading
import time

import pytest

from harness.core.errors import DataSetError
from harness.workloads.data import written_folder
from harness.workloads.data.written_folder import MANIFEST, find_or_write, reported
from tests.another_user import give_away

CONDITIONS = {"samples": 3, "seed": 0, "version": 1}


def write_three(folder):
    """Write three small files, one of them in a folder."""
    (folder / "inner").mkdir()
    for name in ("a", "b", "inner/c"):
        (folder / name).write_text(name * 10)
    return "written"


def find(storage_dir, write=write_three, expected_bytes=30, conditions=None, lines=None):
    lines = [] if lines is None else lines
    return find_or_write(storage_dir, "toy", conditions or CONDITIONS, expected_bytes, write, lines.append)


def never(folder):
    raise AssertionError(f"{folder} was written again")


def test_a_whole_folder_is_found_without_a_lock_as_on_a_medium_that_cannot_be_written(tmp_path):
    folder, source = find(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "inner", MANIFEST]
    lock = next(tmp_path.glob(".*.lock"))
    lock.unlink()
    lock.mkdir()  # cannot be opened as a file
    assert find(tmp_path, write=never) == (folder, source)
    assert find(tmp_path, conditions={**CONDITIONS, "seed": 1})[0] != folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a", ""),
        ("inner/c", "cut off"),
        *((MANIFEST, text) for text in ("{", "[]", '{"conditions": {}, "files": {}, "source": "x"}')),
    ],
)
def test_a_damaged_folder_is_noticed_and_written_again(tmp_path, name, text):
    folder, _ = find(tmp_path)
    (folder / name).unlink()
    if text:
        (folder / name).write_text(text)
    lines = []
    find(tmp_path, lines=lines)
    assert (folder / "a").read_text() == "a" * 10
    assert (folder / "inner" / "c").read_text() == "inner/c" * 10
    assert "damaged" in lines[0]


def test_a_folder_of_somebody_else_is_refused_and_kept(tmp_path):
    folder, _ = find(tmp_path)
    (folder / MANIFEST).unlink()
    with pytest.raises(DataSetError, match="in the way"):
        find(tmp_path)
    assert (folder / "a").exists()


# What another user of the machine may have laid there.


@pytest.fixture
def shared(tmp_path):
    """A place where every user may make files, as /tmp is."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_a_lock_that_is_a_link_empties_no_file(tmp_path):
    storage, victim = tmp_path / "storage", tmp_path / "victim"
    folder, _ = find(storage)
    shutil.rmtree(folder)
    victim.write_text("as it was")
    lock = next(storage.glob(".*.lock"))
    lock.unlink()
    lock.symlink_to(victim)
    with pytest.raises(DataSetError, match=r"symbolic links: .*\.lock"):
        find(storage)
    lock.unlink()
    os.link(victim, lock)
    find(storage)
    assert victim.read_text() == "as it was"


def test_a_folder_in_a_shared_place_is_for_its_user_alone(shared):
    find(shared / "data")
    assert (shared / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "lay",
    [
        give_away,
        lambda place, monkeypatch: place.chmod(0o777),
        lambda place, monkeypatch: (place.rename(place.with_name("elsewhere")), place.symlink_to("elsewhere")),
    ],
    ids=["another user's", "open to all", "a link"],
)
def test_a_folder_in_a_shared_place_that_others_may_change_is_refused(shared, monkeypatch, lay):
    place = shared / "data"
    place.mkdir(mode=0o700)
    lay(place, monkeypatch)
    with pytest.raises(DataSetError, match=r"shared/data: .*another user .*another storage"):
        find(place, write=never)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupted_write_leaves_nothing_and_the_next_one_succeeds(tmp_path, error):
    def write_half(folder):
        (folder / "a").write_text("half")
        raise error

    with pytest.raises((KeyboardInterrupt, DataSetError), match=r"No space left|^$"):
        find(tmp_path, write=write_half)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    folder, _ = find(tmp_path)
    assert (folder / "a").read_text() == "a" * 10


FORKS = multiprocessing.get_context("fork")


def test_a_killed_writer_leaves_a_partial_folder_that_the_next_one_clears(tmp_path):
    began = FORKS.Event()

    def write_and_hang(folder):
        write_three(folder)
        began.set()
        time.sleep(60)

    writer = FORKS.Process(target=find, args=(tmp_path, write_and_hang))
    writer.start()
    assert began.wait(30)
    writer.kill()
    writer.join()
    assert [path.suffix for path in tmp_path.iterdir() if path.is_dir()] == [".partial"]
    folder, _ = find(tmp_path)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [folder]


def test_of_several_writers_at_once_one_writes_and_all_find_it(tmp_path):
    written = FORKS.Value("i", 0)

    def write_slowly(folder):
        with written.get_lock():
            written.value += 1
        time.sleep(0.3)
        return write_three(folder)

    writers = [FORKS.Process(target=find, args=(tmp_path, write_slowly)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert written.value == 1


def test_a_full_medium_is_an_error_with_the_numbers_before_anything_is_written(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=50 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataSetError, match=r"110 MiB.*50 MiB free.*--data-scale"):
        find(tmp_path, write=never, expected_bytes=100 * 2**20)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_progress_tells_how_many_are_done_and_how_long_it_takes():
    times_s = iter([0.0, 0.1, 1.0, 2.5, 3.0])
    lines = []
    assert list(reported("abcd", "toy", 4, "images", lines.append, clock=lambda: next(times_s))) == list("abcd")
    assert lines == ["writing toy: 2 of 4 images, 2 s left"]


def test_a_writer_that_was_stopped_is_not_waited_for_and_one_that_writes_is(tmp_path, monkeypatch):
    monkeypatch.setattr(written_folder, "IDLE_S", 0.2)
    monkeypatch.setattr(written_folder, "WAIT_S", 0.02)
    folder, _ = find(tmp_path)
    path = tmp_path / f".{folder.name}.lock"
    shutil.rmtree(folder)
    partial = tmp_path / f".{folder.name}.partial"
    partial.mkdir()
    with path.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataSetError, match="has written nothing for") as refused:
            find(tmp_path)
        assert str(path) in refused.value.hint
        ended = threading.Event()

        def write():
            for number in range(30):
                (partial / str(number)).write_text("more")
                time.sleep(0.02)
            fcntl.flock(lock, fcntl.LOCK_UN)
            ended.set()

        threading.Thread(target=write).start()
        assert find(tmp_path)[0] == folder
        assert ended.is_set()
