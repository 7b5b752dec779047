"""Changes over many runs, and since when: each case of a board as a series, cut where its level changes.

A change counts if it is beyond the tolerance and significant, as in `harness.judge.comparison`: Student's t between the
runs of both segments, with Holm's correction over all changes of all series. If a series has none, its newest smaller
change that is significant is its verdict, `slower, within the tolerance of 2 %`. Software that differs between the runs
before and after is listed with it. A series has the runs of one board instance; versions of software may differ,
because they are the question.

Of 300 simulated series of 30 runs on a board with 1 % noise, 1 % had a false change. A step of 5 % was detected at its
run, and no other change, in 98 %; in 56 % if it was the newest run only.
"""

from __future__ import annotations

import datetime
import json
import math
import warnings
from collections.abc import Sequence as AnySequence
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import msgspec
import numpy as np

from harness.core.board_threshold import BoardThreshold
from harness.core.errors import StoreError
from harness.core.notes import note
from harness.core.profiles import flagged_in_words
from harness.judge.comparison import (
    DEFAULT_SHARE,
    DEFAULT_TOLERANCE,
    SAME,
    SIGNIFICANCE,
    TOO_FEW,
    exit_code_of,
    is_beyond,
    significant_verdict,
)
from harness.judge.nights import ReadReport, read_nights, silent
from harness.judge.profile_columns import ProfileColumns, ProfileSubject, as_text, microseconds
from harness.judge.quantities import QUANTITIES, GatedQuantity, quantity_named
from harness.judge.tolerances import CarriedThreshold, describe_carried, distinct
from harness.stats import noise
from harness.stats.change_points import (
    ChangePoint,
    change_points_of_each,
    learn_from_neighbours,
    without_outliers,
)
from harness.stats.comparison import Change, holm
from harness.stats.estimates import Estimate, quotient
from harness.store.conditions import device_labels, differences
from harness.store.frames import labelled

FEWEST = 4  # runs below which a series is not cut
_AT_ONCE = 1024  # series that are analysed together

RULES = (
    "a series is the runs of a case on a board instance, split by optimal partitioning (as by PELT)",
    "a change counts if the ratio of the levels is beyond the tolerance, and"
    f" p < {SIGNIFICANCE:.2g} (Student's t, after Holm's correction over all changes)",
    "an isolated outlier counts only if it is the most recent run",
)
"""How changes are found."""


class SeriesPoint(NamedTuple):
    """One run of a case: the median of its profiles, in ms or mW, and the software that it ran with."""

    run_id: str
    created_at: str
    value: float
    software: Dict[str, Any]


class SeriesPoints(AnySequence):  # type: ignore[type-arg]  # Python 3.8 has no AnySequence[SeriesPoint]
    """The points of a series: their values as an array; a point is made when it is read."""

    def __init__(self, values: np.ndarray, places: Union[Sequence[int], np.ndarray], runs: _Points) -> None:
        """Take values, and the places of their runs among all runs."""
        self.values = values
        self._places = places
        self._runs = runs

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        runs, run = self._runs, self._places[place]
        run_id, versions = runs.run_ids[runs.run[run]], runs.versions[runs.software[run]]
        return SeriesPoint(run_id, as_text(runs.created_us[run]), float(self.values[place]), versions)


class Step(NamedTuple):
    at: ChangePoint  # places of runs in the series
    change: Change  # after / before
    differ: List[str]  # differences of the software, `torch: "2.8.0" -> "2.9.0"`


class CaseSeries(NamedTuple):
    case_id: str
    board_instance: Optional[str]
    provenance: str
    figure: str  # the name of one of `QUANTITIES`
    points: Sequence[SeriesPoint]  # oldest first
    steps: List[Step]
    board: Optional[BoardThreshold] = None  # the newest threshold that its profiles carry
    within: Optional[str] = None  # the verdict on its newest change within the tolerance, if it has no larger one

    def threshold(self, given: Optional[float]) -> float:
        """The share below which a change is none: the one given, else the board's, else `DEFAULT_SHARE`."""
        shares = {} if self.board is None else self.board.shares
        return shares.get(self.quantity.column, DEFAULT_SHARE) if given is None else given

    @property
    def status(self) -> str:
        """The newest run compared with the level before the last change."""
        if not self.steps:
            return self.within or (SAME if len(self.points) >= FEWEST else TOO_FEW)
        is_worse = self.quantity.is_worse(self.steps[-1].change.ratio)
        return self.quantity.worse if is_worse else self.quantity.better

    @property
    def quantity(self) -> GatedQuantity:
        return quantity_named(self.figure)

    @property
    def is_worse(self) -> bool:
        return self.status == self.quantity.worse

    def level(self, place: int) -> float:
        """The geometric mean of a run's segment."""
        cuts = [0, *(step.at.place for step in self.steps), len(self.points)]
        start = max(cut for cut in cuts if cut <= place)
        stop = min(cut for cut in cuts if cut > place)
        return math.exp(sum(map(math.log, _values_of(self.points)[start:stop])) / (stop - start))


