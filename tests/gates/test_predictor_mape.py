"""Predictors err no more than recorded: on simulated corpora always, on measured ones where they are.

`pytest tests/gates -k predictor --record-baselines` writes what is found now and prints the differences.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Callable, List, Tuple, Type

import numpy as np
import pytest

from predictors.cli.scenario import simulated
from predictors.evaluation import Target
from predictors.models import networks, physical_gp, powertrain
from predictors.models.base import MODULES, Inputs, Prediction, Predictor, predictor_class
from predictors.models.physical_gp import posterior
from predictors.models.physical_gp.prior import priors_for
from predictors.models.regression import Regression
from predictors.models.tables import Table
from predictors.scenarios import ProfileSource
from predictors.trials import TrialPlan, format_skipped, run_plan
from tests.gates.conftest import Gate, unlike
from tests.gates.recorded import PREDICTORS, entries_of

pytestmark = pytest.mark.one_python

RECORDED = Path(__file__).resolve().parents[2] / "baselines" / "recorded" / "predictors.json"
SLOW = ("gbr", "random-forest", "mlp", "nn", "powertrain")
SIMULATED, MEASURED = "simulated-orin-agx", "measured-orin-agx-training"
UNKNOWN = "simulated-xavier-agx"  # the prior of physical-gp knows no such board: its reference tells of it
FEW = 3  # modes that are profiled there


def part_of(table: Table, count: int) -> Table:
    """As many rows, the same every time."""
    return table.take(
        np.sort(np.random.default_rng(count).choice(len(table), size=min(count, len(table)), replace=False))
    )


@pytest.fixture(scope="session")
def simulated_targets() -> Tuple[Target, ...]:
    tables = [
        part_of(simulated(ProfileSource(name)), 400) for name in ("resnet18-imagenet", "yolov8n-coco", "bert-squad")
    ]
    return tuple(Target(table, (tables[0],)) for table in tables[1:])


@pytest.fixture(scope="session")
def unknown_board() -> Tuple[Target, ...]:
    reference, table = (
        part_of(simulated(ProfileSource(name, "xavier-agx")), 400)
        for name in ("resnet18-imagenet", "mobilenetv3-gld23k")
    )
    return (Target(table, (reference,)),)


@pytest.fixture(autouse=True)
def without_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are gated: the residuals of five folds, which only intervals follow from, would take five fits more."""
    monkeypatch.setattr(Regression, "_left_out", lambda self, inputs, figures: (figures, figures))


@pytest.fixture(scope="session")
def measured_targets(measured_roles: Tuple[List[Table], Table]) -> Tuple[Target, ...]:
    targets, reference = measured_roles[0], part_of(measured_roles[1], 1000)
    return tuple(Target(part_of(table, 1000), (reference,)) for table in targets)


Hold = Callable[..., List[str]]


@pytest.fixture
def hold(gate: Gate) -> Hold:
    """What of a predictor is worse than recorded, a line each; nothing where it is being recorded."""

    def held(predictor: str, targets: Tuple[Target, ...], corpus: str, broken: bool = False) -> List[str]:
        if MODULES[predictor].endswith("scikit_learn"):
            pytest.importorskip("sklearn")
        repeats = 3 if predictor in SLOW else 5
        modes = (FEW,) if corpus == UNKNOWN else (10,) if broken else (10, 50)
        found = run_plan(TrialPlan((predictor,), targets, modes, repeats=repeats))
        assert found.results, format_skipped(found.skipped)
        entries = entries_of(found.results, corpus)
        return gate("predictor", RECORDED, PREDICTORS, [unlike(one) for one in entries] if broken else entries, broken)

    return held


@pytest.mark.parametrize("predictor", MODULES)
def test_predictor_errs_no_more_than_recorded_on_a_simulated_board(predictor, simulated_targets, hold: Hold):
    assert hold(predictor, simulated_targets, SIMULATED) == []


@pytest.mark.parametrize("predictor", MODULES)
def test_predictor_errs_no_more_than_recorded_on_measured_tables(predictor, measured_targets, hold: Hold):
    assert hold(predictor, measured_targets, MEASURED) == []


def halve_features(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It no longer sees the GPU and memory clocks."""
    learn, infer = kind._learn, kind._infer

    def blind(rows: Inputs) -> Inputs:
        modes = rows.modes.copy()
        modes[:, 2:] = 1_000_000
        return rows._replace(modes=modes)

    monkeypatch.setattr(kind, "_learn", lambda self, rows, *measured: learn(self, blind(rows), *measured))
    monkeypatch.setattr(kind, "_infer", lambda self, rows: infer(self, blind(rows)))


def shuffle_targets(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It learns the time and power of other modes."""
    learn = kind._learn

    def confused(self: Predictor, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        order = np.random.default_rng(0).permutation(len(time_ms))
        learn(self, rows, time_ms[order], power_mw[order])

    monkeypatch.setattr(kind, "_learn", confused)


def shift_columns(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It takes the CPU clock for the cores, the GPU clock for the CPU's and so on, when it predicts."""
    infer = kind._infer

    def shifted(self: Predictor, rows: Inputs) -> Prediction:
        return infer(self, rows._replace(modes=np.roll(rows.modes, -1, axis=1)))

    monkeypatch.setattr(kind, "_infer", shifted)


def turn_the_gradient(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It climbs where it should descend."""
    expand, backward = posterior.Search._expand, networks._backward

    def climbing(search: posterior.Search) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        gradient, curvature, jacobian = expand(search)
        return -gradient, curvature, jacobian

    def back(layers: Any, gradient: Any, passed: Any, alive: Any, by_output: np.ndarray, frozen: int) -> None:
        backward(layers, gradient, passed, alive, -by_output, frozen)

    monkeypatch.setattr(posterior.Search, "_expand", climbing)
    monkeypatch.setattr(networks, "_backward", back)


def lose_the_reference(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It starts from anywhere; of the prior nothing is left but what is known of any board."""
    learn = powertrain.learn_reference

    def untrained(table: Table, seed: int) -> networks.NeuralNetwork:
        known = learn(table, seed)
        forgotten = copy.copy(known)
        forgotten.networks_ = networks.fresh_networks(2, known.networks_.sizes, np.random.default_rng(0))
        return forgotten

    monkeypatch.setattr(powertrain, "learn_reference", untrained)
    monkeypatch.setattr(physical_gp, "priors_for", lambda references, *of: priors_for((), *of))


OF_ANY = (halve_features, shuffle_targets, shift_columns)
BREAKAGES = [
    *((name, breakage) for name in ("physical-gp", "ridge") for breakage in OF_ANY),
    *(("physical-gp", turn_the_gradient), ("nn", turn_the_gradient), ("powertrain", lose_the_reference)),
]


@pytest.mark.parametrize(("predictor", "breakage"), BREAKAGES, ids=lambda one: getattr(one, "__name__", one))
def test_a_broken_predictor_fails_the_gate(predictor, breakage, simulated_targets, recording, hold: Hold, monkeypatch):
    if recording:
        pytest.skip("a broken predictor is not to be recorded")
    breakage(monkeypatch, predictor_class(predictor))
    assert hold(predictor, simulated_targets[:1], SIMULATED, broken=True)


def test_physical_gp_errs_on_a_board_that_only_a_reference_tells_of_as_recorded_and_more_without_it(
    unknown_board, recording, hold: Hold, monkeypatch
):
    assert hold("physical-gp", unknown_board, UNKNOWN) == []
    if not recording:
        lose_the_reference(monkeypatch, predictor_class("physical-gp"))
        assert hold("physical-gp", unknown_board, UNKNOWN, broken=True)
