"""Archives of old nights: equal to what was stored, in the format that other tools read, after any interruption too."""

from __future__ import annotations

import dataclasses
import datetime
import os
import shutil
import signal
from pathlib import Path
from typing import Any, Dict, List

import pytest
from hypothesis import given, settings

from harness.__main__ import main
from harness.core.errors import StoreError
from harness.core.profiles import Series
from harness.judge.history import read_history, to_plain
from harness.store import archive as module
from harness.store import frames
from harness.store.archive import ArchiveFile, archive_results, files_of_archive
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile, profiles
from tests.harness.store.test_store_processes import start_child

parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # numpy's threads are idle here

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.timezone.utc)


def make_night(folder: Path, month: int, day: int = 1, boards: Any = ("orin3",)) -> Path:
    path = folder / f"2026-{month:02}-{day:02}" / "night.sqlite"
    path.parent.mkdir(parents=True)
    with ResultsStore(path) as store:
        for number, board in enumerate(boards):
            case = {"device": "orin-agx", "batch_size": 16}
            profile = make_profile([100.0 + day] * 12, case=case, conditions={"board_instance": board})
            store.add(
                profile, ENVIRONMENT, f"run {month}-{day}", f"2026-{month:02}-{day:02}T02:00:0{number}.000000+00:00"
            )
        store.keep_verdicts({("orin-agx", "claim"): '{"verdict": "confirmed"}'})
    return path


def archive(folder: Path, **options: Any) -> Any:
    return archive_results(folder, **{"older_than": 30, "now": NOW, **options})


def everything(paths: List[Path]) -> Dict[Any, Any]:
    """All profiles of results files and archives, by what identifies them."""
    content: Dict[Any, Any] = {}
    for path in paths:
        with module.open_stored(path) as store:
            for record in store.records():
                profile = store.profile(record.id)
                series = {name: (own.times_s, own.values) for name, own in profile.telemetry.series.items()}
                content[record.run_id, record.created_at] = (record.environment, repr(profile), list(series))
    return content


def nights_of(folder: Path) -> List[Path]:
    return sorted(folder.rglob("*.sqlite"))


@pytest.mark.exhaustive
@given(profile=profiles)
@settings(max_examples=8)
@pytest.mark.long
def test_any_profile_is_read_back_in_every_bit(tmp_path_factory, profile):
    folder = tmp_path_factory.mktemp("nights")
    with ResultsStore(folder / "night.sqlite") as store:
        store.add(profile, ENVIRONMENT, "run", "2026-01-01T00:00:00.000000+00:00")
        expected, record = repr(store.profile(1)), next(store.records())
    assert archive(folder).nights == 1
    [file] = files_of_archive(folder)
    with ArchiveFile(file) as stored:
        assert repr(stored.profile(1)) == expected
        assert next(stored.records()) == record
    with ResultsStore(folder / "again.sqlite") as again, ArchiveFile(file) as stored:
        assert again.merge(stored) == (1, 0)
        assert repr(again.profile(1)) == expected
    shutil.rmtree(folder)


@pytest.mark.parametrize("channel", ["\0", "power\0", "", "\0power"], ids=["nul", "last", "empty", "first"])
def test_a_channel_is_read_back_whatever_its_name(tmp_path, channel):
    """Hypothesis found that NumPy drops NULs at the end of a text."""
    profile = make_profile()
    assert len(repr(profile)) < 200  # in a notebook: neither its minibatches nor its telemetry
    series = {channel: Series((0.0, 1.0), (2.0, 3.0)), "power": Series((0.5,), (4.0,))}
    telemetry = dataclasses.replace(profile.telemetry, series=series)
    with ResultsStore(tmp_path / "night.sqlite") as store:
        store.add(
            dataclasses.replace(profile, telemetry=telemetry), ENVIRONMENT, "run", "2026-01-01T00:00:00.000000+00:00"
        )
    assert archive(tmp_path).nights == 1
    [file] = files_of_archive(tmp_path)
    with ArchiveFile(file) as stored:
        assert stored.profile(1).telemetry.series == series


@pytest.mark.parametrize(
    ("condition", "value", "message"),
    [
        ("tpc_mask", [], "tpc_mask of profile 1 is [], expected a number"),
        ("threads", 2**70, f"threads of profile 1 is {2**70}, expected a number"),
        ("power_mode", "maxn", "power_mode of profile 1 is 'maxn', expected a table"),
    ],
)
def test_a_night_with_a_condition_of_another_kind_stays_and_is_named(tmp_path, condition, value, message):
    night = tmp_path / "night.sqlite"
    with ResultsStore(night) as store:
        profile = make_profile(conditions={condition: value})
        store.add(profile, ENVIRONMENT, "run", "2026-01-01T00:00:00.000000+00:00")
    archived = archive(tmp_path)
    assert archived.nights == 0
    assert night.exists()
    [reason] = archived.left_out
    assert f"night.sqlite: {message}" in reason


