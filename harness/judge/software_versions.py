"""The same case measured with several versions of the software: how much its time differs (E8; 004 sec. 5.4.4)."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, NamedTuple, Tuple

from harness.core.cases import IDLE, Case
from harness.judge.evidence import SOFTWARE, WARM, evidence_of, same_case
from harness.stats.estimates import Estimate, Interval, quotient
from harness.stats.noise import TIME, RunNoise, learn, over_runs, prior
from harness.store.frames import profiles
from harness.store.results import ResultsStore


class VersionEffect(NamedTuple):
    """A case before and after a change of software."""

    case: Case
    before: Dict[str, Any]  # versions by name, those that differ
    after: Dict[str, Any]
    ratio: Interval  # time after / before

    @property
    def text(self) -> str:
        """In a line."""
        change = ", ".join(f"{name} {old} to {self.after[name]}" for name, old in self.before.items())
        return (
            f"{self.case.id}: {change}: time x {self.ratio.value:.3f} ({self.ratio.low:.3f} to {self.ratio.high:.3f})"
        )


def version_effects(store: ResultsStore) -> List[VersionEffect]:
    """Every case that was measured with more than one set of versions, each set against the first one.

    Profiles that were disturbed or throttled do not count. Raw series are read of such cases alone.
    """
    import pandas as pd

    frame = profiles(store)
    frame = frame[frame["task"] != IDLE]
    labelled = zip(frame["case"], frame["device_label"])  # boards of a type are not each other's versions
    cases = pd.Series([same_case(dataclasses.replace(case, device=name)) for case, name in labelled], frame.index)
    versions = frame["conditions"].map(lambda conditions: tuple(conditions.get(name) for name in SOFTWARE))
    times: Dict[Case, Dict[Tuple[Any, ...], List[Estimate]]] = {}
    noises: Dict[str, RunNoise] = {}
    for number in frame.index[versions.groupby(cases, sort=False).transform("nunique") > 1]:
        evidence = evidence_of(store.profile(number))
        if ("time", WARM) in evidence.figures:
            times.setdefault(cases[number], {}).setdefault(versions[number], []).append(evidence.figures["time", WARM])
            noises[cases[number].device] = prior(evidence.board, TIME)
    for device, known in noises.items():  # runs with other software do not tell the noise between runs
        groups = [runs for case, by_versions in times.items() if case.device == device for runs in by_versions.values()]
        noises[device] = learn(groups, known)
    effects = []
    for case, by_versions in times.items():
        noise = noises[case.device]
        (first, runs), *others = by_versions.items()
        for later, later_runs in others:
            old, new = (
                {name: told for name, told, *both in zip(SOFTWARE, side, first, later) if both[0] != both[1]}
                for side in (first, later)
            )
            ratio = quotient(over_runs(runs, noise), over_runs(later_runs, noise)).interval()
            effects.append(VersionEffect(case, old, new, ratio))
    return effects
