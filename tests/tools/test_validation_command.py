"""`python -m harness simulation validate`: what it prints, writes and refuses."""

import json
import math
from functools import partial

import pytest

from harness.__main__ import main
from harness.core.boards import load_board
from harness.core.corpus import write_corpus
from harness.simulation.corpus import simulate_corpus
from tools import validation
from tools.model_checks import CHECKS, ClaimResult
from tools.simulated_campaign import SimulatedCampaign
from tools.validation import validate

pytestmark = pytest.mark.one_python


@pytest.fixture
def table(tmp_path):
    """A table of 40 modes that is as a simulated board has it, but twice as slow, and called measured."""

    def write(workload="resnet18-imagenet", device="orin-agx"):
        modes = load_board(device).power_mode_space().sample(40, 3)
        rows = [
            {**row, "minibatch_time_ms": 2.0 * row["minibatch_time_ms"], "provenance": "measured"}
            for row in simulate_corpus(device, workload, modes, seed=None)
        ]
        path = tmp_path / f"{workload}-{device}.csv"
        write_corpus(path, rows)
        return path

    return write


def command(*arguments):
    return main(["simulation", "validate", *map(str, arguments)])


def test_errors_against_a_table_stand_under_its_workload(table, tmp_path, capsys):
    out = tmp_path / "out.json"
    tables = ("--corpus", table(), "--corpus", table("yolov8n-coco"))
    assert command("--device", "orin-agx", *tables, "--json", out) == 0
    found = json.loads(out.read_text())
    assert set(found["corpora"]) == {"resnet18-imagenet", "yolov8n-coco"}
    errors = found["corpora"]["resnet18-imagenet"]
    for name, expected in (("time_median_ape", 50.0), ("time_p90_ape", 50.0), ("power_p90_ape", 0.0)):
        assert errors[name] == pytest.approx(expected, abs=0.1)
    close = [figure for figure in found["figures"] if abs(figure["deviation_pct"]) <= 15.0]
    assert found["summary"]["close_pct"] == pytest.approx(100.0 * len(close) / len(found["figures"]))
    assert all("orin-agx" in figure["condition"]["device"].split(",") for figure in found["figures"])
    assert found["provenance"] == "simulated"
    printed = capsys.readouterr().out
    assert "Simulated boards against measured tables" in printed
    assert "F161 (001 1.1 Challenges)" in printed


FEW = """
[axes]
workload = ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"]
[settings]
minibatches = 100
[experiment.baseload]
boards = ["xavier-agx"]
power_mode = ["a"]
[experiment.batch_size]
boards = ["xavier-agx"]
batch_size = [1, 2, 4, 8, 16, 32, 64, 128]
[experiment.dvfs]
boards = ["xavier-agx"]
[[experiment.dvfs.sweep]]
[[experiment.dvfs.sweep]]
settings = { clocks = "dvfs" }
"""


@pytest.mark.exhaustive
def test_without_a_device_figures_of_every_board_and_all_claims_are_told(tmp_path, capsys, monkeypatch):
    (tmp_path / "few.toml").write_text(FEW)
    monkeypatch.setattr(validation, "SimulatedCampaign", partial(SimulatedCampaign, str(tmp_path / "few.toml")))
    out = tmp_path / "out.json"
    assert command("--json", out) == 0
    found = json.loads(out.read_text())
    assert len(found["figures"]) == found["summary"]["count"] >= 150
    assert all(math.isfinite(figure["simulated"]) for figure in found["figures"])
    names = {claim["name"] for claim in found["claims"]}
    assert {"gains_level_off_at_sixteen", "static_clocks_are_no_slower"} | {one.__name__ for one in CHECKS} <= names
    printed = capsys.readouterr().out
    for claim in found["claims"]:
        assert set(claim) == {"name", "facts", "says", "holds", "found", "shortfall"}
        assert claim["name"] in printed
        assert claim["shortfall"] is None or claim["shortfall"] in printed


@pytest.mark.parametrize(("as_known", "code"), [(True, 0), (False, 1)])
def test_claims_as_known_are_success_and_others_are_not(monkeypatch, as_known, code):
    claim = ClaimResult("workers_hide_stalls", ("F925",), "Workers hide stalls.", True, "stall 0.5", None, as_known)
    report = validate(device="nano")._replace(claims=[claim])
    monkeypatch.setattr(validation, "validate", lambda tables, device: report)
    assert command() == code


def test_a_board_without_figures_needs_a_table_and_rows_that_are_simulated_are_no_measure(table, capsys):
    assert command("--device", "orin-nano") == 2
    assert "orin-nano" in capsys.readouterr().err
    path = table(device="orin-nano")
    assert command("--device", "orin-nano", "--corpus", path) == 0
    path.write_text(path.read_text().replace("measured", "simulated"))
    assert command("--corpus", path) == 2
    assert "they are simulated" in capsys.readouterr().err
