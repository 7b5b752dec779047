"""A change of mode while a device trains: on every simulated board, and on an emulated one with its own files."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError
from harness.core.mode_texts import MAXN
from harness.core.power_modes import PowerMode, PowerModeSpace
from harness.core.terminal import Progress
from harness.core.transitions import transition_of
from harness.devices.registry import open_device
from harness.measure.mode_transition import AFTER_S, BEFORE_S, ModeTransitions, lower_mode, record_transition
from harness.plan import SUITE
from harness.simulation import transition as simulated
from harness.simulation.parameters import SIMULATED_BOARDS
from tests import warm_pytest


def opened(board):
    device = open_device(f"sim:{board}", Configuration())
    storage = "sd" if board in ("nano", "raspberry-pi-5") else "ssd"
    mode = named_mode(device, MAXN, "lenet-mnist")
    return device, Case(f"sim:{board}", "lenet-mnist", mode, 4, storage, 16, CaseSettings())


def recorded_on(board):
    device, case = opened(board)
    to = lower_mode(device.power_mode_space(), case.power_mode.mode)
    return record_transition(case, to, device, lambda line: None)


@pytest.mark.parametrize("board", SIMULATED_BOARDS)
def test_on_every_simulated_board_clocks_change_at_once_and_power_follows(board):
    transition = transition_of(recorded_on(board))
    assert transition.set_ms is None  # nothing is set
    assert transition.clock_ms == pytest.approx(transition.sampled_ms, rel=0.2)
    assert 1500 < transition.power_ms < 3500


def test_the_figure_of_power_follows_from_the_model(monkeypatch):
    monkeypatch.setattr(simulated, "SETTLING_S", 0.2)
    assert transition_of(recorded_on("orin-agx")).power_ms < 1000
    monkeypatch.setattr(simulated, "SETTLING_S", 2.0)
    assert transition_of(recorded_on("orin-agx")).power_ms > 4000


def test_a_minibatch_under_way_goes_on_at_the_new_speed():
    recorded = recorded_on("orin-agx")
    starts_s = np.array([each.start_s for each in recorded.minibatches])
    times_ms = np.array([each.e2e_ms for each in recorded.minibatches])
    assert starts_s[1:] == pytest.approx(starts_s[:-1] + times_ms[:-1] / 1e3)
    under_way = int(np.flatnonzero(starts_s < BEFORE_S)[-1])
    before, after = np.median(times_ms[: under_way - 1]), np.median(times_ms[under_way + 1 :])
    assert before < times_ms[under_way] * 1.05
    assert times_ms[under_way] < 1.05 * after
    assert starts_s[-1] == pytest.approx(BEFORE_S + AFTER_S, abs=0.2)


def test_the_lower_mode_has_the_cores_and_half_of_the_clocks_below():
    space = PowerModeSpace((1, 2, 4), (100, 200, 300, 400), (10, 20, 30), (5,))
    assert lower_mode(space, PowerMode(4, 400, 30, 5)) == PowerMode(4, 300, 20, 5)
    with pytest.raises(CannotRunError, match="no mode has lower clocks"):
        lower_mode(space, PowerMode(4, 100, 10, 5))


def test_transitions_are_kept_by_device():
    device, case = opened("orin-agx")
    transitions = ModeTransitions()
    with pytest.raises(CannotRunError, match="no change of mode was measured"):
        transitions.check(case.device)
    measured = transitions.measure(device, case, Progress(io.StringIO()))
    transitions.check(case.device)
    assert transitions.of(case.device) == [measured]
    assert measured.case == case


@pytest.mark.exhaustive
def test_the_json_of_pytest_benchmark_has_the_figures_and_its_table_stays_hidden(tmp_path: Path):
    words = [str(SUITE / "test_mode_transitions.py"), "-k", "lenet-mnist", "--device", "sim:orin-agx"]
    words += ["--results", "r.sqlite", "--benchmark-json", "b.json"]
    done = warm_pytest.run(words, tmp_path, os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OPS" not in done.stdout
    [benchmark] = json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    transition = transition_of(recorded_on("orin-agx"))
    figures = benchmark["extra_info"]
    assert figures["provenance"] == "simulated"
    assert figures["power_ms"] == pytest.approx(transition.power_ms, rel=0.3)
    assert figures["clock_ms"] == pytest.approx(transition.clock_ms, rel=0.2)
    assert benchmark["stats"]["data"] == [pytest.approx(figures["power_ms"] / 1000)]


@pytest.mark.training
@pytest.mark.exhaustive
@pytest.mark.parametrize(("board", "l4t"), [("orin-agx", "r36.4"), ("xavier-nx", "r35.4"), ("nano", "r32.7")])
def test_an_emulated_board_is_set_read_back_and_put_back(tmp_path: Path, board, l4t):
    pytest.importorskip("torch")
    from boards.kernel import Kernel
    from boards.tree import build_board

    from tests.harness.board_suite import run

    tree = build_board(tmp_path / "root", board, l4t)
    before = tree.controls()
    Kernel(tree.root).set_load(gpu=0.3)
    done = run(tree, tmp_path, "test_mode_transitions.py", "-rs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "set after" in done.stdout
    assert tree.controls() == before
