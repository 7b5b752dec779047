"""How far simulated boards are from measured tables: errors, ranks, Pareto front, and how hard they are to learn."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.corpus import Row
from harness.core.units import mw_to_w, share_to_percent, w_to_mw
from harness.simulation.model import Load, cached_share, repetition_factors, simulate
from harness.simulation.parameters import SIMULATED_BOARDS, SIMULATED_WORKLOADS, load_board_parameters
from predictors.evaluation import errors, odd_rows
from predictors.models.registry import predictor_class
from predictors.profiles import Profiles, tables_of
from tools.simulated_answers import BOARD, PHYSICS, WORKLOAD, Parameters, fitted_parameters

if TYPE_CHECKING:
    import pandas as pd

BUDGETS_W = tuple(range(17, 51))  # the papers' power budgets (001 sec. 5.2)
FEWEST_BUDGETS = 5
TOLERANCE_W = 1.0  # a budget is broken by more than this (001 sec. 1.4: A/L+1)


def split_tables(rows: Sequence[Row]) -> Tuple[List[Profiles], List[str]]:
    """The tables of a corpus that can be compared with simulated boards, and sentences on the rows left out."""
    comparable: List[Profiles] = []
    left_out: Dict[str, int] = {}
    for table in tables_of(rows):
        if table.provenance != "measured":
            reason = f"they are {table.provenance}"
        elif table.device not in SIMULATED_BOARDS or table.workload not in SIMULATED_WORKLOADS:
            reason = f"{table.device} with {table.workload} is not simulated"
        else:
            comparable.append(table)
            continue
        left_out[reason] = left_out.get(reason, 0) + len(table)
    return comparable, [f"{count} rows left out: {reason}" for reason, count in left_out.items()]


def simulated_like(table: Profiles, parameters: Optional[Parameters] = None, *, rough: bool = True) -> Profiles:
    """The same rows on a simulated board, with data cached from an SSD and the papers' number of workers."""
    used = fitted_parameters() if parameters is None else parameters
    board, workload = used[BOARD, table.device], used[WORKLOAD, table.workload]
    workers = workload.default_workers
    share = cached_share(board, workload, workers=workers)
    time_ms, power_mw = np.empty(len(table)), np.empty(len(table))
    for batch_size in np.unique(table.batch_size):
        which = table.batch_size == batch_size
        load = Load(batch_size=int(batch_size), workers=workers, cached_share=share, task=table.task)
        response = simulate(board, workload, table.modes[which], load, rough=rough, physics=used[PHYSICS])
        time_ms[which], power_mw[which] = response.minibatch_time_ms, response.power_mw
    return dataclasses.replace(table, time_ms=time_ms, power_mw=power_mw)


def choose(simulated: Profiles, measured: Profiles) -> pd.DataFrame:
    """For each budget, the fastest mode that meets it by the simulated table, judged by the measured one.

    The budgets are those of the papers' 17 to 50 W that some, but not all, modes meet in both tables; if these are
    fewer than five, as on a small board, 34 spread evenly over its range of power. `penalty_pct` is the excess time
    over the best mode within the budget; `excess_w` is the chosen mode's power over the budget, 0 if it is met.
    """
    import pandas as pd

    powers_w = mw_to_w(measured.power_mw)
    least = max(powers_w.min(), mw_to_w(simulated.power_mw.min()))
    budgets = np.array([budget for budget in BUDGETS_W if least <= budget < powers_w.max()], dtype=float)
    if len(budgets) < FEWEST_BUDGETS:
        budgets = np.linspace(least, powers_w.max(), len(BUDGETS_W))

    def fastest(table: Profiles) -> np.ndarray:
        meets = table.power_mw <= w_to_mw(budgets)[:, None]
        return np.where(meets, table.time_ms, np.inf).argmin(axis=1)

    chosen = fastest(simulated)
    penalty = measured.time_ms[chosen] / measured.time_ms[fastest(measured)] - 1.0
    excess_w = np.maximum(powers_w[chosen] - budgets, 0.0)
    return pd.DataFrame({"budgets_w": budgets, "penalty_pct": share_to_percent(penalty), "excess_w": excess_w})


