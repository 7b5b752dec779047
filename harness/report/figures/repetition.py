"""E7, E18: how much repetitions of the same work differ, and how many minibatches a profile needs.

004 Fig 5; 002 sec. II.4; 001 sec. 2.5.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.metrics import POWER_CHANNEL, quartiles
from harness.core.units import share_to_percent
from harness.report.figure import Axis, Figure, Layer, Mark, Panel, Spacing, Value, figure_of, panel_of
from harness.report.material import OF_WORKLOAD, Material, Row, by_defaults, cells, file_name
from harness.report.vega import FEWEST
from harness.stats.experiments import stretches_of_series, variability

LEAST_VALUES, MOST_VALUES = 20, 2000
WIDE_PCT = 50.0  # deviations beyond this would flatten all others on a linear axis
BETWEEN_BOARDS = ("device",)
SPREAD_COLUMNS = (
    *("device", "workload", "of", "count", "median_ms", "deviation_pct", "iqr_pct", "variation_pct", "provenance"),
)

LENGTHS = (10, 15, 20, 25, 30, 40)  # minibatches; the papers take 40, and show that fewer would do (001 sec. 2.5)
MOST = 400  # minibatches of a profile that are analysed: a board drifts over hours

ACROSS_WORKLOADS = (
    *(*OF_WORKLOAD, "power_mode", "batch_size", "workers", "storage", "clocks"),
    *("minibatches", "epochs", "cache", "seed"),
)
"""Conditions in which profiles of one panel may differ: the legend shows settings, errors are of each profile alone."""


class Length(NamedTuple):
    """Errors of profiles of so many minibatches: medians and third quartiles in %."""

    minibatches: int
    time_error_pct: float
    time_error_q3_pct: float
    power_error_pct: Optional[float]
    power_error_q3_pct: Optional[float]
    without_power_pct: Optional[float]
    seconds: float


LENGTH_COLUMNS = ("device", "workload", "power_mode", "batch_size", "of_minibatches", *Length._fields, "provenance")
QUANTITIES = (
    ("time", "error of the median time (%)", Spacing.LINEAR, "time_error_pct", "time_error_q3_pct"),
    ("power", "error of the mean power (%)", Spacing.LINEAR, "power_error_pct", "power_error_q3_pct"),
    ("what it costs", "time of the minibatches (s)", Spacing.LOG, "seconds", None),
)
"""Title, axis, and fields of the median and the whisker's end."""


def variability_figures(material: Material) -> Iterator[Figure]:
    """A figure for each kind of board: a violin for each workload and device."""
    repeated = [
        row
        for row in material.trained()
        if row.has_raw and (row.clean_minibatches or 0) >= LEAST_VALUES and row.batch_size == 16
    ]
    groups = []
    for group in material.alike(repeated, BETWEEN_BOARDS):
        same: Dict[Tuple[Any, ...], Dict[str, Row]] = {}  # one type of board in one power mode
        for row in group:
            same.setdefault((row.device, row.mode), {})[row.label] = row
        groups += [list(by_label.values()) for by_label in same.values()]
    best: Dict[str, Dict[str, List[Row]]] = {row.device: {} for row in repeated}

    def rank(rows: Sequence[Row]) -> Tuple[Any, ...]:
        """The papers' defaults first, then more boards, then more epochs, then the newest."""
        is_usual = rows[0].workers == 4 and rows[0].storage in ("ssd", None)
        return is_usual, len(rows), rows[0].epochs or 0.0, max(row.id for row in rows)

    for members in sorted(groups, key=rank):
        best[members[0].device][members[0].workload] = members
    for board, chosen in best.items():
        panels, rows = [], []
        workloads = dict.fromkeys(row.workload for row in repeated if row.device == board)
        for workload in workloads:
            panel, data = _spread_panel(material, workload, chosen[workload])
            panels.append(panel)
            rows += data
        details: Dict[str, Any] = {"device": board, "fewest": FEWEST, "wide": WIDE_PCT}
        series = [material.entry(chosen[workload][0]) for workload in workloads]
        name = file_name("variability", board)
        yield figure_of("variability", name, panels, series, SPREAD_COLUMNS, rows, **details)


