"""The papers' formulas and the aggregates made by them."""

from __future__ import annotations

import math
from typing import List, Optional, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.metrics import (
    AGGREGATES,
    POWER_CHANNEL,
    STABLE_WINDOW_S,
    end_s,
    energy_mwh,
    epoch_sums,
    integral,
    power_step_mw,
    quartiles,
    smallest_step,
    stable_from,
    summarise,
    summarise_idle,
)
from harness.core.profiles import CLEAN, FIRST, SETTLING, Minibatch, Series, Telemetry, counted_minibatches


@given(st.lists(st.floats(1, 1e4), min_size=1, max_size=30), st.integers(1, 4))
def test_stall_compute_and_overhead_of_an_epoch_add_up_to_its_time(e2e_ms: List[float], per_epoch: int) -> None:
    made: List[Minibatch] = []
    for index, time_ms in enumerate(e2e_ms):
        start_s = end_s(made[-1]) if made else 100.0
        made.append(Minibatch(index // per_epoch, index, CLEAN, start_s, 0.1 * time_ms, 0.8 * time_ms, time_ms))
    sums = epoch_sums(made)
    assert [epoch.epoch for epoch in sums] == sorted({minibatch.epoch for minibatch in made})
    assert math.isclose(sum(epoch.e2e_s for epoch in sums), sum(e2e_ms) / 1000)
    for epoch in sums:
        assert math.isclose(epoch.stall_s + epoch.compute_s + epoch.overhead_s, epoch.e2e_s)
        assert math.isclose(epoch.end_s - epoch.start_s, epoch.e2e_s, rel_tol=1e-6)


def test_energy_is_the_sum_of_power_times_the_time_since_the_sample_before() -> None:
    assert energy_mwh([0, 1200, 2000, 3600], [5000] * 4) == pytest.approx(5000)
    assert energy_mwh([0, 1, 3, 3.5], [999, 10, 20, 40]) == pytest.approx((10 * 1 + 20 * 2 + 40 * 0.5) / 3600)
    assert energy_mwh([], []) is energy_mwh([0], [5.0]) is None


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ((1.5, 3.25), 0.5 * 20 + 30 + 0.25 * 40),  # the overlap only
        ((2.25, 2.5), 0.25 * 30),
        ((0.5, 4.5), 0.5 * 10 + 20 + 30 + 40 + 0.5 * 40),  # the nearest sample holds for an interval beyond the ends
        ((-0.5, 2.0), None),
        ((2.0, 5.5), None),
        ((3.0, 2.0), None),
    ],
)
def test_energy_in_a_window_counts_the_overlap_and_is_missing_where_samples_do_not_cover_it(window, expected) -> None:
    assert integral([1, 2, 3, 4], [10, 20, 30, 40], *window) == (expected and pytest.approx(expected))


def test_a_sample_is_charged_for_three_intervals_at_most_and_what_lies_beside_a_longer_gap_is_covered() -> None:
    for gap_s in (2.9, 3.1):
        total = integral([0, 1, 2, 2 + gap_s, 3 + gap_s], [10, 10, 10, 40, 20])
        assert total == (None if gap_s > 3 else pytest.approx(20 + 40 * gap_s + 20))
    taken, values = [0, 1, 2, 10, 11, 12], [10, 20, 30, 40, 50, 60]
    assert integral(taken, values, 0, 2.5) == pytest.approx(20 + 30 + 0.5 * 30)
    assert integral(taken, values, 9.5, 12) == pytest.approx(0.5 * 40 + 50 + 60)
    for start_s, stop_s in ((0, 3.5), (8.5, 12), (5, 6), (2.5, 9.5), (0, 12)):
        assert integral(taken, values, start_s, stop_s) is None


