"""What does the page cache do to the epochs after the first (E2)?"""

import pytest

from harness.judge.claims import claim
from harness.judge.papers import COLD_OR_EVICTED, MOBILENET, SMALL_DATA
from harness.judge.query import HELD_DOWN


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("storage", ["hdd"])
@pytest.mark.parametrize("cache", ["cold"])
def test_page_cache(profile, baseline):
    """Train from a cold cache; the campaigns run epochs, and drop it between them too."""
    baseline.check(profile())


@claim("004 5.1.1", facts="F913 F711 F903 F904", boards="xavier-agx orin-agx", fitted=True)
def test_cached_data_stall_less(ratio):
    """Where all of GLD fits into the page cache, warm epochs on an HDD stall at most 32 % as long as the cold one.

    With four workers; with more the disk hides behind them. 004 has 28 % on AGX, and this is within 15 % of it; on
    003's slower disk it is less. A disk whose reads are held down counts as a slow one, with data of any size.
    """
    assert (
        ratio(
            "stall",
            epochs=("cold", "warm"),
            either=[
                {"storage": "hdd", "cache": "cold", "data_scale": 1},
                {"storage": HELD_DOWN, "cache": COLD_OR_EVICTED},
            ],
            workload=MOBILENET,
            workers=4,
        )
        < 0.32
    )


@claim("004 5.1.1", facts="F912 F913 F908 F909", boards="xavier-nx", only_there=True, fitted=True)
def test_a_cache_that_is_too_small_is_no_help(ratio):
    """Where GLD does not fit, warm epochs with four workers stall as long as the cold one, within 15 %."""
    assert ratio(
        "stall", epochs=("cold", "warm"), workload=MOBILENET, storage="hdd", cache="cold", workers=4, data_scale=1
    ).within(0.85, 1.15)


@claim("004 5.1.1", facts="F911", boards="xavier-nx", only_there=True, fitted=True)
def test_dropping_the_cache_changes_nothing_where_data_do_not_fit(ratio):
    """On NX, MobileNet's later epochs stall as long with the cache dropped before each as without, within 15 %."""
    assert ratio("stall", cache=("cold", "drop-each-epoch"), workload=MOBILENET, storage="hdd", workers=4).within(
        0.85, 1.15
    )


@claim("004 5.1.1", facts="F905", boards="xavier-agx orin-agx", fitted=True)
def test_all_of_a_data_set_that_fits_is_cached(value):
    """On AGX all of GLD is in the page cache when its second epoch begins."""
    assert value("cached_share", workload=MOBILENET, workers=4, cache="cold", data_scale=1) > 0.99


@claim("004 5.1.1", facts="F913", boards="xavier-agx orin-agx")
def test_nothing_is_read_of_what_is_cached(value):
    """Where all of GLD fits into the page cache, later epochs read less than 1 % of what the cold one read."""
    assert value("read_again", workload=MOBILENET, cache="cold", data_scale=1) < 0.01


@claim("004 5.1.2", facts="F914 F1192", boards="xavier-agx xavier-nx nano", fitted=True)
def test_nothing_is_read_of_small_data(value):
    """Later epochs of LeNet and ResNet on CIFAR read less than 5 % of what the cold one read (004: near zero)."""
    assert value("read_again", workload=SMALL_DATA, cache="cold", data_scale=1) < 0.05


@claim("004 5.1.1", facts="F910", boards="xavier-nx", only_there=True, fitted=True)
def test_hardly_any_of_a_data_set_that_does_not_fit_is_cached(value):
    """On NX with four workers less than 6.9 % of GLD is cached as an epoch begins (004: 6 %, within 15 %)."""
    assert value("cached_share", workload=MOBILENET, workers=4, cache="cold", data_scale=1) < 0.069


@claim("004 5.1.1", facts="F904 F907", boards="xavier-agx", only_there=True, fitted=True)
def test_what_dropping_the_cache_costs(ratio):
    """On AGX MobileNet's later epochs stall 3.9 times as long where the cache is dropped before each, within 15 %."""
    assert ratio("stall", cache=("cold", "drop-each-epoch"), workload=MOBILENET, storage="hdd", workers=4).within(
        3.289, 4.449
    )


@claim("004 5.1.1", facts="F907", boards="xavier-agx orin-agx", fitted=True)
def test_without_the_cache_every_epoch_is_the_first(ratio):
    """Where the cache is dropped after every epoch, later epochs of MobileNet stall as long as epoch 0.

    Within 15 %.
    """
    assert ratio("stall", epochs=("cold", "warm"), workload=MOBILENET, storage="hdd", cache="drop-each-epoch").within(
        0.85, 1.15
    )


@claim("004 5.1.2", facts="F914 F1192", boards="xavier-agx xavier-nx nano", fitted=True)
def test_caching_does_not_matter_for_small_data(ratio):
    """LeNet on MNIST and ResNet on CIFAR take as long in warm epochs as in the cold one, within 3 %, on NX 8 %."""
    assert ratio("time", epochs=("cold", "warm"), workload=SMALL_DATA, cache=COLD_OR_EVICTED).within(
        0.97, 1.03, on={"xavier-nx": (0.92, 1.08)}
    )


@claim("004 5.1.2", facts="F914 F917 F925 F1192", boards="xavier-agx xavier-nx nano", fitted=True)
def test_stalls_of_small_data_are_alike_in_all_epochs(ratio):
    """Without workers LeNet and ResNet on CIFAR stall as long in warm epochs as in the cold one, within 15 %."""
    assert ratio("stall", epochs=("cold", "warm"), workload=SMALL_DATA, cache=COLD_OR_EVICTED, workers=0).within(
        0.85, 1.15
    )


@claim("003 III.D", facts="F605 F686", boards="xavier-agx orin-agx")
def test_a_cached_data_set_makes_up_for_a_slow_disk(ratio):
    """Without workers and with four, warm epochs of MobileNet on an HDD take as long as on an SSD, within 3 %.

    An SSD whose reads are held down counts as a slow disk, with data of any size.
    """
    slow = [
        {"storage": ("ssd", "hdd"), "cache": "cold", "data_scale": 1},
        {"storage": ("ssd", HELD_DOWN), "cache": COLD_OR_EVICTED},
    ]
    assert ratio("time", workload=MOBILENET, workers=[0, 4], either=slow).within(0.97, 1.03)


@claim("003 III.D", facts="F704/F706", boards="xavier-agx", only_there=True, fitted=True)
def test_what_an_hdd_costs_the_first_epoch(as_printed):
    """On AGX without workers MobileNet's first epoch takes 1.7 times as long on an HDD as on an SSD, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim("003 III.D", facts="F705/F706", boards="xavier-agx", only_there=True, fitted=True)
def test_what_an_sd_card_costs_the_first_epoch(as_printed):
    """On AGX without workers MobileNet's first epoch takes 1.5 times as long on an SD card as on an SSD.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)