def _spread_panel(material: Material, workload: str, members: Sequence[Row]) -> Tuple[Panel, List[Tuple[Any, ...]]]:
    violins, rows = [], []
    for row in members:
        of, values = _repetitions(material, row)
        spread = variability(values)
        assert spread is not None
        low, high = np.quantile(values, [0.005, 0.995])
        central = [value for value in values if low <= value <= high]
        percents = tuple(
            share_to_percent(value / spread.median - 1) for value in central[:: max(1, len(central) // MOST_VALUES)]
        )
        deviation, between_quartiles = share_to_percent(spread.deviation), share_to_percent(spread.interquartile)
        variation = None if spread.coefficient is None else share_to_percent(spread.coefficient)
        violins.append(Value(workload, percents, row.label, row.provenance, apart=row.apart, note=f"of {of}"))
        figures = (of, spread.count, spread.median, deviation, between_quartiles, variation)
        rows.append((row.label, workload, *figures, row.provenance))
    widest = max(abs(percent) for violin in violins for percent in violin.x)
    spacing = Spacing.SYMLOG if widest > WIDE_PCT else Spacing.LINEAR
    axes = Axis("deviation from the median (%)", spacing), Axis("")
    zero = Layer(Mark.RULES, (Value("", 0.0, "", members[0].provenance),))
    return panel_of(workload, *axes, Mark.VIOLINS, violins, members, BETWEEN_BOARDS, [zero]), rows


def _repetitions(material: Material, row: Row) -> Tuple[str, List[float]]:
    """The repeated unit and its times in ms: epochs, or minibatches but an epoch's first, which waits for workers."""
    steps = material.minibatches(row)
    counted = steps[steps["counted"]]
    epochs_ms = counted[counted["epoch"] > 0].groupby("epoch")["e2e_ms"].sum()
    if len(epochs_ms) >= FEWEST:
        return "epochs", epochs_ms.tolist()
    later = counted[counted["epoch"] == counted["epoch"].shift()]
    return "minibatches", (later if len(later) else counted)["e2e_ms"].tolist()


def profile_length_figures(material: Material) -> Iterator[Figure]:
    """A figure for each device: errors of time and power by length, and how long such a profile runs."""
    long = [
        row
        for row in material.trained()
        if row.has_raw
        and "@" not in row.label
        and (row.clean_minibatches or 0) >= max(LENGTHS)  # of several boards the first
    ]
    devices: Dict[str, Dict[str, Row]] = {}
    # The longest, up to `MOST`; of those the papers' defaults, of equal ones the newest.
    ranked = sorted(long, key=lambda row: (min(row.clean_minibatches or 0.0, float(MOST)), by_defaults(row), row.id))
    for row in [*long, *ranked]:  # in the order of the profiles, of each workload the best
        devices.setdefault(row.label, {})[row.workload] = row
    for device, chosen in devices.items():
        yield _length_figure(material, device, list(chosen.values()))


def _name_with_settings(row: Row) -> str:
    """A workload, and its settings that differ from the papers' defaults."""
    usual = {"power_mode": ("maxn", ""), "batch_size": (16, "bs "), "workers": (4, "w"), "storage": ("ssd", "")}
    settings = [(getattr(row, name), default, sign) for name, (default, sign) in usual.items()]
    others = [f"{sign}{value}" for value, default, sign in settings if value not in (default, None)]
    return ", ".join([row.workload, *others])


def _length_figure(material: Material, device: str, members: Sequence[Row]) -> Figure:
    lengths_of_rows = [_lengths(material, row) for row in members]
    series = [material.entry(row, _name_with_settings(row)) for row in members]
    panels = []
    for title, label, spacing, field, high in QUANTITIES:
        values = []
        for entry, row, (_, lengths) in zip(series, members, lengths_of_rows):
            for length in lengths:
                figure = getattr(length, field)
                if figure is not None:
                    value = Value(entry.name, str(length.minibatches), figure, row.provenance, apart=row.apart)
                    values.append(value._replace(low=figure, high=getattr(length, high)) if high else value)
        axes = Axis("minibatches of a profile", names=tuple(map(str, LENGTHS))), Axis(label, spacing)
        panels.append(panel_of(title, *axes, Mark.CURVES, values, members, ACROSS_WORKLOADS))
    rows = [
        (device, *cells(row, ("workload", "power_mode", "batch_size")), count, *length, row.provenance)
        for row, (count, lengths) in zip(members, lengths_of_rows)
        for length in lengths
    ]
    name = file_name("profile-length", device)
    return figure_of("profile-length", name, panels, series, LENGTH_COLUMNS, rows, device=device, most=MOST)


def _lengths(material: Material, row: Row) -> Tuple[int, List[Length]]:
    """The number of minibatches analysed, and the errors of profiles of each length."""
    steps, samples = material.minibatches(row), material.telemetry(row, [POWER_CHANNEL])
    counted = steps[steps["counted"]][:MOST]
    taken = counted["start_s"].to_numpy(), counted["e2e_ms"].to_numpy()
    sampled = samples["time_s"].to_numpy(), samples["value"].to_numpy()
    lengths = []
    for length in LENGTHS:
        stretches = stretches_of_series(*taken, *sampled, length)
        _, time, time_q3 = quartiles([share_to_percent(error) for error in stretches.time_errors])
        power_errors = [share_to_percent(error) for error in stretches.power_errors if not math.isnan(error)]
        _, power, power_q3 = quartiles(power_errors) if power_errors else (None, None, None)
        without = share_to_percent(stretches.without_power) if len(samples) else None
        seconds = float(np.median(stretches.seconds))
        lengths.append(Length(length, time, time_q3, power, power_q3, without, seconds))
    return len(counted), lengths