def compare(measured: Profiles, simulated: Profiles) -> Dict[str, Any]:
    """Errors in % and Spearman's rank correlations of a simulated table, against a measured one with the same rows.

    If all rows have power and the same batch size, also the cost of choosing by the simulated table, as of `choose`.
    """
    from scipy.stats import spearmanr

    figures: Dict[str, Any] = {"rows": len(measured)}
    for name, column in TARGETS.items():
        true, predicted = getattr(measured, column), getattr(simulated, column)
        has_value = ~np.isnan(true)
        if has_value.any():
            errors = share_to_percent(predicted[has_value] / true[has_value] - 1.0)
            figures[f"{name}_mape"] = float(np.mean(np.abs(errors)))
            figures[f"{name}_median_ape"] = float(np.median(np.abs(errors)))
            figures[f"{name}_p90_ape"] = float(np.percentile(np.abs(errors), 90))
            figures[f"{name}_median_bias"] = float(np.median(errors))
            figures[f"{name}_rank_correlation"] = float(spearmanr(true[has_value], predicted[has_value])[0])
    if is_whole(measured):
        chosen = choose(simulated, measured)
        figures["front_median_penalty_pct"] = float(chosen["penalty_pct"].median())
        figures["front_worst_penalty_pct"] = float(chosen["penalty_pct"].max())
        figures["front_median_excess_w"] = float(chosen["excess_w"].median())
        figures["front_over_budget_pct"] = share_to_percent(float((chosen["excess_w"] > TOLERANCE_W).mean()))
    return figures


def is_whole(table: Profiles) -> bool:
    """Whether all rows have power and the same batch size."""
    return len(np.unique(table.batch_size)) == 1 and not np.isnan(table.power_mw).any()


def validate_table(measured: Profiles) -> Dict[str, Any]:
    """`compare` with the simulated board; `sound` has the same without the odd slice, if the table has one.

    `smooth` is of the model without the roughness that makes a simulated board as hard to predict as a real one.
    """
    simulated, smooth = simulated_like(measured), simulated_like(measured, rough=False)
    named = {name: getattr(measured, name) for name in ("device", "workload", "task")}
    figures = {**named, **compare(measured, simulated), "smooth": compare(measured, smooth)}
    odd = odd_rows(measured)
    if odd is not None and odd.any() and not odd.all():
        figures["sound"] = compare(measured.take(~odd), simulated.take(~odd))
    return figures


def keys_of(tables: Sequence[Profiles]) -> List[str]:
    """A key for each table: its workload, with device and task if several tables have that workload."""
    names = [table.workload for table in tables]
    return [
        table.workload if names.count(table.workload) == 1 else f"{table.workload}/{table.device}/{table.task}"
        for table in tables
    ]


TARGETS = {"time": "time_ms", "power": "power_mw"}
COUNTS = (10, 50, 100)
REPEATS = 10
FACTOR = 1.5  # errors that differ by no more than this are alike
FEWEST_MODES = 1_000
LEARNERS = ("ridge", "physical-gp")
SEED = 0


def is_large(table: Profiles) -> bool:
    """Whether a table has enough power modes for a learning curve, all with power and the same batch size."""
    return len(table) >= FEWEST_MODES and is_whole(table)


def learning_curves(measured: Profiles, counts: Sequence[int] = COUNTS, repeats: int = REPEATS) -> pd.DataFrame:
    """Fit both predictors to the same random power modes of a measured table and of the simulated board.

    Odd rows, from other measuring sessions, are left out on both sides: a simulated board has none. Its rows have the
    noise of a simulated corpus. Errors are medians over the repeats, on all modes that were not used to fit;
    `is_alike` is whether they differ by no more than `FACTOR`.
    """
    import pandas as pd

    odd = odd_rows(measured)
    sound = measured if odd is None else measured.take(~odd)
    board, random = load_board_parameters(sound.device), np.random.Generator(np.random.PCG64(SEED))
    simulated = simulated_like(sound)
    time, power = repetition_factors(board, random, len(sound))
    noisy = dataclasses.replace(simulated, time_ms=simulated.time_ms * time, power_mw=simulated.power_mw * power)
    orders = [np.random.Generator(np.random.PCG64(SEED + repeat)).permutation(len(sound)) for repeat in range(repeats)]

    def median_errors(table: Profiles, learner: str, count: int) -> pd.Series:
        trials = []
        for order in orders:
            predictor, rest = predictor_class(learner)(), table.take(order[count:])
            predictor.fit(table.take(order[:count]).applied())
            trials.append(errors(rest, predictor.predict(rest)))
        return pd.DataFrame(trials).median()

    rows = []
    for learner in LEARNERS:
        for count in counts:
            both = [median_errors(table, learner, count) for table in (sound, noisy)]
            rows += [
                [measured.workload, name, learner, count, *(medians[f"{name}_mape"] for medians in both)]
                for name in TARGETS
            ]
    columns = ["workload", "target", "learner", "count", "measured_mape_pct", "simulated_mape_pct"]
    curves = pd.DataFrame(rows, columns=columns)
    curves["ratio"] = curves["simulated_mape_pct"] / curves["measured_mape_pct"]
    curves["is_alike"] = curves["ratio"].between(1.0 / FACTOR, FACTOR)
    return curves
