"""Commands that profile a device: on simulated boards, the whole road from the options to what is printed."""

from __future__ import annotations

import json

import pytest

from harness.control.nvpmodel_grammar import read_conf
from harness.control.nvpmodel_modes import to_power_mode
from harness.power_modes import PowerMode
from harness.results.store import ResultsStore
from predictors.__main__ import main

RECOMMEND = ["recommend", "--device", "sim:orin-agx", "--workload", "mobilenetv3-gld23k"]
CONCURRENT = [
    *("concurrent", "--device", "sim:orin-agx", "--training", "resnet18-imagenet"),
    *("--inference", "mobilenetv3-gld23k", "--arrival-rate", "20", "--inference-batches", "1,4"),
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments):
    code = main([*map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_recommend_names_a_mode_within_the_budget_and_writes_its_conf(capsys, tmp_path):
    code, out, _ = run(capsys, *RECOMMEND, "--power-budget", 30, "--profiles", 10, "--write-conf", tmp_path / "c.conf")
    assert code == 0
    assert "simulated" in out
    assert "measured" not in out
    chosen = next(line for line in out.splitlines() if line.startswith("recommended")).split()[1].rstrip(",")
    watts = next(line for line in out.splitlines() if line.startswith("power:")).split()[1]
    assert float(watts) <= 30
    conf = read_conf(tmp_path / "c.conf").conf
    model = conf.model("JETWATT")
    assert f"number {model.id}" in out
    assert PowerMode(*to_power_mode(conf, model)).name == chosen


def test_what_was_profiled_is_in_the_results_file_and_is_not_profiled_again(capsys, tmp_path):
    options = [*RECOMMEND, "--power-budget", 25, "--profiles", 6, "--results", tmp_path / "r.sqlite"]
    _, first, _ = run(capsys, *options)
    with ResultsStore(tmp_path / "r.sqlite") as store:
        stored = len(store)
    assert 0 < stored <= 6
    _, again, _ = run(capsys, *options, "--resume")
    with ResultsStore(tmp_path / "r.sqlite") as store:
        assert len(store) == stored
    assert f"{stored} of them from the results file" in again
    assert [line for line in first.splitlines() if line.startswith("recommended")] == [
        line for line in again.splitlines() if line.startswith("recommended")
    ]


def test_a_budget_below_every_mode_names_the_nearest_one_and_is_refused(capsys):
    code, out, err = run(capsys, *RECOMMEND, "--power-budget", 8, "--profiles", 8)
    assert code == 2
    assert "NOT WITHIN THE LIMITS" in out
    assert "power at most 8 W" in err
    nearest = float(err.split(" W: allow")[0].split()[-1])
    assert nearest < 13


def test_the_least_energy_under_a_deadline_is_a_goal_too(capsys):
    code, out, _ = run(capsys, *RECOMMEND, "--goal", "energy", "--deadline", 12, "--epochs", 148, "--profiles", 8)
    assert code == 0
    assert "least energy of a minibatch with minibatch time at most" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "without any limit"),
        (["--power-budget", "30", "--profiles", "0"], "--profiles is 0"),
        (["--power-budget", "-3"], "above 0"),
        (["--power-budget", "30", "--batch", "0"], "--batch is 0"),
        (["--power-budget", "30", "--batch-size", "0"], "--batch-size is 0"),
        (["--power-budget", "30", "--deadline", "5", "--epochs", "0"], "--epochs is 0"),
        (["--power-budget", "30", "--reference", "x"], "--corpus"),
        (["--power-budget", "30", "--plot", "p.xyz"], ".png"),
        (["--power-budget", "30", "--workload", "resnet"], "known: bert-squad"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_wrong(capsys, options, words):
    code, _, err = run(capsys, *RECOMMEND, *options)
    assert code == 2
    assert words in err


def test_a_pick_at_a_risk_is_not_measured_again(capsys):
    code, out, _ = run(capsys, *RECOMMEND, "--power-budget", 30, "--profiles", 12, "--risk", 0.05)
    assert code == 0
    assert "at most 5% likely to break a limit by more than the tolerance" in out


def test_concurrent_finds_a_plan_and_says_what_came_of_it(capsys, tmp_path):
    options = ["--latency-limit", 800, "--power-budget", 35, "--duration", 20, "--json", tmp_path / "o.json"]
    code, out, _ = run(capsys, *CONCURRENT, *options)
    assert code == 0
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["provenance"] == "simulated"
    assert found["outcome"]["latency_p95_ms"] <= 800
    assert found["outcome"]["power_mw"] <= 35_000
    assert found["outcome"]["training_samples_per_s"] > 0
    assert found["choice"]["training_mode"] in out


def test_a_latency_that_cannot_be_kept_is_refused_and_shown(capsys):
    code, out, err = run(capsys, *CONCURRENT, "--latency-limit", 5, "--duration", 5, "--profiles", 10)
    assert code == 2
    assert "outcome" in out
    assert "keeps the limits" in err


def test_the_contest_on_a_simulated_corpus_writes_its_contract(capsys, tmp_path):
    from harness.__main__ import main as harness

    assert harness([
        *("corpus", "simulate", "--device", "orin-agx", "--workload", "resnet18-imagenet,yolov8n-coco"),
        *("--sample", "300", "--out", str(tmp_path / "c.csv")),
    ]) == 0  # fmt: skip
    code, out, _ = run(
        capsys,
        *("strategies", "evaluate", "--corpus", tmp_path / "c.csv", "--reference", "resnet18-imagenet"),
        *("--target", "yolov8n-coco", "--strategies", "closed-loop,mdbs,presets,npe,maxn", "--budgets", "17:30:6"),
        *("--profiles", 8, "--repeats", 1, "--jobs", 1, "--json", tmp_path / "o.json"),
    )
    assert code == 0
    assert "simulated" in out
    rows = json.loads((tmp_path / "o.json").read_text())["results"]
    assert [row["strategy"] for row in rows] == ["closed-loop", "mdbs", "presets", "npe", "maxn"]
    assert {row["provenance"] for row in rows} == {"simulated"}


def test_a_replayed_corpus_offers_the_modes_of_the_workload_that_is_asked_for(capsys, tmp_path):
    from harness.__main__ import main as harness
    from harness.corpus import read_corpus, write_corpus

    rows = []
    for workload, count in (("resnet18-imagenet", 60), ("lstm-wikitext", 20)):
        path = tmp_path / f"{workload}.csv"
        assert harness([
            *("corpus", "simulate", "--device", "orin-agx", "--workload", workload),
            *("--sample", str(count), "--seed", str(count), "--out", str(path)),
        ]) == 0  # fmt: skip
        rows += read_corpus(path)
    write_corpus(tmp_path / "c.csv", rows)
    capsys.readouterr()
    options = ["--device", f"replay:{tmp_path / 'c.csv'}", "--workload", "lstm-wikitext", "--power-budget", 25]
    code, out, _ = run(capsys, "recommend", *options, "--profiles", 8)
    assert code == 0
    assert "replayed" in out
    assert "0 s" not in next(line for line in out.splitlines() if line.startswith("spent")).split(", ")[1]


def test_a_plan_that_falls_short_is_made_again_without_profiling_twice(capsys, tmp_path):
    options = ["--latency-limit", 260, "--power-budget", 20, "--duration", 5, "--profiles", 12]
    _, _, _ = run(capsys, *CONCURRENT, *options, "--json", tmp_path / "o.json")
    assert json.loads((tmp_path / "o.json").read_text())["choice"]["profiles"] <= 12