def test_old_nights_are_moved_and_young_ones_stay(tmp_path, capsys):
    old = [make_night(tmp_path, 1), make_night(tmp_path, 1, 2), make_night(tmp_path, 2, boards=("orin3", "o/rin 4"))]
    young = make_night(tmp_path, 5, 20)
    before = everything(nights_of(tmp_path))
    archived = archive(tmp_path)
    assert (archived.nights, archived.profiles, archived.left_out) == (3, 4, [])
    assert nights_of(tmp_path) == [young]
    files = files_of_archive(tmp_path)
    assert sorted(str(file.parent.relative_to(tmp_path / "archive")) for file in files) == [
        "board=orin-agx%40o%2Frin%204/month=2026-02",
        "board=orin-agx%40orin3/month=2026-01",
        "board=orin-agx%40orin3/month=2026-02",
    ]
    assert everything([*files, young]) == before
    with ArchiveFile(files[-1]) as file:
        assert file.verdicts[str(old[2].relative_to(tmp_path))][0][0] == '{"verdict": "confirmed"}'
    assert archive(tmp_path).nights == 0
    assert main(["results", "archive", str(tmp_path), "--older-than", "0d"]) == 0
    assert "1 night with 1 profile archived" in capsys.readouterr().out
    assert main(["results", "merge", str(tmp_path), "--out", str(tmp_path / "all.sqlite")]) == 0
    assert everything([tmp_path / "all.sqlite"]) == before


def test_history_is_the_same_before_and_after(tmp_path):
    for day in range(1, 4):
        make_night(tmp_path, 1, day)
    make_night(tmp_path, 5, 30)
    before = to_plain(read_history([tmp_path]))
    assert len(before["series"][0]["runs"]) == 4
    archive(tmp_path)
    assert [to_plain(read_history([tmp_path], index=index)) for index in (True, True, False)] == [before] * 3
    shutil.rmtree(tmp_path / "archive")
    assert to_plain(read_history([tmp_path])) != before


def test_pandas_reads_an_archive_as_a_table_with_its_partitions(tmp_path):
    pd = pytest.importorskip("pandas")
    make_night(tmp_path, 1)
    make_night(tmp_path, 2)
    with ResultsStore(tmp_path / "2026-02-01" / "night.sqlite", read_only=True) as store:
        expected = frames.telemetry(store), frames.minibatches(store)
    archive(tmp_path)
    table = pd.read_parquet(tmp_path / "archive")
    assert table["month"].astype(str).tolist() == ["2026-01", "2026-02"]
    assert set(table["board"].astype(str)) == {"orin-agx@orin3"}
    assert table["minibatch_time_ms"].tolist() == [101.0] * 2
    telemetry = table.iloc[[1]][["telemetry_channel", "telemetry_time_s", "telemetry_value"]].explode(
        ["telemetry_channel", "telemetry_time_s", "telemetry_value"]
    )
    assert telemetry.to_numpy().tolist() == expected[0][["channel", "time_s", "value"]].to_numpy().tolist()
    assert table["minibatch_e2e_ms"][1].tolist() == expected[1]["e2e_ms"].tolist()


@pytest.mark.parametrize("moment", ["replace_durably", "remove_durably", "_is_same", "ArchiveFile"])
def test_a_killed_run_loses_nothing_and_the_next_one_ends_it(tmp_path, moment, monkeypatch):
    """The run is killed at the second call of a step: of two nights, one may then be in the archive."""
    for day in (1, 2):
        make_night(tmp_path, 1, day, ("orin3", "orin4"))
    before = everything(nights_of(tmp_path))
    history = to_plain(read_history([tmp_path], index=False))
    later = everything([make_night(tmp_path, 1, 3)])
    (tmp_path / "2026-01-03").rename(tmp_path.parent / f"{tmp_path.name}-later")

    def work() -> None:
        step, calls = getattr(module, moment), []

        def dies(*arguments: Any) -> Any:
            calls.append(arguments)
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*arguments)

        setattr(module, moment, dies)
        archive(tmp_path)

    monkeypatch.setattr(module, "_PORTION", 3)
    _, status = os.waitpid(start_child(work), 0)
    assert os.WIFSIGNALED(status)
    assert everything([*nights_of(tmp_path), *files_of_archive(tmp_path)]) == before
    assert to_plain(read_history([tmp_path], index=False)) == history
    monkeypatch.setattr(module, "_PORTION", 100)
    (tmp_path.parent / f"{tmp_path.name}-later").rename(tmp_path / "2026-01-03")  # so that files have other nights
    archive(tmp_path)
    assert nights_of(tmp_path) == []
    files = files_of_archive(tmp_path)
    assert everything(files) == {**before, **later}
    rows = sum(parquet.read_metadata(str(file)).num_rows for file in files)
    assert rows == len(before) + len(later), "a profile is there twice"
    assert list(tmp_path.rglob("*.part")) == []


