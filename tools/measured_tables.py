"""How far simulated boards are from measured tables: errors, ranks, Pareto front, and how hard they are to learn."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.corpus import Row
from harness.core.units import mw_to_w, share_to_percent, w_to_mw
from harness.simulation.model import Load, cached_share, repetition_factors, simulate
from harness.simulation.parameters import SIMULATED_BOARDS, SIMULATED_WORKLOADS, load_board_parameters
from predictors.evaluation import errors, fit_to, odd_rows, predict_rows
from predictors.models.base import predictor_class
from predictors.models.tables import Table, tables_of
from tools.simulated_answers import BOARD, PHYSICS, WORKLOAD, Parameters, fitted_parameters

if TYPE_CHECKING:
    import pandas as pd

BUDGETS_W = tuple(range(17, 51))  # the papers' power budgets (001 sec. 5.2)
FEWEST_BUDGETS = 5
TOLERANCE_W = 1.0  # a budget is broken by more than this (001 sec. 1.4: A/L+1)


def split_tables(rows: Sequence[Row]) -> Tuple[List[Table], List[str]]:
    """The tables of a corpus that simulated boards can be compared with, and a sentence for whatever is left out."""
    found: List[Table] = []
    left_out: Dict[str, int] = {}
    for table in tables_of(rows):
        if table.provenance != "measured":
            reason = f"they are {table.provenance}"
        elif table.device not in SIMULATED_BOARDS or table.workload not in SIMULATED_WORKLOADS:
            reason = f"{table.device} with {table.workload} is not simulated"
        else:
            found.append(table)
            continue
        left_out[reason] = left_out.get(reason, 0) + len(table)
    return found, [f"{count} rows left out: {reason}" for reason, count in left_out.items()]


def simulated_like(table: Table, parameters: Optional[Parameters] = None, *, rough: bool = True) -> Table:
    """The same rows on a simulated board: data cached from an SSD, workers as in the papers."""
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


def choose(believed: Table, true: Table) -> pd.DataFrame:
    """For each budget, choose the fastest mode that is believed to meet it, and look at what it truly does.

    The budgets are the papers' 17 to 50 W that some mode meets truly and believedly and not all do; on a small board,
    where these are fewer than five, 34 spread evenly over its range of power. `penalty_pct` is the excess time over the
    best mode within the budget, `excess_w` the chosen mode's power over the budget, 0 where it is met.
    """
    import pandas as pd

    powers_w = mw_to_w(true.power_mw)
    least = max(powers_w.min(), mw_to_w(believed.power_mw.min()))
    budgets = np.array([budget for budget in BUDGETS_W if least <= budget < powers_w.max()], dtype=float)
    if len(budgets) < FEWEST_BUDGETS:
        budgets = np.linspace(least, powers_w.max(), len(BUDGETS_W))

    def fastest(table: Table) -> np.ndarray:
        meets = table.power_mw <= w_to_mw(budgets)[:, None]
        return np.where(meets, table.time_ms, np.inf).argmin(axis=1)

    chosen = fastest(believed)
    penalty = true.time_ms[chosen] / true.time_ms[fastest(true)] - 1.0
    excess_w = np.maximum(powers_w[chosen] - budgets, 0.0)
    return pd.DataFrame({"budgets_w": budgets, "penalty_pct": share_to_percent(penalty), "excess_w": excess_w})


def compare(measured: Table, simulated: Table) -> Dict[str, Any]:
    """How far a simulated table is from a measured one with the same rows: errors in %, ranks as Spearman has them.

    Where all rows have power and one batch size also what choosing by the simulated table costs, as `choose` has it.
    """
    from scipy.stats import spearmanr

    found: Dict[str, Any] = {"rows": len(measured)}
    for name, column in TARGETS.items():
        true, said = getattr(measured, column), getattr(simulated, column)
        known = ~np.isnan(true)
        if known.any():
            errors = share_to_percent(said[known] / true[known] - 1.0)
            found[f"{name}_mape"] = float(np.mean(np.abs(errors)))
            found[f"{name}_median_ape"] = float(np.median(np.abs(errors)))
            found[f"{name}_p90_ape"] = float(np.percentile(np.abs(errors), 90))
            found[f"{name}_median_bias"] = float(np.median(errors))
            found[f"{name}_rank_correlation"] = float(spearmanr(true[known], said[known])[0])
    if is_whole(measured):
        chosen = choose(simulated, measured)
        found["front_median_penalty_pct"] = float(chosen["penalty_pct"].median())
        found["front_worst_penalty_pct"] = float(chosen["penalty_pct"].max())
        found["front_median_excess_w"] = float(chosen["excess_w"].median())
        found["front_over_budget_pct"] = share_to_percent(float((chosen["excess_w"] > TOLERANCE_W).mean()))
    return found


def is_whole(table: Table) -> bool:
    return len(np.unique(table.batch_size)) == 1 and not np.isnan(table.power_mw).any()


def validate_table(measured: Table) -> Dict[str, Any]:
    """`compare` with the simulated board; `sound` holds the same without the slice that is known to be odd.

    `smooth` is of the model without the deviations that make a simulated board as hard to predict as a real one.
    """
    simulated, smooth = simulated_like(measured), simulated_like(measured, rough=False)
    named = {name: getattr(measured, name) for name in ("device", "workload", "task")}
    found = {**named, **compare(measured, simulated), "smooth": compare(measured, smooth)}
    odd = odd_rows(measured)
    if odd is not None and odd.any() and not odd.all():
        found["sound"] = compare(measured.take(~odd), simulated.take(~odd))
    return found


def keys_of(tables: Sequence[Table]) -> List[str]:
    """A key for each table: its workload, with device and task only where a workload comes more than once."""
    names = [table.workload for table in tables]
    return [
        table.workload if names.count(table.workload) == 1 else f"{table.workload}/{table.device}/{table.task}"
        for table in tables
    ]


TARGETS = {"time": "time_ms", "power": "power_mw"}
COUNTS = (10, 50, 100)
REPEATS = 10
FACTOR = 1.5  # as hard means: errors differ by no more than this factor
FEWEST_MODES = 1_000
LEARNERS = ("ridge", "physical-gp")
SEED = 0


def is_large(table: Table) -> bool:
    """Whether a table has power modes enough for a learning curve, all with power and of one batch size."""
    return len(table) >= FEWEST_MODES and is_whole(table)


def learning_curves(measured: Table, counts: Sequence[int] = COUNTS, repeats: int = REPEATS) -> pd.DataFrame:
    """Fit both predictors to the same random power modes of a measured table and of the simulated board.

    Rows that are known to be odd are left out on both sides: a simulated board has no other measuring sessions. Its
    rows carry noise as those of a simulated corpus do. Errors are medians over the repeats on all modes that were not
    learned from; `is_alike` is whether they differ by no more than `FACTOR`.
    """
    import pandas as pd

    odd = odd_rows(measured)
    sound = measured if odd is None else measured.take(~odd)
    board, random = load_board_parameters(sound.device), np.random.Generator(np.random.PCG64(SEED))
    simulated = simulated_like(sound)
    time, power = repetition_factors(board, random, len(sound))
    noisy = dataclasses.replace(simulated, time_ms=simulated.time_ms * time, power_mw=simulated.power_mw * power)
    orders = [np.random.Generator(np.random.PCG64(SEED + one)).permutation(len(sound)) for one in range(repeats)]

    def median_errors(table: Table, learner: str, count: int) -> pd.Series:
        trials = []
        for order in orders:
            predictor, rest = predictor_class(learner)(), table.take(order[count:])
            fit_to(predictor, table.take(order[:count]))
            trials.append(errors(rest, predict_rows(predictor, rest)))
        return pd.DataFrame(trials).median()

    rows = []
    for learner in LEARNERS:
        for count in counts:
            both = [median_errors(table, learner, count) for table in (sound, noisy)]
            rows += [
                [measured.workload, name, learner, count, *(one[f"{name}_mape"] for one in both)] for name in TARGETS
            ]
    columns = ["workload", "target", "learner", "count", "measured_mape_pct", "simulated_mape_pct"]
    found = pd.DataFrame(rows, columns=columns)
    found["ratio"] = found["simulated_mape_pct"] / found["measured_mape_pct"]
    found["is_alike"] = found["ratio"].between(1.0 / FACTOR, FACTOR)
    return found
