"""The gate fails on a slowdown, passes on the same code, and compares nothing that differs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import pytest

from harness.__main__ import main
from harness.core.errors import InvalidValueError, StoreError
from harness.core.metrics import summarise_idle
from harness.gate import Baseline
from harness.judge.baseline import RECORD_MORE_NOTE, check, format_checked, judge, record
from harness.judge.comparison import DOUBTFUL_CHANGE, Comparison, exit_code
from harness.judge.quantities import TIME
from harness.judge.sides import CaseRuns, Run, read_baseline
from harness.outcome import Outcome
from harness.stats import estimates as statistics
from harness.store import conditions
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says

BETWEEN_RUNS, WITHIN_RUNS = 0.03, 0.05
RUN = [100.0] * 40


@pytest.fixture
def noise() -> np.random.Generator:
    return np.random.default_rng(11)


def noisy_times(noise: np.random.Generator, median_ms: float = 100.0, count: int = 40) -> List[float]:
    """One run: log-normal minibatch times around a median of its own."""
    own = median_ms * np.exp(BETWEEN_RUNS * noise.normal())
    return list(own * np.exp(WITHIN_RUNS * noise.normal(size=count)))


def steady(*medians_ms: float) -> List[List[float]]:
    """Runs of 40 equal minibatches."""
    return [[median_ms] * 40 for median_ms in medians_ms]


def add_runs(
    store: ResultsStore, runs: Sequence[Sequence[float]], environment: Optional[Dict[str, Any]] = None, **changes: Any
) -> None:
    """Store a profile for each run of minibatch times."""
    changes["case"] = {"device": "orin-agx", **changes.get("case", {})}
    for number, times_ms in enumerate(runs):
        store.add(make_profile(times_ms, **{"power_mw": None, **changes}), environment or ENVIRONMENT, f"run{number}")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with ResultsStore(tmp_path / "r.sqlite") as opened:
        yield opened


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """Where one is to be recorded."""
    return tmp_path / "b.json"


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


@pytest.mark.parametrize("runs", [1, 3])
def test_a_slowdown_of_a_fifth_fails(gate, noise, runs):
    before, after = ([noisy_times(noise, median) for _ in range(runs)] for median in (100, 120))
    [verdict] = gate([(before, {})], [(after, {})])
    assert (verdict.status, exit_code([verdict])) == ("slower", 1)
    assert verdict.change.ratio == pytest.approx(1.2, rel=0.06)
    assert verdict.change.low > 1
    unseen = "the noise between runs is not measured, and assumed to be at least 0.5%"
    assert any(unseen in note for note in verdict.notes) == (runs == 1)


def verdicts_of(found: Sequence[Comparison]) -> Dict[str, str]:
    return {one.figure: one.status for one in found}


@pytest.mark.parametrize(
    ("power_mw", "status", "code"),
    [(9000.0, "no difference", 0), (9900.0, "more power", 1), (8100.0, "less power", 0), (None, "not measured", 0)],
)
def test_more_power_fails_as_more_time_does(gate, power_mw, status, code):
    found = gate([([RUN] * 3, {"power_mw": 9000.0})], [([RUN] * 3, {"power_mw": power_mw})])
    assert verdicts_of(found) == {"minibatch time": "no difference", "power": status}
    assert exit_code(found) == code
    assert exit_code(found, strict=True) == (2 if status == "not measured" else code)


def test_the_fixture_fails_on_more_memory_as_on_more_power(store, baseline):
    """Simulated boards have no memory, so this is not seen in tests of one's own on them."""
    profile = make_profile(RUN, case={"device": "orin-agx"}, power_mw=None)
    profile.aggregates["memory_peak_bytes"] = 1.0e9
    for number in range(3):
        store.add(profile, ENVIRONMENT, f"run{number}")
    record(store, baseline)
    Baseline(baseline, Outcome()).check(profile)
    profile.aggregates["memory_peak_bytes"] = 1.3e9
    with pytest.raises(pytest.fail.Exception, match=": peak memory: more memory, "):
        Baseline(baseline, Outcome()).check(profile)


