"""Strategies choose as recorded: on simulated corpora always, on measured ones where they are.

`pytest tests/gates -k strategy --record-baselines` writes what is found now and prints the differences.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import pytest

from harness.core.measured_tables import load_table
from predictors.contest.judged_choices import JudgedChoice, JudgedChoices, contest_runs, results, run_contest, summarise
from predictors.contest.scenarios import ProfileSource, simulated
from predictors.forecast import Forecast
from predictors.goals import Goal, budget_goals
from predictors.models import vendor_estimate
from predictors.profiles import Profiles, tables_of
from predictors.settings import DIMENSIONS, Grid
from predictors.strategies import closed_loop
from predictors.strategies.fixed import presets_of
from predictors.strategies.protocol import Choice, History, Strategy
from predictors.strategies.registry import STRATEGIES, StrategySetting
from predictors.strategies.search import BinarySearch
from tests.gates.conftest import ROWS_OF_REFERENCE, Gate, alike_on_every_processor, blind_spots, part_of
from tests.gates.recorded import STRATEGIES as KIND
from tests.gates.recorded import entries_of

pytestmark = pytest.mark.one_python

RECORDED = Path(__file__).resolve().parents[2] / "baselines" / "recorded" / "strategies.json"
GATED = [name for name in STRATEGIES if name not in ("brute-force", "zeus")]
"""Brute force is the truth; `zeus` is for discrete GPUs."""
ON_GPUS = ("closed-loop", "zeus", "random")

SLOW = ("closed-loop", "front", "powertrain", "nn")
SIMULATED, MEASURED = "simulated-orin-agx", "measured-orin-agx-training"
V100, A40 = "zeus-v100", "zeus-a40"  # measured, and in every clone
ENERGY = "energy"  # after the name of a table: the least energy of a sample, without a budget
GPU_CORPORA = tuple(f"{gpu}{suffix}" for gpu in (V100, A40) for suffix in ("", f"-{ENERGY}"))
GPU_PROFILES, GPU_REPEATS = 6, 2
BUDGETS, BUDGETS_OF_CLOSED_LOOP = "17:50:3", "17:50:11"  # each budget of the closed loop is a search
PROFILES, REPEATS = 15, 2
FEW = {"closed-loop": (8, 1), "front": (8, 1), "powertrain": (15, 1), "nn": (50, 1), "mdbs": (8, 1), "gmd": (8, 1)}
"""Profiles and repeats of the slow ones, and of those that need fewer: what they do not use up gates nothing."""

Tables = Tuple[List[Profiles], Profiles]
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


def entries_on(strategy: str, tables: Tables, corpus: str) -> List[Dict[str, Any]]:
    """The entries of a small contest."""
    targets, reference = tables
    if strategy == "powertrain":  # a table is no reference of its own
        targets = [table for table in targets if table.fingerprint != reference.fingerprint]
        reference = part_of(reference, ROWS_OF_REFERENCE)
    budgets = BUDGETS_OF_CLOSED_LOOP if strategy == "closed-loop" else BUDGETS
    if reference.device != "orin-agx":  # another board draws other power
        low, high = np.quantile(reference.power_mw, (0.3, 0.9)) / 1000
        budgets = f"{low:.2f}:{high:.2f}:{(high - low) / 3:.2f}"
    goals = budget_goals(budgets)
    setting = StrategySetting(references=(reference,), presets=presets_of(reference.device), risk=0.05)
    profiles, repeats = FEW.get(strategy, (PROFILES, REPEATS))
    with alike_on_every_processor(strategy):
        found = run_contest(contest_runs([strategy], targets, [profiles], repeats), goals, setting)
    return entries_of(figures_of(found, targets, goals), corpus, KIND)


def figures_of(found: JudgedChoices, targets: List[Profiles], goals: Sequence[Goal]) -> List[Dict[str, Any]]:
    """The results of a contest with the gated figures, a value for each repeat."""
    rows = results(found, targets, len(goals))
    for row, outcomes in zip(rows, found.values()):
        sweeps = [outcomes[start : start + len(goals)] for start in range(0, len(outcomes), len(goals))]
        summaries = [summarise(sweep) for sweep in sweeps]
        row["penalty"] = [one["penalty_mean"] for one in summaries]
        row["over_limit_plus1"] = [one["over_limit_plus1_pct"] for one in summaries]
        row["violations"] = [one["violations_pct"] for one in summaries]
        row["power_bias"] = [mean_power_bias(sweep) for sweep in sweeps]
    return rows


def entries_on_gpus(strategy: str, corpus: str, targets: int = 6) -> List[Dict[str, Any]]:
    """As `entries_on`, for each network of a GPU by itself, with those of the other GPU as references."""
    gpu = corpus.replace(f"-{ENERGY}", "")
    other = A40 if gpu == V100 else V100
    references = tuple(table.complete() for table in tables_of(load_table(other)))
    setting, entries = StrategySetting(references=references), []
    for table in tables_of(load_table(gpu))[:targets]:
        table = table.complete()
        goals = [Goal("sample_energy_mws")]
        if not corpus.endswith(ENERGY):
            goals = [
                Goal("sample_time_ms", {"power_mw": float(np.quantile(table.power_mw, share))}) for share in (0.3, 0.6)
            ]
        found = run_contest(contest_runs([strategy], [table], [GPU_PROFILES], GPU_REPEATS), goals, setting)
        entries += entries_of(figures_of(found, [table], goals), corpus, KIND)
    return entries


def mean_power_bias(outcomes: Sequence[JudgedChoice]) -> Optional[float]:
    """Mean power above the budget, in % of it, over budgets that can be met; below 0 where they are not used up."""
    limited = [one for one in outcomes if one.penalty_pct is not None and "power_mw" in one.goal.limits]
    shares = [one.power_mw / one.goal.limits["power_mw"] for one in limited]
    return 100 * (float(np.mean(shares)) - 1) if shares else None


Entries = Callable[[str, str], List[Dict[str, Any]]]


@pytest.fixture(scope="module")
def entries(request: pytest.FixtureRequest) -> Entries:
    """The entries of a strategy on a corpus, computed once."""
    kept: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}

    def of(strategy: str, corpus: str) -> List[Dict[str, Any]]:
        if (strategy, corpus) not in kept:
            if corpus in GPU_CORPORA:
                kept[strategy, corpus] = entries_on_gpus(strategy, corpus)
            else:
                tables = request.getfixturevalue("simulated_tables" if corpus == SIMULATED else "measured_tables")
                kept[strategy, corpus] = entries_on(strategy, tables, corpus)
        return kept[strategy, corpus]

    return of


QUICK_ON_GPUS = f"{A40}-{ENERGY}"


def case(strategy: str, corpus: str, *others: Any) -> Any:
    """A parameter; the quick part of the tests takes one table of GPUs, nothing measured on boards and nothing slow."""
    further = corpus == MEASURED or (corpus in GPU_CORPORA and corpus != QUICK_ON_GPUS)
    marks = [pytest.mark.exhaustive] if strategy in SLOW or further else []
    names = [getattr(one, "__name__", one) for one in (strategy, corpus, *others)]
    return pytest.param(strategy, corpus, *others, marks=marks, id="-".join(names))


@pytest.mark.parametrize(
    ("strategy", "corpus"),
    [case(s, c) for c in (SIMULATED, MEASURED) for s in GATED] + [case(s, c) for c in GPU_CORPORA for s in ON_GPUS],
)
def test_strategy_chooses_as_recorded(strategy, corpus, entries: Entries, gate: Gate):
    assert gate("strategy", RECORDED, KIND, entries(strategy, corpus)) == []


class Changed(Strategy):
    """A strategy with a fault: in the goals that it sees, in how many profiles it takes, or in what it answers."""

    def __init__(
        self,
        sound: Strategy,
        goal: Callable[[Goal], Goal] = lambda goal: goal,
        profiles: Callable[[int], int] = lambda count: count,
        answer: Callable[[History, Goal, Choice], int] = lambda history, goal, choice: choice.index,
    ) -> None:
        self.sound, self.goal, self.profiles, self.answer = sound, goal, profiles, answer

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        history.limit = self.profiles(history.limit)
        choices = self.sound.choose_all(history, [self.goal(goal) for goal in goals])
        answers = [self.answer(history, goal, choice) for goal, choice in zip(goals, choices)]
        return [history.choice(index, choice.reason, choice.feasible) for index, choice in zip(answers, choices)]


Patch = pytest.MonkeyPatch


def change(monkeypatch: Patch, strategy: str, **faults: Any) -> None:
    kind = STRATEGIES[strategy]
    make = lambda setting, seed: Changed(kind.make(setting, seed), **faults)  # noqa: E731
    monkeypatch.setitem(STRATEGIES, strategy, kind._replace(make=make))


def limits_ignored_by_a_twentieth(monkeypatch: Patch, strategy: str) -> None:
    def loose(goal: Goal) -> Goal:
        return dataclasses.replace(goal, limits={name: 1.05 * limit for name, limit in goal.limits.items()})

    change(monkeypatch, strategy, goal=loose)


def step_aside(monkeypatch: Patch, strategy: str, dimension: str) -> None:
    """The answer is the neighbour of what should be: a step down, or up from the least value."""
    place = DIMENSIONS.index(dimension)

    def neighbour(history: History, goal: Goal, choice: Choice) -> int:
        grid = Grid(history.profiler.candidates, history.usable)
        step = grid.steps[choice.index].copy()
        step[place] += -1 if step[place] else 1
        return grid.at(step)

    change(monkeypatch, strategy, answer=neighbour)


def a_gpu_clock_aside(monkeypatch: Patch, strategy: str) -> None:
    step_aside(monkeypatch, strategy, "gpu_khz")


def a_cpu_clock_aside(monkeypatch: Patch, strategy: str) -> None:
    step_aside(monkeypatch, strategy, "cpu_khz")


def a_memory_clock_aside(monkeypatch: Patch, strategy: str) -> None:
    step_aside(monkeypatch, strategy, "mem_khz")


def fewer_cores(monkeypatch: Patch, strategy: str) -> None:
    step_aside(monkeypatch, strategy, "cpu_cores")


def last_profiles_ignored(monkeypatch: Patch, strategy: str) -> None:
    change(monkeypatch, strategy, profiles=lambda count: count * 2 // 3)


def slowest_of_the_profiled(monkeypatch: Patch, strategy: str) -> None:
    def slowest(history: History, goal: Goal, choice: Choice) -> int:
        kept = [index for index in history.taken if history.figures(index, goal)[1] <= 0]
        return max(kept, key=lambda index: history.figures(index, goal)[0], default=choice.index)

    change(monkeypatch, strategy, answer=slowest)


def predicted_times_scrambled(monkeypatch: Patch, strategy: str) -> None:
    learn = closed_loop.learn

    def confused(*arguments: Any, **options: Any) -> Forecast:
        posterior = learn(*arguments, **options)
        order = np.random.default_rng(0).permutation(posterior.log_time.shape[-1])
        return dataclasses.replace(posterior, log_time=posterior.log_time[..., order])

    monkeypatch.setattr(closed_loop, "learn", confused)


def one_preset_lost(monkeypatch: Patch, strategy: str) -> None:
    kind = STRATEGIES[strategy]

    def without(setting: StrategySetting, seed: int) -> Strategy:
        presets = sorted(setting.presets, key=lambda preset: preset.claimed_mw)
        return kind.make(setting._replace(presets=(presets[0], *presets[2:])), seed)

    monkeypatch.setitem(STRATEGIES, strategy, kind._replace(make=without))


def presets_claim_a_tenth_less(monkeypatch: Patch, strategy: str) -> None:
    kind = STRATEGIES[strategy]

    def modest(setting: StrategySetting, seed: int) -> Strategy:
        presets = tuple(one._replace(claimed_mw=0.9 * one.claimed_mw) for one in setting.presets)
        return kind.make(setting._replace(presets=presets), seed)

    monkeypatch.setitem(STRATEGIES, strategy, kind._replace(make=modest))


def estimates_without_the_cpu(monkeypatch: Patch, strategy: str) -> None:
    monkeypatch.setattr(vendor_estimate, "CPU", 0.0)


def estimates_of_scrambled_gpu_clocks(monkeypatch: Patch, strategy: str) -> None:
    estimated = vendor_estimate.estimated_power_mw

    def confused(board: Any, modes: np.ndarray) -> np.ndarray:
        modes = np.array(modes)
        modes[:, 2] = np.random.default_rng(0).permutation(modes[:, 2])
        return estimated(board, modes)

    monkeypatch.setattr(vendor_estimate, "estimated_power_mw", confused)


def forget_the_objective(monkeypatch: Patch, strategy: str) -> None:
    """The closed loop no longer knows which modes are fast."""
    log_objective = Forecast.log_objective

    def flat(self: Forecast, goal: Goal) -> Tuple[np.ndarray, np.ndarray]:
        mean, sd = log_objective(self, goal)
        return np.full_like(mean, mean.mean()), sd

    monkeypatch.setattr(Forecast, "log_objective", flat)


def forget_the_limit(monkeypatch: Patch, strategy: str) -> None:
    """The pick at a risk no longer looks at power."""
    monkeypatch.setattr(Forecast, "risk", lambda self, goal: np.zeros(len(self.log_time)))


def search_the_wrong_half(monkeypatch: Patch, strategy: str) -> None:
    """The binary search keeps what it should drop."""
    half = BinarySearch._half
    monkeypatch.setattr(BinarySearch, "_half", lambda self, bounds, middle, up: half(self, bounds, middle, not up))


def gain_at_random(monkeypatch: Patch, strategy: str) -> None:
    """The front is searched where nothing is to be expected."""
    gains = closed_loop.expected_gains
    monkeypatch.setattr(closed_loop, "expected_gains", lambda *known: 1 / (1e-9 + gains(*known)) * (gains(*known) > 0))


OF_ANY = (limits_ignored_by_a_twentieth, a_gpu_clock_aside)
OF_PREDICTIONS = (*OF_ANY, last_profiles_ignored, predicted_times_scrambled)
OF_PROFILES = (*OF_ANY, last_profiles_ignored, slowest_of_the_profiled)
BREAKAGES = {
    "closed-loop": (*OF_PREDICTIONS, forget_the_objective),
    "front": (*OF_PREDICTIONS, gain_at_random),
    "one-shot": (*OF_PREDICTIONS, forget_the_limit),
    "powertrain": OF_PREDICTIONS,
    "nn": OF_PREDICTIONS,
    "random": OF_PROFILES,
    "mdbs": (*OF_PROFILES, search_the_wrong_half),
    "gmd": OF_PROFILES,
    "presets": (*OF_ANY, one_preset_lost, presets_claim_a_tenth_less),
    "npe": (*OF_ANY, estimates_without_the_cpu, estimates_of_scrambled_gpu_clocks),
    "maxn": (a_gpu_clock_aside, a_cpu_clock_aside, a_memory_clock_aside, fewer_cores),
}


@pytest.mark.parametrize(
    ("strategy", "corpus", "breakage"),
    [case(strategy, SIMULATED, breakage) for strategy in GATED for breakage in BREAKAGES[strategy]],
)
def test_a_broken_strategy_fails_the_gate(strategy, corpus, breakage, simulated_tables, entries: Entries, monkeypatch):
    targets, reference = simulated_tables
    sound = entries(strategy, corpus)
    breakage(monkeypatch, strategy)
    tables = (targets[:1] if strategy == "closed-loop" else targets), reference
    assert blind_spots(sound, entries_on(strategy, tables, corpus), KIND) == []


def a_power_limit_aside(monkeypatch: Patch, strategy: str) -> None:
    step_aside(monkeypatch, strategy, "power_limit_mw")


def a_batch_size_aside(monkeypatch: Patch, strategy: str) -> None:
    step_aside(monkeypatch, strategy, "batch_size")


OF_GPUS = {
    "closed-loop": (a_power_limit_aside, a_batch_size_aside, last_profiles_ignored, predicted_times_scrambled),
    "zeus": (a_power_limit_aside, a_batch_size_aside, last_profiles_ignored, slowest_of_the_profiled),
    "random": (a_power_limit_aside, a_batch_size_aside, last_profiles_ignored, slowest_of_the_profiled),
}


BROKEN_ON_GPUS = [(strategy, one) for strategy in ON_GPUS for one in OF_GPUS[strategy]]


@pytest.mark.parametrize(
    ("strategy", "corpus", "breakage"),
    [case(name, corpus, one) for corpus in (V100, f"{A40}-{ENERGY}") for name, one in BROKEN_ON_GPUS],
)
def test_a_broken_strategy_fails_the_gate_on_gpus(strategy, corpus, breakage, entries: Entries, monkeypatch):
    """On at least one network: a broken search may find the best setting of a network that many settings serve."""
    sound = entries(strategy, corpus)
    breakage(monkeypatch, strategy)
    broken = entries_on_gpus(strategy, corpus)
    assert [entry for entry in broken if not blind_spots(sound, [entry], KIND)]
