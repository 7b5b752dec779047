"""How do devices compare on the same workload (E14)?

With `--device host,sim:orin-agx,sim:rtx-3090,sim:a5000,sim:raspberry-pi-5` the report shows each as a ratio to
Orin AGX, beside what the papers say of them.
"""

from functools import partial

import pytest

from harness.core.boards import load_board
from harness.core.mode_texts import DEFAULT
from harness.core.units import BYTES_PER_GIB
from harness.judge.claims import claim, known
from harness.judge.papers import BERT, LENET, MOBILENET, PAPERS, RESNET_IMAGENET, TRAINED_ANYWHERE


@pytest.mark.parametrize(
    "workload",
    [
        *("lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10", "resnet18-imagenet"),
        *("yolov8n-coco", "lstm-wikitext", "bert-squad"),
    ],
)
def test_cross_device(profile, baseline):
    """Train with the papers' defaults on each device."""
    baseline.check(profile())


NANO_BYTES, NX_BYTES = (load_board(board).memory.bytes for board in ("nano", "xavier-nx"))
UNMODELLED = "simulated boards have no peak memory"
AS_SET_UP = {"batch_size": 16, "clocks": "static", "cache": ["warm", "cold"], "power_mode": DEFAULT}
COLD_FROM_DISK = {**AS_SET_UP, "cache": "cold", "storage": "hdd", "data_scale": 1}


@claim("004 5.1.7", facts="F954", boards="xavier-agx", fitted=True)
def test_orin_trains_faster_than_xavier(ratio):
    """AGX Xavier takes 1.5 to 4.5 times as long as Orin AGX for the same epoch (004: 1.8 to 3.9 times, within 15 %)."""
    assert ratio("time", against="orin-agx", workload=PAPERS, workers=4, **AS_SET_UP).within(1.53, 4.485)


@claim("004 5.1.5", facts="F934", boards="xavier-nx")
def test_compute_is_slower_on_nx_than_on_agx(ratio):
    """LeNet's compute time is longer on Xavier NX than on AGX Xavier, by at least 5 %, as boards of a type differ."""
    assert ratio("compute", against="xavier-agx", workload=LENET, workers=4, **AS_SET_UP) > 1.05


@claim("004 5.1.5", facts="F934", boards="nano")
def test_compute_is_slower_on_nano_than_on_nx(ratio):
    """LeNet's compute time is longer on Nano than on Xavier NX, by at least 5 %."""
    assert ratio("compute", against="xavier-nx", workload=LENET, workers=4, **AS_SET_UP) > 1.05


@claim("004 5.1.5", facts="F918 F920", boards="xavier-nx", only_there=True, fitted=True)
def test_lenet_stalls_longer_on_nx_than_on_agx(ratio):
    """Without workers LeNet's stall on Xavier NX is 1.5 times that on AGX Xavier, within 15 %."""
    assert ratio("stall", against="xavier-agx", workload=LENET, workers=0, **COLD_FROM_DISK).within(1.306, 1.767)


@claim("004 5.1.5", facts="F920 F932", boards="nano", only_there=True, fitted=True)
def test_lenet_stalls_longer_on_nano_than_on_nx(ratio):
    """Without workers LeNet's stall on Nano is 1.26 times that on Xavier NX, within 15 %."""
    assert ratio("stall", against="xavier-nx", workload=LENET, workers=0, **COLD_FROM_DISK).within(1.071, 1.449)


@claim(
    "004 5.1.5",
    facts="F935",
    boards="nano",
    only_there=True,
    shortfall=known(
        0.84, 1.1, "LeNet's stall with a worker is the main process' own work, which no slower GPU hides in the model"
    ),
)
def test_relative_speeds_decide(ratio):
    """LeNet's stall on Nano exceeds that on AGX by less with a worker than without, by 10 % at least: more is hidden.

    004 has 1.42 times with and 1.94 times without.
    """
    slower = partial(ratio, "stall", against="xavier-agx", workload=LENET, **COLD_FROM_DISK)
    assert slower(workers=1) / slower(workers=0) < 0.9


@claim("003 III.B.2", facts="F697", boards="xavier-agx", only_there=True)
def test_a_faster_gpu_gains_more_from_workers(ratio):
    """In a cold epoch on an HDD, four workers for one shorten MobileNet's epoch on AGX by 5 % more than on NX."""
    slower = partial(ratio, "time", against="xavier-nx", workload=MOBILENET, epochs="cold", **COLD_FROM_DISK)
    assert slower(workers=4) / slower(workers=1) < 0.95


@claim("001 4.2", facts="F427 F1190", boards="orin-agx", only_there=True)
def test_training_to_convergence_takes_hours(value):
    """On Orin AGX at MAXN, 120 epochs of ResNet take 4 to 10 hours (001 sec.

    1.4: 6): 38.4 to 96 ms for each of 3,125 minibatches.
    """
    where = {"workers": 4, "batch_size": 16, "storage": "ssd", "clocks": "static"}
    assert value("time", workload=RESNET_IMAGENET, power_mode=DEFAULT, **where).within(38.4, 96)


@claim("001 A", facts="F573 F1209", boards="rtx-3090 nvidia-geforce-rtx-3090", only_there=True)
def test_an_rtx_3090_trains_faster_than_an_a5000(ratio):
    """The RTX 3090 takes less than 0.95 of the A5000's time for the same epoch.

    001 calls it significantly faster; in 004 boards of a type differ by up to 5 %.
    """
    assert ratio("time", against=["a5000", "nvidia-rtx-a5000"], workload=[*TRAINED_ANYWHERE, BERT], **AS_SET_UP) < 0.95


@claim("001 A", facts="F576", boards="rtx-3090 nvidia-geforce-rtx-3090 a5000 nvidia-rtx-a5000", only_there=True)
def test_orin_trains_slower_than_an_a5000_and_an_rtx_3090(ratio):
    """The A5000 and the RTX 3090 take less than 0.95 of Orin AGX's time for the same epoch.

    001 has Orin slower than both.
    """
    assert ratio("time", against="orin-agx", workload=[*TRAINED_ANYWHERE, BERT], **AS_SET_UP) < 0.95


@claim("001 A", facts="F577 F224", boards="raspberry-pi-5", only_there=True, fitted=True)
def test_a_raspberry_pi_trains_two_orders_slower_than_orin(ratio):
    """A Raspberry Pi 5 takes about 100 times as long as Orin AGX for the same epoch.

    001 has two orders of magnitude, read as 10^1.5 to 10^2.5 times.
    """
    assert ratio("time", against="orin-agx", workload=TRAINED_ANYWHERE, **AS_SET_UP).within(31.6, 316)


@claim("001 A", facts="F578", boards="orin-agx", only_there=True, fitted=True)
def test_bert_holds_more_memory_than_a_raspberry_pi_has(value):
    """Where it runs, training BERT in batches of 16 with four workers holds more than 8 GiB.

    With that much it ran out of memory on a Raspberry Pi 5.
    """
    assert value("memory", workload=BERT, workers=4, **AS_SET_UP) > 8 * BYTES_PER_GIB


@claim("001 2.1", facts="F225", boards="raspberry-pi-5", only_there=True, fitted=True)
def test_a_raspberry_pi_draws_one_to_ten_watts(value):
    """A Raspberry Pi 5 that trains draws between 1 and 10 W."""
    assert value("power", workload=TRAINED_ANYWHERE, **AS_SET_UP).within(1000, 10000)


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
