"""Commands that profile a device: on simulated boards, the whole road from the options to what is printed."""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace

import pytest

from harness.board.nvpmodel_conf import read_conf
from harness.board.nvpmodel_modes import to_power_mode
from harness.core.cases import Case
from harness.core.errors import CannotRunError, ControlError, ProcessEndedError
from harness.core.power_modes import PowerMode
from harness.devices.host import HostDevice
from harness.devices.simulated import SimulatedDevice
from harness.store.results import ResultsStore
from predictors.__main__ import main
from predictors.contest.strategies import notes_on
from predictors.plans.concurrent import measured_switching_ms
from predictors.strategies.fixed import presets_of
from tests.messages import says
from tests.named_modes import mode_on

RECOMMEND = ["recommend", "--device", "sim:orin-agx", "--workload", "mobilenetv3-gld23k"]
FEW_MODES = ["recommend", "--device", "sim:orin-nano", "--workload", "mobilenetv3-gld23k"]  # a tenth of those: quicker
RANDOM = ["--strategy", "random"]  # where it does not matter, this is the quickest
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


@pytest.mark.exhaustive
def test_recommend_names_a_mode_within_the_budget_and_writes_its_conf(capsys, tmp_path):
    files = ["--write-conf", tmp_path / "c.conf", "--json", tmp_path / "o.json"]
    code, out, _ = run(capsys, *FEW_MODES, "--power-budget", 10, "--profiles", 10, *files)
    assert code == 0
    assert "simulated" in out
    assert "measured" not in out
    figures = json.loads((tmp_path / "o.json").read_text())["choice"]["power_mw"]
    assert (figures["profiled"], figures["measured"]) == (True, False)
    chosen = next(line for line in out.splitlines() if line.startswith("recommended")).split()[1].rstrip(",")
    watts = next(line for line in out.splitlines() if line.startswith("power:")).split()[1]
    assert float(watts) <= 10
    conf = read_conf(tmp_path / "c.conf").conf
    model = conf.model("JETWATT")
    assert f"number {model.id}" in out
    assert PowerMode(*to_power_mode(conf, model)).name == chosen


@pytest.mark.parametrize(
    ("profiles", "more"),
    [
        (8, ["--risk", 0.05]),
        pytest.param(8, ["--strategy", "nn"], marks=pytest.mark.exhaustive),
        (1, ["--risk", 0.3]),
    ],
)
def test_a_mode_chosen_by_prediction_is_profiled_for_its_peak_within_the_profiles(profiles, more, capsys, tmp_path):
    budgets = ["--peak-budget", 33, "--power-budget", 30, "--profiles", profiles, "--json", tmp_path / "o.json"]
    code, out, err = run(capsys, *RECOMMEND, *budgets, *more)
    answer = json.loads((tmp_path / "o.json").read_text())
    assert answer["spent"]["profiles"] <= profiles
    assert "are spent" not in err
    if answer["choice"]["feasible"]:
        assert (code, answer["peak"]["peak_mw"] <= 33_000) == (0, True)
    else:
        assert code == 2
        assert profiles > 1 or "no profile is left to check its peak" in out


@pytest.mark.exhaustive
@pytest.mark.long
def test_recommend_names_a_mode_whose_peak_is_within_a_budget(capsys, tmp_path):
    budgets = ["--peak-budget", 18, "--power-budget", 25, "--profiles", 8, "--json", tmp_path / "o.json"]
    code, out, _ = run(capsys, *RECOMMEND, *budgets)
    peak = json.loads((tmp_path / "o.json").read_text())["peak"]
    assert code == 0
    assert peak["peak_mw"] <= peak["budget_mw"] == 18_000
    assert (peak["window_s"], peak["exceeded"]) == (pytest.approx(1, abs=0.1), "")
    assert f"peak:        {peak['peak_mw'] / 1e3:.4g} W in samples 1 s apart, limit 18 W" in out


