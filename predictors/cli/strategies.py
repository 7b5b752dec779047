"""`strategies evaluate`: the papers' contest of strategies under power budgets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from harness.cli.options import output_file, output_folder, whole_numbers, write_json
from harness.core.errors import CannotRunError
from harness.core.terminal import format_table
from harness.workloads import get_workload
from predictors.cli.options import counting, numbers, refuse_below
from predictors.models.base import ALL, DEFAULT_BATCH_SIZE, TASKS
from predictors.models.tables import Table, find_table, load_tables
from predictors.models.vendor_estimate import estimated_boards
from predictors.strategies.evaluation import contest_runs, results, run_contest
from predictors.strategies.fixed import VendorPreset, presets_of
from predictors.strategies.goals import OBJECTIVES, budget_goals
from predictors.strategies.registry import STRATEGIES, StrategySetting, strategy_names

EPOCHS: Dict[str, int] = {"resnet18-imagenet": 120, "yolov8n-coco": 200, "mobilenetv3-gld23k": 148}
"""Epochs to convergence that 001 sec. 1.4 and 3.1 use."""

_COLUMNS: Tuple[Tuple[str, str], ...] = (
    ("penalty_median", "median"),
    ("penalty_mean", "mean"),
    ("penalty_max", "max"),
    ("over_limit_pct", "A/L %"),
    ("over_limit_plus1_pct", "A/L+1 %"),
    ("violations_pct", "viol %"),
    ("area_w", "area W"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "choose power modes under power budgets, and hold the choices against the truth"
    evaluate = actions.add_parser("evaluate", help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = "\n".join(f"  {name:<12} {kind.meaning}" for name, kind in STRATEGIES.items())
    evaluate.description = f"{text}.\n\nstrategies:\n{listed}"
    add = evaluate.add_argument
    add("--corpus", type=Path, required=True, metavar="FILE", help="CSV or Parquet, all modes known")
    add("--reference-corpus", type=Path, metavar="FILE", help="where --reference is, if elsewhere")
    add("--reference", metavar="W", help="workload that transfer predictors start from")
    add("--target", required=True, metavar="W[,W]", help="workloads to choose for")
    add("--task", choices=TASKS, default=TASKS[0], help="which of their tables (default: %(default)s)")
    add(
        "--goal",
        choices=tuple(OBJECTIVES),
        help="what to make small (default: time; throughput where tables have several batch sizes)",
    )
    add("--latency-limits", metavar="MS[,MS]", help="limits of the minibatch time, each beside each budget")
    add("--strategies", default=ALL, metavar="LIST", help="comma list, or all (default)")
    add("--budgets", default="17:50:1", metavar="A:B:STEP", help="in W (default: 17:50:1, 001 5.2)")
    add("--profiles", default="15", metavar="N[,N]", help="modes that may be profiled (default: 15)")
    add("--repeats", type=int, default=5, metavar="N", help="runs with other seeds (default: 5)")
    add("--risk", type=float, metavar="P", default=0.05, help="of one-shot: chance to break a limit (default: 0.05)")
    add("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    add("--json", type=output_file, metavar="OUT", help="write all figures")
    add("--plots", type=output_folder, metavar="DIR", help="draw the papers' plots (needs matplotlib)")


def run(arguments: argparse.Namespace) -> int:
    names = strategy_names(arguments.strategies)
    profiles = whole_numbers("--profiles", arguments.profiles, "10,15,50")
    refuse_below(1, arguments, "repeats", "jobs")
    tables = load_tables(arguments.corpus)
    targets = [find_table(tables, workload, arguments.task) for workload in arguments.target.split(",")]
    references: Tuple[Table, ...] = ()
    if arguments.reference:
        elsewhere = load_tables(arguments.reference_corpus) if arguments.reference_corpus else tables
        references = (find_table(elsewhere, arguments.reference, arguments.task),)
    sizes = max(len(set(table.batch_size.tolist())) for table in targets)
    limits = arguments.latency_limits
    latencies_ms = numbers("--latency-limits", limits, "50,200") if limits else ()
    goal = arguments.goal or ("throughput" if sizes > 1 else "time")
    goals = budget_goals(arguments.budgets, OBJECTIVES[goal], latencies_ms)
    setting = StrategySetting(references=references, presets=presets_of(targets[0].device), risk=arguments.risk)
    for name, why in _left_out(setting, targets).items():
        if name in names:
            print(f"note: {name} is left out: {why}", file=sys.stderr)
            names.remove(name)
    if not names:
        raise CannotRunError("no strategy is left to run", "the reasons stand above")
    runs = contest_runs(names, targets, profiles, arguments.repeats)
    show = counting(len(runs))
    found = run_contest(
        runs,
        goals,
        setting,
        arguments.jobs,
        lambda run: show(f"{run.strategy}, {run.target.workload}, {run.profiles} profiles"),
    )
    lengths = {table.workload: minibatches_of_training(table.workload, DEFAULT_BATCH_SIZE) for table in targets}
    rows = results(found, targets, len(goals), setting.presets, lengths)
    notes = notes_on(setting.presets)
    print("\n".join([format_results(rows), *(f"note: {note}" for note in notes)]))
    if arguments.json:
        said = {"corpus": str(arguments.corpus), "reference": arguments.reference, "budgets_w": arguments.budgets}
        said.update(repeats=arguments.repeats, risk=arguments.risk, notes=notes, task=arguments.task, goal=goal)
        write_json(arguments.json, {**said, "results": rows})
    if arguments.plots:
        from predictors.strategies.plots import draw

        for path in draw(found, targets, arguments.plots):
            print(f"wrote {path}")
    return 0


def minibatches_of_training(workload: str, batch_size: int, epochs: Optional[float] = None) -> Optional[float]:
    """Minibatches of a whole training on the real data set, by default of as many epochs as the papers use.

    None where nobody says how many epochs there are.
    """
    epochs = epochs if epochs is not None else EPOCHS.get(workload)
    return None if epochs is None else epochs * (get_workload(workload).real_samples // batch_size)


def _left_out(setting: StrategySetting, targets: Sequence[Table]) -> Dict[str, str]:
    """The strategies that cannot run here, and why."""
    reasons, device = {}, targets[0].device
    own = {table.fingerprint for table in setting.references}
    if not setting.presets:
        reasons["presets"] = f"the presets of {device} are not known"
    if device not in estimated_boards():
        reasons["npe"] = f"no figures of the module {device} are known"
    if not setting.references or any(table.fingerprint in own for table in targets):
        reasons["powertrain"] = "it starts from a reference workload that is no target: --reference W"
    return reasons


def notes_on(presets: Sequence[VendorPreset]) -> List[str]:
    """What a reader must know of figures that presets enter into; nothing where all have the whole GPU."""
    smaller = [preset.name for preset in presets if preset.has_less_gpu]
    note = "switch a part of the GPU off at boot; here their clocks stand for them with all of it"
    return [f"{', '.join(smaller)} {note}, which is faster and draws more"] if smaller else []


def format_results(rows: Sequence[Dict[str, Any]]) -> str:
    """The contest as a table: penalties in %, shares in %, area in W, what was spent."""
    figures = (f">{title}" for _, title in _COLUMNS)
    header = ["strategy", "target", ">profiles", *figures, ">infeasible", ">time spent", ">hours saved"]
    body = [
        [
            row["strategy"],
            row["target"],
            str(row["profiles"]),
            *("-" if row[name] is None else f"{row[name]:.1f}" for name, _ in _COLUMNS),
            f"{row['infeasible']}/{row['choices']}",
            f"{row['profiling_seconds'] / 60:.1f} min",
            "-" if row["hours_saved_vs_presets"] is None else f"{row['hours_saved_vs_presets']:.1f}",
        ]
        for row in rows
    ]
    provenance = ", ".join(sorted({row["provenance"] for row in rows}))
    legend = "hours saved: over the training that the papers assume, against the best preset for the same budget"
    title = f"time penalty in % (median, mean, max), tables {provenance}"
    missed = [
        f"missed by {row['strategy']} with {row['profiles']} profiles, {row['target']}: {', '.join(row['missed'])}"
        for row in rows
        if row["missed"]
    ]
    return "\n".join([title, format_table(header, body), legend, *missed])
