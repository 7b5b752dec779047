"""The papers' questions to predictors as named scenarios: the tables to fit on and those to test on.

`scenarios.toml` lists what each needs by device, workload, batch size and number of modes. Measured profiles are used
if a corpus with them is given, simulated ones otherwise; each result states which.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence, Tuple, Union

import msgspec
import numpy as np

from harness.core.errors import UnknownNameError
from harness.core.files import read_toml, typed
from harness.core.power_modes import PowerMode
from harness.core.terminal import available_hint
from predictors.contest.trials import TrialPlan
from predictors.evaluation import Target
from predictors.models.base import ALL
from predictors.profiles import Profiles
from predictors.settings import DEFAULT_BATCH_SIZE


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


def find_scenario(name: str) -> Scenario:
    """The scenario with a name, in upper or lower case."""
    if name.upper() not in SCENARIOS:
        raise UnknownNameError(f"scenario {name!r} is unknown", available_hint(name.upper(), SCENARIOS))
    return SCENARIOS[name.upper()]


def make_plan(
    scenario: Scenario,
    measured: Sequence[Profiles],
    simulate: Callable[..., Profiles],
    named_modes: Callable[[str], Dict[str, PowerMode]],
    limit: Optional[int] = None,
) -> TrialPlan:
    """A scenario with its tables: measured ones if they fit its needs, otherwise those that `simulate` makes.

    `simulate` makes all modes of the paper's grid, the named ones, or those given with the source; `limit` is the
    greatest number of modes of a table, for a quick look.
    """
    measured = sorted(measured, key=lambda table: table.entries is None)  # tables with single minibatches first

    @functools.lru_cache(maxsize=None)
    def table(source: ProfileSource, simulated: bool = False) -> Profiles:
        measured_table = None if simulated else _measured(source, measured)
        complete = measured_table or simulate(msgspec.structs.replace(source, minibatches=None)).complete()
        wanted = min(count for count in (source.modes, limit, len(complete)) if count is not None)
        if wanted < len(complete) and not source.named:
            # The same rows for each instance and number of minibatches, so that these can be compared.
            drawn = np.random.default_rng([wanted, len(complete)]).choice(len(complete), size=wanted, replace=False)
            complete = complete.take(np.sort(drawn))
        if source.minibatches is None:
            return complete
        return complete.first_minibatches(source.minibatches) if measured_table else simulate(source, complete.modes)

    def target(case: ScenarioCase) -> Target:
        # If separate profiles to fit on are simulated, those to test on must be, too: the two differ in one thing only.
        simulated = case.profiled is not None and _measured(case.profiled, measured) is None
        observed = table(case.target, simulated)
        names = named_modes(case.target.device) if case.fitted else {}
        return Target(
            observed,
            tuple(table(source) for source in case.references),
            case.label,
            fitted=_places(observed, [names[name] for name in case.fitted]),
            tested=_places(observed, case.tested),
            profiled=None if case.profiled is None else table(case.profiled, simulated),
            params=scenario.params,
        )

    counts = tuple(None if count == ALL else int(count) for count in scenario.counts)
    return TrialPlan((), tuple(map(target, scenario.cases)), counts)


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
