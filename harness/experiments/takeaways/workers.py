"""What DataLoader workers do to stall, time, power and energy (004 sec. 5.1, 003 sec. III.A to C, 002 sec. II.2)."""

from __future__ import annotations

from typing import Optional

from harness.analysis.means import quotient
from harness.experiments.evidence import COLD
from harness.experiments.findings import Cell, Finding
from harness.experiments.takeaway import CIFAR, LENET, MOBILENET, NX, ORIN, PAPERS_BOARDS, XAVIER, Takeaways, Views
from harness.experiments.view import View, quotient_of

TAKEAWAYS = Takeaways("worker_parallelism")

TRAINED = (LENET, MOBILENET, CIFAR)
SLOW = ("hdd", "sd")
NONE, ONE, TWO, FOUR, EIGHT = ({"workers": count} for count in (0, 1, 2, 4, 8))


@TAKEAWAYS.of("004 5.1.3", "F925", boards=(*PAPERS_BOARDS, ORIN))
def workers_shorten_epochs(view: View, views: Views) -> Finding:
    """With four workers no epoch takes longer than without, by 3 % or more, for any workload and medium."""
    return Finding(view.compare("time", NONE, FOUR, workload=TRAINED), "time with 4 workers / without", below=1.03)


@TAKEAWAYS.of("004 5.1.3")
def workers_hide_stalls(view: View, views: Views) -> Finding:
    """With one worker a minibatch stalls for less time than without, for every workload and medium."""
    return Finding(view.compare("stall", NONE, ONE, workload=TRAINED), "stall with 1 worker / without", below=1.0)


@TAKEAWAYS.of("004 5.1.4", "F931", boards=(XAVIER,))
def resnet_on_cifar_hardly_stalls(view: View, views: Views) -> Finding:
    """Without workers ResNet on CIFAR stalls for at most 10 % of an epoch: training it is bound by the GPU."""
    return Finding(view.figures("stall_share", workload=CIFAR, workers=0), "stall's share of time", below=0.10)


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


@TAKEAWAYS.of("004 5.1.5", "F936", "F947", boards=(XAVIER,))
def mobilenet_on_agx_needs_one_worker(view: View, views: Views) -> Finding:
    """On AGX, MobileNet takes the same time, within 5 %, with 2, 4 and 8 workers as with one."""
    cells = [cell for more in (TWO, FOUR, EIGHT) for cell in view.compare("time", ONE, more, workload=MOBILENET)]
    return Finding(cells, "time with more workers / with 1", above=0.95, below=1.05)


@TAKEAWAYS.of("004 5.1.6", "F946", boards=(NX,))
def workers_pay_up_to_four_on_nx(view: View, views: Views) -> Finding:
    """On NX with an HDD, MobileNet's epoch is at least 3 % shorter with four workers than with one."""
    cells = view.compare("time", ONE, FOUR, workload=MOBILENET, storage="hdd")
    return Finding(cells, "time with 4 workers / with 1", below=0.97)


@TAKEAWAYS.of("004 5.1.6", "F946", boards=(NX, XAVIER))
def workers_saturate_at_four(view: View, views: Views) -> Finding:
    """From four to eight workers MobileNet's epoch changes by less than 5 %."""
    return Finding(
        view.compare("time", FOUR, EIGHT, workload=MOBILENET), "time with 8 workers / with 4", above=0.95, below=1.05
    )


@TAKEAWAYS.of("004 5.1.7", "F953", boards=PAPERS_BOARDS)
def workers_raise_power(view: View, views: Views) -> Finding:
    """With four workers LeNet and MobileNet, which stall without, draw more power."""
    cells = view.compare("power", NONE, FOUR, workload=(LENET, MOBILENET), power_mode="maxn")
    return Finding(cells, "power with 4 workers / without", above=1.0)


