"""A case that became slower says whether its fetch stall did, or computing, and nothing that noise may have caused."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import jetwatt
from harness.judge.baseline import judge
from harness.judge.compare import compare_sides, format_result, to_plain
from harness.judge.sides import CaseRuns, Run, Side, read_baseline, stored_run
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile

CONDITIONS = {"workload": "w", "task": "training", "device": "orin-agx"}


def side_with(tmp_path, name, stall_ms, compute_ms, seed, has_stalls=True):
    """Three runs of a case, with 2 % of noise within and 0.2 % between runs."""
    draw = np.random.default_rng(seed)
    runs = []
    for number in range(3):
        level = np.exp(0.002 * draw.normal())
        stalls, computing = (
            part * level * np.exp(0.02 * draw.normal(size=40)) for part in (np.full(40, stall_ms), compute_ms)
        )
        times_ms = tuple((stalls + computing).tolist())
        runs.append(Run(f"{name}{number}", "", (), times_ms, {}, tuple(stalls.tolist()) if has_stalls else ()))
    return Side(tmp_path / name, [CaseRuns("case", CONDITIONS, {}, tuple(runs))], 0)


def notes_of(before, after):
    """On the case's time, by `compare` and by a baseline, which agree."""
    compared = [each for each in compare_sides(before, after).comparisons if each.pair is not None]
    gated = [each for each in judge(before.cases, after.cases) if each.pair is not None]
    of_parts = [[note for note in each.notes if "compute" in note] for each in (compared[0], gated[0])]
    assert of_parts[0] == of_parts[1]
    return of_parts[0]


ROSE, SAME = r"(\w[\w ]*) (rose|fell) from ([\d.]+) to ([\d.]+) ms", r"(\w[\w ]*) did not change beyond the noise"


@pytest.mark.parametrize(
    ("stall_ms", "compute_ms", "words"),
    [
        pytest.param(9, 20, f"{ROSE}, {SAME}", id="stall"),
        pytest.param(3, 30, f"{SAME}, {ROSE}", id="compute"),
        pytest.param(9, 15.8, f"{ROSE}, {ROSE}", id="traded"),
    ],
)
def test_a_slower_case_says_which_part_of_its_minibatches_is(tmp_path, stall_ms, compute_ms, words):
    [note] = notes_of(side_with(tmp_path, "a", 3, 20, seed=1), side_with(tmp_path, "b", stall_ms, compute_ms, seed=2))
    assert re.fullmatch(words, note), note
    figures = [float(figure) for figure in re.findall(r"[\d.]+", note)]
    changed = [figure for pair in ((3, stall_ms), (20, compute_ms)) if pair[0] != pair[1] for figure in pair]
    assert figures == pytest.approx(changed, rel=0.01)
    for part, (before, after) in {"fetch stall": (3, stall_ms), "compute": (20, compute_ms)}.items():
        verb = "rose" if after > before else "fell" if after < before else "did not change"
        assert f"{part} {verb}" in note


def test_a_stall_that_was_none_at_all_is_compared_too(tmp_path):
    [note] = notes_of(side_with(tmp_path, "a", 0, 20, seed=1), side_with(tmp_path, "b", 5, 20, seed=2))
    assert note.startswith("fetch stall rose from 0 to ")
    assert note.endswith("compute did not change beyond the noise")


@pytest.mark.parametrize(
    ("stall_ms", "has_stalls"), [pytest.param(3, True, id="not slower"), pytest.param(9, False, id="unknown")]
)
def test_nothing_is_said_of_parts_where_no_case_is_slower_or_one_side_has_none(tmp_path, stall_ms, has_stalls):
    before, after = side_with(tmp_path, "a", 3, 20, 1), side_with(tmp_path, "b", stall_ms, 20, 2, has_stalls)
    assert notes_of(before, after) == []


def test_text_and_json_of_a_comparison_have_the_parts(tmp_path):
    result = compare_sides(side_with(tmp_path, "a", 3, 20, 1), side_with(tmp_path, "b", 9, 20, 2))
    assert "- case: fetch stall rose from" in format_result(result)
    assert any(note.startswith("case: fetch stall rose from") for note in to_plain(result)["notes"])


def test_a_baseline_keeps_the_stalls_and_reads_files_without(tmp_path):
    for name in ("a", "b"):
        with ResultsStore(tmp_path / name) as store:
            store.add(make_profile(), ENVIRONMENT, name)
    jetwatt.record_baseline(tmp_path / "a", tmp_path / "a.json")
    [case] = read_baseline(tmp_path / "a.json")
    assert len(case.runs[0].stalls_ms) == len(case.runs[0].times_ms) > 0
    document = json.loads((tmp_path / "a.json").read_text())
    stalls = document["cases"][0]["runs"][0].pop("fetch_stalls_ms")
    assert stalls == stored_run(case.runs[0])["fetch_stalls_ms"]
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert read_baseline(tmp_path / "a.json")[0].runs[0].stalls_ms == ()
    document["cases"][0]["runs"][0]["fetch_stalls_ms"] = [*stalls[1:], 1e9]
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(jetwatt.HarnessError, match="is damaged"):
        read_baseline(tmp_path / "a.json")
