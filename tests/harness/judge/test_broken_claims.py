"""Every claim can fail: what it is about is broken in profiles of a simulated campaign, and its verdict turns."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from harness.core import campaigns
from harness.core.cases import Case, Settings
from harness.core.profiles import Series
from harness.judge.claim_functions import FUNCTIONS, PER_EPOCH, PER_MINIBATCH
from harness.judge.claim_list import BOARD, load_claims
from harness.judge.claims import judge
from harness.judge.evidence import COLD, GPU_LOAD, MEMORY, POWER, READS, WARM, View, evidence_of, pooled
from harness.judge.published_figures import comparisons
from tools.simulated_campaign import SimulatedCampaign

pytestmark = pytest.mark.exhaustive

pytest.importorskip("scipy")

ELSEWHERE = {"nothing_throttles", "wake_on_lan_draws_least", "both_take_no_longer_than_one_after_the_other"}
"""Claims that no simulated campaign has profiles of; the last is broken in tests/harness/measure/test_concurrent.py."""

CLAIMS = [claim for claim in load_claims() if claim.name not in ELSEWHERE]


SMALLER = {"sample:100": "sample:40"}
"""What of the campaign is made smaller, so that it takes seconds."""


class Simulated:
    """The campaign `paper` on simulated boards, as evidence; profiles are made again where one is to be broken."""

    def __init__(self, campaign):
        self.campaign = SimulatedCampaign(campaign=campaign)
        self.cases, self.evidence = [], []
        for profile in self.campaign.profiles():
            self.evidence.append(evidence_of(profile)._replace(profile_ids=(len(self.cases),)))
            self.cases.append(profile.case)
        known = pooled(self.evidence)
        self.views = {name: View(name, known) for name in dict.fromkeys(one.case.device for one in known)}

    def profile(self, number):
        """A profile, by its place in the campaign."""
        return self.campaign.profile(self.cases[number])

    def judge(self, claim, view, changed=()):
        """The verdict on a device, with some evidence in the place of the campaign's."""
        boards = {view.board, *(board for before, _ in claim.pairs for board in before.get(BOARD, ()))}
        changed = dict(changed)
        found = [changed.get(place, one) for place, one in enumerate(self.evidence) if one.board in boards]
        return next((one for one in judge(found, [claim]) if one.device == view.device), None)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    text = Path(campaigns.__file__).with_name("paper.toml").read_text(encoding="utf-8")
    for words, fewer in SMALLER.items():
        assert words in text
        text = text.replace(words, fewer)
    path = tmp_path_factory.mktemp("campaign") / "smaller.toml"
    path.write_text(text, encoding="utf-8")
    return Simulated(str(path))


def test_no_simulated_board_says_anything_but_what_is_known(simulated):
    found = judge(simulated.evidence)
    assert [one.text for one in found if one.is_violated] == []
    assert {one.takeaway for one in found} == {claim.name for claim in CLAIMS}
    known = {one.takeaway for one in found if one.shortfall}
    assert known == {claim.name for claim in CLAIMS if claim.shortfall}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_turns_where_what_it_is_about_is_broken(simulated, claim):
    view = next(
        view
        for view in simulated.views.values()
        if "@" not in view.device
        and (not claim.boards or view.board in claim.boards)
        and FUNCTIONS[claim.function](claim, view, simulated.views)
    )
    cells = FUNCTIONS[claim.function](claim, view, simulated.views)
    before = simulated.judge(claim, view)
    assert not before.is_violated
    changed = {}
    for target, quantity, factor in BREAK.get(claim.function, one_case)(claim, view, cells):
        for number in target.profile_ids:
            changed[number] = evidence_of(scaled(simulated.profile(number), quantity, factor, phase_of(claim)), number)
    after = simulated.judge(claim, view, changed)
    assert after is not None
    assert (after.verdict, after.is_violated) != (before.verdict, before.is_violated)


def phase_of(claim):
    """The phase of the second case."""
    if claim.function == "as_printed":
        return COLD if comparisons(claim.facts[0])[0].after.cache == COLD else WARM
    return claim.phases[1]


