"""Claims against profiles: what speaks to them, and what follows."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.cases import DROPPED, Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.profiles import Series
from harness.devices.registry import open_device
from harness.judge.case_frame import frame_of_profiles, of_experiments, pooled, read_frame
from harness.judge.claims import counts_of_claims, judge, judged_devices
from harness.judge.compare import version_effects
from harness.judge.query import Cases, default_mode
from harness.judge.verdict import CONFIRMED, CONTRADICTED, UNDECIDED, Bounds, Cell, deciding_cell, exactly
from harness.measure.run import run
from harness.stats.estimates import Drawn, Estimate
from harness.stats.noise import RunNoise, over_runs
from harness.store.conditions import CHOSEN_BY
from harness.store.results import ResultsStore
from harness.summary import format_verdicts
from tests.messages import says
from tests.named_modes import mode_on
from tools.simulated_campaign import papers_claims

pytest.importorskip("scipy")

MOBILENET = "mobilenetv3-gld23k"


def simulated(device, **fields):
    settings = fields.pop("settings", CaseSettings(minibatches=60))
    opened = open_device(device, Configuration())
    power_mode = named_mode(opened, fields.pop("power_mode", "maxn"))
    usual = {"workload": MOBILENET, "workers": 4, "storage": "ssd", "batch_size": 16}
    return run(Case(device, power_mode=power_mode, settings=settings, **{**usual, **fields}), opened)


def slowed(profile, factor, **conditions):
    """The same profile of a machine that takes so many times as long."""
    minibatches = [
        one._replace(stall_ms=one.stall_ms * factor, compute_ms=one.compute_ms * factor, e2e_ms=one.e2e_ms * factor)
        for one in profile.minibatches
    ]
    return dataclasses.replace(profile, minibatches=minibatches, conditions={**profile.conditions, **conditions})


def watched(profile):
    """The same profile of a machine that has a sensor of throttling."""
    series = {**profile.telemetry.series, "throttle_oc3_events": Series((0.0, 1.0), (0.0, 0.0))}
    return dataclasses.replace(profile, telemetry=dataclasses.replace(profile.telemetry, series=series))


def by_name(found):
    return {one.takeaway: one for one in found}


def verdicts_of(profiles):
    return judge(pooled(frame_of_profiles(profiles)), papers_claims())


def judged(profiles):
    """What profiles say, by the name of the claim."""
    return by_name(verdicts_of(profiles))


def quantity(profile, name):
    return float(frame_of_profiles([profile])[name].iloc[0])


def test_profiles_that_hold_to_a_take_away_confirm_it_and_others_contradict_it():
    none, four = simulated("sim:xavier-agx", workers=0), simulated("sim:xavier-agx", workers=4)
    found = judged((none, four))["one_worker_shortens_every_epoch"]
    assert (found.verdict, found.must_hold, found.is_violated) == ("confirmed", True, False)
    assert found.low < found.effect < found.high < 1.0
    turned = judged((none, slowed(four, 4.0)))["one_worker_shortens_every_epoch"]
    assert (turned.verdict, turned.is_violated) == ("contradicted", True)
    assert "xavier-agx" in turned.text
    assert "004 5.1.4" in turned.text


def measured(profile, **fields):
    """The same profile as of a machine that is no board."""
    case = dataclasses.replace(profile.case, device="host", **fields)
    conditions = {**profile.conditions, "board": None, "accelerator": "cpu"}
    return dataclasses.replace(profile, case=case, provenance="measured", conditions=conditions)


def test_a_measured_machine_may_leave_a_take_away_undecided():
    profile = measured(simulated("sim:xavier-agx", workers=0))
    other = slowed(measured(profile, workers=4), 1.03)
    found = judged((profile, other))["one_worker_shortens_every_epoch"]
    assert (found.verdict, found.is_violated) == ("undecided", False)


def test_a_repeated_case_of_a_machine_widens_the_intervals_of_all_and_the_verdict_says_so():
    none = measured(simulated("sim:xavier-agx", workers=0))
    four = slowed(measured(none, workers=4), 0.7)
    repeated = [slowed(measured(none, batch_size=8), factor) for factor in (0.6, 1.0, 1.6)]
    once = judged((none, four))["one_worker_shortens_every_epoch"]
    often = judged((none, four, *repeated))["one_worker_shortens_every_epoch"]
    assert (once.verdict, often.verdict) == ("confirmed", "undecided")
    assert "time 5.0% (assumed)" in once.text
    assert "learned from 2 repetitions" in often.text
    assert often.low < once.low < once.high < often.high


def test_a_verdict_of_a_machine_that_is_none_of_the_papers_says_so():
    profiles = [measured(simulated("sim:xavier-agx", workers=workers)) for workers in (0, 4)]
    found = judged(profiles)["one_worker_shortens_every_epoch"]
    assert "xavier-agx, xavier-nx, nano" in found.text
    assert "the CPU trains" in found.text
    there = judged(simulated("sim:xavier-agx", workers=count) for count in (0, 4))
    assert there["one_worker_shortens_every_epoch"].apart == ""


def test_more_workers_than_cores_say_nothing_of_what_workers_are_worth():
    none, four = (measured(simulated("sim:xavier-agx", workers=workers)) for workers in (0, 4))
    mode = {**four.conditions["power_mode"], "cpu_cores": 2}
    few = dataclasses.replace(four, conditions={**four.conditions, "power_mode": mode})
    assert "one_worker_shortens_every_epoch" not in judged((none, few))


@pytest.mark.exhaustive
def test_what_is_said_of_some_boards_is_not_asked_of_another_machine_nor_of_other_simulated_boards():
    one, two = (simulated("sim:xavier-agx", workers=workers) for workers in (1, 2))
    assert "mobilenet_on_agx_needs_one_worker" in judged((one, two))
    found = judged(measured(profile) for profile in (one, two))
    assert "mobilenet_on_agx_needs_one_worker" not in found
    found = judged(simulated("sim:orin-nano", workers=workers) for workers in (0, 4))
    assert "workers_cost_no_energy" not in found


def test_figures_of_a_section_are_compared_with_what_the_paper_prints():
    b, c = (simulated("sim:xavier-agx", workload="resnet18-cifar10", power_mode=letter) for letter in "bc")
    found = judged((b, c))["what_the_gpu_clock_does_to_compute"]
    assert (found.verdict, found.above, found.below) == ("confirmed", 0.85, 1.15)
    compute = [quantity(one, "compute") for one in (b, c)]
    assert found.effect == pytest.approx(compute[1] / compute[0] / (1 - 0.223))
    slow = judged((b, slowed(c, 1.3)))["what_the_gpu_clock_does_to_compute"]
    assert slow.verdict == "contradicted"


def test_what_dropping_the_cache_costs_is_asked_of_epochs_that_it_was_dropped_before():
    settings = [CaseSettings(minibatches=None, epochs=2, cache=cache, data_scale=1.0) for cache in ("cold", DROPPED[1])]
    cold, each = (simulated("sim:xavier-agx", storage="hdd", settings=one) for one in settings)
    assert "what_dropping_the_cache_costs" not in judged([cold])
    found = judged([cold, each])["what_dropping_the_cache_costs"]
    assert found.effect == pytest.approx(quantity(each, "stall") / quantity(cold, "stall"))
    assert found.verdict == "confirmed"


@pytest.mark.exhaustive
def test_boards_are_compared_in_their_default_modes_and_in_no_other():
    asked = [("xavier-agx", "maxn"), ("xavier-nx", default_mode("xavier-nx")), ("xavier-nx", "maxn")]
    found = [simulated(f"sim:{board}", workload="lenet-mnist", power_mode=mode) for board, mode in asked]
    verdict = judged(found)["compute_is_slower_on_nx_than_on_agx"]
    compute = [quantity(one, "compute") for one in found]
    assert verdict.effect == pytest.approx(compute[1] / compute[0])
    assert (verdict.quantity, verdict.against) == ("compute", "xavier-agx")
    assert "compute_is_slower_on_nx_than_on_agx" not in judged(found[::2])


@pytest.mark.exhaustive
def test_what_was_disturbed_or_throttled_says_nothing_of_time_but_that_it_was(tmp_path):
    none, four = (
        watched(dataclasses.replace(simulated("sim:xavier-agx", workers=workers), provenance="measured"))
        for workers in (0, 4)
    )
    wrong = [
        dataclasses.replace(slowed(four, 4.0), flags=[flag])
        for flag in ("disturbed: other processes used 2.00 cores meanwhile", "throttled: from 1 s to 3 s")
    ]
    found = judged((none, four, *wrong))
    verdict = found["one_worker_shortens_every_epoch"]
    assert (verdict.verdict, verdict.left_out) == ("confirmed", 2)
    assert found["nothing_throttles"].verdict == "contradicted"
    assert found["nothing_throttles"].effect == 0.5
    alone = judged(wrong[1:])
    assert set(alone) == {"nothing_throttles"}
    assert says(format_verdicts(list(found.values())), "2 profiles", "disturbed or throttled")
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for profile in (none, four, *wrong):
            store.add(profile, {}, "run")
        assert by_name(judge(pooled(of_experiments(read_frame(store))), papers_claims())) == found
    as_simulated = [dataclasses.replace(one, provenance="simulated") for one in (none, *wrong)]
    assert judged(as_simulated)["one_worker_shortens_every_epoch"].verdict == "contradicted"


def test_baseload_is_the_idle_power_of_the_same_mode_and_asked_of_no_other():
    idle = CaseSettings(minibatches=None, idle_s=60.0, cache="as-is")
    asked = {"workload": "idle", "workers": 0, "batch_size": 1, "settings": idle, "task": "idle"}
    profiles = [simulated("sim:xavier-agx", power_mode=mode, **asked) for mode in "gl"]
    profiles += [simulated("sim:xavier-agx", power_mode=mode) for mode in "ag"]
    found = judged(profiles)["baseload_is_less_than_half_of_the_energy_of_large_networks"]
    assert (found.n, found.case) == (1, "idle-g")
    assert 0.2 < found.effect < 0.3


def test_of_a_machine_without_the_papers_modes_maxn_is_held_against_those_it_has():
    at_maxn = measured(simulated("sim:orin-agx"))
    found = judged((at_maxn, slowed(measured(at_maxn, power_mode=mode_on("host", "1c")), 3.0)))["maxn_is_fastest"]
    assert (found.device, found.n, found.verdict) == ("host", 1, "confirmed")


@pytest.mark.exhaustive
def test_a_disk_whose_reads_were_held_down_counts_as_a_slow_one():
    settings = CaseSettings(minibatches=None, epochs=2, cache="cold", data_scale=0.05)
    ssd, hdd = (simulated("sim:xavier-agx", workers=0, storage=one, settings=settings) for one in ("ssd", "hdd"))
    held_down = slowed(measured(hdd, storage="ssd@20"), 1.0, storage_limit_bytes_per_s=20_000_000)
    profiles = [measured(ssd), held_down]
    assert Cases(pooled(frame_of_profiles(profiles))).devices["host"].held_down == ("ssd@20",)
    found = judged(profiles)
    assert found["cold_stalls_follow_the_speed_of_the_medium"].verdict == "confirmed"
    assert found["caching_shows_on_an_hdd"].case.endswith("ssd@20-bs16-cold-x0.05")
    assert "a_cached_data_set_makes_up_for_a_slow_disk" in found
    alone = judged(profiles[:1])
    assert "cold_stalls_follow_the_speed_of_the_medium" not in alone


@pytest.mark.exhaustive
def test_runs_of_a_case_speak_together_and_only_with_the_latest_software():
    first = simulated("sim:xavier-agx")
    second = simulated("sim:xavier-agx", settings=CaseSettings(minibatches=60, seed=1))
    together = pooled(frame_of_profiles((first, second)))
    between = sorted(quantity(one, "time") for one in (first, second))
    assert len(together) == 1
    assert between[0] < together["time"].iloc[0] < between[1]
    disturbed = dataclasses.replace(second, flags=["disturbed: others took 2 cores"], provenance="measured")
    apart = pooled(frame_of_profiles((first, disturbed)))
    assert list(apart["time"]) == pytest.approx([quantity(first, "time"), quantity(disturbed, "time")])
    newer = slowed(second, 2.0, torch="9.0")
    latest = pooled(frame_of_profiles((first, newer)))
    assert len(latest) == 1
    assert latest["time"].iloc[0] > 1.5 * between[1]


def test_small_default_data_give_way_to_data_of_a_size_that_was_asked_for():
    cold = CaseSettings(minibatches=None, epochs=2, cache="cold")
    profiles = [
        simulated("sim:xavier-agx", settings=dataclasses.replace(cold, data_scale=scale)) for scale in (None, 0.1)
    ]
    device = Cases(pooled(frame_of_profiles(profiles))).devices["sim:xavier-agx"]
    assert [row.case.settings.data_scale for row in device.rows] == [0.1]


def test_versions_of_software_are_compared_case_by_case(tmp_path):
    profile = simulated("sim:xavier-agx")
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(slowed(profile, 1.0, torch="1.12"), {}, "old")
        assert version_effects(store) == []
        store.add(slowed(profile, 1.4, torch="2.0"), {}, "new")
        (effect,) = version_effects(store)
    assert effect.differ == ['torch: "1.12" -> "2.0"']
    assert effect.ratio.low < 1.4 < effect.ratio.high
    assert "2.0" in effect.text


def cell(value, error=0.01, label="one"):
    return Cell(label, Estimate(value, error, 20))


@pytest.mark.parametrize(
    ("cells", "bounds", "verdict"),
    [
        ([cell(0.8)], Bounds(below=0.9), CONFIRMED),
        ([cell(0.8), cell(1.2)], Bounds(below=0.9), CONTRADICTED),
        ([cell(0.8), cell(0.9)], Bounds(below=0.9), UNDECIDED),
        ([cell(1.0)], Bounds(0.95, 1.05), CONFIRMED),
        ([cell(1.0, error=0.1)], Bounds(0.95, 1.05), UNDECIDED),
        ([cell(0.5)], Bounds(0.95, 1.05), CONTRADICTED),
        ([exactly("front", 3.0)], Bounds(below=4.5), CONFIRMED),
        ([Cell("front", Drawn(-0.5, tuple([-0.9, -0.1] * 50)))], Bounds(below=-0.3), UNDECIDED),
    ],
)
def test_an_interval_decides_not_the_figure_alone(cells, bounds, verdict):
    assert deciding_cell(cells, bounds).verdict == verdict


def test_the_case_that_decides_is_named_and_more_cases_make_it_harder_to_contradict_by_chance():
    found = deciding_cell([cell(0.5, label="fine"), cell(1.5, label="wrong")], Bounds(below=1.0))
    assert (found.case, found.effect, found.n) == ("wrong", 1.5, 2)
    assert found.low < 1.5 < found.high
    alone, among = (deciding_cell([cell(1.023), *[cell(0.9)] * more], Bounds(below=1.0)) for more in (0, 30))
    assert (alone.verdict, among.verdict) == (CONTRADICTED, UNDECIDED)
    assert deciding_cell([], Bounds(below=1.0)) is None


@given(
    st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.0, 0.3)), min_size=1, max_size=6),
    st.floats(0.0, 0.3),
    st.floats(1.0, 10.0),
    st.integers(2, 40),
)
def test_more_noise_between_runs_never_decides_what_less_left_open(runs, share, times, dof):
    def verdict(noise):
        cells = [Cell(str(place), over_runs([Estimate(*run, 20)], noise)) for place, run in enumerate(runs)]
        return deciding_cell(cells, Bounds(0.9, 1.1)).verdict

    less, more = verdict(RunNoise(share, dof)), verdict(RunNoise(share * times, dof))
    assert more in (less, UNDECIDED)


def test_nothing_throttles_is_not_confirmed_without_a_sensor_of_it():
    profile = measured(simulated("sim:xavier-agx"))
    assert "nothing_throttles" not in judged([profile])
    assert judged([watched(profile)])["nothing_throttles"].verdict == "confirmed"


def test_without_a_sensor_of_power_nothing_is_said_of_power_and_energy():
    def blind(profile):
        series = {name: one for name, one in profile.telemetry.series.items() if "power" not in name}
        return dataclasses.replace(profile, telemetry=dataclasses.replace(profile.telemetry, series=series))

    profiles = [blind(simulated("sim:xavier-agx", workers=workers)) for workers in (0, 4)]
    found = judged(profiles)
    assert "one_worker_shortens_every_epoch" in found
    assert not {"workers_raise_power", "workers_cost_no_energy"} & set(found)
    assert not [one.meaning for one in found.values() if "power" in one.meaning or "energy" in one.meaning]
    seeing = judged(simulated("sim:xavier-agx", workers=workers) for workers in (0, 4))
    assert "workers_cost_no_energy" in seeing


def test_epochs_of_data_sets_of_different_sizes_are_not_compared():
    settings = [CaseSettings(minibatches=None, epochs=2, cache="cold", data_scale=scale) for scale in (0.05, 0.1)]
    profiles = [
        simulated("sim:xavier-agx", workers=workers, storage="hdd", settings=one)
        for workers, one in zip((0, 4), settings)
    ]
    assert "one_worker_shortens_every_epoch" not in judged(profiles)
    unsaid = dataclasses.replace(profiles[1].case, settings=settings[0])  # the same words, another data set
    assert "one_worker_shortens_every_epoch" not in judged((profiles[0], dataclasses.replace(profiles[1], case=unsaid)))


@pytest.mark.exhaustive
def test_a_verdict_says_whether_the_simulation_was_fitted_to_it_and_claims_are_counted_once():
    devices = ("sim:xavier-agx@2", "sim:xavier-agx@1")
    profiles = [
        simulated(device, workload="resnet18-cifar10", power_mode=letter) for device in devices for letter in "bc"
    ]
    found = verdicts_of(profiles)
    fitted = [one for one in found if one.takeaway == "what_the_gpu_clock_does_to_compute"]
    assert [one.device for one in fitted] == list(devices)
    assert all("the simulation was fitted to" in one.text for one in fitted)
    counts = counts_of_claims(found)
    assert sum(counts.values()) == len({one.takeaway for one in found}) < len(found)
    assert counts["confirmed (simulated, fitted to it)"] >= 1
    assert "it only shows that it can reproduce it" in format_verdicts(found)
    as_measured = verdicts_of(dataclasses.replace(one, provenance="measured") for one in profiles)
    assert not any(one.fitted for one in as_measured)


def test_a_shortfall_excuses_what_is_known_and_nothing_else():
    profiles = [simulated("sim:xavier-agx", power_mode=letter) for letter in "ef"]
    found = judged(profiles)["what_two_cores_do_to_mobilenets_stall"]
    assert (found.verdict, found.is_violated) == ("contradicted", False)
    assert found.shortfall
    worse = judged((profiles[0], slowed(profiles[1], 20.0)))[found.takeaway]
    assert (worse.verdict, worse.is_violated, worse.shortfall) == ("contradicted", True, None)


def test_what_a_search_chose_is_no_sample_of_modes_and_no_claim_is_judged_by_it(tmp_path):
    none, four = (simulated("sim:xavier-agx", workers=workers) for workers in (0, 4))
    chosen = dataclasses.replace(four, conditions={**four.conditions, CHOSEN_BY: "search"})
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(none, {}, "run")
        store.add(chosen, {}, "run")
        assert [row.case.workers for row in of_experiments(read_frame(store)).itertuples()] == [0]
        store.add(four, {}, "run")
        assert "one_worker_shortens_every_epoch" in by_name(
            judge(pooled(of_experiments(read_frame(store))), papers_claims())
        )


OF_MEMORY = {
    "resnet_and_vgg_need_more_memory_than_an_nx_has": ("resnet18-cifar10", 9.0, 7.0),
    "mobilenet_needs_the_memory_of_an_nx": ("mobilenetv3-gld23k", 6.0, 3.0),
    "lenet_fits_into_the_memory_of_a_nano": ("lenet-mnist", 1.0, 5.0),
}
"""Claim to a workload of it, and the peaks in GiB that confirm and contradict it."""


@pytest.mark.parametrize("name", OF_MEMORY)
@pytest.mark.exhaustive
def test_claims_about_memory_turn_with_the_measured_peak_and_are_not_judged_without_one(name):
    workload, confirms, contradicts = OF_MEMORY[name]
    claims = [one for one in papers_claims() if one.name == name]
    board = simulated("sim:xavier-agx", workload=workload)

    def verdicts(peak_gib):
        aggregates = {**board.aggregates, "memory_peak_bytes": peak_gib and peak_gib * 2**30}
        measured = dataclasses.replace(board, provenance="measured", aggregates=aggregates)
        return [found.verdict for found in judge(pooled(frame_of_profiles([measured])), claims)]

    assert verdicts(confirms) == ["confirmed"]
    assert verdicts(contradicts) == ["contradicted"]
    assert verdicts(None) in ([], ["undecided"])
    assert judge(pooled(frame_of_profiles([board])), claims) == []


def test_a_claim_that_a_simulated_board_cannot_fail_is_judged_on_measured_profiles_only():
    assert {claim.name for claim in papers_claims() if claim.measured_only} == {
        "nothing_throttles",
        "both_take_no_longer_than_one_after_the_other",
        *OF_MEMORY,
    }
    board = watched(simulated("sim:xavier-agx"))
    assert "nothing_throttles" not in judged([board])
    assert "nothing_throttles" in judged([dataclasses.replace(board, provenance="measured")])


def test_further_instances_of_a_simulated_board_are_judged_only_where_it_is_not_there_itself():
    simulated_ones = ["sim:nano", "sim:nano@1", "sim:nano@2"]
    assert judged_devices(simulated_ones) == ["sim:nano"]
    assert judged_devices(simulated_ones[1:]) == simulated_ones[1:]
    assert judged_devices(["orin-agx@orin3", "orin-agx@orin4"]) == ["orin-agx@orin3", "orin-agx@orin4"]
