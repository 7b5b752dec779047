"""The data of a report: the newest profiles, with intervals; a corpus; evaluations."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.core.cases import TRAINING
from harness.core.corpus import TASKS
from harness.core.power_modes import PowerMode
from harness.core.profiles import RAW_PRUNED
from harness.judge.case_frame import WARM, estimates_of, noise_by_device, pooled, read_frame
from harness.judge.claims import NOT_JUDGED, StoredVerdicts, stored_verdicts
from harness.judge.requirement_verdicts import RequirementVerdict, check
from harness.judge.requirements import Origin
from harness.report.colours import OF_DEVICES, colours_of
from harness.report.figure import LegendEntry, Value, joined
from harness.report.mode_tables import ModeTable, mode_tables
from harness.stats.estimates import Estimate, quotient
from harness.store.frames import common_conditions, minibatches, profiles, telemetry
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd

Row = Any
"""A profile with the columns of `harness.store.frames.profiles` as attributes, None for a missing value; and also:
`id`; `label`, its device's name without the provenance; `base`, the same without the board instance; `mode`, its
`PowerMode` as read back, or None; `apart`, whether it was disturbed or throttled; `has_raw`, whether its raw series are
still stored."""

OF_WORKLOAD = ("workload", "data_samples", "data_source", "device_specification")
"""Conditions that differ between workloads; a simulated board's specification holds its parameters of the workload."""


@dataclasses.dataclass(frozen=True)
class Material:
    store: Optional[ResultsStore]  # the results file, for raw series; None for a report without one
    frame: Optional[pd.DataFrame]  # its profiles, the newest of each comparable conditions and case
    corpus: Tuple[Dict[str, Any], ...] = ()
    predictors: Tuple[Dict[str, Any], ...] = ()  # results of `jetwatt evaluate --json`
    strategies: Tuple[Dict[str, Any], ...] = ()  # and of `jetwatt strategies evaluate --json`
    quantities: Optional[pd.DataFrame] = None  # of each profile of the file, for intervals
    judged: StoredVerdicts = NOT_JUDGED  # stored verdicts on the papers' claims
    predicted: Tuple[ModeTable, ...] = ()  # tables of modes from a saved predictor
    required: Tuple[RequirementVerdict, ...] = ()  # verdicts of a requirements file

    @classmethod
    def read(
        cls,
        store: Optional[ResultsStore],
        corpus: Tuple[Dict[str, Any], ...] = (),
        predictors: Tuple[Dict[str, Any], ...] = (),
        strategies: Tuple[Dict[str, Any], ...] = (),
        predicted: Tuple[ModeTable, ...] = (),
        requirements: Sequence[Origin] = (),
    ) -> Material:
        """The profiles of a results file, including flagged ones, which are drawn differently."""
        others = (corpus, predictors, strategies)
        if store is None:
            return cls(None, None, *others, predicted=predicted)
        frame = profiles(store, include_flagged=True, newest_only=True)
        required = tuple(check(store, requirements)) if requirements else ()
        return cls(store, frame, *others, read_frame(store), stored_verdicts(store), predicted, required)

    def minibatches(self, row: Row) -> pd.DataFrame:
        """The minibatches of a row in their order, with the columns of `harness.store.frames.minibatches`."""
        assert self.store is not None, "a row is of a results file"
        return minibatches(self.store, [row.id])

    def telemetry(self, row: Row, channels: Optional[Sequence[str]] = None) -> pd.DataFrame:
        """Telemetry samples of a row, of some channels or all, as in `harness.store.frames.telemetry`."""
        assert self.store is not None, "a row is of a results file"
        return telemetry(self.store, [row.id], channels)

    @functools.cached_property
    def estimates(self) -> Dict[int, Mapping[Tuple[str, str], Estimate]]:
        """The figures of each profile with their noise, including the noise between runs of its device."""
        if self.quantities is None:
            return {}
        noises = dict(noise_by_device(pooled(self.quantities)))
        by_profile: Dict[int, Mapping[Tuple[str, str], Estimate]] = {}
        for row in self.quantities.itertuples():
            noise = noises.get(row.device_label, {})
            by_profile[row.profile_ids[0]] = {
                name: estimate.with_noise(noise[name[0]].share, noise[name[0]].dof)
                for name, estimate in estimates_of(row).items()
                if name[0] in noise
            }
        return by_profile

    def ends(
        self, number: int, figure: Optional[float], quantity: str, phase: str = WARM
    ) -> Tuple[Optional[float], Optional[float]]:
        """The 95 % interval of a figure: as wide, relative to it, as that of its quantity in a profile."""
        estimate = self.estimates.get(number, {}).get((quantity, phase))
        if estimate is None or not figure or figure < 0:
            return None, None
        _, low, high = estimate._replace(value=figure).interval()
        return low, high

    def ends_of_ratio(
        self, before: int, after: int, quantity: str, ratio: float
    ) -> Tuple[Optional[float], Optional[float]]:
        old, new = (self.estimates.get(number, {}).get((quantity, WARM)) for number in (before, after))
        if old is None or new is None:
            return None, None
        _, low, high = quotient(old, new)._replace(value=ratio).interval()
        return low, high

    def value(
        self, row: Row, series: Any, place: Any, figure: float, quantity: str, phase: str = WARM, note: str = ""
    ) -> Value:
        ends = self.ends(row.id, figure, quantity, phase)
        return Value(series, place, figure, row.provenance, *ends, row.apart, note)

    @functools.cached_property
    def colours(self) -> Dict[str, str]:
        """Of each workload, the same in every figure."""
        evaluated = [result["target"] for result in (*self.predictors, *self.strategies)]
        own = [row.workload for row in self.rows if row.task in TASKS]
        others = [*(row["workload"] for row in self.corpus), *(table.workload for table in self.predicted)]
        return colours_of([*own, *others, *evaluated])

    @functools.cached_property
    def markers(self) -> Dict[str, str]:
        """Of each type of device, the same in every figure."""
        devices = {*(row.device for row in self.rows), *(row["device"] for row in self.corpus)}
        return dict(zip(sorted(devices), itertools.cycle(OF_DEVICES)))

    def entry(self, row: Row, name: str = "") -> LegendEntry:
        return LegendEntry(name or row.workload, self.colours[row.workload], self.markers[row.device])

    @functools.cached_property
    def rows(self) -> List[Row]:
        import pandas as pd

        if self.frame is None:
            return []
        values = self.frame.astype(object).where(self.frame.notna(), None)
        modes = values[list(PowerMode._fields)].itertuples(index=False, name=None)
        labels = [strip_prefix(label) for label in values["device_label"]]
        more = {
            "id": values.index,
            "label": labels,
            "base": [label.partition("@")[0] for label in labels],
            "apart": [not usable for usable in values["usable"]],
            "has_raw": [RAW_PRUNED not in kinds for kinds in values["flag_kinds"]],
            "mode": [None if None in mode else PowerMode(*mode) for mode in modes],
        }
        return list(values.join(pd.DataFrame(more, values.index)).itertuples(index=False, name="Row"))

    @functools.cached_property
    def tables(self) -> List[ModeTable]:
        return mode_tables(self)

    def trained(self) -> List[Row]:
        return [row for row in self.rows if row.task == TRAINING and row.minibatch_time_ms is not None]

    def alike(self, rows: Sequence[Row], varies: Sequence[str]) -> List[List[Row]]:
        """Rows in groups that share all comparable conditions except the named ones, ordered by their first rows."""
        ids = [row.id for row in rows]
        shared = dict(zip(ids, self.conditions(ids, varies)))
        return list(grouped(rows, lambda row: shared[row.id]).values())

    def conditions(self, ids: Sequence[int], varies: Sequence[str]) -> List[str]:
        if not ids:
            return []
        assert self.frame is not None, "a row is of the frame"
        return common_conditions(self.frame.loc[list(ids)], varies).tolist()

    def families(self, rows: Sequence[Row], *varies: str, least: int = 2, split_by: Sequence[str] = ()) -> List[Family]:
        """Families in which the conditions `varies` differ: the one with the most values for each device and workload.

        Rows without a value are excluded. `split_by`: columns; the best family is taken for each of their values.
        """
        columns = ["device_label" if name == "device" else name for name in varies]
        best: Dict[Tuple[Any, ...], Dict[Any, Row]] = {}
        for group in self.alike([row for row in rows if None not in cells(row, columns)], varies):
            named: Dict[str, Dict[Any, Row]] = {}  # a power mode may have two names
            for row in sorted(group, key=lambda row: row.usable):  # of equal ones an undisturbed one
                name = "" if {"power_mode", "device"} & set(varies) else row.power_mode
                value = cells(row, columns)
                named.setdefault(name, {})[value if len(value) > 1 else value[0]] = row
            for members in named.values():
                place = (
                    "" if "device" in varies else group[0].device_label,
                    group[0].workload,
                    *cells(group[0], split_by),
                )
                if len(members) >= least and _rank(members) >= _rank(best.get(place, {})):  # of equal ones the newer
                    best[place] = members
        families = []
        for members in best.values():
            values = tuple(sorted(members))
            first = members[values[0]]
            families.append(
                Family(first.label, first.workload, values, tuple(members[value] for value in values), varies)
            )
        return families


