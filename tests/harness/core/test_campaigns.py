"""Campaigns: sweeps cross, overlap without doubling, take options, and wrong files say what is wrong."""

from __future__ import annotations

import pytest

from harness.core.boards import own_media
from harness.core.campaigns import SHIPPED, check_axis, expand, load_campaign, replace_settings
from harness.core.cases import Case, CaseSettings
from harness.core.errors import HarnessError, InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from tests.named_modes import mode_on


def write(tmp_path, text):
    path = tmp_path / "campaign.toml"
    path.write_text(text)
    return str(path)


def as_named(device, workload, text):
    return [(text, PowerMode(1, 0, 0, 0))]


def test_the_axis_defaults_are_the_papers_and_ids_those_of_the_documentation():
    campaign = load_campaign("quick").override({"workload": ["resnet18-cifar10"]}, {})
    assert "host-resnet18-cifar10-maxn-w4-ssd-bs16" in [case.id for case in expand(campaign.sweeps, as_named)]


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_campaign_expands_without_clash(name):
    cases = expand(load_campaign(name).sweeps, as_named)
    assert cases
    assert len({case.id for case in cases}) == len(cases)


def test_the_paper_campaign_has_the_papers_axes():
    cases = expand(load_campaign("paper").sweeps, as_named)
    of_mobilenet = [case for case in cases if case.workload == "mobilenetv3-gld23k"]
    assert {case.workers for case in of_mobilenet} == {0, 1, 2, 4, 8}
    assert {case.storage for case in of_mobilenet} == {"ssd", "sd", "hdd"}
    assert {case.batch_size for case in of_mobilenet} == {1, 2, 4, 8, 16, 32, 64, 128}
    assert {case.settings.cache for case in of_mobilenet} == {"cold", "drop-each-epoch"}
    assert {case.settings.epochs for case in of_mobilenet} == {6}
    assert len({case.workload for case in cases}) == 10


@pytest.mark.parametrize(
    ("board", "media"),
    [("nano", ("sd", "hdd", "sd@2")), ("tx2", ("emmc", "sd", "hdd", "emmc@2")), ("orin-agx", None), ("host", None)],
)
def test_a_board_without_an_ssd_has_its_data_on_the_medium_of_its_default(board, media):
    asked = ("ssd", "sd", "hdd", "ssd@2")
    assert own_media(board, asked) == (media or asked)


def test_a_case_in_two_sweeps_runs_once(tmp_path):
    path = write(tmp_path, "[[sweep]]\nworkers = [0, 1]\n[[sweep]]\nworkers = [1, 2]")
    assert [case.workers for case in expand(load_campaign(path).sweeps, as_named)] == [0, 1, 2]


def test_a_case_asked_for_in_two_ways_is_refused(tmp_path):
    path = write(tmp_path, "[[sweep]]\n[[sweep]]\n[sweep.settings]\nminibatches = 10")
    with pytest.raises(InvalidValueError, match="40 minibatches; warm cache, 10 minibatches"):
        expand(load_campaign(path).sweeps, as_named)


def test_an_option_replaces_its_axis_in_every_sweep(tmp_path):
    path = write(tmp_path, "[[sweep]]\nworkers = [0, 1]\n[[sweep]]\nworkers = [4]\nbatch_size = [1]")
    campaign = load_campaign(path).override({"workers": [2]}, {"minibatches": 3})
    cases = expand(campaign.sweeps, as_named)
    assert [(case.workers, case.batch_size) for case in cases] == [(2, 16), (2, 1)]
    assert {case.settings.minibatches for case in cases} == {3}


def test_minibatches_and_epochs_replace_each_other():
    assert replace_settings(CaseSettings(minibatches=None, epochs=6), {"minibatches": 2}).epochs is None
    assert replace_settings(CaseSettings(minibatches=40), {"epochs": 6}).minibatches is None
    assert CaseSettings(minibatches=None, epochs=6, cache="cold").describe() == "cold cache, 6 epochs"


def test_without_epochs_a_cache_that_is_dropped_before_each_is_a_cold_one():
    cases = expand(load_campaign("paper").override({"workers": [0]}, {"minibatches": 2}).sweeps, as_named)
    assert {case.settings.cache for case in cases} == {"cold"}
    with pytest.raises(InvalidValueError, match="drop-each-epoch needs epochs"):
        CaseSettings(cache="drop-each-epoch")


def test_data_scales_and_clocks_are_told_apart(tmp_path):
    tables = ("data_scale = 0.25", "data_scale = 4", 'clocks = "dvfs"', "")
    path = write(tmp_path, "".join(f"[[sweep]]\n[sweep.settings]\n{table}\n" for table in tables))
    cases = expand(load_campaign(path).sweeps, as_named)
    usual = "host-resnet18-cifar10-maxn-w4-ssd-bs16"
    assert [case.id for case in cases] == [f"{usual}-x0.25", f"{usual}-x4", f"{usual}-dvfs", usual]
    assert [case.settings.describe().partition("40 minibatches")[2] for case in cases] == [
        ", data_scale 0.25", ", data_scale 4", ", dvfs clocks", "",
    ]  # fmt: skip
    settings = CaseSettings(minibatches=None, idle_s=60.0, clocks="dvfs")
    assert settings.describe() == "idle for 60 s, dvfs clocks"
    case = Case("orin-agx", "idle-quiet", mode_on("orin-agx"), 0, "ssd", 1, settings, "idle")
    assert case.id == "orin-agx-idle-quiet-maxn-dvfs"


