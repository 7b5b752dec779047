"""`python -m predictors published`: the papers' own errors beside what the predictors here get in the same place."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from harness.cli.options import write_json
from harness.core.boards import load_board
from harness.core.environment import describe_environment
from harness.core.errors import UnknownNameError
from harness.core.terminal import format_table
from harness.core.units import KHZ_PER_MHZ, share_to_percent
from predictors.cli.evaluate import add_run_arguments, run_trials
from predictors.cli.scenario import add_table_arguments, named_modes, planned
from predictors.evaluation import Target
from predictors.models.base import DEFAULT, predictor_names
from predictors.models.linear import PAPERS_SUBSET, ranked_subsets
from predictors.published import (
    CONFIRMED,
    CONTRADICTED,
    SLACK,
    TEN_MODES,
    UNDECIDED,
    PublishedError,
    compare,
    read_published,
)
from predictors.scenarios import Scenario, ScenarioCase
from predictors.trials import Group, TrialPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "exit code: 0 no published error is contradicted, 1 one is, 2 refused"
    add = parser.add_argument
    add("--predictors", metavar="LIST", help="only errors of these (default: all that papers have)")
    add("--fact", action="append", default=[], metavar="F123", help="only this error; may be given again")
    add_table_arguments(parser)
    add_run_arguments(parser, repeats=3, plots=False)


def run(arguments: argparse.Namespace) -> int:
    rows = read_published()
    if arguments.predictors:
        names = predictor_names(arguments.predictors)
        rows = [row for row in rows if row.predictor in names]
    if arguments.fact:
        rows = [row for row in rows if row.fact in arguments.fact]
    if not rows:
        raise UnknownNameError(
            "no published error is of these predictors and facts", "leave out --predictors or --fact"
        )
    plan, wanted = _plan(rows, arguments)
    found = run_trials(plan, arguments)
    compared = compare(rows, [(found.by_group.get(same), found.by_group.get(ours)) for same, ours in wanted])
    print(format_compared(compared))
    same = [plan.targets[group.target] for group, _ in wanted]
    learned = [target for row, target in zip(rows, same) if (row.predictor, row.tested) == ("linear", TEN_MODES)]
    if learned:
        print(format_subsets(learned))
    counted = Counter(one["verdict"] for one in compared)
    print(", ".join(f"{counted[verdict]} {verdict}" for verdict in (CONFIRMED, CONTRADICTED, UNDECIDED)))
    near = f"the bounds of a figure are {share_to_percent(SLACK):.0f} % around it, of a bound what it allows"
    print(f"confirmed: the same predictor's quartiles lie within the bounds here, contradicted: beyond one; {near}")
    if arguments.json:
        write_json(arguments.json, {"environment": describe_environment(), "errors": compared})
    return int(counted[CONTRADICTED] > 0)


def format_compared(compared: Sequence[Dict[str, Any]]) -> str:
    """A line for each published error."""
    titles = ("fact", "predictor", "target", "reference", ">modes", "error", ">published %", ">bounds", ">here %")
    rows = []
    for one in compared:
        target = one["workload"] if one["batch_size"] == 16 else f"{one['workload']}/{one['batch_size']}"
        reached = ["-" if one[name] is None else f"{one[name]:.1f}" for name in ("same_predictor_pct", "best_pct")]
        ends = (one["bounds_pct"], one["quartiles_pct"])
        between = ["-" if None in pair else f"{pair[0]:.1f}-{pair[1]:.1f}" for pair in ends]
        about = [one["fact"], one["predictor"], f"{target} {one['device']}", one["reference"] or "-", one["modes"]]
        about += [one["metric"].partition("_")[0], one["published"], between[0], reached[0], between[1], reached[1]]
        rows.append([*about, one["provenance"] or "-", one["verdict"]])
    return format_table([*titles, ">Q1-Q3", f">{DEFAULT} %", "on", "verdict"], rows)


def format_subsets(targets: Sequence[Target]) -> str:
    """Which four of the ten modes time is learned best from here, and where the paper's choice comes (004 sec. 5.7)."""
    modes = targets[0].table.modes
    inputs = np.column_stack([modes[:, 0], modes[:, 1:] / KHZ_PER_MHZ])
    ranked = ranked_subsets(inputs, np.column_stack([target.table.time_ms for target in targets]))
    named = named_modes(targets[0].table.device)
    names = {tuple(named[name]): name for name in "abcdefghij"}
    (error, best), papers = ranked[0], tuple(sorted(targets[0].fitted.tolist()))
    place, theirs = next((place, off) for place, (off, taken) in enumerate(ranked, 1) if taken == papers)
    most = ", ".join(sorted(names[tuple(row)] for row in modes[list(best)].tolist()))
    return (
        f"of {len(ranked)} subsets of four modes {most} teach most: {error:.0f} ms; the paper's, "
        f"{', '.join(PAPERS_SUBSET)}, come at place {place}: {theirs:.0f} ms "
        f"(sum of root mean square errors, {targets[0].table.provenance})"
    )


def _plan(rows: Sequence[PublishedError], arguments: argparse.Namespace) -> Tuple[TrialPlan, List[Tuple[Group, Group]]]:
    """What to run for the rows, each test once, and for each row its groups: of the same predictor, and of ours."""
    cases: List[ScenarioCase] = []
    wanted: List[Tuple[Group, Group]] = []
    for row in rows:
        case = row.case(load_board(row.device).power_mode_space().greatest)
        if case not in cases:
            cases.append(case)
        place = cases.index(case)
        wanted.append((Group(row.predictor, place, row.count), Group(DEFAULT, place, row.count)))
    groups = tuple(dict.fromkeys(group for pair in wanted for group in pair))
    plan = planned(Scenario("published", "", "", tuple(cases)), arguments)
    return dataclasses.replace(plan, chosen=groups), wanted
