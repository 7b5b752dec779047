"""Short texts on a run's profiles: the table at its end, a line for each case, figures for pytest-benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

from harness.core.board_threshold import CONDITION
from harness.core.cases import IDLE
from harness.core.metrics import CONCURRENT_AGGREGATES
from harness.core.profiles import DISQUALIFYING, Profile
from harness.core.terminal import counted, format_table
from harness.core.units import bytes_to_mib, mw_to_w, mwh_to_wh
from harness.store.conditions import board_instance, canonical_json, comparable_conditions, device_labels

if TYPE_CHECKING:
    from harness.judge.verdict import Verdict

NO_POWER_SENSOR = "no power sensor"

_HEADER = [
    "case", ">minibatch ms", ">IQR ms", ">stall ms", ">compute ms", ">E2E s", ">samples/s", ">power W", ">energy Wh",
    "flags",
]  # fmt: skip


MOST_ROWS = 20  # a summary of more profiles lists the extremes only, so that it fits on a screen


def format_summary(profiles: Sequence[Profile], in_full: bool = True) -> str:
    """The table of a run: medians over the clean minibatches, a line for each case; below it the flags.

    For more than `MOST_ROWS` profiles, unless `in_full`, those with the least and the greatest figures of each device.
    Simulated and replayed figures carry their provenance in the case column.
    """
    listed = list(profiles) if in_full or len(profiles) <= MOST_ROWS else _extremes(profiles)
    devices = [(profile.case.device, board_instance(profile.conditions, profile.case.device)) for profile in profiles]
    labels = dict(zip(map(id, profiles), device_labels(devices)))
    names = [labels[id(profile)] + profile.case.id[len(profile.case.device) :] for profile in listed]
    rows = [_row(profile, name) for profile, name in zip(listed, names)]
    header, has_memory = list(_HEADER), in_full and any(map(_peak_memory, listed))
    if has_memory:
        header.insert(-1, ">memory MiB")
        for row, profile in zip(rows, listed):
            row.insert(-1, _number(_peak_memory(profile)))
    has_tail = in_full and any(profile.aggregates.get(TAIL[0][1]) is not None for profile in listed)
    if has_tail:
        place = header.index(">IQR ms") + 1
        header[place:place] = [name for name, _ in TAIL]
        for row, profile in zip(rows, listed):
            row[place:place] = [_number(profile.aggregates.get(figure)) for _, figure in TAIL]
    has_overhead = any(_overhead_share(profile) >= SHOWN_OVERHEAD for profile in listed)
    if has_overhead:
        place = header.index(">compute ms") + 1
        header.insert(place, ">overhead ms")
        for row, profile in zip(rows, listed):
            row.insert(place, _number(profile.aggregates["overhead_ms"]))
    table = format_table(header, rows)
    measured = ("" if profile.aggregates["power_mw"] is None else "power: " for profile in listed)
    definitions = dict.fromkeys(
        text + profile.conditions["power_definition"] for text, profile in zip(measured, listed)
    )
    legend = [
        "minibatch, stall, compute: medians over the clean minibatches; IQR: first to third quartile; E2E: their sum.",
        *([_TAIL_LEGEND] if has_tail else []),
        *([_OVERHEAD_LEGEND] if has_overhead else []),
        *([_MEMORY_LEGEND] if has_memory else []),
        *definitions,
        *_explain_flags(profiles),
    ]
    if len(listed) < len(profiles):
        legend.insert(0, f"the extremes of {len(profiles)} profiles; all of them with -v, or in the report")
    return "\n".join([table, "", *legend])


TAIL = (
    (">p95 ms", "minibatch_time_p95_ms"),
    (">p99 ms", "minibatch_time_p99_ms"),
    (">max ms", "minibatch_time_max_ms"),
)
_TAIL_LEGEND = "p95, p99: 95 % and 99 % of the clean minibatches take no longer; max: the slowest one."

SHOWN_OVERHEAD = 0.05  # of a minibatch; from this share on, stall and compute alone visibly do not add up to it
_OVERHEAD_LEGEND = "overhead: minibatch - stall - compute, its median: the copy to the accelerator and the loop itself."


def _overhead_share(profile: Profile) -> float:
    overhead_ms, minibatch_ms = profile.aggregates["overhead_ms"], profile.aggregates["minibatch_time_ms"]
    return overhead_ms / minibatch_ms if overhead_ms is not None and minibatch_ms else 0.0


_MEMORY_LEGEND = (
    "memory: the peak where the network ran: torch's on a GPU with its own memory; the board's above what was in use "
    "before, if GPU and CPU share it; otherwise of the process and its workers."
)


def _peak_memory(profile: Profile) -> Optional[float]:
    """In MiB."""
    peak_bytes = profile.aggregates.get("memory_peak_bytes")
    return None if peak_bytes is None else bytes_to_mib(peak_bytes)


def _extremes(profiles: Sequence[Profile]) -> List[Profile]:
    """Profiles with the least and greatest time and power of each device, workload and task, up to `MOST_ROWS`."""
    chosen: Dict[int, None] = {}
    groups: Dict[Any, List[int]] = {}
    for place, profile in enumerate(profiles):
        groups.setdefault((profile.case.device, profile.case.workload, profile.case.task), []).append(place)
    for name in ("minibatch_time_ms", "power_mw"):
        for places in sorted(groups.values(), key=len, reverse=True):
            values: Dict[int, float] = {}
            for place in places:
                value = profiles[place].aggregates[name]
                if value is not None:
                    values[place] = value
            for pick in (min, max) if values else ():
                if len(chosen) < MOST_ROWS:
                    chosen.setdefault(pick(values, key=values.__getitem__))
    return [profiles[place] for place in sorted(chosen)]


def describe_result(profile: Profile) -> str:
    figures = profile.aggregates
    parts = [f"idle for {_number(profile.case.settings.idle_s)} s"]
    if profile.case.task != IDLE:
        q1, q3 = (figures[f"minibatch_time_{quartile}_ms"] for quartile in ("q1", "q3"))
        spread = "" if q1 is None else f" (IQR {_number(q1)} to {_number(q3)})"
        parts = [f"{_number(figures['minibatch_time_ms'])} ms per minibatch{spread}"]
        if figures["samples_per_s"] is not None:
            parts.append(f"{_number(figures['samples_per_s'])} samples/s")
        if figures.get("tokens_per_s") is not None:
            parts.append(f"{_number(figures['tokens_per_s'])} tokens/s")
    power_mw = _mean_power_mw(figures)
    if power_mw is not None:
        parts.append(f"{_number(mw_to_w(power_mw))} W")
    socket_mw = figures.get("socket_power_mw")
    if socket_mw is not None:
        parts.append(f"{_number(mw_to_w(socket_mw))} W at the plug")
    if profile.flags:
        parts.append("flags: " + _flag_kinds(profile))
    return ", ".join(parts)


def format_verdicts(verdicts: Sequence[Verdict], in_full: bool = True) -> str:
    """The number of claims with each verdict, and a line for each claim that is not confirmed, with its provenance.

    For more than `MOST_ROWS` of those, unless `in_full`, violations come first.
    """
    from harness.judge.claims import counts_of_claims

    lines = [", ".join(f"{name}: {count}" for name, count in counts_of_claims(verdicts).items())]
    if any(verdict.fitted for verdict in verdicts):
        lines.append(
            "fitted to it: the simulation was fitted to this figure, so it only shows that it can reproduce it"
        )
    surprising = sorted(
        (verdict for verdict in verdicts if verdict.verdict != "confirmed"), key=lambda verdict: not verdict.is_violated
    )
    listed = surprising if in_full else surprising[:MOST_ROWS]
    lines += [
        verdict.text + (f"; known shortfall: {verdict.shortfall}" if verdict.shortfall else "") for verdict in listed
    ]
    if len(listed) < len(surprising):
        lines.append(f"and {len(surprising) - len(listed)} more that are not confirmed: -v, or the report, has them")
    left_out = {verdict.device: verdict.left_out for verdict in verdicts if verdict.left_out}
    lines += [f"{device}: left out of this: {left_out_of_verdicts(count)}" for device, count in left_out.items()]
    return "\n".join(lines)


def left_out_of_verdicts(count: int) -> str:
    return f"{counted(count, 'profile')} flagged {' or '.join(DISQUALIFYING)}; with --resume they are measured again"


def extra_info(profile: Profile) -> Dict[str, Any]:
    """The suite's own figures as plain values, for pytest-benchmark's JSON; figures without a sensor are omitted."""
    # Six significant digits: enough for any figure here, and a JSON file people can read.
    figures = {name: float(f"{value:.6g}") for name, value in profile.aggregates.items() if value is not None}
    mode = profile.conditions["power_mode"]
    named = ("data_source", "data_samples", "accelerator", "torch")
    return {
        "provenance": profile.provenance,
        "case": profile.case.id,
        "task": profile.case.task,
        **mode,
        **figures,
        **{condition: profile.conditions[condition] for condition in named if condition in profile.conditions},
        "conditions": canonical_json(comparable_conditions(profile.conditions, profile.case, profile.provenance)),
        "flags": list(profile.flags),
        **({CONDITION: profile.conditions[CONDITION]} if CONDITION in profile.conditions else {}),
    }


def _row(profile: Profile, name: str) -> List[str]:
    figures = profile.aggregates
    name = name if profile.provenance == "measured" else f"{name} ({profile.provenance})"
    power_mw = _mean_power_mw(figures)
    power = NO_POWER_SENSOR
    if figures.get("power_samples") == 0 and not profile.conditions["power_definition"].startswith(NO_POWER_SENSOR):
        power = "too short"  # between two samples of the sensor
    if power_mw is not None:
        power = _number(mw_to_w(power_mw))
    return [
        name,
        _number(figures["minibatch_time_ms"]),
        "-".join(_number(figures[f"minibatch_time_{name}_ms"]) for name in ("q1", "q3")).strip("-") or "-",
        _number(figures["fetch_stall_ms"]),
        _number(figures["compute_ms"]),
        _number(figures["e2e_s"]),
        _number(figures["samples_per_s"]),
        power,
        _number(mwh_to_wh(figures["energy_mwh"])) if figures["energy_mwh"] is not None else "-",
        _flag_kinds(profile),
    ]


def _mean_power_mw(figures: Mapping[str, Optional[float]]) -> Optional[float]:
    """The mean; the median where there is no other, as in a replayed corpus."""
    mean_mw = figures["power_mean_mw"]
    return figures["power_mw"] if mean_mw is None else mean_mw


def _explain_flags(profiles: Sequence[Profile]) -> List[str]:
    """A line for each kind of flag, with the text of the first one; the others are in the results."""
    kinds: Dict[str, List[str]] = {}
    for profile in profiles:
        for flag in profile.flags:
            kind, _, text = flag.partition(": ")
            kinds.setdefault(kind, []).append(text)
    return [
        f"{kind}: {texts[0]}" + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else "")
        for kind, texts in kinds.items()
    ]


def _flag_kinds(profile: Profile) -> str:
    return ", ".join(flag.partition(":")[0] for flag in profile.flags)


def _number(value: Optional[float]) -> str:
    """Three significant digits, whole numbers in full: `0.00123`, `12.3`, `4570`."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def describe_concurrent(profile: Profile) -> str:
    figures = {name: _number(profile.aggregates.get(name)) for name in CONCURRENT_AGGREGATES}
    parts = [
        f"trained {figures['training_samples_per_s']} samples/s",
        f"served {figures['inference_per_s']} requests/s",
    ]
    if figures["latency_median_ms"] != "-":
        quantiles = "{latency_median_ms} ms in the median, {latency_p95_ms} ms at 95 %, {latency_p99_ms} ms at 99 %"
        parts.append(f"latency {quantiles.format(**figures)}")
    if figures["speedup"] != "-":
        alone = "alone {training_alone_per_s} samples/s, {latency_alone_median_ms} ms; speedup {speedup}"
        parts.append(alone.format(**figures))
    return ", ".join(parts)
