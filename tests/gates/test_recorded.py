"""A gate lets chance pass and nothing else; what is recorded is what later runs are held against."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from harness.core.boards import load_board
from harness.core.corpus import write_corpus
from harness.core.errors import InvalidValueError
from harness.simulation.corpus import simulate_corpus
from tests import warm_pytest
from tests.gates.conftest import unlike
from tests.gates.recorded import check, entries_of, format_verdicts, read_recorded, record, tolerance

RESULT = {
    "predictor": "ridge", "target": "lenet-mnist", "modes": 50, "repeats": 3, "provenance": "simulated",
    "time_mape": [7.0, 8.0, 9.0], "power_mape": [3.0, 3.1, 2.9],
}  # fmt: skip


def entry(**changes):
    return entries_of([{**RESULT, **changes}], "here")[0]


def verdicts(before, now):
    return {one.key.split()[-1]: one for one in check(before, now)}


@pytest.mark.parametrize(
    ("recorded", "found", "alike", "allowed"),
    [
        ([7.0, 8.0, 9.0], [1.0, 8.0, 30.0], True, 0.08),  # the same software and seeds: nearly equal
        ([0.0, 0.0], [0.0, 0.0], True, 0.02),
        ([2.0, 8.0, 14.0], [2.1, 8.1, 14.1], False, 0.05 * 8),  # paired by seed: each rose by 0.1, none by chance
        ([8.0] * 4, [7.6, 8.4, 7.8, 8.2], False, 3 * (0.4 / 3) ** 0.5 / 2),
        ([8.0] * 3, [2.0, 8.0, 60.0], False, 2.0),  # a quarter, however wide the spread
    ],
)
def test_the_luck_of_the_draw_cancels_and_other_software_may_differ_a_little(recorded, found, alike, allowed):
    assert tolerance(recorded, found, alike) == pytest.approx(allowed)


@pytest.mark.parametrize(("elsewhere", "share"), [(False, 0.01), (True, 0.05)])
def test_what_is_as_recorded_passes_and_what_is_worse_fails(elsewhere, share):
    def now(factor):
        found = entry(time_mape=[factor * value for value in RESULT["time_mape"]])
        return unlike(found) if elsewhere else found

    before = [entry()]
    assert all(verdicts(before, [now(factor)])["time_mape"].passed for factor in (0.1, 1, 1 + 0.9 * share))
    found = verdicts(before, [now(1 + 5 * share)])
    assert not found["time_mape"].passed
    assert found["power_mape"].passed
    assert "WORSE" in format_verdicts(list(found.values()))


def test_a_figure_or_count_or_repeat_that_is_gone_fails():
    assert not verdicts([entry()], [entry(time_mape=[7.0, None, 9.0])])["time_mape"].passed
    assert not verdicts([entry()], [entry(time_mape=[7.0, 8.0])])["time_mape"].passed
    gone = check([entry(), entry(modes=10)], [entry()])
    assert [one.passed for one in gone] == [True, True, False, False]
    assert len(check([entry(), entry(modes=10)], [entry()], part=True)) == 2


def test_other_predictors_are_not_held_against_what_ran_and_what_was_never_recorded_passes_and_says_so():
    assert check([entry(), entry(predictor="nn")], [entry()]) == check([entry()], [entry()])
    (time, _) = check([], [entry()])
    assert (time.passed, time.recorded) == (True, None)
    assert "not recorded" in format_verdicts([time])


def test_recording_replaces_what_ran_and_keeps_the_rest(tmp_path):
    path = tmp_path / "recorded" / "predictors.json"
    assert read_recorded(path) == []
    record(path, [entry(), entry(modes=10)], {"python": "3"})
    record(path, [entry(predictor="nn")], {})
    record(path, [entry(time_mape=[7.0, 7.0, 7.0])], {})
    assert [(one["predictor"], one["modes"], one["time_mape_median"]) for one in read_recorded(path)] == [
        ("nn", 50, 8.0), ("ridge", 50, 7.0),
    ]  # fmt: skip


@pytest.mark.parametrize("content", ["", "[]", '{"entry": 1}'])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InvalidValueError, match="no recorded errors"):
        read_recorded(path)


@pytest.mark.exhaustive
def test_a_corpus_of_ones_own_is_recorded_once_and_held_then(tmp_path):
    """As the nightly script does for a type of board of which nothing is recorded here."""
    modes = list(load_board("nano").power_mode_space().paper_grid())
    rows = [row for name in ("lenet-mnist", "mobilenetv3-gld23k") for row in simulate_corpus("nano", name, modes)]
    write_corpus(tmp_path / "nano.csv", rows)
    own = ["--gate-corpus", tmp_path / "nano.csv", "--gate-baselines", tmp_path / "gates"]
    chosen = ["-k", "measured_tables and (ridge or maxn)", "-p", "no:cacheprovider", "-q"]

    def held():
        words = [Path(__file__).parent, "--rootdir", tmp_path, *own, *chosen]
        return warm_pytest.run(words, tmp_path, dict(os.environ))

    first = held()
    assert first.returncode == 0, first.stdout
    recorded = [tmp_path / "gates" / f"{name}.json" for name in ("predictors", "strategies")]
    assert all(path.exists() for path in recorded)
    assert held().returncode == 0
    content = recorded[0].read_text()
    recorded[0].write_text(re.sub(r"(\d+\.\d+)(?=,?\n)", lambda found: f"{float(found[1]) / 2:.4f}", content))
    assert "WORSE" in held().stdout