def test_a_board_without_an_ssd_is_profiled_on_its_own_medium_and_the_medium_is_named(capsys, tmp_path):
    nano = ["recommend", "--device", "sim:nano", "--workload", "lenet-mnist", "--results", tmp_path / "r.sqlite"]
    code, _, err = run(capsys, *nano, *RANDOM, "--power-budget", 5, "--profiles", 3)
    assert code == 0, err
    assert "storage sd: sim:nano has no ssd" in err
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        assert {record.case.storage for record in store.records()} == {"sd"}


@pytest.mark.exhaustive
def test_what_was_profiled_is_in_the_results_file_and_is_not_profiled_again(capsys, tmp_path):
    options = [*RECOMMEND, *RANDOM, "--power-budget", 25, "--profiles", 6, "--results", tmp_path / "r.sqlite"]
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


@pytest.mark.parametrize(
    ("command", "name"),
    [([*RECOMMEND, "--power-budget", "30000"], "power"), ([*RECOMMEND, "--peak-budget", "30000"], "peak"),
     ([*RECOMMEND, "--power-budget", "30", "--peak-budget", "30000"], "peak"),
     ([*CONCURRENT, "--latency-limit", "100", "--power-budget", "30000"], "power")],
    ids=["power", "peak", "both", "concurrent"],
)  # fmt: skip
def test_a_budget_in_milliwatts_is_refused(capsys, command, name):
    code, out, err = run(capsys, *command)
    assert (code, out) == (2, "")
    assert says(err, "30000 W", "at most 5000 W", "30000 mW are 30 W")


@pytest.mark.exhaustive
def test_a_budget_below_every_mode_names_the_nearest_one_and_is_refused(capsys):
    code, out, err = run(capsys, *RECOMMEND, "--power-budget", 8, "--profiles", 8)
    assert code == 2
    assert "NOT WITHIN THE LIMITS" in out
    assert "<- nearest to the limits" in out
    assert "<- recommended" not in out
    assert "power at most 8 W" in err
    nearest = float(err.split(" W: allow")[0].split()[-1])
    assert nearest < 13


