"""The contest: every strategy on every target with every number of profiles, repeated; the papers' figures of each."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from predictors.metrics import spread
from predictors.strategies.evaluation import Outcome, by_choice, hours_saved, summarise, sweep
from predictors.strategies.fixed import Preset, Presets
from predictors.strategies.goals import Goal
from predictors.strategies.profilers import TableProfiler
from predictors.strategies.protocol import History
from predictors.strategies.registry import STRATEGIES, Setting
from predictors.tables import Table


class Entry(NamedTuple):
    """One run of the contest.

    Attributes:
        strategy: its name.
        target: the table it runs on.
        profiles: how many it may take; as many as there are modes where it takes all.
        repeat: number of the repeat, which seeds it.
    """

    strategy: str
    target: Table
    profiles: int
    repeat: int


def entries(strategies: Sequence[str], targets: Sequence[Table], profiles: Sequence[int], repeats: int) -> List[Entry]:
    """The runs of a contest; what the number of profiles or the seed does not change runs once."""
    runs = []
    for target in targets:
        for name in strategies:
            kind = STRATEGIES[name]
            numbers = {"given": tuple(profiles), "none": (0,), "all": (len(target),)}[kind.profiles]
            deterministic = kind.make(Setting(), 0).deterministic
            runs += [
                Entry(name, target, number, repeat)
                for number in numbers
                for repeat in range(1 if deterministic else repeats)
            ]
    return runs


def run_entry(entry: Entry, goals: Sequence[Goal], setting: Setting) -> List[Outcome]:
    """The outcomes of one run; a table is never its own reference."""
    others = tuple(table for table in setting.references if table.fingerprint != entry.target.fingerprint)
    fitting = setting._replace(device=entry.target.device, references=others)
    kind = STRATEGIES[entry.strategy]
    return sweep(
        entry.target, lambda seed: kind.make(fitting, seed), goals, entry.profiles, entry.repeat, kind.together
    )


def run_contest(
    runs: Sequence[Entry],
    goals: Sequence[Goal],
    setting: Setting,
    jobs: int = 1,
    done: Callable[[Entry], None] = lambda entry: None,
) -> Dict[Tuple[str, str, int], List[Outcome]]:
    """Outcomes by strategy, target and number of profiles, all repeats together.

    Args:
        runs: from `entries`.
        goals: the sweep of budgets.
        setting: what strategies are made from.
        jobs: processes that share the work.
        done: is told of each run that ended.
    """
    found: Dict[Tuple[str, str, int], List[Outcome]] = {}
    for entry, outcomes in _outcomes(runs, goals, setting, jobs):
        found.setdefault((entry.strategy, entry.target.workload, entry.profiles), []).extend(outcomes)
        done(entry)
    return found


def _outcomes(
    runs: Sequence[Entry], goals: Sequence[Goal], setting: Setting, jobs: int
) -> Iterator[Tuple[Entry, List[Outcome]]]:
    if jobs <= 1:
        yield from ((entry, run_entry(entry, goals, setting)) for entry in runs)
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = [pool.submit(run_entry, entry, goals, setting) for entry in runs]
        yield from ((entry, future.result()) for entry, future in zip(runs, futures))


def results(
    found: Dict[Tuple[str, str, int], List[Outcome]],
    targets: Sequence[Table],
    goals: int,
    presets: Sequence[Preset] = (),
    minibatches: Optional[Mapping[str, Optional[float]]] = None,
) -> List[Dict[str, Any]]:
    """The figures of each strategy, target and number of profiles, as plain values.

    `by_repeat` holds median and quartiles, over repeats, of the mean penalty and of A/L+1 of one repeat, both in %.
    `by_choice` holds the figures of every single choice, repeat after repeat.

    Args:
        found: from `run_contest`.
        targets: the tables that it ran on.
        goals: how many goals a sweep had.
        presets: the vendor's modes, which `hours_saved_vs_presets` is counted against.
        minibatches: of a whole training, by workload; None where nobody says how long it is.
    """
    tables = {table.workload: table for table in targets}
    rows = []
    for (strategy, target, profiles), outcomes in found.items():
        figures: Dict[str, Optional[float]] = summarise(outcomes).as_dict()
        sweeps = [summarise(outcomes[start : start + goals]) for start in range(0, len(outcomes), goals)]
        by_repeat = {
            "penalty": spread([one.penalty_mean for one in sweeps]),
            "over_limit_plus1": spread([one.over_limit_plus1_pct for one in sweeps]),
        }
        length = (minibatches or {}).get(target)
        saved = None
        if presets and length is not None:
            others = [Presets(presets).choose(History(TableProfiler(tables[target]), 0), one.goal) for one in outcomes]
            saved = hours_saved(tables[target], outcomes, others, length)
        figures["profiles_spent"] = figures.pop("profiles")
        rows.append(
            {
                "strategy": strategy,
                "target": target,
                "device": tables[target].device,
                "profiles": profiles,
                "repeats": len(sweeps),
                **figures,
                "hours_saved_vs_presets": saved,
                "by_repeat": {name: found and found._asdict() for name, found in by_repeat.items()},
                "by_choice": by_choice(tables[target], outcomes),
                "provenance": tables[target].provenance,
            }
        )
    return rows
