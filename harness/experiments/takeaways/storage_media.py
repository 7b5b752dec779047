"""What the medium does that the data set lies on (004 sec. 5.2, 003 sec. III.C)."""

from __future__ import annotations

from typing import Dict, List

from harness.experiments.evidence import COLD, WARM
from harness.experiments.findings import Finding
from harness.experiments.takeaway import MOBILENET, NX, ORIN, SMALL_DATA, XAVIER, Takeaways, Views
from harness.experiments.view import View

TAKEAWAYS = Takeaways("storage_media")

SSD, SD, HDD = ({"storage": name} for name in ("ssd", "sd", "hdd"))
EMPTY = ("cold", "evicted")
WORST = {"workers": 0, "cache": EMPTY}
USUAL = {"workers": 4, "cache": EMPTY}


def _others(view: View) -> List[Dict[str, str]]:
    """The media beside the SSD: those of the papers, and what else this machine has."""
    names = {one.case.storage for one in view.evidence if one.case.storage not in (None, "ssd")}
    return [{"storage": name} for name in sorted(names)]


@TAKEAWAYS.of("004 5.2.1", "F960", boards=(XAVIER,))
def cold_stalls_follow_the_speed_of_the_medium(view: View, views: Views) -> Finding:
    """Without workers, MobileNet's cold stall grows by at least 20 % from SSD to SD, and from SD to HDD."""
    cells = [
        cell
        for pair in ((SSD, SD), (SD, HDD))
        for cell in view.compare("stall", *pair, phase=COLD, workload=MOBILENET, **WORST)
    ]
    return Finding(cells, "cold stall / on the next faster medium", above=1.2)


@TAKEAWAYS.of("004 5.2.1", "F961", boards=(XAVIER, NX))
def the_medium_does_not_matter_for_small_data(view: View, views: Views) -> Finding:
    """A cold epoch of LeNet and of ResNet on CIFAR takes as long on other media as on an SSD, within 5 %."""
    cells = [
        cell
        for medium in _others(view)
        for cell in view.compare("time", SSD, medium, phase=COLD, workload=SMALL_DATA, **WORST)
    ]
    return Finding(cells, "cold time / on SSD", above=0.95, below=1.05)


@TAKEAWAYS.of("003 III.C", "F703", "F737", boards=(XAVIER, ORIN))
def a_medium_that_compute_hides_is_fast_enough(view: View, views: Views) -> Finding:
    """With four workers and a warm cache, MobileNet takes as long on SD and HDD as on an SSD, within 4 %."""
    cells = [cell for medium in (SD, HDD) for cell in view.compare("time", SSD, medium, workload=MOBILENET, **USUAL)]
    return Finding(cells, "time / on SSD", above=0.96, below=1.04)


@TAKEAWAYS.of("004 5.2.2", "F969", boards=(XAVIER, ORIN))
def storage_has_no_energy_cost_of_its_own(view: View, views: Views) -> Finding:
    """With four workers and a warm cache, an epoch takes the same energy on SD and HDD as on an SSD, within 8 %."""
    cells = [cell for medium in (SD, HDD) for cell in view.compare("energy", SSD, medium, workload=MOBILENET, **USUAL)]
    return Finding(cells, "energy / on SSD", above=0.92, below=1.08)


@TAKEAWAYS.of("003 III.E", "F721", boards=(XAVIER, ORIN))
def an_ssd_seems_as_fast_as_ram(view: View, views: Views) -> Finding:
    """With four workers on an SSD, MobileNet's cold epoch takes less than 5 % longer than its warm ones."""
    cells = view.compare("time", {}, {}, phases=(WARM, COLD), workload=MOBILENET, storage="ssd", batch_size=16, **USUAL)
    return Finding(cells, "time of the cold epoch / of warm ones", below=1.05)
