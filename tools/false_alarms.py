"""How often gates turn red although nothing changed: nights of a simulated board, judged as `jetwatt` judges them.

Each night runs the same cases anew: the noise of a run, of its minibatches and of its power samples is drawn by the
simulation for each of them. Nothing else differs. So a limit on a figure is true or not by what all nights together
show; requirements have limits at that very value, where a wrong FAIL is likeliest.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.environment import describe_environment
from harness.core.mode_texts import MAXN
from harness.core.profiles import Profile
from harness.core.units import mw_to_w, share_to_percent
from harness.devices.registry import open_device
from harness.judge.baseline import check, record
from harness.judge.compare import compare_sides
from harness.judge.comparison import CASES, Comparison
from harness.judge.history import read_history
from harness.judge.requirement_verdicts import FAIL, INCONCLUSIVE, case_of_profile, judge_case
from harness.judge.requirements import Origin, requirement_from
from harness.judge.sides import read_side
from harness.measure.run import run
from harness.store.results import ResultsStore

BOARD = "sim:orin-agx"
WORKLOADS = ("lenet-mnist", "mobilenetv3-gld23k", "resnet18-imagenet", "yolov8n-coco")
NIGHTS, NIGHTS_OF_SERIES = 1000, 20  # `history` judges so many nights at once, each series by itself
RECORDED = 3  # nights of a series that its baseline is recorded from
FIRST_NIGHT = datetime.datetime(2025, 1, 1, 2, tzinfo=datetime.timezone.utc)

Night = Tuple[Profile, ...]  # a profile of each case
Row = Dict[str, Any]


class Tally(NamedTuple):
    """What a gate said about unchanged software."""

    verdicts: int = 0  # on single cases
    significant: int = 0  # of them, differences that it takes to be real
    alarms: int = 0  # of them, worse by more than the tolerance
    nights: int = 0
    red: int = 0  # nights with an alarm, also on a workload or on all cases

    def plus(self, verdicts: int, significant: int, alarms: int, is_red: bool) -> Tally:
        counts = (verdicts, significant, alarms, 1, int(is_red))
        return Tally(*(before + more for before, more in zip(self, counts)))

    def row(self, gate: str) -> Row:
        return {
            "gate": gate,
            "nights": self.nights,
            "red_pct": share_to_percent(self.red / self.nights),
            "verdicts": self.verdicts,
            "significant_pct": share_to_percent(self.significant / self.verdicts),
            "alarms_pct": share_to_percent(self.alarms / self.verdicts),
        }


def false_alarms(nights: int = NIGHTS) -> List[Row]:
    """A row for each gate: the share of nights that turn red, and the shares of verdicts on single cases, in %."""
    compared, checked, followed = Tally(), Tally(), Tally()
    all_nights: List[Night] = []
    for first in range(0, nights, NIGHTS_OF_SERIES):
        with tempfile.TemporaryDirectory() as folder:
            series = [simulate_night(number) for number in range(first, first + NIGHTS_OF_SERIES)]
            all_nights += series
            files = [store_night(Path(folder) / f"{number:03}.sqlite", [night]) for number, night in enumerate(series)]
            sides = [read_side(path) for path in files]
            for before, after in zip(sides, sides[1:]):
                compared = _plus_comparisons(compared, compare_sides(before, after).comparisons)
            baseline = Path(folder) / "baseline.json"
            with ResultsStore(
                store_night(Path(folder) / "recorded.sqlite", series[:RECORDED]), read_only=True
            ) as store:
                record(store, baseline)
            for path in files[RECORDED:]:
                with ResultsStore(path, read_only=True) as store:
                    checked = _plus_comparisons(checked, check(store, baseline))
            histories = read_history(files, index=False).series
            changed = sum(bool(each.steps) for each in histories)
            worse = sum(each.is_worse for each in histories)
            followed = followed.plus(len(histories), changed, worse, worse > 0)
    required = judge_requirements(all_nights)
    gates = {"compare": compared, "baseline check": checked, "history": followed, "requirements": required}
    return [tally.row(gate) for gate, tally in gates.items()]


def _plus_comparisons(tally: Tally, comparisons: Sequence[Comparison]) -> Tally:
    of_cases = [each for each in comparisons if each.scope == CASES and each.change is not None]
    significant = sum(bool(each.is_significant) for each in of_cases)
    alarms = sum(each.is_worse for each in of_cases)
    return tally.plus(len(of_cases), significant, alarms, any(each.is_worse for each in comparisons))


def simulate_night(number: int) -> Night:
    """The profiles of a night, whose noise no other night has."""
    device = open_device(BOARD, Configuration())
    night = []
    with device.session():
        for workload in WORKLOADS:
            mode = named_mode(device, MAXN, workload)
            case = Case(BOARD, workload, mode, 4, "ssd", 16, CaseSettings(seed=number))
            profile = run(case, device)
            # The seed of the simulation's noise is none of the network's: nights are of one case.
            settings = dataclasses.replace(case.settings, seed=0)
            night.append(dataclasses.replace(profile, case=dataclasses.replace(case, settings=settings)))
    return tuple(night)


_environment = functools.lru_cache(maxsize=None)(describe_environment)


def store_night(path: Path, nights: Sequence[Night]) -> Path:
    """A results file with a run for each of some nights, one day after the other by the name of the file."""
    environment = _environment()
    digits = "".join(filter(str.isdigit, path.stem))
    with ResultsStore(path) as store:
        for number, night in enumerate(nights):
            day = FIRST_NIGHT + datetime.timedelta(days=int(digits or 0) + number)
            for minute, profile in enumerate(night):
                created_at = (day + datetime.timedelta(minutes=minute)).isoformat(timespec="microseconds")
                store.add(profile, environment, f"{path.stem}-{number}", created_at)
    return path


def judge_requirements(nights: Sequence[Night]) -> Tally:
    """Each profile judged by limits on its p95 and power that are exactly what all nights show of its case."""
    limits = [true_limits([night[place] for night in nights], place) for place in range(len(WORKLOADS))]
    tally = Tally()
    for night in nights:
        statuses = []
        for profile, origin in zip(night, limits):
            statuses += [verdict.status for verdict in judge_case(case_of_profile(profile), [origin])]
        decided = sum(status != INCONCLUSIVE for status in statuses)
        failed = statuses.count(FAIL)
        tally = tally.plus(len(statuses), decided, failed, failed > 0)
    return tally


def true_limits(profiles: Sequence[Profile], place: int) -> Origin:
    times_ms = np.concatenate([[each.e2e_ms for each in profile.counted] for profile in profiles])
    power_mw = np.median([profile.aggregates["power_mw"] for profile in profiles])
    keys = {"p95_ms": float(np.quantile(times_ms, 0.95)), "power_w": mw_to_w(float(power_mw))}
    return requirement_from(keys, f"case {place}")
