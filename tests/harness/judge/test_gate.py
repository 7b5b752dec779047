"""The gate fails on a slowdown, passes on the same code, and compares nothing that differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import pytest

from harness.core.errors import InvalidValueError, StoreError
from harness.judge.baseline import (
    CaseRuns,
    Checked,
    Run,
    check,
    exit_code,
    format_checked,
    judge,
    read_baseline,
    record,
)
from harness.stats import estimates as statistics
from harness.store import conditions
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile

BETWEEN_RUNS, WITHIN_RUNS = 0.03, 0.05


@pytest.fixture
def noise() -> np.random.Generator:
    return np.random.default_rng(11)


def noisy_times(noise: np.random.Generator, median_ms: float = 100.0, count: int = 40) -> List[float]:
    """One run: log-normal minibatch times around a median of its own."""
    own = median_ms * np.exp(BETWEEN_RUNS * noise.normal())
    return list(own * np.exp(WITHIN_RUNS * noise.normal(size=count)))


def add_runs(
    store: ResultsStore, runs: Sequence[Sequence[float]], environment: Optional[Dict[str, Any]] = None, **changes: Any
) -> None:
    """Store a profile for each run of minibatch times."""
    changes["case"] = {"device": "orin-agx", **changes.get("case", {})}
    for number, times_ms in enumerate(runs):
        store.add(make_profile(times_ms, **changes), environment or ENVIRONMENT, f"run{number}")


@pytest.fixture
def gate(tmp_path: Path) -> Any:
    """A function that records `before` as the baseline and checks `after`, each a list of (runs, changes)."""

    def compare(
        before: Sequence[Any], after: Sequence[Any], threshold: float = 0.05, last: Optional[int] = None
    ) -> Any:
        for name, groups in (("before", before), ("after", after)):
            with ResultsStore(tmp_path / name) as store:
                for runs, changes in groups:
                    add_runs(store, runs, **changes)
        with ResultsStore(tmp_path / "before", read_only=True) as store:
            record(store, tmp_path / "b.json")
        with ResultsStore(tmp_path / "after", read_only=True) as store:
            verdicts = check(store, tmp_path / "b.json", threshold, last)
        for name in ("before", "after"):
            (tmp_path / name).unlink()
        return verdicts

    return compare


def case_runs(runs: Sequence[Sequence[float]], workers: int) -> CaseRuns:
    """The runs of a case without a results file."""
    compared = {"workload": "lenet-mnist", "task": "training", "workers": workers}
    made = tuple(Run(f"run{number}", "", (), tuple(times_ms)) for number, times_ms in enumerate(runs))
    return CaseRuns(f"host-w{workers}", compared, {}, made)


def test_a_slowdown_of_a_fifth_fails(gate: Any, noise: np.random.Generator) -> None:
    before, after = ([noisy_times(noise, median) for _ in range(3)] for median in (100, 120))
    verdicts = gate([(before, {})], [(after, {})])
    assert [verdict.status for verdict in verdicts] == ["slower"]
    assert verdicts[0].ratio.value == pytest.approx(1.2, rel=0.06)
    assert verdicts[0].ratio.interval().low > 1
    assert exit_code(verdicts) == 1


def test_a_slowdown_of_a_fifth_fails_with_one_run_on_each_side_and_says_what_is_unknown(
    gate: Any, noise: np.random.Generator
) -> None:
    verdicts = gate([([noisy_times(noise, 100)], {})], [([noisy_times(noise, 120)], {})])
    assert [verdict.status for verdict in verdicts] == ["slower"]
    assert "the noise between runs is not seen, and taken to be 0.5% at least" in verdicts[0].notes[0]


def test_the_same_data_passes(gate: Any, noise: np.random.Generator) -> None:
    runs = [noisy_times(noise) for _ in range(8)]
    verdicts = gate([(runs, {})], [(runs, {})])
    assert [(verdict.status, verdict.ratio.value) for verdict in verdicts] == [("same", 1.0)]
    assert exit_code(verdicts) == 0


def test_a_speed_up_is_told_and_passes(gate: Any) -> None:
    verdicts = gate([([[100.0] * 40], {})], [([[80.0] * 40], {})])
    assert [verdict.status for verdict in verdicts] == ["faster"]
    assert exit_code(verdicts) == 0


def test_a_slowdown_within_the_threshold_passes_however_certain(gate: Any) -> None:
    before, after = [([[100.0] * 40], {})], [([[104.0] * 40], {})]
    assert [verdict.status for verdict in gate(before, after)] == ["same"]
    assert [verdict.status for verdict in gate(before, after, threshold=0.03)] == ["slower"]


def test_a_slowdown_within_the_noise_passes_however_large(gate: Any) -> None:
    swings = [[100.0] * 40, [160.0] * 40, [120.0] * 40]
    verdicts = gate([(swings, {})], [([[150.0] * 40, [110.0] * 40, [170.0] * 40], {})])
    assert verdicts[0].ratio.value > 1.05
    assert [verdict.status for verdict in verdicts] == ["inconclusive"]
    assert (exit_code(verdicts), exit_code(verdicts, strict=True)) == (0, 2)


def test_half_the_time_is_not_the_same_where_noise_explains_it() -> None:
    """Of ten cases one may be as far off by chance, so no test is convinced."""
    wild = [case_runs([[ms] * 40 for ms in times], 0) for times in ((72.0, 100.0, 135.0), (40.0, 52.1, 64.0))]
    calm = [case_runs([[ms] * 40 for ms in (99.0, 100.0, 101.0)], workers) for workers in range(1, 10)]
    found = judge([wild[0], *calm], [wild[1], *calm])
    assert found[0].ratio.value == pytest.approx(0.521)
    assert found[0].ratio.interval().high < 0.952
    assert found[0].status == "inconclusive"


def test_one_slow_run_after_many_is_measured_by_the_noise_between_those(gate: Any) -> None:
    calm = [[99.0] * 40, [100.0] * 40, [101.0] * 40, [100.0] * 40]
    verdicts = gate([(calm, {})], [([[110.0] * 40], {})])
    assert [verdict.status for verdict in verdicts] == ["slower"]
    wild = [[80.0] * 40, [100.0] * 40, [125.0] * 40, [100.0] * 40]
    assert [verdict.status for verdict in gate([(wild, {})], [([[110.0] * 40], {})])] == ["inconclusive"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("runs", "most"), [((3, 3), 0.02), ((5, 5), 0.02), ((5, 1), 0.05), ((1, 1), 0.05)])
def test_noisy_runs_of_the_same_code_are_seldom_flagged(
    noise: np.random.Generator, monkeypatch: pytest.MonkeyPatch, runs: Tuple[int, int], most: float
) -> None:
    """Of 300 gates of two equal cases, with 3 % noise between runs and 5 % within, at most this share fails."""
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    failed = 0
    for _ in range(300):
        before, after = (
            [case_runs([noisy_times(noise) for _ in range(count)], workers) for workers in (0, 1)] for count in runs
        )
        failed += exit_code(judge(before, after)) != 0
    assert failed / 300 <= most


def test_holms_correction_counts_all_cases(gate: Any, noise: np.random.Generator) -> None:
    """A slowdown that is just beyond noise on its own is not among many equal cases."""
    slow = ([[100.0] * 40, [103.0] * 40, [106.0] * 40], [[112.0] * 40, [108.0] * 40, [115.0] * 40])
    alone = gate([(slow[0], {})], [(slow[1], {})])
    assert [verdict.status for verdict in alone] == ["slower"]
    others = [([noisy_times(noise) for _ in range(3)], {"case": {"workers": workers}}) for workers in range(1, 20)]
    among = gate([(slow[0], {}), *others], [(slow[1], {}), *others])
    assert {verdict.status for verdict in among} <= {"same", "inconclusive"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"conditions": {"torch": "2.14.0"}}, 'torch: "2.15.0" -> "2.14.0"'),
        ({"conditions": {"device_model": "Another CPU"}}, 'device_model: "Example CPU" -> "Another CPU"'),
        ({"case": {"batch_size": 8}}, "batch_size: 16 -> 8"),
        ({"case": {"device": "nano"}}, 'device: "orin-agx" -> "nano"'),
        (
            {"conditions": {"power_mode": {"cpu_cores": 1, "cpu_khz": 0, "gpu_khz": 0, "mem_khz": 0}}},
            "power_mode.cpu_cores: 2 -> 1",
        ),
        ({"settings": {"seed": 1}}, "seed: 0 -> 1"),
        ({"provenance": "simulated"}, 'provenance: "measured" -> "simulated"'),
    ],
)
def test_different_conditions_are_refused_and_told(gate: Any, changes: Dict[str, Any], told: str) -> None:
    verdicts = gate([([[100.0] * 40], {})], [([[100.0] * 40], changes)])
    assert verdicts[0].status == "refused"
    assert verdicts[0].ratio is None
    assert verdicts[0].notes[0].endswith(f": {told}")
    assert exit_code(verdicts) == 2


def test_a_refusal_names_the_conditions_that_differ_least(gate: Any) -> None:
    near, far = {"conditions": {"torch": "2.14.0"}}, {"conditions": {"torch": "2.14.0", "python": "3.8.1"}}
    verdicts = gate([([[100.0] * 40], {})], [([[100.0] * 40], far), ([[100.0] * 40], near)])
    assert verdicts[0].notes[0].endswith(': torch: "2.15.0" -> "2.14.0"')


def test_cases_of_one_side_alone_are_listed(gate: Any) -> None:
    def with_workload(name: str) -> Any:
        return [[100.0] * 40], {"case": {"workload": name}}

    verdicts = gate([with_workload("a"), with_workload("b")], [with_workload("b"), with_workload("c")])
    assert [(verdict.case_id.split("-")[2], verdict.status) for verdict in verdicts] == [
        ("a", "not run"),
        ("b", "same"),
        ("c", "not in baseline"),
    ]
    assert exit_code(verdicts) == 0


def test_a_gate_that_compared_nothing_does_not_pass(gate: Any) -> None:
    verdicts = gate([([[100.0] * 40], {"case": {"workload": "a"}})], [([[100.0] * 40], {"case": {"workload": "b"}})])
    assert {verdict.status for verdict in verdicts} == {"not run", "not in baseline"}
    assert exit_code(verdicts) == 2
    assert exit_code([]) == 2


def test_too_few_minibatches_are_not_compared(gate: Any) -> None:
    verdicts = gate([([[100.0] * 9], {})], [([[100.0] * 9], {})])
    assert [verdict.status for verdict in verdicts] == ["too few"]
    assert exit_code(verdicts) == 2


def test_a_slower_case_outweighs_a_refused_one() -> None:
    assert exit_code([Checked("a", "refused", None, None), Checked("b", "slower", None, None)]) == 1


def test_a_baseline_is_compared_with_runs_added_since_and_never_with_its_own(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[100.0] * 40] * 3)
        record(store, tmp_path / "b.json")
        verdicts = check(store, tmp_path / "b.json")
        assert [(verdict.status, verdict.after) for verdict in verdicts] == [("not run", None)]
        assert "measure again: pytest benchmarks" in format_checked(verdicts, 0.05)
        assert exit_code(verdicts) == 2
        add_runs(store, [[130.0] * 40])
        [verdict] = check(store, tmp_path / "b.json")
    assert (verdict.status, len(verdict.after.runs)) == ("slower", 1)


def test_a_slowdown_after_an_upgrade_of_torch_does_not_pass_in_the_same_results(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[100.0] * 40] * 3)
        record(store, tmp_path / "b.json")
        add_runs(store, [[300.0] * 40] * 3, conditions={"torch": "2.16.0"})
        [verdict] = check(store, tmp_path / "b.json")
    assert verdict.status == "refused"
    assert verdict.notes[0].endswith(': torch: "2.15.0" -> "2.16.0"')
    assert exit_code([verdict]) == 2


def test_cases_that_were_not_run_again_do_not_hide_those_that_were(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for workload in ("a", "b"):
            add_runs(store, [[100.0] * 40] * 2, case={"workload": workload})
        record(store, tmp_path / "b.json")
        add_runs(store, [[101.0] * 40] * 2, case={"workload": "b"})
        verdicts = check(store, tmp_path / "b.json")
    assert [verdict.status for verdict in verdicts] == ["not run", "same"]
    assert exit_code(verdicts) == 0


@pytest.mark.parametrize("last", [None, 1])
def test_runs_that_the_baseline_left_out_are_not_taken_for_new_ones(tmp_path: Path, last: Optional[int]) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[200.0] * 40] * 2, environment={"suite_commit": "a"})
        add_runs(store, [[100.0] * 40] * 2, environment={"suite_commit": "b"})
        record(store, tmp_path / "b.json", last)
        assert [verdict.status for verdict in check(store, tmp_path / "b.json")] == ["not run"]


def stored(path: Path, times_ms: float) -> Path:
    """A results file with one run, stored now."""
    with ResultsStore(path) as store:
        add_runs(store, [[times_ms] * 40])
    return path


def test_an_older_file_that_is_merged_later_is_not_taken_for_new_runs(tmp_path: Path) -> None:
    nights = [stored(tmp_path / f"{number}", time_ms) for number, time_ms in enumerate((200.0, 100.0, 130.0))]
    with ResultsStore(nights[1], read_only=True) as store:
        record(store, tmp_path / "b.json")
    for places, status, runs in (((1, 0), "not run", 0), ((1, 2, 0), "slower", 1), ((2, 0), "slower", 1)):
        with ResultsStore(tmp_path / f"merged-{places}") as merged:
            for place in places:
                with ResultsStore(nights[place], read_only=True) as source:
                    merged.merge(source)
            [verdict] = check(merged, tmp_path / "b.json")
        assert (verdict.status, len(verdict.after.runs) if verdict.after else 0) == (status, runs), places


def test_another_file_that_is_older_as_a_whole_is_what_was_meant(tmp_path: Path) -> None:
    before, after = (stored(tmp_path / name, 100.0) for name in ("before", "after"))
    with ResultsStore(after, read_only=True) as store:
        record(store, tmp_path / "b.json")
    with ResultsStore(before, read_only=True) as store:
        assert [verdict.status for verdict in check(store, tmp_path / "b.json")] == ["same"]


def test_what_is_the_question_may_differ_and_is_told(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[100.0] * 40] * 3)
        record(store, tmp_path / "b.json")
        add_runs(store, [[130.0] * 40] * 3, conditions={"torch": "2.16.0"})
        [verdict] = check(store, tmp_path / "b.json", by=("torch",))
    assert verdict.status == "slower"
    assert verdict.notes[0] == 'torch: "2.15.0" -> "2.16.0"'


def test_runs_in_containers_with_names_of_their_own_belong_together(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for number in range(3):
            differing = {"host_name": f"container{number}", "memory_bytes": 2**33 - number}
            add_runs(store, [[100.0] * 40], environment={**ENVIRONMENT, **differing})
        [case] = record(store, tmp_path / "b.json").cases
    assert (len(case.runs), case.older) == (3, 0)


@pytest.mark.parametrize("name", ["suite_commit", "kernel", "cpu_governor"])
def test_what_can_change_the_times_keeps_runs_apart(tmp_path: Path, name: str) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for value in ("a", "b"):
            add_runs(store, [[100.0] * 40], environment={**ENVIRONMENT, name: value})
        [case] = record(store, tmp_path / "b.json").cases
    assert (len(case.runs), case.older) == (1, 1)


def test_profiles_stored_under_an_older_meaning_of_the_key_are_one_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version compared other conditions, so its keys differ where today's do not, and the reverse."""
    with ResultsStore(tmp_path / "r.sqlite") as store:
        with monkeypatch.context() as older:
            names = ("data_scale", *(name for name in conditions.NAMED_IN_CONDITIONS if name != "cuda"))
            older.setattr(conditions, "NAMED_IN_CONDITIONS", names)
            add_runs(store, [[100.0] * 40], conditions={"cuda": "12.6", "data_scale": 0.1})
            add_runs(store, [[102.0] * 40], conditions={"cuda": "12.6", "data_scale": 0.2})
            add_runs(store, [[90.0] * 40], conditions={"cuda": "13.0", "data_scale": 0.1})
        cases = record(store, tmp_path / "b.json").cases
        assert [len(case.runs) for case in cases] == [2, 1]
        assert {one.key for one in store.records()} == {case.key for case in cases}
    assert {case.key for case in read_baseline(tmp_path / "b.json")} == {case.key for case in cases}


