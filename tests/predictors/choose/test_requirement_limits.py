"""`recommend` with requirements: the right mode where all are known, what is no limit, and the prediction of tails."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, NamedTuple

import numpy as np
import pytest

import jetwatt
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import load_configuration
from harness.core.errors import HarnessError
from harness.core.power_modes import NamedMode
from harness.devices.registry import open_device
from harness.judge.requirements import requirement_from
from harness.simulation import timeline
from harness.stats.estimates import Interval
from predictors.__main__ import main
from predictors.choose import requirement_limits as module
from predictors.choose.on_device import profiler_of
from predictors.choose.requirement_limits import Observation, figure_of, predicted_ratio
from predictors.strategies.protocol import MeasuredMode
from tests.messages import says

BOARD, WORKLOAD = "sim:raspberry-pi-5", "lenet-mnist"  # 40 modes

ALL_MODES = jetwatt.Search("brute-force", profiles=40, check_s=90)

JITTER = 0.25
"""Standard deviation of the logarithm of the times of minibatches: the p99 is 1.8 times the median."""


class TrueFigures(NamedTuple):
    """Of a mode, over several long runs."""

    p99_ms: float
    power_mw: float
    energy_mws: float  # of a sample


@pytest.fixture(scope="module", autouse=True)
def long_tails():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "COMPUTE_JITTER", JITTER)
        patch.setattr(timeline, "OVERHEAD_JITTER", JITTER)
        yield


@pytest.fixture(scope="module")
def walk(long_tails) -> Dict[str, TrueFigures]:
    """Every mode of the board."""
    device = open_device(BOARD, load_configuration(Path("none.toml")), Path("/"))
    true_figures = {}
    with device.session():
        for name, mode in device.power_modes("all", WORKLOAD):
            runs = []
            for seed in (101, 102):
                settings = CaseSettings(minibatches=1000, seed=seed)
                profile = device.profile(Case(BOARD, WORKLOAD, NamedMode(name, mode), 4, "sd", 16, settings=settings))
                times_ms = [minibatch.e2e_ms for minibatch in profile.counted]
                aggregates = profile.aggregates
                energy_mws = aggregates["energy_per_sample_mws"]
                runs.append((np.quantile(times_ms, 0.99), aggregates["power_mw"], energy_mws))
            true_figures[name] = TrueFigures(*np.mean(runs, axis=0).tolist())
    return true_figures


@pytest.fixture
def recommend(tmp_path):
    def with_requirements(text: str, workload: Any = WORKLOAD, device: str = BOARD, **options: Any) -> Any:
        path = tmp_path / "requirements.toml"
        path.write_text(text)
        return jetwatt.recommend(device, workload=workload, require=path, **options)

    return with_requirements


def required_of(answer: Any) -> Any:
    return profiler_of(answer.recommendations[0][0].history).required


def statuses_of(answer: Any) -> Dict[str, str]:
    [recommendation] = answer.recommendations[0]
    return {each.figure: each.status for each in required_of(answer).verdicts[recommendation.choice.index]}


@pytest.mark.parametrize(
    ("p99_ms", "power_w", "strategy"),
    [
        pytest.param(58, 3.9, "brute-force", id="of-all-modes"),
        pytest.param(58, 3.9, "closed-loop", id="both-bind", marks=pytest.mark.exhaustive),
        pytest.param(46, 6.0, "closed-loop", id="a-fast-mode", marks=pytest.mark.exhaustive),
        pytest.param(75, 3.1, "closed-loop", id="a-frugal-mode", marks=pytest.mark.exhaustive),
        pytest.param(46, 6.0, "one-shot", id="by-prediction", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.exhaustive
def test_the_mode_keeps_all_requirements_at_the_least_energy(walk, recommend, p99_ms, power_w, strategy):
    """A mode is right if its true figures keep the limits, and none that keeps them by 5 % needs 5 % less energy."""
    search = jetwatt.Search(strategy, profiles=40 if strategy == "brute-force" else 15, check_s=90)
    answer = recommend(f"[[require]]\np99_ms = {p99_ms}\npower_w = {power_w}\n", search=search)
    chosen = walk[answer.power_mode.name]
    assert answer.keeps_limits
    assert "FAIL" not in statuses_of(answer).values()
    assert chosen.p99_ms <= 1.02 * p99_ms
    assert chosen.power_mw <= 1.02 * power_w * 1e3
    surely_kept = [
        figures
        for figures in walk.values()
        if 1.05 * figures.p99_ms <= p99_ms and 1.05 * figures.power_mw <= power_w * 1e3
    ]
    assert surely_kept
    assert chosen.energy_mws <= 1.05 * min(figures.energy_mws for figures in surely_kept)


@pytest.mark.exhaustive
def test_a_limit_on_the_median_would_choose_a_mode_whose_tail_is_too_long(walk, recommend):
    by_median = jetwatt.recommend(
        BOARD, workload=WORKLOAD, time_ms=46, goal="energy", search=jetwatt.Search("brute-force", profiles=40)
    )
    assert walk[by_median.power_mode.name].p99_ms > 46
    answer = recommend("[[require]]\np99_ms = 46\n", search=ALL_MODES)
    assert len(required_of(answer).verdicts) == 1  # no mode failed its check: the tail was predicted
    [ratio] = required_of(answer).ratios().values()
    assert ratio.low < math.exp(2.326 * JITTER) < ratio.high


@pytest.mark.exhaustive
def test_a_mode_that_fails_its_check_is_replaced_by_another(monkeypatch, recommend):
    monkeypatch.setattr(module, "predicted_ratio", lambda figure, profiles: Interval(1.0, 1.0, 1.0))
    answer = recommend("[[require]]\np99_ms = 46\n", search=ALL_MODES)
    checked = required_of(answer).verdicts
    first, *others = ([verdict.status for verdict in verdicts] for verdicts in checked.values())
    assert first == ["FAIL"]
    assert others[-1] != ["FAIL"]
    assert answer.keeps_limits


@pytest.mark.exhaustive
def test_a_requirement_that_no_mode_keeps_is_not_kept_by_the_nearest(recommend):
    answer = recommend("[[require]]\np99_ms = 20\n", search=ALL_MODES)
    assert not answer.keeps_limits
    assert statuses_of(answer) == {"p99_ms": "FAIL"}
    with pytest.raises(HarnessError, match="no mode meets the goal"):
        answer.refuse_missed()


def test_too_short_a_check_says_how_many_minibatches_are_missing(recommend):
    answer = recommend("[[require]]\np99_ms = 60\n", search=jetwatt.Search("random", check_s=5))
    [verdict] = required_of(answer).verdicts_on([answer.recommendations[0][0].choice.index])
    assert verdict.status == "INCONCLUSIVE"
    assert verdict.missing > 100
    assert verdict.minibatches >= 40


@pytest.mark.parametrize(
    ("keys", "sign"),
    [("samples_per_s = 560", 1), ("energy_per_sample_mj = 7.2", -1), ("peak_power_w = 4.2", -1), ("p50_ms = 29", -1)],
)
def test_every_other_figure_is_a_limit_too(recommend, keys, sign):
    answer = recommend(f"[[require]]\n{keys}\n", goal="energy", search=ALL_MODES)
    [verdict] = required_of(answer).verdicts_on([answer.recommendations[0][0].choice.index])
    assert answer.keeps_limits
    assert verdict.status in ("PASS", "INCONCLUSIVE")
    assert sign * verdict.value >= sign * verdict.limit


@pytest.mark.exhaustive
def test_what_is_no_limit_and_whom_nothing_meets_is_said(recommend):
    text = (
        "[[require]]\ntemperature_c = 85\npower_w = 6\n"
        '[[require]]\nworkload = "resnet*"\np99_ms = 20\n'
        '[[require]]\npower_mode = "1c-*"\nsamples_per_s = 1000\n'
    )
    answer = recommend(text, search=ALL_MODES)
    shown = repr(answer)
    assert says(shown, "temperature_c of require[0]", "not predicted")
    assert "require[1] (workload resnet*): NO CASE" in shown
    assert says(shown, "require[2] (power_mode 1c-*)", "some of the modes")
    [goal] = (recommendation.goal for recommendation in answer.recommendations[0])
    assert goal.limits == {"power_mw": 6000}
    plain = answer.plain()["requirements"]
    assert json.loads(json.dumps(plain)) == plain
    assert {verdict["figure"]: verdict["status"] for verdict in plain["verdicts"]} == {
        "temperature_c": "PASS", "power_w": "PASS", "": "NO CASE"
    }  # fmt: skip


@pytest.mark.exhaustive
def test_each_workload_keeps_its_own(recommend):
    text = f'[[require]]\nworkload = "{WORKLOAD}"\npower_w = 4\n[[require]]\nworkload = "mobilenet*"\npower_w = 5\n'
    answer = recommend(text, workload=[WORKLOAD, "mobilenetv3-gld23k"], search=jetwatt.Search(profiles=4))
    limits = [recommendations[0].goal.limits for recommendations in answer.recommendations]
    assert limits == [{"power_mw": 4000}, {"power_mw": 5000}]


@pytest.mark.exhaustive
def test_memory_is_limited_before_a_batch_size_is_started(recommend):
    job = jetwatt.Job("mobilenetv3-gld23k", batch_size=[4, 64])
    answer = recommend("[[require]]\nmemory_mib = 3000\n", job, "sim:orin-nano", search=jetwatt.Search(profiles=6))
    memory = profiler_of(answer.recommendations[0][0].history).memory
    assert memory is not None
    assert memory.limit_bytes == 3000 * 2**20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "pool:here"}, "require= does not apply to a pool"),
        ({"workload": jetwatt.Command("true")}, "require= has no effect in a command"),
        ({"budget": jetwatt.Budget(require="r.toml")}, "require= was given twice"),
    ],
)
def test_where_requirements_do_not_apply_they_are_refused(recommend, options, message):
    with pytest.raises(HarnessError, match=message):
        recommend("[[require]]\npower_w = 6\n", **options)


@pytest.mark.exhaustive
def test_the_command_writes_the_verdicts(tmp_path, capsys):
    (tmp_path / "r.toml").write_text("[[require]]\np99_ms = 60\n")
    files = ["--require", str(tmp_path / "r.toml"), "--json", str(tmp_path / "out.json")]
    options = ["--profiles", "6", "--check-time", "90", "--results", str(tmp_path / "r.sqlite")]
    assert main(["recommend", "--device", BOARD, "--workload", WORKLOAD, *files, *options]) == 0
    assert "PASS: 1" in capsys.readouterr().out
    answer = json.loads((tmp_path / "out.json").read_text())
    assert answer["requirements"]["counts"] == {"PASS": 1}
    assert answer["goal"]["minimise"] == "energy_mws"


def test_the_predicted_ratio_covers_that_of_a_mode_that_was_not_profiled():
    """The standard deviation of minibatches differs between modes, so the true ratio of another mode is known."""
    random = np.random.default_rng(0)
    [limit] = requirement_from({"p95_ms": 20}, "mark").requirement.limits
    figure = figure_of(limit)
    covered = []
    for _ in range(300):
        spreads = random.uniform(0.1, 0.2, size=9)
        profiles = [
            Observation(10 * np.exp(spread * random.standard_normal(200)), {}, MeasuredMode(10.0, 5e3, 1.0), 16)
            for spread in spreads[:-1]
        ]
        ratio = predicted_ratio(figure, profiles)
        covered.append(ratio.low <= math.exp(1.645 * spreads[-1]) <= ratio.high)
    assert 0.75 <= np.mean(covered) <= 0.95


def test_without_a_profile_there_is_no_ratio_and_of_one_no_interval():
    [limit] = requirement_from({"p95_ms": 20}, "mark").requirement.limits
    profile = Observation(np.linspace(10, 20, 101), {}, MeasuredMode(10.0, 5e3, 1.0), 16)
    assert predicted_ratio(figure_of(limit), []) is None
    assert predicted_ratio(figure_of(limit), [profile]) == pytest.approx((1.95, 1.95, 1.95))
    assert predicted_ratio(figure_of(limit), [profile._replace(times_ms=np.array([]))]) is None
