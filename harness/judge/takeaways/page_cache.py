"""What the page cache does to the epochs after the first (004 sec. 5.1.1 and 5.1.2, 003 sec. III.D)."""

from __future__ import annotations

from typing import List

from harness.judge.evidence import COLD, WARM
from harness.judge.findings import Drawn, Finding
from harness.judge.takeaway import (
    ALMOST,
    CIFAR,
    LENET,
    MOBILENET,
    NX,
    ORIN,
    PAPERS_BOARDS,
    SMALL_DATA,
    XAVIER,
    Takeaways,
    Views,
    almost,
)
from harness.judge.view import View

TAKEAWAYS = Takeaways("page_cache")

COLD_TO_WARM = (COLD, WARM)
EMPTY = ("cold", "evicted")


@TAKEAWAYS.of("004 5.1.1", "F913", "F711", "F903", "F904", boards=(XAVIER, ORIN))
def cached_data_stall_less(view: View, views: Views) -> Finding:
    """Where all of GLD fits into the page cache, warm epochs on an HDD stall at most 32 % as long as the cold one.

    With four workers; with more the disk hides behind them. 004 has 28 % on AGX, with 15 %; 003's slower disk has less.
    A disk whose reads are held down counts as a slow one, with data of any size.
    """
    alike = {"phases": COLD_TO_WARM, "workload": MOBILENET, "workers": 4}
    cells = [
        *view.compare("stall", {}, {}, storage="hdd", cache="cold", data_scale=1.0, **alike),
        *view.compare("stall", {}, {}, storage=view.held_down, cache=EMPTY, **alike),
    ]
    return Finding(cells, "stall of warm epochs / of the cold one", below=0.32)


@TAKEAWAYS.of("004 5.1.1", "F912", "F913", "F908", "F909", boards=(NX,), only_there=True)
def a_cache_that_is_too_small_is_no_help(view: View, views: Views) -> Finding:
    """Where GLD does not fit, warm epochs with four workers stall as long as the cold one, within 15 %."""
    cells = view.compare(
        "stall", {}, {}, phases=COLD_TO_WARM, workload=MOBILENET, storage="hdd", cache="cold", workers=4, data_scale=1.0
    )
    return Finding(cells, "stall of warm epochs / of the cold one", above=0.85, below=1.15)


@TAKEAWAYS.of("004 5.1.1", "F911", boards=(NX,), only_there=True)
def dropping_the_cache_changes_nothing_where_data_do_not_fit(view: View, views: Views) -> Finding:
    """On NX, MobileNet's later epochs stall as long with the cache dropped before each as without, within 15 %."""
    cells = view.compare(
        "stall", {"cache": "cold"}, {"cache": "drop-each-epoch"}, workload=MOBILENET, storage="hdd", workers=4
    )
    return Finding(cells, "stall with the cache dropped / with it kept", above=0.85, below=1.15)


@TAKEAWAYS.of("004 5.1.1", "F905", boards=(XAVIER, ORIN))
def all_of_a_data_set_that_fits_is_cached(view: View, views: Views) -> Finding:
    """On AGX all of GLD is in the page cache when its second epoch begins."""
    return Finding(_cached(view), "share of the data set in the page cache", above=0.99)


@TAKEAWAYS.of("004 5.1.1", "F913", boards=(XAVIER, ORIN))
def nothing_is_read_of_what_is_cached(view: View, views: Views) -> Finding:
    """Where all of GLD fits into the page cache, later epochs read less than 1 % of what the cold one read."""
    return Finding(_read(view, MOBILENET), "bytes read in later epochs / in the cold one", below=0.01)


@TAKEAWAYS.of("004 5.1.2", "F914", boards=PAPERS_BOARDS)
def nothing_is_read_of_small_data(view: View, views: Views) -> Finding:
    """Later epochs of LeNet and ResNet on CIFAR read less than 5 % of what the cold one read (004: near zero)."""
    return Finding(_read(view, LENET, CIFAR), "bytes read in later epochs / in the cold one", below=0.05)


def _read(view: View, *workloads: str) -> List[Drawn]:
    """What later epochs read of what the first one did, where the cache was empty before it and is kept."""
    cells = []
    for one in view.where(workload=workloads, cache="cold", data_scale=1.0):
        later = [read for read in one.read_bytes[1:] if read is not None]
        if later and one.read_bytes[0]:
            cells.append(Drawn(one.case.id, sum(later) / len(later) / one.read_bytes[0], ()))
    return cells


