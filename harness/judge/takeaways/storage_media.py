"""What the medium does that the data set lies on (004 sec. 5.2, 003 sec. III.C)."""

from __future__ import annotations

from typing import Dict, List

from harness.judge.evidence import COLD, WARM
from harness.judge.findings import Finding
from harness.judge.takeaway import ALMOST, MOBILENET, NX, ORIN, SMALL_DATA, XAVIER, Takeaways, Views, almost
from harness.judge.view import View

TAKEAWAYS = Takeaways("storage_media")

SSD, SD, HDD = ({"storage": name} for name in ("ssd", "sd", "hdd"))
EMPTY = ("cold", "evicted")
WORST = {"workers": 0, "cache": EMPTY}
USUAL = {"workers": 4, "cache": EMPTY}


def _others(view: View) -> List[Dict[str, str]]:
    """The media beside the SSD: those of the papers, and what else this machine has.

    Not those whose reads are held down: there are limits that no medium is as slow as.
    """
    names = {one.case.storage for one in view.evidence} - {None, "ssd", *view.held_down}
    return [{"storage": name} for name in sorted(names)]


TAKEAWAYS.figures(
    "how_much_longer_slow_media_stall",
    "004 5.2.1",
    "On AGX without workers MobileNet's cold stall is 1.6 times as long on SD as on SSD, 1.5 times on HDD as on SD",
    *("F957/F956", "F958/F957"),
)


@TAKEAWAYS.of("004 5.2.1", "F960", boards=(XAVIER,))
def cold_stalls_follow_the_speed_of_the_medium(view: View, views: Views) -> Finding:
    """Without workers, MobileNet's cold stall grows by at least 30 % from SSD to SD, and from SD to HDD.

    004 has factors of 1.58 and 1.53: the lesser with 15 %. An SSD whose reads are held down counts as a slower medium.
    """
    cells = [
        cell
        for pair in ((SSD, SD), (SD, HDD), *((SSD, {"storage": name}) for name in view.held_down))
        for cell in view.compare("stall", *pair, phase=COLD, workload=MOBILENET, **WORST)
    ]
    return Finding(cells, "cold stall / on the next faster medium", above=1.3)


@TAKEAWAYS.of("004 5.2.1", "F961", boards=(XAVIER, NX))
def the_medium_does_not_matter_for_small_data(view: View, views: Views) -> Finding:
    """A cold epoch of LeNet and of ResNet on CIFAR takes as long on other media as on an SSD, within 3 %, on NX 8 %."""
    cells = [
        cell
        for medium in _others(view)
        for cell in view.compare("time", SSD, medium, phase=COLD, workload=SMALL_DATA, **WORST)
    ]
    return Finding(cells, "cold time / on SSD", above=almost(view.board), below=2.0 - almost(view.board))


@TAKEAWAYS.of("003 III.C", "F703", "F737", boards=(XAVIER, ORIN))
def a_medium_that_compute_hides_is_fast_enough(view: View, views: Views) -> Finding:
    """With four workers and a warm cache, MobileNet takes as long on SD and HDD as on an SSD, within 3 %."""
    cells = [
        cell
        for medium in (SD, HDD)
        for cell in view.compare("time", SSD, medium, workload=MOBILENET, data_scale=1.0, **USUAL)
    ]
    return Finding(cells, "time / on SSD", above=ALMOST, below=2.0 - ALMOST)


TAKEAWAYS.figures(
    "how_alike_media_are_with_workers",
    "004 5.2.2",
    "With four workers MobileNet stalls and takes as long on SD and HDD as on an SSD on AGX, less than 3 % more on NX",
    *("F963/F962", "F964/F962", "F966/F965", "F967/F965", "F968"),
)
TAKEAWAYS.figures(
    "how_alike_media_are_with_two_workers",
    "003 III.C",
    "With two workers MobileNet stalls as long on SD as on SSD on AGX, and epochs take as long on all media on NX",
    *("F701/F702", "F699/F698", "F700/F698"),
)


@TAKEAWAYS.of("004 5.2.2", "F969", boards=(XAVIER,))
def storage_has_no_energy_cost_of_its_own(view: View, views: Views) -> Finding:
    """With four workers and a warm cache, an epoch takes the same energy on SD and HDD as on an SSD, within 6 %.

    That is twice the 3 % of times: a single run tells energy half as well.
    """
    cells = [cell for medium in (SD, HDD) for cell in view.compare("energy", SSD, medium, workload=MOBILENET, **USUAL)]
    return Finding(cells, "energy / on SSD", above=0.94, below=1.06)


@TAKEAWAYS.of("003 III.E", "F721", boards=(XAVIER, ORIN))
def an_ssd_seems_as_fast_as_ram(view: View, views: Views) -> Finding:
    """With four workers on an SSD, MobileNet's cold epoch takes less than 3 % longer than its warm ones."""
    cells = view.compare("time", {}, {}, phases=(WARM, COLD), workload=MOBILENET, storage="ssd", batch_size=16, **USUAL)
    return Finding(cells, "time of the cold epoch / of warm ones", below=2.0 - ALMOST)
