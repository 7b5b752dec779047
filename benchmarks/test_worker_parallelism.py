"""How many DataLoader workers hide the fetch stall, and what do they cost (E1, E4)?"""

from functools import partial

import pytest

from harness.core.mode_texts import DEFAULT
from harness.judge.claims import claim, known
from harness.judge.papers import LENET, MOBILENET, PAPERS, RESNET, SMALL_DATA, a_core_for_each_worker


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("workers", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("storage", ["hdd"])
@pytest.mark.parametrize("cache", ["cold"])
def test_workers(profile, baseline):
    baseline.check(profile())


@claim("004 5.1.4", facts="F927 F928 F929 F930", boards="xavier-agx xavier-nx nano orin-agx", fitted=True)
def test_one_worker_shortens_every_epoch(ratio):
    """With one worker and with four, every epoch is shorter than without, for any workload and medium.

    Where there is a core for each worker, as on all boards of the paper.
    """
    assert ratio("time", workers=(0, [1, 4]), workload=PAPERS, where=a_core_for_each_worker) < 1


@claim("004 5.1.4", facts="F927 F929 F930", boards="xavier-agx xavier-nx", only_there=True, fitted=True)
def test_what_the_first_worker_saves(as_printed):
    """The first worker shortens epochs by 2.9 % for ResNet on CIFAR and by half for MobileNet on AGX, by 39 % on NX.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim(
    "003 III.A",
    facts="F661/F660 F663/F662 F665/F664 F681/F680 F683/F682 F685/F684",
    boards="xavier-nx xavier-agx",
    only_there=True,
    fitted=True,
)
def test_what_the_first_worker_saves_on_each_medium(as_printed):
    """The first worker shortens MobileNet's epochs on HDD, SD and SSD, on AGX by half and on NX by 39 to 42 %.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim("004 5.1.4", facts="F928", boards="xavier-agx xavier-nx nano", only_there=True, fitted=True)
def test_the_first_worker_shortens_lenets_epochs(ratio):
    """The first worker shortens LeNet's epoch on an HDD by 17.7 % (004: mean of three boards), within 15 %."""
    assert ratio("time", workers=(0, 1), workload=LENET, storage="hdd", power_mode=DEFAULT).within(0.69955, 0.94645)


@claim("004 5.1.3", facts="F925")
def test_workers_hide_stalls(ratio):
    """With one worker a minibatch stalls for less time than without, for every workload and medium."""
    assert ratio("stall", workers=(0, 1), workload=PAPERS) < 1


@claim("004 5.1.3", facts="F919/F918 F921/F920 F923 F924", boards="xavier-agx xavier-nx", only_there=True, fitted=True)
def test_what_the_first_worker_hides(as_printed):
    """The first worker cuts LeNet's stall on AGX and NX to 0.55.

    It cuts that of ResNet on CIFAR on AGX by 1.9 times and of MobileNet on NX by 2.4 (003: 4.1) times; within 15
    %.
    """
    assert as_printed().within(0.85, 1.15)


@claim(
    "004 5.1.3",
    facts="F922",
    boards="nano",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.7, 1.15, "LeNet's stall with a worker is the main process' own work, which no slower GPU hides in the model"
    ),
)
def test_nanos_first_worker_hides_most(as_printed):
    """On Nano the first worker cuts LeNet's stall by 2.5 times, more than on the other boards, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim("003 III.A", facts="F657 F659 F677 F678 F679", boards="xavier-nx xavier-agx", only_there=True, fitted=True)
def test_what_the_first_worker_hides_on_each_medium(as_printed):
    """The first worker cuts MobileNet's stall on AGX by 21 times on all media, on NX by 4 (HDD) and 24 times (SSD).

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim(
    "003 III.A",
    facts="F658",
    boards="xavier-nx",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.72,
        1.15,
        "the SD card of the fit leaves NX 23 s of stall with a worker where 003 has 18 s; AGX with the "
        "same card has 13 s",
    ),
)
def test_what_the_first_worker_hides_of_an_sd_card_on_nx(as_printed):
    """The first worker cuts MobileNet's stall on SD on NX by 27 times, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim("004 5.1.6", facts="F937 F938", boards="xavier-agx xavier-nx nano", fitted=True)
def test_small_data_hardly_stall_with_a_worker(value):
    """With one worker LeNet and ResNet on CIFAR stall for less than 6.4 ms per minibatch (004: 20 s per epoch)."""
    assert value("stall", workload=SMALL_DATA, workers=1, batch_size=16) < 6.4


@claim("004 5.1.4", facts="F931 F926", boards="xavier-agx", fitted=True)
def test_resnet_on_cifar_hardly_stalls(value):
    """Without workers ResNet on CIFAR stalls for at most 7.7 % of an epoch (004: 6.7 %, within 15 %)."""
    assert value("stall_share", workload=RESNET, workers=0, batch_size=16) < 0.07705


@claim("004 5.1", facts="F1193", boards="xavier-agx xavier-nx nano")
def test_lenet_stalls_for_a_large_share(value):
    """Without workers LeNet stalls for at least 15 % of an epoch."""
    assert value("stall_share", workload=LENET, workers=0) > 0.15


@claim("004 5.1", facts="F1193", boards="xavier-agx")
def test_lenet_stalls_for_a_larger_share_than_resnet(ratio):
    """Without workers LeNet stalls for at least 3 times the share of an epoch that ResNet on CIFAR does."""
    assert ratio("stall_share", workload=(RESNET, LENET), workers=0, storage="hdd", batch_size=16) > 3


@claim("004 5.1", facts="F902", boards="xavier-agx xavier-nx")
def test_what_workers_gain_varies(ratio):
    """What the first worker saves depends on the workload: the least ratio of times is below 0.9 of the greatest."""
    assert ratio("time", workers=(0, 1), workload=PAPERS, storage="hdd").least_over_greatest() < 0.9


@claim("004 5.1.5", facts="F936 F947", boards="xavier-agx", only_there=True)
def test_mobilenet_on_agx_needs_one_worker(ratio):
    """On AGX, MobileNet takes the same time, within 3 %, with 2, 4 and 8 workers as with one."""
    assert ratio("time", workers=(1, [2, 4, 8]), workload=MOBILENET).within(0.97, 1.03)


@claim("004 5.1.6", facts="F946", boards="xavier-nx", only_there=True)
def test_workers_pay_up_to_four_on_nx(ratio):
    """On NX with an HDD, MobileNet's epoch is at least 5 % shorter with four workers than with one.

    004 has 42 % and 003 has 17 % (two disks): 15 % above the latter's ratio is 0.95.
    """
    assert ratio("time", workers=(1, 4), workload=MOBILENET, storage="hdd") < 0.95


@claim("004 5.1.6", facts="F940 F941 F689", boards="xavier-nx", only_there=True, fitted=True)
def test_what_the_second_worker_saves_on_nx(as_printed):
    """On NX with an HDD the second worker cuts MobileNet's stall and epoch as much as 003 and 004 have it.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim("004 5.1.6", facts="F946", boards="xavier-nx xavier-agx")
