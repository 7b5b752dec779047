"""The papers' questions to predictors as named scenarios: what is learned from which tables, and tested on which.

`scenarios.toml` says what each needs by device, workload, batch size and number of modes. Measured profiles are used
where a corpus with them is given, simulated ones otherwise; each result says which.
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
from predictors.evaluation import Target
from predictors.models.base import ALL, DEFAULT_BATCH_SIZE
from predictors.models.tables import Table
from predictors.trials import TrialPlan


class ProfileSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    workload: str  # whose they are
    device: str = "orin-agx"
    task: str = "training"
    batch_size: int = DEFAULT_BATCH_SIZE
    modes: Optional[int] = None  # how many, drawn at random from the paper's grid of the device; None for all of it
    named: Tuple[str, ...] = ()  # power modes that a paper names, instead
    instance: int = 0  # which copy of the board, 0 the one that references are of
    # how many of each profile count, its first ones: of a results file, or of runs simulated minibatch by minibatch;
    # None for a row of a corpus, which stands for all
    minibatches: Optional[int] = None


class ScenarioCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: ProfileSource  # what is tested
    references: Tuple[ProfileSource, ...] = ()  # what transfer predictors start from
    label: str = ""  # how results call it; the workload by default
    # how the modes to fit on were profiled, where that differs from how the tested ones were
    profiled: Optional[ProfileSource] = None
    fitted: Tuple[str, ...] = ()  # names of the power modes to fit on, where a paper gives them
    tested: Tuple[PowerMode, ...] = ()  # power modes to test on, where a paper gives them


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str  # as the command line has it
    question: str  # in words
    source: str  # the section that asks it
    cases: Tuple[ScenarioCase, ...]  # its targets
    counts: Tuple[Union[int, str], ...] = (50,)  # how many modes are fitted; `all` for all but a held-out tenth
    predictors: str = ALL  # who is asked where nobody is named
    params: Dict[str, str] = {}  # of networks that have them: the loss; their own by default


FILE = Path(__file__).with_name("scenarios.toml")
SCENARIOS: Dict[str, Scenario] = {
    name: typed({"name": name, **table}, Scenario, f"scenario {name} of {FILE}")
    for name, table in read_toml(FILE).items()
}


def find_scenario(name: str) -> Scenario:
    """The scenario of a name, in upper or lower case."""
    if name.upper() not in SCENARIOS:
        raise UnknownNameError(f"scenario {name!r} is unknown", f"available: {', '.join(SCENARIOS)}")
    return SCENARIOS[name.upper()]


def make_plan(
    scenario: Scenario,
    measured: Sequence[Table],
    simulate: Callable[..., Table],
    named_modes: Callable[[str], Dict[str, PowerMode]],
    limit: Optional[int] = None,
) -> TrialPlan:
    """A scenario with its tables: measured ones where they are what is needed, otherwise those that `simulate` makes.

    That makes all modes of the paper's grid, the named ones, or those given with the source; `limit` is the greatest
    number of modes of any table, for a quick look.
    """
    measured = sorted(measured, key=lambda one: one.entries is None)  # where both know a workload, who knows more

    @functools.lru_cache(maxsize=None)
    def table(source: ProfileSource, simulated: bool = False) -> Table:
        found = None if simulated else _measured(source, measured)
        complete = found or simulate(msgspec.structs.replace(source, minibatches=None)).complete()
        wanted = min(count for count in (source.modes, limit, len(complete)) if count is not None)
        if wanted < len(complete) and not source.named:
            # The same rows whatever the instance and the minibatches, so that both can be held side by side.
            drawn = np.random.default_rng([wanted, len(complete)]).choice(len(complete), size=wanted, replace=False)
            complete = complete.take(np.sort(drawn))
        if source.minibatches is None:
            return complete
        return complete.first_minibatches(source.minibatches) if found else simulate(source, complete.modes)

    def target(case: ScenarioCase) -> Target:
        # Where what is profiled apart is simulated, so must be what it is tested on: the two differ in one thing only.
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


def _measured(source: ProfileSource, tables: Sequence[Table]) -> Optional[Table]:
    """The table that holds what is needed, if there is one with enough rows."""
    # Corpora do not tell the instance: they stand for the usual one.
    if source.instance != 0 or source.named:
        return None
    for table in tables:
        known = 0 if table.entries is None else table.entries.shape[1]
        if known < (source.minibatches or 0):
            continue
        if (table.device, table.workload, table.task) == (source.device, source.workload, source.task):
            fitting = table.take(table.batch_size == source.batch_size).complete()
            if len(fitting):
                return fitting
    return None


def _places(table: Table, modes: Sequence[PowerMode]) -> Optional[np.ndarray]:
    """Where modes stand in a table, or what is nearest to them; None where there are none."""
    if not modes:
        return None
    logs = np.log(table.modes)
    return np.array([np.abs(logs - np.log(mode)).sum(axis=1).argmin() for mode in modes])
