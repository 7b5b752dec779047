"""`evaluate`: errors of predictors, by the papers' protocol and the stricter one, and the best of a grid.

001 sec. 3.1 chose its networks by scikit-learn's GridSearchCV and prints the result, not the grid. The grids here
surround that result, and add parameters that the paper leaves open. Combinations are ranked by errors on unseen modes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.corpus import TASKS, listed
from harness.core.environment import describe_environment
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.files import file_sha256
from harness.core.notes import note
from harness.core.terminal import available_hint
from predictors.choose.corpora import Conditions, Corpus, check_conditions, note_on_medians, read_profiles
from predictors.choose.learning import USUAL_LEARNING, Learning, count_networks, load_prior
from predictors.contest.runs import USUAL_RUNS, Runs, repeats_of, tell
from predictors.contest.trials import Results, TrialPlan, format_results, format_skipped, run_plan
from predictors.evaluation import make_target
from predictors.models.base import ALL, check_kind, check_number
from predictors.models.networks import HIDDEN, LOSSES
from predictors.models.registry import predictor_names
from predictors.models.regression import SCALES
from predictors.profiles import find_reference

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack

TRAINING = {"epochs": (50, 100, 200), "learning_rate": (3e-4, 1e-3, 3e-3), "dropout": (0.0, 0.1, 0.2)}
GRIDS: Dict[str, Dict[str, Sequence[Any]]] = {
    "nn": {**TRAINING, "hidden": ((128, 64), HIDDEN, (512, 256, 128)), "scaling": SCALES},
    "powertrain": {**TRAINING, "loss": LOSSES, "frozen": (0, 1, 2)},
}
Combination = Dict[str, Any]


def evaluate(
    corpus: Corpus,
    *,
    target: Union[str, Sequence[str]],
    predictors: Union[str, Sequence[str]] = ALL,
    modes: Union[int, Sequence[Optional[int]], None] = 50,
    learning: Learning = USUAL_LEARNING,
    grid: Optional[Sequence[str]] = None,
    runs: Runs = USUAL_RUNS,
    **conditions: Unpack[Conditions],
) -> Evaluation:
    """Test predictors on a corpus, as `jetwatt evaluate` does.

    Args:
        corpus: a corpus or results with the targets, as for `fit`.
        target: workloads to predict.
        predictors: names, or `all`.
        modes: how many modes to fit on, one or several numbers; None for all but a held-out tenth.
        learning: the reference workloads, another prior or loss, and how the modes are chosen.
        grid: search the hyperparameters of one predictor: `NAME=V,V` replaces the default values of a parameter.
        runs: how often, from which seed, and in how many processes.
        conditions: which profiles of the targets, as for `fit`.

    Returns:
        An evaluation; its `table()` is a DataFrame with errors in %.

    Raises:
        HarnessError: the corpus lacks a workload, or a name is unknown.
    """
    check_conditions(conditions, evaluate)
    check_kind(Learning, learning=learning)
    check_kind(Runs, runs=runs)
    loaded = read_profiles(corpus)
    of_references = loaded if learning.reference_corpus is None else read_profiles(learning.reference_corpus)
    there = of_references.tables()
    targets = [loaded.table(name, conditions) for name in listed(target)]
    task = conditions.get("task", TASKS[0])
    names = listed(learning.reference)
    references = [[find_reference(there, name, task, table.device) for name in names] for table in targets]
    fitted_counts = numbers_of_modes(modes)
    counts = count_networks([*targets, *itertools.chain(*references)]) if 0 in fitted_counts else None
    hierarchy = load_prior(learning.prior)
    params = {} if learning.loss is None else {"loss": learning.loss}
    plan = TrialPlan(
        predictors=tuple(predictor_names(",".join(listed(predictors)))),
        targets=tuple(
            dataclasses.replace(make_target(table, own_references, hierarchy, counts), params=params)
            for table, own_references in zip(targets, references)
        ),
        counts=fitted_counts,
        repeats=repeats_of(runs),
        sampling=learning.sampling,
        seed=runs.seed,
    )
    combinations: List[Combination] = []
    if grid is not None:
        combinations = grid_of(plan, grid)
        plan = with_params(plan, combinations)
    read = [loaded] if of_references is loaded else [loaded, of_references]
    named = [each.file for each in read if each.file is not None]
    return run_evaluation(plan, runs, files=named, combinations=combinations)


def numbers_of_modes(modes: Union[int, Sequence[Optional[int]], None]) -> Tuple[Optional[int], ...]:
    """One or several numbers of modes to fit on, None for all; refused if one is no whole number."""
    each = tuple(modes) if np.iterable(modes) and not isinstance(modes, str) else (modes,)
    for number in each:
        check_number("modes", number, whole=True)
    return each


def run_evaluation(
    plan: TrialPlan,
    runs: Runs = USUAL_RUNS,
    *,
    title: str = "",
    files: Sequence[Path] = (),
    combinations: Sequence[Combination] = (),
) -> Evaluation:
    """Run the trials of a plan; a warning says if a predictor learns from medians only.

    Args:
        plan: what to test.
        runs: in how many processes, and what hears of each trial; the plan has the rest.
        title: of what is tested, for `Evaluation.plain`.
        files: the corpora, likewise.
        combinations: of a grid.
    """
    for text in note_on_medians(
        [group.predictor for group in plan.groups()], [target.table for target in plan.targets]
    ):
        note(text)
    return Evaluation(
        plan, run_plan(plan, runs.jobs, functools.partial(tell, runs)), title, tuple(files), tuple(combinations)
    )


class Evaluation(NamedTuple):
    """Errors of predictors; printed, it is the table of the command."""

    plan: TrialPlan  # the predictors, targets and numbers of modes
    trials: Results  # the errors of each trial
    title: str = ""  # of the table
    files: Tuple[Path, ...] = ()  # the corpora
    combinations: Tuple[Combination, ...] = ()  # of a grid

    def __repr__(self) -> str:
        parts = (format_skipped(self.trials.skipped), self.title, format_results(self.trials.results), self.best)
        return "\n".join(part.rstrip() for part in parts if part)

    def _repr_html_(self) -> str:
        from predictors.choose.notebook import html_table

        shown = {
            "predictor": "predictor",
            "target": "target",
            "device": "device",
            "n_modes": "modes",
            "time_mape_median": "time MAPE (%), median",
            "power_mape_median": "power MAPE (%), median",
            "repeats": "repeats",
            "provenance": "provenance",
        }
        rows = [{title: result.get(name) for name, title in shown.items()} for result in self.trials.results]
        notes = format_skipped(self.trials.skipped), self.best
        return html_table(self.title or "Errors on modes not used to fit", rows, notes)

    @property
    def best(self) -> str:
        """A line on the combination of a grid with the least error; empty without a grid, or if none was tested."""
        means = mean_errors(self.combinations, self.trials) if self.combinations else {}
        return best_of(self.combinations, means) if means else ""

    def refuse_untested(self) -> None:
        """Raise a `CannotRunError` if no predictor, or no combination of a grid, could be tested."""
        if not self.trials.results:
            raise CannotRunError(f"no predictor could be tested: {format_skipped(self.trials.skipped)}")
        if self.combinations and not self.best:
            raise CannotRunError("no combination was tested on unseen modes", "fit on fewer modes=")

    def table(self) -> pd.DataFrame:
        """A row for each predictor, target and number of modes: medians and quartiles of errors in %, times.

        A `CannotRunError` if no predictor could be tested.
        """
        import pandas as pd

        if not self.trials.results:
            self.refuse_untested()
        return pd.json_normalize(self.trials.results, sep="_")

    def plain(self) -> Dict[str, Any]:
        """What `--json` writes: results and skipped trials, with seed, environment and the hashes of the corpora."""
        corpora = [{"file": path.name, "sha256": file_sha256(path)} for path in self.files]
        about = {"corpora": corpora, "seed": self.plan.seed, "title": self.title}
        about["environment"] = describe_environment()
        return {**about, "results": self.trials.results, "skipped": self.trials.skipped}

    def plot(self, folder: Union[str, Path]) -> List[Path]:
        """Write the papers' plots to a folder; returns the files. Needs matplotlib."""
        from predictors.contest.plots import write_plots

        return write_plots(Path(folder), self.plan, self.trials.results)