def test_power_that_is_unsure_is_not_compared_and_says_so(gate):
    unsure = {"power_mw": 9900.0, "flags": ["power-unsettled: never"]}
    found = gate([([RUN] * 3, {"power_mw": 9000.0})], [([RUN] * 3, unsure)])
    assert verdicts_of(found) == {"minibatch time": "no difference", "power": "not measured"}
    [note] = found[1].notes
    assert says(note, "power", "only the baseline")
    reverse = gate([([RUN] * 3, unsure)], [([RUN] * 3, {"power_mw": 9000.0})])
    assert verdicts_of(reverse)["power"] == "not in baseline"


def cases_of(*workloads: str) -> List[Any]:
    return [([RUN], {"case": {"workload": name}}) for name in workloads]


@pytest.mark.parametrize(
    ("recorded", "measured", "codes"),
    [("a", "ab", (0, 2, 2)), ("ab", "a", (0, 2, 0)), ("ab", "ab", (0, 0, 0))],
    ids=["not-in-the-baseline", "not-run", "the-same"],
)
def test_strict_fails_what_was_not_compared_and_partial_admits_what_was_not_run(gate, recorded, measured, codes):
    verdicts = gate(cases_of(*recorded), cases_of(*measured))
    partial = exit_code(verdicts, strict=True, is_partial=True)
    assert (exit_code(verdicts), exit_code(verdicts, strict=True), partial) == codes


def test_a_strict_check_names_the_cases_that_were_not_run_and_partial(tmp_path, baseline, capsys):
    for name, workloads in (("before", "ab"), ("after", "a")):
        with ResultsStore(tmp_path / name) as store:
            for runs, changes in cases_of(*workloads):
                add_runs(store, runs, **changes)
    with ResultsStore(tmp_path / "before", read_only=True) as store:
        record(store, baseline)
    command = ["baseline", "check", "--results", f"{tmp_path / 'after'}", "--baseline", f"{baseline}"]
    assert main([*command, "--strict"]) == 2
    out = capsys.readouterr().out
    assert re.search(r"orin-agx-b\S*: not run", out)
    assert says(out, "--strict", "2 comparisons", "1 not run", "--partial")
    assert main([*command, "--strict", "--partial"]) == 0
    assert "--strict fails" not in capsys.readouterr().out


@pytest.mark.parametrize(("runs", "has_note"), [(1, True), (3, False)])
def test_an_equal_figure_is_inconclusive_if_one_noisy_run_was_recorded_and_the_reason_is_given(
    gate, noise, runs, has_note
):
    times = [100 * np.exp(0.9 * noise.normal(size=40)) for _ in range(runs)]
    verdicts = gate([(times, {})], [(times, {})])
    assert [verdict.status for verdict in verdicts] == ["inconclusive"]
    assert verdicts[0].change.ratio == pytest.approx(1)
    assert verdicts[0].notes[0] == "noise may hide a change of 5.0%"
    assert (RECORD_MORE_NOTE in verdicts[0].notes) == has_note


def test_a_change_that_is_not_significant_is_not_blamed_on_noise_that_hides_an_equal_figure():
    verdicts = judge([case_runs(steady(96, 100, 104), 0)], [case_runs(steady(102, 106, 110), 0)])
    [verdict] = verdicts
    assert (verdict.status, verdict.notes[0]) == ("inconclusive", DOUBTFUL_CHANGE)
    assert verdict.change.low > 1 / 1.05  # so an equal figure would be no difference


