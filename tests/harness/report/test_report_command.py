"""The command `report`: what it writes, what it says of what is missing, what it refuses."""

from __future__ import annotations

import dataclasses
import json
import re
import threading

import pytest

from harness.__main__ import main
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.corpus import write_corpus
from harness.core.power_modes import NamedMode
from harness.devices.registry import open_device
from harness.measure.run import run
from harness.report import assembly
from harness.report.material import Material
from harness.report.summary import lead, profile_rows
from harness.store.results import ResultsStore
from jetwatt import fit
from jetwatt.cli import main as jetwatt
from tests.harness.report.sample_results import USUAL, corpus_rows, predictor_results, strategy_results
from tests.messages import says


@pytest.fixture
def one_profile(tmp_path):
    """A results file with a single profile, with a flag."""
    path = tmp_path / "one.sqlite"
    profile = run(USUAL, open_device(USUAL.device, Configuration()))
    profile.flags.append("throttled: by heat, 3 s <after> the start")
    with ResultsStore(path) as store:
        store.add(profile, {"host_name": "bench"}, "run")
    return path


def test_the_page_says_that_earlier_profiles_of_its_cases_are_left_out(one_profile):
    with ResultsStore(one_profile) as store:
        assert "newest of each case" not in lead(Material.read(store))
        store.add(store.profile(1), {"host_name": "bench"}, "run again")
        assert "1 profile, simulated, " in lead(Material.read(store))
        assert "They are the newest of each case; the file has 1 earlier profile more." in lead(Material.read(store))


@pytest.mark.exhaustive
def test_a_report_of_one_profile_names_what_would_bring_the_other_figures(one_profile, tmp_path, capsys):
    assert main(["report", "--results", str(one_profile), "--out", str(tmp_path / "rep")]) == 0
    said = capsys.readouterr().out
    page = (tmp_path / "rep" / "index.html").read_text()
    assert str(tmp_path / "rep" / "index.html") in said
    [gaps] = [line for line in said.splitlines() if line.startswith("no data for:")]
    assert "(E1)" in gaps
    for of_an_evaluation in ("E16", "E20", "E22", "E23"):
        assert of_an_evaluation not in gaps
    assert "one.sqlite has no verdicts on the papers&#39; claims: <code>pytest benchmarks --judge" in page
    assert "`" not in re.sub(r"(?s)<(script|style).*?</\1>", "", page), "commands are code, without backticks"
    assert "Not shown: no data" in page
    assert "--workers 0,4" in page
    assert says(page, "1 profile, simulated", "xavier-agx", "1 workload", "1 power mode")
    assert "1 profile with flags: 1 throttled." in page
    assert "throttled" in page
    assert "3 s &lt;after&gt; the start" in page, "what profiles say is text, not HTML"
    assert '<span class="badge simulated">' in page
    assert "drawn open and grey" in page
    assert 'href="../one.sqlite"' in page
    assert re.search(r"<td[^>]*>[\d.]+ \([\d.]+ to [\d.]+\)</td>", page), "few profiles are listed, with intervals"


def test_the_power_limit_of_a_mode_is_named_and_a_median_is_power_too(tmp_path):
    device = open_device("sim:v100", Configuration())
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for name, mode in device.power_modes("all")[-5:]:
            settings = CaseSettings(minibatches=5, power_limit_w=150.0)
            case = Case("sim:v100", "lenet-mnist", NamedMode(name, mode), 0, "ssd", 16, settings)
            profile = run(case, device)
            profile.aggregates["power_mean_mw"] = None  # as of a replayed table
            store.add(profile, {}, "run")
        material = Material.read(store)
        [table] = material.tables
        assert all(name.endswith(", power limit 150 W") for name in table.modes["power_mode"])
        assert "power was not measured" not in lead(material)


@pytest.mark.exhaustive
def test_peak_memory_is_listed_where_it_was_measured(one_profile):
    def listed():
        with ResultsStore(one_profile, read_only=True) as store:
            return profile_rows(Material.read(store))

    header, _ = listed()
    assert "peak memory (MiB)" not in header
    with ResultsStore(one_profile) as store:
        [profile] = store.profiles()
        profile.aggregates["memory_peak_bytes"] = 812.4 * 2**20
        store.add(dataclasses.replace(profile, provenance="measured"), {"host_name": "bench"}, "run")
    header, rows = listed()
    assert [row[header.index("peak memory (MiB)")] for row in rows] == [None, "812"]


@pytest.mark.exhaustive
def test_the_page_needs_nothing_from_elsewhere(report):
    page = (report / "index.html").read_text()
    fetched = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert [one for one in fetched if one.startswith(("http", "//"))] == []
    assert re.findall(r"@import|url\((?!#)", page) == []
    assert "default-src 'none'" in page
    assert len(page) < 5_000_000


@pytest.mark.exhaustive
@pytest.mark.long
def test_evaluations_become_figures_each_a_png_file_too(one_profile, tmp_path):
    inferred = [{**one, "task": "inference"} for one in strategy_results()]
    files = {"predictors": predictor_results(), "strategies": [*strategy_results(), *inferred]}
    for name, results in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": results}))
    command = ["report", "--results", str(one_profile), "--out", str(tmp_path / "rep"), "--png"]
    assert main([*command, *(text for name in files for text in (f"--{name}", str(tmp_path / f"{name}.json")))]) == 0
    names = {path.stem for path in (tmp_path / "rep" / "figures").glob("*.svg")}
    strategies = {"strategies-orin-agx-yolov8n-coco", "strategies-orin-agx-yolov8n-coco-inference"}
    assert {"prediction-orin-agx-yolov8n-coco-random", *strategies} <= names
    pictures = [*(tmp_path / "rep" / "figures").glob("*.png")]
    assert {path.stem for path in pictures} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    assert ".png" in (tmp_path / "rep" / "index.html").read_text()


