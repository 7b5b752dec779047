"""A recommendation as it is shown and written: text for people, plain values for programs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.core.terminal import format_duration, format_table
from harness.core.units import mw_to_w, share_to_percent
from predictors.models.base import describe_unprofiled
from predictors.search.device_profiler import MEDIAN
from predictors.strategies.recommendation import FigureInterval, ModeFigures, Recommendation, SharedMode, thinned

_FRONT_LINES = 12


def format_recommendation(*found: Recommendation) -> str:
    """What a person wants to read: the front, for each goal the mode and what it saves, and what all of it cost."""
    first, history, profiler = found[0], found[0].history, found[0].history.profiler
    provenance = profiler.device.provenance
    shown, recommended = thinned(first.front, _FRONT_LINES), {one.mode[1:3]: one.mode for one in found}
    shown += [mode for what, mode in recommended.items() if all(one[1:3] != what for one in shown)]
    rows = []
    for one in sorted(shown, key=lambda one: one.power_mw.value):
        marks = {"profiled": one.time_ms.profiled, "<- recommended": one[1:3] in recommended}
        mark = " ".join(mark for mark, holds in marks.items() if holds)
        size = f", batch size {one.batch_size}" if first.several_sizes else ""
        time_ms = one.time_ms.value / (one.batch_size if first.several_sizes else 1)
        rows.append([f"{time_ms:.1f}", f"{mw_to_w(one.power_mw.value):.1f}", one.power_mode.name + size, mark])
    lines = [
        _plot(first, [one.choice.index for one in found]),
        "",
        f"front of time and power ({provenance}; without a mark: predicted)",
        format_table([">ms a sample" if first.several_sizes else ">time ms", ">power W", "mode", ""], rows),
        *(f"note: {note}" for note in notes_on(first)),
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


def notes_on(found: Recommendation) -> List[str]:
    """What a reader must know of a recommendation beside its figures."""
    notes, posterior = [], found.posterior
    if not posterior.admitted.all():
        notes.append(describe_unprofiled(posterior.unprofiled, left_out=not found.unprofiled))
    if found.several_sizes and found.history.profiler.task == "training":
        notes.append("the batch size changes how a network learns: learning rate and epochs may have to change with it")
    return notes


def _lines_of_goal(found: Recommendation, provenance: str) -> List[str]:
    choice, mode, percentile = found.choice, found.mode, found.history.profiler.percentile
    of_tail = "" if percentile == MEDIAN else f", which {percentile:g} % of minibatches do not exceed"
    return [
        f"goal:        {found.goal.describe()}",
        f"{'recommended' if choice.feasible else 'NOT WITHIN THE LIMITS, the nearest'}: {choice.power_mode.name}, "
        f"batch size {choice.batch_size} ({choice.reason})",
        f"minibatch:   {_figure(mode.time_ms, 1.0, 'ms')}{of_tail}, {provenance}",
        f"power:       {_figure(mode.power_mw, 1e3, 'W')}, {provenance}",
    ]


def format_shared(found: Sequence[Recommendation], shared: Optional[SharedMode]) -> str:
    """What several workloads cost together, and the one mode that serves all of them best."""
    spent = plain_spent(found)
    lines = [f"spent on all {len(found)} workloads: {spent['profiles']} profiles, {format_duration(spent['seconds'])}"]
    if shared is None:
        return "\n".join([*lines, "one mode for all: none is known to keep the limits of each"])
    first = shared.modes[0]
    lines.append(
        f"one mode for all: {first.power_mode.name}, batch size {first.batch_size}, "
        f"{share_to_percent(shared.longer):.1f} % worse than a mode for each"
    )
    for one, mode in zip(found, shared.modes):
        figures = f"{_figure(mode.time_ms, 1.0, 'ms')}, {_figure(mode.power_mw, 1e3, 'W')}"
        lines.append(f"  {one.history.profiler.template.workload}: {figures}")
    return "\n".join(lines)


def plain_spent(found: Sequence[Recommendation]) -> Dict[str, Any]:
    """What several workloads cost together, for JSON."""
    spent = [{**one.choice.spent._asdict(), "resumed": one.history.profiler.resumed} for one in found]
    return {name: sum(one[name] for one in spent) for name in spent[0]}


def _savings(found: Recommendation) -> List[str]:
    lines = []
    span = "the whole training" if found.samples is not None else "an hour's training in this mode"
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


def plain_mode(one: ModeFigures, provenance: str) -> Dict[str, Any]:
    figures = {
        name: {**figure._asdict(), "measured": figure.profiled and provenance == "measured"}
        for name, figure in (("time_ms", one.time_ms), ("power_mw", one.power_mw))
    }
    return {"mode": one.power_mode.name, "batch_size": one.batch_size, **figures}


def plain_recommendation(found: Recommendation) -> Dict[str, Any]:
    """The same as plain values, for JSON.

    Figures have `value`, `low`, `high` (80 % lie between), `profiled` (else predicted) and `measured` (profiled on a
    real device); `minibatches` is None where savings are of an hour's training.
    """
    choice, history, profiler = found.choice, found.history, found.history.profiler
    provenance = profiler.device.provenance
    return {
        "device": profiler.device.name,
        "provenance": provenance,
        "workload": profiler.template.workload,
        "goal": {"minimise": found.goal.minimise, "limits": dict(found.goal.limits), "text": found.goal.describe()},
        "choice": {**plain_mode(found.mode, provenance), "feasible": choice.feasible, "reason": choice.reason},
        "spent": plain_spent([found]),
        "failed": [{"mode": history.mode(index).name, "reason": reason} for index, reason in history.failed.items()],
        "flagged": [{"mode": history.mode(index).name, "flags": flags} for index, flags in profiler.flagged.items()],
        "front": [plain_mode(one, provenance) for one in found.front],
        "notes": notes_on(found),
        "percentile": profiler.percentile,
        "minibatches": None if found.samples is None else found.samples / choice.batch_size,
        "savings": [
            {
                "against": saving.other.label,
                **plain_mode(saving.other, provenance),
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
    sizes = found.posterior.batch_size if found.several_sizes else 1
    time_ms, power_w = np.exp(found.posterior.log_time) / sizes, mw_to_w(np.exp(found.posterior.log_power))
    measured, known = found.posterior.measured, np.isfinite(power_w)
    front_w = np.array([mw_to_w(one.power_mw.value) for one in found.front])
    front_ms = np.array([one.time_ms.value / (one.batch_size if found.several_sizes else 1) for one in found.front])
    layers = [
        (".", power_w[known], np.log10(time_ms[known])),
        ("o", front_w, np.log10(front_ms)),
        ("+", power_w[measured], np.log10(time_ms[measured])),
        ("X", power_w[chosen], np.log10(time_ms[chosen])),
    ]
    x_label = "power in W   (. all modes, o front, + profiled, X recommended)"
    return scatter(
        layers, x_label, f"log10 of the {'time of a sample' if found.several_sizes else 'minibatch time'} in ms"
    )


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
