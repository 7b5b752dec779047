"""The commands on results: what they print and the codes they exit with."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from harness.__main__ import main
from harness.core.corpus import read_corpus
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says


def run(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        for workers in (0, 1, 0):
            store.add(make_profile(case={"device": "orin-agx", "workers": workers}), ENVIRONMENT, "run")
    return path


@pytest.mark.parametrize(("device", "runs", "is_told"), [("host", 1, True), ("host", 3, False), ("orin-agx", 1, False)])
def test_a_baseline_of_one_run_on_a_noisy_machine_says_how_to_make_a_better_one(
    tmp_path, capsys, device, runs, is_told
):
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for number in range(runs):
            store.add(make_profile(case={"device": device}), ENVIRONMENT, f"run {number}")
    assert run("baseline", "record", "--results", tmp_path / "r.sqlite", "--baseline", tmp_path / "b.json") == 0
    assert ("uncertain by more than 5%: 1 of 1;" in capsys.readouterr().out) == is_told


def test_export_writes_a_corpus_and_tells_what_it_left_out(results, capsys):
    out = results.parent / "c.csv"
    assert run("export", "--results", results, "--out", out) == 0
    assert len(read_corpus(out)) == 2
    left_out = "left out: 1 older profile of the same conditions (--all-runs keeps them)"
    assert capsys.readouterr().out.splitlines() == [f"{out}: 2 rows from {results}", left_out]
    assert run("export", "--results", results, "--out", out, "--all-runs") == 0
    assert len(read_corpus(out)) == 3


def test_export_writes_every_minibatch_as_it_was_recorded(results, capsys):
    out = results.parent / "minibatches.csv"
    assert run("export", "--results", results, "--minibatches", out) == 0
    rows = list(csv.DictReader(out.open()))
    assert len({row["profile_id"] for row in rows}) == 3
    assert {"case_id", "provenance", "epoch", "index", "phase", "stall_ms", "compute_ms", "e2e_ms"} <= set(rows[0])
    assert f"{len(rows)} minibatches of 3 profiles" in capsys.readouterr().out
    assert run("export", "--results", results) == 2
    assert "--minibatches FILE" in capsys.readouterr().err


def test_everything_is_exported_as_parquet(results):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    files = {name: results.parent / f"{name}.parquet" for name in ("out", "minibatches", "telemetry")}
    options = [word for name, path in files.items() for word in (f"--{name}", path)]
    assert run("export", "--results", results, *options) == 0
    corpus, minibatches, telemetry = (pandas.read_parquet(path) for path in files.values())
    assert (len(corpus), minibatches["profile_id"].nunique(), telemetry["profile_id"].nunique()) == (2, 3, 3)
    assert set(telemetry["channel"]) == {"cpu_own_cores", "power_total_mw"}
    assert set(telemetry["provenance"]) == {"measured"}


@pytest.mark.exhaustive
def test_what_is_not_there_and_a_threshold_below_0_are_refused(results, capsys):
    missing, baseline = results.parent / "missing", results.parent / "b.json"
    assert run("export", "--results", missing, "--out", results.parent / "c.csv") == 2
    assert "there is no results file" in capsys.readouterr().err
    check = ("baseline", "check", "--results", results, "--baseline", baseline)
    assert run(*check) == 2
    assert "cannot read the baseline" in capsys.readouterr().err
    assert run("baseline", "record", "--results", results, "--baseline", baseline) == 0
    assert run(*check, "--threshold", "-1") == 2
    assert run("compare", results, results, "--threshold", "-1") == 2
    refused = capsys.readouterr().err.splitlines()
    assert [says(line, "threshold", "0 or more", "-1 %") for line in refused] == [True, True]


def test_what_is_left_out_because_of_its_flags_is_counted(results, capsys):
    with ResultsStore(results) as store:
        store.add(make_profile([300.0] * 40, flags=["disturbed: a"]), ENVIRONMENT, "run2")
    said = "left out: 1 profile flagged disturbed or throttled (--include-flagged keeps them)"
    baseline, out = results.parent / "b.json", results.parent / "c.csv"
    for command in (["export", "--out", out], ["baseline", "record", "--baseline", baseline]):
        assert run(*command, "--results", results) == 0
        assert said in capsys.readouterr().out
        assert run(*command, "--results", results, "--include-flagged") == 0
        assert said not in capsys.readouterr().out
