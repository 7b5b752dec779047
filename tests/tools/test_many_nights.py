"""Nights that are made for measurements: files like real ones, and boards that are in the index only."""

from __future__ import annotations

import pytest

from harness.judge import history_index
from harness.judge.history import read_history
from harness.judge.profile_columns import microseconds
from harness.store.frames import profiles
from harness.store.results import ResultsStore
from tools.many_nights import WORKLOADS, add_boards, make_nights


@pytest.mark.exhaustive
def test_nights_differ_and_boards_of_the_index_count(tmp_path, monkeypatch):
    monkeypatch.setattr(history_index, "SETTLED_NS", 0)
    make_nights(tmp_path / "board1", nights=2, cases=len(WORKLOADS))
    files = sorted(tmp_path.rglob("*.sqlite"))
    tables = []
    for file in files:
        with ResultsStore(file, read_only=True) as store:
            tables.append(profiles(store))
            assert store.profile(1).minibatches
    first, second = tables
    assert first["case_id"].tolist() == second["case_id"].tolist()
    assert (first["minibatch_time_ms"] != second["minibatch_time_ms"]).all()
    assert (first["power_mw"] != second["power_mw"]).all()
    days = [microseconds(table["created_at"].iloc[0]) for table in tables]
    assert days[1] - days[0] == 24 * 3600 * 10**6

    add_boards(tmp_path, 2, 3)
    histories = read_history([tmp_path])
    assert histories.left_out == []
    assert {series.board_instance for series in histories.series} == {"1", "2", "3"}
    assert len(histories.series) == 3 * len(WORKLOADS) * 2
    assert all(len(series.points) == 2 for series in histories.series)