def test_a_night_that_cannot_be_archived_stays_and_is_named(tmp_path, monkeypatch, capsys):
    make_night(tmp_path, 1)
    written = make_night(tmp_path, 1, 2)
    (tmp_path / "foreign.sqlite").write_text("hello")
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "2026-01-01" / "night.sqlite")
    ResultsStore(tmp_path / "empty.sqlite").close()
    with ResultsStore(written) as writer:
        writer.add(make_profile(), ENVIRONMENT, "run", "2026-01-02T00:00:00.000000+00:00")
        archived = archive(tmp_path)
    assert archived.nights == 1
    reasons = " ".join(archived.left_out)
    assert [word in reasons for word in ("being written", "not a results file", "is a link", "no profiles")] == [
        True
    ] * 4
    assert written.exists()
    monkeypatch.setattr(module, "_is_same", lambda *_: False)
    with pytest.raises(StoreError, match="cannot be archived exactly"):
        archive(tmp_path)
    assert written.exists()
    assert main(["results", "archive", str(tmp_path / "nowhere"), "--older-than", "1d"]) == 2
    assert "not a folder" in capsys.readouterr().err


def test_a_night_that_is_written_to_while_it_is_archived_stays_until_the_next_run(tmp_path, monkeypatch):
    night, add = make_night(tmp_path, 1), module._add

    def add_while_a_run_writes(*arguments: Any) -> int:
        size = add(*arguments)
        with ResultsStore(night) as writer:
            writer.add(make_profile(), ENVIRONMENT, "late run", "2026-01-01T03:00:00.000000+00:00")
        return size

    with monkeypatch.context() as patch:
        patch.setattr(module, "_add", add_while_a_run_writes)
        archived = archive(tmp_path)
    assert (archived.nights, "was written to while it was archived" in archived.left_out[0]) == (0, True)
    expected = everything([night])
    assert len(expected) == 2
    assert archive(tmp_path).nights == 1
    assert everything(files_of_archive(tmp_path)) == expected


def test_two_runs_do_not_write_to_one_archive(tmp_path):
    make_night(tmp_path, 1)
    with module._locked(tmp_path / "archive"), pytest.raises(StoreError, match="another process writes"):
        archive(tmp_path)
    assert len(nights_of(tmp_path)) == 1


def test_a_damaged_or_foreign_file_of_an_archive_is_refused(tmp_path):
    import pyarrow

    make_night(tmp_path, 1)
    archive(tmp_path)
    [file] = files_of_archive(tmp_path)
    whole = parquet.read_table(str(file))
    place = whole.schema.get_field_index("created_at")
    changes = {
        "damaged": whole.set_column(place, "created_at", pyarrow.array(["2026-01-09T00:00:00+00:00"])),
        "version b'9'": whole.replace_schema_metadata({module.FORMAT: b"9"}),
        "not a file of an archive": whole.replace_schema_metadata({}),
    }
    for problem, table in changes.items():
        parquet.write_table(table, str(file))
        with pytest.raises(StoreError, match=problem), ArchiveFile(file) as stored:
            list(stored.records())
    series = whole.schema.get_field_index("telemetry_value")
    doubled = [[2 * value for value in values] for values in whole["telemetry_value"].to_pylist()]
    parquet.write_table(whole.set_column(series, "telemetry_value", pyarrow.array(doubled)), str(file))
    with ArchiveFile(file) as stored, pytest.raises(StoreError, match="checksum is wrong"):
        stored.profile(1)
    file.write_bytes(b"PAR1 hello PAR1")
    make_night(tmp_path, 5)
    [reason] = read_history([tmp_path]).left_out
    assert str(file) in reason


def test_a_long_or_strange_name_of_a_board_is_a_folder_of_its_own():
    names = [module._board("orin-agx", instance) for instance in ("x" * 300, "x" * 299 + "y", "..", "\ud800", None)]
    assert len(set(names)) == 5
    assert all(len(name.encode()) < 255 and "/" not in name for name in names)
    assert module._board("sim:orin-agx@2", "2") == "sim%3Aorin-agx%402"
