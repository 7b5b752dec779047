"""Verdicts of findings: confirmed, contradicted, undecided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.findings import CONFIRMED, CONTRADICTED, UNDECIDED, Cell, Drawn, Finding, judge
from harness.stats.estimates import Estimate
from harness.stats.noise import RunNoise, over_runs

pytest.importorskip("scipy")


def cell(value, error=0.01, label="one"):
    return Cell(label, Estimate(value, error, 20))


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (Finding([cell(0.8)], "", below=0.9), CONFIRMED),
        (Finding([cell(0.8), cell(1.2)], "", below=0.9), CONTRADICTED),
        (Finding([cell(0.8), cell(0.9)], "", below=0.9), UNDECIDED),
        (Finding([cell(1.0)], "", above=0.95, below=1.05), CONFIRMED),
        (Finding([cell(1.0, error=0.1)], "", above=0.95, below=1.05), UNDECIDED),
        (Finding([cell(0.5)], "", above=0.95, below=1.05), CONTRADICTED),
        (Finding([Drawn("front", 3.0, ())], "", below=4.5), CONFIRMED),
        (Finding([Drawn("front", -0.5, tuple([-0.9, -0.1] * 50))], "", below=-0.3), UNDECIDED),
    ],
)
def test_an_interval_decides_not_the_figure_alone(finding, verdict):
    assert judge(finding).verdict == verdict


def test_nothing_to_look_at_is_no_verdict():
    assert judge(Finding([], "", below=1.0)) is None


def test_the_case_that_decides_is_named():
    found = judge(Finding([cell(0.5, label="fine"), cell(1.5, label="wrong")], "", below=1.0))
    assert (found.label, found.effect, found.n) == ("wrong", 1.5, 2)
    assert found.low < 1.5 < found.high


def test_more_cases_make_it_harder_to_contradict_by_chance():
    alone = judge(Finding([cell(1.023)], "", below=1.0))
    among = judge(Finding([cell(1.023), *[cell(0.9)] * 30], "", below=1.0))
    assert (alone.verdict, among.verdict) == (CONTRADICTED, UNDECIDED)


@given(
    st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.0, 0.3)), min_size=1, max_size=6),
    st.floats(0.0, 0.3),
    st.floats(1.0, 10.0),
    st.integers(2, 40),
)
def test_more_noise_between_runs_never_decides_what_less_left_open(runs, share, times, freedom):
    def verdict(noise):
        cells = [Cell(str(place), over_runs([Estimate(*run, 20)], noise)) for place, run in enumerate(runs)]
        return judge(Finding(cells, "", above=0.9, below=1.1)).verdict

    less, more = verdict(RunNoise(share, freedom)), verdict(RunNoise(share * times, freedom))
    assert more in (less, UNDECIDED)
