"""The results file keeps what was added, refuses what it cannot keep, and changes no file that is not its own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import resource
import sqlite3
import struct
import zlib
from pathlib import Path
from typing import Callable, Dict, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from harness.core.cases import INFERENCE, concurrent_case
from harness.core.errors import StoreError
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.profiles import Minibatch, Minibatches, Profile, Series, Telemetry
from harness.store import database, rows
from harness.store.conditions import comparable_conditions, key
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import CONDITIONS, ENVIRONMENT, make_profile, plain_dicts, profiles

KEY = key(comparable_conditions(CONDITIONS, make_profile().case))


@given(profile=profiles, environment=plain_dicts)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.exhaustive
def test_a_profile_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, profile: Profile, environment: Dict
) -> None:
    with ResultsStore(tmp_path_factory.mktemp("store") / "r.sqlite") as store:
        number = store.add(profile, environment, "run")
        [record] = store.records()
        assert store.profile(number) == profile
        assert list(store.profiles()) == [profile]
    assert (record.case, record.conditions, record.environment) == (profile.case, profile.conditions, environment)
    assert (record.aggregates, record.flags) == (profile.aggregates, profile.flags)


CASE_WITH_TEXT = rows.profile_row(make_profile(), "run", "2026-01-31T12:00:00+00:00").case_json.replace(
    '"batch_size":16', '"batch_size":"16"'
)


@pytest.mark.parametrize(
    ("column", "content"),
    [
        *(("aggregates_json", "[]"), ("aggregates_json", '{"power_mw": "9 W"}'), ("aggregates_json", "{")),
        *(("conditions_json", "[]"), ("conditions_json", 5000 * "[" + 5000 * "]")),
        *(("flags_json", "[1, null]"), ("flags_json", '{"a": 1}'), ("case_json", CASE_WITH_TEXT), ("case_json", "[]")),
        *(("created_at", "yesterday"), ("created_at", "0001-01-01T00:00:00+23:59"), ("telemetry_json", "[]")),
    ],
)
def test_a_row_that_holds_anything_else_is_damaged_whatever_its_checksum_says(
    tmp_path: Path, column: str, content: str
) -> None:
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        number = store.add(make_profile(), ENVIRONMENT, "run")
        [(_, row, environment)] = store._rows()
    row = row._replace(**{column: content})
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            f"UPDATE profiles SET {column} = ?, record_crc = ?", (content, rows.record_crc(row, environment))
        )
    with ResultsStore(path, read_only=True) as store, pytest.raises(StoreError, match="is damaged"):
        store.profile(number)


def test_an_environment_that_is_no_mapping_is_damaged() -> None:
    row = rows.profile_row(make_profile(), "run", "2026-01-31T12:00:00+00:00")
    with pytest.raises(StoreError, match="is damaged"):
        rows.to_record(1, row, "[1]", Path("r.sqlite"))


def test_a_case_is_stored_by_the_name_of_its_mode_alone(tmp_path: Path) -> None:
    case = make_profile().case
    named = NamedMode(case.power_mode.name, PowerMode(4, 1_600_000, 0, 0))
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for each in (case, case.in_mode(named)):
            store.add(dataclasses.replace(make_profile(), case=each), ENVIRONMENT, "run")
        by_name, resolved = store.records()
    assert dataclasses.asdict(resolved.case) == dataclasses.asdict(by_name.case)
    assert resolved.case.power_mode.mode == PowerMode(**CONDITIONS["power_mode"])  # as read back


def test_inference_in_a_mode_of_its_own_is_read_back_with_the_values_that_the_file_has(
    tmp_path: Path,
) -> None:
    slow = NamedMode("1c", PowerMode(1, 1_600_000, 0, 0))
    training = make_profile().case
    serving = dataclasses.replace(training, batch_size=4, task=INFERENCE)
    case = concurrent_case(training, serving.in_mode(slow), 20.0, 30.0)
    of_inference = {"power_mode": slow.mode._asdict(), "power_mode_name": "1c"}
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for own in (of_inference, {}, None, "damaged", {"power_mode": "damaged"}):
            made = make_profile(conditions={"inference": own})
            store.add(dataclasses.replace(made, case=case), ENVIRONMENT, "run")
        records = list(store.records())
    assert [record.case for record in records] == 5 * [case]
    unknown = PowerMode(0, 0, 0, 0)
    assert [record.case.inference_mode.mode for record in records] == [slow.mode, *4 * [unknown]]


def test_a_reopened_file_goes_on_and_records_come_in_the_order_of_adding_across_chunks(tmp_path: Path) -> None:
    profile = dataclasses.replace(make_profile(), minibatches=[], telemetry=Telemetry(1.0))
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(profile, ENVIRONMENT, "run0")
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for number in range(1, 300):
            store.add(profile, ENVIRONMENT, f"run{number}")
        assert [record.run_id for record in store.records()] == [f"run{number}" for number in range(300)]


def test_what_is_usable_follows_what_is_added_by_whichever_process(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store, ResultsStore(tmp_path / "r.sqlite") as other:
        for number, (batch_size, writer) in enumerate(((1, store), (2, other), (3, store), (3, other)), start=1):
            profile = make_profile(case={"batch_size": batch_size})
            writer.add(profile, ENVIRONMENT, "run")
            assert store.usable(key(comparable_conditions(CONDITIONS, profile.case))) == number


def test_asking_for_the_usable_one_again_reads_no_profile_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--resume` asks before each case of a sweep: of thousands of cases into a file of thousands of profiles."""
    read = []
    to_record = rows.to_record
    monkeypatch.setattr(rows, "to_record", lambda number, *rest: read.append(number) or to_record(number, *rest))
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for _ in range(3):
            store.add(make_profile(), ENVIRONMENT, "run")
            for _ in range(3):
                assert store.usable(KEY) == len(store)
    assert read == [1, 2, 3]