class CaseHistories(NamedTuple):
    series: List[CaseSeries]  # those that became worse first
    left_out: List[str]  # files and profiles left out, a sentence each
    given: Optional[float]  # the threshold as a share; None for those of the boards, else `DEFAULT_SHARE`
    notes: Sequence[str] = ()  # remarks on how the files were read

    @property
    def threshold(self) -> float:
        """The share where no board has its own."""
        return DEFAULT_SHARE if self.given is None else self.given

    @property
    def board_thresholds(self) -> List[BoardThreshold]:
        """Those in use."""
        return distinct(board for board, _ in self._carried())

    @property
    def thresholds(self) -> str:
        """The thresholds in words."""
        return describe_carried(self._carried(), f"{self.threshold:.1%}")

    def _carried(self) -> List[CarriedThreshold]:
        if self.given is not None:
            return []
        return [(series.board, series.points[-1].software) for series in self.series if series.board is not None]

    @property
    def exit_code(self) -> int:
        """As for a comparison of the newest runs; 2 if no series has enough of them."""
        is_open = all(series.status == TOO_FEW for series in self.series)
        return exit_code_of(any(series.is_worse for series in self.series), is_open)


def read_history(
    paths: Sequence[Path],
    include_flagged: bool = False,
    since: Optional[datetime.date] = None,
    threshold: Optional[float] = None,
    index: Union[bool, Path] = True,
    report: ReadReport = silent,
) -> CaseHistories:
    """The history of results files, or of those anywhere in folders; profiles in several files count once.

    `threshold` is a share, 0.02 is 2 %; by default that of the board, else `DEFAULT_SHARE`.
    Remarks on how the files were read are warnings. A named file that cannot be read is a `StoreError`; one in a folder
    is listed in `left_out`. `index` and `report` are as in `harness.judge.nights.read_nights`.
    """
    DEFAULT_TOLERANCE._replace(given=threshold).check()
    runs, left_out, notes = read_nights(paths, index, report)
    if since is not None:
        runs.select(runs["created_us"] >= microseconds(since.isoformat()))
    flagged = int((runs["usable"] == 0).sum())
    if flagged and not include_flagged:
        runs.select(runs["usable"] != 0)
        left_out.append(flagged_in_words(flagged))
    if not len(runs):
        raise StoreError(
            f"{', '.join(map(str, paths))}: no profiles{''.join(f'; left out: {reason}' for reason in left_out)}",
            "name results files, or a folder of them",
        )
    for text in notes:
        note(text)
    return CaseHistories(judge(_series(runs), threshold), left_out, threshold, notes)


def _series(runs: ProfileColumns) -> List[Tuple[CaseSeries, str]]:
    """The series of each quantity, without changes yet, each with the type of its device."""
    subjects = runs.subjects()
    numbers: Dict[str, int] = {}
    series_of_subject = np.array([numbers.setdefault(subject.series, len(numbers)) for subject in subjects], np.int32)
    series = _put_in_order(runs, series_of_subject)
    present = [subjects[place] for place in np.unique(runs["subject"])]
    devices = dict.fromkeys((subject.device_name, subject.board_instance) for subject in present)
    labels = dict(zip(devices, device_labels(list(devices))))

    last_rows = np.flatnonzero(np.diff(series, append=-1))
    newest = {int(series[row]): subjects[runs["subject"][row]] for row in last_rows}
    thresholds = _newest_thresholds(runs, series, subjects)
    first_rows = np.concatenate([[0], last_rows[:-1] + 1])
    oldest_first = np.argsort(runs["created_us"][first_rows], kind="stable")
    starts = _put_runs_together(runs, series)
    points = _Points(runs, starts)
    bounds = np.searchsorted(starts, [*first_rows, len(series)])

    with_devices = []
    for place in oldest_first:
        subject = newest[int(series[first_rows[place]])]
        label = labels[subject.device_name, subject.board_instance]
        case_id = labelled(subject.case_id, subject.device_name, label)
        board = thresholds.get(int(series[first_rows[place]]))
        for quantity in QUANTITIES:
            own = points.of(bounds[place], bounds[place + 1], quantity)
            if len(own):
                about = (case_id, subject.board_instance, subject.provenance, quantity.name)
                made = CaseSeries(*about, own, [], board)
                with_devices.append((made, subject.device))
    return with_devices


