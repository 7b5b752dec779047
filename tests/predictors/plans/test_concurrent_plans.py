"""Plans for training with inference in between: held against trying every plan."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.core.cases import WAYS
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.interleaving import expect
from predictors.choose.request import Job, batch_sizes_of
from predictors.forecast import Forecast
from predictors.plans.choice import ConcurrentGoal, _weigh, choose_concurrent
from predictors.plans.concurrent import Attempt, best_way, serving_job
from predictors.profiles import Profiles
from predictors.settings import Settings
from predictors.strategies.protocol import TableProfiler
from tests.predictors.strategies.strategy_examples import NearlyRight, beside, example_table

TRAINING = example_table()
INFERENCE = example_table(batch_sizes=(1, 4, 16), task="inference")


class EitherTable(NearlyRight):
    """Nearly right about whichever of the two tables it was asked for."""

    def _infer(self, rows):
        self.table = TRAINING if len(rows.modes) == len(TRAINING) else INFERENCE
        return super()._infer(rows)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ("lenet-mnist", [1, 4, 16]),
        (Job("lenet-mnist"), [1, 4, 16]),
        (Job("lenet-mnist", [16]), [16]),
        (Job("lenet-mnist", 8), [8]),
    ],
)
def test_inference_has_several_batch_sizes_unless_its_job_has_its_own(given, sizes):
    assert batch_sizes_of(serving_job(given)) == sizes


def spread(history, count):
    return np.linspace(0, len(history.profiler.candidates.modes) - 1, count).astype(int)


def chosen(goal, profiles=30, log_sd=0.03, **options):
    histories = beside(TableProfiler(TRAINING), TableProfiler(INFERENCE), profiles)
    return choose_concurrent(histories, goal, lambda: EitherTable(log_sd=log_sd), spread, **options)


def best_shared_mode(goal):
    """The greatest training throughput over every mode and batch size that keeps the limits."""
    repeated = np.repeat(np.arange(len(TRAINING)), 3)
    every = expect(
        TRAINING.time_ms[repeated],
        TRAINING.power_mw[repeated],
        INFERENCE.time_ms,
        INFERENCE.power_mw,
        INFERENCE.batch_size,
        goal.arrivals_per_s,
    )
    kept = (every.latency_ms <= goal.latency_ms) & (every.load < 1)
    if goal.power_mw is not None:
        kept &= every.power_mw <= goal.power_mw
    return every.training_per_s[kept].max() if kept.any() else None


GOALS = [
    ConcurrentGoal(5.0, 1000.0),
    ConcurrentGoal(10.0, 1500.0, 30_000.0),
    ConcurrentGoal(2.0, 600.0, 25_000.0),
]


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.arrivals_per_s:g}-per-s")
def test_the_plan_is_nearly_the_best_there_is_and_keeps_the_limits(goal):
    found = chosen(goal)
    assert found.feasible
    assert found.expected.latency_ms <= goal.latency_ms
    assert goal.power_mw is None or found.expected.power_mw <= goal.power_mw
    assert found.expected.training_per_s >= 0.95 * best_shared_mode(goal)
    assert found.training_mode == found.inference_mode
    assert found.profiles <= 30


def test_a_settled_plan_rests_on_profiles_of_its_own_modes():
    found = chosen(GOALS[0])
    train_ms, infer_ms = TRAINING.time_ms[found.training], INFERENCE.time_ms[found.inference]
    assert found.expected.latency_ms == pytest.approx(
        1e3 * (found.inference_batch - 1) / GOALS[0].arrivals_per_s + train_ms + infer_ms
    )


def test_a_mode_that_leaves_next_to_no_time_to_train_promises_little_however_uncertain_it_is():
    """It has 1 % of the time, or, where inference is a tenth faster than expected, 11 %."""
    settings, flat = Settings.of(np.ones((3, 4)), 1), np.zeros(3)
    training = Forecast(
        settings, flat + np.log(100.0), flat + 0.05, flat + 9, flat + 0.1, measured=np.ones(3, dtype=bool)
    )
    inference = dataclasses.replace(training, log_time=np.log([30.0, 99.0, 29.0]), log_time_sd=flat + 0.1)
    places = np.arange(3)
    weighed = _weigh(training, inference, places, places, places > 3, ConcurrentGoal(10.0, 1e4))
    rise = weighed.expected_rise(weighed.trained_per_s[0])
    assert rise[1] < 0.001 < rise[2]


def test_a_latency_that_no_mode_reaches_is_marked_infeasible():
    assert not chosen(ConcurrentGoal(5.0, 0.5)).feasible


def promised(choice):
    """Trained samples per second; 0 where the limits are not kept."""
    return float(choice.expected.training_per_s) * choice.training_batch if choice.feasible else 0.0


def tables(training, inference):
    """Small tables from lists of (mode, batch size, time in ms, power in mW)."""
    return [
        Profiles.at(
            Settings.of([(1 + mode, 1000, 1000, 1000) for mode, *_ in rows], [size for _, size, *_ in rows], task),
            np.array([time for *_, time, _ in rows]),
            np.array([power for *_, power in rows]),
        )
        for task, rows in (("training", training), ("inference", inference))
    ]


def exact_plan(rows, goal):
    training, inference = tables(*rows)
    return choose_concurrent(
        beside(TableProfiler(training), TableProfiler(inference)), goal, NearlyRight, spread, search="brute-force"
    )


def every_mode_with(sizes):
    """Figures of each of four modes with each batch size."""
    places = [(mode, size) for mode in range(4) for size in sizes]
    figures = st.tuples(st.floats(5, 300), st.floats(5e3, 5e4))
    return st.lists(figures, min_size=len(places), max_size=len(places)).map(
        lambda drawn: [(*place, *figure) for place, figure in zip(places, drawn)]
    )


LIMITS = st.builds(
    ConcurrentGoal,
    arrivals_per_s=st.floats(1, 30),
    latency_ms=st.floats(50, 3000),
    power_mw=st.none() | st.floats(5e3, 5e4),
    switching_ms=st.none() | st.floats(0.1, 200),
)
MORE = {  # what may be allowed further: a factor from 1 up
    "latency_ms": lambda goal, factor: dataclasses.replace(goal, latency_ms=goal.latency_ms * factor),
    "power_mw": lambda goal, factor: dataclasses.replace(goal, power_mw=goal.power_mw and goal.power_mw * factor),
    "any power": lambda goal, factor: dataclasses.replace(goal, power_mw=None),
    "a mode for each": lambda goal, factor: dataclasses.replace(goal, switching_ms=goal.switching_ms or 20 * factor),
    "a cheaper change": lambda goal, factor: dataclasses.replace(
        goal, switching_ms=goal.switching_ms and goal.switching_ms / factor
    ),
}


@pytest.mark.exhaustive
@given(every_mode_with((8, 16)), every_mode_with((1, 4)), LIMITS, st.sampled_from(sorted(MORE)), st.floats(1, 5))
def test_a_looser_limit_or_a_mode_for_each_never_makes_the_plan_worse(training, inference, goal, more, factor):
    rows = training, inference
    assert promised(exact_plan(rows, MORE[more](goal, factor))) >= promised(exact_plan(rows, goal)) * (1 - 1e-9)


@pytest.mark.exhaustive
@given(every_mode_with((8, 16)), every_mode_with((1, 4)), LIMITS, st.sampled_from((8, 16)), st.sampled_from((1, 4)))
def test_more_batch_sizes_never_make_the_plan_worse(training, inference, goal, training_size, inference_size):
    few = [row for row in training if row[1] == training_size], [row for row in inference if row[1] == inference_size]
    assert promised(exact_plan((training, inference), goal)) >= promised(exact_plan(few, goal)) * (1 - 1e-9)


AT_THE_LIMIT = [(mode, 1, 5.0, 5000.0) for mode in range(4)] + [(mode, 4, 5.0, 5000.0) for mode in range(4)]


@given(every_mode_with((16,)), every_mode_with((1, 4)), LIMITS)
@example([(mode, 16, 5.0, 5000.0) for mode in range(4)], AT_THE_LIMIT, ConcurrentGoal(1.0, 50.0, 5000.0))
def test_no_plan_that_keeps_the_limits_with_one_mode_for_both_is_better_than_the_chosen_one(training, inference, goal):
    times = {(mode, size): figures for mode, size, *figures in training}
    plans = [
        expect(*map(np.array, times[mode, 16]), *map(np.array, (time, power, size)), goal.arrivals_per_s)
        for mode, size, time, power in inference
    ]
    best = max(
        16 * float(plan.training_per_s)
        * (plan.latency_ms <= goal.latency_ms and plan.load <= 1 and plan.power_mw <= (goal.power_mw or np.inf))
        for plan in plans
    )  # fmt: skip
    assert promised(exact_plan((training, inference), goal)) >= best * (1 - 1e-9)


@pytest.mark.parametrize(
    "switching_ms",
    [5.0, 0.0, *(pytest.param(change_ms, marks=pytest.mark.exhaustive) for change_ms in (1e-6, 50.0, 500.0))],
)
@pytest.mark.parametrize("goal", GOALS, ids=range(len(GOALS)))
def test_a_mode_for_each_is_never_worse_after_as_many_profiles(goal, switching_ms):
    own = dataclasses.replace(goal, switching_ms=switching_ms)
    assert promised(chosen(own)) >= promised(chosen(goal))


def test_a_change_costs_nothing_where_both_have_the_same_mode():
    rows = [(0, 16, 100.0, 2e4)], [(0, 1, 10.0, 1e4)]
    assert promised(exact_plan(rows, ConcurrentGoal(10.0, 1e3, switching_ms=40.0))) == pytest.approx(16 * 0.9 / 0.1)


def test_a_dear_change_of_mode_makes_modes_of_their_own_worse():
    cheap = chosen(ConcurrentGoal(5.0, 1500.0, 25_000.0, switching_ms=1.0), log_sd=1e-6)
    dear = chosen(ConcurrentGoal(5.0, 1500.0, 25_000.0, switching_ms=60.0), log_sd=1e-6)
    assert cheap.training_mode != cheap.inference_mode
    assert dear.expected.training_per_s < cheap.expected.training_per_s


def test_of_several_training_batches_the_one_that_trains_the_most_samples_is_chosen(monkeypatch):
    table = example_table(batch_sizes=(4, 32))
    monkeypatch.setitem(globals(), "TRAINING", table)
    found = chosen(ConcurrentGoal(5.0, 2000.0), search="brute-force")
    assert found.training_batch == 32  # a minibatch of 4 takes less time, a sample of it more
    assert found.training_mode == found.inference_mode
    tight = chosen(ConcurrentGoal(5.0, float(table.time_ms[table.batch_size == 32].min()) * 0.9), search="brute-force")
    assert tight.training_batch == 4
    with pytest.raises(InvalidValueError, match="several training batches"):
        chosen(GOALS[0], search="mdbs")


def test_few_modes_of_training_leave_the_profiles_to_inference():
    training, inference = TRAINING.take(slice(0, 4)), INFERENCE.take(slice(0, 12))
    histories = beside(TableProfiler(training), TableProfiler(inference), 30)
    choose_concurrent(histories, GOALS[0], lambda: EitherTable(log_sd=0.03), spread)
    assert [len(history.taken) for history in histories] == [4, 12]  # 16 profiles are within the limit


def test_where_both_overlap_nothing_waits_and_both_take_as_long_as_was_measured():
    ones = (np.array(value) for value in (40.0, 10_000.0, 10.0, 20_000.0, 4))
    found = expect(*ones, 20.0, slowdowns=(2.0, 3.0))
    assert float(found.training_per_s) == pytest.approx(1000 / 80)
    assert float(found.latency_ms) == pytest.approx(150.0 + 30.0)
    assert float(found.load) == pytest.approx(30.0 / 200.0)
    late = ConcurrentGoal(5.0, 400.0, slowdowns=(1.0, 1.0))
    assert (
        chosen(late).expected.training_per_s > chosen(dataclasses.replace(late, slowdowns=None)).expected.training_per_s
    )


class WithoutPower(TableProfiler):
    """A device that measures no power."""

    def profile(self, index):
        return super().profile(index)._replace(power_mw=float("nan"))


def test_without_power_a_plan_that_does_not_limit_it_is_found_all_the_same():
    histories = beside(WithoutPower(TRAINING), WithoutPower(INFERENCE))
    found = choose_concurrent(histories, GOALS[0], lambda: EitherTable(log_sd=0.03), spread)
    assert found.feasible
    assert found.expected.training_per_s >= 0.95 * best_shared_mode(GOALS[0])


def test_profiles_of_all_plans_together_are_never_exceeded_and_counted_as_they_come():
    lines = []
    histories = beside(TableProfiler(TRAINING), TableProfiler(INFERENCE), 9, lines.append)
    for goal in (*GOALS, ConcurrentGoal(5.0, 0.5)):
        found = choose_concurrent(histories, goal, lambda: EitherTable(log_sd=0.3), spread)
        assert found.profiles <= 9
    taken = sum(len(history.taken) for history in histories)
    assert [line.partition(":")[0] for line in lines] == [f"profile {count + 1} of 9" for count in range(taken)]


def test_a_single_profile_does_not_suffice():
    with pytest.raises(InvalidValueError, match="not enough"):
        chosen(GOALS[0], profiles=1)


@pytest.mark.parametrize("name", ["arrivals_per_s", "latency_ms", "power_mw", "switching_ms"])
def test_limits_that_nothing_can_meet_are_refused(name):
    with pytest.raises(InvalidValueError, match=name):
        ConcurrentGoal(**{"arrivals_per_s": 1.0, "latency_ms": 1.0, name: -1.0 if name == "switching_ms" else 0.0})


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.arrivals_per_s:g}-per-s")
def test_halving_keeps_the_limits_and_profiles_both_kinds_of_work_at_each_probe(goal):
    found = chosen(goal, search="mdbs")
    assert found.feasible
    assert found.expected.latency_ms <= goal.latency_ms
    assert found.training_mode == found.inference_mode
    assert found.expected.training_per_s >= 0.6 * best_shared_mode(goal)
    assert found.profiles <= 30


def test_halving_says_when_no_plan_keeps_the_limits():
    found = chosen(ConcurrentGoal(5.0, 0.5), profiles=12, search="mdbs")
    assert not found.feasible
    assert found.profiles <= 12


def test_brute_force_finds_the_best_plan():
    found = chosen(GOALS[1], search="brute-force")
    assert found.profiles == len(TRAINING) + len(INFERENCE)
    assert found.expected.training_per_s == pytest.approx(best_shared_mode(GOALS[1]))


def test_a_search_that_does_not_exist_is_refused():
    with pytest.raises(UnknownNameError, match="closed-loop, mdbs, brute-force"):
        chosen(GOALS[0], search="hope")


OUTCOMES = st.dictionaries(
    st.sampled_from(WAYS), st.tuples(st.floats(1, 100), st.floats(100, 2000), st.floats(5e3, 5e4)), min_size=1
)


@given(OUTCOMES, st.sampled_from(WAYS), st.none() | st.floats(5e3, 5e4))
def test_more_ways_never_make_the_outcome_worse(outcomes, only, power_mw):
    goal = ConcurrentGoal(5.0, 1000.0, power_mw)
    few = {only: outcomes.get(only, (1.0, 2000.0, 5e4))}
    assert outcome_of_best(goal, {**outcomes, **few}) >= outcome_of_best(goal, few)


def outcome_of_best(goal, outcomes):
    names = "training_samples_per_s", "latency_p95_ms", "power_mw"
    attempts = {
        way: [Attempt(None, SimpleNamespace(aggregates=dict(zip(names, figures))))] for way, figures in outcomes.items()
    }
    trained, latency_ms, power_mw = outcomes[best_way(goal, attempts)]
    exceeded = max(latency_ms / goal.latency_ms, power_mw / goal.power_mw if goal.power_mw else 0.0, 1.0)
    return -exceeded, trained
