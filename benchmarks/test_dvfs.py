"""What do free clocks change in time and energy (E9)?"""

import pytest

from harness.judge.claims import claim, known
from harness.judge.papers import LARGER, LENET


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
def test_dvfs(profile, baseline):
    """Train with the clocks of --clocks; the paper campaign has static ones and DVFS."""
    baseline.check(profile())


@claim(
    "004 5.5.1",
    facts="F1006 F1010",
    boards="xavier-agx",
    shortfall=known(
        0.97, 1.11, "with DVFS on the modelled governors save more energy than 004 saw, most of it under LeNet"
    ),
)
def test_dvfs_hardly_changes_time(ratio):
    """With DVFS on, no epoch takes more or less time by 3 % or more (004: within 2 %; its figures make it 2.6 %)."""
    assert ratio("time", clocks=("static", "dvfs")).within(0.97, 1.03)


@claim(
    "004 5.5.1",
    facts="F1009 F1010",
    boards="xavier-agx",
    shortfall=known(
        0.77, 1.06, "with DVFS on the modelled governors save more energy than 004 saw, most of it under LeNet"
    ),
)
def test_dvfs_hardly_changes_energy(ratio):
    """With DVFS on, no epoch takes more or less energy by 6 % or more.

    004 has 3 % at most; a single run resolves energy no better than to 3 %.
    """
    assert ratio("energy", clocks=("static", "dvfs")).within(0.94, 1.06)


@claim("004 5.5.2", facts="F1014 F1016", boards="xavier-agx", fitted=True)
def test_dvfs_lowers_the_gpu_clock_under_a_small_network(ratio):
    """With DVFS on LeNet uses at least 1.7 times as much of the GPU: its clock is lower.

    004 has 14 to 34 % where it was 7 %: twice at least, within 15 %.
    """
    assert ratio("gpu_load", clocks=("static", "dvfs"), workload=LENET) > 1.7


@claim("004 5.5.2", facts="F1017", boards="xavier-agx", fitted=True)
def test_dvfs_leaves_the_gpu_clock_under_large_networks(ratio):
    """With DVFS on ResNet on CIFAR and MobileNet use as much of the GPU as without, within 15 % (004: about 100 %)."""
    assert ratio("gpu_load", clocks=("static", "dvfs"), workload=LARGER).within(0.85, 1.15)


@claim("002 II.1", facts="F598", boards="xavier-agx orin-agx")
def test_static_clocks_are_no_slower(ratio):
    """Without DVFS training is at least as fast: with it on, no epoch is shorter by 2.5 % or more.

    That is what two single runs differ.
    """
    assert ratio("time", clocks=("static", "dvfs")) > 0.975
