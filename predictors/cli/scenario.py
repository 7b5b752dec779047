"""`scenario`: the papers' questions to predictors, asked again on measured or simulated boards."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Dict

import numpy as np

from harness.core.boards import load_board
from harness.core.power_modes import PowerMode
from harness.core.terminal import format_table
from harness.simulation.corpus import simulate_corpus
from harness.simulation.parameters import load_board as load_simulated_board
from predictors.cli.evaluate import add_run_arguments, run_and_report
from predictors.models.base import predictor_names
from predictors.models.tables import Table, load_tables, tables_of
from predictors.sampling import MINIBATCHES
from predictors.scenarios import SCENARIOS, ProfileSource, Scenario, find_scenario, make_plan
from predictors.trials import TrialPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", help="which; left out, all are listed")
    add("--predictors", metavar="LIST", help="names with commas, or all (default: those that the paper asks)")
    add_table_arguments(parser)
    add_run_arguments(parser, repeats=10)


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the tables come from."""
    parser.add_argument(
        "--corpus", type=Path, action="append", default=[], metavar="FILE",
        help="measured profiles, to be used where they are what is needed; may be given again",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, metavar="N", help="at most N modes of each table, for a quick look")


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        rows = [[one.name, one.question, one.source, str(len(one.cases))] for one in SCENARIOS.values()]
        print(format_table(["name", "question", "asked by", ">targets"], rows))
        return 0
    scenario = find_scenario(arguments.name)
    plan = dataclasses.replace(
        planned(scenario, arguments), predictors=tuple(predictor_names(arguments.predictors or scenario.predictors))
    )
    title = f"{scenario.name}: {scenario.question} ({scenario.source})"
    return run_and_report(plan, arguments, arguments.corpus, title)


def planned(scenario: Scenario, arguments: argparse.Namespace) -> TrialPlan:
    """A scenario with its tables: those of the corpora, and simulated ones where they lack."""
    measured = [table for path in arguments.corpus for table in load_tables(path)]
    plan = make_plan(scenario, measured, lambda source: simulated(source, arguments.seed), named_modes, arguments.limit)
    return dataclasses.replace(plan, repeats=arguments.repeats, seed=arguments.seed)


def named_modes(device: str) -> Dict[str, PowerMode]:
    """A board's modes by the names that papers give them."""
    return load_board(device).modes_by_name()


def simulated(source: ProfileSource, seed: int = 0) -> Table:
    """What a scenario needs, from a simulated board: the modes that are named, or all of the paper's grid.

    Another instance of a board is slower or faster, and draws more or less, by factors drawn with the spreads that the
    simulated board states. The noise of a profile is taken to fall with the square root of its minibatches, which no
    paper says.
    """
    spec, board = load_board(source.device), load_simulated_board(source.device)
    if source.named:
        modes = [spec.modes_by_name()[name] for name in source.named]
    else:
        modes = list(spec.power_mode_space().paper_grid())
    rows = simulate_corpus(
        source.device, source.workload, modes, batch_size=source.batch_size, task=source.task, seed=seed, noise=False
    )
    (table,) = tables_of(rows)
    apart = np.random.default_rng([seed, source.instance]).standard_normal(2) if source.instance else np.zeros(2)
    noise = np.random.default_rng([seed, source.instance, source.minibatches]).standard_normal((2, len(table)))
    reach = np.sqrt(MINIBATCHES / source.minibatches)
    return dataclasses.replace(
        table,
        time_ms=table.time_ms * np.exp(board.time_spread * apart[0] + reach * board.time_noise * noise[0]),
        power_mw=table.power_mw * np.exp(board.power_spread * apart[1] + reach * board.power_noise * noise[1]),
    )
