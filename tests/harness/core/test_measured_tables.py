"""The measured tables that ship with the suite: each is a corpus with a card and a licence."""

from __future__ import annotations

import numpy as np
import pytest

import jetwatt
from harness.core.boards import load_board
from harness.core.configuration import Configuration
from harness.core.corpus import check_corpus
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.measured_tables import FOLDER, corpus_file, load_table, table_names
from harness.devices.registry import open_device

ROWS = {"loudva-nano": 143, "qutibench-tx2": 480, "zeus-a40": 453, "zeus-v100": 476}


@pytest.mark.parametrize("name", table_names())
def test_each_table_is_a_measured_corpus_with_a_card_and_a_licence(name):
    table = load_table(name)
    assert len(table) == ROWS[name]
    assert set(table["provenance"]) == {"measured"}
    cards = [part for part in (FOLDER / "README.md").read_text(encoding="utf-8").split("\n## ") if f"`{name}`" in part]
    assert any("**Source**" in card and "**Licence**" in card and "**Citation**" in card for card in cards)
    source = name.partition("-")[0]
    assert (FOLDER / f"LICENSE-{source}.txt").is_file()


def test_the_tables_are_those_that_are_listed():
    assert {name: len(jetwatt.load_table(name)) for name in table_names()} == ROWS


@pytest.mark.parametrize("name", ["zeus-v100", "zeus-a40"])
def test_the_time_of_a_minibatch_follows_from_that_of_an_epoch(name):
    table = load_table(name)
    samples = 1000 * table["epoch_s"] * table["batch_size"] / table["minibatch_time_ms"]
    spread = samples.groupby(table["workload"]).agg(lambda values: np.ptp(values) / values.median())
    assert spread.max() < 1e-4
    assert samples[table["workload"] == "resnet50-imagenet"].median() == pytest.approx(1_281_167, rel=1e-4)
    assert (table["power_mw"] < 1.25 * table["power_limit_mw"]).all()


def test_each_preset_of_a_tx2_stands_with_its_clocks_and_each_network_with_its_precision():
    table = load_table("qutibench-tx2")
    modes = table.groupby("preset")[["cpu_cores", "cpu_khz", "gpu_khz", "mem_khz"]].agg(["min", "max"])
    assert (modes.xs("min", axis=1, level=1) == modes.xs("max", axis=1, level=1)).all(axis=None)
    for preset, board_preset in (("MAXN", "MAXN"), ("MAXP", "MAXP_CORE_ALL"), ("MAXQ", "MAXQ")):
        [(_, mode)] = load_board("tx2").power_modes(board_preset)
        assert modes.loc[preset].xs("min", level=1).tolist() == list(mode)
    whole = table[
        (table["pruning_pct"].astype(float) == 100) & (table["batch_size"] == 128) & (table["preset"] == "MAXN")
    ]
    time_ms = whole.set_index("workload")["minibatch_time_ms"]
    assert time_ms["resnet50-imagenet-fp32"] == pytest.approx(1810.44)
    assert time_ms["resnet50-imagenet-fp16"] == pytest.approx(978.64)
    assert table.groupby(["workload", "preset", "batch_size"]).size().max() == 1


def test_an_unknown_table_is_refused_with_the_available_ones():
    with pytest.raises(
        UnknownNameError, match=r"'zeus-p100' .*available: loudva-nano, qutibench-tx2, zeus-a40, zeus-v100"
    ):
        jetwatt.load_table("zeus-p100")


def test_a_file_of_that_name_comes_before_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert corpus_file("zeus-v100") == FOLDER / "zeus-v100.csv"
    (tmp_path / "zeus-v100").write_text("mine")
    assert str(corpus_file("zeus-v100")) == "zeus-v100"
    assert str(corpus_file("mine.csv")) == "mine.csv"


@pytest.mark.parametrize(
    ("limit", "message"),
    [(250, "looks like W, expected mW"), (0, "expected a number above 0"), ("high", "'high', expected a number")],
)
def test_a_power_limit_that_cannot_be_true_is_refused(limit, message):
    with pytest.raises(InvalidValueError, match=f"power_limit_mw is .*{message}"):
        check_corpus(load_table("zeus-v100").assign(power_limit_mw=limit))


def test_a_device_without_a_power_limit_leaves_it_empty():
    assert check_corpus(load_table("loudva-nano").assign(power_limit_mw=None))["power_limit_mw"].isna().all()


@pytest.mark.exhaustive
@pytest.mark.long
def test_commands_take_the_name_of_a_table_where_they_take_a_file(tmp_path):
    assert open_device("replay:zeus-v100", Configuration()).board == "v100"
    assert open_device("replay:zeus-v100@v100", Configuration()).board == "v100"
    evaluation = jetwatt.evaluate_prior(table_names(), leave_out="board", modes=5, runs=jetwatt.Runs(1))
    files = ["loudva-nano.csv", "qutibench-tx2.csv", "zeus-a40.csv", "zeus-v100.csv"]
    assert [path.name for path in evaluation.files] == files
    assert set(evaluation.table()["device"]) == {"nano", "tx2", "a40", "v100"}
    assert jetwatt.report(corpus="zeus-v100", out=tmp_path / "report").page.exists()


def test_references_of_a_contest_are_of_the_device_of_the_target():
    contest = jetwatt.evaluate_strategies(
        ["zeus-v100", "zeus-a40"],
        target="bert-base-uncased-squad",
        learning=jetwatt.Learning(reference="resnet50-imagenet"),
        strategies="maxn",
        budgets="spread:2",
    )
    assert contest.about["repeats"] == 5  # of strategies that depend on their seed; this one runs once
    assert set(contest.table()["device"]) == {"v100", "a40"}
