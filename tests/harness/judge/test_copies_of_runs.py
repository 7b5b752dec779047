"""Runs of a simulated board with one seed are equal in every digit: they count as one, and this is said."""

from __future__ import annotations

import numpy as np
import pytest

import jetwatt
from harness.judge.sides import read_baseline, read_side
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile


def results(path, seeds, level_ms=100.0, provenance="simulated", first_day=1):
    """A results file with a run for each seed, whose noise it draws."""
    with ResultsStore(path) as store:
        for number, seed in enumerate(seeds):
            times_ms = level_ms * np.exp(0.02 * np.random.default_rng(seed).normal(size=40))
            profile = make_profile(tuple(times_ms), provenance=provenance)
            store.add(profile, ENVIRONMENT, f"{path.stem}{number}", f"2026-01-0{first_day + number}T00:00:00+00:00")
    return path


@pytest.mark.parametrize(
    ("seeds", "provenance", "runs", "copies"),
    [
        pytest.param((1, 1, 1), "simulated", ["a2"], 2, id="copies"),
        pytest.param((1, 2, 1), "simulated", ["a1", "a2"], 1, id="one copy"),
        pytest.param((1, 2, 3), "simulated", ["a0", "a1", "a2"], 0, id="other seeds"),
        pytest.param((1, 1), "measured", ["a0", "a1"], 0, id="measured"),
    ],
)
def test_of_equal_runs_the_newest_counts(tmp_path, seeds, provenance, runs, copies):
    [case] = read_side(results(tmp_path / "a.sqlite", seeds, provenance=provenance)).cases
    assert ([run.run_id for run in case.runs], case.copies) == (runs, copies)


def test_a_comparison_and_a_baseline_say_that_copies_count_once(tmp_path, capsys):
    from jetwatt.cli import main

    before, after = results(tmp_path / "a.sqlite", (1, 1, 1)), results(tmp_path / "b.sqlite", (2, 2), 120, first_day=5)
    compared = jetwatt.compare(before, after)
    assert compared["cases"][0]["counts"] == [1, 1]
    said = [note for note in compared["notes"] if "equal to a newer one in every minibatch" in note]
    assert [note.split(" left out")[0] for note in said] == ["a.sqlite: 2 runs", "b.sqlite: 1 run"]
    recorded = jetwatt.record_baseline(before, tmp_path / "a.json")
    assert "2 runs left out as equal to a newer one" in repr(recorded)
    assert len(read_baseline(tmp_path / "a.json")[0].runs) == 1
    main(["baseline", "check", "--results", str(after), "--baseline", str(tmp_path / "a.json")])
    assert "1 run left out as equal to a newer one" in capsys.readouterr().out
    main(["baseline", "check", "--results", str(before), "--baseline", str(tmp_path / "a.json")])
    assert "not run since the baseline was recorded" in capsys.readouterr().out