def test_only_runs_in_the_newest_environment_count(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[100.0] * 40] * 2)
        record(store, tmp_path / "b.json")
        add_runs(store, [[100.0] * 40] * 9, environment={"suite_commit": "a"})
        add_runs(store, [[130.0] * 40] * 2, environment={"suite_commit": "b"})
        [verdict] = check(store, tmp_path / "b.json")
    assert (verdict.status, len(verdict.after.runs)) == ("slower", 2)
    assert verdict.notes[0].startswith("9 older profiles not used")
    assert 'suite_commit: unknown -> "b"' in verdict.notes[1]


def test_last_takes_the_newest_runs(gate: Any) -> None:
    after = [[100.0] * 40] * 5 + [[130.0] * 40]
    assert gate([([[100.0] * 40] * 3, {})], [(after, {})])[0].status == "inconclusive"
    [verdict] = gate([([[100.0] * 40] * 3, {})], [(after, {})], last=1)
    assert (verdict.status, len(verdict.after.runs)) == ("slower", 1)
    with pytest.raises(InvalidValueError, match="at least 1"):
        gate([([[100.0] * 40], {})], [(after, {})], last=0)


def test_flags_of_one_side_alone_are_told(gate: Any) -> None:
    before, after = {"flags": ["storage-unverified: a"]}, {"flags": ["storage-unverified: a", "noisy: b"]}
    [verdict] = gate([([[100.0] * 40] * 2, before)], [([[100.0] * 40] * 2, after)])
    assert verdict.notes == ["flagged only now: noisy"]


