"""Predictors err, and are as sure, as recorded: on simulated corpora and shipped tables always, on others if present.

`pytest tests/gates -k predictor --record-baselines` writes what is found now and prints the differences.
"""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple, Type

import numpy as np
import pytest

from harness.core.measured_tables import load_table
from predictors.contest.scenarios import ProfileSource, simulated
from predictors.contest.trials import TrialPlan, run_plan
from predictors.evaluation import Target, make_target
from predictors.forecast import Forecast
from predictors.models import networks, physical_gp, powertrain
from predictors.models.base import Predictor, one_blas_thread
from predictors.models.physical_gp import posterior
from predictors.models.physical_gp.learning import learn_hierarchy
from predictors.models.physical_gp.prior import Hierarchy, priors_for
from predictors.models.registry import MODULES, predictor_class
from predictors.profiles import ARRAYS, Profiles, find_table, tables_of
from predictors.settings import Settings
from tests.gates.conftest import Gate, alike_on_every_processor, blind_spots, forget_references, part_of, unlike
from tests.gates.recorded import PREDICTORS, entries_of

pytestmark = pytest.mark.one_python

RECORDED = Path(__file__).resolve().parents[2] / "baselines" / "recorded" / "predictors.json"
SLOW = ("gbr", "random-forest", "mlp", "nn", "powertrain")
REPEATS, REPEATS_OF_SLOW = 5, 3

# Whose prior is learned without the network that is predicted: what a new network may expect.
LEFT_OUT_SIMULATED, LEFT_OUT_MEASURED = "simulated-left-out", "measured-left-out"
UNKNOWN = "simulated-xavier-agx"  # the prior of physical-gp knows no such board: its reference tells of it
SIMULATED, MEASURED = "simulated-orin-agx", "measured-orin-agx-training"
V100, A40, NANO = "zeus-v100", "zeus-a40", "loudva-nano"  # measured, and in every clone
COUNTS: Dict[str, Tuple[int, ...]] = {
    SIMULATED: (10, 50),
    "simulated-orin-agx-inference": (20,),
    MEASURED: (10, 50),
    "measured-orin-agx-inference": (20,),
    UNKNOWN: (3,),
    LEFT_OUT_SIMULATED: (5,),
    LEFT_OUT_MEASURED: (5, 20),
    V100: (5, 10),
    A40: (5, 10),
    NANO: (5, 20),
}
"""Corpora, and how many modes are profiled there."""

COUNTS_OF_POWERTRAIN = (50,)  # each count takes as long as another strategy

OURS_ALONE = (UNKNOWN, LEFT_OUT_SIMULATED, LEFT_OUT_MEASURED)
SHIPPED = (V100, A40, NANO)
OF_SHIPPED = ("physical-gp", "ridge")


def one_table(tables: List[Profiles]) -> Profiles:
    """Tables of one workload at several batch sizes as one."""
    columns = {name: np.concatenate([getattr(table, name) for table in tables]) for name in ARRAYS}
    return dataclasses.replace(tables[0], **columns)


def left_out(tables: List[Profiles], targets: Tuple[str, ...], rows: int) -> Tuple[Target, ...]:
    """Targets of whose network the prior has learned nothing; the board's other networks are references."""
    parts = [part_of(table, rows) for table in tables]
    found = []
    for name in targets:
        others = [part for part in parts if part.workload != name]
        hierarchy: Hierarchy = learn_hierarchy(others)
        mine = [table for table in tables if table.workload == name]
        found += [
            Target(part_of(table, 400), tuple(others), f"{name}/{table.task}", hierarchy=hierarchy) for table in mine
        ]
    return tuple(found)


@pytest.fixture(scope="session")
def simulated_targets() -> Tuple[Target, ...]:
    tables = [
        part_of(simulated(ProfileSource(name)), 400) for name in ("resnet18-imagenet", "yolov8n-coco", "bert-squad")
    ]
    return tuple(Target(table, (tables[0],)) for table in tables[1:])


