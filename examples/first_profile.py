"""The first profile on this machine: measured, on the CPU or GPU that it has. Needs torch.

`python examples/first_profile.py` runs the test below with pytest, whose fixture `profile` measures, and prints the
figures that it stored. Power is empty if this user cannot read a power sensor: `jetwatt doctor` says why.
"""

import sys

import pytest

import jetwatt

RESULTS = "first.sqlite"
OPTIONS = ["--device", "host", "--workload", "lenet-mnist", "--minibatches", "10", "--results", RESULTS]


def test_first_profile(profile):
    assert profile().minibatch_time_ms > 0


if __name__ == "__main__":
    if pytest.main([__file__, "-q", "-p", "jetwatt", *OPTIONS]) != 0:
        sys.exit("the measurement failed, see above")
    table = jetwatt.open_results(RESULTS).profiles(newest=True)
    print(table[["workload", "power_mode", "minibatch_time_ms", "power_mw", "provenance"]].to_string(index=False))