def grid_of(plan: TrialPlan, words: Sequence[str]) -> List[Combination]:
    """All combinations of the grid of a plan's predictor; `NAME=V,V` gives a parameter other values."""
    name = plan.predictors[0]
    if len(plan.predictors) > 1 or name not in GRIDS:
        raise InvalidValueError(f"grid= takes one predictor of {', '.join(GRIDS)}", "as in predictors='nn'")
    grid = dict(GRIDS[name])
    for word in words:
        param, _, texts = word.partition("=")
        if param not in grid:
            raise UnknownNameError(f"the grid of {name} has no {param!r}", available_hint(param, grid))
        of = type(grid[param][0])
        try:
            grid[param] = [tuple(map(int, text.split("x"))) if of is tuple else of(text) for text in texts.split(",")]
        except ValueError as error:
            hint = f"write it like {param}={','.join(map(format_value, grid[param]))}"
            raise InvalidValueError(f"grid= has {word}, which cannot be read: {error}", hint) from error
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def with_params(plan: TrialPlan, combinations: Sequence[Combination]) -> TrialPlan:
    """The plan with each target once for each combination, which is part of its label."""
    targets = [
        dataclasses.replace(target, params={**target.params, **params}, label=f"{target.name}, {format_params(params)}")
        for target in plan.targets
        for params in combinations
    ]
    return dataclasses.replace(plan, targets=tuple(targets))


def mean_errors(combinations: Sequence[Combination], trials: Results) -> Dict[int, float]:
    """The geometric means of the median errors of time and power, in %, of the combinations tested on unseen modes."""
    errors: Dict[int, List[float]] = {}
    for group, result in trials.by_group.items():
        medians = [result[f"{what}_mape_median"] for what in ("time", "power")]
        errors.setdefault(group.target % len(combinations), []).extend(value for value in medians if value is not None)
    return {number: float(np.exp(np.mean(np.log(values)))) for number, values in errors.items() if values}


def best_of(combinations: Sequence[Combination], means: Mapping[int, float]) -> str:
    """A line on the combination of least error, given their `mean_errors`."""
    best = min(means, key=lambda number: means[number])
    summary = f"{format_params(combinations[best])}, geometric mean of its errors {means[best]:.2f} %"
    return f"best of {len(means)}: {summary}. It was chosen by these errors: expect larger ones elsewhere\n"


def format_params(params: Combination) -> str:
    return " ".join(f"{name}={format_value(value)}" for name, value in params.items())


def format_value(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