@pytest.fixture(scope="session")
def simulated_inference() -> Tuple[Target, ...]:
    reference, table = (
        one_table(
            [part_of(simulated(ProfileSource(name, task="inference", batch_size=size)), 150) for size in (1, 4, 16)]
        )
        for name in ("resnet18-imagenet", "yolov8n-coco")
    )
    return (Target(table, (reference,)),)


@pytest.fixture(scope="session")
def unknown_board() -> Tuple[Target, ...]:
    reference, table = (
        part_of(simulated(ProfileSource(name, "xavier-agx")), 400)
        for name in ("resnet18-imagenet", "mobilenetv3-gld23k")
    )
    return (Target(table, (reference,)),)


@pytest.fixture(scope="session")
def simulated_left_out() -> Tuple[Target, ...]:
    names = ("resnet18-imagenet", "mobilenetv3-gld23k", "lstm-wikitext", "yolov8n-coco")
    return left_out([simulated(ProfileSource(name)) for name in names], names[-1:], 100)


@pytest.fixture(scope="session")
def measured_targets(measured_roles: Tuple[List[Profiles], Profiles]) -> Tuple[Target, ...]:
    targets, reference = measured_roles[0], part_of(measured_roles[1], 1000)
    return tuple(Target(part_of(table, 1000), (reference,)) for table in targets)


@pytest.fixture(scope="session")
def measured_inference(public_tables: List[Profiles]) -> Tuple[Target, ...]:
    reference, *targets = (
        part_of(find_table(public_tables, name, "inference"), 1000)
        for name in ("resnet18-imagenet", "yolov8n-coco", "lstm-wikitext")
    )
    return tuple(Target(table, (reference,)) for table in targets)


@pytest.fixture(scope="session")
def measured_left_out(public_tables: List[Profiles]) -> Tuple[Target, ...]:
    return left_out(public_tables, ("yolov8n-coco", "lstm-wikitext"), 300)


def shipped(name: str) -> List[Profiles]:
    return [table.complete() for table in tables_of(load_table(name))]


@pytest.fixture(scope="session")
def v100_targets() -> Tuple[Target, ...]:
    """Each network on the V100, with those of the A40 as references."""
    return tuple(make_target(table, shipped(A40)) for table in shipped(V100))


@pytest.fixture(scope="session")
def a40_targets() -> Tuple[Target, ...]:
    return tuple(make_target(table, shipped(V100)) for table in shipped(A40))


@pytest.fixture(scope="session")
def nano_targets() -> Tuple[Target, ...]:
    return tuple(make_target(table, ()) for table in shipped(NANO))


FIXTURES = dict(
    zip(
        COUNTS,
        (
            *("simulated_targets", "simulated_inference", "measured_targets", "measured_inference"),
            *("unknown_board", "simulated_left_out", "measured_left_out"),
            *("v100_targets", "a40_targets", "nano_targets"),
        ),
    )
)


def case(predictor: str, corpus: str, *others: Any, name: str = "") -> Any:
    """A parameter; the quick part of the tests takes no table of GPUs, one of a board's, and nothing slow."""
    exhaustive = predictor in SLOW or "measured" in corpus or corpus in (V100, A40)
    marks = [pytest.mark.exhaustive] if exhaustive else []
    return pytest.param(predictor, corpus, *others, marks=marks, id="-".join(filter(None, (predictor, corpus, name))))


CASES = [
    (predictor, corpus)
    for corpus in COUNTS
    for predictor in MODULES
    if (predictor == "physical-gp" or corpus not in OURS_ALONE) and (predictor in OF_SHIPPED or corpus not in SHIPPED)
]


class Trial(NamedTuple):
    """A predictor that was fitted to some rows of a target, and what it predicts of all."""

    target: Target
    count: int
    rows: np.ndarray
    predictor: Predictor
    prediction: Forecast


