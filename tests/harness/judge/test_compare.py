"""`python -m harness compare`: the same machine shows no difference, 5 % is found, what does not match is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import NormalDist
from typing import Any, Dict

import numpy as np
import pytest

from harness.__main__ import main
from harness.judge.comparison import DOUBTFUL_CHANGE, detectable_share, doubt_of
from harness.judge.quantities import TIME
from harness.stats.comparison import Change
from harness.stats.estimates import Estimate
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says

WORKLOADS = ("lenet-mnist", "resnet18-cifar10")


def measure(
    path: Path,
    seed: int,
    factor: float = 1.0,
    power_factor: float = 1.0,
    runs: int = 1,
    between: float = 0.005,
    workloads: Any = WORKLOADS,
    **changes: Any,
) -> Path:
    """A results file of two workloads with 0 and 4 workers; runs differ, and so do the minibatches of a run."""
    noise = np.random.default_rng(seed)
    case = changes.pop("case", {})
    environment = changes.pop("environment", ENVIRONMENT)
    with ResultsStore(path) as store:
        for run in range(runs):
            for workload in workloads:
                for workers in (0, 4):
                    median_ms = 100 * factor * np.exp(between * noise.normal())
                    times_ms = median_ms * np.exp(0.03 * noise.normal(size=60))
                    power_mw = 9000 * power_factor * np.exp(between * noise.normal())
                    made = {"device": "orin-agx", "workload": workload, "workers": workers, **case}
                    profile = make_profile(list(times_ms), power_mw=power_mw, case=made, **changes)
                    store.add(profile, environment, f"run{run}")
    return path


@pytest.fixture
def compare(capsys: pytest.CaptureFixture) -> Any:
    """Compares; exit code and what was printed as JSON."""

    def compare(*arguments: Any) -> Any:
        code = main(["compare", *map(str, arguments), "--json"])
        done = capsys.readouterr()
        return code, json.loads(done.out) if done.out else done.err

    return compare


def statuses(document: Dict[str, Any], what: str = "overall") -> Dict[str, str]:
    return {finding["figure"]: finding["status"] for finding in document[what]}


@pytest.mark.parametrize("runs", [1, 3])
def test_two_runs_of_the_same_machine_show_no_difference(tmp_path, compare, runs):
    before, after = measure(tmp_path / "a", 1, runs=runs), measure(tmp_path / "b", 2, runs=runs)
    code, document = compare(before, after)
    assert code == document["exit_code"] == 0
    found = {one["status"] for what in ("cases", "workloads", "overall") for one in document[what]}
    assert found == {"no difference"}
    assert document["confidence"] == 0.95
    assert all(one["low"] < 1 < one["high"] for one in document["overall"])


@pytest.mark.parametrize("runs", [1, 3])
def test_a_slow_down_of_5_percent_is_found(tmp_path, compare, runs):
    before, after = measure(tmp_path / "a", 1, runs=runs), measure(tmp_path / "b", 2, 1.05, runs=runs)
    code, document = compare(before, after)
    assert code == 1
    assert statuses(document) == {"minibatch time": "slower", "power": "no difference"}
    assert document["overall"][0]["ratio"] == pytest.approx(1.05, abs=0.015)
    assert compare(after, before)[0] == 0
    assert compare(before, after, "--threshold", "10")[0] == 0


def slowed_by_others(path: Path, seed: int, factor: float = 1.0) -> Path:
    """Ten runs on a machine that others share: a few runs, all cases of each, take half as long again."""
    generator = np.random.default_rng(seed)
    for run in range(10):
        slowed = 1 + 0.6 * generator.random() ** 4
        with ResultsStore(path) as store:
            for workers in (0, 4):
                times_ms = 100 * factor * slowed * np.exp(0.03 * generator.normal(size=60))
                store.add(
                    make_profile(list(times_ms), power_mw=None, case={"workers": workers}), ENVIRONMENT, f"r{run}"
                )
    return path


@pytest.mark.exhaustive
@pytest.mark.long
def test_beneath_the_noise_of_others_the_fast_minibatches_tell(tmp_path, compare):
    before, again = slowed_by_others(tmp_path / "a", 1), slowed_by_others(tmp_path / "b", 2)
    after = slowed_by_others(tmp_path / "c", 3, 1.05)
    code, document = compare(before, again, "--fastest")
    assert (code, statuses(document)) == (0, {"fast minibatch time": "no difference"})
    code, document = compare(before, after, "--fastest")
    assert (code, statuses(document)) == (1, {"fast minibatch time": "slower"})
    assert document["overall"][0]["ratio"] == pytest.approx(1.05, abs=0.015)
    _, document = compare(before, after)
    assert statuses(document)["minibatch time"] != "slower"
    assert any("--fastest" in note for note in document["notes"])


def test_fast_minibatches_of_few_runs_are_too_few(tmp_path, compare):
    before, after = measure(tmp_path / "a", 1, runs=3), measure(tmp_path / "b", 2, runs=3)
    code, document = compare(before, after, "--fastest")
    assert code == 2
    assert {one["status"] for one in document["cases"] if one["figure"] == "fast minibatch time"} == {"too few"}


@pytest.mark.parametrize(("flags", "found"), [((), {"power": "more power"}), (("power-unsettled: never",), {})])
def test_more_power_is_found_and_what_is_unsure_is_not_compared(tmp_path, compare, flags, found):
    before, after = measure(tmp_path / "a", 1), measure(tmp_path / "b", 2, power_factor=1.1, flags=flags)
    code, document = compare(before, after)
    assert (code, statuses(document)) == (len(found), {"minibatch time": "no difference", **found})


@pytest.mark.exhaustive
def test_one_slow_workload_among_many_is_named(tmp_path, compare):
    many = [f"w{number}" for number in range(8)]
    before, after = measure(tmp_path / "a", 1, runs=3, workloads=many), tmp_path / "b"
    measure(after, 2, runs=3, workloads=many[1:])
    measure(after, 3, 1.15, runs=3, workloads=many[:1])
    code, document = compare(before, after)
    assert code == 1
    slower = [one["name"] for one in document["workloads"] if one["status"] == "slower"]
    assert slower == ["w0"]


def test_noise_that_hides_5_percent_is_called_inconclusive(tmp_path, compare):
    swings = {"runs": 2, "between": 0.2}
    before, after = measure(tmp_path / "a", 1, **swings), measure(tmp_path / "b", 2, **swings)
    code, document = compare(before, after)
    assert code == 0
    assert statuses(document)["minibatch time"] == "inconclusive"


def test_a_large_change_that_is_not_sure_is_not_called_no_difference(tmp_path, compare):
    for name, medians_ms in (("a", (80.0, 100.0, 125.0)), ("b", (90.0, 112.0, 140.0))):
        with ResultsStore(tmp_path / name) as store:
            for median_ms in medians_ms:
                store.add(make_profile([median_ms] * 40, power_mw=None), ENVIRONMENT, "run")
    code, document = compare(tmp_path / "a", tmp_path / "b")
    [overall] = document["overall"]
    assert overall["low"] < 1 < 1.1 < overall["ratio"]
    assert (code, overall["status"]) == (0, "inconclusive")


def printed_verdicts(before, after, capsys, *arguments):
    """The last part of the printed comparison, by the label of each line."""
    main(["compare", str(before), str(after), *arguments])
    _, _, part = capsys.readouterr().out.partition("Verdicts:\n")
    assert max(map(len, part.splitlines())) <= 100
    lines = [" ".join(line.split()) for line in f"\n{part}".split("\n- ")[1:]]
    return dict(line.split(": ", 1) for line in lines)


def test_an_inconclusive_verdict_is_explained_by_its_own_reason_and_no_other(tmp_path, capsys):
    for name, factor in (("a", 1.0), ("b", 1.12)):
        with ResultsStore(tmp_path / name) as store:
            for median_ms in (80.0, 100.0, 125.0):
                store.add(make_profile([factor * median_ms] * 40, power_mw=None), ENVIRONMENT, "run")
    verdicts = printed_verdicts(tmp_path / "a", tmp_path / "b", capsys)
    assert verdicts["inconclusive"] == f"3 of 3 verdicts: {DOUBTFUL_CHANGE}"
    assert "--fastest" in verdicts["to detect smaller changes"]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "reason"),
    [
        (1.03, 0.98, 1.08, ""),  # beyond the threshold of 2 %, and still no difference: that begins at 5 %
        (1.03, 1.01, 1.05, DOUBTFUL_CHANGE),
        (1.06, 0.99, 1.13, DOUBTFUL_CHANGE),
        (1.0, 0.94, 1.06, "noise may hide a change of 5.0%"),
        (1.01, 1.005, 1.015, ""),  # on one side of 0 %, but below the threshold
    ],
)
def test_a_change_that_is_not_significant_is_inconclusive_for_a_reason_or_no_difference(ratio, low, high, reason):
    assert doubt_of(TIME, Change(ratio, low, high, 0.2), 0.02) == reason


@pytest.mark.parametrize("arguments", [(), ("--fastest",), ("--markdown",)])
def test_the_test_its_level_and_the_detectable_change_are_printed_in_short_lines(tmp_path, capsys, arguments):
    before, after = measure(tmp_path / "a", 1, runs=4), measure(tmp_path / "b", 2, runs=4)
    verdicts = printed_verdicts(before, after, capsys, *arguments)
    assert verdicts["tolerance"] == "2.0%"
    assert says(verdicts["test"], "p < 0.05", "two-sided", "Holm")
    assert ("p of fast minibatch time" in verdicts) == ("--fastest" in arguments)
    assert "to detect smaller changes" not in verdicts
    shares = verdicts["detectable with a probability of 80%"]
    assert re.search(r"minibatch time \d\.\d% .*\d\.\d% .*power ", shares)
    assert "inconclusive" not in verdicts


def test_names_with_markup_are_escaped_in_markdown(tmp_path, capsys):
    before = measure(tmp_path / "a", 1, workloads=["lenet-mnist"])
    after = measure(tmp_path / "b", 2, workloads=["<script>alert(1)</script>"])
    main(["compare", str(before), str(after), "--markdown"])
    assert "<script>" not in capsys.readouterr().out


def test_quiet_runs_need_no_advice_however_great_the_threshold(tmp_path, capsys):
    before, after = measure(tmp_path / "a", 1, runs=4), measure(tmp_path / "b", 2, runs=4)
    assert "to detect smaller changes" not in printed_verdicts(before, after, capsys, "--threshold", "5")


def test_fast_minibatches_are_advised_unless_they_are_compared_already(tmp_path, capsys):
    swings = {"runs": 4, "between": 0.2, "workloads": ["lenet-mnist"]}
    before, after = measure(tmp_path / "a", 1, **swings), measure(tmp_path / "b", 2, **swings)
    for arguments in ((), ("--fastest",)):
        advice = printed_verdicts(before, after, capsys, *arguments)["to detect smaller changes"]
        assert advice.startswith("measure more runs of each side")
        assert ("--fastest" in advice) == (not arguments)


def test_the_detectable_change_is_found_with_the_stated_probability():
    normal = NormalDist()
    for error, threshold in ((0.01, 0.0), (0.01, 0.02), (0.03, 0.02), (0.001, 0.05)):
        change = Change(*Estimate(1.01, error, 10_000).interval(), 0.5)
        share = detectable_share(change, threshold, 0.025)
        needed = max(normal.inv_cdf(0.975) * error, math.log1p(threshold))
        assert normal.cdf((math.log1p(share) - needed) / error) == pytest.approx(0.8, abs=1e-3)
    assert detectable_share(Change(1.0, 0.01, 100.0, 1.0), 0.02, 0.025) == math.inf


def test_other_conditions_are_refused_with_what_differs(tmp_path, compare):
    before = measure(tmp_path / "a", 1)
    after = measure(tmp_path / "b", 2, conditions={"torch": "2.16.0", "l4t": "36.4.0"})
    code, document = compare(before, after)
    assert code == 2
    assert document["cases"] == []
    assert len(document["refused"]) == 4
    assert document["refused"][0]["why"] == ['torch: "2.15.0" -> "2.16.0"', 'l4t: unknown -> "36.4.0"']
    assert document["only_after"] == []
    code, document = compare(before, after, "--by", "torch")
    assert code == 2
    assert document["refused"][0]["why"] == ['l4t: unknown -> "36.4.0"']


@pytest.mark.parametrize("changes", [{"conditions": {"torch": "2.16.0"}}, {"workloads": ["elsewhere"]}])
@pytest.mark.exhaustive
def test_files_that_share_no_case_are_told_apart_in_a_line(tmp_path, capsys, changes):
    before = measure(tmp_path / "a", 1, workloads=[f"w{number}" for number in range(30)])
    after = measure(tmp_path / "b", 2, **{"workloads": [f"w{number}" for number in range(30)], **changes})
    assert main(["compare", str(before), str(after)]) == 2
    _, _, told, *more = capsys.readouterr().out.splitlines()
    assert says(told, "a (60 cases)", "b (")
    assert told.endswith(" share no case.")
    if "conditions" in changes:
        assert says(more[0], 'torch: "2.15.0" -> "2.16.0"', "--by")
    assert not any("w7" in line for line in more)


def test_nested_conditions_can_be_the_question_and_an_unknown_one_is_refused(tmp_path, compare):
    mode = {"cpu_cores": 2, "cpu_khz": 0, "gpu_khz": 7, "mem_khz": 0}
    before, after = measure(tmp_path / "a", 1), measure(tmp_path / "b", 2, conditions={"power_mode": mode})
    for name in ("power_mode", "power_mode.gpu_khz"):
        code, document = compare(before, after, "--by", name)
        assert (code, document["changed"]) == (0, ["power_mode.gpu_khz: 0 -> 7"])
    assert compare(before, after, "--by", "power_mode.mem_khz")[0] == 2
    code, said = compare(before, before, "--by", "pytorch")
    assert code == 2
    assert "no condition is called pytorch" in said
    assert "torch" in said.partition("available:")[2]


def test_what_could_be_meant_twice_is_refused(tmp_path, compare):
    before = measure(tmp_path / "a", 1, workloads=["lenet-mnist"])
    after = measure(tmp_path / "b", 2, workloads=["lenet-mnist"])
    measure(after, 3, workloads=["lenet-mnist"], conditions={"torch": "2.16.0"})
    code, document = compare(before, after, "--by", "torch")
    assert code == 2
    assert "b has 2 cases that differ only in torch" in document["refused"][0]["why"][0]


def test_cases_of_one_side_alone_are_listed_and_change_nothing(tmp_path, compare):
    before = measure(tmp_path / "a", 1, workloads=["a", "b"])
    after = measure(tmp_path / "b", 2, workloads=["b", "c"])
    code, document = compare(before, after)
    assert code == 0
    assert document["only_before"] == ["orin-agx-a-maxn-w0-ssd-bs16", "orin-agx-a-maxn-w4-ssd-bs16"]
    assert document["only_after"] == ["orin-agx-c-maxn-w0-ssd-bs16", "orin-agx-c-maxn-w4-ssd-bs16"]


@pytest.mark.exhaustive
def test_disturbed_profiles_are_left_out_and_counted(tmp_path, compare):
    before, after = measure(tmp_path / "a", 1), measure(tmp_path / "b", 2)
    measure(after, 3, 3.0, flags=["disturbed: by a neighbour"])
    code, document = compare(before, after)
    assert (code, document["cases"][0]["counts"]) == (0, [1, 1])
    assert says(document["notes"][0], "b: ", "4 profiles", "disturbed or throttled")
    code, document = compare(before, after, "--include-flagged")
    assert document["cases"][0]["counts"] == [1, 2]
    only = measure(tmp_path / "c", 3, flags=["throttled: hot"])
    code, said = compare(before, only)
    assert code == 2
    assert says(said, "c ", "4 profiles", "disturbed or throttled", "--include-flagged")


def test_another_commit_is_told_and_compared(tmp_path, compare):
    before = measure(tmp_path / "a", 1, environment={**ENVIRONMENT, "suite_commit": "1"})
    after = measure(tmp_path / "b", 2, environment={**ENVIRONMENT, "suite_commit": "2", "host_name": "other"})
    code, document = compare(before, after)
    assert (code, document["environment"]) == (0, ['suite_commit: "1" -> "2"'])


def test_few_minibatches_are_no_comparison(tmp_path, compare):
    for name in ("a", "b"):
        with ResultsStore(tmp_path / name) as store:
            store.add(make_profile([100.0] * 5, power_mw=None), ENVIRONMENT, "run")
    code, document = compare(tmp_path / "a", tmp_path / "b")
    assert (code, [one["status"] for one in document["cases"]]) == (2, ["too few"])


def benchmark_json(path: Path, factor: float = 1.0, data: bool = True) -> Path:
    """What pytest-benchmark writes of a benchmark that is not the suite's."""
    times_s = [factor * (0.1 + 0.001 * (place % 5)) for place in range(60)]
    stats = {"median": factor * 0.102, **({"data": times_s} if data else {})}
    one = {"name": "test_a", "fullname": "test_a.py::test_a", "params": None, "extra_info": {}, "stats": stats}
    machine = {"node": "bench", "python_version": "3.11.2", "release": "6.1.0", "cpu": {"brand_raw": "Example CPU"}}
    document = {"machine_info": machine, "commit_info": None, "benchmarks": [one], "datetime": "2026-01-31T12:00:00"}
    path.write_text(json.dumps(document))
    return path