@pytest.mark.parametrize(
    ("option", "limit", "words"),
    [
        ("--power-budget", 3, "the least power within reach is "),
        pytest.param("--time-limit", 3, "the least minibatch time within reach is ", marks=pytest.mark.exhaustive),
        pytest.param("--peak-budget", 3, " W, with peaks of ", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.exhaustive
def test_a_limit_that_no_mode_keeps_is_answered_with_one_that_can_be_kept(capsys, option, limit, words):
    few = ("--profiles", 4, "--minibatches", 10)
    code, _, err = run(capsys, *FEW_MODES, option, limit, *few)
    assert code == 2
    assert says(err, "allow that", "batch size")
    assert "--profiles" not in err.splitlines()[-1]
    assert "as far as " in err, "a search of a few profiles does not know all modes"
    reachable = err.partition(words)[2].split()[0]
    assert run(capsys, *FEW_MODES, option, reachable, *few)[0] == 0
    assert run(capsys, *FEW_MODES, option, 0.98 * float(reachable), *few)[0] == 2


def test_a_limit_that_is_nearly_kept_is_answered_with_more_profiles_too(capsys):
    code, _, err = run(capsys, *FEW_MODES, "--power-budget", 5.5, "--profiles", 4, "--minibatches", 10)
    assert code == 2
    assert says(err, "allow that", "--profiles")


@pytest.mark.exhaustive
@pytest.mark.long
def test_limits_that_exclude_each_other_are_answered_with_what_each_allows(capsys):
    def ended(power_w, time_ms):
        return run(capsys, *FEW_MODES, "--power-budget", power_w, "--time-limit", time_ms, "--profiles", 6)

    code, out, err = ended(12, 330)
    assert code == 2
    assert "compared with" not in out, "what a choice saves that breaks the limits is of no use"
    power_w = float(err.partition("the least power that keeps the other limit is ")[2].split()[0])
    time_ms = float(err.partition("the least minibatch time that keeps the other limit is ")[2].split()[0])
    assert ended(1.1 * power_w, 330)[0] == 0
    assert ended(12, 1.1 * time_ms)[0] == 0


@pytest.mark.exhaustive
def test_a_limit_that_is_not_kept_surely_enough_is_answered_with_more_profiles_or_risk(capsys):
    risky = ("--power-budget", 12.3, "--profiles", 3, "--minibatches", 10)
    code, _, err = run(capsys, *RECOMMEND, *risky, "--risk", 0.001)
    assert code == 2
    assert says(err, "not surely enough", "--profiles", "--risk")


@pytest.mark.exhaustive
@pytest.mark.long
def test_the_least_energy_under_a_deadline_is_a_goal_too(capsys):
    code, out, _ = run(capsys, *RECOMMEND, "--goal", "energy", "--deadline", 12, "--epochs", 148, "--profiles", 8)
    assert code == 0
    assert says(out, "least energy", "minibatch time at most")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "without any limit"),
        (["--power-budget", "30", "--profiles", "0"], "--profiles is 0"),
        (["--power-budget", "-3"], "--power-budget is -3"),
        (["--power-budget", "inf"], "--power-budget is inf"),
        (["--power-budget", "30", "--workers", "-1"], "--workers is -1"),
        (["--power-budget", "30", "--risk", "2"], "--risk is 2"),
        (["--power-budget", "30", "--risk", "0.1", "--strategy", "mdbs"], "--strategy is mdbs"),
        (["--power-budget", "30", "--strategy", "powertrain"], "give --corpus FILE"),
        (["--power-budget", "20,30", "--write-conf", "c.conf"], "give one --power-budget"),
        (["--power-budget", "30", "--max-temperature", "0"], "--max-temperature is 0"),
        (["--power-budget", "30", "--json", "/tmp"], "cannot write /tmp: it is a folder"),
        (["--power-budget", "30", "--write-conf", "/dev/null/c.conf"], "/dev/null is not a writable folder"),
        (["--power-budget", "30", "--batch", "0"], "--batch is 0"),
        (["--power-budget", "30", "--batch", "32"], "for samples per minibatch, give --batch-size 32"),
        (["--power-budget", "30", "--batch-size", "0"], "--batch-size"),
        (["--power-budget", "30", "--batch-size", "8,16", "--goal", "energy"], "sample-energy"),
        (["--power-budget", "30", "--percentile", "100"], "--percentile is 100"),
        (["--power-budget", "30", "--workload", "lenet-mnist,bert-squad", "--plot", "p.png"], "one --workload"),
        (["--power-budget", "30", "--deadline", "5", "--epochs", "0"], "--epochs is 0"),
        (["--epochs", "5", "--deadline", "inf"], "--deadline is inf, expected a finite number above 0"),
        (["--power-budget", "30", "--reference", "x"], "--corpus"),
        (["--power-budget", "30", "--plot", "p.xyz"], ".png"),
        (["--power-budget", "30", "--workload", "resnet"], "available: lenet-mnist"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_wrong(capsys, options, words):
    code, _, err = run(capsys, *RECOMMEND, *options)
    assert code == 2
    assert words in err


def test_a_machine_without_a_power_sensor_is_refused_before_anything_is_trained(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "predictors.choose.device_profiler.DeviceProfiler", lambda *how, **options: pytest.fail("it trains")
    )
    monkeypatch.setattr(HostDevice, "telemetry_sources", lambda device, folder: [])
    code, _, err = run(capsys, "recommend", "--device", "host", "--workload", "lenet-mnist", "--power-budget", 30)
    assert code == 2
    assert "host has no readable power sensor" in err


@pytest.mark.exhaustive
def test_budgets_share_one_set_of_profiles(capsys, tmp_path):
    options = ["--power-budget", "20,35", "--strategy", "gmd", "--profiles", 14, "--json", tmp_path / "o.json"]
    code, out, _ = run(capsys, *RECOMMEND, *options)
    assert code == 0
    assert out.count("recommended:") == 2
    assert "for all 2 goals together" in out
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["spent"]["profiles"] <= 14
    assert [one["goal"]["limits"]["power_mw"] for one in found["recommendations"]] == [20_000.0, 35_000.0]


NANO = ["recommend", "--device", "sim:nano", "--storage", "sd", "--power-budget", 6, "--strategy", "mdbs"]


def test_a_free_batch_size_is_chosen_by_the_time_of_a_sample_and_held_against_the_usual_one(capsys, tmp_path):
    options = ["--workload", "lenet-mnist", "--batch-size", "16,64", "--epochs", 10, "--json", tmp_path / "o.json"]
    options += ["--profiles", 12]
    code, out, _ = run(capsys, *NANO, *options)
    assert code == 0
    assert says(out, "goal:", "time of a sample", "power at most 6 W")
    assert says(out, "note: ", "batch size", "learns")
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["choice"]["batch_size"] == 64
    against = {saving["against"]: saving for saving in found["savings"]}["the best at batch size 16"]
    per_sample = [one["time_ms"]["value"] / one["batch_size"] for one in (against, found["choice"])]
    samples = found["minibatches"] * 64
    assert against["hours"] == pytest.approx((per_sample[0] - per_sample[1]) * samples / 3.6e6)
    front = [one["time_ms"]["value"] / one["batch_size"] for one in found["front"]]
    assert front == sorted(front, reverse=True)


def test_the_time_of_a_mode_may_be_a_percentile_of_its_minibatches(capsys, tmp_path):
    options = ["--workload", "lenet-mnist", "--task", "inference", "--strategy", "maxn", "--json", tmp_path / "o.json"]
    times = []
    for percentile in (50, 99):
        code, out, _ = run(capsys, *NANO, *options, "--percentile", percentile)
        assert code == 0
        times.append(json.loads((tmp_path / "o.json").read_text())["choice"]["time_ms"]["value"])
    assert "which 99 % of minibatches do not exceed" in out
    assert times[0] < times[1]


@pytest.mark.exhaustive
def test_several_workloads_share_a_search_and_one_mode_may_serve_all(capsys, tmp_path):
    workloads, results = ("lenet-mnist", "yolov8n-coco"), tmp_path / "r.db"
    how = ["--workload", ",".join(workloads), "--profiles", 6, "--results", results]
    code, out, _ = run(capsys, *NANO, *how, "--json", tmp_path / "o.json")
    assert code == 0
    with ResultsStore(results) as store:  # YOLO is profiled as the papers ran it, without workers
        asked = {(one.case.workload, one.case.workers) for one in (store.profile(kept.id) for kept in store.records())}
    assert asked == {("lenet-mnist", 4), ("yolov8n-coco", 0)}
    found = json.loads((tmp_path / "o.json").read_text())
    assert [one["workload"] for one in found["recommendations"]] == list(workloads)
    assert found["spent"]["profiles"] == sum(one["spent"]["profiles"] for one in found["recommendations"])
    assert says(out, "2 workloads", f"{found['spent']['profiles']} profiles")
    ((first, second),) = (shared["modes"] for shared in found["shared"])
    assert first["mode"] == second["mode"]
    assert found["shared"][0]["longer"] > -1


def test_a_mode_on_the_front_whose_time_is_next_to_unknown_is_marked_as_rough(capsys, tmp_path):
    code, out, _ = run(capsys, *FEW_MODES, "--power-budget", 9, "--profiles", 3, "--json", tmp_path / "o.json")
    assert code == 0
    front = json.loads((tmp_path / "o.json").read_text())["front"]
    spans = {one["mode"]: one["time_ms"]["high"] / one["time_ms"]["low"] for one in front}
    shown = {mode: line.endswith("rough") for mode in spans for line in out.splitlines() if f" {mode} " in f"{line} "}
    rough = {mode: spans[mode] >= 2 for mode in shown}
    assert set(rough.values()) == {True, False}, "an example that has both"
    assert shown == rough
    assert f"factor of 2 to {max(spans.values()):,.3g}" in out


def test_what_no_profile_tells_of_is_on_the_front_only_where_it_is_asked_for(capsys, tmp_path):
    fronts = []
    for option in ((), ("--unprofiled",)):
        how = ["--workload", "lenet-mnist", "--batch-size", "4,16,64", "--strategy", "presets", "--profiles", 2]
        code, _, _ = run(capsys, *NANO, *how, *option, "--json", tmp_path / "o.json")
        assert code == 0
        found = json.loads((tmp_path / "o.json").read_text())
        assert "outside the profiled range: batch size" in found["notes"][0]
        assert ("such modes are excluded from the front" in found["notes"][0]) == (not option)
        fronts.append({one["batch_size"] for one in found["front"]})
    assert fronts[0] == {found["choice"]["batch_size"]}
    assert len(fronts[1]) > 1


@pytest.mark.exhaustive
def test_a_preset_on_a_simulated_board_runs_with_a_part_of_its_gpu_off(capsys, tmp_path):
    """30 W of Orin AGX: with all of its GPU those clocks are faster, and draw more."""
    options = ["--power-budget", 30, "--strategy", "presets", "--results", tmp_path / "r.sqlite"]
    code, out, _ = run(capsys, *RECOMMEND, *options, "--json", tmp_path / "o.json")
    assert code == 0
    assert "(preset MODE_30W)" in out
    with ResultsStore(tmp_path / "r.sqlite") as store:
        (record,) = store.records()
        assert store.profile(record.id).conditions["tpc_mask"] != 0
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["spent"]["profiles"] == 1
    in_full = found["choice"]["mode"]
    board = SimulatedDevice("orin-agx")
    whole = board.profile(
        Case("sim:orin-agx", "mobilenetv3-gld23k", mode_on("sim:orin-agx", in_full), 4, "ssd", 16)
    ).aggregates
    assert whole["minibatch_time_ms"] < found["choice"]["time_ms"]["value"]


@pytest.mark.exhaustive
def test_a_pick_at_a_risk_is_not_measured_again(capsys):
    code, out, _ = run(capsys, *RECOMMEND, "--power-budget", 30, "--profiles", 12, "--risk", 0.05)
    assert code == 0
    assert "at most 5% likely to break a limit" in out


@pytest.mark.exhaustive
@pytest.mark.long
def test_concurrent_finds_a_plan_and_says_what_came_of_it(capsys, tmp_path):
    options = ["--latency-limit", 800, "--power-budget", 35, "--duration", 20, "--profiles", 12]
    files = ["--json", tmp_path / "o.json", "--results", tmp_path / "r.sqlite"]
    code, out, _ = run(capsys, *CONCURRENT, *options, *files)
    assert code == 0
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["provenance"] == "simulated"
    assert found["outcome"]["latency_p95_ms"] <= 800
    assert found["outcome"]["power_mw"] <= 35_000
    assert found["outcome"]["training_samples_per_s"] > 0
    assert found["choice"]["training_mode"] in out
    assert found["outcome"]["latency_p99_ms"] >= found["outcome"]["latency_p95_ms"]
    assert found["way"] == "interleaved"
    assert set(found["ways_not_run"]) == {"processes", "streams"}
    assert "nowhere published" in found["ways_not_run"]["processes"]
    assert re.search(r"interleaved +\d", out)
    assert re.search(r"each alone +\d", out)
    with ResultsStore(tmp_path / "r.sqlite") as store:
        assert {record.case.task for record in store.records()} == {"training", "inference", "concurrent"}


@pytest.mark.exhaustive
@pytest.mark.long
def test_changes_of_mode_may_be_free_and_one_plan_is_no_plural(capsys):
    limits = ["--latency-limit", 800, "--duration", 10, "--profiles", 8]
    code, out, _ = run(capsys, *CONCURRENT, *limits, "--switching-ms", "0")
    assert code == 0
    assert "a change of mode takes the 0 ms given" in out
    assert re.search(r"; (1 plan|[2-9] plans)\)", out)
    assert "not run" not in out, "that a simulated board has one way only is no news"
    code, _, err = run(capsys, *CONCURRENT, *limits, "--switching-ms", "-1")
    assert (code, "--switching-ms is -1" in err) == (2, True)


HOPELESS = ["--device", "sim:orin-nano", "--latency-limit", 5, "--duration", 5, "--profiles", 10]


@pytest.mark.exhaustive
def test_a_latency_that_cannot_be_kept_is_refused_shown_and_tried_again_without_profiling_anew(
    capsys, tmp_path, monkeypatch
):
    profile, profiled = SimulatedDevice.profile, []

    def count(device, case):
        profiled.extend([case] if case.task != "concurrent" else [])
        return profile(device, case)

    monkeypatch.setattr(SimulatedDevice, "profile", count)
    limits = ["--latency-limit", 300, "--power-budget", 9]  # each plan asks for other modes than the one before
    code, out, err = run(capsys, *CONCURRENT, *HOPELESS, *limits, "--json", tmp_path / "o.json")
    assert code == 2
    assert "outcome" in out
    assert "keeps the limits" in err
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["attempts"] > 1
    assert found["choice"]["profiles"] == len(profiled) <= 10


@pytest.mark.exhaustive
def test_a_plan_whose_process_ends_leaves_those_found_before_it(capsys, monkeypatch):
    profile, plans = SimulatedDevice.profile, []

    def end_at_the_second(device, case):
        plans.extend([case] if case.task == "concurrent" else [])
        if len(plans) == 2:
            raise ProcessEndedError("the process of lenet-mnist (training) ended by signal 11 before it answered")
        return profile(device, case)

    monkeypatch.setattr(SimulatedDevice, "profile", end_at_the_second)
    code, out, err = run(capsys, *CONCURRENT, *HOPELESS)
    assert (code, len(plans)) == (2, 2)  # no plan keeps the limits
    assert "outcome" in out
    assert says(err, "plan 2", "lenet-mnist (training)", "signal 11")


def test_what_a_change_of_mode_costs_is_not_tried_where_clocks_may_not_rise_again():
    board = SimpleNamespace(name="nano", clocks_only_fall=True)  # has nothing else: no mode is asked for, none is set
    with pytest.raises(CannotRunError, match="may not rise again"):
        measured_switching_ms(board, store=None)


@pytest.mark.exhaustive
@pytest.mark.long
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
    assert "note: MODE_15W, MODE_30W" in out
    found = json.loads((tmp_path / "o.json").read_text())
    assert len(found["notes"]) == 1
    rows = found["results"]
    assert [row["strategy"] for row in rows] == ["closed-loop", "mdbs", "presets", "npe", "maxn"]
    assert {row["provenance"] for row in rows} == {"simulated"}


@pytest.mark.exhaustive
def test_a_replayed_corpus_offers_the_modes_of_the_workload_that_is_asked_for(capsys, tmp_path):
    from harness.__main__ import main as harness
    from harness.core.corpus import read_corpus, rows_of, write_corpus

    rows = []
    for workload, count in (("resnet18-imagenet", 60), ("lstm-wikitext", 20)):
        path = tmp_path / f"{workload}.csv"
        assert harness([
            *("corpus", "simulate", "--device", "orin-agx", "--workload", workload),
            *("--sample", str(count), "--seed", str(count), "--out", str(path)),
        ]) == 0  # fmt: skip
        rows += rows_of(read_corpus(path))
    write_corpus(tmp_path / "c.csv", rows)
    capsys.readouterr()
    options = ["--device", f"replay:{tmp_path / 'c.csv'}", "--workload", "lstm-wikitext", "--power-budget", 25]
    code, out, _ = run(capsys, "recommend", *options, "--profiles", 8)
    assert code == 0
    assert "replayed" in out
    assert "0 s" not in next(line for line in out.splitlines() if line.startswith("spent")).split(", ")[1]


class Breaking:
    """Makes the simulated board fail at some of its profiles, by their number, until it is taken away."""

    def __init__(self, monkeypatch, fails):
        self.asked, self._fails, self._patch = [], fails, monkeypatch
        self._profile = SimulatedDevice.profile
        monkeypatch.setattr(SimulatedDevice, "profile", lambda device, case: self(device, case))

    def __call__(self, device, case):
        self.asked.append(case.power_mode.name)
        error = self._fails(len(self.asked))
        if error is not None:
            raise error
        return self._profile(device, case)

    def end(self):
        self._patch.setattr(SimulatedDevice, "profile", self._profile)


def did_not_take():
    return ControlError("the mode did not take", "see dmesg")


@pytest.mark.exhaustive
def test_modes_that_fail_are_named_in_text_and_json_and_the_search_goes_on(capsys, tmp_path, monkeypatch):
    board = Breaking(monkeypatch, lambda number: did_not_take() if number % 4 == 2 else None)
    how = [*RANDOM, "--power-budget", 25, "--profiles", 10, "--json", tmp_path / "o.json"]
    code, out, err = run(capsys, *RECOMMEND, *how)
    assert code == 0
    failed = board.asked[1::4]
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["failed"] == [{"mode": mode, "reason": "the mode did not take; see dmesg"} for mode in failed]
    assert found["spent"]["profiles"] == len(board.asked) == len(set(board.asked)) == 10
    assert found["choice"]["mode"] not in failed
    assert found["provenance"] == "simulated"
    assert all(says(out, "failed:", mode, "did not take") for mode in failed)
    assert f"{failed[0]} cannot be profiled" in err


@pytest.mark.exhaustive
def test_a_search_that_a_device_ends_says_what_is_kept_and_resumes(capsys, tmp_path, monkeypatch):
    options = [*RECOMMEND, *RANDOM, "--power-budget", 25, "--profiles", 8, "--results", tmp_path / "r.sqlite"]
    board = Breaking(monkeypatch, lambda number: did_not_take() if number > 3 else None)
    code, out, err = run(capsys, *options)
    assert (code, out) == (2, "")
    assert len(board.asked) == 3 + 3
    assert "none of the last modes could be profiled" in err
    assert says(err, "3 profiles", tmp_path / "r.sqlite", "resume")
    board.end()
    code, out, _ = run(capsys, *options, "--resume")
    assert code == 0
    assert "3 of them from the results file" in out


@pytest.mark.exhaustive
def test_ctrl_c_says_what_is_kept(capsys, tmp_path, monkeypatch):
    Breaking(monkeypatch, lambda number: KeyboardInterrupt() if number == 3 else None)
    code, _, err = run(capsys, *RECOMMEND, "--power-budget", 25, "--results", tmp_path / "r.sqlite")
    assert code == 130
    assert "2 profiles kept in" in err


@pytest.mark.parametrize(
    ("board", "smaller"),
    [("orin-agx", ["MODE_15W", "MODE_30W"]), ("orin-nano", ["7W"]), ("xavier-agx", ["MODE_10W"]), ("xavier-nx", [])],
)
def test_presets_with_less_gpu_than_the_board_has_are_known_as_such(board, smaller):
    presets = presets_of(board)
    assert [preset.name for preset in presets if preset.has_less_gpu] == smaller
    assert all(name in " ".join(notes_on(presets)) for name in smaller)


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_concurrent_plan_names_what_failed(capsys, tmp_path, monkeypatch):
    Breaking(monkeypatch, lambda number: did_not_take() if number == 2 else None)
    options = ["--latency-limit", 800, "--duration", 5, "--profiles", 12, "--json", tmp_path / "o.json"]
    code, out, _ = run(capsys, *CONCURRENT, *options)
    assert code == 0
    (failed,) = json.loads((tmp_path / "o.json").read_text())["failed"]
    assert failed["reason"] == "the mode did not take; see dmesg"
    assert f"failed:   {failed['mode']}: " in out


def test_a_plot_that_cannot_be_made_is_refused_before_any_mode_is_profiled(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run(capsys, *RECOMMEND, "--power-budget", 30, "--plot", tmp_path / "front.png")
    assert (code, out) == (2, "")
    assert "matplotlib" in err
    assert "profile 1 of" not in err
