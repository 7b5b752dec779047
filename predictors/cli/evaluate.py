"""`evaluate`: how far each predictor is off, by the papers' protocol and the stricter one.

001 sec. 3.1 found its networks by scikit-learn's GridSearchCV and prints what it found, not the grid. The grids here
lie around that, with what the paper leaves open. Combinations are ranked by errors on modes not used to fit.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.cli.options import output_file, output_folder, write_json
from harness.core.environment import describe_environment
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.workloads import get_workload
from harness.workloads.counting import counted_alone
from predictors.cli.options import counting, processes, refuse_below
from predictors.evaluation import Target
from predictors.models.base import ALL, TASKS, predictor_names
from predictors.models.networks import HIDDEN, LOSSES
from predictors.models.persistence import file_sha256
from predictors.models.regression import SCALES
from predictors.models.tables import Table, find_table
from predictors.plots import write_plots
from predictors.sampling import SAMPLERS
from predictors.search.corpora import load_tables, note_on_medians
from predictors.trials import Results, TrialPlan, format_results, format_skipped, run_plan

if TYPE_CHECKING:
    from predictors.models.physical_gp.prior import Counts, Hierarchy

TRAINING = {"epochs": (50, 100, 200), "learning_rate": (3e-4, 1e-3, 3e-3), "dropout": (0.0, 0.1, 0.2)}
GRIDS: Dict[str, Dict[str, Sequence[Any]]] = {
    "nn": {**TRAINING, "hidden": ((128, 64), HIDDEN, (512, 256, 128)), "scaling": SCALES},
    "powertrain": {**TRAINING, "loss": LOSSES, "frozen": (0, 1, 2)},
}
Combination = Dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--corpus", type=Path, required=True, metavar="FILE", help="of the targets: a corpus or a results file")
    add("--target", required=True, metavar="W[,W]", help="workloads to predict")
    add("--predictors", default=ALL, metavar="LIST", help=f"names with commas, or {ALL} (default)")
    add_learning_arguments(parser, modes="50")
    add(
        "--grid", nargs="*", metavar="NAME=V[,V]",
        help="search the hyperparameters of nn or powertrain: test every combination and name the best; of names given "
        "these values (epochs=100,200), of the others all that are tried by default",
    )  # fmt: skip
    add_run_arguments(parser, repeats=10)


def add_learning_arguments(parser: argparse.ArgumentParser, modes: str) -> None:
    add = parser.add_argument
    add("--reference", default="", metavar="W[,W]", help="reference workloads; none is used for itself as the target")
    add("--reference-corpus", type=Path, metavar="FILE", help="where their profiles are (default: --corpus)")
    add("--loss", choices=LOSSES, help="that networks are trained with (default: mse, as in most of the paper)")
    add("--prior", type=Path, metavar="FILE", help="what `prior learn` wrote (default: the prior of the suite)")
    add("--task", choices=TASKS, default=TASKS[0], help="default: %(default)s")
    add(
        "--modes", default=modes, metavar="N[,N]",
        help="modes to fit on: 10,20,50,100,all (default: %(default)s); of 0, networks are counted by torch",
    )  # fmt: skip
    add("--sampling", choices=tuple(SAMPLERS), default="random", help="how they are chosen (default: %(default)s)")


def add_run_arguments(parser: argparse.ArgumentParser, repeats: int, plots: bool = True) -> None:
    add = parser.add_argument
    add("--repeats", type=int, default=repeats, help="each with other modes (default: %(default)s)")
    add("--seed", type=int, default=0, help="the same seed draws the same modes (default: 0)")
    add("--jobs", type=int, metavar="N", help="processes at once (default: as many as there are CPUs)")
    add("--json", type=output_file, metavar="OUT", help="write the results")
    if plots:
        add("--plots", type=output_folder, metavar="DIR", help="write the papers' plots (needs matplotlib)")


def run(arguments: argparse.Namespace) -> int:
    tables = load_tables(arguments.corpus)
    references = load_references(arguments, tables)
    targets = [find_table(tables, name, arguments.task) for name in arguments.target.split(",")]
    modes = parse_counts(arguments.modes)
    counts = count_networks([*targets, *references]) if 0 in modes else None
    plan = TrialPlan(
        predictors=tuple(predictor_names(arguments.predictors)),
        targets=tuple(
            dataclasses.replace(make_target(table, references, load_prior(arguments), counts), params=asked(arguments))
            for table in targets
        ),
        counts=modes,
        repeats=arguments.repeats,
        sampling=arguments.sampling,
        seed=arguments.seed,
    )
    files = [arguments.corpus, *([arguments.reference_corpus] if arguments.reference_corpus else [])]
    if arguments.grid is None:
        return run_and_report(plan, arguments, files)
    combinations = grid_of(plan, arguments.grid)
    plan = with_params(plan, combinations)
    return run_and_report(plan, arguments, files, conclude=lambda found: best_of(combinations, found))


def run_trials(plan: TrialPlan, arguments: argparse.Namespace) -> Results:
    """Run a plan, with progress and what was skipped on standard error."""
    refuse_below(1, arguments, "repeats", "jobs")
    note_on_medians([group.predictor for group in plan.groups()], [target.table for target in plan.targets])
    show = counting(len(plan.groups()) * plan.repeats)
    found = run_plan(plan, processes(arguments), lambda done, total, what: show(what))
    if found.skipped:
        print(format_skipped(found.skipped), file=sys.stderr)
    return found


def run_and_report(
    plan: TrialPlan,
    arguments: argparse.Namespace,
    files: Sequence[Path] = (),
    title: str = "",
    conclude: Callable[[Results], str] = lambda found: "",
) -> int:
    found = run_trials(plan, arguments)
    if title:
        print(title)
    if found.results:
        print(format_results(found.results))
        print(conclude(found), end="")
    if arguments.json:
        corpora = [{"file": path.name, "sha256": file_sha256(path)} for path in files]
        about = {"corpora": corpora, "seed": plan.seed, "title": title, "environment": describe_environment()}
        write_json(arguments.json, {**about, "results": found.results, "skipped": found.skipped})
    if arguments.plots is not None and found.results:
        for path in write_plots(arguments.plots, plan, found.results):
            print(f"wrote {path}")
    if not found.results:
        raise CannotRunError("no predictor could be tested", "the reasons stand above")
    return 0


def asked(arguments: argparse.Namespace) -> Dict[str, str]:
    return {} if arguments.loss is None else {"loss": arguments.loss}


def load_references(arguments: argparse.Namespace, tables: Sequence[Table]) -> Tuple[Table, ...]:
    if not arguments.reference:
        return ()
    there = load_tables(arguments.reference_corpus) if arguments.reference_corpus else tables
    return tuple(find_table(there, name, arguments.task).usable() for name in arguments.reference.split(","))


def load_prior(arguments: argparse.Namespace) -> Optional[Hierarchy]:
    if not arguments.prior:
        return None
    from predictors.models.physical_gp.prior import read_hierarchy

    return read_hierarchy(arguments.prior)


def count_networks(tables: Sequence[Table]) -> Dict[str, Counts]:
    """What networks compute, by workload, counted by torch; those that the suite does not know are left out."""
    from predictors.models.physical_gp.prior import Counts

    found = {}
    for name in dict.fromkeys(table.workload for table in tables):
        try:
            workload = get_workload(name)
        except UnknownNameError as error:
            print(f"note: {name} is not counted: {error}", file=sys.stderr)
            continue
        counted, _ = counted_alone(workload)
        found[name] = Counts(*(float(getattr(counted, field)) for field in Counts._fields))
    return found


def unprofiled_target(name: str, references: Sequence[Table], hierarchy: Optional[Hierarchy] = None) -> Target:
    """A workload, `module:NAME` or the suite's, that was never profiled on the board of the references."""
    if not references:
        raise InvalidValueError(f"nothing is known of the board that {name} is to run on", "name references on it")
    table = dataclasses.replace(references[0].take(slice(0)), workload=get_workload(name).name)
    return Target(table, tuple(references), hierarchy=hierarchy, counts=count_networks([table, *references]))


