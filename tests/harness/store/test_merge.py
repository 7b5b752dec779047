"""`results merge`, `info` and `prune`: nothing is lost and nothing twice; raw series last as long as asked."""

from __future__ import annotations

import datetime
import json
import sqlite3
from pathlib import Path
from typing import Any, List

import pytest

from harness.__main__ import main
from harness.core.errors import StoreError
from harness.judge.case_frame import read_frame
from harness.store.frames import profiles
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says


def night(path: Path, instance: str = "orin3", count: int = 3, **changes: Any) -> Path:
    with ResultsStore(path) as store:
        for batch_size in range(1, count + 1):
            case = {"device": "orin-agx", "batch_size": batch_size}
            profile = make_profile(case=case, conditions={"board_instance": instance, **changes})
            store.add(profile, {**ENVIRONMENT, "night": path.name}, f"run of {path.name}")
    return path


def content(path: Path) -> List[Any]:
    """Every profile with its raw series, run and environment."""
    with ResultsStore(path, read_only=True) as store:
        return [(one.run_id, one.created_at, one.environment, store.profile(one.id)) for one in store.records()]


def merge(*paths: Path, code: int = 0) -> None:
    *sources, out = map(str, paths)
    assert main(["results", "merge", *sources, "--out", out]) == code


def test_a_merged_file_has_every_profile_once_with_raw_series_run_and_software(tmp_path):
    first, second, out = night(tmp_path / "a"), night(tmp_path / "b", "orin4"), tmp_path / "out"
    merge(first, second, out)
    merge(second, first, out, out)
    assert content(out) == content(first) + content(second)
    night(second, "orin4", count=1)
    merge(first, second, out)
    assert content(out) == content(first) + content(second)


def test_of_a_damaged_file_nothing_is_taken_and_the_others_are(tmp_path, capsys):
    first, damaged, last, out = (night(tmp_path / name) for name in ("a", "b", "c", "out"))
    before = content(out)
    with sqlite3.connect(str(damaged)) as connection:
        connection.execute("UPDATE minibatch_columns SET content = substr(content, 1, 99) WHERE profile_id = 3")
    merge(first, damaged, last, out, code=2)
    assert content(out) == before + content(first) + content(last)
    assert "left out: profile 3 of" in capsys.readouterr().err


def test_a_merge_that_is_cut_short_is_finished_by_the_next(tmp_path, monkeypatch):
    first, second, out = night(tmp_path / "a"), night(tmp_path / "b"), tmp_path / "out"
    packed = ResultsStore._packed

    def dies(store, number):
        if store.path == second and number == 2:
            raise KeyboardInterrupt
        return packed(store, number)

    with monkeypatch.context() as patch:
        patch.setattr(ResultsStore, "_packed", dies)
        merge(first, second, out, code=130)
    assert content(out) == content(first)
    merge(first, second, out)
    assert content(out) == content(first) + content(second)


def test_the_newest_of_a_case_is_the_one_that_was_stored_last_whatever_the_order_of_merging(tmp_path):
    old, new, out = night(tmp_path / "old", count=1), night(tmp_path / "new", count=1), tmp_path / "out"
    merge(new, old, out)
    with ResultsStore(out, read_only=True) as store:
        assert profiles(store)["run_id"].tolist() == ["run of old", "run of new"]
        assert profiles(store, newest_only=True)["run_id"].tolist() == ["run of new"]


def test_what_is_pruned_keeps_its_figures_and_is_no_longer_compared(tmp_path, capsys):
    path = night(tmp_path / "r", count=2)
    with sqlite3.connect(str(path)) as connection:
        long_ago = (datetime.datetime.now() - datetime.timedelta(days=40)).isoformat()
        connection.execute("UPDATE profiles SET created_at = ? WHERE id = 1", (long_ago,))
        row = connection.execute("SELECT * FROM profiles WHERE id = 1").fetchone()
    with ResultsStore(path) as store:
        _resum(store, row)
        before = profiles(store)
        assert main(["results", "prune", str(path), "--keep-raw", "30d"]) == 0
        after = profiles(store)
        assert after["minibatch_time_ms"].tolist() == before["minibatch_time_ms"].tolist()
        assert [found.partition(":")[0] for found in after["flags"]] == ["raw-pruned", ""]
        assert (store.profile(1).minibatches, store.profile(1).telemetry.series) == ([], {})
        assert len(store.profile(2).minibatches) == 41
        assert list(read_frame(store)["time"]) == [100.0, 100.0]
    assert main(["results", "prune", str(path), "--keep-raw", "4w"]) == 0
    assert says(capsys.readouterr().out.splitlines()[1], "0 profiles", "0.0 MB")
    assert main(["baseline", "record", "--results", str(path), "--baseline", str(tmp_path / "b.json")]) == 0
    assert "2 cases" not in capsys.readouterr().out


def _resum(store: ResultsStore, row: Any) -> None:
    """Make the checksum of profile 1 fit what was changed by hand."""
    with pytest.raises(StoreError, match=r"its checksum is (-?\d+)") as told:
        list(store.records())
    crc = int(str(told.value).partition("checksum is ")[2].partition(",")[0])
    store._connection.execute("UPDATE profiles SET record_crc = ? WHERE id = 1", (crc,))


def test_info_tells_boards_software_and_flags_and_sends_no_control_character(tmp_path, capsys):
    path = night(tmp_path / "r", "a\x1b[2J\u202e", jetpack="6.2")
    night(path, "orin4", count=1)
    assert main(["results", "info", str(path)]) == 0
    said = capsys.readouterr().out
    assert r"a\x1b[2J\u202e" in said
    assert not {"\x1b", "\u202e"} & set(said)
    assert main(["results", "info", str(path), "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert (told["profiles"], told["runs"]) == (4, 1)
    boards = [(one["board_instance"], one["jetpack"], one["profiles"]) for one in told["boards"]]
    assert boards == [("a\x1b[2J\u202e", "6.2", 3), ("orin4", None, 1)]


@pytest.mark.parametrize("age", ["30", "-1d", "1y"])
def test_an_age_is_written_in_days_or_weeks(tmp_path, age, capsys):
    assert main(["results", "prune", str(night(tmp_path / "r")), f"--keep-raw={age}"]) == 2
    assert "30d, 8w" in capsys.readouterr().err


def test_info_counts_flags_and_removed_series_apart_and_names_the_suite_that_measured(tmp_path, capsys):
    path = tmp_path / "r.sqlite"
    software = {**ENVIRONMENT, "jetwatt": "0.2.0", "suite_commit": "4d9889b+"}
    with ResultsStore(path) as store:
        store.add(make_profile(), software, "run a")
        store.prune("9999", "raw-pruned: minibatches and telemetry were removed")
        store.add(make_profile(flags=["disturbed: others took 2 cores"]), software, "run b")
    assert main(["results", "info", str(path), "--json"]) == 0
    [summary] = json.loads(capsys.readouterr().out)
    [board] = summary["boards"]
    assert (board["profiles"], board["runs"], board["flagged"], board["raw_pruned"]) == (2, 2, 1, 1)
    assert board["jetwatt"] == "0.2.0 4d9889b+"


def test_info_of_an_empty_file_has_no_dates(tmp_path, capsys):
    ResultsStore(tmp_path / "r.sqlite").close()
    assert main(["results", "info", str(tmp_path / "r.sqlite"), "--json"]) == 0
    [summary] = json.loads(capsys.readouterr().out)
    assert (summary["profiles"], summary["runs"], summary["stored"], summary["boards"]) == (0, 0, [], [])
