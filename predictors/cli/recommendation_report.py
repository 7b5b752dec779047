"""A recommendation as it is shown and written: text for people, plain values for programs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.device import Device
from harness.core.terminal import format_duration, format_table
from harness.core.units import mw_to_w
from predictors.cli.device_profiler import DeviceProfiler
from predictors.strategies.protocol import History
from predictors.strategies.recommendation import FigureInterval, ModeFigures, Recommendation, thinned

_FRONT_LINES = 12


def format_recommendation(
    found: Recommendation, device: Device, history: History, profiler: DeviceProfiler, minibatches: Optional[float]
) -> str:
    """What a person wants to read: the front, the mode, what it saves, what it cost.

    `minibatches` are those of the whole training; None where its length is not known.
    """
    choice, mode = found.choice, found.mode
    shown = thinned(found.front, _FRONT_LINES)
    if all(one.power_mode != mode.power_mode for one in shown):
        shown.append(mode)
    rows = []
    for one in sorted(shown, key=lambda one: one.power_mw.value):
        marks = {"profiled": one.time_ms.measured, "<- recommended": one.power_mode == mode.power_mode}
        mark = " ".join(mark for mark, holds in marks.items() if holds)
        rows.append([f"{one.time_ms.value:.1f}", f"{mw_to_w(one.power_mw.value):.1f}", one.power_mode.name, mark])
    verdict = "recommended" if choice.feasible else "NOT WITHIN THE LIMITS, the nearest"
    lines = [
        _plot(found),
        "",
        f"front of time and power ({device.provenance}; without a mark: predicted)",
        format_table([">time ms", ">power W", "mode", ""], rows),
        "",
        f"goal:        {found.goal.describe()}",
        f"{verdict}: {choice.power_mode.name}, batch size {choice.batch_size} ({choice.reason})",
        f"minibatch:   {_figure(mode.time_ms, 1.0, 'ms')}, {device.provenance}",
        f"power:       {_figure(mode.power_mw, 1e3, 'W')}, {device.provenance}",
        f"spent:       {choice.spent.profiles} profiles, {format_duration(choice.spent.seconds)}"
        + (f", {profiler.resumed} of them from the results file" if profiler.resumed else ""),
        *(f"failed:      {history.mode(index).name}: {reason}" for index, reason in history.failed.items()),
        *(
            f"doubtful:    {history.mode(index).name} was profiled twice: {'; '.join(flags)}"
            for index, flags in profiler.flagged.items()
        ),
    ]
    span = "the whole training" if minibatches is not None else "an hour's training in this mode"
    for saving in found.savings:
        other = saving.other
        kept = "" if saving.keeps_limits else "; that mode breaks the limits"
        known = "profiled" if other.time_ms.measured else "predicted"
        figures = f"{known} {other.time_ms.value:.1f} ms, {mw_to_w(other.power_mw.value):.1f} W"
        saved = f"{saving.hours:+.2f} h and {saving.energy_wh:+.1f} Wh saved over {span}"
        lines.append(f"against {other.label} ({other.power_mode.name}, {figures}): {saved}{kept}")
    return "\n".join(lines)


def plain_recommendation(
    found: Recommendation,
    device: Device,
    workload: str,
    history: History,
    profiler: DeviceProfiler,
    minibatches: Optional[float],
) -> Dict[str, Any]:
    """The same as plain values, for JSON.

    Figures have `value`, `low`, `high` (80 % lie between) and `measured`; `minibatches` is None where savings are of an
    hour's training.
    """
    choice = found.choice
    return {
        "device": device.name,
        "provenance": device.provenance,
        "workload": workload,
        "goal": {"minimise": found.goal.minimise, "limits": dict(found.goal.limits), "text": found.goal.describe()},
        "choice": {**_plain_mode(found.mode), "feasible": choice.feasible, "reason": choice.reason},
        "spent": {**choice.spent._asdict(), "resumed": profiler.resumed},
        "failed": [{"mode": history.mode(index).name, "reason": reason} for index, reason in history.failed.items()],
        "flagged": [{"mode": history.mode(index).name, "flags": flags} for index, flags in profiler.flagged.items()],
        "front": [_plain_mode(one) for one in found.front],
        "minibatches": minibatches,
        "savings": [
            {
                "against": saving.other.label,
                **_plain_mode(saving.other),
                "hours": saving.hours,
                "energy_wh": saving.energy_wh,
                "keeps_limits": saving.keeps_limits,
            }
            for saving in found.savings
        ],
    }


def _plain_mode(one: ModeFigures) -> Dict[str, Any]:
    figures = {"time_ms": one.time_ms._asdict(), "power_mw": one.power_mw._asdict()}
    return {"mode": one.power_mode.name, "batch_size": one.batch_size, **figures}


def _figure(estimate: FigureInterval, unit: float, name: str) -> str:
    value, low, high = (part / unit for part in estimate[:3])
    return f"{value:.1f} {name} {'profiled' if estimate.measured else 'predicted'} (80 %: {low:.1f} to {high:.1f})"


def _plot(found: Recommendation) -> str:
    time_ms, power_w = np.exp(found.posterior.log_time), mw_to_w(np.exp(found.posterior.log_power))
    measured, known = found.posterior.measured, np.isfinite(power_w)
    front_w = np.array([mw_to_w(one.power_mw.value) for one in found.front])
    front_ms = np.array([one.time_ms.value for one in found.front])
    layers = [
        (".", power_w[known], np.log10(time_ms[known])),
        ("o", front_w, np.log10(front_ms)),
        ("+", power_w[measured], np.log10(time_ms[measured])),
        ("X", power_w[[found.choice.index]], np.log10(time_ms[[found.choice.index]])),
    ]
    x_label = "power in W   (. all modes, o front, + profiled, X recommended)"
    return scatter(layers, x_label, "log10 of the minibatch time in ms")


def scatter(
    layers: Sequence[Tuple[str, np.ndarray, np.ndarray]], x_label: str, y_label: str, width: int = 64, height: int = 16
) -> str:
    """A scatter plot in plain text, with a scale on both axes.

    Each layer is a mark (one character) with the x and y of its points, arrays of shape (n,), finite; the last layer is
    on top. `width` and `height` are of the plot itself.
    """
    x_all = np.concatenate([layer[1] for layer in layers])
    y_all = np.concatenate([layer[2] for layer in layers])
    (x_low, x_high), (y_low, y_high) = ((values.min(), values.max()) for values in (x_all, y_all))
    canvas: List[List[str]] = [[" "] * width for _ in range(height)]
    for mark, x, y in layers:
        columns = _places(x, x_low, x_high, width)
        lines = _places(y, y_low, y_high, height)
        for column, line in zip(columns, lines):
            canvas[height - 1 - line][column] = mark
    margin = max(len(f"{value:.4g}") for value in (y_low, y_high))
    rows = [f"{y_label}"]
    for number, line in enumerate(canvas):
        label = f"{y_high:.4g}" if number == 0 else f"{y_low:.4g}" if number == height - 1 else ""
        rows.append(f"{label:>{margin}} |{''.join(line).rstrip()}")
    rows.append(" " * margin + " +" + "-" * width)
    ends = f"{x_low:.4g}".ljust(width - len(f"{x_high:.4g}")) + f"{x_high:.4g}"
    rows.append(" " * (margin + 2) + ends)
    rows.append(" " * (margin + 2) + x_label.center(width).rstrip())
    return "\n".join(rows)


def _places(values: np.ndarray, low: float, high: float, count: int) -> np.ndarray:
    share = np.zeros(len(values)) if high <= low else (values - low) / (high - low)
    return np.minimum((share * count).astype(int), count - 1)