def test_what_was_tested_and_what_is_undecided_is_printed_in_short_lines():
    verdicts = judge([case_runs(steady(96, 100, 104), 0)], [case_runs(steady(102, 106, 110), 0)])
    _, _, footer = format_checked(verdicts).partition("tolerance: ")
    assert max(map(len, footer.splitlines())) <= 100
    text = " ".join(footer.split())
    assert says(text, "inconclusive: 1 of 1 verdict", DOUBTFUL_CHANGE, "at least 3 runs")
    assert re.search(r"80%: minibatch time \d+\.\d%", text)
    decided = format_checked(judge([case_runs(steady(*[100] * 9), 0)], [case_runs(steady(*[100] * 9), 0)]))
    assert "inconclusive" not in decided
    assert "to decide" not in decided


def test_an_idle_state_that_takes_more_power_fails(tmp_path, baseline):
    """It has no minibatches; its power is compared all the same."""
    for number, power_mw in enumerate((5000.0, 5500.0)):
        with ResultsStore(tmp_path / f"{number}") as store:
            idle = {"settings": {"minibatches": None, "idle_s": 4.0}, "case": {"task": "idle", "device": "orin-agx"}}
            profile = make_profile(power_mw=power_mw, **idle)
            profile.minibatches.clear()
            profile.aggregates.update(summarise_idle(profile.telemetry, 999.0, 1004.0))
            for _ in range(3):
                store.add(profile, ENVIRONMENT, "run")
    with ResultsStore(tmp_path / "0") as store:
        record(store, baseline)
    [case] = json.loads(baseline.read_text())["cases"]
    assert (case["median_ms"], case["runs"][0]["power_mw"]) == (None, 5000.0)
    with ResultsStore(tmp_path / "1") as store:
        [verdict] = check(store, baseline)
    assert (verdict.figure, verdict.status) == ("power", "more power")


CALM, WILD = steady(99, 100, 101, 100), steady(80, 100, 125, 100)


@pytest.mark.parametrize(
    ("before", "after", "threshold", "status", "codes"),
    [
        (steady(99, 100, 101), steady(99, 100, 101), 0.05, "no difference", (0, 0)),
        (steady(100), steady(80), 0.05, "faster", (0, 0)),
        (steady(100), steady(104), 0.05, "slower, within the tolerance of 5 %", (0, 0)),
        (steady(100), steady(104), 0.03, "slower", (1, 1)),
        (steady(100, 160, 120), steady(150, 110, 170), 0.05, "inconclusive", (0, 2)),
        (CALM, steady(110), 0.05, "slower", (1, 1)),
        (WILD, steady(110), 0.05, "inconclusive", (0, 2)),
        (WILD, steady(90), 0.05, "inconclusive", (0, 2)),
        ([[100.0] * 9], [[100.0] * 9], 0.05, "too few", (2, 2)),
    ],
    ids=[
        *("the same data", "a speed-up", "within the tolerance", "beyond it", "within the noise"),
        *("one slow run after calm ones", "and after wild ones", "a fast one after wild ones", "few minibatches"),
    ],
)
def test_verdict_and_exit_code(gate, before, after, threshold, status, codes):
    verdicts = gate([(before, {})], [(after, {})], threshold)
    assert [verdict.status for verdict in verdicts] == [status]
    assert (exit_code(verdicts), exit_code(verdicts, strict=True)) == codes


@pytest.mark.exhaustive
@pytest.mark.parametrize(("runs", "most"), [((3, 3), 0.02), ((5, 5), 0.02), ((5, 1), 0.05), ((1, 1), 0.05)])
@pytest.mark.long
def test_noisy_runs_of_the_same_code_are_seldom_flagged(noise, monkeypatch, runs, most):
    """Of 300 gates of two equal cases, with 3 % noise between runs and 5 % within, at most this share fails."""
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    failed = 0
    for _ in range(300):
        before, after = (
            [case_runs([noisy_times(noise) for _ in range(count)], workers) for workers in (0, 1)] for count in runs
        )
        failed += exit_code(judge(before, after)) != 0
    assert failed / 300 <= most


