"""What does the minibatch size do to compute and stall (E5)?"""

import pytest

from harness.core.mode_texts import DEFAULT
from harness.judge.claims import claim, known
from harness.judge.papers import LARGER, LENET, PAPERS


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("batch_size", [1, 2, 4, 8, 16, 32, 64, 128])
def test_batch_size(profile, baseline):
    baseline.check(profile())


WARM = {"cache": "warm", "clocks": "static"}


@claim("004 5.3.1", facts="F977", boards="xavier-agx orin-agx")
def test_compute_per_epoch_falls_with_the_batch_size(ratio):
    """The compute time of an epoch is lower with 16 samples than with 2, by at least 20 %, for every workload.

    004 says that it falls sharply; the lines that it prints for MobileNet make it a tenth at 16 samples of that
    at 1.
    """
    assert ratio("compute", batch_size=(2, 16), per_sample=True, workload=PAPERS, **WARM) < 0.8


@claim("004 5.3.1", facts="F973 F976/F975", boards="xavier-agx", only_there=True, fitted=True)
def test_a_minibatch_grows_slowly_until_the_gpu_is_full(as_printed):
    """On AGX a minibatch of 16 samples computes 1.56 times as long as one, and of 32 nearly twice as long as of 16.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim(
    "004 5.3.1",
    facts="F972",
    boards="xavier-agx",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.68,
        1.15,
        "a smooth maximum of kernel launches and arithmetic is flatter up to 8 samples; with F973 and "
        "F975 it fits 16 and 32",
    ),
)
def test_a_minibatch_of_eight_computes_longer_than_one(as_printed):
    """On AGX a minibatch of 8 samples computes 1.4 times as long as one, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim("004 5.3.1", facts="F977", boards="xavier-agx orin-agx")
def test_no_doubling_costs_compute(ratio):
    """No doubling of the minibatch size raises the compute time of an epoch by 3 % or more."""
    doublings = [(size, 2 * size) for size in (1, 2, 4, 8, 16, 32, 64)]
    assert ratio("compute", batch_size=doublings, per_sample=True, workload=PAPERS, **WARM) < 1.03


@claim("004 5.3.1", facts="F978", boards="xavier-agx")
def test_gains_level_off_at_sixteen(ratio):
    """From 16 to 128 samples compute of ResNet on CIFAR and of MobileNet falls by less than 12 % per epoch."""
    assert ratio("compute", batch_size=(16, 128), per_sample=True, workload=LARGER, **WARM) > 0.88


@claim("004 5.3.1", facts="F978", boards="xavier-agx")
def test_lenet_gains_beyond_sixteen(ratio):
    """From 16 to 128 samples compute of LeNet, which uses little of the GPU, falls by more than 12 % per epoch."""
    assert ratio("compute", batch_size=(16, 128), per_sample=True, workload=LENET, **WARM) < 0.88


@claim("004 5.3.2", facts="F982", boards="xavier-agx orin-agx")
def test_stall_per_minibatch_rises_with_the_batch_size(ratio):
    """A minibatch of 128 samples stalls longer than one of 2, for every workload."""
    assert ratio("stall", batch_size=(2, 128), workload=PAPERS, **WARM) > 1


@claim("004 5.3.2", facts="F983", boards="xavier-agx orin-agx")
def test_stall_per_epoch_falls_with_the_batch_size(ratio):
    """An epoch in minibatches of 128 samples stalls for less time than one of 2, for every workload."""
    assert ratio("stall", batch_size=(2, 128), per_sample=True, workload=PAPERS, **WARM) < 1


@claim("004 5.3.2", facts="F981", boards="xavier-agx orin-agx", fitted=True)
def test_stall_and_compute_are_most_of_an_epoch(value):
    """Stall and compute are more than 90 % of the time of a minibatch of 16, for every workload."""
    assert value("busy_share", workload=PAPERS, workers=4, batch_size=16, power_mode=DEFAULT, **WARM) > 0.9


@claim("004 5.3.2", facts="F984", boards="xavier-agx")
def test_larger_networks_are_bound_by_compute(value):
    """At 128 samples ResNet on CIFAR and MobileNet compute at least 5 times as long as they stall."""
    assert value("stall_per_compute", workload=LARGER, batch_size=128, **WARM) < 0.2


@claim(
    "004 5.3.2",
    facts="F984",
    boards="xavier-agx",
    shortfall=known(
        0.58, 0.74, "the work that the fit gives LeNet's GPU grows with the batch size until it exceeds the stall"
    ),
)
def test_lenet_is_bound_by_stalls(value):
    """At 128 samples LeNet stalls for longer than it computes."""
    assert value("stall_per_compute", workload=LENET, batch_size=128, **WARM) > 1
