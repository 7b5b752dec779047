"""The frames of a results file: every profile as its record says, and one rule for which of them count."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any, Iterator

import pytest

from harness.core.cases import Case
from harness.core.corpus import CORPUS, TASKS
from harness.core.power_modes import NamedMode, PowerMode
from harness.store import frames
from harness.store.frames import FURTHER, MINIBATCH_COLUMNS, common_conditions, minibatches, profiles, telemetry
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultsStore]:
    with ResultsStore(tmp_path / "r.sqlite") as opened:
        yield opened


def add(store: ResultsStore, **changes: Any) -> int:
    return store.add(make_profile(**changes), ENVIRONMENT, "run")


def test_an_empty_file_has_every_column(store: ResultsStore) -> None:
    frame = profiles(store)
    assert frame.empty
    assert [*frame][: len(CORPUS) + len(FURTHER)] == [column.name for column in (*CORPUS, *FURTHER)]
    assert [*minibatches(store)] == list(MINIBATCH_COLUMNS)
    assert [*telemetry(store)] == ["profile_id", "channel", "time_s", "value"]


def test_every_column_is_documented() -> None:
    with Path(frames.__file__).with_name("columns.csv").open(encoding="utf-8", newline="") as file:
        assert [row["column"] for row in csv.DictReader(file) if not row["meaning"]] == []


def test_a_profile_is_a_row_with_what_it_ran_under(store: ResultsStore) -> None:
    settings = {"data_scale": 0.5, "max_temperature_c": 80.0}
    made = {"device": "sim:orin-agx@2"}
    number = add(store, case=made, settings=settings, conditions={"board": "orin-agx"}, flags=["noisy: a; b"])
    row = profiles(store).loc[number]
    assert (row["device"], row["device_name"], row["board_instance"]) == ("orin-agx", "sim:orin-agx@2", "2")
    assert (row["data_scale_asked"], row["max_temperature_c"]) == (0.5, 80.0)
    assert row[["idle_s", "limit_s", "storage_limit_bytes_per_s"]].isna().all()
    assert (row["flag_list"], row["flag_kinds"], row["usable"]) == (("noisy: a; b",), ("noisy",), True)
    assert isinstance(row["case"], Case)
    assert row["comparable"]["data_samples"] == row["data_samples"] == 640
    assert row["environment"] == ENVIRONMENT


def test_boards_of_a_type_have_their_own_labels_where_there_are_several(store: ResultsStore) -> None:
    for device, told in (("nano", {"board_instance": "a"}), ("nano", {"board_instance": "b"}), ("tx2", {})):
        add(store, case={"device": device}, conditions=told)
    add(store, case={"device": "host"}, conditions={"board_instance": "c"})
    frame = profiles(store)
    assert frame["device_label"].tolist() == ["nano@a", "nano@b", "tx2", "host"]
    assert frame["board_instance"].tolist() == ["a", "b", None, "c"]
    assert frame["key"].nunique() == 4


def test_what_does_not_count_is_left_out_and_counted(store: ResultsStore) -> None:
    old, new = add(store), add(store)
    disturbed = add(store, flags=["disturbed: by others"])
    idle = {"task": "concurrent"}, {"minibatches": None, "duration_s": 5.0}
    concurrent = add(store, case=idle[0], settings=idle[1])
    replayed = add(store, provenance="replayed")
    assert profiles(store).index.tolist() == [old, new, concurrent, replayed]
    assert profiles(store, include_flagged=True).index.tolist() == [old, new, disturbed, concurrent, replayed]
    kept = profiles(store, newest_only=True, timed=True, tasks=TASKS, replayed=False)
    assert kept.index.tolist() == [new]
    left_out = {"flagged": 1, "older": 1, "without time": 0, "other task": 1, "replayed": 1}
    assert kept.attrs["left_out"] == left_out


def test_the_newest_of_a_mode_with_two_names_is_kept_under_both(store: ResultsStore) -> None:
    for name in ("maxn", "2c", "maxn"):
        add(store, case={"power_mode": NamedMode(name, PowerMode(2, 0, 0, 0))})
    assert profiles(store, newest_only=True)["power_mode"].tolist() == ["2c", "maxn"]


def test_rows_are_comparable_where_the_conditions_that_nobody_named_agree(store: ResultsStore) -> None:
    for workers, samples, seed in ((0, 640, 0), (4, 640, 1), (4, 9999, 0)):
        add(store, case={"workers": workers}, settings={"seed": seed}, conditions={"data_samples": samples})
    frame = profiles(store)
    first, second, larger = common_conditions(frame, vary=["workers"], ignore=["seed"])
    assert first == second != larger
    first, second, larger = common_conditions(frame, vary=["workers", "data_samples"])
    assert first == larger != second


def test_raw_series_are_those_that_were_stored(store: ResultsStore) -> None:
    made = make_profile([100.0, 110.0])
    number = add(store, times_ms=[100.0, 110.0])
    add(store)
    frame = minibatches(store, [number])
    assert frame["e2e_ms"].tolist() == [one.e2e_ms for one in made.minibatches]
    assert frame["counted"].tolist() == [False, True, True]
    samples = telemetry(store, [number], ["cpu_own_cores"])
    assert set(samples["profile_id"]) == {number}
    assert samples["value"].tolist() == [0.5, 2.0]
    assert set(telemetry(store)["channel"]) == set(made.telemetry.series)


def test_of_whole_epochs_the_later_ones_count_and_columns_keep_their_kinds_without_a_row(store: ResultsStore) -> None:
    made = make_profile([100.0, 110.0], settings={"minibatches": None, "epochs": 2})
    later = [minibatch._replace(epoch=1) for minibatch in made.minibatches[1:]]
    number = store.add(dataclasses.replace(made, minibatches=[*made.minibatches, *later]), ENVIRONMENT, "run")
    frame = minibatches(store, [number])
    assert frame["counted"].tolist() == [False, False, False, True, True]
    assert frame["position"].tolist() == [0, 1, 2, 3, 4]
    assert frame["phase"].tolist() == ["first", "clean", "clean", "clean", "clean"]
    assert minibatches(store, []).dtypes.equals(frame.dtypes)
    assert telemetry(store, []).dtypes.equals(telemetry(store).dtypes)
