"""How a device is searched for power modes: the settings that calls share."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Sequence, Tuple, Union

from harness.core.cases import DEFAULT_MINIBATCHES
from harness.core.configuration import FILE_NAME
from harness.core.corpus import listed
from harness.core.errors import InvalidValueError
from harness.core.terminal import counted
from predictors.models.base import CallSettings, check_number, check_numbers, check_probability, checks_names
from predictors.profiles import Profiles

if TYPE_CHECKING:
    from predictors.choose.corpora import Corpus

ON_DEVICE = "closed-loop"
PROFILES = 15  # unless a call has a default of its own
RISK = 0.05  # the probability of breaking a limit that a choice by prediction accepts, unless given


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class Search(CallSettings):
    """How a device is searched for power modes, and where its profiles are kept.

    Attributes:
        strategy: `closed-loop`, `mdbs`, `presets` or another of docs/strategies.md; None for `closed-loop`, or for
            `one-shot` if a risk is given.
        profiles: the number that may be taken; None for 15, or for 30 of both workloads of `concurrent`.
        minibatches: per profile.
        seed: the same seed starts with the same modes.
        risk: choose by prediction, from profiles of random modes, at this probability of breaking a limit; `one-shot`
            takes 0.05 if None.
        batch: modes chosen at once, at most `profiles`; None for 1, or for one per board of a pool.
        unprofiled: also choose modes with settings outside the profiled range.
        percentile: of minibatch times, also for limits (None: 50), or of the latencies in `concurrent` (None: 95).
        corpus: profiles of other workloads to start from, as for `fit`.
        reference: which of its workloads; empty for all except the requested ones.
        max_temperature_c: modes in which a sensor exceeds it, in degrees Celsius, are excluded.
        memory_limit_mib: maximum peak memory; a batch size that needs more, as predicted from smaller ones, is never
            started.
        check_s: duration of the run that checks a plan of `concurrent`, or the most of one that judges requirements.
        results: a file that keeps the profiles; None keeps none, or for a pool uses its default file.
        resume: use profiles of the same conditions in `results`.
        config: the configuration file, with the paths of storage media and data sets.
        root: root of an emulated board's /sys, /proc and /etc.
    """

    strategy: Optional[str] = None
    profiles: Optional[int] = None
    minibatches: int = DEFAULT_MINIBATCHES
    seed: int = 0
    risk: Optional[float] = None
    batch: Optional[int] = None
    unprofiled: bool = False
    percentile: Optional[float] = None
    corpus: Optional[Corpus] = None
    reference: Union[str, Sequence[str]] = ()
    max_temperature_c: Optional[float] = None
    memory_limit_mib: Optional[float] = None
    check_s: float = 30.0
    results: Union[str, Path, None] = None
    resume: bool = False
    config: Union[str, Path] = FILE_NAME
    root: Union[str, Path] = "/"

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and settings that contradict each other."""
        check_numbers(above=True, whole=True, profiles=self.profiles, batch=self.batch, minibatches=self.minibatches)
        check_number("seed", self.seed, whole=True)
        check_numbers(above=True, percentile=self.percentile, max_temperature_c=self.max_temperature_c)
        check_numbers(above=True, memory_limit_mib=self.memory_limit_mib, check_s=self.check_s)
        check_probability("risk", self.risk, certain=False)
        if self.percentile is not None and self.percentile >= 100:
            raise InvalidValueError(f"percentile is {self.percentile:g}, expected less than 100")
        if self.risk is not None and self.strategy not in (None, "one-shot"):
            what = f"risk= applies to one-shot only, and strategy= is {self.strategy}"
            raise InvalidValueError(what, "omit one of them")
        if self.reference and self.corpus is None:
            raise InvalidValueError("reference= names a workload of a corpus", "add corpus='FILE'")
        most = most_profiles(self)
        if self.batch is not None and self.batch > most:
            hint = f"for samples per minibatch, give batch_size={self.batch}; otherwise, more profiles="
            raise InvalidValueError(f"batch is {self.batch}, more than the {counted(most, 'profile')} allowed", hint)


def most_profiles(search: Search, default: int = PROFILES) -> int:
    """The number of profiles that may be taken, with a call's own default."""
    return default if search.profiles is None else search.profiles


USUAL_SEARCH = Search()
"""The default of calls."""


def strategy_of(search: Search) -> str:
    """The name of the strategy, with its default."""
    return search.strategy or (ON_DEVICE if search.risk is None else "one-shot")


def references_of(search: Search, workloads: Sequence[str], task: str, device: str) -> Tuple[Profiles, ...]:
    """The tables of a task in the corpus: of the named workloads, or of all that are not searched for."""
    if search.corpus is None:
        return ()
    from predictors.choose.corpora import load_tables
    from predictors.choose.targets import find_reference

    tables = load_tables(search.corpus)
    if search.reference:
        return tuple(find_reference(tables, name, task, device) for name in listed(search.reference))
    others = [table for table in tables if table.task == task and table.workload not in workloads]
    here = {table.workload for table in others if table.device == device}
    kept = [table for table in others if table.device == device or table.workload not in here]
    return tuple(table.usable() for table in kept)
