"""What a larger data set does to the cache, to stalls and to the epoch (003 sec. III.E and F)."""

from __future__ import annotations

from typing import List

from harness.experiments.evidence import COLD, WARM, Evidence
from harness.experiments.findings import Drawn, Finding
from harness.experiments.takeaway import MOBILENET, NX, ORIN, XAVIER, Takeaways, Views
from harness.experiments.view import View

TAKEAWAYS = Takeaways("dataset_scaling")

USUAL = {"workload": MOBILENET, "workers": 4}
LEAST_SCALE = 0.25
"""The papers' smallest."""

QUARTER, WHOLE, FOURFOLD = ({"data_scale": scale} for scale in (0.25, 1.0, 4.0))


@TAKEAWAYS.of("003 III.E", "F719", boards=(NX, XAVIER, ORIN))
def on_an_ssd_stalls_do_not_grow_with_the_data_set(view: View, views: Views) -> Finding:
    """On an SSD with workers, a minibatch of MobileNet stalls no longer with 4 times GLD than with all of it: 10 %."""
    cells = view.compare("stall", WHOLE, FOURFOLD, workload=MOBILENET, storage="ssd", workers=4)
    return Finding(cells, "stall per minibatch at 4x / at 1x", below=1.1)


@TAKEAWAYS.of("003 III.E", "F720", boards=(NX, XAVIER, ORIN))
def on_an_ssd_epochs_grow_linearly_with_the_data_set(view: View, views: Views) -> Finding:
    """On an SSD an epoch grows with the data set, within 8 %: a minibatch takes as long as with the smallest one.

    MobileNet with four workers, on simulated boards; on a real machine whatever was run with several sizes.
    """
    simulated = view.evidence[0].provenance == "simulated"
    alike = {"storage": "ssd", "cache": ("cold", "evicted"), **(USUAL if simulated else {})}
    scales = sorted({one.case.settings.data_scale for one in view.where(**alike) if one.case.settings.data_scale})
    scales = [scale for scale in scales if scale >= LEAST_SCALE] if simulated else scales
    cells = [
        cell
        for more in scales[1:]
        for cell in view.compare("time", {"data_scale": scales[0]}, {"data_scale": more}, **alike)
    ]
    return Finding(cells, "time per minibatch / with the smallest data set", above=0.92, below=1.08)


@TAKEAWAYS.of("003 III.F", "F728", boards=(NX,))
def on_an_hdd_epochs_grow_faster_than_the_data_set(view: View, views: Views) -> Finding:
    """On NX with an HDD and no workers, a minibatch of 4 times GLD takes longer than one of a quarter of it."""
    cells = view.compare("time", QUARTER, FOURFOLD, workload=MOBILENET, storage="hdd", workers=0)
    return Finding(cells, "time per minibatch at 4x / at 0.25x", above=1.0)


@TAKEAWAYS.of("003 III.F", "F729", boards=(NX, XAVIER, ORIN))
def caching_shows_on_an_hdd(view: View, views: Views) -> Finding:
    """On an HDD without workers, a quarter of GLD stalls at least 1.3 times as long cold as warm."""
    cells = view.compare("stall", {}, {}, phases=(WARM, COLD), workload=MOBILENET, storage="hdd", workers=0, **QUARTER)
    return Finding(cells, "stall of the cold epoch / of warm ones", above=1.3)


@TAKEAWAYS.of("003 III.E", "F718", "F670", boards=(NX,))
def a_smaller_share_of_a_larger_data_set_is_cached(view: View, views: Views) -> Finding:
    """On NX a smaller share of 4 times GLD than of a quarter of it is in the page cache when an epoch begins."""
    cells: List[Drawn] = []
    for storage in ("ssd", "hdd"):
        for workers in (0, 4):
            shares = [
                _share_of_later_epochs(found)
                for scale in (QUARTER, FOURFOLD)
                for found in view.where(workload=MOBILENET, storage=storage, workers=workers, cache="cold", **scale)
            ]
            if len(shares) == 2 and None not in shares and shares[0] > 0:
                cells.append(Drawn(f"{MOBILENET}-w{workers}-{storage}", shares[1] / shares[0], ()))
    return Finding(cells, "cached share of 4x / of 0.25x", below=1.0)


def _share_of_later_epochs(evidence: Evidence):
    shares = [share for share in evidence.conditions.get("cache_residency_by_epoch", [])[1:] if share is not None]
    return sum(shares) / len(shares) if shares else None
