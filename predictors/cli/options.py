"""Options shared by the commands that search on a device, and checks of options."""

from __future__ import annotations

import argparse
import inspect
import math
from pathlib import Path
from typing import Any, Callable, List, TypeVar, Union

from harness.cli.options import progress_report
from harness.core.cases import DEFAULT_MINIBATCHES
from harness.core.configuration import DEFAULT_RESULTS, FILE_NAME
from harness.core.corpus import TASKS
from harness.core.environment import usable_cpus
from harness.core.errors import InvalidValueError
from predictors.choose.corpora import Conditions
from predictors.contest.runs import Runs
from predictors.models.base import check_numbers

Some = TypeVar("Some")
Group = Union[argparse.ArgumentParser, argparse._ArgumentGroup]


def add_search_arguments(group: Group, profiles: int) -> None:
    add = group.add_argument
    add("--profiles", type=int, default=profiles, help=f"maximum number of profiles (default: {profiles})")
    add("--minibatches", type=int, default=DEFAULT_MINIBATCHES, help="per profile (default: %(default)s)")
    add("--seed", type=int, default=0, help="the same seed chooses the same modes (default: 0)")
    add(
        "--results",
        type=Path,
        default=DEFAULT_RESULTS,
        metavar="FILE",
        help="file for the profiles (default: %(default)s)",
    )
    add("--config", type=Path, default=Path(FILE_NAME), help="configuration file: paths of storage media and data sets")


def add_conditions(parser: argparse.ArgumentParser) -> None:
    """Options on which profiles of a workload are its table, for `conditions_of`."""
    add = parser.add_argument
    add("--device", help="the device, if the corpus has the workload on several")
    add("--task", choices=TASKS, default=TASKS[0], help="default: %(default)s")
    add("--workers", type=int, metavar="N", help="only profiles with this num_workers of the DataLoader")
    add("--storage", metavar="NAME", help="only profiles with the data set on this medium")


def conditions_of(arguments: argparse.Namespace) -> Conditions:
    """The conditions that a command's options name."""
    return Conditions(
        device=arguments.device, task=arguments.task, workers=arguments.workers, storage=arguments.storage
    )


def refuse_below(least: float, arguments: argparse.Namespace, *names: str, above: bool = False) -> None:
    """Refuse options below a number, or, with `above`, equal to it; None passes."""
    check_numbers(least, above=above, **{name: getattr(arguments, name) for name in names})


def numbers(option: str, text: str, example: str, may_be_0: bool = False) -> List[float]:
    """The numbers of an option's list, each above 0, or with `may_be_0` also 0."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    for value in values or [math.nan]:
        if not (0 < value < math.inf or (may_be_0 and value == 0)):
            finite = "finite " if value == math.inf else ""
            least = "of 0 or more" if may_be_0 else "above 0"
            raise InvalidValueError(
                f"{option} is {text}, expected {finite}numbers {least}", f"as in {option} {example}"
            )
    return values


def runs_of(arguments: argparse.Namespace) -> Runs:
    """The repeats, seed and processes of an evaluation, which shows its progress on standard error."""
    return fields_in(Runs, arguments, jobs=processes(arguments), report=progress_report())


def processes(arguments: argparse.Namespace) -> int:
    return usable_cpus() if arguments.jobs is None else arguments.jobs


def fields_in(concept: Callable[..., Some], arguments: argparse.Namespace, **further: Any) -> Some:
    """A dataclass that a call takes, from the options that have the names of its fields, and further fields."""
    names = inspect.signature(concept).parameters
    given = {name: value for name, value in vars(arguments).items() if name in names}
    return concept(**{**given, **further})
