"""Experiments on whole tables whose results only the documents print, and that no command of the suite runs."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.corpus import read_corpus
from harness.core.environment import usable_cpus
from harness.core.units import share_to_percent, w_to_mw
from harness.judge.published_figures import load_figures
from harness.simulation.model import Load, cached_share, simulate
from harness.simulation.parameters import load_board_parameters, load_workload_parameters
from predictors.contest.judged_choices import summarise, sweep
from predictors.contest.trials import in_processes
from predictors.evaluation import Target, coverage, errors
from predictors.goals import budget_goals
from predictors.models.base import one_blas_thread
from predictors.models.physical_gp.learning import learn_hierarchy
from predictors.models.physical_gp.prior import Hierarchy
from predictors.models.registry import DEFAULT
from predictors.profiles import ARRAYS, Profiles, find_table, tables_of
from predictors.strategies.search import BinarySearch
from tools.fit import fit, table_residuals

BOARD = "orin-agx"
NETWORKS = ("resnet18-imagenet", "yolov8n-coco", "lstm-wikitext")
Rows = List[Dict[str, Any]]


# ------------------------------------------------------------------------ settings that were never profiled

DRAWS, PROFILED, PREDICTED = 10, 20, 400
"""How often modes are drawn, how many are profiled, and how many others are predicted at most."""


class Extrapolation(NamedTuple):
    """Rows to fit on, and rows with a setting that none of them has."""

    profiled: str
    predicted: str
    fitted: Tuple[Profiles, ...]  # `PROFILED` rows in all are drawn from these, as many from each
    asked: Profiles


def predict_unprofiled(corpora: Sequence[Path]) -> Rows:
    """Errors where a setting was not profiled, of each network under a prior that was learned without it.

    Each row has medians over the draws of the errors, and means of the coverage of 80 % intervals, in %.
    """
    tables = [table for path in corpora for table in tables_of(read_corpus(path))]
    jobs = usable_cpus()
    others = [([table for table in tables if table.workload != name],) for name in NETWORKS]
    priors = dict(zip(NETWORKS, in_processes(learn_hierarchy, others, jobs)))
    cases = [case for name in NETWORKS for case in extrapolations(tables, name)]
    asked = [(case, priors[case.asked.workload], draw) for case in cases for draw in range(DRAWS)]
    drawn = list(in_processes(extrapolate, asked, jobs))
    rows = []
    for number, case in enumerate(cases):
        own = drawn[number * DRAWS : (number + 1) * DRAWS]
        row: Dict[str, Any] = {"workload": case.asked.workload, "profiled": case.profiled, "predicted": case.predicted}
        row.update({name: float(np.median([one[name] for one in own])) for name in ("time_mape", "power_mape")})
        row.update({name: float(np.mean([one[name] for one in own])) for name in ("time_80", "power_80")})
        rows.append(row)
    return rows


def extrapolations(tables: Sequence[Profiles], workload: str) -> Iterator[Extrapolation]:
    here = [table for table in tables if table.device == BOARD]
    training, inference = (find_table(here, workload, task).complete() for task in ("training", "inference"))

    def at(*batch_sizes: int) -> Profiles:
        return inference.take(np.isin(inference.batch_size, batch_sizes))

    yield Extrapolation("inference at batch size 1", "at 32", (at(1),), at(32))
    yield Extrapolation("inference at 1 and 32, 10 modes each", "at 4, 16 and 64", (at(1), at(32)), at(4, 16, 64))
    yield Extrapolation("training", "inference at 16", (training,), at(16))
    for column, name in ((1, "CPU clock"), (2, "GPU clock"), (3, "memory clock")):
        values = training.modes[:, column]
        greatest = values == values.max()
        yield Extrapolation(
            f"training at the greatest {name}", "all others", (training.take(greatest),), training.take(~greatest)
        )
    many = training.modes[:, 0] >= 8
    few = training.modes[:, 0] <= 4
    yield Extrapolation("training with 8 cores and more", "2 and 4 cores", (training.take(many),), training.take(few))


def extrapolate(case: Extrapolation, prior: Hierarchy, draw: int) -> Dict[str, float]:
    """Fit to some rows of a case, drawn by a seed, and test on others."""
    random = np.random.default_rng(draw)

    def sample(table: Profiles, count: int) -> Profiles:
        return table.take(np.sort(random.permutation(len(table))[:count]))

    parts = [sample(table, PROFILED // len(case.fitted)) for table in case.fitted]
    columns: Dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
    fitted = dataclasses.replace(parts[0], **columns)
    asked = sample(case.asked, PREDICTED)
    predictor = Target(fitted, hierarchy=prior).make(DEFAULT, draw, within_table=False)
    with one_blas_thread():
        predictor.fit(fitted.applied())
        prediction = predictor.predict(asked)
    found = errors(asked, prediction)
    time_80, power_80 = prediction.interval("time_ms", 0.8), prediction.interval("power_mw", 0.8)
    found["time_80"] = coverage(asked.time_ms, *time_80)
    found["power_80"] = coverage(asked.power_mw, *power_80)
    return found


# ------------------------------------------------------------------------ simulation of what it was not fitted to

LEFT_OUT_BOARD = "orin-nano"


def simulate_left_out(corpora: Sequence[Path]) -> Rows:
    """Median absolute errors in % of the smooth model on tables that it was not fitted to.

    It is fitted, from the priors of its parameters, to all published figures and to the tables of all other networks,
    or of all other boards.
    """
    tables = [table for path in corpora for table in tables_of(read_corpus(path))]
    asked = [(tables, "workload", name) for name in NETWORKS] + [(tables, "device", LEFT_OUT_BOARD)]
    return [row for rows in in_processes(fit_without, asked, usable_cpus()) for row in rows]


def fit_without(tables: Sequence[Profiles], column: str, name: str) -> Rows:
    """Fit the simulation to all tables but those of a network or board, and test it on these."""
    others = [table for table in tables if getattr(table, column) != name]
    with one_blas_thread():
        parameters = fit(load_figures(), others).parameters
    rows = []
    for table in (table for table in tables if getattr(table, column) == name):
        if column == "workload" and table.device != BOARD:
            continue
        time, power = (np.abs(np.expm1(logarithms)) for logarithms in table_residuals(table, parameters))
        row: Dict[str, Any] = {"left_out": name, "device": table.device, "workload": table.workload, "task": table.task}
        row["time_median_ape"] = share_to_percent(float(np.nanmedian(time)))
        row["power_median_ape"] = share_to_percent(float(np.nanmedian(power)))
        rows.append(row)
    return rows


# ------------------------------------------------------------------------ what MDBS leaves open

VARIANTS: Dict[str, Dict[str, str]] = {
    "as above": {},
    "lower middle value": {"middle": "lower"},
    "upper half dropped when a mode is not faster": {"when_not_better": "upper"},
}


def binary_search_variants(corpus: Path, budgets: str) -> Rows:
    """The mean time penalty in % of each variant of the binary search on each table, over the budgets given."""
    tables, goals = tables_of(read_corpus(corpus)), budget_goals(budgets)
    rows = []
    for variant, parameters in VARIANTS.items():
        for name in NETWORKS:
            table = find_table(tables, name).complete()
            make = functools.partial(_binary_search, parameters)
            outcomes = sweep(table, make, goals, profiles=15, seed=0)
            rows.append({"variant": variant, "workload": name, "penalty_mean": summarise(outcomes)["penalty_mean"]})
    return rows


def _binary_search(parameters: Dict[str, str], seed: int) -> BinarySearch:
    """A search of a variant; it draws nothing, so the seed is not used."""
    return BinarySearch(**parameters)


# ------------------------------------------------------------------------ what a free batch size is worth

BATCH_SIZES, USUAL = (4, 8, 16, 32, 64, 128), 16
BUDGETS_W = (15, 20, 25, 30, 35, 40)
FREE = ("lenet-mnist", "yolov8n-coco", "mobilenetv3-gld23k", "resnet18-imagenet", "bert-squad")


def gain_of_batch_sizes() -> Rows:
    """By how much a simulated Orin AGX trains samples faster within a budget where the batch size is free.

    The ratio of the least times of a sample over all modes, at 16 to at any of `BATCH_SIZES`, least and greatest over
    the budgets.
    """
    board = load_board_parameters(BOARD)
    modes = np.array(list(board.spec.power_mode_space()))
    rows = []
    for name in FREE:
        workload = load_workload_parameters(name)
        workers = workload.default_workers
        share = cached_share(board, workload, workers=workers)
        best: Dict[int, np.ndarray] = {}
        for batch_size in BATCH_SIZES:
            response = simulate(board, workload, modes, Load(batch_size, workers, cached_share=share))
            within = response.power_mw <= w_to_mw(np.array(BUDGETS_W))[:, None]
            best[batch_size] = np.where(within, response.minibatch_time_ms / batch_size, np.inf).min(axis=1)
        gains = best[USUAL] / np.min(list(best.values()), axis=0)
        rows.append({"workload": name, "least_gain": float(gains.min()), "greatest_gain": float(gains.max())})
    return rows
