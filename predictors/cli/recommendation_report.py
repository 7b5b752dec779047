"""A recommendation as it is shown and written: text for people, plain values for programs."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from harness.core.terminal import format_duration, format_table
from harness.core.units import mw_to_w
from predictors.strategies.recommendation import FigureInterval, ModeFigures, Recommendation, thinned

_FRONT_LINES = 12


def format_recommendation(*found: Recommendation) -> str:
    """What a person wants to read: the front, for each goal the mode and what it saves, and what all of it cost."""
    first, history, profiler = found[0], found[0].history, found[0].history.profiler
    provenance = profiler.device.provenance
    shown, recommended = thinned(first.front, _FRONT_LINES), {one.mode.power_mode: one.mode for one in found}
    shown += [mode for name, mode in recommended.items() if all(one.power_mode != name for one in shown)]
    rows = []
    for one in sorted(shown, key=lambda one: one.power_mw.value):
        marks = {"profiled": one.time_ms.profiled, "<- recommended": one.power_mode in recommended}
        mark = " ".join(mark for mark, holds in marks.items() if holds)
        rows.append([f"{one.time_ms.value:.1f}", f"{mw_to_w(one.power_mw.value):.1f}", one.power_mode.name, mark])
    lines = [
        _plot(first, [one.choice.index for one in found]),
        "",
        f"front of time and power ({provenance}; without a mark: predicted)",
        format_table([">time ms", ">power W", "mode", ""], rows),
    ]
    for one in found:
        lines += ["", *_lines_of_goal(one, provenance)]
    spent = first.choice.spent
    lines.append(
        f"spent:       {spent.profiles} profiles, {format_duration(spent.seconds)}"
        + (f", {profiler.resumed} of them from the results file" if profiler.resumed else "")
        + (f", for all {len(found)} goals together" if len(found) > 1 else "")
    )
    lines += [f"failed:      {history.mode(index).name}: {reason}" for index, reason in history.failed.items()]
    for index, flags in profiler.flagged.items():
        lines.append(f"doubtful:    {history.mode(index).name} was profiled twice: {'; '.join(flags)}")
    return "\n".join(lines if len(found) > 1 else [*lines, *_savings(first)])


def _lines_of_goal(found: Recommendation, provenance: str) -> List[str]:
    choice, mode = found.choice, found.mode
    return [
        f"goal:        {found.goal.describe()}",
        f"{'recommended' if choice.feasible else 'NOT WITHIN THE LIMITS, the nearest'}: {choice.power_mode.name}, "
        f"batch size {choice.batch_size} ({choice.reason})",
        f"minibatch:   {_figure(mode.time_ms, 1.0, 'ms')}, {provenance}",
        f"power:       {_figure(mode.power_mw, 1e3, 'W')}, {provenance}",
    ]


def _savings(found: Recommendation) -> List[str]:
    lines = []
    span = "the whole training" if found.minibatches is not None else "an hour's training in this mode"
    for saving in found.savings:
        other = saving.other
        known = "profiled" if other.time_ms.profiled else "predicted"
        figures = f"{known} {other.time_ms.value:.1f} ms, {mw_to_w(other.power_mw.value):.1f} W"
        saved = " and ".join(
            f"{abs(value):.{digits}f} {unit} {'less' if value >= 0 else 'more'}"
            for value, digits, unit in ((saving.hours, 2, "h"), (saving.energy_wh, 1, "Wh"))
        )
        kept = "" if saving.keeps_limits else "; that mode breaks the limits"
        lines.append(f"against {other.label} ({other.power_mode.name}, {figures}): {saved} over {span}{kept}")
    return lines


def plain_recommendation(found: Recommendation) -> Dict[str, Any]:
    """The same as plain values, for JSON.

    Figures have `value`, `low`, `high` (80 % lie between), `profiled` (else predicted) and `measured` (profiled on a
    real device); `minibatches` is None where savings are of an hour's training.
    """
    choice, history, profiler = found.choice, found.history, found.history.profiler
    provenance = profiler.device.provenance

    def plain(one: ModeFigures) -> Dict[str, Any]:
        figures = {
            name: {**figure._asdict(), "measured": figure.profiled and provenance == "measured"}
            for name, figure in (("time_ms", one.time_ms), ("power_mw", one.power_mw))
        }
        return {"mode": one.power_mode.name, "batch_size": one.batch_size, **figures}

    return {
        "device": profiler.device.name,
        "provenance": provenance,
        "workload": profiler.template.workload,
        "goal": {"minimise": found.goal.minimise, "limits": dict(found.goal.limits), "text": found.goal.describe()},
        "choice": {**plain(found.mode), "feasible": choice.feasible, "reason": choice.reason},
        "spent": {**choice.spent._asdict(), "resumed": profiler.resumed},
        "failed": [{"mode": history.mode(index).name, "reason": reason} for index, reason in history.failed.items()],
        "flagged": [{"mode": history.mode(index).name, "flags": flags} for index, flags in profiler.flagged.items()],
        "front": [plain(one) for one in found.front],
        "minibatches": found.minibatches,
        "savings": [
            {
                "against": saving.other.label,
                **plain(saving.other),
                "hours": saving.hours,
                "energy_wh": saving.energy_wh,
                "keeps_limits": saving.keeps_limits,
            }
            for saving in found.savings
        ],
    }


def _figure(estimate: FigureInterval, unit: float, name: str) -> str:
    value, low, high = (part / unit for part in estimate[:3])
    return f"{value:.1f} {name} {'profiled' if estimate.profiled else 'predicted'} (80 %: {low:.1f} to {high:.1f})"


def _plot(found: Recommendation, chosen: List[int]) -> str:
    time_ms, power_w = np.exp(found.posterior.log_time), mw_to_w(np.exp(found.posterior.log_power))
    measured, known = found.posterior.measured, np.isfinite(power_w)
    front_w = np.array([mw_to_w(one.power_mw.value) for one in found.front])
    front_ms = np.array([one.time_ms.value for one in found.front])
    layers = [
        (".", power_w[known], np.log10(time_ms[known])),
        ("o", front_w, np.log10(front_ms)),
        ("+", power_w[measured], np.log10(time_ms[measured])),
        ("X", power_w[chosen], np.log10(time_ms[chosen])),
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
    x_all, y_all = (np.concatenate([layer[axis] for layer in layers]) for axis in (1, 2))
    x_low, x_high, y_low, y_high = x_all.min(), x_all.max(), y_all.min(), y_all.max()

    def places(values: np.ndarray, low: float, high: float, count: int) -> np.ndarray:
        share = np.zeros(len(values)) if high <= low else (values - low) / (high - low)
        return np.minimum((share * count).astype(int), count - 1)

    canvas: List[List[str]] = [[" "] * width for _ in range(height)]
    for mark, x, y in layers:
        for column, line in zip(places(x, x_low, x_high, width), places(y, y_low, y_high, height)):
            canvas[height - 1 - line][column] = mark
    labels = [f"{y_high:.4g}", *[""] * (height - 2), f"{y_low:.4g}"]
    margin = max(map(len, labels))
    rows = [f"{label:>{margin}} |{''.join(line).rstrip()}" for label, line in zip(labels, canvas)]
    indent, right_end = " " * (margin + 2), f"{x_high:.4g}"
    return "\n".join(
        [
            y_label,
            *rows,
            " " * margin + " +" + "-" * width,
            indent + f"{x_low:.4g}".ljust(width - len(right_end)) + right_end,
            indent + x_label.center(width).rstrip(),
        ]
    )
