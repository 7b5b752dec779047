"""Output of a recommendation: text for people, plain values for programs."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import COMMAND
from harness.core.device import Device
from harness.core.power_modes import PowerMode
from harness.core.terminal import counted, format_duration, format_table
from harness.core.units import S_PER_HOUR, mw_to_w, share_to_percent
from predictors.choose.on_device import peak_of, profiler_of
from predictors.choose.request import MEDIAN
from predictors.forecast import describe_unprofiled
from predictors.goals import QUANTITIES, note_out_of_reach
from predictors.strategies.recommendation import (
    FigureInterval,
    ModeFigures,
    Recommendation,
    Saving,
    SharedMode,
    thinned,
)

_FRONT_LINES = 12
_ROUGH = 2.0  # ratio of the ends of an 80 % interval from which a predicted time tells little


def _setting(mode: ModeFigures) -> Tuple[PowerMode, int, Optional[int]]:
    """What tells a candidate from all others."""
    return mode.power_mode, mode.batch_size, mode.power_limit_mw


OUTLYING = "outlying:    its profile contradicts all others: measure this mode again before you rely on it"


def format_recommendation(*recommendations: Recommendation) -> str:
    """Text of recommendations: the front, the mode for each goal with its savings, and the cost of the search."""
    first, history, profiler = recommendations[0], recommendations[0].history, profiler_of(recommendations[0].history)
    provenance = profiler.device.provenance
    front = thinned(first.front, _FRONT_LINES)
    kept_last = sorted(recommendations, key=lambda each: each.choice.feasible)  # of two goals for which it is chosen
    recommended = {_setting(recommendation.mode): recommendation for recommendation in kept_last}
    front += [each.mode for what, each in recommended.items() if all(_setting(other) != what for other in front)]
    rows = []
    for mode in sorted(front, key=lambda mode: mode.power_mw.value):
        marks = ["profiled"] if mode.time_ms.profiled else []
        if mode.time_ms.high > _ROUGH * mode.time_ms.low:
            marks.append("rough")
        chosen = recommended.get(_setting(mode))
        if chosen is not None:
            marks.append("<- recommended" if chosen.choice.feasible else "<- nearest to the limits")
        size = f", batch size {mode.batch_size}" if first.several_sizes else ""
        time_ms = mode.time_ms.value / (mode.batch_size if first.several_sizes else 1)
        rows.append([f"{time_ms:.1f}", f"{mw_to_w(mode.power_mw.value):.1f}", mode.name + size, " ".join(marks)])
    widest = max(mode.time_ms.high / mode.time_ms.low for mode in front)
    lines = [
        _plot(first, [recommendation.choice.index for recommendation in recommendations]),
        "",
        f"front of time and power ({provenance}; predicted unless profiled)",
        format_table([">ms a sample" if first.several_sizes else ">time ms", ">power W", "mode", ""], rows),
        *([f"rough: the 80 % interval spans a factor of {_ROUGH:g} to {widest:,.3g}"] if widest > _ROUGH else []),
        *(f"note: {note}" for note in notes_on(first)),
    ]
    for recommendation in recommendations:
        lines += ["", *_lines_of_goal(recommendation, provenance)]
    spent = first.choice.spent
    simulated = " of simulated time" if provenance == "simulated" else ""
    lines.append(
        f"spent:       {counted(spent.profiles, 'profile')}, {format_duration(spent.seconds)}{simulated}"
        + (f", {profiler.resumed} of them from the results file" if profiler.resumed else "")
        + (f", for all {len(recommendations)} goals together" if len(recommendations) > 1 else "")
    )
    lines += [f"failed:      {profiler.candidates.name(index)}: {reason}" for index, reason in history.failed.items()]
    for index, flags in profiler.flagged.items():
        name = profiler.candidates.name(index)
        lines.append(f"doubtful:    {name} was flagged in both of its profiles: {'; '.join(flags)}")
    if len(recommendations) == 1 and first.choice.feasible:
        lines += _savings(first)
    return "\n".join(lines)


def notes_on(recommendation: Recommendation) -> List[str]:
    """Caveats of a recommendation."""
    notes, posterior = [], recommendation.posterior
    if not posterior.admitted.all():
        notes.append(describe_unprofiled(posterior.unprofiled, left_out=not recommendation.unprofiled))
    notes += recommendation.history.profiles.notes_on_unapplied()
    if recommendation.several_sizes and recommendation.history.profiler.candidates.task == "training":
        notes.append("the batch size changes how a network learns: learning rate and epochs may need to change with it")
    return notes


def _lines_of_goal(recommendation: Recommendation, provenance: str) -> List[str]:
    choice, mode = recommendation.choice, recommendation.mode
    percentile = profiler_of(recommendation.history).percentile
    of_tail = "" if percentile == MEDIAN else f", which {percentile:g} % of minibatches do not exceed"
    memory = profiler_of(recommendation.history).memory
    peak_memory = "" if memory is None else memory.describe(choice.batch_size)
    what = "command:  " if profiler_of(recommendation.history).template.task == COMMAND else "minibatch:"
    return [
        f"goal:        {recommendation.goal.describe()}",
        f"{'recommended' if choice.feasible else 'NOT WITHIN THE LIMITS, the nearest'}: {mode.name}, "
        f"batch size {choice.batch_size} ({choice.reason})",
        f"{what}   {_figure(mode.time_ms, 'ms')}{of_tail}, {provenance}",
        f"power:       {_figure(mode.power_mw, 'W', mw_to_w)}, {provenance}",
        *([f"memory:      {peak_memory}"] if peak_memory else []),
        *([OUTLYING] if recommendation.outlying else []),
    ]


def format_shared(recommendations: Sequence[Recommendation], shared: Optional[SharedMode]) -> str:
    """The total cost of several workloads, and the mode that serves all of them best."""
    spent = plain_spent(recommendations)
    cost = f"{counted(spent['profiles'], 'profile')}, {format_duration(spent['seconds'])}"
    lines = [f"spent on all {len(recommendations)} workloads: {cost}"]
    if shared is None:
        return "\n".join([*lines, "one mode for all: none that each workload has is expected to keep its limits"])
    first = shared.modes[0]
    lines.append(
        f"one mode for all: {first.name}, batch size {first.batch_size}, "
        f"{share_to_percent(shared.longer):.1f} % worse than a mode for each"
    )
    for recommendation, mode in zip(recommendations, shared.modes):
        figures = f"{_figure(mode.time_ms, 'ms')}, {_figure(mode.power_mw, 'W', mw_to_w)}"
        lines.append(f"  {profiler_of(recommendation.history).template.workload}: {figures}")
    return "\n".join(lines)


def plain_spent(recommendations: Sequence[Recommendation]) -> Dict[str, Any]:
    """The total cost of several workloads, for JSON."""
    spent_each = [
        {**recommendation.choice.spent._asdict(), "resumed": profiler_of(recommendation.history).resumed}
        for recommendation in recommendations
    ]
    return {name: sum(spent[name] for spent in spent_each) for name in spent_each[0]}


def _savings(recommendation: Recommendation) -> List[str]:
    lines = []
    span = f"per hour of {recommendation.history.profiler.candidates.task} in this mode"
    if recommendation.samples is not None:
        span = f"over the whole training ({recommendation.samples:,.0f} samples)"
    for saving in recommendation.savings:
        other = saving.other
        size = f", batch size {other.batch_size}" if recommendation.several_sizes else ""
        origin = "profiled" if other.time_ms.profiled else "predicted"
        figures = f"{origin} {other.time_ms.value:.1f} ms, {mw_to_w(other.power_mw.value):.1f} W"
        kept = "" if saving.keeps_limits else ", which breaks the limits"
        lines += [
            f"compared with {other.label} ({other.name}{size}, {figures}){kept}:",
            f"  {describe_saving(saving)} {span}",
        ]
    return lines


def describe_saving(saving: Saving) -> str:
    """The savings as a clause: `saves 34 min 12 s and 10.0 Wh`, `saves 39.0 Wh but takes 13 min 5 s longer`."""
    duration = format_duration(abs(saving.hours) * S_PER_HOUR)
    energy = f"{abs(saving.energy_wh):.1f} Wh"
    if saving.hours >= 0 and saving.energy_wh >= 0:
        return f"saves {duration} and {energy}"
    if saving.hours >= 0:
        return f"saves {duration} but uses {energy} more"
    if saving.energy_wh >= 0:
        return f"saves {energy} but takes {duration} longer"
    return f"takes {duration} longer and uses {energy} more"


def plain_mode(mode: ModeFigures, provenance: str) -> Dict[str, Any]:
    figures = {
        name: {**figure._asdict(), "measured": figure.profiled and provenance == "measured"}
        for name, figure in (("time_ms", mode.time_ms), ("power_mw", mode.power_mw))
    }
    limit = {} if mode.power_limit_mw is None else {"power_limit_mw": mode.power_limit_mw}
    return {"mode": mode.power_mode.name, "batch_size": mode.batch_size, **limit, **figures}


def plain_recommendation(recommendation: Recommendation) -> Dict[str, Any]:
    """The same as plain values, for JSON.

    Figures have `value`, `low`, `high` (an 80 % interval), `profiled` (else predicted) and `measured` (profiled on a
    real device). `outlying`: the profile of the chosen mode contradicts at least five others; false with fewer.
    `minibatches` is None if savings are over an hour's training.
    """
    choice, history, profiler = recommendation.choice, recommendation.history, profiler_of(recommendation.history)
    provenance = profiler.device.provenance
    chosen = {"feasible": choice.feasible, "reason": choice.reason, "outlying": recommendation.outlying}
    return {
        "device": profiler.device.name,
        "provenance": provenance,
        "workload": profiler.template.workload,
        "goal": {
            "minimise": recommendation.goal.minimise,
            "limits": dict(recommendation.goal.limits),
            "text": recommendation.goal.describe(),
        },
        "choice": {**plain_mode(recommendation.mode, provenance), **chosen},
        "spent": plain_spent([recommendation]),
        "failed": [{"mode": history.mode(index).name, "reason": reason} for index, reason in history.failed.items()],
        "flagged": [{"mode": history.mode(index).name, "flags": flags} for index, flags in profiler.flagged.items()],
        "front": [plain_mode(mode, provenance) for mode in recommendation.front],
        "notes": notes_on(recommendation),
        "percentile": profiler.percentile,
        "minibatches": None if recommendation.samples is None else recommendation.samples / choice.batch_size,
        "savings": [
            {
                "against": saving.other.label,
                **plain_mode(saving.other, provenance),
                "hours": saving.hours,
                "energy_wh": saving.energy_wh,
                "keeps_limits": saving.keeps_limits,
            }
            for saving in recommendation.savings
        ],
    }


def plain_answer(
    device: Device,
    recommendations: Sequence[Sequence[Recommendation]],
    shared: Sequence[Optional[SharedMode]],
    peak_mw: Optional[float],
) -> Dict[str, Any]:
    """The values of the JSON file: a recommendation, or a list of several with their total cost."""
    flat = [recommendation for for_workload in recommendations for recommendation in for_workload]
    plain = [plain_recommendation(recommendation) for recommendation in flat]
    for values, recommendation in zip(plain, flat):
        required = profiler_of(recommendation.history).required
        if required is not None:
            values["requirements"] = required.plain(recommendation.choice.index)
    if peak_mw is not None:
        for values, recommendation in zip(plain, flat):
            peak = peak_of(recommendation)
            values["peak"] = {"budget_mw": peak_mw, **(peak._asdict() if peak else {})}
    if len(plain) == 1:
        return plain[0]
    if not shared:
        return {"recommendations": plain, "spent": plain[0]["spent"]}
    modes = [
        choice and {"modes": [plain_mode(mode, device.provenance) for mode in choice.modes], "longer": choice.longer}
        for choice in shared
    ]
    return {
        "recommendations": plain,
        "spent": plain_spent([for_workload[0] for for_workload in recommendations]),
        "shared": modes,
    }


def format_workload(
    device: Device, workload: str, recommendations: Sequence[Recommendation], peak_mw: Optional[float]
) -> str:
    lines = [format_recommendation(*recommendations)]
    for recommendation in recommendations:
        peak = peak_of(recommendation)
        if peak and (peak_mw is not None or peak.exceeded):
            apart = "" if peak.window_s is None else f" in samples {peak.window_s:.2g} s apart"
            allowed = "" if peak_mw is None else f", limit {mw_to_w(peak_mw):.4g} W"
            exceeded = f"; {peak.exceeded}" if peak.exceeded else ""
            lines.append(f"peak:        {mw_to_w(peak.peak_mw):.4g} W{apart}{allowed}{exceeded}")
    required = profiler_of(recommendations[0].history).required
    if required is not None:
        lines += required.lines([recommendation.choice.index for recommendation in recommendations])
    for recommendation in recommendations:
        note = note_out_of_reach(recommendation.goal, recommendation.posterior.greatest_power_mw)
        lines += [f"note:        {note}"] if note else []
    case = profiler_of(recommendations[0].history).case(recommendations[0].choice.index)
    scaled_from = device.conditions(case).get("scaled_from") if device.provenance == "simulated" else None
    if scaled_from:
        lines.append(
            f"rough:       {workload} is not calibrated on {device.name}: scaled from {scaled_from}, to a factor of 2.2"
        )
    return "\n".join(lines)


def limits_within_reach(recommendation: Recommendation, peak_mw: Optional[float]) -> str:
    """The hint on limits that no mode keeps: the least values that modes have, or else the nearest mode."""
    near, limits = recommendation.mode, recommendation.goal.limits
    medians = {name: np.exp(recommendation.posterior.log_quantity(name)[0]) for name in limits}
    is_uncertain = all(medians[name][recommendation.choice.index] <= limit for name, limit in limits.items())
    peak = peak_of(recommendation)
    figures = f"{near.time_ms.value:.4g} ms at {mw_to_w(near.power_mw.value):.4g} W"
    if peak_mw is not None and peak is not None and peak.peak_mw > peak_mw:
        figures += f", with peaks of {_rounded_up(mw_to_w(peak.peak_mw))} W"
        reachable, is_near = "", False
    elif is_uncertain:
        unsure = f"the nearest mode, {near.name}, has {figures}, but not surely enough"
        return f"{unsure}: allow more profiles= or a greater risk="
    else:
        reachable, is_near = _least_within_reach(recommendation, medians)
    allowed = reachable or f"the nearest mode, {near.name}, has {figures}"
    profiles = recommendation.choice.spent.profiles
    known = f"as far as {counted(profiles, 'profile')} {'tells' if profiles == 1 else 'tell'}, {allowed}"
    return f"{known}: allow that, {'more profiles=, ' if is_near else ''}or try another board or batch size"


NEAR_LIMIT = 1.25  # the ratio to a limit up to which more profiles may find a mode that keeps it


def _least_within_reach(recommendation: Recommendation, medians: Mapping[str, np.ndarray]) -> Tuple[str, bool]:
    """The least value of each limited quantity above its limit, among the modes that keep all other limits if any does.

    `medians` has an array over all candidates for each limited quantity. Any one of the limits is enough to relax where
    modes keep the others. Empty if each limit is kept by some mode, or the other limits exclude all. Second, whether
    what has to be allowed is within `NEAR_LIMIT` of its limits.
    """
    limits, least, ratios, is_one_enough = recommendation.goal.limits, [], [], False
    others_kept = "that keeps the other limit" if len(limits) == 2 else "that keeps all other limits"
    for name, limit in limits.items():
        keeps_others = recommendation.pickable.copy()
        for other in limits:
            keeps_others &= (other == name) | (medians[other] <= limits[other])
        relaxes = len(limits) > 1 and bool(keeps_others.any())
        candidates = keeps_others if relaxes else recommendation.pickable
        index = int(np.where(candidates, medians[name], np.inf).argmin())
        value, quantity = float(medians[name][index]), QUANTITIES[name]
        if value > limit:
            unit, factor = quantity.shown_in
            predicted = "" if recommendation.posterior.measured[index] else " (predicted)"
            ratios.append(value / limit)
            where = others_kept if relaxes else "within reach"
            least.append(f"the least {quantity.words} {where} is {_rounded_up(value * factor)} {unit}{predicted}")
            is_one_enough = is_one_enough or relaxes
    is_near = bool(ratios) and (min if is_one_enough else max)(ratios) <= NEAR_LIMIT
    return (", or " if is_one_enough else " and ").join(least), is_near


def _rounded_up(value: float) -> str:
    """A value above 0 in four significant digits that is no less, so that a limit of it is kept."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / unit) * unit:.4g}"