def fit_all(predictor: str, targets: Tuple[Target, ...], counts: Tuple[int, ...]) -> List[Trial]:
    """The trials of `run_plan`, with their predictors, in its order."""
    if MODULES[predictor].endswith("scikit_learn"):
        pytest.importorskip("sklearn")
    trials = []
    for target in targets:
        for count in counts:
            for repeat in range(REPEATS_OF_SLOW if predictor in SLOW else REPEATS):
                rows, fitted = target.rows(count, "random", repeat), target.make(predictor, repeat)
                with one_blas_thread(), alike_on_every_processor(predictor):
                    fitted.fit(target.profiles(rows).applied())
                trials.append(Trial(target, count, rows, fitted, fitted.predict(target.table)))
    return trials


Change = Callable[[Trial], Forecast]


def entries_from(
    predictor: str, trials: List[Trial], corpus: str, predict: Change = lambda trial: trial.prediction
) -> List[Dict[str, Any]]:
    """The entries of some trials, in which `predict` makes the predictions."""
    by_case: Dict[Tuple[str, int], List[Dict[str, float]]] = {}
    provenance = {trial.target.name: trial.target.table.provenance for trial in trials}
    for trial in trials:
        figures = trial.target.figures(predict(trial), trial.rows)
        by_case.setdefault((trial.target.name, trial.count), []).append(figures)
    results = [
        {
            "predictor": predictor,
            "target": target,
            "modes": count,
            "provenance": provenance[target],
            **{figure.name: [one[figure.name] for one in repeats] for figure in PREDICTORS.figures},
        }
        for (target, count), repeats in by_case.items()
    ]
    return entries_of(results, corpus)


def counts_of(predictor: str, corpus: str) -> Tuple[int, ...]:
    if corpus in SHIPPED and predictor == "ridge":
        return COUNTS[corpus][1:]  # with 5 its errors are too great to guard anything
    return COUNTS_OF_POWERTRAIN if predictor == "powertrain" else COUNTS[corpus]


Fitted = Callable[[str, str], List[Trial]]


@pytest.fixture(scope="module")
def fitted(request: pytest.FixtureRequest) -> Fitted:
    """The trials of a predictor on a corpus, fitted once: their predictions can be broken without fitting anew."""
    kept: Dict[Tuple[str, str], List[Trial]] = {}

    def trials_of(predictor: str, corpus: str) -> List[Trial]:
        if (predictor, corpus) not in kept:
            targets = request.getfixturevalue(FIXTURES[corpus])
            kept[predictor, corpus] = fit_all(predictor, targets, counts_of(predictor, corpus))
        return kept[predictor, corpus]

    return trials_of


def deviations(gate: Gate, entries: List[Dict[str, Any]], part: bool = False) -> List[str]:
    return gate("predictor", RECORDED, PREDICTORS, entries, part)


@pytest.mark.parametrize(("predictor", "corpus"), [case(*one) for one in CASES])
def test_predictor_errs_as_recorded(predictor, corpus, fitted: Fitted, gate: Gate):
    assert deviations(gate, entries_from(predictor, fitted(predictor, corpus), corpus)) == []


def test_the_gate_has_the_errors_of_an_evaluation(simulated_targets, fitted: Fitted):
    found = run_plan(TrialPlan(("ridge",), simulated_targets, COUNTS[SIMULATED], repeats=REPEATS))
    results = [
        {**result, **{one.name: found.trials[group][one.name].tolist() for one in PREDICTORS.figures}}
        for group, result in found.by_group.items()
    ]
    assert entries_of(results, SIMULATED) == entries_from("ridge", fitted("ridge", SIMULATED), SIMULATED)


def scaled(forecast: Forecast, time: float = 1.0, power: float = 1.0) -> Forecast:
    log_time, log_power = forecast.log_time + np.log(time), forecast.log_power + np.log(power)
    return dataclasses.replace(forecast, log_time=log_time, log_power=log_power)


