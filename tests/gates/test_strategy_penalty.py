"""Strategies choose no worse than recorded: on simulated corpora always, on measured ones where they are.

`pytest tests/gates -k strategy --record-baselines` writes what is found now and prints the differences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from predictors.cli.scenario import simulated
from predictors.models.tables import Table
from predictors.scenarios import ProfileSource
from predictors.strategies import closed_loop
from predictors.strategies.closed_loop import CandidatePosterior
from predictors.strategies.evaluation import contest_runs, results, run_contest, summarise
from predictors.strategies.fixed import presets_of
from predictors.strategies.goals import budget_goals
from predictors.strategies.registry import STRATEGIES, StrategySetting
from predictors.strategies.search import BinarySearch
from tests.gates.conftest import Gate, unlike
from tests.gates.recorded import STRATEGIES as KIND
from tests.gates.recorded import entries_of

pytestmark = pytest.mark.one_python

RECORDED = Path(__file__).resolve().parents[2] / "baselines" / "recorded" / "strategies.json"
GATED = [name for name in STRATEGIES if name != "brute-force"]
"""Brute force is the truth."""

SIMULATED, MEASURED = "simulated-orin-agx", "measured-orin-agx-training"
BUDGETS, PROFILES, REPEATS = "17:50:11", 15, 2
FEW = {"closed-loop": (8, 1), "front": (8, 1), "powertrain": (15, 1), "nn": (15, 1)}
"""Profiles and repeats of the slow ones. Where the penalty of 15 profiles is nearly 0, fewer tell more."""

FIGURES = {
    "penalty": "penalty_mean", "over_limit_plus1": "over_limit_plus1_pct", "violations": "violations_pct",
}  # fmt: skip

Tables = Tuple[List[Table], Table]
"""Targets, and the reference."""


@pytest.fixture(scope="session")
def simulated_tables() -> Tables:
    reference, *targets = (
        simulated(ProfileSource(name)) for name in ("resnet18-imagenet", "yolov8n-coco", "bert-squad")
    )
    return targets, reference


@pytest.fixture(scope="session")
def measured_tables(measured_roles: Tables) -> Tables:
    targets, reference = measured_roles
    return [*targets, reference], reference  # the last has no reference then


def found_on(strategy: str, tables: Tables) -> List[Dict[str, Any]]:
    """The results of a small contest, as the gate wants them."""
    targets, reference = tables
    if strategy == "powertrain":  # a table is no reference of its own
        targets = [table for table in targets if table.fingerprint != reference.fingerprint]
    budgets = BUDGETS
    if reference.device != "orin-agx":  # another board draws other power
        low, high = np.quantile(reference.power_mw, (0.3, 0.9)) / 1000
        budgets = f"{low:.2f}:{high:.2f}:{(high - low) / 3:.2f}"
    goals = budget_goals(budgets)
    setting = StrategySetting(references=(reference,), presets=presets_of(reference.device), risk=0.05)
    profiles, repeats = FEW.get(strategy, (PROFILES, REPEATS))
    found = run_contest(contest_runs([strategy], targets, [profiles], repeats), goals, setting)
    rows = results(found, targets, len(goals))
    for row, outcomes in zip(rows, found.values()):
        sweeps = [summarise(outcomes[start : start + len(goals)]) for start in range(0, len(outcomes), len(goals))]
        row.update({name: [one[figure] for one in sweeps] for name, figure in FIGURES.items()})
    return rows


Hold = Callable[..., List[str]]


@pytest.fixture
def hold(gate: Gate) -> Hold:
    """What of a strategy is worse than recorded, a line each; nothing where it is being recorded."""

    def held(strategy: str, tables: Tables, corpus: str, broken: bool = False) -> List[str]:
        targets, reference = tables
        found = entries_of(found_on(strategy, (targets[: 1 if broken else None], reference)), corpus, KIND)
        return gate("strategy", RECORDED, KIND, [unlike(one) for one in found] if broken else found, broken)

    return held


@pytest.mark.parametrize("strategy", GATED)
def test_strategy_chooses_no_worse_than_recorded_on_a_simulated_board(strategy, simulated_tables, hold: Hold):
    assert hold(strategy, simulated_tables, SIMULATED) == []


@pytest.mark.parametrize("strategy", GATED)
def test_strategy_chooses_no_worse_than_recorded_on_measured_tables(strategy, measured_tables, hold: Hold):
    assert hold(strategy, measured_tables, MEASURED) == []


def forget_the_objective(monkeypatch: pytest.MonkeyPatch) -> str:
    """The closed loop no longer knows which modes are fast."""
    log_objective = CandidatePosterior.log_objective

    def flat(self: CandidatePosterior, goal: Any) -> Tuple[np.ndarray, np.ndarray]:
        mean, sd = log_objective(self, goal)
        return np.full_like(mean, mean.mean()), sd

    monkeypatch.setattr(CandidatePosterior, "log_objective", flat)
    return "closed-loop"


def forget_the_limit(monkeypatch: pytest.MonkeyPatch) -> str:
    """The pick at a risk no longer looks at power."""
    monkeypatch.setattr(CandidatePosterior, "risk", lambda self, goal: np.zeros(len(self.log_time)))
    return "one-shot"


def search_the_wrong_half(monkeypatch: pytest.MonkeyPatch) -> str:
    """The binary search keeps what it should drop."""
    half = BinarySearch._half
    monkeypatch.setattr(BinarySearch, "_half", lambda self, bounds, middle, up: half(self, bounds, middle, not up))
    return "mdbs"


def gain_at_random(monkeypatch: pytest.MonkeyPatch) -> str:
    """The front is searched where nothing is to be expected."""
    gains = closed_loop.expected_gains
    monkeypatch.setattr(closed_loop, "expected_gains", lambda *known: 1 / (1e-9 + gains(*known)) * (gains(*known) > 0))
    return "front"


@pytest.mark.parametrize(
    "breakage",
    [forget_the_objective, forget_the_limit, search_the_wrong_half, gain_at_random],
    ids=lambda one: one.__name__,
)
def test_a_broken_strategy_fails_the_gate(breakage, simulated_tables, recording, hold: Hold, monkeypatch):
    if recording:
        pytest.skip("a broken strategy is not to be recorded")
    assert hold(breakage(monkeypatch), simulated_tables, SIMULATED, broken=True)