@given(st.lists(st.floats(1, 3), min_size=2, max_size=20), st.data())
def test_energies_of_two_halves_add_up(steps: List[float], data: st.DataObject) -> None:
    taken = [sum(steps[:count]) for count in range(len(steps) + 1)]
    values = data.draw(st.lists(st.floats(0, 1e5), min_size=len(taken), max_size=len(taken)))
    middle = data.draw(st.floats(0, taken[-1]))
    halves = integral(taken, values, 0, middle) + integral(taken, values, middle, taken[-1])
    assert math.isclose(halves, integral(taken, values), rel_tol=1e-6, abs_tol=1e-6)


def test_power_is_stable_where_the_transient_ends() -> None:
    assert 3 <= stable_from(range(20), [2000, 4000, 6000, 8000] + [9000] * 16) <= 4
    values = [9000 - 5000 * math.exp(-tick / 8) for tick in range(100)]  # 0.1 s apart, settles with 0.8 s
    found = stable_from([tick / 10 for tick in range(100)], values)
    assert 1.0 < found < 3.0  # PowerTrain sec. 2.5: 2-3 s, found from where the window begins
    assert abs(values[round(found * 10)] - 9000) < 0.15 * 9000


@pytest.mark.parametrize(
    ("times_s", "values_mw", "window_s", "found"),
    [
        (range(10), [5000] * 10, STABLE_WINDOW_S, 0),
        ([0, 1, 2], [5000] * 3, STABLE_WINDOW_S, None),  # no window was observed to its end
        ([0, 1, 2, 3], [5000] * 4, STABLE_WINDOW_S, 0),
        ([], [], STABLE_WINDOW_S, None),
        ([0, 1.1, 1.9, 3.2, 4.0], [5000] * 5, 3.0, 0),  # jitter
        ([0, 10, 20], [1000, 5000, 5000], 3.0, 10),  # rare samples make a window of two
        (range(20), [1000 * 1.1**tick for tick in range(20)], STABLE_WINDOW_S, None),
        # stall and compute in turns: 0.4 s period, sampled every 0.1 s
        ([tick / 10 for tick in range(100)], [4000 + 5000 * (tick % 4 < 2) for tick in range(100)], 3.2, 0),
    ],
)
def test_power_is_stable_from_the_first_window_whose_halves_agree(times_s, values_mw, window_s, found) -> None:
    assert stable_from(times_s, values_mw, window_s) == found


def test_quartiles_are_interpolated() -> None:
    assert quartiles([1, 2, 3, 4]) == (1.75, 2.5, 3.25)


DISK_CHANNELS = ("disk_read_bytes_per_s", "disk_reads_per_s")
ENERGIES = ("energy_mwh", "power_mean_mw", "energy_per_sample_mws", "epoch_energy_mwh")


def series_of(
    e2e_ms: Sequence[float], phases: Optional[Sequence[str]] = None, epochs: Optional[Sequence[int]] = None
) -> List[Minibatch]:
    """Minibatches that follow each other from 100 s on: a tenth of their time is stall, eight tenths are compute."""
    start_s, made = 100.0, []
    for index, time_ms in enumerate(e2e_ms):
        phase = phases[index] if phases else CLEAN
        epoch = epochs[index] if epochs else 0
        made.append(Minibatch(epoch, index, phase, start_s, 0.1 * time_ms, 0.8 * time_ms, time_ms))
        start_s += time_ms / 1000
    return made


def power(*samples: Tuple[float, float]) -> Telemetry:
    """Telemetry with these (time, mW) samples of total power."""
    return Telemetry(1.0, series={POWER_CHANNEL: Series(*map(tuple, zip(*samples)))})


def every_second(start_s: float, values_mw: Sequence[float]) -> Telemetry:
    return power(*[(start_s + place, value) for place, value in enumerate(values_mw)])


