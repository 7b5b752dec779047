"""From a results file to a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pandas as pd
import pytest

from harness.__main__ import main
from harness.core.corpus import CORPUS_COLUMNS, read_corpus, rows_of
from harness.core.errors import InvalidValueError, StoreError
from harness.core.metrics import AGGREGATES
from harness.core.profiles import Profile
from harness.store.corpora import Exported, export, read_rows
from harness.store.frames import FURTHER
from harness.store.results import ResultsStore
from jetwatt import open_results
from predictors.choose.corpora import load_tables
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile


def exported(tmp_path: Path, *profiles: Profile, all_runs: bool = False, suffix: str = ".csv") -> List[Dict[str, Any]]:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for number, profile in enumerate(profiles):
            store.add(profile, ENVIRONMENT, f"run{number}")
        export(store, tmp_path / f"c{suffix}", all_runs)
    return rows_of(read_corpus(tmp_path / f"c{suffix}"))


def test_a_profile_becomes_a_row_of_the_schema(tmp_path: Path) -> None:
    [row] = exported(tmp_path, make_profile(flags=["noisy: a", "power-unsettled: b"]))
    values = ["host", "lenet-mnist", "training", 2, 0, 0, 0, 16, 100.0, 9000.0, "measured"]
    assert [row[name] for name in CORPUS_COLUMNS] == values
    assert (row["workers"], row["storage"], row["storage_kind"], row["cache"]) == (0, "ssd", "ssd", "warm")
    assert (row["torch"], row["kernel"], row["run_id"]) == ("2.15.0", "6.1.0", "run0")
    assert (row["minibatches"], row["epochs_asked"], row["interval_s"], row["cuda"]) == (40, None, 1.0, None)
    assert row["power_definition"] == "sum of the domains package-0"
    assert row["flags"] == "noisy: a; power-unsettled: b"
    assert float(row["fetch_stall_ms"]) == pytest.approx(10)


def test_what_was_asked_for_and_what_a_board_told_are_columns(tmp_path: Path) -> None:
    settings = {"minibatches": None, "epochs": 3, "interval_s": 0.5, "clocks": "dvfs"}
    told = {"cuda": "12.6", "tpc_mask": 248, "dvfs": "on"}
    first, second = exported(tmp_path, make_profile(settings=settings, conditions=told), make_profile())
    assert (first["minibatches"], first["epochs_asked"], first["interval_s"], first["cuda"]) == (None, 3, 0.5, 12.6)
    assert (first["tpc_mask"], first["clocks"], first["dvfs"]) == (248, "dvfs", "on")
    assert (second["tpc_mask"], second["clocks"], second["dvfs"]) == (None, "static", None)


def test_the_power_limit_of_a_gpu_is_a_column_that_predictors_read(tmp_path: Path) -> None:
    profiles = [make_profile(conditions={"gpu_power_limit_mw": limit_mw}) for limit_mw in (150_000, 250_000)]
    rows = exported(tmp_path, *profiles, all_runs=True)
    assert [row["power_limit_mw"] for row in rows] == [150_000, 250_000]
    [table] = load_tables(tmp_path / "c.csv")
    assert table.power_limit_mw.tolist() == [150_000, 250_000]
    assert load_tables(tmp_path / "r.sqlite")[0].power_limit_mw is not None


def test_the_header_is_the_schema_then_the_further_columns(tmp_path: Path) -> None:
    exported(tmp_path, make_profile())
    header = (tmp_path / "c.csv").read_text().splitlines()[0].split(",")
    assert header == [*CORPUS_COLUMNS, *(column.name for column in FURTHER)]
    assert set(AGGREGATES) <= set(header)
    assert len(set(header)) == len(header)
    assert all(column.meaning for column in FURTHER)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_without_a_power_sensor_the_cells_are_empty(tmp_path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    [row] = exported(tmp_path, make_profile(power_mw=None), suffix=suffix)
    assert row["power_mw"] is row["energy_mwh"] is row["power_mean_mw"] is row["power_samples"] is None
    assert (row["workers"], row["clean_minibatches"], row["torch"]) == (0, 40.0, "2.15.0")


def test_the_newest_profile_of_the_same_conditions_is_taken(tmp_path: Path) -> None:
    profiles = [make_profile([time_ms] * 40, case={"workers": workers}) for time_ms in (100, 200) for workers in (0, 1)]
    table = exported(tmp_path, *profiles)
    assert [(row["workers"], row["minibatch_time_ms"]) for row in table] == [(0, 200.0), (1, 200.0)]
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        assert export(store, tmp_path / "c.csv") == Exported(rows=2, older=2, without_time=0)
        assert export(store, tmp_path / "c.csv", all_runs=True) == Exported(rows=4, older=0, without_time=0)
    assert read_corpus(tmp_path / "c.csv")["minibatch_time_ms"].tolist() == [100, 100, 200, 200]


def test_other_conditions_make_another_row(tmp_path: Path) -> None:
    others = make_profile(conditions={"torch": "2.14.0"}), make_profile(provenance="simulated")
    found = [(row["torch"], row["provenance"]) for row in exported(tmp_path, make_profile(), *others)]
    assert found == [("2.15.0", "measured"), ("2.14.0", "measured"), ("2.15.0", "simulated")]


def test_a_profile_without_clean_minibatches_is_left_out_and_counted(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        empty = make_profile()
        empty.aggregates["minibatch_time_ms"] = None
        store.add(empty, ENVIRONMENT, "run")
        with pytest.raises(StoreError, match="no profile with a clean minibatch"):
            export(store, tmp_path / "c.csv")
        store.add(make_profile(), ENVIRONMENT, "run")
        assert export(store, tmp_path / "c.csv") == Exported(rows=1, older=0, without_time=1)


def test_training_with_inference_in_between_has_no_row_and_is_counted(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(make_profile(), ENVIRONMENT, "run")
        mixed = {"task": "concurrent", "workload": "resnet18-cifar10+lenet-mnist-bs4@20"}
        store.add(make_profile(case=mixed), ENVIRONMENT, "run")
        assert export(store, tmp_path / "c.csv") == Exported(rows=1, older=0, without_time=0, mixed=1)
    found = read_rows(tmp_path / "r.sqlite")
    assert (len(found.table), found.faults, found.flagged) == (1, {}, 0)


def test_another_suffix_and_a_profile_without_a_power_mode_are_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"\.csv or \.parquet"):
        exported(tmp_path, make_profile(), suffix=".txt")
    with pytest.raises(StoreError, match="no cpu_cores, cpu_khz, gpu_khz, mem_khz"):
        exported(tmp_path, make_profile(conditions={"power_mode": {}}))
    assert not list(tmp_path.glob("c.*"))


def test_disturbed_and_throttled_profiles_are_left_out_unless_they_are_wanted(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(make_profile([300.0] * 40, flags=["throttled: hot"]), ENVIRONMENT, "run")
        with pytest.raises(StoreError, match=r"1 profile .*disturbed or throttled"):
            export(store, tmp_path / "c.csv")
        store.add(make_profile(), ENVIRONMENT, "run")
        store.add(make_profile([300.0] * 40, flags=["disturbed: b"]), ENVIRONMENT, "run")
        assert export(store, tmp_path / "c.csv") == Exported(rows=1, older=0, without_time=0, flagged=2)
        assert read_corpus(tmp_path / "c.csv")["minibatch_time_ms"].tolist() == [100.0]
        assert export(store, tmp_path / "c.csv", include_flagged=True) == Exported(rows=1, older=2, without_time=0)
        assert read_corpus(tmp_path / "c.csv")["minibatch_time_ms"].tolist() == [300.0]


def test_the_share_of_minibatches_beyond_a_period_is_a_column_if_a_period_is_given(tmp_path):
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(make_profile([100.0] * 30 + [150.0] * 10), ENVIRONMENT, "run")
        store.add(make_profile([100.0] * 40, case={"workers": 4}), ENVIRONMENT, "run")
    file = open_results(tmp_path / "r.sqlite")
    assert file.profiles(period_ms=120)["miss_ratio"].tolist() == [0.25, 0.0]
    assert file.profiles(period_ms=150)["miss_ratio"].tolist() == [0.0, 0.0]  # as long is no miss
    assert "miss_ratio" not in file.profiles()
    words = ["export", "--results", str(tmp_path / "r.sqlite"), "--out", str(tmp_path / "c.csv")]
    assert main([*words, "--period-ms", "120"]) == 0
    assert pd.read_csv(tmp_path / "c.csv")["miss_ratio"].tolist() == [0.25, 0.0]
    assert main([*words, "--period-ms", "0"]) == 2
    assert main(words) == 0
    assert "miss_ratio" not in pd.read_csv(tmp_path / "c.csv")
