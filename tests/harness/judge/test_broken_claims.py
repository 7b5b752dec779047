"""Every claim can fail: what it is about is broken in profiles of a simulated campaign, and its verdict turns."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest

from harness.core import campaigns
from harness.core.cases import Case, CaseSettings
from harness.core.errors import CannotRunError
from harness.core.profiles import Series
from harness.judge.case_frame import (
    COLD,
    GPU_LOAD,
    MEMORY,
    POWER,
    READS,
    WARM,
    frame_of,
    frame_of_profiles,
    pooled,
    quantities_of,
    record_of,
)  # fmt: skip
from harness.judge.claims import ClaimOnDevice, judge
from harness.judge.papers import PAPERS
from harness.judge.published_figures import comparisons
from harness.judge.query import Cases
from harness.judge.statistics import PER_EPOCH, PER_MINIBATCH, ratio
from tests.named_modes import mode_on
from tools.simulated_campaign import SimulatedCampaign, papers_claims

pytestmark = pytest.mark.exhaustive

pytest.importorskip("scipy")

ELSEWHERE = {
    *("nothing_throttles", "wake_on_lan_draws_least", "both_take_no_longer_than_one_after_the_other"),
    *("resnet_and_vgg_need_more_memory_than_an_nx_has", "mobilenet_needs_the_memory_of_an_nx"),
    "lenet_fits_into_the_memory_of_a_nano",
    *("halving_profiles_about_as_many_modes_as_log2_of_their_number", "halving_finds_the_best_mode"),
    *("the_mode_that_halving_chooses_keeps_the_limits", "power_settles_within_three_seconds"),
}
"""Claims that no simulated campaign has profiles of, broken in tests/harness/measure/test_concurrent.py (both at once),
test_claims.py (memory) and test_broken_benchmarks.py (searches for a mode, changes of mode)."""

CLAIMS = [claim for claim in papers_claims() if claim.name not in ELSEWHERE]


SMALLER = {"sample:100": "sample:40"}
"""What of the campaign is made smaller, so that it takes seconds."""


class Recorded(ClaimOnDevice):
    """A claim on a device; keeps the figures that it compared, and their bounds."""

    def _decide(self, judgement):
        self.figures, self.bounds = judgement.figures, judgement.bounds
        return super()._decide(judgement)


class Simulated:
    """The campaign `paper` on simulated boards; profiles are made again where one is to be broken."""

    def __init__(self, campaign):
        self.campaign = SimulatedCampaign(campaign=campaign)
        self.cases, self.kept = [], []
        for profile in self.campaign.profiles():
            self.kept.append((record_of(profile, len(self.cases)), quantities_of(profile)))
            self.cases.append(profile.case)
        self.whole = self.pooled_cases(self.kept)
        self.boards = {name: device.board for name, device in self.whole.devices.items()}

    @staticmethod
    def pooled_cases(kept):
        return Cases(pooled(frame_of(*zip(*kept))))

    def profile(self, number):
        """A profile, by its place in the campaign."""
        return self.campaign.profile(self.cases[number])

    def judged(self, claim):
        """The claim on the first simulated board that has something to say to it."""
        for name in self.boards:
            one = Recorded(claim, self.whole, name)
            try:
                if "@" not in name:
                    one.judge()
                    return one
            except CannotRunError:
                continue
        raise AssertionError(f"no board speaks to {claim.name}")

    def judged_again(self, one, changed):
        """The verdict with some profiles in the place of the campaign's, of the boards that it is about."""
        boards = {self.boards[one.device], one.figures.against}
        kept = [
            (record_of(changed[place], place), quantities_of(changed[place])) if place in changed else pair
            for place, pair in enumerate(self.kept)
            if self.boards[pair[0].case.device] in boards
        ]
        return Recorded(one.claim, self.pooled_cases(kept), one.device).judge()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    text = Path(campaigns.__file__).with_name("paper.toml").read_text(encoding="utf-8")
    for words, fewer in SMALLER.items():
        assert words in text
        text = text.replace(words, fewer)
    path = tmp_path_factory.mktemp("campaign") / "smaller.toml"
    path.write_text(text, encoding="utf-8")
    return Simulated(str(path))