@pytest.mark.exhaustive
def test_holms_correction_counts_all_cases(gate, noise):
    """A slowdown that is just beyond noise on its own is not among many equal cases."""
    slow = (steady(100, 103, 106), steady(112, 108, 115))
    alone = gate([(slow[0], {})], [(slow[1], {})])
    assert [verdict.status for verdict in alone] == ["slower"]
    others = [([noisy_times(noise) for _ in range(3)], {"case": {"workers": workers}}) for workers in range(1, 20)]
    among = gate([(slow[0], {}), *others], [(slow[1], {}), *others])
    assert {verdict.status for verdict in among} <= {"no difference", "inconclusive"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"conditions": {"torch": "2.14.0"}}, 'torch: "2.15.0" -> "2.14.0"'),
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
def test_different_conditions_are_refused_and_told(gate, changes, told):
    [verdict] = gate([([RUN], {})], [([RUN], changes)])
    assert (verdict.status, verdict.change, exit_code([verdict])) == ("refused", None, 2)
    assert "--by" in format_checked([verdict])
    assert verdict.notes[0].endswith(f": {told}")


def test_a_refusal_names_the_conditions_that_differ_least(gate):
    near, far = {"conditions": {"torch": "2.14.0"}}, {"conditions": {"torch": "2.14.0", "python": "3.8.1"}}
    verdicts = gate([([RUN], {})], [([RUN], far), ([RUN], near)])
    assert verdicts[0].notes[0].endswith(': torch: "2.15.0" -> "2.14.0"')


@pytest.mark.parametrize(
    ("before", "after", "statuses", "code"),
    [("ab", "bc", ["not run", "no difference", "not in baseline"], 0), ("a", "b", ["not run", "not in baseline"], 2)],
)
def test_cases_of_one_side_alone_are_listed_and_a_gate_that_compared_nothing_does_not_pass(
    gate, before, after, statuses, code
):
    verdicts = gate(*([([RUN], {"case": {"workload": name}}) for name in side] for side in (before, after)))
    assert [verdict.status for verdict in verdicts] == statuses
    assert exit_code(verdicts) == code


def test_a_slower_case_outweighs_a_refused_one_and_nothing_is_no_pass():
    assert exit_code([Comparison("cases", "a", TIME, "refused"), Comparison("cases", "b", TIME, "slower")]) == 1
    assert exit_code([]) == 2


def test_a_baseline_is_compared_with_runs_added_since_and_never_with_its_own(store, baseline):
    for workload in ("a", "b"):
        add_runs(store, [RUN] * 3, case={"workload": workload})
    record(store, baseline)
    verdicts = check(store, baseline)
    assert [(verdict.status, verdict.pair.after) for verdict in verdicts] == [("not run", None)] * 2
    assert "measure again: pytest benchmarks" in format_checked(verdicts, 0.05)
    assert exit_code(verdicts) == 2
    add_runs(store, steady(130), case={"workload": "b"})
    first, second = check(store, baseline)
    assert (first.status, second.status, second.counts[1]) == ("not run", "slower", 1)


@pytest.mark.parametrize(("by", "status", "code"), [((), "refused", 2), (("torch",), "slower", 1)])
def test_after_an_upgrade_of_torch_a_slowdown_does_not_pass_and_is_told_where_that_is_the_question(
    store, baseline, by, status, code
):
    add_runs(store, [RUN] * 3)
    record(store, baseline)
    add_runs(store, steady(300) * 3, conditions={"torch": "2.16.0"})
    [verdict] = check(store, baseline, by=by)
    assert (verdict.status, exit_code([verdict])) == (status, code)
    assert any(note.endswith('torch: "2.15.0" -> "2.16.0"') for note in verdict.notes)


