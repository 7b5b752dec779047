"""What goes into a regression: four settings, batch size and task where rows differ in them."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import InvalidValueError
from predictors.models.input_columns import column_values, columns_from, columns_of
from predictors.models.protocol import check_inputs

MODES = [[2, 1_000_000, 500_000, 204_000], [4, 2_000_000, 1_000_000, 3_199_000]]


def test_rows_of_one_batch_size_and_task_give_the_four_settings():
    rows = check_inputs(MODES, 8, "training")
    assert columns_of(rows).matrix(rows).tolist() == [[2, 1000, 500, 204], [4, 2000, 1000, 3199]]


def test_batch_size_and_task_are_inputs_where_rows_differ_in_them():
    rows = check_inputs(MODES, [8, 16], ["training", "inference"])
    columns = columns_of(rows)
    assert columns.matrix(rows)[:, 4:].tolist() == [[np.log(8), 0], [np.log(16), 1]]
    assert np.allclose(columns.log_matrix(rows)[:, :4], np.log(columns.matrix(rows)[:, :4]))
    columns.matrix(check_inputs(MODES, 64, "inference"))


@pytest.mark.parametrize(
    ("size", "task", "named"), [(32, "training", "batch size 8"), (8, "inference", "task training")]
)
def test_another_batch_size_or_task_than_the_one_learned_is_refused(size, task, named):
    columns = columns_of(check_inputs(MODES, 8, "training"))
    rows = check_inputs(MODES, size, task)
    with pytest.raises(InvalidValueError, match=f"only {named} was learned, asked for {size if size > 8 else task}"):
        columns.matrix(rows)
    assert columns.matrix_of_others(rows).shape == (2, 4)


def test_columns_are_plain_values_and_back():
    columns = columns_of(check_inputs(MODES, [8, 16], "training"))
    assert columns_from(column_values(columns)) == columns
    with pytest.raises(InvalidValueError, match="batch_size"):
        columns_from({})
