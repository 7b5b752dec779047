"""What DataLoader workers do to stall, time, power and energy (004 sec. 5.1, 003 sec. III.A to C, 002 sec. II.2)."""

from __future__ import annotations

from typing import Optional

from harness.judge.evidence import COLD, Evidence
from harness.judge.findings import Cell, Finding
from harness.judge.takeaway import (
    ALMOST,
    CIFAR,
    LENET,
    MOBILENET,
    NANO,
    NX,
    ORIN,
    PAPERS_BOARDS,
    XAVIER,
    Takeaways,
    Views,
    almost,
)
from harness.judge.view import View, quotient_of
from harness.stats.estimates import quotient

TAKEAWAYS = Takeaways("worker_parallelism")

TRAINED = (LENET, MOBILENET, CIFAR)
SLOW = ("hdd", "sd")
NONE, ONE, TWO, FOUR, EIGHT = ({"workers": count} for count in (0, 1, 2, 4, 8))


def _has_a_core_for_each_worker(one: Evidence) -> bool:
    """Boards of the papers have four cores or more; with fewer than workers, 004 sec. 5.6.5 says, these suffer."""
    return one.case.workers <= one.conditions["power_mode"]["cpu_cores"]


@TAKEAWAYS.of("004 5.1.4", "F927", "F928", "F929", "F930", boards=(*PAPERS_BOARDS, ORIN))
def workers_shorten_epochs(view: View, views: Views) -> Finding:
    """With one worker and with four, every epoch is shorter than without, for any workload and medium.

    Where there is a core for each worker, as on all boards of the paper.
    """
    cells = [
        cell
        for workers in (ONE, FOUR)
        for cell in view.compare("time", NONE, workers, where=_has_a_core_for_each_worker, workload=TRAINED)
    ]
    return Finding(cells, "time with workers / without", below=1.0)


TAKEAWAYS.figures(
    "what_the_first_worker_saves",
    "004 5.1.4",
    "The first worker shortens epochs by 2.9 % for ResNet on CIFAR and by half for MobileNet on AGX, by 39 % on NX",
    *("F927", "F929", "F930"),
)
TAKEAWAYS.figures(
    "what_the_first_worker_saves_on_each_medium",
    "003 III.A",
    "The first worker shortens MobileNet's epochs on HDD, SD and SSD, on AGX by half and on NX by 39 to 42 %",
    *("F661/F660", "F663/F662", "F665/F664", "F681/F680", "F683/F682", "F685/F684"),
)


@TAKEAWAYS.of("004 5.1.4", "F928", boards=PAPERS_BOARDS, only_there=True)
def the_first_worker_shortens_lenets_epochs(view: View, views: Views) -> Finding:
    """The first worker shortens LeNet's epoch on an HDD by 17.7 % (004: on average of three boards), within 15 %."""
    cells = view.compare("time", NONE, ONE, workload=LENET, storage="hdd", power_mode="maxn")
    return Finding(cells, "time with 1 worker / without", above=0.85 * 0.823, below=min(1.15 * 0.823, 1.0))


@TAKEAWAYS.of("004 5.1.3", "F925")
def workers_hide_stalls(view: View, views: Views) -> Finding:
    """With one worker a minibatch stalls for less time than without, for every workload and medium."""
    return Finding(view.compare("stall", NONE, ONE, workload=TRAINED), "stall with 1 worker / without", below=1.0)


TAKEAWAYS.figures(
    "what_the_first_worker_hides",
    "004 5.1.3",
    "The first worker cuts LeNet's stall on AGX and NX to 0.55, that of ResNet on CIFAR on AGX by 1.9 times "
    "and of MobileNet on NX by 2.4 (003: 4.1) times",
    *("F919/F918", "F921/F920", "F923", "F924"),
)
TAKEAWAYS.figures(
    "nanos_first_worker_hides_most",
    "004 5.1.3",
    "On Nano the first worker cuts LeNet's stall by 2.5 times, more than on the other boards",
    "F922",
)
TAKEAWAYS.figures(
    "what_the_first_worker_hides_on_each_medium",
    "003 III.A",
    "The first worker cuts MobileNet's stall on AGX by 21 times on all media, on NX by 4 (HDD) and 24 times (SSD)",
    *("F657", "F659", "F677", "F678", "F679"),
)
TAKEAWAYS.figures(
    "what_the_first_worker_hides_of_an_sd_card_on_nx",
    "003 III.A",
    "The first worker cuts MobileNet's stall on SD on NX by 27 times",
    "F658",
)


@TAKEAWAYS.of("004 5.1.6", "F937", "F938", boards=PAPERS_BOARDS)
def small_data_hardly_stall_with_a_worker(view: View, views: Views) -> Finding:
    """With one worker LeNet and ResNet on CIFAR stall for less than 6.4 ms per minibatch (004: 20 s per epoch)."""
    cells = view.figures("stall", workload=(LENET, CIFAR), workers=1, batch_size=16)
    return Finding(cells, "ms of stall per minibatch", below=6.4)