def _newest_thresholds(
    runs: ProfileColumns, series: np.ndarray, subjects: Sequence[ProfileSubject]
) -> Dict[int, BoardThreshold]:
    """Of each series whose profiles carry a threshold of their board, the newest one."""
    thresholds = {place: subject.threshold for place, subject in enumerate(subjects) if subject.carried is not None}
    carried = {place: threshold for place, threshold in thresholds.items() if threshold is not None}
    rows = np.flatnonzero(np.isin(runs["subject"], list(carried)))
    last = rows[np.diff(series[rows], append=-1) != 0]
    return {int(series[row]): carried[int(runs["subject"][row])] for row in last}


def _put_in_order(runs: ProfileColumns, series_of_subject: np.ndarray) -> np.ndarray:
    """Sort profiles by series, the oldest first, keep one of those in several files; returns the series of each."""
    series = series_of_subject[runs["subject"]]
    order = np.lexsort((runs["created_us"], series))
    identity = [series, *(runs[name] for name in ("created_us", "subject", "run", "key"))]
    if _equal_neighbours([column[order] for column in identity[:2]]).any():
        order = np.lexsort(tuple(reversed(identity)))  # the same profile of several files is adjacent
        is_twice = _equal_neighbours([column[order] for column in identity])
        order = order[np.append(~is_twice, True)]
    del runs.columns["key"], runs.columns["usable"]  # of no further use, and large
    runs.select(order)
    return series[order]


