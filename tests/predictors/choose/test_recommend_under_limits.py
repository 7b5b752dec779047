"""`recommend` on a discrete GPU, replayed from a measured table: power limit and batch size are chosen together."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import jetwatt
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import limits_of, named_mode
from harness.core.errors import CannotRunError
from harness.core.measured_tables import table_file
from harness.devices.registry import open_device
from jetwatt.cli import main
from predictors.choose.recommend import LOCKED_CLOCKS
from predictors.choose.recommendation_report import describe_saving
from predictors.strategies.recommendation import Saving

WORKLOAD, SIZES = "resnet50-imagenet", [32, 64, 128]
JOB = jetwatt.Job(WORKLOAD, batch_size=SIZES)
V100 = f"replay:{table_file('zeus-v100')}"


def energies():
    """Energy of a sample in mJ by power limit and batch size."""
    table = jetwatt.load_table("zeus-v100").query("workload == @WORKLOAD and batch_size in @SIZES")
    energy = table["minibatch_time_ms"] * table["power_mw"] / table["batch_size"] / 1000
    return dict(zip(zip(table["power_limit_mw"], table["batch_size"]), energy))


@pytest.mark.exhaustive
def test_the_least_energy_is_chosen_in_six_profiles():
    answer = jetwatt.recommend(V100, workload=JOB, goal="energy", search=jetwatt.Search(profiles=6))
    choice = answer.recommendations[0][0].choice
    known = energies()
    assert known[choice.power_limit_mw, choice.batch_size] <= 1.03 * min(known.values())
    name = f"power limit {choice.power_limit_mw / 1000:g} W, batch size {choice.batch_size}"
    assert f"recommended: {name} (" in repr(answer)
    assert repr(answer).count("<- recommended") == 1  # modes of a front may differ in their power limits alone
    assert "1c-x" not in repr(answer)
    assert "energy of a sample" in repr(answer)

    saving = answer.recommendations[0][0].savings[0]
    assert f"compared with MAXN (power limit 250 W, batch size {saving.other.batch_size}, " in repr(answer)
    assert re.search(r"\n  saves \d+\.\d Wh .*per hour of training in this mode$", repr(answer), re.MULTILINE)


@pytest.mark.parametrize(
    ("hours", "energy_wh", "clause"),
    [
        (0.5, 10, "saves 30 min 0 s and 10.0 Wh"),
        (0.01, -2.5, "saves 36 s but uses 2.5 Wh more"),
        (-6.7, 41.4, "saves 41.4 Wh but takes 6 h 42 min longer"),
        (-0.5, -10, "takes 30 min 0 s longer and uses 10.0 Wh more"),
    ],
)
def test_a_saving_reads_as_a_clause_with_its_verbs(hours, energy_wh, clause):
    assert describe_saving(Saving(None, hours, energy_wh, True)) == clause


def test_the_plot_names_the_recommended_power_limit_and_batch_size():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    answer = jetwatt.recommend(V100, workload=JOB, goal="energy", search=jetwatt.Search(profiles=3))
    labels = [text.get_text() for text in answer.plot(ax=figure.subplots()).get_legend().get_texts()]
    choice = answer.recommendations[0][0].choice
    name = f"power limit {choice.power_limit_mw / 1000:g} W, batch size {choice.batch_size}"
    assert f"recommended: {name}" in labels


@pytest.mark.parametrize("limit_ms", [1000.0, 28.8, 26.0])
@pytest.mark.exhaustive
def test_clocks_above_those_that_were_profiled_are_expected_to_be_faster(limit_ms):
    """At the greatest clock a minibatch takes 23.7 ms, at the greatest of the first two that are profiled 28."""
    answer = jetwatt.recommend("sim:v100", workload="resnet18-imagenet", time_ms=limit_ms)
    assert answer.keeps_limits
    assert answer.recommendations[0][0].mode.time_ms.value <= 1.01 * 23.7


def test_the_json_file_has_the_power_limit(tmp_path):
    out = tmp_path / "answer.json"
    words = ["--workload", WORKLOAD, "--batch-size", "32,64,128", "--goal", "energy", "--profiles", "3"]
    assert main(["recommend", "--device", V100, *words, "--json", str(out)]) == 0
    answer = json.loads(out.read_text(encoding="utf-8"))
    assert answer["choice"]["power_limit_mw"] in {limit for limit, _ in energies()}


def test_a_replayed_gpu_offers_the_limits_of_its_rows_and_replays_the_greatest_by_default():
    device = open_device(V100, Configuration())
    assert limits_of(device) == tuple(range(100_000, 250_001, 25_000))
    table = jetwatt.load_table("zeus-v100").query("workload == @WORKLOAD and batch_size == 64")
    for limit_w, place in ((None, 250_000), (100.0, 100_000)):
        case = Case(
            device.name, WORKLOAD, named_mode(device, "maxn"), 0, "ssd", 64, CaseSettings(power_limit_w=limit_w)
        )
        expected = table.loc[table["power_limit_mw"] == place, "power_mw"].item()
        assert device.profile(case).aggregates["power_mw"] == expected
    case = Case(device.name, WORKLOAD, named_mode(device, "maxn"), 0, "ssd", 64, CaseSettings(power_limit_w=110.0))
    with pytest.raises(CannotRunError, match=r"110 W.*in W: .*100"):
        device.check(case)


def test_energy_of_a_minibatch_stays_refused_where_no_limit_is_set():
    with pytest.raises(jetwatt.HarnessError, match="the smallest batch size always wins"):
        jetwatt.recommend("sim:orin-agx", workload=jetwatt.Job("lenet-mnist", batch_size=[16, 32]), goal="energy")


def test_profiles_of_one_workload_keep_their_limits_as_a_reference_of_the_next():
    jobs = jetwatt.Job([WORKLOAD, "bert-base-uncased-squad"], batch_size=32)
    both = jetwatt.recommend(V100, workload=jobs, goal="energy", search=jetwatt.Search(profiles=3))
    limits = [np.unique(each[0].history.profiler.candidates.power_limit_mw).tolist() for each in both.recommendations]
    assert limits[0] == limits[1] == list(range(100_000, 250_001, 25_000))


@pytest.mark.exhaustive
def test_a_simulated_gpu_is_searched_by_limit_clock_and_batch_size_and_stays_marked_as_simulated():
    job, search = jetwatt.Job("bert-squad", batch_size=[8, 32]), jetwatt.Search(profiles=4)
    answer = jetwatt.recommend("sim:a40", workload=job, goal="energy", search=search)
    candidates = answer.recommendations[0][0].history.profiler.candidates
    assert np.unique(candidates.power_limit_mw).tolist() == list(range(100_000, 300_001, 25_000))
    assert len(np.unique(candidates.modes[:, 2])) == LOCKED_CLOCKS
    assert answer.power_limit_mw == answer.plain()["choice"]["power_limit_mw"]
    assert "simulated" in repr(answer)
    assert "measured" not in repr(answer)