def test_the_table_shows_ratio_interval_verdict_notes_and_the_test_used(gate: Any) -> None:
    verdicts = gate(
        [([[100.0] * 40], {}), ([[100.0] * 40], {"case": {"workers": 1}})],
        [([[120.0] * 40], {}), ([[100.0] * 40], {"case": {"workers": 1}, "conditions": {"torch": "2.14.0"}})],
    )
    text = format_checked(verdicts, 0.05)
    header, _, *lines = text.splitlines()
    assert header.split() == ["case", "baseline", "ms", "now", "ms", "ratio", "95%", "interval", "runs", "verdict"]
    assert lines[0].split()[1:] == ["100.000", "120.000", "1.200", "1.177", "to", "1.224", "1", "|", "1", "slower"]
    assert lines[1].split()[1:] == ["100.000", "100.000", "-", "-", "1", "|", "1", "refused"]
    assert "noise between runs is not seen" in text
    assert 'torch: "2.15.0" -> "2.14.0"' in text
    assert "threshold 5.0%" in text
    assert "block bootstrap" in text
    assert "Holm" in text


def test_a_note_on_many_cases_is_printed_once(gate: Any) -> None:
    groups = [([[100.0] * 40], {"case": {"workers": workers}}) for workers in range(5)]
    lines = format_checked(gate(groups, groups), 0.05).splitlines()
    [note] = [line for line in lines if "noise between runs" in line]
    assert note.startswith("orin-agx-lenet-mnist-maxn-w0-ssd-bs16, orin-agx-lenet-mnist-maxn-w1-ssd-bs16, ")
    assert " and 2 more: one run on each side" in note