def scaled(profile, quantity, factor, phase):
    """A profile with a quantity multiplied; of times only in the epochs of a phase."""
    minibatches, series = list(profile.minibatches), dict(profile.telemetry.series)
    whole_epochs = any(one.epoch for one in minibatches)

    def is_chosen(place, one):
        if quantity == "epochs":
            return one.epoch % 2 == 1
        if quantity == "drift":
            return place > len(minibatches) / 2
        return one.epoch == 0 if phase == COLD else one.epoch > 0 or not whole_epochs

    def stretched(one):
        if quantity in ("time", "epochs", "drift"):
            scale = {"stall_ms": factor, "compute_ms": factor, "e2e_ms": factor}
        elif quantity == "busy_share":
            scale = {"stall_ms": factor, "compute_ms": factor}
        else:
            name = "compute_ms" if quantity == "compute" else "stall_ms"
            scale = {name: factor, "e2e_ms": 1 + (factor - 1) * getattr(one, name) / one.e2e_ms}
        return one._replace(**{name: getattr(one, name) * by for name, by in scale.items()})

    def values_times(channel, factors):
        times_s, values = series[channel]
        series[channel] = Series(times_s, tuple(np.array(values) * factors))

    aggregates, conditions = profile.aggregates, profile.conditions
    if quantity in ("power", "energy", "power_drift", "gpu_load", "memory"):
        channel = {"gpu_load": GPU_LOAD, "memory": MEMORY}.get(quantity, POWER)
        if channel in series:
            times_s = np.array(series[channel].times_s)
            is_late = times_s > np.median(times_s)
            values_times(channel, np.where(is_late, factor, 1.0) if quantity == "power_drift" else factor)
        aggregates = {**aggregates, "power_mw": (aggregates.get("power_mw") or 0.0) * factor}
    elif quantity == "read_again":
        times_s, values = map(np.array, series[READS])
        is_later = times_s > min(one.start_s for one in minibatches if one.epoch)
        series[READS] = Series(tuple(times_s), tuple(np.where(is_later, factor * values[~is_later].mean(), values)))
    elif quantity == "cached_share":
        shares = [share * factor for share in conditions["cache_residency_by_epoch"]]
        conditions = {**conditions, "cache_residency_by_epoch": shares}
    elif quantity == "samples":
        times_s, values = series[POWER]
        if factor > 1:  # one with each minibatch
            series[POWER] = Series(tuple(one.start_s for one in minibatches), (values[0],) * len(minibatches))
        else:
            series[POWER] = Series(times_s[:: round(1 / factor)], values[:: round(1 / factor)])
    else:
        minibatches = [stretched(one) if is_chosen(place, one) else one for place, one in enumerate(minibatches)]
    telemetry = dataclasses.replace(profile.telemetry, series=series)
    return dataclasses.replace(
        profile, minibatches=minibatches, telemetry=telemetry, aggregates=aggregates, conditions=conditions
    )


def one_case(claim, view, cells):
    """The second case of the first cell, so that its figure leaves the bounds."""
    bounds, cell = claim.bounds.get(view.board, claim.bounds[""]), cells[0]
    (quantity, *_) = claim.quantities or (printed_quantity(cell),)
    value = cell.figure.value
    if quantity == "read_again" and not len(claim.pairs):
        return [(cell.evidence[-1], quantity, 1.0)]
    factor = 3.0 * bounds.below / value if bounds.below < np.inf else 0.3 * bounds.above / value
    return [(cell.evidence[-1], quantity, factor)]


def printed_quantity(cell):
    metric = comparisons(cell.label.partition(",")[0])[0].metric
    return {**PER_EPOCH, **PER_MINIBATCH}[metric]


def time_of(one):
    return one.figure("time").value


def in_mode(cell, name):
    return next(one for one in cell.evidence if one.case.power_mode == name)


def slowest_cpu(cell):
    return min(cell.evidence, key=lambda one: one.conditions["power_mode"]["cpu_khz"])


def power_as_time_to_the(exponent):
    """Power of each mode in proportion to a power of its time."""

    def targets(claim, view, cells):
        least = min(map(time_of, cells[0].evidence))
        own = cells[0].evidence[0].figure("power").value
        return [
            (one, "power", own / one.figure("power").value * (time_of(one) / least) ** exponent)
            for one in cells[0].evidence
        ]

    return targets


