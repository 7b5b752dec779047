"""Changes over many runs, and since when: each case of a board as a series, cut where its level changes.

A change counts if it is beyond the threshold and beyond noise: Student's t between the runs of both segments, with
Holm's correction over all changes of all series. Software that differs between the runs before and after is listed with
it. A series has the runs of one board instance; versions of software may differ, because they are the question.

Of 300 simulated series of 30 runs on a board with 1 % noise, 1 % had a false change. A step of 5 % was detected at its
run, and no other change, in 98 %; in 56 % if it was the newest run only.
"""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import StoreError
from harness.judge.case_frame import SOFTWARE
from harness.judge.compare import DEFAULT_THRESHOLD
from harness.judge.quantities import QUANTITIES, JudgedQuantity, quantity_named
from harness.judge.verdicts import SAME, TOO_FEW, check_threshold, exit_code_of
from harness.stats import noise
from harness.stats.change_points import ChangePoint, change_points, learn_from_neighbours, without_outliers
from harness.stats.comparison import Change, holm
from harness.stats.estimates import CONFIDENCE, Estimate, quotient
from harness.store.conditions import LEFT_OUT, differences
from harness.store.frames import FLAGGED, common_conditions, labelled, profiles_of_files

if TYPE_CHECKING:
    import pandas as pd

OF_THE_RUN = ("jetwatt", "suite_commit", "kernel")  # further parts of its environment that are listed if they change
FEWEST = 4  # runs below which a series is not cut

TEST = (
    "Each case of each board instance is a series of runs, split by optimal partitioning (the same partition as PELT"
    " gives). A change counts if the ratio of the levels is beyond the threshold and noise alone is unlikely to cause"
    f" it (Student's t, p < {1 - CONFIDENCE:.2g} after Holm's correction over all changes). An isolated outlier counts"
    " only if it is the most recent run."
)


_COLUMNS = [
    "case_id", "device", "device_name", "device_label", "board_instance", "provenance", "comparable", "environment",
    "run_id", "created_at",
]  # fmt: skip


class SeriesPoint(NamedTuple):
    """One run of a case: the median of its profiles, in ms or mW, and the software that it ran with."""

    run_id: str
    created_at: str
    value: float
    software: Dict[str, Any]


class Step(NamedTuple):
    at: ChangePoint  # places of runs in the series
    change: Change  # after / before
    differ: List[str]  # differences of the software, `torch: "2.8.0" -> "2.9.0"`


class CaseSeries(NamedTuple):
    case_id: str
    board_instance: Optional[str]
    provenance: str
    figure: str  # the name of one of `QUANTITIES`
    points: List[SeriesPoint]  # oldest first
    steps: List[Step]

    @property
    def status(self) -> str:
        """The newest run compared with the level before the last change."""
        if not self.steps:
            return SAME if len(self.points) >= FEWEST else TOO_FEW
        is_worse = self.quantity.is_worse(self.steps[-1].change.ratio)
        return self.quantity.worse if is_worse else self.quantity.better

    @property
    def quantity(self) -> JudgedQuantity:
        return quantity_named(self.figure)

    @property
    def is_worse(self) -> bool:
        return self.status == self.quantity.worse

    def level(self, place: int) -> float:
        """The geometric mean of a run's segment."""
        cuts = [0, *(step.at.place for step in self.steps), len(self.points)]
        start = max(cut for cut in cuts if cut <= place)
        stop = min(cut for cut in cuts if cut > place)
        return math.exp(sum(math.log(point.value) for point in self.points[start:stop]) / (stop - start))


class CaseHistories(NamedTuple):
    series: List[CaseSeries]  # those that became worse first
    left_out: List[str]  # files and profiles left out, a sentence each
    threshold: float

    @property
    def exit_code(self) -> int:
        """As for a comparison of the newest runs; 2 if no series has enough of them."""
        is_open = all(series.status == TOO_FEW for series in self.series)
        return exit_code_of(any(series.is_worse for series in self.series), is_open)


def read_history(
    paths: Sequence[Path],
    include_flagged: bool = False,
    since: Optional[datetime.date] = None,
    threshold: float = DEFAULT_THRESHOLD,
) -> CaseHistories:
    """The history of results files, or of those anywhere in folders; profiles in several files count once.

    A named file that cannot be read is a `StoreError`; one in a folder is listed in `left_out`.
    """
    check_threshold(threshold)
    runs = profiles_of_files(paths, include_flagged, since)
    unreadable, flagged = runs.attrs["unreadable"], runs.attrs["left_out"][FLAGGED]
    left_out = [*unreadable, *([f"{flagged} {LEFT_OUT}"] if flagged else [])]
    if runs.empty:
        raise StoreError(
            f"{', '.join(map(str, paths))}: no profiles{''.join(f'; left out: {reason}' for reason in left_out)}",
            "name results files, or a folder of them",
        )
    return CaseHistories(judge(_series(runs), threshold), left_out, threshold)


