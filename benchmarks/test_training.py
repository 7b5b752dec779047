"""How long does a training minibatch take, and how much power and memory, in every case of the campaign?"""

from harness.core.boards import load_board
from harness.judge.claims import claim

NANO_BYTES, NX_BYTES = (load_board(board).memory.bytes for board in ("nano", "xavier-nx"))
UNMODELLED = "simulated boards have no memory figures"


def test_training(profile, baseline):
    """Train, and record stall, compute, E2E and telemetry of each minibatch."""
    baseline.check(profile())


@claim("004 4.3", facts="F863 F851 F856", boards="xavier-agx", only_there=True, measured_only=UNMODELLED)
def test_resnet_and_vgg_need_more_memory_than_an_nx_has(value):
    """On AGX, ResNet-18 and VGG-11 on CIFAR-10 take more memory than an NX has: they run out of it there."""
    assert value("peak_memory", workload=["resnet18-cifar10", "vgg11-cifar10"], batch_size=16) > NX_BYTES


@claim("004 4.2", facts="F843", boards="xavier-agx", only_there=True, measured_only=UNMODELLED)
def test_mobilenet_needs_the_memory_of_an_nx(value):
    """On AGX, MobileNet takes more memory than a Nano has, and less than an NX, where 004 trains it."""
    assert value("peak_memory", workload="mobilenetv3-gld23k", batch_size=16).within(NANO_BYTES, NX_BYTES)


@claim("004 4.2", facts="F835", boards="xavier-agx", only_there=True, measured_only=UNMODELLED)
def test_lenet_fits_into_the_memory_of_a_nano(value):
    """On AGX, LeNet-5 takes less memory than a Nano has, where 004 trains it too."""
    assert value("peak_memory", workload="lenet-mnist", batch_size=16) < NANO_BYTES