@pytest.mark.parametrize("last", [None, 1])
def test_runs_that_the_baseline_left_out_are_not_taken_for_new_ones(store, baseline, last):
    add_runs(store, steady(200) * 2, environment={"suite_commit": "a"})
    add_runs(store, [RUN] * 2, environment={"suite_commit": "b"})
    record(store, baseline, last)
    assert [verdict.status for verdict in check(store, baseline)] == ["not run"]


def test_an_older_file_that_is_merged_later_is_not_taken_for_new_runs_and_one_alone_is_what_was_meant(
    tmp_path, baseline
):
    nights = [tmp_path / f"{number}" for number in range(3)]
    for path, time_ms in zip(nights, (200.0, 100.0, 130.0)):
        with ResultsStore(path) as store:
            add_runs(store, steady(time_ms))
    with ResultsStore(nights[1], read_only=True) as store:
        record(store, baseline)
    found = {(1, 0): ("not run", 0), (1, 2, 0): ("slower", 1), (2, 0): ("slower", 1), (0,): ("slower", 1)}
    for places, expected in found.items():
        with ResultsStore(tmp_path / f"merged-{places}") as merged:
            for place in places:
                with ResultsStore(nights[place], read_only=True) as source:
                    merged.merge(source)
            [verdict] = check(merged, baseline)
        assert (verdict.status, verdict.counts[1]) == expected, places


@pytest.mark.parametrize(
    ("differing", "counts"),
    [
        ([{"host_name": f"container{number}", "memory_bytes": 2**33 - number} for number in range(2)], (2, 0)),
        ([{"suite_commit": "a"}, {"suite_commit": "b"}], (1, 1)),
        ([{"cpu_governor": "a"}, {"cpu_governor": "b"}], (1, 1)),
    ],
)
def test_what_can_change_the_times_keeps_runs_apart_and_names_of_containers_do_not(store, baseline, differing, counts):
    for one in differing:
        add_runs(store, [RUN], environment={**ENVIRONMENT, **one})
    [case] = record(store, baseline).cases
    assert (len(case.runs), case.older) == counts


def test_profiles_stored_under_an_older_meaning_of_the_key_are_one_case(store, baseline, monkeypatch):
    """An older version compared other conditions, so its keys differ where today's do not, and the reverse."""
    with monkeypatch.context() as older:
        names = ("data_scale", *(name for name in conditions.NAMED_IN_CONDITIONS if name != "cuda"))
        older.setattr(conditions, "NAMED_IN_CONDITIONS", names)
        add_runs(store, [RUN], conditions={"cuda": "12.6", "data_scale": 0.1})
        add_runs(store, steady(102), conditions={"cuda": "12.6", "data_scale": 0.2})
        add_runs(store, steady(90), conditions={"cuda": "13.0", "data_scale": 0.1})
    cases = record(store, baseline).cases
    assert [len(case.runs) for case in cases] == [2, 1]
    assert {one.key for one in store.records()} == {case.key for case in cases}
    assert {case.key for case in read_baseline(baseline)} == {case.key for case in cases}


def test_only_runs_in_the_newest_environment_count(store, baseline):
    add_runs(store, [RUN] * 2)
    record(store, baseline)
    add_runs(store, [RUN] * 9, environment={"suite_commit": "a"})
    add_runs(store, steady(130) * 2, environment={"suite_commit": "b"})
    [verdict] = check(store, baseline)
    assert (verdict.status, verdict.counts[1]) == ("slower", 2)
    assert any(note.startswith("9 older profiles not used") for note in verdict.notes)
    assert 'suite_commit: unknown -> "b"' in "; ".join(verdict.notes)


@pytest.mark.exhaustive
def test_last_takes_the_newest_runs(gate):
    before, after = [([RUN] * 3, {})], [([RUN] * 5 + steady(130), {})]
    assert gate(before, after)[0].status == "inconclusive"
    [verdict] = gate(before, after, last=1)
    assert (verdict.status, verdict.counts[1]) == ("slower", 1)
    with pytest.raises(InvalidValueError, match="at least 1"):
        gate(before, after, last=0)