def _series(runs: pd.DataFrame) -> List[Tuple[CaseSeries, str]]:
    """The series of each quantity, without changes yet, each with the type of its device."""
    sure = {quantity.column: quantity.of(runs) for quantity in QUANTITIES}
    runs, with_devices = runs[_COLUMNS].assign(**sure), []
    for _, members in runs.groupby(common_conditions(runs, ignore=(*SOFTWARE, "seed")), sort=False):
        last = members.iloc[-1]
        case_id = labelled(last["case_id"], last["device_name"], last["device_label"])
        for quantity in QUANTITIES:
            points = []
            for run_id, own in members.groupby("run_id", sort=False):
                values = own[quantity.column].dropna()
                if len(values):
                    row = own.iloc[-1]
                    software = {name: row["comparable"].get(name) for name in SOFTWARE}
                    software.update({name: row["environment"].get(name) for name in OF_THE_RUN})
                    there = {name: value for name, value in software.items() if value is not None}
                    points.append(SeriesPoint(str(run_id), row["created_at"], float(np.median(values)), there))
            if points:
                instance = last["board_instance"]
                series = CaseSeries(case_id, instance, last["provenance"], quantity.name, points, [])
                with_devices.append((series, last["device"]))
    return with_devices


def judge(series: Sequence[Tuple[CaseSeries, str]], threshold: float = DEFAULT_THRESHOLD) -> List[CaseSeries]:
    """Detect the changes of series, each given with the type of its device."""
    among = sum(len(case_series.points) >= FEWEST for case_series, _ in series)
    with_changes: List[Tuple[CaseSeries, List[Tuple[ChangePoint, Change]]]] = []
    low, high = 1 / (1 + threshold), 1 + threshold
    for case_series, device in series:
        prior_noise = noise.prior(device, case_series.quantity.noise)
        logs = np.log([point.value for point in case_series.points])
        learned = learn_from_neighbours(logs, prior_noise)
        logs = without_outliers(logs, learned.share)
        cuts = change_points(logs, learned.share, among) if len(logs) >= FEWEST else []
        while True:  # a cut that is below the threshold joins its segments, which moves the levels of both
            changes = _changes(logs, [cut.place for cut in cuts], prior_noise)
            small = [place for place, change in enumerate(changes) if low <= change.ratio <= high]
            if not small:
                break
            del cuts[small[0]]
        with_changes.append((case_series, list(zip(cuts, changes))))
    p_values = iter(holm([change.p_value for _, steps in with_changes for _, change in steps]))
    judged = []
    for case_series, candidates in with_changes:
        kept = [(at, change) for at, change in candidates if next(p_values) < 1 - CONFIDENCE]
        steps = [
            Step(
                at,
                change,
                differences(case_series.points[at.place - 1].software, case_series.points[at.place].software),
            )
            for at, change in kept
        ]
        judged.append(case_series._replace(steps=steps))
    return sorted(judged, key=lambda case_series: (not case_series.is_worse, not case_series.steps))


def _changes(logs: np.ndarray, places: Sequence[int], prior_noise: noise.RunNoise) -> List[Change]:
    """The ratio of the levels after and before each place, with the noise of the runs of all segments."""
    segments = [[Estimate(math.exp(log), 0.0, 1) for log in part] for part in np.split(logs, places)]
    between = noise.learn(segments, prior_noise)
    levels = [noise.over_runs(runs, between) for runs in segments]
    ratios = [quotient(before, after) for before, after in zip(levels, levels[1:])]
    return [Change(*ratio.interval(), ratio.p_differs()) for ratio in ratios]


def to_json(histories: CaseHistories) -> str:
    """All series with their runs and changes."""
    series = [
        {
            **{
                name: getattr(case_series, name)
                for name in ("case_id", "board_instance", "provenance", "figure", "status")
            },
            "unit": case_series.quantity.unit,
            "changes": [
                {
                    **{name: getattr(case_series.points[step.at.place], name) for name in ("run_id", "created_at")},
                    "run": step.at.place + 1,
                    "between_runs": [step.at.low + 1, step.at.high + 1],
                    **step.change._asdict(),
                    "differ": step.differ,
                }
                for step in case_series.steps
            ],
            "runs": [point._asdict() for point in case_series.points],
        }
        for case_series in histories.series
    ]
    document = {name: getattr(histories, name) for name in ("exit_code", "threshold", "left_out")}
    return json.dumps({**document, "series": series}, indent=1)
