"""Fitting: free and tied parameters, residuals, and the files that a fit writes."""

import msgspec
import numpy as np
import pytest

from harness.core.boards import load_board
from harness.judge.published_figures import load_figures
from harness.simulation.corpus import simulate_corpus
from harness.simulation.parameters import BOARD_FILES, load_board_parameters
from tools.fit import figure_deviations, file_texts, fit, read_free_parameters, robust, table_residuals, with_values
from tools.measured_tables import split_tables
from tools.simulated_answers import BOARD, WORKLOAD, fitted_parameters

pytestmark = pytest.mark.one_python


def rows(workload, count=30, **options):
    modes = load_board("orin-agx").power_mode_space().sample(count)
    return [
        {**row, "provenance": "measured"} for row in simulate_corpus("orin-agx", workload, modes, seed=None, **options)
    ]


def test_at_no_distance_every_parameter_is_its_prior_and_a_tied_one_follows():
    free, ties = read_free_parameters()
    names = [(parameter.owner, parameter.key) for parameter in free]
    distances = np.zeros(len(free))
    prior = with_values(fitted_parameters(), free, ties, distances)
    assert all(getattr(prior[one.owner], one.key) == pytest.approx(one.prior) for one in free)
    distances[names.index(((WORKLOAD, "mobilenetv3-gld23k"), "gpu_work"))] = 1.0
    moved = with_values(fitted_parameters(), free, ties, distances)
    one, other = (moved[WORKLOAD, f"mobilenetv3-{data}"].gpu_work for data in ("imagenet", "gld23k"))
    assert one == other


def test_the_files_hold_what_was_fitted_and_keep_their_words():
    fitted = fitted_parameters()
    slower = msgspec.structs.replace(fitted[BOARD, "nano"], cpu_speed=0.123456)
    texts = file_texts({**fitted, (BOARD, "nano"): slower})
    before = BOARD_FILES["nano"].read_text()
    after = texts[BOARD_FILES["nano"]]
    changed = [line for line, was in zip(after.splitlines(), before.splitlines()) if line != was]
    assert len(changed) == 1
    assert changed[0].startswith("cpu_speed = { value = 0.1235, prior = ")


def test_the_files_are_those_of_the_values_in_use():
    assert all(path.read_text() == text for path, text in file_texts(fitted_parameters()).items())


def test_a_table_of_the_board_itself_leaves_its_roughness():
    ((table,), _) = split_tables(rows("lstm-wikitext", 200))
    time, power = table_residuals(table, fitted_parameters())
    board = load_board_parameters("orin-agx")
    assert np.std(time) == pytest.approx(board.time_roughness, rel=0.3)
    assert np.std(power) == pytest.approx(board.power_roughness, rel=0.3)
    ((without,), _) = split_tables([{**row, "power_mw": None} for row in rows("lenet-mnist", 3)])
    assert np.isnan(table_residuals(without, fitted_parameters())[1]).all(), "power that was not measured is none"


def test_a_robust_residual_grows_slowly_where_it_is_large():
    small, large = robust(np.array([0.01, -100.0]))
    assert small == pytest.approx(0.01, rel=1e-3)
    assert -np.sqrt(200.0) < large < -13.0


@pytest.mark.exhaustive
def test_a_fit_comes_nearer_to_what_it_is_fitted_to():
    pytest.importorskip("scipy")
    figures = [figure for figure in load_figures() if figure.fact in ("F163", "F164", "F1004")]
    free, ties = read_free_parameters()
    prior = with_values(fitted_parameters(), free, ties, np.zeros(len(free)))

    def off(parameters):
        return np.abs(figure_deviations(figures, parameters)).sum()

    found = fit(figures, [], most_steps=4)
    assert off(found.parameters) < 0.3 * off(prior)
    again = fit(figures, [], most_steps=4)
    assert again.distances == found.distances