def times_a_tenth_too_short(trial: Trial) -> Forecast:
    return scaled(trial.prediction, time=0.9)


def powers_a_twentieth_too_great(trial: Trial) -> Forecast:
    return scaled(trial.prediction, power=1.05)


def powers_a_twentieth_too_small(trial: Trial) -> Forecast:
    return scaled(trial.prediction, power=0.95)


def intervals_too_narrow(trial: Trial) -> Forecast:
    one = trial.prediction
    return dataclasses.replace(one, log_time_sd=0.3 * one.log_time_sd, log_power_sd=0.3 * one.log_power_sd)


def with_column(trial: Trial, place: int, change: Callable[[np.ndarray], np.ndarray]) -> Forecast:
    """What is predicted of modes one of whose settings is changed."""
    table = trial.target.table
    modes = table.modes.copy()
    modes[:, place] = change(modes[:, place])
    return trial.predictor.predict(dataclasses.replace(table, modes=modes))


def predictions_three_percent_too_great(trial: Trial) -> Forecast:
    return scaled(trial.prediction, time=1.03, power=1.03)


def batch_size_scrambled(trial: Trial) -> Forecast:
    return with_scrambled(trial, "batch_size")


def power_limit_scrambled(trial: Trial) -> Forecast:
    return with_scrambled(trial, "power_limit_mw")


def with_scrambled(trial: Trial, name: str) -> Forecast:
    table = trial.target.table
    scrambled = np.random.default_rng(0).permutation(getattr(table, name))
    return trial.predictor.predict(dataclasses.replace(table, **{name: scrambled}))


def gpu_clock_scrambled(trial: Trial) -> Forecast:
    return with_column(trial, 2, np.random.default_rng(0).permutation)


def cpu_clock_not_seen(trial: Trial) -> Forecast:
    return with_column(trial, 1, lambda cpu_khz: np.full_like(cpu_khz, cpu_khz.min()))


OF_PREDICTIONS = (
    times_a_tenth_too_short, powers_a_twentieth_too_great, intervals_too_narrow, gpu_clock_scrambled
)  # fmt: skip
OF_POWER_ALONE = (
    powers_a_twentieth_too_great, powers_a_twentieth_too_small, gpu_clock_scrambled, cpu_clock_not_seen
)  # fmt: skip


OF_GPUS = (
    *(times_a_tenth_too_short, predictions_three_percent_too_great, intervals_too_narrow),
    *(batch_size_scrambled, power_limit_scrambled),
)
OF_NANO = (predictions_three_percent_too_great, intervals_too_narrow, batch_size_scrambled, gpu_clock_scrambled)


def breakages_of(predictor: str, corpus: str) -> Tuple[Change, ...]:
    if corpus in SHIPPED:
        return OF_NANO if corpus == NANO else OF_GPUS
    return OF_POWER_ALONE if predictor == "npe" else OF_PREDICTIONS


@pytest.mark.parametrize(
    ("predictor", "corpus", "breakage"),
    [case(*one, breakage, name=breakage.__name__) for one in CASES for breakage in breakages_of(*one)],
)
def test_broken_predictions_fail_every_entry_of_the_gate(predictor, corpus, breakage, fitted: Fitted):
    trials = fitted(predictor, corpus)
    sound, broken = (entries_from(predictor, trials, corpus, *change) for change in ((), (breakage,)))
    assert blind_spots(sound, broken, PREDICTORS) == []