def test_aggregates_leave_out_the_first_and_the_settling_minibatches() -> None:
    made = series_of([5000, 900, 100, 200, 300], [FIRST, SETTLING, CLEAN, CLEAN, CLEAN])
    figures = summarise(made, Telemetry(1.0), batch_size=16)
    assert figures["clean_minibatches"] == 3
    assert figures["minibatch_time_ms"] == 200
    assert (figures["minibatch_time_q1_ms"], figures["minibatch_time_q3_ms"]) == (150, 250)
    assert figures["minibatch_time_mean_ms"] == pytest.approx(200)
    assert figures["minibatch_time_p95_ms"] == pytest.approx(290)
    assert figures["minibatch_time_p99_ms"] == pytest.approx(298)
    assert figures["minibatch_time_max_ms"] == 300
    assert figures["fetch_stall_ms"] == pytest.approx(20)
    assert figures["compute_ms"] == pytest.approx(160)
    assert figures["overhead_ms"] == pytest.approx(20)
    assert figures["e2e_s"] == pytest.approx(0.6)
    assert figures["samples_per_s"] == pytest.approx(3 * 16 / 0.6)


def test_every_aggregate_is_documented_and_there() -> None:
    figures = summarise(series_of([100] * 5), every_second(99.5, [5000] * 5), 16, whole_epochs=True)
    assert list(figures) == list(AGGREGATES)
    assert all(AGGREGATES.values())


def test_without_a_power_sensor_power_is_missing_and_not_zero() -> None:
    figures = summarise(series_of([100] * 50), Telemetry(1.0), 16)
    names = [name for name in AGGREGATES if "power" in name or "energy" in name]
    assert names
    assert [figures[name] for name in names] == [None] * len(names)


def test_without_clean_minibatches_there_is_nothing_to_say() -> None:
    for made in ([], series_of([100], [FIRST])):
        figures = summarise(made, every_second(99.5, [5000] * 5), 16)
        assert figures.pop("clean_minibatches") == 0
        assert set(figures.values()) == {None}


def test_power_is_the_median_of_the_stable_samples_in_the_clean_window() -> None:
    # 100-110 s: one first minibatch of 2 s, then eight clean ones of 1 s; power climbs until 104 s
    made = series_of([2000] + [1000] * 8, [FIRST] + [CLEAN] * 8)
    figures = summarise(made, every_second(98.5, [1000, 1000, 2000, 4000, 6000, 8000, *[9000] * 8]), 16)
    assert figures["power_mw"] == 9000
    assert figures["power_settled_s"] is not None
    assert 3 <= figures["power_settled_s"] <= 4.5
    assert figures["power_samples"] == pytest.approx(6, abs=1)
    expected_mws = 0.5 * 6000 + 8000 + 6.5 * 9000  # from 102 to 110 s; a sample stands for the second before it
    assert figures["energy_mwh"] == pytest.approx(expected_mws / 3600)
    assert figures["power_mean_mw"] == pytest.approx(expected_mws / 8)
    assert figures["energy_per_sample_mws"] == pytest.approx(expected_mws / (8 * 16))


def test_the_peak_is_the_greatest_sample_of_the_run_settled_or_not_and_says_how_short_a_peak_it_sees() -> None:
    made = series_of([2000] + [1000] * 8, [FIRST] + [CLEAN] * 8)
    figures = summarise(made, every_second(98.5, [20000, 1000, 12000, 4000, 6000, 8000, *[9000] * 8]), 16)
    assert (figures["power_peak_mw"], figures["power_peak_window_s"]) == (12000, 1.0)


GPU, CPU, REST = "power_vdd_gpu_soc_mw", "power_vdd_cpu_cv_mw", "power_vin_sys_5v0_mw"


def rails_of_an_agx_orin(seconds: int, gpu_ma: float = 168.0, millivolt: float = 20_000.0) -> Telemetry:
    """Rails in steps of 20 mA at a voltage that moves by 8 mV, and one of fine steps; the total is their sum."""
    ticks = range(seconds)
    volts = [(millivolt + 8 * (tick % 3)) / 1000 for tick in ticks]
    dither_ma = [gpu_ma + (7 * tick % 10) - 4.5 for tick in ticks]  # spread evenly over half a step
    gpu = [20 * round(current / 20) * volt for current, volt in zip(dither_ma, volts)]
    cpu = [40 * volt for volt in volts]
    rest = [3000.0 + 17 * (tick % 7) for tick in ticks]
    times_s = tuple(99.5 + tick for tick in ticks)
    series = {GPU: gpu, CPU: cpu, REST: rest, POWER_CHANNEL: [sum(three) for three in zip(gpu, cpu, rest)]}
    return Telemetry(1.0, series={name: Series(times_s, tuple(values)) for name, values in series.items()})


