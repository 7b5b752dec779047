"""What the page cache does to the epochs after the first (004 sec. 5.1.1 and 5.1.2, 003 sec. III.D)."""

from __future__ import annotations

from harness.experiments.evidence import COLD, WARM
from harness.experiments.findings import Finding
from harness.experiments.takeaway import MOBILENET, NX, ORIN, PAPERS_BOARDS, SMALL_DATA, XAVIER, Takeaways, Views
from harness.experiments.view import View

TAKEAWAYS = Takeaways("page_cache")

COLD_TO_WARM = (COLD, WARM)
EMPTY = ("cold", "evicted")


@TAKEAWAYS.of("004 5.1.1", "F913", "F711", boards=(XAVIER, ORIN))
def cached_data_stall_less(view: View, views: Views) -> Finding:
    """Where all of GLD fits into the page cache, warm epochs on an HDD stall at most 60 % as long as the cold one.

    With four workers; with more the disk hides behind them.
    """
    cells = view.compare(
        "stall", {}, {}, phases=COLD_TO_WARM, workload=MOBILENET, storage="hdd", cache="cold", workers=4
    )
    return Finding(cells, "stall of warm epochs / of the cold one", below=0.6)


@TAKEAWAYS.of("004 5.1.1", "F912", "F913", boards=(NX,))
def a_cache_that_is_too_small_is_no_help(view: View, views: Views) -> Finding:
    """Where GLD does not fit, warm epochs with four workers stall as long as the cold one, within 20 %."""
    cells = view.compare(
        "stall", {}, {}, phases=COLD_TO_WARM, workload=MOBILENET, storage="hdd", cache="cold", workers=4, data_scale=1.0
    )
    return Finding(cells, "stall of warm epochs / of the cold one", above=0.8, below=1.2)


@TAKEAWAYS.of("004 5.1.1", "F913", boards=(XAVIER, ORIN))
def without_the_cache_every_epoch_is_the_first(view: View, views: Views) -> Finding:
    """Where the cache is dropped after every epoch, later epochs of MobileNet stall as long as epoch 0, within 20 %."""
    cells = view.compare(
        "stall", {}, {}, phases=COLD_TO_WARM, workload=MOBILENET, storage="hdd", cache="drop-each-epoch"
    )
    return Finding(cells, "stall of later epochs / of epoch 0", above=0.8, below=1.2)


@TAKEAWAYS.of("004 5.1.2", "F914", "F1192", boards=PAPERS_BOARDS)
def caching_does_not_matter_for_small_data(view: View, views: Views) -> Finding:
    """LeNet on MNIST and ResNet on CIFAR take as long in warm epochs as in the cold one, within 5 %."""
    cells = view.compare("time", {}, {}, phases=COLD_TO_WARM, workload=SMALL_DATA, cache=EMPTY)
    return Finding(cells, "time of warm epochs / of the cold one", above=0.95, below=1.05)


@TAKEAWAYS.of("003 III.D", "F605", boards=(XAVIER, ORIN))
def a_cached_data_set_makes_up_for_a_slow_disk(view: View, views: Views) -> Finding:
    """With four workers, warm epochs of MobileNet on an HDD take as long as on an SSD, within 4 %."""
    cells = view.compare("time", {"storage": "ssd"}, {"storage": "hdd"}, workload=MOBILENET, workers=4, cache="cold")
    return Finding(cells, "time on HDD / on SSD", above=0.96, below=1.04)
