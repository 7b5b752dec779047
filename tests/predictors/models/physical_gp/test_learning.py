"""The prior follows from tables: mean and deviations are found again, and the same tables give the same file."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.core.corpus import write_corpus
from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode
from predictors.__main__ import main
from predictors.choose.corpora import load_tables
from predictors.models.persistence import load_model, save_model
from predictors.models.physical_gp import PhysicalGP
from predictors.models.physical_gp.learning import HYPERPRIOR, as_toml, learn_hierarchy, most_likely
from predictors.models.physical_gp.prior import (
    SHIPPED,
    TableEvidence,
    any_board,
    conditional_prior,
    learn_reference,
    priors_for,
    read_hierarchy,
)
from predictors.models.physical_gp.response import PARAMETERS, features, linearised
from predictors.settings import Settings
from tests.messages import says
from tests.predictors.models.physical_gp.made_tables import SPACE, make_table

MEASURED = Path(os.environ.get("JETWATT_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
LEARNED_FROM = ("powertrain/orin-agx-training.csv", "powertrain/orin-agx-inference.csv",
                "powertrain/orin-nano-training.csv", "loudva/nano-inference.csv")  # fmt: skip


def _draws(boards, workloads, seed=0):
    """What so many workloads on each of some boards tell, of deviations 0.3 within and 0.8 between boards."""
    random, count = np.random.default_rng(seed), len(PARAMETERS)
    told, devices = [], []
    for board in range(boards):
        shift = 0.8 * random.normal(size=count)
        for _ in range(workloads):
            told.append(TableEvidence(1 + shift + 0.3 * random.normal(size=count), 1e-3 * np.eye(count)))
            devices.append(f"board-{board}")
    return told, devices


@pytest.mark.exhaustive
def test_deviations_within_and_between_boards_are_told_apart():
    found = most_likely(*_draws(boards=12, workloads=6), read_hierarchy(HYPERPRIOR))
    assert np.median(found.mean) == pytest.approx(1, abs=0.15)
    assert np.median(found.workloads) == pytest.approx(0.3, rel=0.15)
    assert np.median(found.boards) == pytest.approx(0.8, rel=0.25)


@pytest.mark.exhaustive
def test_a_prior_knows_the_boards_that_it_was_learned_on(tmp_path):
    told, devices = _draws(boards=3, workloads=6)
    learned = most_likely(told, devices, read_hierarchy(HYPERPRIOR))
    path = tmp_path / "p.toml"
    path.write_text(as_toml(learned, []))
    known = read_hierarchy(path)
    for board in sorted(set(devices)):
        there = np.mean([one.mean for one, device in zip(told, devices) if device == board], axis=0)
        prior = any_board(known, board)
        assert np.abs(prior.mean - there).max() < 0.5
        assert np.sqrt(np.mean((prior.mean - there) ** 2)) < 0.2
        assert np.median(prior.sd / any_board(known).sd) < 0.6
        assert any_board(known, board).covariance == pytest.approx(any_board(learned, board).covariance, abs=1e-6)
    assert any_board(known, "elsewhere").mean == pytest.approx(known.mean)
    assert priors_for((), "board-1", hierarchy=known)[0].mean == pytest.approx(any_board(known, "board-1").mean)


@pytest.mark.exhaustive
def test_of_one_board_nothing_follows_about_how_boards_differ():
    hyperprior = read_hierarchy(HYPERPRIOR)
    found = most_likely(*_draws(boards=1, workloads=8), hyperprior)
    assert (found.boards > 0.8 * hyperprior.boards).all()


@pytest.mark.exhaustive
def test_what_nothing_tells_of_stays_as_it_is_set_by_hand():
    hyperprior = read_hierarchy(HYPERPRIOR)
    blind = [TableEvidence(np.zeros(len(PARAMETERS)), 1e6 * np.eye(len(PARAMETERS)))] * 3
    found = most_likely(blind, ["a", "a", "b"], hyperprior)
    assert found.mean == pytest.approx(hyperprior.mean, abs=1e-3)
    assert found.workloads == pytest.approx(hyperprior.workloads, rel=1e-3)


def test_a_reference_tells_of_its_board_and_of_its_workload_elsewhere():
    table = make_table(3).take(np.arange(0, len(SPACE), 5))
    known = [conditional_prior([table], board, workload) for board, workload in
             ((table.device, "other"), ("other", table.workload), ("other", "other"))]  # fmt: skip
    board, time = (PARAMETERS.index(name) for name in ("mem_idle", "prepare"))
    assert known[0].sd[board] < 0.7 * any_board().sd[board]
    assert known[1].sd[time] < known[0].sd[time] < 1.001 * any_board().sd[time]
    assert known[2].sd == pytest.approx(any_board().sd)
    assert known[2].mean == pytest.approx(any_board().mean)


def test_a_reference_that_the_prior_was_learned_from_tells_nothing_twice():
    known, new, other = (make_table(n, workload=f"net-{n}").take(np.arange(0, len(SPACE), 16)) for n in (3, 4, 5))
    learned = learn_hierarchy([known, dataclasses.replace(other, device="another")])
    alone, again, more = (
        conditional_prior(some, known.device, "target", learned) for some in ((), (known,), (known, new))
    )
    assert np.array_equal(alone.mean, again.mean)
    assert np.array_equal(alone.covariance, again.covariance)
    assert (more.sd < 1.0001 * alone.sd).all()
    assert np.median(more.sd / alone.sd) < 0.99
    assert (
        conditional_prior((known,), known.device, known.workload, learned).sd.sum() < alone.sd.sum()
    )  # its other task, say


def test_a_board_is_known_better_than_the_parts_of_its_power():
    prior, of_power = any_board(board="orin-agx"), [PARAMETERS.index(name) for name in ("scale", "base", "mem_idle")]
    at = features(Settings.of([[12, 2_201_600, 1_300_500, 3_199_000]], 16, "training"))
    jacobian = linearised(prior.mean[None], at, np.array(of_power))[1][0][1]
    joint = jacobian @ prior.covariance[np.ix_(of_power, of_power)] @ jacobian
    assert joint < 0.5 * (jacobian * prior.sd[of_power]) @ (jacobian * prior.sd[of_power])


def test_references_are_learned_once_in_a_process_that_gets_a_copy_of_the_prior_with_each_trial():
    table, prior = make_table(3).take(np.arange(0, len(SPACE), 50)), read_hierarchy(HYPERPRIOR)
    assert learn_reference(table, prior) is learn_reference(table, pickle.loads(pickle.dumps(prior)))


@pytest.mark.exhaustive
def test_the_prior_is_learned_and_used_by_commands(tmp_path, capsys):
    corpora = []
    for number, device in enumerate(("board-a", "board-b")):
        table = make_table(number, workload=f"net-{number}").take(np.arange(0, len(SPACE), 16))
        figures = {"minibatch_time_ms": table.time_ms, "power_mw": table.power_mw}
        about = {"device": device, "workload": table.workload, "task": "training", "provenance": "simulated"}
        rows = pd.DataFrame({**dict(zip(PowerMode._fields, table.modes.T)), "batch_size": 16, **figures, **about})
        corpora.append(str(tmp_path / f"{device}.csv"))
        write_corpus(Path(corpora[-1]), rows)
    out = [tmp_path / "one.toml", tmp_path / "again.toml"]
    for path in out:
        assert main(["prior", "learn", *corpora, "--out", str(path)]) == 0
    assert out[0].read_bytes() == out[1].read_bytes()
    assert "2 workloads on board-a, board-b" in capsys.readouterr().out
    learned = read_hierarchy(out[0])
    assert np.isfinite([learned.mean, learned.workloads, learned.boards]).all()
    how = ("--repeats", "1", "--jobs", "1")
    one = ["evaluate", "--corpus", corpora[0], "--target", "net-0", "--predictors", "physical-gp", "--modes", "5"]
    said = []
    for prior in ((), ("--prior", str(out[0]))):
        assert main([*one, *how, *prior]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] != said[1]
    assert main(["prior", "evaluate", *corpora, "--leave-out", "board", "--modes", "5", *how]) == 0
    assert "board-a/net-0/training" in capsys.readouterr().out
    assert main(["prior", "evaluate", corpora[0], *how]) == 2
    assert "nothing is left to learn from" in capsys.readouterr().err


def test_a_file_that_is_no_prior_is_refused(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("format = 1\ngpu = [1, 2, 3]\n")
    with pytest.raises(InvalidValueError, match="is not a prior"):
        read_hierarchy(path)


@pytest.mark.parametrize(("first_line", "shown"), [("format = 2\n", "2"), ("", "none")])
def test_a_prior_of_another_format_is_refused_in_one_sentence(tmp_path, first_line, shown):
    path = tmp_path / "p.toml"
    path.write_text(HYPERPRIOR.read_text().replace("format = 1\n", first_line))
    with pytest.raises(InvalidValueError) as refused:
        read_hierarchy(path)
    assert says(str(refused.value), path, f"format {shown}", "format 1", "jetwatt prior learn")


@pytest.mark.exhaustive
def test_the_shipped_prior_is_what_the_measured_tables_ask_for():
    if not all((MEASURED / name).exists() for name in LEARNED_FROM):
        pytest.skip(f"the measured tables are not in {MEASURED}: JETWATT_DATA names their folder")
    found = learn_hierarchy([table for name in LEARNED_FROM for table in load_tables(MEASURED / name)])
    shipped = read_hierarchy(SHIPPED)
    for name in ("mean", "workloads", "boards"):
        assert getattr(found, name) == pytest.approx(
            getattr(shipped, name), abs=1e-5
        )  # processors differ by up to 2e-6
    assert found.own.keys() == shipped.own.keys()
    for board, part in shipped.own.items():
        assert found.own[board] == pytest.approx(part, abs=1e-5)


def test_a_saved_predictor_keeps_its_prior(tmp_path):
    table = make_table(2).take(np.arange(0, 400, 40))
    predictor = PhysicalGP(hierarchy=read_hierarchy(HYPERPRIOR)).fit(table.modes, table.time_ms, table.power_mw)
    save_model(tmp_path / "m", predictor, {})
    again = load_model(tmp_path / "m").predictor
    assert np.array_equal(again.predict(table.modes).time_ms, predictor.predict(table.modes).time_ms)