def test_a_threshold_below_0_is_refused(gate: Any) -> None:
    for threshold in (-0.1, float("nan")):
        with pytest.raises(InvalidValueError, match="threshold"):
            gate([([[100.0] * 40], {})], [([[100.0] * 40], {})], threshold)


def test_a_baseline_holds_what_a_later_check_needs(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[100.0, 101.0] * 20, [102.0] * 40])
        recorded = record(store, tmp_path / "b.json")
    assert recorded.dropped == []
    assert read_baseline(tmp_path / "b.json") == recorded.cases
    document = json.loads((tmp_path / "b.json").read_text())
    [case] = document["cases"]
    assert (document["format"], document["version"]) == ("jetwatt-baseline", 1)
    assert case["case"] == "orin-agx-lenet-mnist-maxn-w0-ssd-bs16"
    assert case["interval_ms"][0] <= case["median_ms"] <= case["interval_ms"][1]
    assert case["conditions"]["torch"] == "2.15.0"
    assert case["environment"] == ENVIRONMENT
    assert [len(run["minibatch_times_ms"]) for run in case["runs"]] == [40, 40]


def test_whole_epochs_are_compared_without_epoch_0(tmp_path: Path) -> None:
    profile = make_profile([500.0] * 10 + [100.0] * 20, settings={"minibatches": None, "epochs": 2})
    profile.minibatches[11:] = [minibatch._replace(epoch=1) for minibatch in profile.minibatches[11:]]
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(profile, ENVIRONMENT, "run")
        [case] = record(store, tmp_path / "b.json").cases
    assert case.series() == [(100.0,) * 20]