def test_flags_of_one_side_alone_are_told(gate):
    before, after = {"flags": ["storage-unverified: a"]}, {"flags": ["storage-unverified: a", "noisy: b"]}
    [verdict] = gate([([RUN] * 2, before)], [([RUN] * 2, after)])
    assert verdict.notes == ("flagged only now: noisy",)


def test_the_table_shows_ratio_interval_verdict_notes_and_the_test_used(gate):
    of_one = {"case": {"workers": 1}}
    verdicts = gate(
        [([RUN], {}), ([RUN], of_one)], [(steady(120), {}), ([RUN], {**of_one, "conditions": {"torch": "2.14.0"}})]
    )
    text = format_checked(verdicts, 0.05)
    header, _, *lines = text.splitlines()
    assert re.split("  +", header) == ["case", "figure", "baseline", "now", "ratio", "95% interval", "runs", "verdict"]
    told = [re.split("  +", line)[1:] for line in lines[:2]]
    assert told == [
        ["minibatch time", "100.000 ms", "120.000 ms", "1.200", "1.177 to 1.224", "1 | 1", "slower"],
        ["minibatch time", "100.000 ms", "100.000 ms", "-", "-", "1 | 1", "refused"],
    ]
    threshold = "tolerance: 5.0%"
    for words in ("noise between runs is not measured", 'torch: "2.15.0" -> "2.14.0"', threshold, "Holm"):
        assert words in text


def test_a_note_on_many_cases_is_printed_once(gate):
    groups = [([RUN], {"case": {"workers": workers}}) for workers in range(5)]
    lines = format_checked(gate(groups, groups), 0.05).splitlines()
    [note] = [line for line in lines if "noise between runs" in line]
    assert note.startswith("orin-agx-lenet-mnist-maxn-w0-ssd-bs16, orin-agx-lenet-mnist-maxn-w1-ssd-bs16, ")
    assert " and 2 more: one run on each side" in note


def test_a_baseline_holds_what_a_later_check_needs(store, baseline):
    add_runs(store, [[100.0, 101.0] * 20, [102.0] * 40])
    recorded = record(store, baseline)
    assert recorded.dropped == []
    assert read_baseline(baseline) == recorded.cases
    document = json.loads(baseline.read_text())
    [case] = document["cases"]
    assert (document["format"], document["version"]) == ("jetwatt-baseline", 1)
    assert case["interval_ms"][0] <= case["median_ms"] <= case["interval_ms"][1]
    assert (case["conditions"]["torch"], case["environment"]) == ("2.15.0", ENVIRONMENT)
    assert [len(run["minibatch_times_ms"]) for run in case["runs"]] == [40, 40]


def test_whole_epochs_are_compared_without_epoch_0(store, baseline):
    profile = make_profile([500.0] * 10 + [100.0] * 20, settings={"minibatches": None, "epochs": 2})
    profile.minibatches[11:] = [minibatch._replace(epoch=1) for minibatch in profile.minibatches[11:]]
    store.add(profile, ENVIRONMENT, "run")
    [case] = record(store, baseline).cases
    assert case.series() == [(100.0,) * 20]


def test_recording_anew_tells_which_cases_are_gone(tmp_path, baseline):
    for workload in ("a", "b"):
        with ResultsStore(tmp_path / f"{workload}.sqlite") as store:
            add_runs(store, [RUN], case={"workload": workload})
            recorded = record(store, baseline)
    assert recorded.dropped == ["orin-agx-a-maxn-w0-ssd-bs16"]


def test_cases_of_one_id_are_listed_with_the_conditions_in_which_they_differ(store, baseline):
    for threads in (1, 2):
        add_runs(store, steady(100), conditions={"threads": threads})
    add_runs(store, steady(100), case={"batch_size": 4})
    lines = str(record(store, baseline)).splitlines()
    assert [line.partition(": ")[0].partition(" ")[2] for line in lines[:3]] == ["(threads 1)", "(threads 2)", ""]