@TAKEAWAYS.of("004 5.1.1", "F910", boards=(NX,), only_there=True)
def hardly_any_of_a_data_set_that_does_not_fit_is_cached(view: View, views: Views) -> Finding:
    """On NX with four workers less than 6.9 % of GLD is in the page cache as an epoch begins (004: 6 %, with 15 %)."""
    return Finding(_cached(view), "share of the data set in the page cache", below=0.069)


def _cached(view: View) -> List[Drawn]:
    """The cached share of GLD when later epochs begin, with four workers."""
    found = [
        (one.case.id, share)
        for one in view.where(workload=MOBILENET, workers=4, cache="cold", data_scale=1.0)
        for share in one.conditions.get("cache_residency_by_epoch", [])[1:]
        if share is not None
    ]
    return [Drawn(label, share, ()) for label, share in dict(found).items()]


@TAKEAWAYS.of("004 5.1.1", "F904", "F907", boards=(XAVIER,), only_there=True)
def what_dropping_the_cache_costs(view: View, views: Views) -> Finding:
    """On AGX MobileNet's later epochs stall 3.9 times as long where the cache is dropped before each, within 15 %."""
    cells = view.compare(
        "stall", {"cache": "cold"}, {"cache": "drop-each-epoch"}, workload=MOBILENET, storage="hdd", workers=4
    )
    ratio = 49.91 / 12.9
    return Finding(cells, "stall with the cache dropped / with it kept", above=0.85 * ratio, below=1.15 * ratio)


@TAKEAWAYS.of("004 5.1.1", "F907", boards=(XAVIER, ORIN))
def without_the_cache_every_epoch_is_the_first(view: View, views: Views) -> Finding:
    """Where the cache is dropped after every epoch, later epochs of MobileNet stall as long as epoch 0, within 15 %."""
    cells = view.compare(
        "stall", {}, {}, phases=COLD_TO_WARM, workload=MOBILENET, storage="hdd", cache="drop-each-epoch"
    )
    return Finding(cells, "stall of later epochs / of epoch 0", above=0.85, below=1.15)


@TAKEAWAYS.of("004 5.1.2", "F914", "F1192", boards=PAPERS_BOARDS)
def caching_does_not_matter_for_small_data(view: View, views: Views) -> Finding:
    """LeNet on MNIST and ResNet on CIFAR take as long in warm epochs as in the cold one, within 3 %, on NX 8 %."""
    cells = view.compare("time", {}, {}, phases=COLD_TO_WARM, workload=SMALL_DATA, cache=EMPTY)
    least = almost(view.board)
    return Finding(cells, "time of warm epochs / of the cold one", above=least, below=2.0 - least)


@TAKEAWAYS.of("004 5.1.2", "F914", "F917", "F925", boards=PAPERS_BOARDS)
def stalls_of_small_data_are_alike_in_all_epochs(view: View, views: Views) -> Finding:
    """Without workers LeNet and ResNet on CIFAR stall as long in warm epochs as in the cold one, within 15 %."""
    cells = view.compare("stall", {}, {}, phases=COLD_TO_WARM, workload=SMALL_DATA, cache=EMPTY, workers=0)
    return Finding(cells, "stall of warm epochs / of the cold one", above=0.85, below=1.15)


@TAKEAWAYS.of("003 III.D", "F605", "F686", boards=(XAVIER, ORIN))
def a_cached_data_set_makes_up_for_a_slow_disk(view: View, views: Views) -> Finding:
    """Without workers and with four, warm epochs of MobileNet on an HDD take as long as on an SSD, within 3 %.

    An SSD whose reads are held down counts as a slow disk, with data of any size.
    """
    ssd, alike = {"storage": "ssd"}, {"workload": MOBILENET, "workers": (0, 4)}
    cells = view.compare("time", ssd, {"storage": "hdd"}, cache="cold", data_scale=1.0, **alike)
    for name in view.held_down:
        cells += view.compare("time", ssd, {"storage": name}, cache=EMPTY, **alike)
    return Finding(cells, "time on HDD / on SSD", above=ALMOST, below=2.0 - ALMOST)


TAKEAWAYS.figures(
    "what_an_hdd_costs_the_first_epoch",
    "003 III.D",
    "On AGX without workers MobileNet's first epoch takes 1.7 times as long on an HDD as on an SSD",
    "F704/F706",
)
TAKEAWAYS.figures(
    "what_an_sd_card_costs_the_first_epoch",
    "003 III.D",
    "On AGX without workers MobileNet's first epoch takes 1.5 times as long on an SD card as on an SSD",
    "F705/F706",
)