def test_recording_anew_tells_which_cases_are_gone(tmp_path: Path) -> None:
    for workload in ("a", "b"):
        with ResultsStore(tmp_path / f"{workload}.sqlite") as store:
            add_runs(store, [[100.0] * 40], case={"workload": workload})
            recorded = record(store, tmp_path / "b.json")
    assert recorded.dropped == ["orin-agx-a-maxn-w0-ssd-bs16"]


def test_recording_does_not_overwrite_another_file(tmp_path: Path) -> None:
    other = tmp_path / "package.json"
    other.write_text('{"name": "x"}')
    with ResultsStore(tmp_path / "r.sqlite") as store:
        with pytest.raises(StoreError, match="holds no profile"):
            record(store, tmp_path / "b.json")
        add_runs(store, [[100.0] * 40])
        with pytest.raises(StoreError, match="is no baseline"):
            record(store, other)
    assert other.read_text() == '{"name": "x"}'
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not JSON"),
        ("[]", "holds a list"),
        ('{"format": "jetwatt-baseline", "version": 2}', "of version 2"),
        ('{"format": "jetwatt-baseline", "version": 1}', "damaged: KeyError 'cases'"),
        ('{"format": "jetwatt-baseline", "version": 1, "cases": [{"case": "a"}]}', "damaged"),
        ('{"format": "jetwatt-baseline", "version": 1, "cases": [{"case": "a", "runs": [{}]}]}', "damaged"),
        (
            '{"format": "jetwatt-baseline", "version": 1, "cases":'
            ' [{"case": "a", "conditions": {}, "environment": {}, "runs": []}]}',
            "case a has a run without minibatch times",
        ),
    ],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(StoreError, match=complaint):
        read_baseline(tmp_path / "b.json")
    with pytest.raises(StoreError, match="cannot read the baseline"):
        read_baseline(tmp_path / "missing.json")