def test_equal_environments_are_stored_once(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for environment in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2}):
            store.add(make_profile(), environment, "run")
    with contextlib.closing(sqlite3.connect(str(tmp_path / "r.sqlite"))) as connection:
        assert connection.execute("SELECT count(*) FROM environments").fetchone() == (2,)


def test_a_closed_file_is_a_single_file_durable_and_tells_what_it_is(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(make_profile(), ENVIRONMENT, "run")
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        assert len(store) == 1
    assert os.listdir(str(tmp_path)) == ["r.sqlite"]
    with contextlib.closing(sqlite3.connect(str(tmp_path / "r.sqlite"))) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA application_id").fetchone() == (database.APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (database.VERSION,)


@pytest.mark.parametrize(
    "changes",
    [
        {"conditions": {"when": object()}},
        {"conditions": {"deep": {"er": [1, {2: 3}]}}},
        {"aggregates": {"minibatch_time_ms": float("nan")}},
        {"minibatches": [Minibatch(0, 0, "clean", 0.0, 1.0, 1.0, float("nan"))]},
    ],
)
def test_a_profile_that_cannot_be_stored_leaves_nothing(tmp_path: Path, changes: Dict) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        with pytest.raises(StoreError, match=r"lenet-mnist.*\.(when|deep\.er\[1\]|minibatch_time_ms) |minibatch 0"):
            store.add(dataclasses.replace(make_profile(), **changes), ENVIRONMENT, "run")
        assert len(store) == 0
        store.add(make_profile(), ENVIRONMENT, "run")
        assert len(store) == 1


def test_numpy_numbers_and_tuples_are_stored_as_plain_values(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(make_profile(conditions={"n": np.int64(3), "t": (np.float32(0.5), None)}), ENVIRONMENT, "run")
        [record] = store.records()
    assert (record.conditions["n"], record.conditions["t"]) == (3, [0.5, None])


def test_reading_only_refuses_a_file_that_is_not_there_or_a_folder_and_does_not_write(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        ResultsStore(tmp_path)
    with pytest.raises(StoreError, match="there is no results file"):
        ResultsStore(tmp_path / "r.sqlite", read_only=True)
    assert os.listdir(str(tmp_path)) == []
    ResultsStore(tmp_path / "r.sqlite").close()
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        with pytest.raises(StoreError):
            store.add(make_profile(), ENVIRONMENT, "run")
        with pytest.raises(StoreError, match="no profile 7"):
            store.profile(7)


def test_reading_only_sees_what_a_running_writer_has_added(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as writer:
        writer.add(make_profile(), ENVIRONMENT, "run")
        with ResultsStore(tmp_path / "r.sqlite", read_only=True) as reader:
            assert len(reader) == 1
            writer.add(make_profile(), ENVIRONMENT, "run")
            assert len(list(reader.profiles())) == 2
        writer.add(make_profile(), ENVIRONMENT, "run")
        assert len(writer) == 3


def damage(change: Callable[[bytearray], bytearray]) -> Callable[[Path], None]:
    """A function that makes a results file with ten profiles and changes its bytes."""

    def make(path: Path) -> None:
        with ResultsStore(path) as store:
            for _ in range(10):
                store.add(make_profile(), ENVIRONMENT, "run")
        path.write_bytes(bytes(change(bytearray(path.read_bytes()))))

    return make


def foreign(*statements: str) -> Callable[[Path], None]:
    """A function that makes an SQLite file by these statements."""

    def make(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return make


def overwrite(start: int, content: bytes) -> Callable[[bytearray], bytearray]:
    def change(data: bytearray) -> bytearray:
        data[start : start + len(content)] = content
        return data

    return change


BROKEN = {
    "truncated inside a page": (damage(lambda data: data[:-1000]), "damaged"),
    "truncated to a stump": (damage(lambda data: data[:50]), "damaged"),
    "beginning overwritten": (damage(overwrite(0, b"\0" * 64)), "header is damaged"),
    "first page overwritten": (damage(overwrite(100, b"\xff" * 3996)), "damaged"),
    "middle overwritten": (damage(overwrite(3 * 4096, b"\xff" * 4096)), "damaged"),
    "text": (lambda path: path.write_text("minibatch,time\n" * 50), "not a results file"),
    "another program's": (foreign("CREATE TABLE t (x)", "INSERT INTO t VALUES (1)"), "another program"),
    "another program's, with a log": (foreign("PRAGMA journal_mode=WAL", "CREATE TABLE t (x)"), "another program"),
    "an older version's": (
        foreign("CREATE TABLE t (x)", f"PRAGMA application_id={database.APPLICATION_ID}", "PRAGMA user_version=1"),
        "schema version 1; this version of jetwatt reads 2; read it with the jetwatt that wrote it",
    ),
    "a newer version's": (
        foreign("CREATE TABLE t (x)", f"PRAGMA application_id={database.APPLICATION_ID}", "PRAGMA user_version=99"),
        "schema version 99",
    ),
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_or_foreign_file_is_refused_and_unchanged(tmp_path: Path, name: str, read_only: bool) -> None:
    make, complaint = BROKEN[name]
    path = tmp_path / "r.sqlite"
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=complaint) as caught:
        ResultsStore(path, read_only=read_only)
    assert caught.value.hint
    assert path.read_bytes() == before
    assert os.listdir(str(tmp_path)) == ["r.sqlite"]


def test_content_overwritten_inside_a_valid_page_is_found_and_the_rest_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    marked = Telemetry(1.0, series={"mark_mw": Series((1.0, 2.0), (123456.789, 987654.321))})
    with ResultsStore(path) as store:
        numbers = [store.add(make_profile(), ENVIRONMENT, "run") for _ in range(2)]
        spoilt = store.add(dataclasses.replace(make_profile(), telemetry=marked), ENVIRONMENT, "run")
    data = path.read_bytes()
    encoded = struct.pack("<dd", 123456.789, 987654.321)
    assert data.count(encoded) == 1
    path.write_bytes(data.replace(encoded, encoded[::-1]))
    with ResultsStore(path, read_only=True) as store:
        for number in numbers:
            assert store.profile(number) == make_profile()
        with pytest.raises(StoreError, match=f"profile {spoilt} .*checksum"):
            store.profile(spoilt)


def test_an_environment_that_was_changed_or_lost_is_found(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        store.add(make_profile(), ENVIRONMENT, "run")
    for change in ("UPDATE environments SET content = '{}'", "DELETE FROM environments"):
        with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
            connection.execute(change)
        with ResultsStore(path, read_only=True) as store, pytest.raises(StoreError, match=r"profile 1 .* is damaged"):
            list(store.records())


def test_a_profile_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        store.add(make_profile(), ENVIRONMENT, "run")
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
        columns = ", ".join(rows.ProfileRow._fields)
        *found, environment = connection.execute(f"SELECT {columns}, content FROM profiles, environments").fetchone()
        row = rows.ProfileRow(*found)
        newer = row._replace(case_json=row.case_json.replace('"seed":0', '"seed":0,"warmth":1'))
        connection.execute(
            "UPDATE profiles SET case_json = ?, record_crc = ?", (newer.case_json, rows.record_crc(newer, environment))
        )
    with ResultsStore(path, read_only=True) as store, pytest.raises(StoreError, match="warmth, unknown"):
        list(store.records())


def test_a_file_that_may_not_be_written_is_refused_before_anything_is_measured(plain_user: Path) -> None:
    path = plain_user / "r.sqlite"
    with ResultsStore(path) as store:
        store.add(make_profile(), ENVIRONMENT, "run")
    path.chmod(0o444)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="may not write") as caught:
        ResultsStore(path)
    assert "give another results file" in caught.value.hint
    assert path.read_bytes() == before
    with ResultsStore(path, read_only=True) as store:
        assert len(store) == 1


def test_a_folder_that_may_not_be_written_is_refused(plain_user: Path) -> None:
    path = plain_user / "results" / "r.sqlite"
    with ResultsStore(path) as store:
        store.add(make_profile(), ENVIRONMENT, "run")
    path.parent.chmod(0o555)
    try:
        for refused in (path, path.parent / "new.sqlite", path.parent / "new" / "r.sqlite"):
            with pytest.raises(StoreError, match="may not write"):
                ResultsStore(refused)
        with ResultsStore(path, read_only=True) as store:
            assert list(store.profiles()) == [make_profile()]
    finally:
        path.parent.chmod(0o755)


def test_a_file_that_may_not_be_read_is_refused(plain_user: Path) -> None:
    path = plain_user / "r.sqlite"
    ResultsStore(path).close()
    path.chmod(0o000)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"r\.sqlite"):
            ResultsStore(path, read_only=read_only)


@contextlib.contextmanager
def no_file_beyond_300_kb(store: ResultsStore) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def full_disk(store: ResultsStore) -> Iterator[None]:
    store._connection.execute("PRAGMA max_page_count = 40")  # what SQLite says then is what it says of a full disk
    yield
    store._connection.execute("PRAGMA max_page_count = 1000000")


@pytest.mark.parametrize(
    ("limited", "words"), [(no_file_beyond_300_kb, "cannot write to"), (full_disk, "is full; make room on it")]
)
def test_a_write_that_fails_loses_that_profile_alone(tmp_path: Path, limited: Callable, words: str) -> None:
    draw = random.Random(0).random
    long = make_profile(times_ms=[100.0 + draw() for _ in range(20_000)])
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(make_profile(), ENVIRONMENT, "run")
        with limited(store), pytest.raises(StoreError, match=words):
            store.add(long, ENVIRONMENT, "run")
        assert list(store.profiles()) == [make_profile()]
        store.add(long, ENVIRONMENT, "run")
        assert list(store.profiles()) == [make_profile(), long]


def test_what_was_disturbed_is_not_done(tmp_path: Path) -> None:
    """`--resume` measures it again, until a profile is neither disturbed nor throttled."""
    with ResultsStore(tmp_path / "r.sqlite") as store:
        flagged = (["disturbed: a"], ["throttled: b", "noisy: c"], ["noisy: c"], ["disturbed: a"], [])
        for flags, done in zip(flagged, (None, None, 3, 3, 5)):
            store.add(make_profile(flags=flags), ENVIRONMENT, "run")
            assert store.usable(KEY) == done
        assert store.usable("unknown") is None


def test_minibatches_take_a_quarter_of_what_rows_took(tmp_path: Path) -> None:
    draw = random.Random(0).random
    times_ms = [100.0 + draw() for _ in range(2000)]
    minibatches = make_profile(times_ms).minibatches
    packed = rows.pack(Minibatches.of(minibatches))
    assert len(packed) < 122 / 4 * len(minibatches)
    assert rows.unpack(packed) == minibatches


ONE = zlib.compress(bytes(8 * 7))


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[1]\n", b"[-1, []]\n", b'[1000000000, ["clean"]]\nx', b'[1, ["clean"]]\n\0'),
        *(b'[1, ["' + b"x" * 1000 + b'"]]\n' + ONE, b'[1, [["clean"]]]\n' + ONE),
    ],
)
def test_packed_minibatches_that_are_damaged_or_mean_harm_are_refused(tmp_path: Path, content: bytes) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(make_profile(), ENVIRONMENT, "run")
        _, series = store._raw(1)
        store._connection.execute("UPDATE minibatch_columns SET content = ?", (content,))
        with pytest.raises(StoreError, match=r"profile 1 of .* is damaged: its checksum"):
            store.profile(1)
        store._connection.execute("UPDATE profiles SET raw_crc = ?", (rows.crc([(content,)], series),))
        with pytest.raises(StoreError, match=r"profile 1 of .* is damaged \("):
            store.profile(1)