def _equal_neighbours(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Whether each row but the last is equal to the next one in all columns."""
    return np.logical_and.reduce([column[:-1] == column[1:] for column in columns])


def _put_runs_together(runs: ProfileColumns, series: np.ndarray) -> np.ndarray:
    """Sort the profiles of each series by run, runs in the order of their first profiles; returns where runs start."""
    codes = series.astype(np.int64)
    codes *= int(runs["run"].max()) + 1
    codes += runs["run"]
    starts = _starts_of(codes)
    if _equal_neighbours([np.sort(codes[starts])]).any():  # profiles of several runs alternate
        _, first, places = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first[places], kind="stable")
        runs.select(order)
        starts = _starts_of(codes[order])
    return starts


def _starts_of(values: np.ndarray) -> np.ndarray:
    """The places where a value begins that differs from the one before."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1]))


class _Points:
    """The runs of all series: what their profiles have in common, and the medians of their figures."""

    def __init__(self, runs: ProfileColumns, starts: np.ndarray) -> None:
        ends = np.append(starts[1:], len(runs))
        last: Any = slice(None) if len(starts) == len(runs) else ends - 1
        self.created_us, self.run, self.software = (runs[name][last] for name in ("created_us", "run", "software"))
        self.run_ids = [json.loads(text) for text in runs.texts["run"]]
        self.versions = [json.loads(text) for text in runs.texts["software"]]
        self._medians = {quantity: _medians(runs[quantity.column], starts, ends - starts) for quantity in QUANTITIES}

    def of(self, start: int, stop: int, quantity: GatedQuantity) -> SeriesPoints:
        """Those runs from `start` to `stop` that have the quantity."""
        values = self._medians[quantity][start:stop]
        has_none = np.isnan(values)
        if not has_none.any():
            return SeriesPoints(values, range(start, stop), self)
        return SeriesPoints(values[~has_none], start + np.flatnonzero(~has_none), self)


def _medians(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The median of the values of each run, missing ones (NaN) left out."""
    if len(starts) == len(values):
        return values
    medians = values[starts]
    for size in np.unique(sizes[sizes > 1]):
        same = np.flatnonzero(sizes == size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of runs without any value
            medians[same] = np.nanmedian(values[starts[same, None] + np.arange(size)], axis=1)
    return medians


def judge(series: Sequence[Tuple[CaseSeries, str]], threshold: Optional[float] = None) -> List[CaseSeries]:
    """Detect the changes of series, each given with the type of its device."""
    among = sum(len(case_series.points) >= FEWEST for case_series, _ in series)
    shares = [case_series.threshold(threshold) for case_series, _ in series]
    with_changes: Dict[int, _Cuts] = {}
    for prior_noise, places in _alike(series):
        logs = np.log([_values_of(series[place][0].points) for place in places])
        noise_shares = learn_from_neighbours(logs, prior_noise)
        logs = without_outliers(logs, noise_shares)
        has_enough = logs.shape[1] >= FEWEST
        cuts_of_each = change_points_of_each(logs, noise_shares, among) if has_enough else [[] for _ in places]
        for place, own_logs, cuts in zip(places, logs, cuts_of_each):
            with_changes[place] = _beyond(shares[place], own_logs, cuts, prior_noise)
    in_order = [with_changes[place] for place in range(len(series))]
    beyond = [change.p_value for cuts in in_order for _, change in cuts.beyond]
    p_values = iter(holm(beyond))
    p_within = iter(holm([*beyond, *(change.p_value for cuts in in_order for change in cuts.within)])[len(beyond) :])
    judged = []
    for (case_series, _), share, changes in zip(series, shares, in_order):
        kept = [(at, change) for at, change in changes.beyond if next(p_values) < SIGNIFICANCE]
        small = [change for change in changes.within if next(p_within) < SIGNIFICANCE]
        steps = []
        for at, change in kept:
            before, after = (case_series.points[run].software for run in (at.place - 1, at.place))
            steps.append(Step(at, change, differences(before, after)))
        within = significant_verdict(case_series.quantity, small[-1].ratio, share) if small and not steps else None
        judged.append(case_series._replace(steps=steps, within=within))
    return sorted(judged, key=lambda case_series: (not case_series.is_worse, not case_series.steps))


def _alike(series: Sequence[Tuple[CaseSeries, str]]) -> Iterator[Tuple[noise.RunNoise, List[int]]]:
    """The places of series of the same length and prior noise, which are analysed together, and that noise."""
    groups: Dict[Tuple[int, str, str], List[int]] = {}
    for place, (case_series, device) in enumerate(series):
        groups.setdefault((len(case_series.points), device, case_series.quantity.noise), []).append(place)
    for (_, device, quantity), places in groups.items():
        prior_noise = noise.prior(device, quantity)
        for start in range(0, len(places), _AT_ONCE):
            yield prior_noise, places[start : start + _AT_ONCE]


class _Cuts(NamedTuple):
    """The changes of a series, before they are tested."""

    beyond: List[Tuple[ChangePoint, Change]]  # larger than the tolerance, in their order
    within: List[Change]  # smaller than it, in their order


def _beyond(tolerance: float, logs: np.ndarray, cuts: Sequence[ChangePoint], prior_noise: noise.RunNoise) -> _Cuts:
    """Divide changes by the tolerance: a smaller one joins its segments, which moves the levels of both neighbours."""
    left = list(cuts)
    within: Dict[int, Change] = {}  # by the place of the cut
    while left:
        changes = _changes(logs, [cut.place for cut in left], prior_noise)
        small = [place for place, change in enumerate(changes) if not is_beyond(change.ratio, tolerance)]
        if not small:
            return _Cuts(list(zip(left, changes)), [within[place] for place in sorted(within)])
        within[left[small[0]].place] = changes[small[0]]
        del left[small[0]]
    return _Cuts([], [within[place] for place in sorted(within)])


def _values_of(points: Sequence[SeriesPoint]) -> Sequence[float]:
    return points.values.tolist() if isinstance(points, SeriesPoints) else [point.value for point in points]


def _changes(logs: np.ndarray, places: Sequence[int], prior_noise: noise.RunNoise) -> List[Change]:
    """The ratio of the levels after and before each place, with the noise of the runs of all segments."""
    segments = [[Estimate(math.exp(log), 0.0, 1) for log in part] for part in np.split(logs, places)]
    between = noise.learn(segments, prior_noise)
    levels = [noise.over_runs(runs, between) for runs in segments]
    ratios = [quotient(before, after) for before, after in zip(levels, levels[1:])]
    return [Change(*ratio.interval(), ratio.p_differs()) for ratio in ratios]


def to_plain(histories: CaseHistories) -> Dict[str, Any]:
    """All series with their runs and changes, as plain values."""
    series = [
        {
            **{
                name: getattr(case_series, name)
                for name in ("case_id", "board_instance", "provenance", "figure", "status")
            },
            "unit": case_series.quantity.unit,
            "threshold": case_series.threshold(histories.given),
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
    document = {name: getattr(histories, name) for name in ("exit_code", "threshold", "left_out", "notes")}
    boards = [msgspec.to_builtins(threshold) for threshold in histories.board_thresholds]
    return {**document, "board_thresholds": boards, "series": series}
