"""Does a faster medium train faster: at worst, without workers, and as usual (E3)?"""

import pytest

from harness.judge.claims import claim, known
from harness.judge.papers import COLD_OR_EVICTED, MOBILENET, SMALL_DATA
from harness.judge.query import ANY_OTHER, HELD_DOWN


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("storage", ["ssd", "sd", "hdd"])
@pytest.mark.parametrize("cache", ["cold"])
def test_storage_media(profile, baseline):
    baseline.check(profile())


@claim("004 5.2.1", facts="F957/F956 F958/F957", boards="xavier-agx", only_there=True, fitted=True)
def test_how_much_longer_slow_media_stall(as_printed):
    """On AGX without workers MobileNet's cold stall is 1.6 times as long on SD as on SSD, 1.5 times on HDD as on SD.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim("004 5.2.1", facts="F960", boards="xavier-agx")
def test_cold_stalls_follow_the_speed_of_the_medium(ratio):
    """Without workers, MobileNet's cold stall grows by at least 30 % from SSD to SD, and from SD to HDD.

    004 has factors of 1.58 and 1.53: the lesser within 15 %. An SSD whose reads are held down counts as a slower
    medium.
    """
    assert (
        ratio(
            "stall",
            storage=[("ssd", "sd"), ("sd", "hdd"), ("ssd", HELD_DOWN)],
            epochs="cold",
            workload=MOBILENET,
            workers=0,
            cache=COLD_OR_EVICTED,
        )
        > 1.3
    )


@claim(
    "004 5.2.1",
    facts="F961",
    boards="xavier-agx xavier-nx",
    shortfall=known(
        0.92,
        1.12,
        "on NX at 15 W a cold epoch of the model's LeNet takes 4 % longer from an HDD, which single runs "
        "do not tell from 8 %",
    ),
)
def test_the_medium_does_not_matter_for_small_data(ratio):
    """A cold epoch of LeNet and of ResNet on CIFAR takes as long on other media as on an SSD, within 3 %, on NX 8 %."""
    assert ratio(
        "time", storage=("ssd", ANY_OTHER), epochs="cold", workload=SMALL_DATA, workers=0, cache=COLD_OR_EVICTED
    ).within(0.97, 1.03, on={"xavier-nx": (0.92, 1.08)})


@claim("003 III.C", facts="F703 F737", boards="xavier-agx orin-agx")
def test_a_medium_that_compute_hides_is_fast_enough(ratio):
    """With four workers and a warm cache, MobileNet takes as long on SD and HDD as on an SSD, within 3 %."""
    assert ratio(
        "time", storage=("ssd", ["sd", "hdd"]), workload=MOBILENET, data_scale=1, workers=4, cache=COLD_OR_EVICTED
    ).within(0.97, 1.03)


@claim(
    "004 5.2.2",
    facts="F963/F962 F964/F962 F966/F965 F967/F965 F968",
    boards="xavier-agx xavier-nx",
    only_there=True,
    fitted=True,
)
def test_how_alike_media_are_with_workers(as_printed):
    """With four workers MobileNet stalls and takes as long on SD and HDD as on an SSD on AGX.

    On NX it takes less than 3 % longer; within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim("003 III.C", facts="F701/F702 F699/F698 F700/F698", boards="xavier-agx xavier-nx", only_there=True, fitted=True)
def test_how_alike_media_are_with_two_workers(as_printed):
    """With two workers MobileNet stalls as long on SD as on SSD on AGX, and epochs take as long on all media on NX.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim("004 5.2.2", facts="F969", boards="xavier-agx")
def test_storage_has_no_energy_cost_of_its_own(ratio):
    """With four workers and a warm cache, an epoch takes the same energy on SD and HDD as on an SSD, within 6 %.

    That is twice the 3 % of times: a single run resolves energy half as well.
    """
    assert ratio("energy", storage=("ssd", ["sd", "hdd"]), workload=MOBILENET, workers=4, cache=COLD_OR_EVICTED).within(
        0.94, 1.06
    )


@claim("003 III.E", facts="F721", boards="xavier-agx orin-agx")
def test_an_ssd_seems_as_fast_as_ram(ratio):
    """With four workers on an SSD, MobileNet's cold epoch takes less than 3 % longer than its warm ones."""
    assert (
        ratio(
            "time",
            epochs=("warm", "cold"),
            workload=MOBILENET,
            storage="ssd",
            batch_size=16,
            workers=4,
            cache=COLD_OR_EVICTED,
        )
        < 1.03
    )