def test_disturbed_and_throttled_profiles_are_in_no_baseline(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[300.0] * 40], flags=["throttled: hot"])
        with pytest.raises(StoreError, match="left out 1 profiles flagged disturbed or throttled"):
            record(store, tmp_path / "b.json")
        add_runs(store, [[100.0] * 40] * 2, flags=["noisy: a"])
        add_runs(store, [[300.0] * 40], flags=["noisy: a", "disturbed: b"])
        recorded = record(store, tmp_path / "b.json")
        assert ([len(case.runs) for case in recorded.cases], recorded.flagged) == ([2], 2)
        recorded = record(store, tmp_path / "b.json", include_flagged=True)
        assert ([len(case.runs) for case in recorded.cases], recorded.flagged) == ([4], 0)


def test_disturbed_profiles_of_other_conditions_are_counted(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[100.0] * 40])
        record(store, tmp_path / "b.json")
        add_runs(store, [[100.0] * 40] * 2, case={"batch_size": 8}, flags=["disturbed: a"])
        [verdict] = check(store, tmp_path / "b.json")
    assert (verdict.status, len(verdict.notes)) == ("not run", 2)
    left_out = "left out: 2 profiles flagged disturbed or throttled (--include-flagged keeps them)"
    assert verdict.notes[1] == f"under other conditions, {left_out}"


def test_disturbed_profiles_fail_no_gate(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[100.0] * 40] * 3)
        record(store, tmp_path / "b.json")
        add_runs(store, [[300.0] * 40], flags=["disturbed: a"])
        [verdict] = check(store, tmp_path / "b.json")
        assert verdict.status == "not run"
        assert "run again, but left out: 1 profiles flagged disturbed or throttled" in verdict.notes[0]
        assert [verdict.status for verdict in check(store, tmp_path / "b.json", include_flagged=True)] == ["slower"]
        add_runs(store, [[101.0] * 40])
        [verdict] = check(store, tmp_path / "b.json")
    assert (verdict.status, len(verdict.after.runs)) == ("same", 1)
    assert verdict.notes[0].startswith("left out: 1 profiles flagged disturbed or throttled")


def test_what_a_baseline_with_flagged_runs_was_made_of_is_not_new(tmp_path: Path) -> None:
    with ResultsStore(tmp_path / "r.sqlite") as store:
        add_runs(store, [[100.0] * 40])
        add_runs(store, [[100.0] * 40], flags=["disturbed: a"])
        record(store, tmp_path / "b.json", include_flagged=True)
        assert [verdict.status for verdict in check(store, tmp_path / "b.json")] == ["not run"]