@pytest.mark.parametrize("content", ['{"results": []}', '{"results": [{"strategy": "maxn"}]}', "not json"])
def test_a_file_that_is_no_evaluation_is_refused_by_name(one_profile, tmp_path, capsys, content):
    (tmp_path / "odd.json").write_text(content)
    command = ["report", "--results", str(one_profile), "--out", str(tmp_path / "rep")]
    assert main([*command, "--predictors", str(tmp_path / "odd.json")]) == 2
    assert "odd.json" in capsys.readouterr().err


@pytest.fixture
def small_corpus(tmp_path, monkeypatch):
    """A corpus of a board that nobody knows, in a folder without a results file."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "corpus.csv"
    write_corpus(path, [{**row, "device": "own-board"} for row in corpus_rows(60)])
    return path


def explorer_of(folder):
    found = re.search(r'id="explorer-data">(.*?)</script>', (folder / "index.html").read_text())
    return json.loads(found[1])


@pytest.mark.exhaustive
def test_a_corpus_is_reported_without_a_results_file(small_corpus, tmp_path):
    assert main(["report", "--corpus", str(small_corpus), "--out", str(tmp_path / "rep")]) == 0
    (table,) = explorer_of(tmp_path / "rep")
    assert (table["total"], len(table["mode"]), table["provenance"]) == (60, 60, "measured")
    assert (tmp_path / "rep" / "figures" / "front-1-own-board-resnet18-imagenet.csv").is_file()
    assert "resnet18-imagenet" in (tmp_path / "rep" / "index.html").read_text()


def test_a_results_file_that_was_named_and_is_not_there_or_has_no_profile_is_refused(small_corpus, tmp_path, capsys):
    command = ["report", "--corpus", str(small_corpus), "--results", "other.sqlite", "--out", str(tmp_path / "rep")]
    assert main(command) == 2
    assert "other.sqlite" in capsys.readouterr().err
    ResultsStore(tmp_path / "other.sqlite").close()
    assert main(["report", *command[3:]]) == 2
    assert "pytest benchmarks" in capsys.readouterr().err
    assert not (tmp_path / "rep" / "index.html").exists()


@pytest.mark.exhaustive
def test_modes_of_a_saved_model_stand_beside_measured_ones_with_intervals(small_corpus, tmp_path):
    fit(str(small_corpus), workload="resnet18-imagenet", modes=None, predictor="linear").save(tmp_path / "model")
    command = ["report", "--corpus", str(small_corpus), "--model", str(tmp_path / "model")]
    assert jetwatt([*command, "--out", str(tmp_path / "rep")]) == 0
    measured, predicted = explorer_of(tmp_path / "rep")
    assert predicted["provenance"] == "predicted from measured"
    assert len(predicted["mode"]) < predicted["total"], "thinned, and yet"
    assert {tuple(mode) for mode in measured["mode"]} <= {tuple(mode) for mode in predicted["mode"]}
    assert [measured[name] for name in ("device", "workload", "task", "batch_size")] == [
        predicted[name] for name in ("device", "workload", "task", "batch_size")
    ]
    for time, power, (fast, slow, little, much) in zip(
        predicted["time_ms"], predicted["power_w"], predicted["low_high"]
    ):
        assert fast <= time * 1.001
        assert slow >= time * 0.999
        assert little / 1000 <= power * 1.001
        assert much / 1000 >= power * 0.999
    assert jetwatt(["report", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "alone")]) == 0
    assert len(explorer_of(tmp_path / "alone")) == 1


def test_figures_are_drawn_in_a_thread_where_processes_cannot_share_locks(monkeypatch):
    def no_shared_memory(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(assembly.os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(assembly.concurrent.futures, "ProcessPoolExecutor", no_shared_memory)
    with assembly._drawers(1000) as drawers:
        assert drawers.submit(threading.current_thread).result() is not threading.main_thread()


@pytest.mark.exhaustive
def test_requirements_are_judged_on_the_page_and_in_a_table_of_their_own(one_profile, tmp_path):
    file = tmp_path / "requirements.toml"
    file.write_text("[[require]]\npower_w = 1\n[[require]]\nworkload = '<b>none</b>'\npower_w = 1\n")
    out = tmp_path / "rep"
    options = ["report", "--results", str(one_profile), "--out", str(out), "--require", str(file)]
    assert main(options) == 0
    page = (out / "index.html").read_text()
    assert "Requirements<small>INCONCLUSIVE: 1; NO CASE: 1</small>" in page  # the profile is throttled
    assert "&lt;b&gt;none&lt;/b&gt;" in page
    assert "power_w" in (out / "requirements.csv").read_text()
    assert 'href="../requirements.toml"' in page
    file.write_text("[[require]]\npower_w = 25000\n")
    assert main(options) == 2


@pytest.mark.exhaustive
def test_a_report_without_requirements_has_no_section_of_them(one_profile, tmp_path):
    assert main(["report", "--results", str(one_profile), "--out", str(tmp_path / "rep")]) == 0
    assert 'id="requirements"' not in (tmp_path / "rep" / "index.html").read_text()
