"""`pytest benchmarks` on simulated boards and replayed corpora: the commands that the documentation names."""

from __future__ import annotations

import pytest

from harness.__main__ import main
from harness.core.corpus import read_corpus, rows_of, write_corpus
from harness.core.power_modes import PowerMode
from harness.simulation.corpus import simulate_corpus
from harness.store.results import ResultsStore
from tests.messages import says

MODES = [PowerMode(cores, cpu, 1_300_500, 3_199_000) for cores in (4, 12) for cpu in (1_113_600, 2_201_600)]
USAGE_ERROR = 4


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "agx.csv"
    write_corpus(path, simulate_corpus("orin-agx", "yolov8n-coco", MODES))
    return path


@pytest.mark.exhaustive
def test_boards_and_a_corpus_run_side_by_side_without_torch_and_write_nothing_but_results(run_suite, corpus, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")  # importing torch fails
    before = set(tmp_path.rglob("*"))
    devices = f"sim:orin-agx,sim:xavier-agx,replay:{corpus}"
    done = run_suite("-p", "sitecustomize", "--device", devices, "--workload", "yolov8n-coco", "--workers", "0,4",
                     fresh=True)  # fmt: skip
    assert "5 passed" in done.stdout  # the corpus does not tell workers: one case
    assert "sim:xavier-agx-yolov8n-coco-maxn-w4-ssd-bs16 (simulated)" in done.stdout
    assert "replay:agx.csv-yolov8n-coco-maxn-bs16 (replayed)" in done.stdout
    assert "power: simulated" in done.stdout
    assert says(done.stdout, "power: ", "agx.csv")
    written = {path.relative_to(tmp_path).parts[0] for path in set(tmp_path.rglob("*")) - before}
    assert written - {"__pycache__", ".benchmarks"} == {"out"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.sqlite"]


@pytest.mark.exhaustive
def test_an_injected_slowdown_is_flagged_and_taken_for_no_profile_without_it(run_suite, tmp_path):
    arguments = ("--device", "sim:orin-agx", "--workload", "lenet-mnist", "--workers", "0", "-rs")
    run_suite(*arguments, "--results", "a.sqlite")
    slowed = run_suite(*arguments, "--results", "a.sqlite", "--resume", "--slowdown", "5%").stdout
    assert "1 passed" in slowed
    assert "(simulated)" in slowed
    assert says(slowed, "injected", "5.0%")
    said = " ".join(slowed.split())
    assert says(said, "measured again", "torch: unknown -> ", "5 % slower")
    with ResultsStore(tmp_path / "a.sqlite", read_only=True) as store:
        normal, injected = store.records()
    assert injected.provenance == "simulated"
    assert injected.conditions["injected_slowdown"] == 0.05
    ratio = injected.aggregates["minibatch_time_ms"] / normal.aggregates["minibatch_time_ms"]
    assert ratio == pytest.approx(1.05, rel=0.005)
    assert [injected.conditions["torch"], normal.conditions["torch"]] == [
        "every minibatch made 5 % slower (--slowdown)",
        None,
    ]


@pytest.mark.exhaustive
def test_cases_are_resumed_exported_and_gated_like_measured_ones(run_suite, corpus, tmp_path, capsys):
    arguments = ("--device", f"sim:orin-agx,replay:{corpus}", "--workload", "yolov8n-coco", "--workers", "4")
    run_suite(*arguments, "--power-mode", MODES[1].name)
    again = run_suite(*arguments, "--power-mode", MODES[1].name, "--resume", "-rs").stdout
    assert "2 skipped" in again
    assert "measured already" in again
    results, baseline = str(tmp_path / "out" / "results.sqlite"), str(tmp_path / "b.json")
    with ResultsStore(results, read_only=True) as store:
        replayed = next(record for record in store.records() if record.provenance == "replayed")
    assert replayed.aggregates["minibatch_time_ms"] == read_corpus(corpus)["minibatch_time_ms"][1]
    assert main(["export", "--results", results, "--out", str(tmp_path / "c.csv")]) == 0
    rows = rows_of(read_corpus(tmp_path / "c.csv"))
    assert [(row["device"], row["provenance"], row["workers"], row["minibatches"]) for row in rows] == [
        ("orin-agx", "simulated", 4, 40),
        ("orin-agx", "replayed", None, None),
    ]
    assert main(["baseline", "record", "--results", results, "--baseline", baseline]) == 0
    said = capsys.readouterr().out
    assert "sim:orin-agx" in said
    assert "replay:" not in said  # a median alone is no series to compare with
    run_suite(*arguments, "--power-mode", MODES[1].name)
    assert main(["baseline", "check", "--results", results, "--baseline", baseline]) == 0
    assert "1.000" in capsys.readouterr().out  # the same seed gives the same times


@pytest.mark.exhaustive
def test_without_a_workload_a_replay_takes_those_of_its_corpus(run_suite, corpus):
    done = run_suite("--device", f"replay:{corpus}", "--collect-only", "-q")
    assert "test_training[replay:agx.csv-yolov8n-coco-maxn-bs16]" in done.stdout
    assert "lenet-mnist" not in done.stdout


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("host --slowdown 5", ["host is not simulated"]),
        ("sim:orin-agx --slowdown x", ["--slowdown is 'x'", "5%"]),
        ("sim:thor", ["board 'thor' is not simulated", "xavier-nx"]),
        ("replay:none.csv", ["cannot read none.csv"]),
    ],
)
def test_a_device_that_cannot_be_opened_is_a_usage_error(run_suite, device, words):
    done = run_suite("--device", *device.split(), check=False)
    assert done.returncode == USAGE_ERROR
    for word in words:
        assert word in done.stderr


def test_two_corpora_of_one_name_do_not_pass_for_each_other(run_suite, corpus, tmp_path):
    other = tmp_path / "other" / corpus.name
    other.parent.mkdir()
    write_corpus(other, simulate_corpus("orin-agx", "yolov8n-coco", MODES[:2]))
    done = run_suite("--device", f"replay:{corpus},replay:{other}", "--workload", "yolov8n-coco", check=False)
    assert done.returncode == USAGE_ERROR
    assert "two devices are called replay:agx.csv" in done.stderr