def all_equal(quantity):
    """Every mode has the first one's figure."""

    def targets(claim, view, cells):
        first, *_ = own = [one.figure(quantity).value for one in cells[0].evidence]
        return [(one, quantity, first / value) for one, value in zip(cells[0].evidence, own)]

    return targets


BREAK = {
    "extremes": lambda claim, view, cells: [
        (cell.evidence[-1], "time", cells[0].figure.value / cell.figure.value)
        for cells in [FUNCTIONS["ratio"](claim, view, {})]
        for cell in cells
    ],
    "variation_of_epochs": lambda claim, view, cells: [(cells[0].evidence[0], "epochs", 1.5)],
    "three_epochs_over_all": lambda claim, view, cells: [(cells[0].evidence[0], "epochs", 1.5)],
    "range_of_boards": lambda claim, view, cells: [(cells[0].evidence[0], claim.quantities[0], 1.5)],
    "variation_of_boards": lambda claim, view, cells: [(cells[0].evidence[0], claim.quantities[0], 1.5)],
    "best_of_both_over_maxn": lambda claim, view, cells: [(in_mode(cells[0], "a"), "time", 0.1)],
    "correlation": power_as_time_to_the(1.0),
    "points_on_front": power_as_time_to_the(-2.0),
    "points_more_than_first": lambda claim, view, cells: [(in_mode(cells[0], "g"), "power", 0.01)],
    "first_mode_on_front": lambda claim, view, cells: [(in_mode(cells[0], "a"), "power", 0.01)],
    "share_saved": lambda claim, view, cells: [(cells[0].evidence[0], "power", 0.3)],
    "range_of_papers_modes": lambda claim, view, cells: [(cells[0].evidence[0], claim.quantities[0], 1000.0)],
    "best_at_greatest_cpu_clock": lambda claim, view, cells: [(slowest_cpu(cells[0]), "time", 0.01)],
    "slowest_at_fast_cpu_over_fastest_at_slow": lambda claim, view, cells: [(slowest_cpu(cells[0]), "time", 0.01)],
    "error_of_linear_model": all_equal("time"),
    "first_linear_error_over_others": all_equal("time"),
    "first_range_over_others": all_equal("power"),
    "minutes_of_fifty_profiles": lambda claim, view, cells: [(cells[0].evidence[0], "time", 1000.0)],
    "maxn_penalty": lambda claim, view, cells: [(in_mode(cells[0], "maxn"), "time", 10.0)],
    "watts_saved": lambda claim, view, cells: [(cells[0].evidence[1], "power", 5.0)],
    "linear_errors_below_a_tenth": lambda claim, view, cells: [
        (one, "time", 3.0) for one in cells[0].evidence if one.case.power_mode in "ei"
    ],
    "error_of_ten_minibatches": lambda claim, view, cells: [
        (cells[0].evidence[0], "drift" if claim.quantities == ("time",) else "power_drift", 2.0)
    ],
    "ten_without_power_sample": lambda claim, view, cells: [(cells[0].evidence[0], "samples", 2.0)],
    "forty_without_power_sample": lambda claim, view, cells: [(cells[0].evidence[0], "samples", 0.2)],
}
"""By a claim's function: which evidence is broken, in what quantity, by what factor; `one_case` breaks the others."""


def test_wake_on_lan_is_judged_by_a_socket_meters_records_of_both_states(simulated):
    def recorded(state, milliwatts):
        settings = Settings(minibatches=None, idle_s=60.0, cache="as-is")
        case = Case("sim:nano", "idle", "maxn", 0, "sd", 1, settings, "idle")
        profile = simulated.campaign.profile(case)
        series = {POWER: Series((0.0, 60.0), (milliwatts, milliwatts))}
        return dataclasses.replace(
            profile,
            case=dataclasses.replace(case, workload=f"idle-{state}", device="nano"),
            provenance="measured",
            telemetry=dataclasses.replace(profile.telemetry, series=series),
            aggregates={**profile.aggregates, "power_mw": milliwatts},
        )

    def verdict(wol_mw):
        found = judge(map(evidence_of, (recorded("dvfs", 2000.0), recorded("wol", wol_mw))))
        return next(one.verdict for one in found if one.takeaway == "wake_on_lan_draws_least")

    assert (verdict(900.0), verdict(1900.0)) == ("confirmed", "contradicted")
