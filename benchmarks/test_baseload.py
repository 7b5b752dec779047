"""What does a device draw while nothing runs: with the suite's logging, without it, and with DVFS on?

Runs only if it is named, best after a reboot: `pytest benchmarks/test_baseload.py --idle-seconds 60`.
"""

import pytest

from harness.judge.claims import claim


@pytest.mark.on_request
@pytest.mark.idle_states
def test_baseload(profile):
    """Do nothing, and record power: the idle states of E10 (004 sec. 5.6)."""
    assert profile().aggregates["power_mean_mw"] is not None, "the power sensor gave nothing"


@claim("004 5.6", facts="F1030", boards="orin-agx xavier-agx", only_there=True, fitted=True)
def test_dvfs_saves_on_large_idle_boards(watts_saved):
    """On Orin AGX and AGX Xavier, DVFS saves at least 2 W at idle."""
    assert watts_saved(clocks=("static", "dvfs"), workload="idle-quiet", task="idle") > 2


@claim("004 5.6", facts="F1030", boards="xavier-nx nano", only_there=True, fitted=True)
def test_dvfs_saves_little_on_small_idle_boards(watts_saved):
    """On NX and Nano, DVFS saves less than 1.5 W at idle, less than on any large board."""
    assert watts_saved(clocks=("static", "dvfs"), workload="idle-quiet", task="idle").within(-1.5, 1.5)


@claim("004 5.6", facts="F1031", boards="orin-agx xavier-agx", only_there=True, fitted=True)
def test_telemetry_costs_little_on_fast_boards(ratio):
    """On Orin AGX and AGX Xavier, telemetry adds at most 7 % to power at idle: 5 %, and what two single runs differ."""
    assert ratio("power", workload=("idle-quiet", "idle"), clocks="static", task="idle") < 1.07


@claim("004 5.6", facts="F1031", boards="nano", only_there=True, fitted=True)
def test_telemetry_costs_more_on_nano(ratio):
    """On Nano telemetry adds at least 7 % to power at idle."""
    assert ratio("power", workload=("idle-quiet", "idle"), clocks="static", task="idle") > 1.07


@claim("004 5.6", facts="F1029")
def test_wake_on_lan_draws_least(ratio):
    """Waiting for Wake on LAN draws less than half of what idling with DVFS does, both at the socket."""
    assert ratio("power", workload=("idle-dvfs", "idle-wol"), task="idle") < 0.5