@pytest.mark.long
def test_no_simulated_board_says_anything_but_what_is_known(simulated):
    found = judge(simulated.whole, papers_claims())
    assert [one.text for one in found if one.is_violated] == []
    assert {one.takeaway for one in found} == {claim.name for claim in CLAIMS}
    known = {one.takeaway for one in found if one.shortfall}
    assert known == {claim.name for claim in CLAIMS if claim.shortfall}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_turns_where_what_it_is_about_is_broken(simulated, claim):
    one = simulated.judged(claim)
    before = one.verdict
    assert not before.is_violated
    changed = {}
    for row, quantity, factor in BREAK.get(claim.name, one_case)(one, simulated):
        for number in row.profile_ids:
            changed[number] = scaled(simulated.profile(number), quantity, factor, phase_of(claim))
    after = simulated.judged_again(one, changed)
    assert (after.verdict, after.is_violated) != (before.verdict, before.is_violated)


OF_COLD_EPOCHS = {
    *("a_slow_disk_gains_more_from_workers", "one_worker_does_not_fill_agx_from_slow_media", "caching_shows_on_an_hdd"),
    *("cold_stalls_follow_the_speed_of_the_medium", "the_medium_does_not_matter_for_small_data"),
    *("an_ssd_seems_as_fast_as_ram", "a_faster_gpu_gains_more_from_workers"),
}


def phase_of(claim):
    """The phase of the second case."""
    if is_printed(claim):
        return COLD if comparisons(claim.facts[0])[0].after.cache == COLD else WARM
    return COLD if claim.name in OF_COLD_EPOCHS else WARM


def is_printed(claim):
    return "as_printed" in inspect.signature(claim.test).parameters


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


def one_case(one, simulated):
    """The second case of the first cell, so that its figure leaves the bounds."""
    bounds, cell = one.bounds, one.figures.cells[0]
    quantity = printed_quantity(cell) if is_printed(one.claim) else one.figures.quantity.partition(" or ")[0]
    value = cell.figure.value
    if quantity == "read_again" and len(cell.cases) == 1:
        return [(cell.cases[-1], quantity, 1.0)]
    factor = 3.0 * bounds.below / value if bounds.below < np.inf else 0.3 * bounds.above / value
    return [(cell.cases[-1], quantity, factor)]


def printed_quantity(cell):
    metric = comparisons(cell.label.partition(",")[0])[0].metric
    return {**PER_EPOCH, **PER_MINIBATCH}[metric]


def first(quantity, factor, which=lambda cell: cell.cases[0]):
    """One case of the first cell."""
    return lambda one, simulated: [(which(one.figures.cells[0]), quantity, factor)]


def in_mode(name):
    return lambda cell: next(row for row in cell.cases if row.case.power_mode.name == name)


def slowest_cpu(cell):
    return min(cell.cases, key=lambda row: row.conditions["power_mode"]["cpu_khz"])


def power_as_time_to_the(exponent):
    """Power of each mode in proportion to a power of its time."""

    def targets(one, simulated):
        rows = one.figures.cells[0].cases
        least = min(row.time for row in rows)
        return [(row, "power", rows[0].power / row.power * (row.time / least) ** exponent) for row in rows]

    return targets


def all_equal(quantity):
    """Every mode has the first one's figure."""

    def targets(one, simulated):
        rows = one.figures.cells[0].cases
        return [(row, quantity, getattr(rows[0], quantity) / getattr(row, quantity)) for row in rows]

    return targets


def same_gains(one, simulated):
    """Workers gain as much for each workload as for the first."""
    cells = ratio(simulated.whole, "time", workers=(0, 1), workload=PAPERS, storage="hdd", device=one.device).cells
    return [(cell.cases[-1], "time", cells[0].figure.value / cell.figure.value) for cell in cells]


def fitted_modes_slow(one, simulated):
    """Two of the modes that the linear model is fitted to take three times as long."""
    return [(row, "time", 3.0) for row in one.figures.cells[0].cases if row.case.power_mode.name in "ei"]