def test_recording_does_not_overwrite_another_file(store, baseline):
    other = baseline.with_name("package.json")
    other.write_text('{"name": "x"}')
    with pytest.raises(StoreError, match="has no profile"):
        record(store, baseline)
    add_runs(store, [RUN])
    with pytest.raises(StoreError, match="is not a baseline"):
        record(store, other)
    assert other.read_text() == '{"name": "x"}'
    assert not baseline.exists()


CASES = '{"format": "jetwatt-baseline", "version": 1, "cases": '


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not JSON"),
        ("[]", "contains a list"),
        ('{"format": "jetwatt-baseline", "version": 2}', "of version 2"),
        ('{"format": "jetwatt-baseline", "version": 1}', "damaged: KeyError 'cases'"),
        (CASES + '[{"case": "a", "runs": [{}]}]}', "damaged"),
        (
            CASES + '[{"case": "a", "conditions": {}, "environment": {}, "runs": []}]}',
            "case a has a run without minibatch times",
        ),
    ],
)
def test_what_is_no_baseline_is_refused(baseline, content, complaint):
    baseline.write_text(content)
    with pytest.raises(StoreError, match=complaint):
        read_baseline(baseline)


@pytest.mark.parametrize("figure", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("column", ["minibatch_times_ms", "power_mw"])
def test_a_baseline_with_a_figure_that_no_measurement_gives_is_refused(store, baseline, column, figure):
    add_runs(store, [RUN])
    record(store, baseline)
    document = json.loads(baseline.read_text())
    document["cases"][0]["runs"][0][column] = [figure] * 40 if column == "minibatch_times_ms" else figure
    baseline.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="a figure that is no number above 0"):
        read_baseline(baseline)


def test_disturbed_and_throttled_profiles_are_in_no_baseline(store, baseline):
    add_runs(store, steady(300), flags=["throttled: hot"])
    with pytest.raises(StoreError, match=r"1 profile .*disturbed or throttled"):
        record(store, baseline)
    add_runs(store, [RUN] * 2, flags=["noisy: a"])
    add_runs(store, steady(300), flags=["noisy: a", "disturbed: b"])
    for include_flagged, runs, flagged in ((False, 2, 2), (True, 4, 0)):
        recorded = record(store, baseline, include_flagged=include_flagged)
        assert ([len(case.runs) for case in recorded.cases], recorded.flagged) == ([runs], flagged)
    assert [verdict.status for verdict in check(store, baseline)] == ["not run"], "what it was made of is not new"


def test_disturbed_profiles_of_other_conditions_are_counted(store, baseline):
    add_runs(store, [RUN])
    record(store, baseline)
    add_runs(store, [RUN] * 2, case={"batch_size": 8}, flags=["disturbed: a"])
    [verdict] = check(store, baseline)
    assert (verdict.status, len(verdict.notes)) == ("not run", 2)
    left_out = "left out: 2 profiles flagged disturbed or throttled (--include-flagged keeps them)"
    assert verdict.notes[1] == f"under other conditions, {left_out}"


def test_disturbed_profiles_fail_no_gate(store, baseline):
    add_runs(store, [RUN] * 3)
    record(store, baseline)
    add_runs(store, steady(300), flags=["disturbed: a"])
    [verdict] = check(store, baseline)
    assert verdict.status == "not run"
    assert says(verdict.notes[0], "left out: 1 profile", "disturbed or throttled")
    assert [verdict.status for verdict in check(store, baseline, include_flagged=True)] == ["slower"]
    add_runs(store, steady(101))
    [verdict] = check(store, baseline)
    assert (verdict.status, verdict.counts[1]) == ("no difference", 1)
    assert says(verdict.notes[0], "left out: 1 profile", "disturbed or throttled")