def test_workers_saturate_at_four(ratio):
    """From four to eight workers MobileNet's epoch changes by less than 3 %, on NX by less than 8 %.

    004 has 576 s with both.
    """
    assert ratio("time", workers=(4, 8), workload=MOBILENET).within(0.97, 1.03, on={"xavier-nx": (0.92, 1.08)})


@claim(
    "004 5.1.7",
    facts="F953",
    boards="xavier-agx xavier-nx nano",
    shortfall=known(
        0.97,
        1.8,
        "on NX at 15 W four workers raise the power of the model's LeNet by 3 %, which single runs do not"
        " tell from none",
    ),
)
def test_workers_raise_power(ratio):
    """With four workers LeNet and MobileNet on an HDD draw more power.

    ResNet on CIFAR stalls so little that a single run does not tell how much more it draws.
    """
    assert ratio("power", workers=(0, 4), workload=[LENET, MOBILENET], storage="hdd", power_mode=DEFAULT) > 1


@claim("004 5.1.7", facts="F953", boards="xavier-agx xavier-nx nano orin-agx")
def test_workers_cost_no_energy(ratio):
    """With four workers an epoch takes the same energy or less than without: at most 7 % more (004: 4.7 % at most).

    That is more than 4.7 % by what two single runs differ.
    """
    assert ratio("energy", workers=(0, 4), workload=PAPERS, where=a_core_for_each_worker) < 1.07


@claim("004 5.1.7", facts="F951", boards="xavier-agx", only_there=True, fitted=True)
def test_what_energy_workers_save(as_printed):
    """Four workers save 20 % of MobileNet's energy on AGX, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim(
    "004 5.1.7",
    facts="F952",
    boards="xavier-nx",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.85,
        1.24,
        "the HDD of the fit lies between 003's and 004's (704 and 1,094 s of stall on NX), so workers "
        "save less than with 004's",
    ),
)
def test_what_energy_workers_save_mobilenet_on_nx(as_printed):
    """Four workers save 39 % of MobileNet's energy on NX, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim(
    "004 5.1.7",
    facts="F948 F949",
    boards="xavier-agx xavier-nx",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.79,
        1.15,
        "workers shorten the model's LeNet epochs by 24 % where 004 has 17.7 %, so they save more energy too",
    ),
)
def test_what_energy_workers_save_lenet(as_printed):
    """Four workers save 5.4 % of LeNet's energy on AGX and 9 % on NX, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim(
    "004 5.1.7",
    facts="F950",
    boards="nano",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.86, 1.11, "workers shorten the model's LeNet epochs by more than 004 has, so they save energy on Nano too"
    ),
)
def test_workers_cost_lenet_energy_on_nano(ratio):
    """On Nano four workers raise the energy of LeNet's epoch (004: by 4.7 %)."""
    assert ratio("energy", workers=(0, 4), workload=LENET, storage="hdd") > 1