EPOCHS_APART, BOARDS_APART, ENERGIES_APART = first("epochs", 1.5), first("time", 1.5), first("energy", 1.5)
SAVING, FAST_AT_SLOW_CPU = first("power", 0.3), first("time", 0.01, slowest_cpu)
DVFS_SAVES = first("power", 5.0, lambda cell: cell.cases[1])

BREAK = {
    "what_workers_gain_varies": same_gains,
    "epochs_hardly_vary_over_time": EPOCHS_APART,
    "epochs_hardly_vary_over_time_on_nano": EPOCHS_APART,
    "epochs_vary_little_over_time": EPOCHS_APART,
    "three_epochs_speak_for_all": EPOCHS_APART,
    "boards_of_a_type_are_alike": BOARDS_APART,
    "mobilenet_hardly_varies_between_boards": BOARDS_APART,
    "nx_boards_differ_by_a_few_percent": BOARDS_APART,
    "nano_boards_differ_by_a_few_percent": BOARDS_APART,
    "boards_of_a_type_take_the_same_energy": ENERGIES_APART,
    "boards_of_a_type_take_the_same_energy_on_nx": ENERGIES_APART,
    "boards_of_a_type_take_the_same_energy_on_nano": ENERGIES_APART,
    "nothing_beats_maxn_in_time_and_energy": first("time", 0.1, in_mode("a")),
    "power_and_time_are_inverse": power_as_time_to_the(1.0),
    "more_power_buys_time": power_as_time_to_the(1.0),
    "lenet_has_few_points_on_its_front": power_as_time_to_the(-2.0),
    "larger_networks_have_no_fewer_points_on_theirs": first("power", 0.01, in_mode("g")),
    "the_default_mode_is_on_mobilenets_front": first("power", 0.01, in_mode("a")),
    "the_default_mode_is_on_no_other_front": first("power", 0.01, in_mode("a")),
    "energy_of_lenet_varies_modestly_over_modes": SAVING,
    "energy_of_mobilenet_varies_modestly_over_modes": SAVING,
    "energy_of_resnet_hardly_varies_over_modes": SAVING,
    "power_modes_change_time_many_fold": first("time", 1000.0),
    "power_modes_change_power_several_fold": first("power", 1000.0),
    "lenet_is_best_at_high_cpu_clocks": FAST_AT_SLOW_CPU,
    "lenet_is_fast_wherever_the_cpu_is": FAST_AT_SLOW_CPU,
    "a_linear_model_of_time_is_inaccurate": all_equal("time"),
    "four_modes_predict_lenet_worst": all_equal("time"),
    "four_modes_predict_most_within_a_tenth": fitted_modes_slow,
    "resnet_has_the_widest_range_of_power": all_equal("power"),
    "fifty_modes_are_profiled_in_25_minutes": first("time", 1000.0),
    "maxn_is_faster_than_budgets_allow": first("time", 10.0, in_mode("maxn")),
    "dvfs_saves_on_large_idle_boards": DVFS_SAVES,
    "dvfs_saves_little_on_small_idle_boards": DVFS_SAVES,
    "ten_minibatches_tell_the_time": first("drift", 2.0),
    "ten_minibatches_tell_the_power": first("power_drift", 2.0),
    "ten_minibatches_of_a_fast_mode_may_hold_no_power_sample": first("samples", 2.0),
    "forty_minibatches_hold_a_power_sample": first("samples", 0.2),
}
"""By claim: which cases are broken, in what quantity, by what factor; `one_case` breaks the others."""


def test_wake_on_lan_is_judged_by_a_socket_meters_records_of_both_states(simulated):
    def recorded(state, milliwatts):
        settings = CaseSettings(minibatches=None, idle_s=60.0, cache="as-is")
        case = Case("sim:nano", "idle", mode_on("sim:nano"), 0, "sd", 1, settings, "idle")
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
        frame = frame_of_profiles((recorded("dvfs", 2000.0), recorded("wol", wol_mw)))
        found = judge(pooled(frame), papers_claims())
        return next(one.verdict for one in found if one.takeaway == "wake_on_lan_draws_least")

    assert (verdict(900.0), verdict(1900.0)) == ("confirmed", "contradicted")