def make_target(
    table: Table,
    references: Sequence[Table],
    hierarchy: Optional[Hierarchy] = None,
    counts: Optional[Dict[str, Counts]] = None,
) -> Target:
    """A target with the references that hold no profile of its own, and tell of power where it does."""
    usable = table.usable()
    if len(usable) < 2:
        what = "profiles with power" if table.has_power else "profiles"
        raise InvalidValueError(
            f"{table.workload} on {table.device} has {len(usable)} {what}", "one to learn from and one to test on"
        )
    telling = [one for one in references if one.has_power or not usable.has_power]
    kept = tuple(one for one in telling if not one.overlaps(usable))
    return Target(usable, kept, hierarchy=hierarchy, counts=counts)


def parse_counts(text: str) -> Tuple[Optional[int], ...]:
    """Numbers of modes from a list with commas; None for `all`."""
    counts: List[Optional[int]] = []
    for word in text.split(","):
        if word != ALL and not word.isdecimal():
            raise InvalidValueError(f"--modes holds {word!r}", f"write it like 0,10,20,50,{ALL}")
        counts.append(None if word == ALL else int(word))
    return tuple(dict.fromkeys(counts))


def grid_of(plan: TrialPlan, words: Sequence[str]) -> List[Combination]:
    """All combinations of the grid of a plan's predictor; `NAME=V,V` gives a parameter other values."""
    name = plan.predictors[0]
    if len(plan.predictors) > 1 or name not in GRIDS:
        raise InvalidValueError(f"--grid searches one predictor of {', '.join(GRIDS)}", "as in --predictors nn --grid")
    grid = dict(GRIDS[name])
    for word in words:
        param, _, texts = word.partition("=")
        if param not in grid:
            raise UnknownNameError(f"the grid of {name} has no {param!r}", f"it has {', '.join(grid)}")
        of = type(grid[param][0])
        try:
            grid[param] = [tuple(map(int, one.split("x"))) if of is tuple else of(one) for one in texts.split(",")]
        except ValueError as error:
            hint = f"write it like {param}={','.join(map(shown, grid[param]))}"
            raise InvalidValueError(f"--grid {word} cannot be read: {error}", hint) from error
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def with_params(plan: TrialPlan, combinations: Sequence[Combination]) -> TrialPlan:
    """The plan with each target once for each combination, which its label tells."""
    targets = [
        dataclasses.replace(one, params={**one.params, **params}, label=f"{one.name}, {described(params)}")
        for one in plan.targets
        for params in combinations
    ]
    return dataclasses.replace(plan, targets=tuple(targets))


def best_of(combinations: Sequence[Combination], found: Results) -> str:
    """A line on the combination of least error: the geometric mean of all its median errors, of time and of power."""
    errors: Dict[int, List[float]] = {}
    for group, one in found.by_group.items():
        known = [one[f"{what}_mape_median"] for what in ("time", "power")]
        errors.setdefault(group.target % len(combinations), []).extend(value for value in known if value is not None)
    if not any(errors.values()):
        raise CannotRunError("no combination has an error on modes that were not used to fit", "fit on fewer --modes")
    means = {number: float(np.exp(np.mean(np.log(values)))) for number, values in errors.items()}
    best = min(means, key=lambda number: means[number])
    said = f"{described(combinations[best])}, geometric mean of its errors {means[best]:.2f} %"
    return f"best of {len(means)}: {said}. It was chosen by these errors: elsewhere it errs more\n"


def described(params: Combination) -> str:
    return " ".join(f"{name}={shown(value)}" for name, value in params.items())


def shown(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
