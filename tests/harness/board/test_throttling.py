"""Throttling: what the kernel tells is read, and told as from when to when and by what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board import throttling
from harness.board.throttling import OVERCURRENT, Throttling, throttled_times
from harness.core.profiles import Series
from tests.messages import says

OC = "sys/class/hwmon/hwmon3"
INTERRUPTS = """\
           CPU0       CPU1       CPU2       CPU3
 13:      12000      11000          3          4     GICv2  30 Level     arch_timer
 44:          1          0          {third}          0     GICv2  80 Level     soctherm_edp
 45:          5          0          0          0     GICv2  83 Level     soctherm_thermal
IPI0:       100        200        300        400  Rescheduling interrupts"""


def cooling(number, kind, state):
    directory = f"sys/class/thermal/cooling_device{number}"
    return {f"{directory}/type": kind, f"{directory}/cur_state": state}


def counters(oc1=0, oc2=0, oc3=0):
    return {
        f"{OC}/oc1_event_cnt": oc1,
        f"{OC}/oc2_event_cnt": oc2,
        f"{OC}/oc3_event_cnt": oc3,
        f"{OC}/name": "soctherm_oc",
    }


@pytest.mark.parametrize(
    ("kind", "channel"),
    [
        ("cpu-throttle-alert", "throttle_cpu_throttle_alert_state"),
        ("BCPU-throttle-alert", "throttle_bcpu_throttle_alert_state"),
        ("thermal-cpufreq-0", "throttle_thermal_cpufreq_0_state"),
        ("devfreq-17000000.gpu", "throttle_devfreq_17000000_gpu_state"),
        ("17000000.gv11b", "throttle_17000000_gv11b_state"),
        ("cpu-balanced", "throttle_cpu_balanced_state"),
    ],
)
def test_what_holds_a_clock_down_is_read(tree, kind, channel):
    tree.write({**cooling(0, "pwm-fan", 3), **cooling(1, "hot-surface-alert", 1), **cooling(9, kind, 2)})
    assert throttling.open_source(tree.root).read(0.0) == ({channel: 2}, {})
    tree.write(cooling(10, kind, 4))  # two of a kind are both read
    second = channel.replace("_state", "_2_state")
    assert throttling.open_source(tree.root).read(0.0) == ({channel: 2, second: 4}, {})


def test_events_count_from_the_first_reading(tree):
    tree.write(counters(oc2=15, oc3=37))
    source = throttling.open_source(tree.root)
    assert set(source.read(0.0).values.values()) == {0}
    tree.write(counters(oc2=15, oc3=40))
    assert source.read(1.0).values == {
        "throttle_oc1_events": 0,
        "throttle_oc2_events": 0,
        "throttle_oc3_events": 3,
        OVERCURRENT: 3,
    }
    assert "under-voltage events" in source.notes["throttle_oc1_events"]


def test_events_that_throttle_nothing_are_left_out(tree):
    tree.write({**counters(), f"{OC}/oc1_throt_en": 0, f"{OC}/oc2_throt_en": 1})
    assert set(throttling.open_source(tree.root).read(0.0).values) == {
        "throttle_oc2_events",
        "throttle_oc3_events",
        OVERCURRENT,
    }


def test_a_tx2_and_a_xavier_count_interrupts_of_their_throttling_hardware(tree):
    tree.write({f"{OC}/oc{number}_irq_cnt": 7 for number in range(1, 7)})
    tree.write({f"{OC}/oc{number}_cpu_throttle_ctrl": 1 for number in range(1, 7)})
    source = throttling.open_source(tree.root)
    assert source.read(0.0).values == {OVERCURRENT: 0, **{f"throttle_oc{number}_events": 0 for number in range(1, 7)}}
    tree.write({f"{OC}/oc4_irq_cnt": 9})
    values = source.read(1.0).values
    assert (values["throttle_oc4_events"], values[OVERCURRENT]) == (2, 2)
    assert "over-current events" in source.notes["throttle_oc2_events"]


@pytest.mark.parametrize("broken", ["", "many", 3])
def test_a_counter_that_is_lost_or_falls_takes_the_sum_with_it(tree, broken):
    tree.write(counters(oc1=5, oc2=5, oc3=5))
    source = throttling.open_source(tree.root)
    source.read(0.0)
    tree.write({f"{OC}/oc2_event_cnt": broken})
    values, failed = source.read(1.0)
    assert values == {"throttle_oc1_events": 0, "throttle_oc3_events": 0}
    assert set(failed) == {"throttle_oc2_events", OVERCURRENT}


def test_a_state_that_vanishes_fails_alone(tree):
    tree.write({**cooling(0, "cpu-throttle-alert", 0), **cooling(1, "gpu-throttle-alert", 1)})
    source = throttling.open_source(tree.root)
    source.read(0.0)
    (tree.path / "sys/class/thermal/cooling_device0/cur_state").unlink()
    values, failed = source.read(1.0)
    assert values == {"throttle_gpu_throttle_alert_state": 1}
    assert list(failed) == ["throttle_cpu_throttle_alert_state"]


def test_the_firmware_counts_where_hwmon_does_not_and_numbers_from_zero(tree):
    for number in range(3):
        tree.write({f"sys/kernel/debug/bpmp/debug/soctherm/oc{number}/event_cnt": 0})
    assert "throttle_oc3_events" in throttling.open_source(tree.root).read(0.0).values
    tree.write(counters())
    assert len(throttling.open_source(tree.root).read(0.0).values) == 4


def test_a_nano_counts_interrupts_of_all_its_cpus(tree):
    tree.write({"proc/interrupts": INTERRUPTS.format(third=2)})
    source = throttling.open_source(tree.root)
    assert source.read(0.0).values == {OVERCURRENT: 0}
    tree.write({"proc/interrupts": INTERRUPTS.format(third=7)})
    assert source.read(1.0).values == {OVERCURRENT: 5}
    tree.write({"proc/interrupts": "  13: 1 2 GICv2 30 Level arch_timer"})
    assert "no line for soctherm_edp" in source.read(2.0).failed[OVERCURRENT]


def states(*values):
    return Series(tuple(float(place) for place in range(len(values))), values)


def test_a_state_lasts_until_a_sample_shows_its_end():
    assert throttled_times({"throttle_cpu_throttle_alert_state": states(0, 1, 2, 0, 0, 1)}) == [
        Throttling(1.0, 3.0, "cpu_throttle_alert"),
        Throttling(5.0, 5.0, "cpu_throttle_alert"),
    ]


def test_events_lie_between_two_samples_and_touching_times_are_one():
    assert throttled_times({"throttle_oc3_events": states(0, 0, 2, 3, 3, 4)}) == [
        Throttling(1.0, 3.0, "oc3", 3),
        Throttling(4.0, 5.0, "oc3", 1),
    ]


def test_the_sum_of_the_counters_speaks_only_without_them():
    total = {OVERCURRENT: states(0, 1)}
    assert [found.by for found in throttled_times(total)] == ["overcurrent"]
    assert [found.by for found in throttled_times({**total, "throttle_oc2_events": states(0, 1)})] == ["oc2"]


def test_other_channels_say_nothing_and_times_are_in_order():
    series = {
        "power_total_mw": states(1, 2),
        "throttle_b_state": states(0, 1, 1),
        "throttle_a_state": states(1, 0, 0),
        "throttle_b_events": states(0, 0, 1),
    }
    assert [(found.start_s, found.by) for found in throttled_times(series)] == [(0.0, "a"), (1.0, "b"), (1.0, "b")]


def test_in_words():
    assert says(Throttling(112.0, 115.5, "oc3", 4).text(100.0), "12.0 s to 15.5 s", "oc3", "4 events")
    assert Throttling(1.0, 2.0, "oc3", 1).text().endswith("(1 event)")
    assert says(Throttling(1.0, 2.0, "cpu_throttle_alert").text(), "1.0 s to 2.0 s", "cpu_throttle_alert")


@given(st.lists(st.integers(0, 2), max_size=30))
def test_every_sample_above_zero_lies_in_one_time_and_no_other_does(values):
    found = throttled_times({"throttle_x_state": states(*values, 0)})
    for time_s, value in enumerate(values):
        inside = [one for one in found if one.start_s <= time_s < one.end_s]
        assert len(inside) == (1 if value else 0)


@given(st.lists(st.integers(0, 3), max_size=30))
def test_no_event_is_lost_or_counted_twice(growths):
    counts = [sum(growths[:place]) for place in range(len(growths) + 1)]
    found = throttled_times({"throttle_oc1_events": states(*counts)})
    assert sum(one.events for one in found) == sum(growths)
    assert all(earlier.end_s < later.start_s for earlier, later in zip(found, found[1:]))