def test_files_of_another_benchmark_are_compared_and_one_run_of_any_machine_is_no_proof(tmp_path, compare):
    before, after = benchmark_json(tmp_path / "a.json"), benchmark_json(tmp_path / "b.json", 1.05)
    code, document = compare(before, after)
    assert (code, statuses(document)) == (0, {"minibatch time": "inconclusive"})
    assert document["overall"][0]["ratio"] == pytest.approx(1.05)
    assert "--benchmark-save-data" in compare(before, benchmark_json(tmp_path / "c.json", data=False))[1]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[]", "is not a file of pytest-benchmark"),
        ('{"benchmarks": [{}], "machine_info": {}}', "is damaged, or not of pytest-benchmark: KeyError 'extra_info'"),
        ('{"benchmarks": [], "machine_info": {}}', "has nothing to compare"),
    ],
)
def test_what_is_no_side_is_refused(tmp_path, compare, content, complaint):
    (tmp_path / "x.json").write_text(content)
    code, said = compare(measure(tmp_path / "a", 1), tmp_path / "x.json")
    assert code == 2
    assert complaint in said


@pytest.mark.parametrize("factor", [math.nan, math.inf, 0.0])
def test_a_benchmark_with_times_that_no_clock_gives_is_refused(tmp_path, compare, factor):
    sides = benchmark_json(tmp_path / "a.json"), benchmark_json(tmp_path / "b.json", factor)
    code, said = compare(*sides)
    assert code == 2
    assert says(said, "test_a", "above 0")


@pytest.mark.exhaustive
def test_a_baseline_is_a_side_of_a_comparison(tmp_path, compare, capsys):
    before, after = measure(tmp_path / "a", 1, runs=3), measure(tmp_path / "b", 2, 1.05, runs=3)
    baseline = tmp_path / "b.json"
    assert main(["baseline", "record", "--results", str(before), "--baseline", str(baseline)]) == 0
    capsys.readouterr()
    code, document = compare(baseline, after)
    _, expected = compare(before, after)
    assert code == 1
    assert [document[what] for what in ("cases", "workloads", "overall")] == [
        expected[what] for what in ("cases", "workloads", "overall")
    ]
