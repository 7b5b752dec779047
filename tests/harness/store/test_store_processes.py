"""The results file among processes: killed in the middle of writing, writing at the same time, forked."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import time
from pathlib import Path
from typing import Callable, List

import pytest

from harness.core.errors import StoreError
from harness.core.profiles import Profile
from harness.store import database
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # numpy's threads are idle here

KILLS = 24
LONGEST_LIFE_S = 0.06


def profile_number(number: int) -> Profile:
    """A profile that differs from every other: by its times, its batch size, and the length of its series."""
    return make_profile([100.0 + number] * (40 + number % 300), case={"batch_size": number + 1})


def start_child(work: Callable[[], None]) -> int:
    """Fork a process that does `work` and ends without any clean-up of this one's."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def write_until_killed(path: Path, first: int, reports: int) -> None:
    """Open the file and add profiles number `first` on, reporting each number once `add` has returned."""
    with ResultsStore(path) as store:
        number = first
        while True:
            store.add(profile_number(number), ENVIRONMENT, "run")
            os.write(reports, f"{number}\n".encode())
            number += 1


def kill_while_writing(path: Path, first: int, life_s: float, once_stored: bool) -> List[int]:
    """Let a process write for a while (from its first report on), kill it, and return the numbers that it reported."""
    reading, writing = os.pipe()
    child = start_child(lambda: write_until_killed(path, first, writing))
    os.close(writing)
    if once_stored:
        select.select([reading], [], [])
    time.sleep(life_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer ended by itself"
    with os.fdopen(reading) as reports:
        return [int(line) for line in reports.read().split()]


def check_integrity(path: Path) -> None:
    connection = sqlite3.connect(str(path))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


@pytest.mark.exhaustive
def test_kill_9_loses_at_most_the_profile_being_written(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    moments = random.Random(0)
    stored: List[int] = []
    for kill in range(KILLS):
        reported = kill_while_writing(path, len(stored), moments.uniform(0, LONGEST_LIFE_S), once_stored=kill % 2 == 0)
        check_integrity(path)
        with ResultsStore(path) as store:
            found = {record.case.batch_size - 1: record.id for record in store.records()}
            assert all(store.profile(found[number]) == profile_number(number) for number in reported)
        known = [*stored, *reported]
        assert list(found) in (known, [*known, len(known)]), "lost a profile, or has one that nobody wrote"
        stored = list(found)
    assert len(stored) >= KILLS // 2
    with ResultsStore(path, read_only=True) as store:
        assert all(profile == profile_number(number) for number, profile in enumerate(store.profiles()))


@pytest.mark.exhaustive
def test_kill_9_while_the_file_is_being_made_leaves_a_file_to_go_on_with(tmp_path: Path) -> None:
    moments = random.Random(1)
    for attempt in range(KILLS):
        path = tmp_path / f"r{attempt}.sqlite"
        reported = kill_while_writing(path, 0, moments.uniform(0, LONGEST_LIFE_S / 4), once_stored=False)
        with ResultsStore(path) as store:
            assert len(store) in (len(reported), len(reported) + 1)
            store.add(profile_number(999), ENVIRONMENT, "run")
            assert list(store.profiles())[-1] == profile_number(999)


def test_several_processes_make_and_fill_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out" / "r.sqlite"
    each, writers = 15, 4

    def write(writer: int) -> None:
        with ResultsStore(path) as store:
            for number in range(each):
                store.add(profile_number(number), ENVIRONMENT, f"run{writer}")

    children = [start_child(lambda writer=writer: write(writer)) for writer in range(writers)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * writers
    check_integrity(path)
    with ResultsStore(path, read_only=True) as store:
        runs = [record.run_id for record in store.records()]
        assert len(list(store.profiles())) == each * writers
    assert all(runs.count(f"run{writer}") == each for writer in range(writers))


def test_a_forked_child_may_not_use_its_parents_connection(tmp_path: Path) -> None:
    def use(store: ResultsStore) -> None:
        with pytest.raises(StoreError, match="opened by another process"):
            store.add(make_profile(), ENVIRONMENT, "run")

    with ResultsStore(tmp_path / "r.sqlite") as store:
        assert os.waitpid(start_child(lambda: use(store)), 0)[1] == 0
        store.add(make_profile(), ENVIRONMENT, "run")
        assert len(store) == 1


def test_a_file_held_too_long_by_another_process_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.sqlite"
    ResultsStore(path).close()
    monkeypatch.setattr("harness.store.database.BUSY_TIMEOUT_S", 0.05)
    with ResultsStore(path) as store:
        holder = sqlite3.connect(str(path), isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has held it"):
            store.add(make_profile(), ENVIRONMENT, "run")
        holder.execute("ROLLBACK")
        holder.close()
        store.add(make_profile(), ENVIRONMENT, "run")
        assert len(store) == 1


class Refusing:
    """A connection of a file system that refuses locks some times."""

    def __init__(self, connection: sqlite3.Connection, times: int) -> None:
        self._connection, self.times = connection, times

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, *words: object) -> object:
        if self.times > 0:
            self.times -= 1
            raise sqlite3.OperationalError("locking protocol")
        return self._connection.execute(*words)


def test_a_lock_that_a_networks_file_system_refuses_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.store.database._RETRY_S", 0.0)
    path, refusals = tmp_path / "r.sqlite", [3]
    connect = database._connect

    def refusing(*words: object) -> object:
        connection = Refusing(connect(*words), refusals[0])  # type: ignore[arg-type]
        refusals[0] = 0 if refusals[0] < 99 else 99
        return connection

    monkeypatch.setattr("harness.store.database._connect", refusing)
    with ResultsStore(path) as store:
        store._connection.times = 2  # type: ignore[attr-defined]
        store.add(make_profile(), ENVIRONMENT, "run")
        store._connection.times = 2  # type: ignore[attr-defined]
        assert len(store) == 1
    monkeypatch.setattr("harness.store.database.LOCKING_S", 0.0)
    refusals[0] = 99
    with pytest.raises(StoreError, match="local disk, not on NFS"):
        ResultsStore(path)
