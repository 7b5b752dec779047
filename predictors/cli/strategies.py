"""`strategies evaluate`: the papers' contest of strategies under power budgets."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.cli.options import output_file, output_folder, whole_numbers, write_json
from harness.core.errors import CannotRunError
from harness.core.measured_tables import corpus_file
from harness.core.terminal import format_table
from harness.core.units import mw_to_w
from predictors.cli.options import counting, numbers, refuse_below
from predictors.cli.prior import LEFT_OUT, priors_without
from predictors.models.base import ALL, DEFAULT_BATCH_SIZE, TASKS
from predictors.models.tables import Table, find_table
from predictors.models.vendor_estimate import estimated_boards
from predictors.search.corpora import load_tables
from predictors.search.recommend import minibatches_of_training
from predictors.strategies.evaluation import ContestRun, JudgedChoices, contest_runs, results, run_contest
from predictors.strategies.fixed import VendorPreset, presets_of
from predictors.strategies.goals import OBJECTIVES, Goal, budget_goals
from predictors.strategies.registry import STRATEGIES, StrategySetting, strategy_names

_COLUMNS: Tuple[Tuple[str, str], ...] = (
    ("penalty_median", "median"),
    ("penalty_mean", "mean"),
    ("penalty_max", "max"),
    ("over_limit_pct", "A/L %"),
    ("over_limit_plus1_pct", "A/L+1 %"),
    ("violations_pct", "viol %"),
    ("area_w", "area W"),
)

SPREAD, SPREAD_OVER = "spread", (0.05, 0.95)
"""Budgets spread over a table's powers, between these quantiles."""
NO_BUDGET = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "choose power modes under power budgets, and compare the choices with the best modes"
    evaluate = actions.add_parser("evaluate", help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = "\n".join(f"  {name:<12} {kind.meaning}" for name, kind in STRATEGIES.items())
    evaluate.description = f"{text}.\n\nstrategies:\n{listed}"
    add = evaluate.add_argument
    add("--corpus", type=corpus_file, nargs="+", required=True, metavar="FILE", help="CSV or Parquet, with all modes")
    add("--reference-corpus", type=corpus_file, metavar="FILE", help="the file with --reference, if another")
    add("--reference", metavar="W[,W]", help="the workloads that transfer predictors start from")
    add("--leave-out", choices=tuple(LEFT_OUT), help="use a prior learned without the target's network or board")
    add("--target", metavar="W[,W]", help="workloads to choose for (default: all)")
    add("--task", choices=(*TASKS, ALL), default=TASKS[0], help="tables of this task (default: %(default)s)")
    add(
        "--goal",
        choices=tuple(OBJECTIVES),
        help="what to minimise (default: time; throughput for tables with several batch sizes)",
    )
    add(
        "--latency-limits",
        metavar="MS[,MS]",
        help="of the minibatch time, each with each budget; with --task all, for inference",
    )
    add("--strategies", default=ALL, metavar="LIST", help="comma list, or all (default)")
    add(
        "--budgets",
        default="17:50:1",
        metavar="A:B:STEP",
        help="in W; spread:N for N budgets over the powers of each table; none (default: 17:50:1, 001 5.2)",
    )
    add("--profiles", default="15", metavar="N[,N]", help="modes that may be profiled (default: 15)")
    add("--repeats", type=int, default=5, metavar="N", help="runs with other seeds (default: 5)")
    add(
        "--risk",
        type=float,
        metavar="P",
        default=0.05,
        help="of one-shot: probability of breaking a limit (default: 0.05)",
    )
    add("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    add("--json", type=output_file, metavar="OUT", help="write all figures")
    add("--plots", type=output_folder, metavar="DIR", help="draw the papers' plots (needs matplotlib)")


def run(arguments: argparse.Namespace) -> int:
    names = strategy_names(arguments.strategies)
    profiles = whole_numbers("--profiles", arguments.profiles, "10,15,50")
    refuse_below(1, arguments, "repeats", "jobs")
    tables = [table for path in arguments.corpus for table in load_tables(path)]
    elsewhere = load_tables(arguments.reference_corpus) if arguments.reference_corpus else tables
    names_of_references = arguments.reference.split(",") if arguments.reference else []
    tasks_of_reference = {table.task for table in elsewhere if table.workload in names_of_references}
    column = LEFT_OUT.get(arguments.leave_out)
    priors = priors_without(tables, arguments.leave_out, arguments.jobs) if column else {}
    contests = []
    for table in _targets(tables, arguments.target, arguments.task):
        references: Tuple[Table, ...] = ()
        if names_of_references and (arguments.task != ALL or table.task in tasks_of_reference):
            others = [find_table(elsewhere, name, table.task).usable() for name in names_of_references]
            references = tuple(other.with_clocks() for other in others if other.fingerprint != table.fingerprint)
        setting = StrategySetting(
            device=table.device,
            references=references,
            presets=presets_of(table.device),
            risk=arguments.risk,
            hierarchy=priors[getattr(table, column)] if column else None,
        )
        left_out = _left_out(setting, table.power_limit_mw is not None)
        for name in (name for name in names if name in left_out):
            print(f"note: {name} is skipped for {table.workload}: {left_out[name]}", file=sys.stderr)
        kept = [name for name in names if name not in left_out]
        runs = contest_runs(kept, [table], profiles, arguments.repeats)
        contests.append((table, _goals(arguments, table), setting, runs))
    total = sum(len(runs) for *_, runs in contests)
    if not total:
        raise CannotRunError("no strategy is left to run", "see the reasons above")
    count = counting(total)

    def show(run: ContestRun) -> None:
        count(f"{run.strategy}, {run.target.workload}, {run.profiles} profiles")

    rows: List[Dict[str, Any]] = []
    outcomes: Dict[Tuple[str, str], JudgedChoices] = {}
    for table, goals, setting, runs in contests:
        here = run_contest(runs, goals, setting, arguments.jobs, show)
        lengths = {table.workload: minibatches_of_training(table.workload, DEFAULT_BATCH_SIZE)}
        rows += results(here, [table], len(goals), setting.presets, lengths if table.task == TASKS[0] else {})
        outcomes.setdefault((table.device, table.task), {}).update(here)
    notes = list(dict.fromkeys(note for _, _, setting, _ in contests for note in notes_on(setting.presets)))
    print("\n".join([format_results(rows), *(f"note: {note}" for note in notes)]))
    if arguments.json:
        corpus = " ".join(map(str, arguments.corpus))
        about = {"corpus": corpus, "reference": arguments.reference, "budgets_w": arguments.budgets}
        about.update(repeats=arguments.repeats, risk=arguments.risk, notes=notes, task=arguments.task)
        objectives = sorted({_objective(arguments, table) for table, *_ in contests})
        write_json(arguments.json, {**about, "goal": ", ".join(objectives), "results": rows})
    if arguments.plots:
        from predictors.strategies.plots import draw

        for (device, task), of_group in outcomes.items():
            targets = [table for table, *_ in contests if (table.device, table.task) == (device, task)]
            folder = arguments.plots if len(outcomes) == 1 else arguments.plots / f"{device}-{task}"
            for path in draw(of_group, targets, folder):
                print(f"wrote {path}")
    return 0


def _targets(tables: Sequence[Table], workloads: Optional[str], task: str) -> List[Table]:
    """The tables to choose in, reduced to rows with measured power."""
    tasks, names = TASKS if task == ALL else (task,), workloads.split(",") if workloads else []
    targets = [
        table for table in tables if table.task in tasks and table.has_power and (not names or table.workload in names)
    ]
    lacking = [name for name in names if name not in {table.workload for table in targets}]
    if lacking or not targets:
        of = ", ".join(lacking) or "any workload"
        raise CannotRunError(f"the corpora have no {' or '.join(tasks)} of {of} with power")
    return [table.complete() for table in targets]


def _objective(arguments: argparse.Namespace, table: Table) -> str:
    return arguments.goal or ("throughput" if len(set(table.batch_size.tolist())) > 1 else "time")


def _goals(arguments: argparse.Namespace, table: Table) -> List[Goal]:
    limits, budgets = arguments.latency_limits, arguments.budgets
    latencies_ms = numbers("--latency-limits", limits, "50,200") if limits else ()
    if arguments.task == ALL and table.task == TASKS[0]:
        latencies_ms = ()
    kind, _, count = budgets.partition(":")
    if kind == SPREAD:
        (count,) = whole_numbers("--budgets", count, f"{SPREAD}:8")
        low, high = np.quantile(table.power_mw, SPREAD_OVER)
        budgets = ",".join(f"{mw_to_w(value):.2f}" for value in np.linspace(low, high, count))
    if budgets == NO_BUDGET:
        return [Goal(OBJECTIVES[_objective(arguments, table)])]
    return budget_goals(budgets, OBJECTIVES[_objective(arguments, table)], latencies_ms)


def _left_out(setting: StrategySetting, has_limits: bool) -> Dict[str, str]:
    """The strategies that cannot run here, and why."""
    reasons = {}
    if not setting.presets:
        reasons["presets"] = f"the presets of {setting.device} are unknown"
    if setting.device not in estimated_boards():
        reasons["npe"] = f"the figures of the module {setting.device} are unknown"
    if not setting.references:
        reasons["powertrain"] = "it needs a reference workload other than the target: --reference W"
    if not has_limits:
        reasons["zeus"] = "it profiles power limits, and the table has none"
    return reasons


def notes_on(presets: Sequence[VendorPreset]) -> List[str]:
    """Caveats of figures with presets; empty if all use the whole GPU."""
    smaller = [preset.name for preset in presets if preset.has_less_gpu]
    note = "switch a part of the GPU off at boot; here they are represented by their clocks with the whole GPU"
    return [f"{', '.join(smaller)} {note}, which is faster and draws more"] if smaller else []


def format_results(rows: Sequence[Dict[str, Any]]) -> str:
    """The contest as a table: penalties in %, shares in %, area in W, profiling time."""
    figures = (f">{title}" for _, title in _COLUMNS)
    several = len({(row["device"], row["task"]) for row in rows}) > 1
    header = ["strategy", "target", ">profiles", *figures, ">infeasible", ">time spent", ">hours saved"]
    body = [
        [
            row["strategy"],
            f"{row['device']}/{row['target']}/{row['task']}" if several else row["target"],
            str(row["profiles"]),
            *("-" if row[name] is None else f"{row[name]:.1f}" for name, _ in _COLUMNS),
            f"{row['infeasible']}/{row['choices']}",
            f"{row['profiling_seconds'] / 60:.1f} min",
            "-" if row["hours_saved_vs_presets"] is None else f"{row['hours_saved_vs_presets']:.1f}",
        ]
        for row in rows
    ]
    provenance = ", ".join(sorted({row["provenance"] for row in rows}))
    legend = "hours saved: over the papers' training, against the best preset for the same budget"
    title = f"time penalty in % (median, mean, max), tables {provenance}"
    missed = [
        f"missed by {row['strategy']} with {row['profiles']} profiles, {row['target']}: {', '.join(row['missed'])}"
        for row in rows
        if row["missed"]
    ]
    return "\n".join([title, format_table(header, body), legend, *missed])