def test_one_power_mode_value_may_stand_for_many_modes():
    quick = load_campaign("quick").override({"workload": ["lenet-mnist"], "workers": [0], "power_mode": ["both"]}, {})
    named = [("1c", PowerMode(1, 0, 0, 0)), ("2c", PowerMode(2, 0, 0, 0))]
    cases = expand(quick.sweeps, lambda *_: named)
    assert [(case.power_mode.name, case.power_mode.mode) for case in cases] == named


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workload = 3", "key 'workload' of the file is unknown; available: description, axes"),
        ("[axes]\nworkload = [3]", "axis workload takes names, got 3"),
        ("[axes]\nbatch_size = [0]", "axis batch_size takes whole numbers from 1 up"),
        ("[axes]\nbatch_size = []", "axis batch_size has no value"),
        ("[settings]\nminibatches = '40'", "settings.minibatches of the file is '40', expected a whole number"),
        ("[settings]\ncache = 'lukewarm'", "cache state 'lukewarm' is unknown"),
        ("[settings]\nminibatches = 1\nepochs = 1", "of minibatches or of epochs, not both"),
        ("[settings]\nepochs = 0", "epochs must be at least 1"),
        ("[settings]\nclocks = 'fast'", "clocks 'fast' are unknown; available: static, dvfs"),
        ("[settings]\nmax_temperature_c = -1", "max_temperature_c must be above 0"),
        ("[sweep]\nworkers = [1]", "array of tables"),
        ("[experiment.x.settings]\nspeed = 1", "key 'speed' of experiment.*settings of the file is unknown"),
        ("this is no TOML", "not a readable TOML file"),
        ('[experiment.x]\ntask = "dreaming"', "task 'dreaming' is unknown"),
        ("[experiment.x]\ninstances = 0", "instances takes a whole number"),
        ("[experiment.x]\nboards = 3", "boards of the file is .*, expected a list"),
        ('[experiment.x]\nboards = ["toaster"]', "no board 'toaster'"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_and_where(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(InvalidValueError, match=words) as refused:
        load_campaign(path)
    assert path in str(refused.value)


def test_an_unknown_campaign_lists_the_shipped_ones():
    with pytest.raises(UnknownNameError, match="paper, quick"):
        load_campaign("nonsense")


def test_a_storage_with_a_limit_that_is_none_is_refused_before_anything_runs():
    assert check_axis("storage", ["ssd", "ssd@20"]) == ("ssd", "ssd@20")
    with pytest.raises(HarnessError, match=r"'ssd@fast' .*MEDIUM@MB_PER_S"):
        check_axis("storage", ["ssd", "ssd@fast"])


def test_numbers_of_an_axis_are_whole_and_may_come_as_text():
    assert check_axis("batch_size", ["8", "16", "8"]) == (8, 16)
    for wrong in ("x", "1.5", True, "-1"):
        with pytest.raises(HarnessError, match="workers"):
            check_axis("workers", [wrong])


@pytest.fixture
def campaign(tmp_path):
    return load_campaign(write(tmp_path, EXPERIMENTS))


EXPERIMENTS = """
[settings]
minibatches = 40
[experiment.page_cache]
workers = [0]
settings = { epochs = 3, cache = "cold" }
[[experiment.page_cache.sweep]]
[[experiment.page_cache.sweep]]
boards = ["xavier-agx"]
storage = ["hdd"]
[experiment.concurrent_training_inference]
task = "concurrent"
workload = ["resnet18-cifar10+lenet-mnist-bs4@20"]
settings = { duration_s = 5 }
"""


def test_an_experiment_has_sweeps_of_its_own_and_leaves_the_campaigns_alone(campaign):
    assert len(campaign.sweeps) == 1
    plain, hdd = campaign.experiments["page_cache"]
    assert (plain.axes["workers"], plain.settings.epochs, plain.settings.minibatches) == ((0,), 3, None)
    assert (hdd.boards, hdd.axes["storage"], hdd.settings.cache) == (("xavier-agx",), ("hdd",), "cold")


def test_options_reach_experiments_but_not_what_a_mix_is_made_of(campaign):
    experiments = campaign.override({"workload": ["lenet-mnist"]}, {"minibatches": 7}).experiments
    page_cache = experiments["page_cache"][0]
    assert (page_cache.axes["workload"], page_cache.settings.minibatches) == (("lenet-mnist",), 7)
    (mix,) = experiments["concurrent_training_inference"]
    assert mix.axes["workload"] == ("resnet18-cifar10+lenet-mnist-bs4@20",)
    assert (mix.settings.duration_s, mix.settings.minibatches) == (5, None)