@TAKEAWAYS.of("004 5.1.7", "F953", "F950", boards=(XAVIER, NX, ORIN))
def workers_cost_no_energy(view: View, views: Views) -> Finding:
    """With four workers an epoch takes the same energy or less than without: at most 8 % more."""
    return Finding(view.compare("energy", NONE, FOUR, workload=TRAINED), "energy with 4 workers / without", below=1.08)


@TAKEAWAYS.of("003 III.A", "F1199", boards=(NX, XAVIER))
def without_workers_the_gpu_is_used_less(view: View, views: Views) -> Finding:
    """With one worker MobileNet uses the GPU at least 1.2 times as much as without, on every medium."""
    return Finding(
        view.compare("gpu_load", NONE, ONE, workload=MOBILENET), "use of the GPU with 1 worker / without", above=1.2
    )


@TAKEAWAYS.of("002 II.2", "F602", boards=(XAVIER,))
def one_worker_hides_an_ssd(view: View, views: Views) -> Finding:
    """On an SSD a second worker changes MobileNet's epoch by less than 3 %."""
    cells = view.compare("time", ONE, TWO, workload=MOBILENET, storage="ssd")
    return Finding(cells, "time with 2 workers / with 1", above=0.97, below=1.03)


@TAKEAWAYS.of("003 III.B.1", "F690", boards=(NX,))
def a_second_worker_gains_nothing_on_fast_storage(view: View, views: Views) -> Finding:
    """On NX with SSD or SD, a second worker changes MobileNet's epoch by less than 6 %."""
    cells = view.compare("time", ONE, TWO, workload=MOBILENET, storage=("ssd", "sd"))
    return Finding(cells, "time with 2 workers / with 1", above=0.94, below=1.06)


@TAKEAWAYS.of("003 III.B.1", "F696", "F603", boards=(XAVIER, NX, ORIN))
def a_slow_disk_gains_more_from_workers(view: View, views: Views) -> Optional[Finding]:
    """In a cold epoch, going from one to four workers shortens MobileNet's epoch more on an HDD than on an SSD."""
    gains = [
        view.compare("time", ONE, FOUR, phase=COLD, workload=MOBILENET, storage=storage, cache="cold")
        for storage in ("ssd", "hdd")
    ]
    cells = quotient_of(*gains, f"{MOBILENET}, 1 to 4 workers")
    return Finding(cells, "ratio of times on HDD / on SSD", below=1.0)


@TAKEAWAYS.of("002 II.2", "F604", boards=(XAVIER, ORIN))
def a_slow_disk_with_more_workers_matches_a_fast_one(view: View, views: Views) -> Finding:
    """With a warm cache, MobileNet with four workers on an HDD is within 5 % of one worker on an SSD."""
    cells = view.compare("time", {"workers": 1, "storage": "ssd"}, {"workers": 4, "storage": "hdd"}, workload=MOBILENET)
    return Finding(cells, "time with 4 workers on HDD / 1 on SSD", below=1.05)


@TAKEAWAYS.of("003 III.B", "F1200", boards=(XAVIER,))
def one_worker_does_not_fill_agx_from_slow_media(view: View, views: Views) -> Finding:
    """In a cold epoch on AGX, one worker stalls MobileNet at least 3 times as long on SD and HDD as on an SSD."""
    cells = [
        cell
        for storage in SLOW
        for cell in view.compare(
            "stall", {"storage": "ssd"}, {"storage": storage}, phase=COLD, workload=MOBILENET, workers=1, cache="cold"
        )
    ]
    return Finding(cells, "cold stall / on SSD", above=3.0)


@TAKEAWAYS.of("003 III.C", "F1201", boards=(NX,))
def two_workers_hide_an_hdd_on_nx(view: View, views: Views) -> Finding:
    """On NX with an HDD and two workers, MobileNet stalls for at most 10 % of an epoch."""
    cells = view.figures("stall_share", workload=MOBILENET, storage="hdd", workers=2)
    return Finding(cells, "stall's share of time", below=0.10)
