"""Plans of `concurrent` are as good as recorded: held against the best plan, where figures of every mode are known.

`pytest tests/gates -k plan --record-baselines` writes what is found now and prints the differences.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest

from harness.core.interleaving import expect
from harness.core.units import w_to_mw
from predictors.contest.scenarios import ProfileSource, simulated
from predictors.forecast import Forecast
from predictors.plans import choice as concurrent
from predictors.plans.choice import CLOSED_LOOP, HALVING, ConcurrentChoice, ConcurrentGoal, choose_concurrent
from predictors.profiles import Profiles, find_table
from predictors.settings import DIMENSIONS, Grid
from predictors.strategies.closed_loop import design_for
from predictors.strategies.protocol import History, TableProfiler
from predictors.strategies.registry import StrategySetting, unfitted
from predictors.strategies.search import BinarySearch
from tests.gates.conftest import Gate, blind_spots
from tests.gates.recorded import PLANS, entries_of
from tests.gates.test_predictor_mape import one_table

pytestmark = pytest.mark.one_python

RECORDED = Path(__file__).resolve().parents[2] / "baselines" / "recorded" / "plans.json"
PROFILES = 10
INFERENCE_BATCHES = (1, 4, 16)
MODES = 120
SIMULATED, MEASURED = "simulated-orin-agx", "measured-orin-agx"
SWITCHING_MS = 30.0
WAYS = {"shared": None, "own": SWITCHING_MS}
"""Whether both kinds of work share a mode, or each has its own at this cost of a change."""

GOALS_OF_CLOSED_LOOP = ((20.0, 400.0, 30.0), (40.0, 600.0, 24.0), (8.0, 250.0, 22.0), (12.0, 900.0, 18.0))
GOALS = {
    CLOSED_LOOP: GOALS_OF_CLOSED_LOOP,
    HALVING: tuple(
        (*one, power_w) for one in ((20.0, 400.0), (40.0, 600.0), (12.0, 900.0)) for power_w in (18.0, 22.0, 30.0)
    ),
}
"""Requests per second, latency in ms and power in W."""


class Tables(NamedTuple):
    """Every candidate of both kinds of work with its figures, in the same power modes."""

    training: Profiles
    inference: Profiles


def shared_modes(training: Profiles, inference: Profiles) -> Tables:
    """The rows of some modes that both tables have, the same every time."""
    both = sorted(set(map(tuple, training.modes.tolist())) & set(map(tuple, inference.modes.tolist())))
    places = np.random.default_rng(0).choice(len(both), size=min(MODES, len(both)), replace=False)
    chosen = {both[place] for place in places}
    parts = [
        table.take([place for place, mode in enumerate(table.modes.tolist()) if tuple(mode) in chosen])
        for table in (training, inference)
    ]
    return Tables(*parts)


@pytest.fixture(scope="session")
def simulated_pair() -> Tables:
    served = [
        simulated(ProfileSource("mobilenetv3-gld23k", task="inference", batch_size=size)) for size in INFERENCE_BATCHES
    ]
    return shared_modes(simulated(ProfileSource("resnet18-imagenet")), one_table(served))


@pytest.fixture(scope="session")
def measured_pair(public_tables: List[Profiles]) -> Tables:
    inference = find_table(public_tables, "yolov8n-coco", "inference")
    served = inference.take(np.isin(inference.batch_size, INFERENCE_BATCHES))
    return shared_modes(find_table(public_tables, "resnet18-imagenet"), served)


class Outcome(NamedTuple):
    """What plans come to; arrays of shape (n,)."""

    trained_per_s: np.ndarray  # samples
    used: np.ndarray  # share of the worst limit: above 1 it is broken


def outcome(tables: Tables, first: np.ndarray, second: np.ndarray, goal: ConcurrentGoal) -> Outcome:
    """What plans of a row of training and one of inference each come to; a change of mode costs where there is one."""
    training, inference = tables.training.take(first), tables.inference.take(second)
    same = (training.modes == inference.modes).all(axis=1)
    expected = expect(
        training.time_ms,
        training.power_mw,
        inference.time_ms,
        inference.power_mw,
        inference.batch_size,
        goal.arrivals_per_s,
        np.where(same, 0.0, goal.switching_ms or 0.0),
    )
    shares = (expected.latency_ms / goal.latency_ms, expected.load, expected.power_mw / goal.power_mw)
    return Outcome(expected.training_per_s * training.batch_size, np.maximum.reduce(shares))


def best_trained_per_s(tables: Tables, goal: ConcurrentGoal) -> float:
    """The most samples that any plan within the limits trains."""
    first, second = (np.arange(len(table)) for table in tables)
    first, second = (places.ravel() for places in np.meshgrid(first, second, indexing="ij"))
    if goal.switching_ms is None:
        same = (tables.training.modes[first] == tables.inference.modes[second]).all(axis=1)
        first, second = first[same], second[same]
    every = outcome(tables, first, second, goal)
    kept = every.used <= 1
    assert kept.any(), f"no plan keeps the limits of {goal}"
    return float(every.trained_per_s[kept].max())


Planner = Callable[..., ConcurrentChoice]


def entry_on(tables: Tables, corpus: str, search: str, way: str, plan: Planner = choose_concurrent) -> Dict[str, Any]:
    """The entry of a search, which `plan` is asked for: a value for each goal."""
    found: Dict[str, List[float]] = {figure.name: [] for figure in PLANS.figures}
    for rate, latency_ms, power_w in GOALS[search]:
        goal = ConcurrentGoal(rate, latency_ms, w_to_mw(power_w), WAYS[way])
        training = History(TableProfiler(tables.training), PROFILES)
        histories = training, History(TableProfiler(tables.inference), PROFILES, beside=training)
        predictor = unfitted(StrategySetting(tables.training.device), 0)
        choice = plan(histories, goal, predictor, design_for(0), search=search)
        made = outcome(tables, np.array([choice.training]), np.array([choice.inference]), goal)
        found["lost"].append(100 * (1 - float(made.trained_per_s[0]) / best_trained_per_s(tables, goal)))
        found["used"].append(100 * float(made.used[0]))
        found["violations"].append(100.0 * bool(made.used[0] > 1 + 1e-9))
    row = {"plan": f"{search}-{way}", "profiles": PROFILES, "provenance": tables.training.provenance, **found}
    return entries_of([row], corpus, PLANS)[0]


Entries = Callable[[str, str, str], Dict[str, Any]]


@pytest.fixture(scope="module")
def tables_of(request: pytest.FixtureRequest) -> Callable[[str], Tables]:
    names = {SIMULATED: "simulated_pair", MEASURED: "measured_pair"}
    return lambda corpus: request.getfixturevalue(names[corpus])


@pytest.fixture(scope="module")
def entries(tables_of) -> Entries:
    """The entry of a search, computed once."""
    kept: Dict[Tuple[str, str, str], Dict[str, Any]] = {}

    def of(corpus: str, search: str, way: str) -> Dict[str, Any]:
        if (corpus, search, way) not in kept:
            kept[corpus, search, way] = entry_on(tables_of(corpus), corpus, search, way)
        return kept[corpus, search, way]

    return of


def case(corpus: str, search: str, way: str, *others: Any) -> Any:
    """A parameter; what is slow or measured does not belong to the quick part of the tests."""
    marks = [] if search == HALVING and corpus == SIMULATED else [pytest.mark.exhaustive]
    names = [getattr(one, "__name__", one) for one in (corpus, search, way, *others)]
    return pytest.param(corpus, search, way, *others, marks=marks, id="-".join(names))


SEARCHES = ((CLOSED_LOOP, "shared"), (CLOSED_LOOP, "own"), (HALVING, "shared"))


@pytest.mark.parametrize(
    ("corpus", "search", "way"), [case(corpus, *one) for corpus in (SIMULATED, MEASURED) for one in SEARCHES]
)
def test_plan_is_as_good_as_recorded(corpus, search, way, entries: Entries, gate: Gate):
    assert gate("plan", RECORDED, PLANS, [entries(corpus, search, way)]) == []


Patch = pytest.MonkeyPatch


def limits_ignored_by_a_twentieth(monkeypatch: Patch) -> Planner:
    def plan(histories, goal, *others, **options):
        loose = dataclasses.replace(goal, latency_ms=1.05 * goal.latency_ms, power_mw=1.05 * goal.power_mw)
        return choose_concurrent(histories, loose, *others, **options)

    return plan


def last_profiles_ignored(monkeypatch: Patch) -> Planner:
    def plan(histories, *others, **options):
        for history in histories:
            history.limit = PROFILES // 2
        return choose_concurrent(histories, *others, **options)

    return plan


def training_a_gpu_clock_aside(monkeypatch: Patch) -> Planner:
    def plan(histories, *others, **options):
        choice = choose_concurrent(histories, *others, **options)
        grid = Grid(histories[0].profiler.candidates)
        step = grid.steps[choice.training].copy()
        place = DIMENSIONS.index("gpu_khz")
        step[place] += -1 if step[place] else 1
        return choice._replace(training=grid.at(step, grid.steps[:, place] == step[place]))

    return plan


def predicted_times_scrambled(monkeypatch: Patch) -> Planner:
    learn = concurrent.learn

    def confused(*arguments: Any, **options: Any) -> Forecast:
        posterior = learn(*arguments, **options)
        order = np.random.default_rng(0).permutation(posterior.log_time.shape[-1])
        return dataclasses.replace(posterior, log_time=posterior.log_time[..., order])

    monkeypatch.setattr(concurrent, "learn", confused)
    return choose_concurrent


def changes_of_mode_not_charged(monkeypatch: Patch) -> Planner:
    def plan(histories, goal, *others, **options):
        return choose_concurrent(histories, dataclasses.replace(goal, switching_ms=1e-6), *others, **options)

    return plan


def search_the_wrong_half(monkeypatch: Patch) -> Planner:
    half = BinarySearch._half
    monkeypatch.setattr(BinarySearch, "_half", lambda self, bounds, middle, up: half(self, bounds, middle, not up))
    return choose_concurrent


OF_ANY = (limits_ignored_by_a_twentieth, last_profiles_ignored, training_a_gpu_clock_aside)
BREAKAGES = {
    (CLOSED_LOOP, "shared"): (*OF_ANY, predicted_times_scrambled),
    (CLOSED_LOOP, "own"): (*OF_ANY, predicted_times_scrambled, changes_of_mode_not_charged),
    (HALVING, "shared"): (*OF_ANY, search_the_wrong_half),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("corpus", "search", "way", "breakage"),
    [case(SIMULATED, *one, breakage) for one in SEARCHES for breakage in BREAKAGES[one]],
)
def test_a_broken_planner_fails_the_gate(corpus, search, way, breakage, entries: Entries, tables_of, monkeypatch):
    sound = entries(corpus, search, way)
    broken = entry_on(tables_of(corpus), corpus, search, way, breakage(monkeypatch))
    assert blind_spots([sound], [broken], PLANS) == []