def test_power_of_rails_in_coarse_steps_is_a_mean_and_the_step_is_in_the_profile() -> None:
    made = series_of([100] * 400)
    figures = summarise(made, rails_of_an_agx_orin(40), 16)
    assert figures["power_step_mw"] == pytest.approx(400, rel=0.01)
    counted = rails_of_an_agx_orin(40).series[POWER_CHANNEL].values[1:]
    assert figures["power_mw"] == pytest.approx(sum(counted) / len(counted), rel=0.002)
    means = [summarise(made, rails_of_an_agx_orin(40, gpu_ma), 16)["power_mw"] for gpu_ma in (167, 168, 169)]
    assert means == sorted(means)  # a median takes the same level for all three
    assert means[2] - means[0] > 40


def test_where_the_step_is_fine_for_the_power_the_median_stays() -> None:
    made = series_of([100] * 400)
    telemetry = rails_of_an_agx_orin(40)
    high = {
        **telemetry.series,
        POWER_CHANNEL: Series(
            *zip(*((time, 50_000.0 + value) for time, value in zip(*telemetry.series[POWER_CHANNEL])))
        ),
    }
    figures = summarise(made, Telemetry(1.0, series=high), 16)
    assert figures["power_step_mw"] == pytest.approx(400, rel=0.01)
    values = sorted(high[POWER_CHANNEL].values[1:])
    assert figures["power_mw"] == pytest.approx(values[len(values) // 2], rel=1e-4)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([5000.0, 5400.0, 5000.0, 5400.0, 5000.0, 5800.0, 5400.0, 5000.0], 400.0),
        (
            [5000.0, 5400.2, 5001.0, 5400.0, 4999.0, 5800.0, 5400.1, 5000.0],
            400.1,
        ),  # one level at voltages a little apart
        ([0.0, 400.0] * 4, 400.0),
        ([20_000.0, 20_040.0, 20_080.0] * 3, 40.0),  # finer than the reach of a level, but exact
        ([5000.0] * 20, None),  # one level has no step
        ([5000.0 + 400 * level for level in range(8)], None),  # seen once each: readings of anything
        ([5000.0, 5001.0, 5401.0, 5403.0], None),  # too few: two pairs of a fine sensor's by chance
        ([5000.0, 5020.0, 5100.0, 5120.0] * 3, 20.0),  # levels 0.4 % wide are no levels beside steps of 2 %
        ([5000.0 + 37.1 * tick % 211 for tick in range(40)], None),  # a fine sensor's readings do not repeat
        ([], None),
    ],
)
def test_the_step_of_a_sensor_is_read_off_levels_that_repeat(values, step) -> None:
    assert smallest_step(values) == (step and pytest.approx(step, abs=0.5))


def test_a_rail_that_is_the_total_has_its_own_step_and_rails_inside_it_do_not_count() -> None:
    times_s = tuple(range(12))
    total, inside = (5000.0, 5040.0, 5040.0) * 4, (1000.0, 1400.0) * 6
    series = {"power_vdd_in_mw": Series(times_s, total), "power_vdd_soc_mw": Series(times_s, inside)}
    assert power_step_mw({**series, POWER_CHANNEL: Series(times_s, total)}, [(0.0, 12.0)]) == 40.0
    assert power_step_mw({**series, POWER_CHANNEL: Series(times_s, tuple(range(12)))}, [(0.0, 12.0)]) == 400.0