@TAKEAWAYS.of("004 5.1.4", "F931", "F926", boards=(XAVIER,))
def resnet_on_cifar_hardly_stalls(view: View, views: Views) -> Finding:
    """Without workers ResNet on CIFAR stalls for at most 7.7 % of an epoch (004: 6.7 %, with 15 %)."""
    cells = view.figures("stall_share", workload=CIFAR, workers=0, batch_size=16)
    return Finding(cells, "stall's share of time", below=1.15 * 0.067)


@TAKEAWAYS.of("004 5.1", "F1193", boards=PAPERS_BOARDS)
def lenet_stalls_for_a_large_share(view: View, views: Views) -> Finding:
    """Without workers LeNet stalls for at least 15 % of an epoch."""
    return Finding(view.figures("stall_share", workload=LENET, workers=0), "stall's share of time", above=0.15)


@TAKEAWAYS.of("004 5.1", "F902", boards=(XAVIER, NX))
def what_workers_gain_varies(view: View, views: Views) -> Finding:
    """What the first worker saves depends on the workload: the least ratio of times is below 0.9 of the greatest."""
    cells = view.compare("time", NONE, ONE, workload=TRAINED, storage="hdd")
    if len(cells) < 2:
        return Finding([], "")
    ordered = sorted(cells, key=lambda cell: cell.mean.value)
    both = quotient(ordered[-1].mean, ordered[0].mean)
    return Finding([Cell(f"{ordered[0].label} against {ordered[-1].label}", both)], "least / greatest ratio", below=0.9)


@TAKEAWAYS.of("004 5.1.5", "F936", "F947", boards=(XAVIER,), only_there=True)
def mobilenet_on_agx_needs_one_worker(view: View, views: Views) -> Finding:
    """On AGX, MobileNet takes the same time, within 3 %, with 2, 4 and 8 workers as with one."""
    cells = [cell for more in (TWO, FOUR, EIGHT) for cell in view.compare("time", ONE, more, workload=MOBILENET)]
    return Finding(cells, "time with more workers / with 1", above=ALMOST, below=2.0 - ALMOST)


@TAKEAWAYS.of("004 5.1.6", "F946", boards=(NX,), only_there=True)
def workers_pay_up_to_four_on_nx(view: View, views: Views) -> Finding:
    """On NX with an HDD, MobileNet's epoch is at least 5 % shorter with four workers than with one.

    004 has 42 % and 003 has 17 % (two disks): 15 % above the latter's ratio is 0.95.
    """
    cells = view.compare("time", ONE, FOUR, workload=MOBILENET, storage="hdd")
    return Finding(cells, "time with 4 workers / with 1", below=0.95)


TAKEAWAYS.figures(
    "what_the_second_worker_saves_on_nx",
    "004 5.1.6",
    "On NX with an HDD the second worker cuts MobileNet's stall and epoch as much as 003 and 004 have it",
    *("F940", "F941", "F689"),
)


@TAKEAWAYS.of("004 5.1.6", "F946", boards=(NX, XAVIER))
def workers_saturate_at_four(view: View, views: Views) -> Finding:
    """From four to eight workers MobileNet's epoch changes by less than 3 %, on NX by less than 8 %."""
    return Finding(
        view.compare("time", FOUR, EIGHT, workload=MOBILENET),
        "time with 8 workers / with 4",
        above=almost(view.board),
        below=2.0 - almost(view.board),
    )


@TAKEAWAYS.of("004 5.1.7", "F953", boards=PAPERS_BOARDS)
def workers_raise_power(view: View, views: Views) -> Finding:
    """With four workers LeNet and MobileNet on an HDD draw more power.

    ResNet on CIFAR stalls so little that a single run does not tell how much more it draws.
    """
    cells = view.compare("power", NONE, FOUR, workload=(LENET, MOBILENET), storage="hdd", power_mode="maxn")
    return Finding(cells, "power with 4 workers / without", above=1.0)


@TAKEAWAYS.of("004 5.1.7", "F953", boards=(*PAPERS_BOARDS, ORIN))
def workers_cost_no_energy(view: View, views: Views) -> Finding:
    """With four workers an epoch takes the same energy or less than without: at most 7 % more (004: 4.7 % at most).

    That is more than 4.7 % by what two single runs differ.
    """
    cells = view.compare("energy", NONE, FOUR, where=_has_a_core_for_each_worker, workload=TRAINED)
    return Finding(cells, "energy with 4 workers / without", below=1.07)


TAKEAWAYS.figures(
    "what_energy_workers_save",
    "004 5.1.7",
    "Four workers save 20 % of MobileNet's energy on AGX",
    "F951",
)
TAKEAWAYS.figures(
    "what_energy_workers_save_mobilenet_on_nx",
    "004 5.1.7",
    "Four workers save 39 % of MobileNet's energy on NX",
    "F952",
)
TAKEAWAYS.figures(
    "what_energy_workers_save_lenet",
    "004 5.1.7",
    "Four workers save 5.4 % of LeNet's energy on AGX and 9 % on NX",
    *("F948", "F949"),
)


