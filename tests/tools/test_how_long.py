"""How long the tests take here: the arithmetic, and the line that `make test` begins with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import how_long
from tools.how_long import LOAD_THERE_S, MEASURED, CpuMinutes, describe, load_here_s, minutes_here

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"


@pytest.mark.parametrize(
    ("times_as_slow", "jobs", "cores", "minutes"),
    [
        (1, 1, 2, 6.0),
        (1, 2, 2, 3.0),
        (1, 0, 2, 6.0),  # JOBS=0: only this process
        (1, 8, 2, 3.0),  # no more at a time than there are cores
        (3, 2, 2, 9.0),
    ],
)
def test_a_slow_machine_takes_longer_and_more_processes_less_as_far_as_there_are_cores(
    times_as_slow, jobs, cores, minutes
):
    assert minutes_here(6.0, times_as_slow * LOAD_THERE_S, jobs, cores) == pytest.approx(minutes)


@pytest.fixture
def a_machine_half_as_fast(monkeypatch):
    monkeypatch.setattr(how_long, "load_here_s", lambda: 2 * LOAD_THERE_S)
    monkeypatch.setattr(how_long, "usable_cores", lambda: 2)
    monkeypatch.setitem(MEASURED, "quick", CpuMinutes(6.4, 0.2))


@pytest.mark.parametrize(
    ("torch", "jobs", "line"),
    [
        (True, 2, "all quick tests take about 6 minutes here, in 2 processes"),
        (True, 0, "all quick tests take about 13 minutes here, in 1 process"),
        (False, 2, "all quick tests take about 1 minute here, in 2 processes"),
    ],
)
def test_the_line_is_in_whole_minutes_of_the_tests_that_can_run(torch, jobs, line, a_machine_half_as_fast, monkeypatch):
    monkeypatch.setattr(how_long.importlib.util, "find_spec", lambda name: object() if torch else None)
    assert describe("quick", jobs) == line


def test_the_load_is_timed():
    assert load_here_s() > 0


def test_make_measures_both_parts_before_their_tests():
    rules = re.findall(r"^(test\S*): install ##.*\n((?:\t.*\n)+)", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    first = {target: recipe.splitlines()[0].split() for target, recipe in rules}
    assert set(first) == {"test", "test-all"}
    for target, part in (("test", "quick"), ("test-all", "all")):
        assert first[target][-3:] == ["tools.how_long", part, "$(JOBS)"]
        assert part in MEASURED
