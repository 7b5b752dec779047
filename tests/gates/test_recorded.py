"""A gate lets chance pass and nothing else; what is recorded is what later runs are held against."""

from __future__ import annotations

import pytest

from harness.core.errors import InvalidValueError
from predictors.evaluation import Spread
from tests.gates.recorded import check, entries_of, format_verdicts, read_recorded, record, tolerance

RESULT = {
    "predictor": "ridge", "target": "lenet-mnist", "modes": 50, "repeats": 9, "provenance": "simulated",
    "time_mape_median": 8.0, "time_mape_q1": 7.5, "time_mape_q3": 8.5,
    "power_mape_median": 3.0, "power_mape_q1": 2.9, "power_mape_q3": 3.1,
}  # fmt: skip


def entry(**changes):
    return entries_of([{**RESULT, **changes}], "here")[0]


def verdicts(before, now):
    return {one.key.split()[-1]: one for one in check(before, now)}


def test_the_tolerance_is_three_standard_errors_of_a_difference_of_medians():
    expected = 3 * 2**0.5 * 1.253 * (1.0 / 1.349) / 3
    assert tolerance(Spread(8.0, 7.5, 8.5), 9) == pytest.approx(expected)


def test_more_repeats_allow_less_and_equal_repeats_still_a_little():
    assert tolerance(Spread(8.0, 7.5, 8.5), 36) < tolerance(Spread(8.0, 7.5, 8.5), 9)
    assert tolerance(Spread(8.0, 8.0, 8.0), 9) == pytest.approx(0.4)


def test_what_is_as_recorded_passes_and_what_is_worse_beyond_chance_fails():
    before = [entry()]
    allowed = tolerance(Spread(8.0, 7.5, 8.5), 9)
    assert verdicts(before, [entry()])["time_mape"].passed
    assert verdicts(before, [entry(time_mape_median=8.0 + 0.99 * allowed)])["time_mape"].passed
    found = verdicts(before, [entry(time_mape_median=8.0 + 1.01 * allowed)])
    assert not found["time_mape"].passed
    assert found["power_mape"].passed
    assert "WORSE" in format_verdicts(list(found.values()))


def test_better_is_no_failure():
    assert verdicts([entry()], [entry(time_mape_median=1.0)])["time_mape"].passed


def test_a_figure_or_count_that_is_gone_fails():
    nothing = {f"time_mape_{part}": None for part in Spread._fields}
    assert not verdicts([entry()], [entry(**nothing)])["time_mape"].passed
    gone = check([entry(), entry(modes=10)], [entry()])
    assert [one.passed for one in gone] == [True, True, False, False]


def test_other_corpora_and_predictors_are_not_held_against_what_ran():
    assert check([entry(), entry(predictor="nn")], [entry()]) == check([entry()], [entry()])


def test_what_was_never_recorded_passes_and_says_so():
    (time, _) = check([], [entry()])
    assert time.passed
    assert time.recorded is None
    assert "not recorded" in format_verdicts([time])


def test_recording_replaces_what_ran_and_keeps_the_rest(tmp_path):
    path = tmp_path / "recorded" / "predictors.json"
    assert read_recorded(path) == []
    record(path, [entry(), entry(modes=10)], {"python": "3"})
    record(path, [entry(predictor="nn")], {})
    record(path, [entry(time_mape_median=7.0)], {})
    assert [(one["predictor"], one["modes"], one["time_mape_median"]) for one in read_recorded(path)] == [
        ("nn", 50, 8.0), ("ridge", 50, 7.0),
    ]  # fmt: skip


@pytest.mark.parametrize("content", ["", "[]", '{"entry": 1}'])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InvalidValueError, match="no recorded errors"):
        read_recorded(path)
