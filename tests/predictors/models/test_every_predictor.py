"""Every predictor of the registry keeps the protocol: odd input, clones, seeds, files."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import InvalidValueError, NotFittedError
from predictors.contest.trials import TrialPlan, run_plan
from predictors.evaluation import Target
from predictors.models.persistence import load_model, save_model
from predictors.models.registry import MODULES, make_predictor, parameters_of, predictor_class
from tests.predictors.plain_predictors import SPACE, made_table

PROJECT = Path(__file__).resolve().parents[3]
BOARD = "xavier-agx"  # of which the prior knows nothing: these tables follow power laws
TABLE = made_table(noise=0.02, device=BOARD)
REFERENCE = made_table("resnet18-imagenet", noise=0.02, seed=1, device=BOARD)
LEARNED = np.arange(0, 54, 3)
SMALL = {"epochs": 5, "trees": 9}  # of those that have them


SLOW = ("mlp", "random-forest")  # what they share with the other estimators of scikit-learn fails there first


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.exhaustive] * (name in SLOW)) for name in MODULES])
def predictor(request):
    if MODULES[request.param].endswith("scikit_learn"):
        pytest.importorskip("sklearn")
    kind = predictor_class(request.param)
    small = {name: value for name, value in SMALL.items() if name in parameters_of(kind)}
    return make_predictor(kind, references=(REFERENCE,), board=BOARD, seed=0, **small)


def fit(predictor, rows=LEARNED, **changes):
    figures = {"time_ms": TABLE.time_ms[rows], "power_mw": TABLE.power_mw[rows], **changes}
    return predictor.fit(TABLE.modes[rows], **figures)


def figures_of(prediction):
    return [prediction.time_ms, prediction.power_mw, prediction.log_time_sd, prediction.log_power_sd]


def test_predictions_are_finite_positive_and_one_for_each_mode(predictor):
    prediction = fit(predictor).predict(TABLE.modes)
    for figure in (prediction.time_ms, prediction.power_mw):
        assert figure.shape == (54,)
        assert np.isnan(figure).all() or (np.isfinite(figure) & (figure > 0)).all()
    assert (prediction.power_mw > 0).all()
    low, high = prediction.interval("power_mw", 0.8)
    assert np.isnan(low).all() or ((low <= prediction.power_mw) & (prediction.power_mw <= high)).all()


def test_the_same_seed_and_rows_give_the_same_predictions_and_numpy_s_own_generator_is_left_alone(predictor):
    again, own = predictor.clone(), np.random.RandomState(3)
    np.random.seed(3)
    first, second = fit(predictor).predict(TABLE.modes), fit(again).predict(TABLE.modes)
    for one, other in zip(figures_of(first), figures_of(second)):
        assert np.array_equal(one, other, equal_nan=True)
    assert np.random.random() == own.random_sample()


def test_a_mode_outside_the_space_is_refused(predictor):
    outside = [[2, 499_200, 111_000, 204_000]]
    if predictor.name == "npe":  # takes nothing from profiles, and has a formula for the power of any mode
        inside = [[2, 499_200, 114_750, 204_000]]
        assert predictor.predict(outside).power_mw < predictor.predict(inside).power_mw
        return
    with pytest.raises(InvalidValueError, match="gpu_khz=111000"):
        predictor.set_params(space=SPACE).fit(outside, [1.0], [1.0])


def test_a_clone_of_a_fitted_predictor_has_learned_nothing(predictor):
    if predictor.is_fitted:
        pytest.skip(f"{predictor.name} needs to learn nothing")
    clone = fit(predictor).clone()
    assert not clone.is_fitted
    assert {name: value for name, value in clone.get_params().items() if name != "references"} == {
        name: value for name, value in predictor.get_params().items() if name != "references"
    }
    with pytest.raises(NotFittedError):
        clone.predict(TABLE.modes)
    with pytest.raises(NotFittedError):
        clone.draw(TABLE.modes, 2, 0)


def test_a_saved_predictor_predicts_the_same_to_the_bit(predictor, tmp_path):
    before = fit(predictor).predict(TABLE.modes)
    save_model(tmp_path / "model", predictor, {})
    after = load_model(tmp_path / "model").predictor.predict(TABLE.modes)
    for one, other in zip(figures_of(before), figures_of(after)):
        assert one.tobytes() == other.tobytes()
    assert before.freedom == after.freedom


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_modes_are_refused_with_how_many_it_takes_or_learned(predictor, count):
    rows = np.array([0, 25, 40, 53])[:count]
    if count < predictor.least_modes:
        with pytest.raises(InvalidValueError, match=f"at least {predictor.least_modes}"):
            fit(predictor, rows)
    else:
        assert np.isfinite(fit(predictor, rows).predict(TABLE.modes).power_mw).all()


@pytest.mark.parametrize("dimension", range(4))
def test_a_setting_that_never_changes_is_learned_around(predictor, dimension):
    rows = np.flatnonzero(TABLE.modes[:, dimension] == TABLE.modes[0, dimension])
    prediction = fit(predictor, rows).predict(TABLE.modes)
    assert np.isfinite(prediction.power_mw).all()
    assert np.isfinite(prediction.time_ms).all() or np.isnan(prediction.time_ms).all()


def test_a_figure_that_is_missing_is_refused(predictor):
    with pytest.raises(InvalidValueError, match="power_mw"):
        fit(predictor, power_mw=np.where(LEARNED == 6, np.nan, TABLE.power_mw[LEARNED]))


def test_without_power_the_time_is_learned_alone(predictor, tmp_path):
    measured = dataclasses.replace(TABLE, power_mw=np.full(54, np.nan))
    both = fit(predictor.clone()).predict(TABLE.modes)
    target = Target(measured, (REFERENCE,), params=SMALL)
    result = run_plan(TrialPlan((predictor.name,), (target,), (18,), repeats=2)).results[0]
    assert result["power_mape_median"] is result["coverage"]["power_80"] is result["energy_mape_median"] is None
    assert (result["time_mape_median"] is None) == (predictor.name == "npe")
    found = fit(predictor, power_mw=None).predict(TABLE.modes)
    save_model(tmp_path / "model", predictor, {})
    again = load_model(tmp_path / "model").predictor.predict(TABLE.modes)
    assert np.array_equal(again.time_ms, found.time_ms, equal_nan=True)
    if predictor.name != "npe":  # which tells power without learning
        assert np.isnan([found.power_mw, found.log_power_sd]).all()
        assert found.time_ms == pytest.approx(both.time_ms, rel=0.15)


def test_what_no_profile_tells_of_is_said():
    predictor = make_predictor(predictor_class("ridge")).fit(TABLE.modes, TABLE.time_ms, TABLE.power_mw)
    assert predictor.unprofiled(TABLE.modes) == {}
    still = np.flatnonzero(TABLE.modes[:, 1] == TABLE.modes[0, 1])
    predictor.fit(TABLE.modes[still], TABLE.time_ms[still], TABLE.power_mw[still], batch_size=8)
    found = predictor.unprofiled(TABLE.modes, batch_size=16, task="inference")
    assert sorted(found) == ["batch size", "cpu_khz", "task"]
    assert found["batch size"].all()
    assert np.flatnonzero(~found["cpu_khz"]).tolist() == still.tolist()


def test_a_mode_profiled_twice_with_other_figures_counts_once_or_is_two_entries(predictor):
    rows = np.concatenate([LEARNED, LEARNED[:1]])
    time_ms = TABLE.time_ms[rows].copy()
    time_ms[-1] *= 1.5
    other = predictor.clone()
    merged = TABLE.time_ms[LEARNED].copy()
    merged[0] = np.median([time_ms[0], time_ms[-1]])
    if predictor.learns_repeats:
        assert len(fit(predictor, rows, time_ms=time_ms).training_rows_.time_ms) == len(rows)
        return
    first = fit(predictor, rows, time_ms=time_ms).predict(TABLE.modes)
    second = fit(other, time_ms=merged).predict(TABLE.modes)
    assert np.allclose(first.power_mw, second.power_mw, rtol=1e-6)
    assert np.allclose(first.time_ms, second.time_ms, rtol=1e-6, equal_nan=True)


def test_predictors_load_nothing_heavy_before_one_is_asked_for_and_are_made_without_torch():
    script = (
        "import sys, predictors.__main__, predictors.models.registry as r\n"
        "try: predictors.__main__.main(['--help'])\n"
        "except SystemExit: pass\n"
        "found = {'torch', 'sklearn', 'scipy', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "found and sys.exit(f'loaded {found}')\n"
        "for name in r.MODULES:\n"
        "    r.make_predictor(r.predictor_class(name), board='orin-agx')\n"
        "    'torch' in sys.modules and sys.exit(f'{name} loads torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=str(PROJECT), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
