"""`python -m predictors published`: the papers' own errors beside what the predictors here get in the same place."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from harness.cli.options import write_json
from harness.core.boards import load_board
from harness.core.environment import describe_environment
from harness.core.errors import UnknownNameError
from harness.core.terminal import Progress, format_table
from predictors.cli.evaluate import TrialProgress, jobs_of
from predictors.cli.scenario import named_modes, simulated
from predictors.models.base import DEFAULT, predictor_names
from predictors.models.tables import load_tables
from predictors.published import PublishedError, compare, read_published
from predictors.scenarios import Scenario, ScenarioCase, make_plan
from predictors.trials import Group, TrialPlan, format_skipped, run_plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--corpus", type=Path, action="append", default=[], metavar="FILE",
        help="measured profiles, to be used where they are what a paper measured; may be given again",
    )  # fmt: skip
    add("--predictors", metavar="LIST", help="only errors of these (default: all that papers have)")
    add("--fact", action="append", default=[], metavar="F123", help="only this error; may be given again")
    add("--repeats", type=int, default=3, help="each with other modes (default: 3)")
    add("--limit", type=int, metavar="N", help="at most N modes of each table, for a quick look")
    add("--seed", type=int, default=0, help="the same seed draws the same modes (default: 0)")
    add("--jobs", type=int, metavar="N", help="processes at once (default: as many as there are CPUs)")
    add("--json", type=Path, metavar="OUT", help="write the comparison")


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
    found = run_plan(plan, jobs_of(arguments.jobs), TrialProgress(Progress(sys.stderr)))
    compared = compare(rows, [(found.by_group.get(same), found.by_group.get(ours)) for same, ours in wanted])
    print(format_compared(compared))
    if found.skipped:
        print(format_skipped(found.skipped), file=sys.stderr)
    if arguments.json:
        write_json(arguments.json, {"environment": describe_environment(), "errors": compared})
    return 0


def format_compared(compared: Sequence[Dict[str, Any]]) -> str:
    """A line for each published error."""
    titles = ("fact", "predictor", "target", "reference", ">modes", "error", ">published %", ">here %")
    rows = []
    for one in compared:
        target = one["workload"] if one["batch_size"] == 16 else f"{one['workload']}/{one['batch_size']}"
        reached = ["-" if one[name] is None else f"{one[name]:.1f}" for name in ("same_predictor_pct", "best_pct")]
        about = [one["fact"], one["predictor"], f"{target} {one['device']}", one["reference"] or "-", one["modes"]]
        rows.append([*about, one["metric"].partition("_")[0], one["published"], *reached, one["provenance"] or "-"])
    return format_table([*titles, f">{DEFAULT} %", "on"], rows)


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
    measured = [table for path in arguments.corpus for table in load_tables(path)]
    scenario = Scenario("published", "", "", tuple(cases))
    plan = make_plan(scenario, measured, lambda source: simulated(source, arguments.seed), named_modes, arguments.limit)
    groups = tuple(dict.fromkeys(group for pair in wanted for group in pair))
    return dataclasses.replace(plan, repeats=arguments.repeats, seed=arguments.seed, chosen=groups), wanted
