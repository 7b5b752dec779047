"""`compare` and `baseline check` are one comparison: equal verdicts, which a tolerance divides and never reverses."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from harness.__main__ import main
from harness.judge import comparison
from harness.judge.baseline import judge, record
from harness.judge.compare import compare_sides
from harness.judge.comparison import (
    CASES,
    OVERALL,
    Comparison,
    compare_pairs,
    exit_code,
    outdated,
    verdict_of,
)
from harness.judge.pairs import pair
from harness.judge.quantities import POWER, TIME
from harness.judge.sides import CaseRuns, Run, Side
from harness.judge.tolerances import Tolerance
from harness.stats import comparison as stats
from harness.stats import estimates
from harness.stats.comparison import Change
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile


def drawn_sides(seed: int) -> Tuple[Side, Side]:
    """Two results of one to three cases, with up to three runs, noise and changes of any size that matters."""
    draw = np.random.default_rng(seed)
    count, runs = draw.integers(1, 4), draw.integers(1, 4, size=2)
    device = ["orin-agx", "xavier-nx", "host"][draw.integers(3)]
    between, within = draw.choice([0.002, 0.01, 0.03]), draw.choice([0.005, 0.03, 0.1])
    minibatches = draw.choice([6, 20, 40])
    common = draw.choice([0.0, 0.0, 0.015, 0.035, 0.06, -0.04, -0.1])
    sides: List[List[CaseRuns]] = [[], []]
    for place in range(count):
        own = common + draw.choice([0.0, 0.0, 0.08])
        for side, change in enumerate((0.0, own)):
            torch = f"2.{side * (seed % 2)}"
            conditions = {"workload": f"w{place % 2}", "task": "training", "workers": place, "device": device}
            conditions["torch"] = torch
            made = []
            for run in range(runs[side]):
                level = np.exp(change + between * draw.normal())
                times_ms = 100 * level * np.exp(within * draw.normal(size=minibatches))
                figures = {POWER.column: 9000 * level ** (place % 3 - 1) * np.exp(between * draw.normal())}
                made.append(Run(f"run{run}", "", (), tuple(times_ms), figures))
            sides[side].append(CaseRuns(f"case{place}", conditions, {}, tuple(made)))
    before, after = (Side(Path(name), cases, 0) for name, cases in zip("ab", sides))
    return before, after


def of_cases(comparisons: List[Comparison]) -> Dict[Tuple[str, str], Comparison]:
    return {(each.name, each.figure): each for each in comparisons if each.scope == CASES}


@pytest.mark.exhaustive
def test_compare_and_a_check_against_a_baseline_agree_on_200_drawn_pairs_of_results(monkeypatch):
    monkeypatch.setattr(estimates, "RESAMPLES", 50)
    # Each result is compared three times: its noise and ranks are computed once.
    monkeypatch.setattr(stats, "series_median", functools.lru_cache(maxsize=None)(estimates.series_median))
    ranked = functools.lru_cache(maxsize=None)(stats.rank_test)
    monkeypatch.setattr(comparison, "rank_test", lambda *sides: ranked(*map(tuple, sides)))
    seen: Counter = Counter()
    for seed in range(200):
        before, after = drawn_sides(seed)
        by = ("torch",) if seed % 2 else ()
        gate = judge(before.cases, after.cases, by=by)
        alike = compare_sides(before, after, by, threshold=0.05)
        assert exit_code(gate) == alike.exit_code, seed
        gated, compared = of_cases(gate), of_cases(alike.comparisons)
        assert gated.keys() == compared.keys(), seed
        for name, own in gated.items():
            other = compared[name]
            assert (own.status, own.change, own.p_value) == (other.status, other.change, other.p_value), (seed, name)
        # With its own smaller tolerance, `compare` calls more a failure, and nothing the other way round.
        for name, other in of_cases(compare_sides(before, after, by).comparisons).items():
            own = gated[name]
            assert (own.change, own.is_significant) == (other.change, other.is_significant), (seed, name)
            if own.is_significant:
                assert own.status.partition(",")[0] == other.status.partition(",")[0], (seed, name)
                assert other.is_worse or not own.is_worse, (seed, name)
            seen[own.status] += 1
    words = {"no difference", "inconclusive", "slower", "slower, within the tolerance of 5 %", "faster", "too few"}
    assert words <= seen.keys()
    assert min(seen[word] for word in words) >= 5


@pytest.mark.parametrize(
    ("ratio", "p_value", "tolerance", "verdict"),
    [
        (1.035, 0.021, 0.02, "slower"),
        (1.035, 0.021, 0.05, "slower, within the tolerance of 5 %"),
        (1.08, 0.021, 0.05, "slower"),
        (0.97, 0.01, 0.05, "faster, within the tolerance of 5 %"),
        (0.90, 0.01, 0.05, "faster"),
        (1.005, 0.01, 0.012, "slower, within the tolerance of 1.2 %"),
        (1.01, 0.6, 0.05, "no difference"),
        (1.08, 0.06, 0.05, "inconclusive"),
    ],
)
def test_significance_and_tolerance_are_two_questions(ratio, p_value, tolerance, verdict):
    assert verdict_of(TIME, Change(ratio, ratio / 1.02, ratio * 1.02, p_value), p_value, tolerance) == verdict


def results(path: Path, factor: float, torch: str, cases: int = 1) -> Path:
    with ResultsStore(path) as store:
        for run in range(3):
            for workers in range(cases):
                times_ms = list(100 * factor * np.exp(0.01 * np.random.default_rng(run).normal(size=40)))
                made = {"device": "orin-agx", "workers": workers}
                profile = make_profile(times_ms, power_mw=None, case=made, conditions={"torch": torch})
                store.add(profile, ENVIRONMENT, f"{path.name}{run}")
    return path


def checked(tmp_path: Path, capsys: Any, factor: float, **changes: Any) -> Tuple[int, str]:
    """Check against a baseline of the same cases with other times and another torch; the exit code and the text."""
    with ResultsStore(results(tmp_path / "before.sqlite", 1.0, "2.14.0", **changes)) as store:
        record(store, tmp_path / "b.json")
    after = results(tmp_path / "after.sqlite", factor, "2.15.0", **changes)
    capsys.readouterr()
    by = ["--baseline", str(tmp_path / "b.json"), "--by", "torch"]
    code = main(["baseline", "check", "--results", str(after), *by])
    return code, capsys.readouterr().out


def test_the_commands_call_one_slowdown_slower_and_the_one_with_the_larger_tolerance_accepts_it(tmp_path, capsys):
    code, text = checked(tmp_path, capsys, 1.035)
    assert code == 0
    assert "slower, within the tolerance of 5 %" in text
    sides = [str(tmp_path / name) for name in ("before.sqlite", "after.sqlite")]
    for options, expected in (
        ([], (1, "slower (")),
        (["--threshold", "5"], (0, "slower, within the tolerance of 5 %")),
    ):
        code = main(["compare", *sides, "--by", "torch", *options])
        assert (code, f"minibatch time: {expected[1]}" in capsys.readouterr().out) == (expected[0], True)


@pytest.mark.parametrize(("factor", "is_outdated"), [(0.9, True), (0.97, False), (1.1, False)])
def test_an_outdated_baseline_is_said_and_fails_nothing(tmp_path, capsys, factor, is_outdated):
    code, text = checked(tmp_path, capsys, factor, cases=3)
    assert code == (factor > 1.05)
    words = "the baseline is outdated: faster (minibatch time) by more than the tolerance in 3 of 3 cases; record it"
    assert (words in " ".join(text.split())) == is_outdated


def test_a_baseline_is_outdated_if_most_of_its_cases_are_faster():
    def one(status):
        return Comparison(CASES, "a", TIME, status, change=Change(1.0, 0.9, 1.1, 0.5))

    assert outdated([one("faster"), one("faster"), one("slower")])
    assert not outdated([one("faster"), one("no difference")])
    assert not outdated([])


def test_a_slowdown_of_all_cases_that_none_shows_alone_fails_the_check_as_it_fails_compare():
    def side(factor):
        draw = np.random.default_rng(int(1000 * factor))
        made = []
        for place in range(12):
            runs = [tuple(100 * factor * np.exp(0.05 * draw.normal() + np.zeros(40))) for _ in range(3)]
            conditions = {"workload": f"w{place}", "task": "training", "device": "host"}
            own = tuple(Run(f"run{number}", "", (), times_ms) for number, times_ms in enumerate(runs))
            made.append(CaseRuns(f"case{place}", conditions, {}, own))
        return made

    comparisons = judge(side(1.0), side(1.09))
    assert not any(each.is_worse for each in comparisons if each.scope == CASES)
    [overall] = [each for each in comparisons if each.scope == OVERALL]
    assert (overall.status, exit_code(comparisons)) == ("slower", 1)
    pairs = pair(side(1.0), side(1.09))
    assert compare_pairs(pairs, TIME, Tolerance(), same_question=True)[-1].status == "slower"
