"""scikit-learn's own checks of estimators: which a predictor passes as it is, and which on tables that checks make.

A predictor learns two figures of tables with four positive columns, which no check makes. `OnAnyTable` reads such
columns and one figure from any table; through it all checks of fitting and predicting hold, apart from `ON_NO_TABLE`.
"""

from __future__ import annotations

import numpy as np
import pytest

from predictors.models.base import Predictor
from predictors.models.registry import MODULES, make_predictor, predictor_class

checks = pytest.importorskip("sklearn.utils.estimator_checks")
pytest.importorskip("sklearn", minversion="1.6")  # the first that says which checks fail

from sklearn.base import RegressorMixin, clone  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

pytestmark = [pytest.mark.one_python, pytest.mark.filterwarnings("ignore")]

FOUR_COLUMNS = "it fits on another table than four positive columns: cpu_cores, cpu_khz, gpu_khz, mem_khz"
OWN_ERRORS = "it expects a ValueError in scikit-learn's words; ours is an InvalidValueError with the value and a hint"

CANNOT_HOLD = {
    **dict.fromkeys(
        (
            *("check_dict_unchanged", "check_dont_overwrite_parameters", "check_estimators_dtypes"),
            *("check_estimators_fit_returns_self", "check_estimators_overwrite_params", "check_estimators_pickle"),
            *("check_f_contiguous_array_estimator", "check_fit2d_predict1d", "check_fit_check_is_fitted"),
            *("check_fit_idempotent", "check_fit_score_takes_y", "check_methods_sample_order_invariance"),
            *("check_methods_subset_invariance", "check_n_features_in", "check_n_features_in_after_fitting"),
            *("check_pipeline_consistency", "check_readonly_memmap_input", "check_regressor_data_not_an_array"),
            *("check_regressors_int", "check_regressors_train", "check_supervised_y_2d"),
        ),
        FOUR_COLUMNS,
    ),
    **dict.fromkeys(
        (
            *("check_complex_data", "check_dtype_object", "check_estimator_sparse_array"),
            *("check_estimator_sparse_matrix", "check_estimator_sparse_tag", "check_estimators_nan_inf"),
            "check_estimators_empty_data_messages",
            *("check_fit1d", "check_fit2d_1feature", "check_fit2d_1sample", "check_fit_non_negative"),
            *("check_positive_only_tag_during_fit", "check_requires_y_none", "check_supervised_y_no_nan"),
        ),
        OWN_ERRORS,
    ),
    "check_estimators_unfitted": "predictors work without scikit-learn, so their NotFittedError is not its class",
}
"""The checks that no predictor passes as it is, and why."""

ON_NO_TABLE = {
    "check_fit2d_1sample": "a predictor that needs more modes than one refuses a single one with an error of its own",
    "check_estimators_pickle": "predictors are saved as data (`jetwatt.load`), because a pickle can run code",
}
"""The checks that `OnAnyTable` does not pass either."""

BY_NAME = {
    "powertrain": {"check_regressors_no_decision_function": "it asks for a reference workload before it fits at all"}
}
"""The checks that single predictors do not pass as they are, and why."""

QUICK = ("physical-gp", "ridge", "decision-tree")


def failed(estimator):
    """The checks that fail, with their errors, and the names of those that pass."""
    results = checks.check_estimator(estimator, on_skip=None, on_fail=None)
    failures = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    return failures, {result["check_name"] for result in results if result["status"] == "passed"}


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in MODULES
        if name != "npe"  # see below
    ],
)
def test_a_predictor_passes_all_checks_but_those_listed_with_the_reason(name):
    expected = {**CANNOT_HOLD, **BY_NAME.get(name, {})}
    failures, passed = failed(predictor_class(name)())
    assert {check: error for check, error in failures.items() if check not in expected} == {}
    assert passed & set(expected) == set(), "these hold: take them out of the list"
    assert len(passed) >= 12


def test_the_vendors_formula_has_no_parameters_by_default_so_that_no_check_can_make_it():
    predictor = make_predictor(predictor_class("npe"), board="orin-agx")
    assert clone(predictor).get_params() == {"board": "orin-agx"}
    with pytest.raises(TypeError, match="board"):
        failed(predictor_class("npe")())


class OnAnyTable(RegressorMixin, Predictor):
    """A mixin: power modes of the first four columns of any table, the time of its target."""

    def fit(self, X, y):  # noqa: N803
        X, y = validate_data(self, X, y, dtype=float, y_numeric=True)  # noqa: N806
        return super().fit(modes_of(X), np.exp(np.clip(y, -50, 50)))

    def predict(self, X):  # noqa: N803
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=float)  # noqa: N806
        return np.log(super().predict(modes_of(X)).time_ms)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = tags.target_tags.positive_only = False
        tags.regressor_tags.poor_score = True  # of ten columns, those that the target depends on may not be read
        return tags


def modes_of(table):
    columns = np.zeros((len(table), 4))
    columns[:, : table.shape[1]] = table[:, :4]
    return 1000 * np.exp(np.clip(columns / 40, -50, 50))


class LinearOnAnyTable(OnAnyTable, predictor_class("linear")):
    pass


class RidgeOnAnyTable(OnAnyTable, predictor_class("ridge")):
    pass


class TreeOnAnyTable(OnAnyTable, predictor_class("decision-tree")):
    pass


@pytest.mark.parametrize(
    "estimator",
    [
        LinearOnAnyTable,
        pytest.param(RidgeOnAnyTable, marks=pytest.mark.exhaustive),
        pytest.param(TreeOnAnyTable, marks=pytest.mark.exhaustive),
    ],
    ids=lambda kind: kind.name,
)
def test_on_tables_that_checks_make_every_check_of_fitting_holds(estimator):
    failures, passed = failed(estimator())
    assert {check: error for check, error in failures.items() if check not in ON_NO_TABLE} == {}
    assert len(passed) >= 40