def test_a_load_that_alternates_between_two_powers_is_no_step_of_a_sensor() -> None:
    values = (10_000.0, 20_000.0) * 6
    figures = summarise_idle(Telemetry(1.0, series={POWER_CHANNEL: Series(tuple(range(12)), values)}), 0.0, 12.0)
    assert figures["power_step_mw"] is None


def test_power_before_the_first_minibatch_does_not_count_as_stable() -> None:
    made = series_of([1000] * 12)
    figures = summarise(made, every_second(80.5, [1000] * 19 + [3000, 5000, 7000] + [9000] * 10), 16)
    assert figures["power_mw"] == 9000


def test_power_that_never_settles_is_told_and_taken_over_the_whole_clean_window() -> None:
    made = series_of([1000] * 10)
    figures = summarise(made, every_second(99.5, [1000 * 1.2**tick for tick in range(12)]), 16)
    assert figures["power_settled_s"] is None
    assert figures["power_samples"] == 10
    assert figures["power_mw"] is not None


@pytest.mark.parametrize(
    ("e2e_ms", "samples_mw", "power_mw", "energy_mwh"),
    [([10] * 5, [5000, 5000], None, 5000 * 0.05 / 3600), ([1000] * 10, [5000] * 5, 5000, None)],
    ids=["between two samples", "a sensor that died"],
)
def test_of_few_power_samples_median_and_energy_are_told_each_where_it_can_be(
    e2e_ms, samples_mw, power_mw, energy_mwh
) -> None:
    figures = summarise(series_of(e2e_ms), every_second(99.5, samples_mw), 16)
    assert figures["power_mw"] == power_mw
    assert (figures["power_samples"] == 0) == (power_mw is None)
    assert figures["energy_mwh"] == (energy_mwh and pytest.approx(energy_mwh))
    assert (figures["power_mean_mw"] is None) == (energy_mwh is None)


def test_disk_reads_are_summed_over_the_clean_window() -> None:
    made = series_of([1000] * 4)
    rates = Series((99.0, 100.0, 101.0, 102.0, 103.0, 104.0), (0.0, 7.0, 2e6, 0.0, 1e6, 0.0))
    channels = {"disk_read_bytes_per_s": rates, "disk_reads_per_s": rates}
    figures = summarise(made, Telemetry(1.0, series=channels), 16)
    assert figures["disk_read_bytes"] == pytest.approx(3e6)
    assert figures["disk_reads_per_s"] == pytest.approx(3e6 / 4)


def test_whole_epochs_keep_epoch_0_apart() -> None:
    made = series_of([500, 300, 300, 100, 100, 100, 120, 120, 120], [FIRST] + [CLEAN] * 8, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    figures = summarise(made, every_second(99.5, [3600] * 6), 16, whole_epochs=True)
    assert figures["epochs"] == 2
    assert figures["minibatch_time_ms"] == 110
    assert figures["clean_minibatches"] == 6
    assert figures["epoch_time_s"] == pytest.approx(0.33)
    assert figures["epoch_stall_s"] == pytest.approx(0.033)
    assert figures["epoch_compute_s"] == pytest.approx(0.264)
    assert figures["epoch_overhead_s"] == pytest.approx(0.033)
    assert figures["epoch_energy_mwh"] == pytest.approx(0.33)
    assert figures["epoch0_time_s"] == pytest.approx(1.1)
    assert figures["epoch0_energy_mwh"] == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("epochs", "of_004", "of_003", "of_000"),
    [
        # of 2, 1, 1.3 and 1.5 s: (1 + 1.3 + 1.5) / 3; the middle one of 1, 1.3 and 2; 5.8 / 4
        (4, 3.8 / 3, 1.3, 1.45),
        (3, 1.15, 1.3, 4.3 / 3),
        (2, 1.0, None, 1.5),
        (1, None, None, 2.0),
    ],
)
def test_the_time_of_an_epoch_as_each_paper_takes_it(epochs, of_004, of_003, of_000) -> None:
    times_ms = [[1500, 500], [500, 500], [700, 600], [500, 1000]][:epochs]
    flat = [time_ms for own in times_ms for time_ms in own]
    made = series_of(flat, epochs=[number for number in range(epochs) for _ in range(2)])
    figures = summarise(made, Telemetry(1.0), 16, whole_epochs=True)
    names = ("epoch_time_s", "epoch_time_median_of_3_s", "epoch_time_with_epoch0_s")
    expected = [None if one is None else pytest.approx(one) for one in (of_004, of_003, of_000)]
    assert [figures[name] for name in names] == expected
    of_minibatches = summarise(made, Telemetry(1.0), 16)
    assert [of_minibatches[name] for name in names] == [None] * 3


