"""Sources are found by name; counters become growth per window, and none of it is lost between the windows."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.source import MIN_WINDOW_S, SOURCES, Counters, SourceSpec, open_source
from harness.core.errors import SourceUnavailableError

FAN, ZONE = "sys/class/thermal/cooling_device0", "sys/class/powercap/intel-rapl:0"
FAN_ALONE = {"proc/interrupts": "  1: 5 i8042", f"{FAN}/type": "pwm-fan", f"{FAN}/cur_state": 1}
PSYS_ALONE = {f"{ZONE}/name": "psys", f"{ZONE}/energy_uj": 0, f"{ZONE}/max_energy_range_uj": 9}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_has_a_function_that_opens_it(name):
    module, function = SOURCES[name].module, "open_source"
    assert callable(getattr(importlib.import_module(f"harness.board.{module}"), function))


@pytest.mark.parametrize(
    ("source", "files", "reason"),
    [
        (SourceSpec("powr"), {}, r"no telemetry source 'powr'; available: .*rapl"),
        (SourceSpec("memory"), {}, "meminfo does not exist"),
        (SourceSpec("cpu", {"pid": 100}), {"proc/stat": "cpu  1 2 3 4 5 6 7 8 0 0"}, r"proc/\d+/stat does not exist"),
        (SourceSpec("cpufreq"), {}, "no cpufreq policy"),
        (SourceSpec("thermal"), {}, "no thermal zone"),
        (SourceSpec("throttle"), FAN_ALONE, "no cooling device"),
        (SourceSpec("devfreq"), {"sys/kernel/debug/README": ""}, "gpu_khz: no GPU is .*emc_khz: there is no clock"),
        (SourceSpec("ina"), {}, "no rail of an INA3221"),
        (SourceSpec("ina"), {"sys/bus/i2c/devices/1-0040/name": "ina3221"}, "no rail of an INA3221"),
        (SourceSpec("rapl"), {}, "no RAPL package"),
        (SourceSpec("rapl"), PSYS_ALONE, "no RAPL package"),
    ],
)  # fmt: skip
def test_where_a_source_is_not_there_the_reason_is_given(tree, source, files, reason):
    tree.write({"proc/version": "", **files})
    with pytest.raises(SourceUnavailableError, match=reason):
        open_source(source, tree.root)


def test_a_counter_that_appears_later_waits_for_its_second_reading():
    counters = Counters()
    counters.growth(0.0, {"reads": 5})
    assert counters.growth(1.0, {"reads": 6, "writes": 7}) == (1.0, {"reads": 1})
    assert counters.growth(2.0, {"reads": 6, "writes": 9}) == (1.0, {"reads": 0, "writes": 2})


steps = st.tuples(st.floats(MIN_WINDOW_S / 10, 10 * MIN_WINDOW_S), st.integers(0, 1000))


@given(st.lists(steps, min_size=1))
def test_windows_add_up_however_close_the_readings_are(readings):
    counters = Counters()
    counters.growth(0.0, {"reads": 0})
    now_s, total = 0.0, 0
    windows = []
    for step_s, step in readings:
        now_s, total = now_s + step_s, total + step
        windows.append(counters.growth(now_s, {"reads": total}))
    # One more reading, far enough away, closes whatever window is open.
    windows.append(counters.growth(now_s + 1.0, {"reads": total}))
    complete = [window for window in windows if window is not None]
    assert sum(growth["reads"] for _, growth in complete) == total
    assert sum(window_s for window_s, _ in complete) == pytest.approx(now_s + 1.0)
    assert all(window_s >= MIN_WINDOW_S for window_s, _ in complete)