def halve_features(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It no longer sees the GPU and memory clocks."""
    learn, infer = kind._learn, kind._infer

    def blind(rows: Settings) -> Settings:
        modes = rows.modes.copy()
        modes[:, 2:] = 1_000_000
        return dataclasses.replace(rows, modes=modes)

    monkeypatch.setattr(kind, "_learn", lambda self, rows, *measured: learn(self, blind(rows), *measured))
    monkeypatch.setattr(kind, "_infer", lambda self, rows: infer(self, blind(rows)))


def shuffle_targets(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It learns the time and power of other modes."""
    learn = kind._learn

    def confused(self: Predictor, rows: Settings, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        order = np.random.default_rng(0).permutation(len(time_ms))
        learn(self, rows, time_ms[order], power_mw[order])

    monkeypatch.setattr(kind, "_learn", confused)


def shift_columns(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It takes the CPU clock for the cores, the GPU clock for the CPU's and so on, when it predicts."""
    infer = kind._infer

    def shifted(self: Predictor, rows: Settings) -> Forecast:
        return infer(self, dataclasses.replace(rows, modes=np.roll(rows.modes, -1, axis=1)))

    monkeypatch.setattr(kind, "_infer", shifted)


def turn_the_gradient(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It climbs where it should descend."""
    expand, backward = posterior.Climb._expand, networks._backward

    def climbing(search: posterior.Climb) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        gradient, curvature, jacobian = expand(search)
        return -gradient, curvature, jacobian

    def back(layers: Any, gradient: Any, passed: Any, alive: Any, by_output: np.ndarray, frozen: int) -> None:
        backward(layers, gradient, passed, alive, -by_output, frozen)

    monkeypatch.setattr(posterior.Climb, "_expand", climbing)
    monkeypatch.setattr(networks, "_backward", back)


def lose_the_reference(monkeypatch: pytest.MonkeyPatch, kind: Type[Predictor]) -> None:
    """It starts from anywhere; of the prior nothing is left but what is known of any board."""
    learn = powertrain.learn_reference

    def untrained(table: Profiles, seed: int) -> networks.NeuralNetwork:
        known = learn(table, seed)
        forgotten = copy.copy(known)
        forgotten.networks_ = networks.fresh_networks(2, known.networks_.sizes, np.random.default_rng(0))
        return forgotten

    monkeypatch.setattr(powertrain, "learn_reference", untrained)
    monkeypatch.setattr(physical_gp, "priors_for", lambda references, *of: priors_for((), *of))


@pytest.fixture
def forgotten_references() -> Iterator[None]:
    """A reference is learned by what is broken, and not kept for later tests."""
    forget_references()
    yield
    forget_references()


OF_ANY = (halve_features, shuffle_targets, shift_columns)
BREAKAGES = [
    *((name, breakage) for name in ("physical-gp", "ridge") for breakage in OF_ANY),
    *(("physical-gp", turn_the_gradient), ("nn", turn_the_gradient), ("powertrain", lose_the_reference)),
]


@pytest.mark.parametrize(
    ("predictor", "corpus", "breakage"), [case(name, SIMULATED, one, name=one.__name__) for name, one in BREAKAGES]
)
def test_a_predictor_that_learns_wrongly_fails_the_gate(
    predictor, corpus, breakage, simulated_targets, recording, gate: Gate, forgotten_references, monkeypatch
):
    if recording:
        pytest.skip("a broken predictor is not to be recorded")
    breakage(monkeypatch, predictor_class(predictor))
    broken = entries_from(
        predictor, fit_all(predictor, simulated_targets[:1], counts_of(predictor, corpus)[:1]), corpus
    )
    assert deviations(gate, [unlike(entry) for entry in broken], part=True)


def test_without_a_reference_an_unknown_board_fails_the_gate(
    unknown_board, recording, gate: Gate, forgotten_references, monkeypatch
):
    if recording:
        pytest.skip("a broken predictor is not to be recorded")
    lose_the_reference(monkeypatch, predictor_class("physical-gp"))
    broken = entries_from("physical-gp", fit_all("physical-gp", unknown_board, COUNTS[UNKNOWN]), UNKNOWN)
    assert deviations(gate, [unlike(entry) for entry in broken], part=True)