@claim("003 III.A", facts="F1199", boards="xavier-nx xavier-agx")
def test_without_workers_the_gpu_is_used_less(ratio):
    """With one worker MobileNet uses the GPU at least 1.38 times as much as without, on every medium.

    003 has 99 % against 61 % on an SSD, where the difference is the least: 1.62, within 15 %.
    """
    assert ratio("gpu_load", workers=(0, 1), workload=MOBILENET) > 1.38


@claim("002 II.2", facts="F602", boards="xavier-agx")
def test_one_worker_hides_an_ssd(ratio):
    """On an SSD a second worker changes MobileNet's epoch by less than 3 %."""
    assert ratio("time", workers=(1, 2), workload=MOBILENET, storage="ssd").within(0.97, 1.03)


@claim("003 III.B.1", facts="F690", boards="xavier-nx", only_there=True)
def test_a_second_worker_gains_nothing_on_fast_storage(ratio):
    """On NX with SSD or SD, a second worker changes MobileNet's epoch by less than 8 % (003: by 1 to 1.5 %)."""
    assert ratio("time", workers=(1, 2), workload=MOBILENET, storage=["ssd", "sd"]).within(0.92, 1.08)


@claim("003 III.B.1", facts="F696 F603", boards="xavier-agx xavier-nx orin-agx")
def test_a_slow_disk_gains_more_from_workers(ratio):
    """In a cold epoch, four workers for one shorten MobileNet's epoch on an HDD by 10 % more than on an SSD."""
    gain = partial(ratio, "time", workers=(1, 4), workload=MOBILENET, cache="cold", epochs="cold")
    assert gain(storage="hdd") / gain(storage="ssd") < 0.9


@claim("002 II.2", facts="F604", boards="xavier-agx orin-agx")
def test_a_slow_disk_with_more_workers_matches_a_fast_one(ratio):
    """With a warm cache, MobileNet takes at most 3 % longer with four workers on an HDD than with one on an SSD."""
    assert ratio("time", workers=(1, 4), storage=("ssd", "hdd"), workload=MOBILENET) < 1.03


@claim("002 II.2", facts="F604", boards="xavier-nx", only_there=True)
def test_a_slow_disk_needs_more_workers_on_nx(ratio):
    """On NX MobileNet takes at most 8 % longer with four workers on an HDD than with one on an SSD.

    The page cache of NX does not hold GLD.
    """
    assert ratio("time", workers=(1, 4), storage=("ssd", "hdd"), workload=MOBILENET, data_scale=1) < 1.08


@claim("002 II.2", facts="F603 F604", boards="xavier-nx", only_there=True)
def test_a_slow_disk_with_one_worker_does_not_match_a_fast_one(ratio):
    """On NX MobileNet takes at least 3 % longer with one worker on an HDD than on an SSD.

    The page cache of NX does not hold GLD.
    """
    assert ratio("time", storage=("ssd", "hdd"), workload=MOBILENET, workers=1, data_scale=1) > 1.03


@claim("003 III.B", facts="F1200", boards="xavier-agx", only_there=True)
def test_one_worker_does_not_fill_agx_from_slow_media(ratio):
    """In a cold epoch on AGX, one worker stalls MobileNet at least 7.8 times as long on SD and HDD as on an SSD.

    003 has 134 s on SD where an SSD has 14.5 s: 9.2 times, within 15 %.
    """
    assert (
        ratio("stall", storage=("ssd", ["hdd", "sd"]), epochs="cold", workload=MOBILENET, workers=1, cache="cold") > 7.8
    )


@claim("003 III.B.2", facts="F692/F691 F695/F693", boards="xavier-agx", only_there=True, fitted=True)
def test_what_workers_hide_of_a_cold_epoch_on_agx(as_printed):
    """On AGX in a cold epoch the second worker cuts MobileNet's stall on SD by 11 times, four that on an HDD by 3.5.

    Within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim(
    "003 III.B.2",
    facts="F694/F693",
    boards="xavier-agx",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.75,
        1.15,
        "the HDD of the fit reads better ahead with a second worker than 003's disk, and is held to 004's"
        " faster one with four",
    ),
)
def test_what_the_second_worker_hides_of_an_hdd_on_agx(as_printed):
    """On AGX in a cold epoch the second worker cuts MobileNet's stall on an HDD to 55 %, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim("003 III.C", facts="F1201", boards="xavier-nx", only_there=True)
def test_two_workers_hide_an_hdd_on_nx(value):
    """On NX with an HDD and two workers, MobileNet stalls for at most 3.7 % of an epoch (003: 3.2 %, within 15 %)."""
    assert value("stall_share", workload=MOBILENET, storage="hdd", workers=2) < 0.037
