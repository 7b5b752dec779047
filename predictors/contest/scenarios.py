"""`scenario`: the papers' questions to predictors, by name: the tables to fit on and those to test on.

`scenarios.toml` lists what each needs by device, workload, batch size and number of modes. Measured profiles are used
if a corpus with them is given, simulated ones otherwise; each result states which.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Optional, Sequence, Tuple, Union

import msgspec
import numpy as np

from harness.core.boards import load_board
from harness.core.cases import INSTANCE_MARK, Case, CaseSettings
from harness.core.configuration import DEFAULT_STORAGE
from harness.core.errors import UnknownNameError
from harness.core.files import read_toml, typed
from harness.core.measured_tables import corpus_file
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.terminal import available_hint
from harness.devices.simulated import SimulatedDevice
from harness.simulation.corpus import simulate_corpus
from harness.simulation.model import repetition_factors
from harness.simulation.parameters import load_board_parameters
from predictors.choose.corpora import entries_of, load_all_tables
from predictors.contest.evaluate import Evaluation, run_evaluation
from predictors.contest.runs import USUAL_RUNS, Runs, repeats_of
from predictors.contest.trials import TrialPlan
from predictors.evaluation import Target
from predictors.models.base import ALL, check_kind
from predictors.models.registry import predictor_names
from predictors.profiles import Profiles, tables_of
from predictors.sampling import MINIBATCHES
from predictors.settings import DEFAULT_BATCH_SIZE

if TYPE_CHECKING:
    import pandas as pd


class ProfileSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    workload: str
    device: str = "orin-agx"
    task: str = "training"
    batch_size: int = DEFAULT_BATCH_SIZE
    modes: Optional[int] = None  # number drawn at random from the paper's grid of the device; None for all of it
    named: Tuple[str, ...] = ()  # power modes that a paper names, instead
    instance: int = 0  # the copy of the board; references are of copy 0
    # the number of first minibatches of each profile that count: of a results file, or of runs simulated minibatch by
    # minibatch; None for a row of a corpus, which summarises all
    minibatches: Optional[int] = None


class ScenarioCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: ProfileSource  # the profiles to test on
    references: Tuple[ProfileSource, ...] = ()  # for transfer predictors
    label: str = ""  # name in results; the workload by default
    # the profiles to fit on, if they differ from those to test on
    profiled: Optional[ProfileSource] = None
    fitted: Tuple[str, ...] = ()  # names of the power modes to fit on, if a paper gives them
    tested: Tuple[PowerMode, ...] = ()  # power modes to test on, if a paper gives them


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str  # on the command line
    question: str  # in words
    source: str  # the section of the paper
    cases: Tuple[ScenarioCase, ...]  # its targets
    counts: Tuple[Union[int, str], ...] = (50,)  # numbers of fitted modes; `all` for all but a held-out tenth
    predictors: str = ALL  # the predictors to test by default
    params: Dict[str, str] = {}  # of networks: the loss; their own by default


FILE = Path(__file__).with_name("scenarios.toml")
SCENARIOS: Dict[str, Scenario] = {
    name: typed({"name": name, **table}, Scenario, f"scenario {name} of {FILE}")
    for name, table in read_toml(FILE).items()
}


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
    plan = make_plan(chosen, load_all_tables(corpus), limit, runs.seed)
    plan = dataclasses.replace(plan, predictors=names, repeats=repeats_of(runs))
    title = f"{chosen.name}: {chosen.question} ({chosen.source})"
    return run_evaluation(plan, runs, title=title, files=list(map(corpus_file, corpus)))


def scenarios() -> pd.DataFrame:
    """The papers' questions to predictors: `name`, `question`, `source`, and the number of `targets`."""
    import pandas as pd

    rows = [(each.name, each.question, each.source, len(each.cases)) for each in SCENARIOS.values()]
    return pd.DataFrame(rows, columns=["name", "question", "source", "targets"])


def find_scenario(name: str) -> Scenario:
    """The scenario with a name, in upper or lower case."""
    if name.upper() not in SCENARIOS:
        raise UnknownNameError(f"scenario {name!r} is unknown", available_hint(name.upper(), SCENARIOS))
    return SCENARIOS[name.upper()]


def make_plan(asked: Scenario, measured: Sequence[Profiles], limit: Optional[int] = None, seed: int = 0) -> TrialPlan:
    """A scenario with its tables: measured ones if they fit its needs, otherwise simulated ones.

    `limit` is the greatest number of modes of a table, for a quick look.
    """
    measured = sorted(measured, key=lambda table: table.entries is None)  # tables with single minibatches first

    @functools.lru_cache(maxsize=None)
    def table(source: ProfileSource, is_simulated: bool = False) -> Profiles:
        measured_table = None if is_simulated else _measured(source, measured)
        complete = measured_table or simulated(msgspec.structs.replace(source, minibatches=None), seed=seed).complete()
        wanted = min(count for count in (source.modes, limit, len(complete)) if count is not None)
        if wanted < len(complete) and not source.named:
            # The same rows for each instance and number of minibatches, so that these can be compared.
            drawn = np.random.default_rng([wanted, len(complete)]).choice(len(complete), size=wanted, replace=False)
            complete = complete.take(np.sort(drawn))
        if source.minibatches is None:
            return complete
        if measured_table:
            return complete.first_minibatches(source.minibatches)
        return simulated(source, complete.modes, seed=seed)

    def target(case: ScenarioCase) -> Target:
        # If separate profiles to fit on are simulated, those to test on must be, too: the two differ in one thing only.
        is_simulated = case.profiled is not None and _measured(case.profiled, measured) is None
        observed = table(case.target, is_simulated)
        names = load_board(case.target.device).modes_by_name() if case.fitted else {}
        return Target(
            observed,
            tuple(table(source) for source in case.references),
            case.label,
            fitted=_places(observed, [names[name] for name in case.fitted]),
            tested=_places(observed, case.tested),
            profiled=None if case.profiled is None else table(case.profiled, is_simulated),
            params=asked.params,
        )

    counts = tuple(None if count == ALL else int(count) for count in asked.counts)
    return TrialPlan((), tuple(map(target, asked.cases)), counts, seed=seed)


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


def _measured(source: ProfileSource, tables: Sequence[Profiles]) -> Optional[Profiles]:
    """The first table that fits a source, if any."""
    # Corpora do not record the instance: they are taken as copy 0.
    if source.instance != 0 or source.named:
        return None
    for table in tables:
        minibatches = 0 if table.entries is None else table.entries.shape[1]
        if minibatches < (source.minibatches or 0):
            continue
        if (table.device, table.workload, table.task) == (source.device, source.workload, source.task):
            fitting = table.take(table.batch_size == source.batch_size).complete()
            if len(fitting):
                return fitting
    return None


def _places(table: Profiles, modes: Sequence[PowerMode]) -> Optional[np.ndarray]:
    """The indices of modes in a table, or of those nearest to them; None without modes."""
    if not modes:
        return None
    logs = np.log(table.modes)
    return np.array([np.abs(logs - np.log(mode)).sum(axis=1).argmin() for mode in modes])