class Family(NamedTuple):
    """Profiles of a device that differ in the conditions `varies` only: one for each value, ascending."""

    device: str
    workload: str
    values: Tuple[Any, ...]
    rows: Tuple[Row, ...]
    varies: Tuple[str, ...]

    @property
    def provenance(self) -> str:
        return joined(row.provenance for row in self.rows)


def _rank(members: Dict[Any, Row]) -> Tuple[int, float, int]:
    """Ranks families by the number of values, then by the amount of data, then by the papers' defaults (004 sec. 4.4).

    Experiments need data sets of the real size; the small ones of a sweep fit into any page cache.
    """
    scales = [row.data_scale_asked or 0.0 for row in members.values()]
    return len(members), max(scales, default=0.0), max(map(by_defaults, members.values()), default=0)


def by_defaults(row: Row) -> int:
    """In how many settings a profile is at the papers' defaults (004 sec. 4.4)."""
    return sum((row.workers == 4, row.storage == "ssd", row.batch_size == 16, row.power_mode == "maxn"))


def grouped(items: Iterable[Any], key: Callable[[Any], Any]) -> Dict[Any, List[Any]]:
    """Items by their key, the keys in the order of their first items."""
    groups: Dict[Any, List[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def strip_prefix(device: str) -> str:
    """The name of a device without `sim:` and `replay:`."""
    return device.partition(":")[2] or device


def file_name(*parts: str) -> str:
    return "-".join(
        "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in part).strip("-").lower()
        for part in parts
    )


def cells(row: Row, columns: Sequence[str]) -> Tuple[Any, ...]:
    return tuple(getattr(row, name) for name in columns)