def test_a_single_epoch_is_all_there_is_and_minibatches_that_cross_an_epoch_border_all_count() -> None:
    figures = summarise(series_of([500, 100, 100], [FIRST, CLEAN, CLEAN]), Telemetry(1.0), 16, whole_epochs=True)
    assert (figures["epochs"], figures["epoch_time_s"], figures["minibatch_time_ms"]) == (0, None, 100)
    assert figures["epoch0_time_s"] == pytest.approx(0.7)
    made = series_of([100] * 6, epochs=[0, 0, 0, 0, 1, 1])
    assert counted_minibatches(made, whole_epochs=False) == made
    assert counted_minibatches(made, whole_epochs=True) == made[4:]
    assert summarise(made, Telemetry(1.0), 16)["epoch_time_s"] is None


def with_gap(gap_s: float) -> List[Minibatch]:
    """Epochs 0, 1 and 2 of four one-second minibatches each, with this much time between two epochs."""
    made = series_of([1000] * 12, [FIRST] + [CLEAN] * 11, [index // 4 for index in range(12)])
    return [minibatch._replace(start_s=minibatch.start_s + gap_s * minibatch.epoch) for minibatch in made]


def test_what_happens_between_epochs_is_in_no_figure() -> None:
    """Epochs run from 100, 120 and 140 s for 4 s each; in between power and reading are a hundred times higher."""
    made = with_gap(16)
    busy = {minibatch.start_s + 1 for minibatch in made}  # a sample stands for the second before it
    samples = [(float(second), 5000.0 if second in busy else 500_000.0) for second in range(98, 147)]
    channels = {name: power(*samples).series[POWER_CHANNEL] for name in (POWER_CHANNEL, *DISK_CHANNELS)}
    figures = summarise(made, Telemetry(1.0, series=channels), 16, whole_epochs=True)
    assert figures["energy_mwh"] == pytest.approx(2 * 4 * 5000 / 3600)
    assert figures["energy_mwh"] == pytest.approx(2 * figures["epoch_energy_mwh"])
    assert figures["power_mean_mw"] == figures["power_mw"] == pytest.approx(5000)
    assert figures["energy_per_sample_mws"] == pytest.approx(5000 / 16)
    assert figures["disk_read_bytes"] == pytest.approx(2 * 4 * 5000)
    assert figures["disk_reads_per_s"] == pytest.approx(5000)


def test_a_gap_in_the_power_samples_between_epochs_does_no_harm_and_one_inside_leaves_no_energy() -> None:
    made = with_gap(16)
    seconds = [second for start in (98, 118, 138) for second in range(start, start + 8)]
    whole = summarise(made, power(*[(second, 5000) for second in seconds]), 16, whole_epochs=True)
    assert whole["energy_mwh"] == pytest.approx(2 * 4 * 5000 / 3600)
    lacking = [second for second in seconds if second not in (121, 122, 123)]
    figures = summarise(made, power(*[(second, 5000) for second in lacking]), 16, whole_epochs=True)
    assert [figures[name] for name in ENERGIES] == [None] * len(ENERGIES)
    assert figures["epoch0_energy_mwh"] == pytest.approx(4 * 5000 / 3600)
    assert figures["power_mw"] == 5000
