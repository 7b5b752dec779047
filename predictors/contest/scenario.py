"""`scenario`: the papers' questions on predictors, on measured or simulated boards."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Optional, Sequence, Union

import numpy as np

from harness.core.boards import load_board
from harness.core.cases import INSTANCE_MARK, Case, CaseSettings
from harness.core.configuration import DEFAULT_STORAGE
from harness.core.measured_tables import corpus_file
from harness.core.power_modes import NamedMode, PowerMode
from harness.devices.simulated import SimulatedDevice
from harness.simulation.corpus import simulate_corpus
from harness.simulation.model import repetition_factors
from harness.simulation.parameters import load_board_parameters
from predictors.choose.corpora import entries_of, load_all_tables
from predictors.contest.evaluate import Evaluation, run_evaluation
from predictors.contest.runs import USUAL_RUNS, Runs, repeats_of
from predictors.contest.scenarios import SCENARIOS, ProfileSource, Scenario, find_scenario, make_plan
from predictors.contest.trials import TrialPlan
from predictors.models.base import check_kind
from predictors.models.registry import predictor_names
from predictors.profiles import Profiles, tables_of
from predictors.sampling import MINIBATCHES

if TYPE_CHECKING:
    import pandas as pd


def scenario(
    name: str,
    *,
    predictors: Union[str, Sequence[str], None] = None,
    corpus: Sequence[Union[str, Path]] = (),
    limit: Optional[int] = None,
    runs: Runs = USUAL_RUNS,
) -> Evaluation:
    """Test predictors on one of the papers' questions, as `jetwatt scenario` does.

    Args:
        name: `G1`, ...; `jetwatt.scenarios()` lists all.
        predictors: names, or `all`; None for those of the paper.
        corpus: files of measured profiles, used where they match the scenario; the rest is simulated.
        limit: greatest number of modes of each table, for a quick look.
        runs: how often, from which seed, and in how many processes.

    Returns:
        An evaluation; its `table()` is a DataFrame with errors in %.

    Raises:
        HarnessError: a name is unknown, or a corpus is invalid.
    """
    check_kind(Runs, runs=runs)
    chosen = find_scenario(name)
    text = predictors if isinstance(predictors, str) else ",".join(predictors or ())
    names = tuple(predictor_names(text or chosen.predictors))
    plan = plan_on_tables(chosen, corpus, limit, repeats_of(runs), runs.seed)
    plan = dataclasses.replace(plan, predictors=names)
    title = f"{chosen.name}: {chosen.question} ({chosen.source})"
    return run_evaluation(plan, runs, title=title, files=list(map(corpus_file, corpus)))


def scenarios() -> pd.DataFrame:
    """The papers' questions to predictors: `name`, `question`, `source`, and the number of `targets`."""
    import pandas as pd

    rows = [(each.name, each.question, each.source, len(each.cases)) for each in SCENARIOS.values()]
    return pd.DataFrame(rows, columns=["name", "question", "source", "targets"])


def plan_on_tables(
    asked: Scenario, corpus: Sequence[Union[str, Path]], limit: Optional[int], repeats: int, seed: int
) -> TrialPlan:
    """A scenario with its tables: those of the corpora, and simulated ones where the corpora have none."""
    plan = make_plan(asked, load_all_tables(corpus), functools.partial(simulated, seed=seed), named_modes, limit)
    return dataclasses.replace(plan, repeats=repeats, seed=seed)


def named_modes(device: str) -> Dict[str, PowerMode]:
    return load_board(device).modes_by_name()


def simulated(source: ProfileSource, modes: Optional[np.ndarray] = None, *, seed: int = 0) -> Profiles:
    """A scenario's table from a simulated board in power modes (n, 4), by default its named ones or the paper's grid.

    Time and power deviate from the steady state as repetitions on the board do. If a source limits the minibatches of a
    profile, they are the first of a run in each mode.
    """
    spec = load_board(source.device)
    if modes is not None:
        chosen = [PowerMode(*map(int, mode)) for mode in modes]
    elif source.named:
        chosen = [spec.modes_by_name()[name] for name in source.named]
    else:
        chosen = list(spec.power_mode_space().paper_grid())
    rows = simulate_corpus(
        f"{source.device}{INSTANCE_MARK}{source.instance}",
        source.workload,
        chosen,
        batch_size=source.batch_size,
        storage=DEFAULT_STORAGE,
        task=source.task,
        seed=None,
    )
    (table,) = tables_of(rows)
    if source.minibatches is not None:
        name = f"{source.device}@{source.instance}" if source.instance else source.device
        where = rows[0]["workers"], DEFAULT_STORAGE, source.batch_size, CaseSettings(seed=seed), source.task
        named = [NamedMode(mode.name, mode) for mode in chosen]
        entries = np.stack([_entries(Case(name, source.workload, each, *where)) for each in named])
        return dataclasses.replace(table, entries=entries).first_minibatches(source.minibatches)
    random = np.random.default_rng([seed, source.instance, MINIBATCHES])
    time, power = repetition_factors(load_board_parameters(source.device), random, len(table))
    return dataclasses.replace(table, time_ms=table.time_ms * time, power_mw=table.power_mw * power)


@functools.lru_cache(maxsize=10_000)
def _entries(case: Case) -> np.ndarray:
    """As in `entries_of`; cached, because the profile may be truncated to several lengths."""
    return entries_of(SimulatedDevice(case.device).profile(case))