@TAKEAWAYS.of("004 5.1.7", "F950", boards=(NANO,), only_there=True)
def workers_cost_lenet_energy_on_nano(view: View, views: Views) -> Finding:
    """On Nano four workers raise the energy of LeNet's epoch (004: by 4.7 %)."""
    cells = view.compare("energy", NONE, FOUR, workload=LENET, storage="hdd")
    return Finding(cells, "energy with 4 workers / without", above=1.0)


@TAKEAWAYS.of("003 III.A", "F1199", boards=(NX, XAVIER))
def without_workers_the_gpu_is_used_less(view: View, views: Views) -> Finding:
    """With one worker MobileNet uses the GPU at least 1.38 times as much as without, on every medium.

    003 has 99 % against 61 % on an SSD, where the difference is the least: 1.62, with 15 %.
    """
    return Finding(
        view.compare("gpu_load", NONE, ONE, workload=MOBILENET), "use of the GPU with 1 worker / without", above=1.38
    )


@TAKEAWAYS.of("002 II.2", "F602", boards=(XAVIER,))
def one_worker_hides_an_ssd(view: View, views: Views) -> Finding:
    """On an SSD a second worker changes MobileNet's epoch by less than 3 %."""
    cells = view.compare("time", ONE, TWO, workload=MOBILENET, storage="ssd")
    return Finding(cells, "time with 2 workers / with 1", above=ALMOST, below=2.0 - ALMOST)


@TAKEAWAYS.of("003 III.B.1", "F690", boards=(NX,), only_there=True)
def a_second_worker_gains_nothing_on_fast_storage(view: View, views: Views) -> Finding:
    """On NX with SSD or SD, a second worker changes MobileNet's epoch by less than 8 % (003: by 1 to 1.5 %)."""
    cells = view.compare("time", ONE, TWO, workload=MOBILENET, storage=("ssd", "sd"))
    return Finding(cells, "time with 2 workers / with 1", above=almost(NX), below=2.0 - almost(NX))


@TAKEAWAYS.of("003 III.B.1", "F696", "F603", boards=(XAVIER, NX, ORIN))
def a_slow_disk_gains_more_from_workers(view: View, views: Views) -> Optional[Finding]:
    """In a cold epoch, four workers for one shorten MobileNet's epoch on an HDD by 10 % more than on an SSD."""
    gains = [
        view.compare("time", ONE, FOUR, phase=COLD, workload=MOBILENET, storage=storage, cache="cold")
        for storage in ("ssd", "hdd")
    ]
    cells = quotient_of(*gains, f"{MOBILENET}, 1 to 4 workers")
    return Finding(cells, "ratio of times on HDD / on SSD", below=0.9)


@TAKEAWAYS.of("002 II.2", "F604", boards=(XAVIER, ORIN))
def a_slow_disk_with_more_workers_matches_a_fast_one(view: View, views: Views) -> Finding:
    """With a warm cache, MobileNet takes at most 3 % longer with four workers on an HDD than with one on an SSD."""
    cells = view.compare("time", {"workers": 1, "storage": "ssd"}, {"workers": 4, "storage": "hdd"}, workload=MOBILENET)
    return Finding(cells, "time with 4 workers on HDD / 1 on SSD", below=2.0 - ALMOST)


@TAKEAWAYS.of("003 III.B", "F1200", boards=(XAVIER,), only_there=True)
def one_worker_does_not_fill_agx_from_slow_media(view: View, views: Views) -> Finding:
    """In a cold epoch on AGX, one worker stalls MobileNet at least 7.8 times as long on SD and HDD as on an SSD.

    003 has 134 s on SD where an SSD has 14.5 s: 9.2 times, with 15 %.
    """
    cells = [
        cell
        for storage in SLOW
        for cell in view.compare(
            "stall", {"storage": "ssd"}, {"storage": storage}, phase=COLD, workload=MOBILENET, workers=1, cache="cold"
        )
    ]
    return Finding(cells, "cold stall / on SSD", above=7.8)


TAKEAWAYS.figures(
    "what_workers_hide_of_a_cold_epoch_on_agx",
    "003 III.B.2",
    "On AGX in a cold epoch the second worker cuts MobileNet's stall on SD by 11 times, four that on an HDD by 3.5",
    *("F692/F691", "F695/F693"),
)
TAKEAWAYS.figures(
    "what_the_second_worker_hides_of_an_hdd_on_agx",
    "003 III.B.2",
    "On AGX in a cold epoch the second worker cuts MobileNet's stall on an HDD to 55 %",
    "F694/F693",
)


@TAKEAWAYS.of("003 III.C", "F1201", boards=(NX,), only_there=True)
def two_workers_hide_an_hdd_on_nx(view: View, views: Views) -> Finding:
    """On NX with an HDD and two workers, MobileNet stalls for at most 3.7 % of an epoch (003: 3.2 %, with 15 %)."""
    cells = view.figures("stall_share", workload=MOBILENET, storage="hdd", workers=2)
    return Finding(cells, "stall's share of time", below=0.037)