def _figure(estimate: FigureInterval, unit: str, to_shown: Callable[[float], float] = float) -> str:
    value, low, high = map(to_shown, estimate[:3])
    return f"{value:.1f} {unit} {'profiled' if estimate.profiled else 'predicted'} (80 %: {low:.1f} to {high:.1f})"


def _plot(recommendation: Recommendation, chosen: List[int]) -> str:
    sizes = recommendation.posterior.batch_size if recommendation.several_sizes else 1
    time_ms, power_w = (
        np.exp(recommendation.posterior.log_time) / sizes,
        mw_to_w(np.exp(recommendation.posterior.log_power)),
    )
    measured, has_power = recommendation.posterior.measured, np.isfinite(power_w)
    front = recommendation.front
    front_w = np.array([mw_to_w(mode.power_mw.value) for mode in front])
    front_ms = np.array(
        [mode.time_ms.value / (mode.batch_size if recommendation.several_sizes else 1) for mode in front]
    )
    layers = [
        (".", power_w[has_power], np.log10(time_ms[has_power])),
        ("o", front_w, np.log10(front_ms)),
        ("+", power_w[measured], np.log10(time_ms[measured])),
        ("X", power_w[chosen], np.log10(time_ms[chosen])),
    ]
    x_label = "power in W   (. all modes, o front, + profiled, X recommended)"
    return scatter(
        layers,
        x_label,
        f"log10 of the {'time of a sample' if recommendation.several_sizes else 'minibatch time'} in ms",
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
