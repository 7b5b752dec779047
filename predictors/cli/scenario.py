"""`scenario`: the papers' questions on predictors, on measured or simulated boards."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from pathlib import Path
from typing import Dict, Optional

import numpy as np

from harness.core.boards import load_board
from harness.core.cases import Case, Settings
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.terminal import format_table
from harness.devices.simulated import SimulatedDevice
from harness.simulation.corpus import simulate_corpus
from harness.simulation.model import repetition_factors
from harness.simulation.parameters import load_board as load_simulated_board
from predictors.cli.evaluate import add_run_arguments, run_and_report
from predictors.models.base import predictor_names
from predictors.models.tables import Table, tables_of
from predictors.sampling import MINIBATCHES
from predictors.scenarios import SCENARIOS, ProfileSource, Scenario, find_scenario, make_plan
from predictors.search.corpora import entries_of, load_tables
from predictors.trials import TrialPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", help="the scenario; without it, all are listed")
    add("--predictors", metavar="LIST", help="comma-separated names, or all (default: those of the paper)")
    add_table_arguments(parser)
    add_run_arguments(parser, repeats=10)


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--corpus", type=Path, action="append", default=[], metavar="FILE",
        help="measured profiles, used where they match the scenario; repeatable",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, metavar="N", help="at most N modes of each table, for a quick look")


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        rows = [
            [scenario.name, scenario.question, scenario.source, str(len(scenario.cases))]
            for scenario in SCENARIOS.values()
        ]
        print(format_table(["name", "question", "source", ">targets"], rows))
        return 0
    scenario = find_scenario(arguments.name)
    plan = dataclasses.replace(
        planned(scenario, arguments), predictors=tuple(predictor_names(arguments.predictors or scenario.predictors))
    )
    title = f"{scenario.name}: {scenario.question} ({scenario.source})"
    return run_and_report(plan, arguments, arguments.corpus, title)


def planned(scenario: Scenario, arguments: argparse.Namespace) -> TrialPlan:
    """A scenario with its tables: those of the corpora, and simulated ones where the corpora have none."""
    measured = [table for path in arguments.corpus for table in load_tables(path)]
    plan = make_plan(
        scenario, measured, functools.partial(simulated, seed=arguments.seed), named_modes, arguments.limit
    )
    return dataclasses.replace(plan, repeats=arguments.repeats, seed=arguments.seed)


def named_modes(device: str) -> Dict[str, PowerMode]:
    return load_board(device).modes_by_name()


def simulated(source: ProfileSource, modes: Optional[np.ndarray] = None, *, seed: int = 0) -> Table:
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
    settings = {"batch_size": source.batch_size, "task": source.task, "seed": seed, "instance": source.instance}
    rows = simulate_corpus(source.device, source.workload, chosen, noise=False, **settings)
    (table,) = tables_of(rows)
    if source.minibatches is not None:
        name = f"{source.device}@{source.instance}" if source.instance else source.device
        where = rows[0]["workers"], "ssd", source.batch_size, Settings(seed=seed), source.task
        named = [NamedMode(mode.name, mode) for mode in chosen]
        entries = np.stack([_entries(Case(name, source.workload, each, *where)) for each in named])
        return dataclasses.replace(table, entries=entries).first_minibatches(source.minibatches)
    random = np.random.default_rng([seed, source.instance, MINIBATCHES])
    time, power = repetition_factors(load_simulated_board(source.device), random, len(table))
    return dataclasses.replace(table, time_ms=table.time_ms * time, power_mw=table.power_mw * power)


@functools.lru_cache(maxsize=10_000)
def _entries(case: Case) -> np.ndarray:
    """As in `entries_of`; cached, because the profile may be truncated to several lengths."""
    return entries_of(SimulatedDevice(case.device).profile(case))
