"""CPU clocks: what is there is read in the suite's units, what is not is said."""

from __future__ import annotations

import pytest

from harness.board import cpu_clocks
from harness.core.errors import SourceUnavailableError


def policy(number, cpus, khz):
    directory = f"sys/devices/system/cpu/cpufreq/policy{number}"
    return {f"{directory}/related_cpus": cpus, f"{directory}/scaling_cur_freq": khz}


def test_clocks_are_named_for_the_first_cpu_of_their_policy(tree):
    tree.write({**policy(0, "0 1 2 3", 729600), **policy(8, "8 9", 2201600), **policy(10, "10", 115200)})
    source = cpu_clocks.open_source(tree.root)
    assert source.read(0.0).values == {"cpu0_khz": 729600, "cpu8_khz": 2201600, "cpu10_khz": 115200}
    assert source.notes["cpu0_khz"] == "scaling_cur_freq of CPUs 0 1 2 3"


def test_a_policy_that_goes_offline_or_says_nothing_fails_alone(tree):
    tree.write({**policy(0, "0", 729600), **policy(4, "4", 729600), **policy(8, "8", 729600)})
    source = cpu_clocks.open_source(tree.root)
    (tree.path / "sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq").unlink()
    tree.write(policy(8, "8", "<unknown>"))
    values, failed = source.read(0.0)
    assert values == {"cpu0_khz": 729600}
    assert set(failed) == {"cpu4_khz", "cpu8_khz"}
    assert "<unknown>" in failed["cpu8_khz"]


def test_without_cpufreq_the_reason_is_given(tree):
    with pytest.raises(SourceUnavailableError, match="no cpufreq policy"):
        cpu_clocks.open_source(tree.root)
