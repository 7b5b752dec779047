"""What does a device draw while nothing runs: with the suite's logging, without it, and with DVFS on?

Runs when it is asked for by name, best after a reboot: `pytest benchmarks/test_baseload.py --idle-seconds 60`.
"""

import pytest


@pytest.mark.on_request
@pytest.mark.idle_states
def test_baseload(profile):
    """Do nothing, and record power: the idle states of E10 (004 sec. 5.6)."""
    assert profile().aggregates["power_mean_mw"] is not None, "the power sensor gave nothing"


def test_takeaways(takeaways):
    """004 sec. 5.6.1 and 5.6.2."""
    assert takeaways()
