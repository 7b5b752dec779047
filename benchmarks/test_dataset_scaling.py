"""Does an epoch grow with the data set, or faster: what of it stays in the page cache, what is read when (E6)?"""

import pytest

from harness.judge.claims import claim
from harness.judge.papers import COLD_OR_EVICTED, MOBILENET
from harness.judge.query import HELD_DOWN


@pytest.mark.parametrize("workload", ["mobilenetv3-gld23k"])
@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("storage", ["ssd", "hdd"])
@pytest.mark.parametrize("cache", ["cold"])
def test_dataset_scaling(profile, baseline):
    """Train with each size of the data set; the campaigns have several."""
    baseline.check(profile())


@claim("003 III.E", facts="F719", boards="xavier-nx xavier-agx orin-agx")
def test_on_an_ssd_stalls_do_not_grow_with_the_data_set(ratio):
    """On an SSD with workers, a minibatch of MobileNet stalls no longer with 4 times GLD than with all of it: 10 %."""
    assert ratio("stall", data_scale=(1, 4), workload=MOBILENET, storage="ssd", workers=4) < 1.1


@claim("003 III.E", facts="F720", boards="xavier-nx xavier-agx orin-agx")
def test_on_an_ssd_epochs_grow_linearly_with_the_data_set(time_over_data_sizes):
    """On an SSD an epoch grows with the data set: a minibatch takes as long with more and with less of it.

    MobileNet with four workers, against all of GLD, within 3 % on AGX; on NX and any other machine within 8 %,
    there of whatever was run with several sizes.
    """
    bounds = {"xavier-agx": (0.97, 1.03), "orin-agx": (0.97, 1.03)}
    assert time_over_data_sizes(storage="ssd", cache=COLD_OR_EVICTED).within(0.92, 1.08, on=bounds)


@claim("003 III.F", facts="F728", boards="xavier-nx")
def test_on_an_hdd_epochs_grow_faster_than_the_data_set(ratio):
    """On NX with an HDD and no workers, a minibatch of 4 times GLD takes 5 % longer than one of a quarter of it."""
    assert ratio("time", data_scale=(0.25, 4), workload=MOBILENET, storage="hdd", workers=0) > 1.05


@claim("003 III.E", facts="F717 F727", boards="xavier-nx", only_there=True, fitted=True)
def test_how_epochs_grow_with_the_data_set(as_printed):
    """On NX an epoch of 4 times GLD takes 4 times as long on an SSD, 4.7 times on an HDD without workers.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim("003 III.F", facts="F729", boards="xavier-nx xavier-agx orin-agx")
def test_caching_shows_on_an_hdd(ratio):
    """On an HDD without workers, a quarter of GLD stalls at least 1.5 times as long cold as warm.

    003 has 1.8 to 2 times on NX, within 15 %. A disk whose reads are held down counts as one, with data of any
    size.
    """
    assert (
        ratio(
            "stall",
            epochs=("warm", "cold"),
            either=[{"storage": "hdd", "data_scale": 0.25}, {"storage": HELD_DOWN, "cache": COLD_OR_EVICTED}],
            workload=MOBILENET,
            workers=0,
        )
        > 1.5
    )


@claim("003 III.E", facts="F1202", boards="xavier-nx")
def test_more_is_read_again_of_a_larger_data_set(ratio):
    """On NX later epochs read a larger share of 4 times GLD than of all of it."""
    assert ratio("read_again", data_scale=(1, 4), workload=MOBILENET, workers=0, cache="cold") > 1


@claim("003 III.E", facts="F718 F670", boards="xavier-nx")
def test_a_smaller_share_of_a_larger_data_set_is_cached(ratio):
    """On NX a smaller share of 4 times GLD than of a quarter of it is in the page cache when an epoch begins."""
    assert (
        ratio(
            "cached_share",
            data_scale=(0.25, 4),
            workload=MOBILENET,
            workers=[0, 4],
            storage=["ssd", "hdd"],
            cache="cold",
        )
        < 1
    )
