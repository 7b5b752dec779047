"""What one resource does, others equal: clocks of CPU, GPU and memory, cores (004 sec. 5.6.4 to 5.6.7 and appendix)."""

from __future__ import annotations

from typing import List

import numpy as np

from harness.judge.findings import Cell, Drawn, Finding
from harness.judge.takeaway import CIFAR, LENET, MOBILENET, XAVIER, Takeaways, Views
from harness.judge.takeaways.power_modes import WORKLOADS, modes, step
from harness.judge.view import View, quotient_of
from harness.stats.estimates import quotient

TAKEAWAYS = Takeaways("power_modes")


TAKEAWAYS.figures(
    "what_the_gpu_clock_does_to_compute",
    "004 5.6.4",
    "On AGX a GPU clock x 1.34 (b to c) cuts compute of ResNet on CIFAR by 22 % and of MobileNet by 13 %, not of LeNet",
    *("F1123", "F1126", "F1130/F1129"),
)


@TAKEAWAYS.of("004 5.6.4", "F1131", boards=(XAVIER,))
def compute_of_large_networks_follows_the_gpu_clock(view: View, views: Views) -> Finding:
    """From b to c (GPU clock x 1.34) compute time of ResNet on CIFAR falls to between 0.70 and 0.85."""
    return Finding(step(view, "compute", "b", "c", CIFAR), "compute at c / at b", above=0.70, below=0.85)


@TAKEAWAYS.of("004 5.6.5", "F1132", "F1134", "F1135", boards=(XAVIER,))
def cpu_clock_and_cores_shorten_stalls(view: View, views: Views) -> Finding:
    """From d to e (CPU clock x 1.77), a to b (4 to 8 cores) and f to e (2 to 8) every stall falls by at least 5 %."""
    cells = [cell for before, after in ("de", "ab", "fe") for cell in step(view, "stall", before, after)]
    return Finding(cells, "stall with more CPU / with less", below=0.95)


TAKEAWAYS.figures(
    "what_cpu_clock_and_cores_do_to_stalls",
    "004 5.6.5",
    "On AGX a CPU clock x 1.77 (d to e) cuts stalls by 31 to 39 %, 8 cores for 4 (a to b) by 18 to 20 %; "
    "2 cores for 8 (e to f) lengthen those of LeNet and of ResNet on CIFAR by 54 and 47 %",
    *("F1132", "F1134", "F1135", "F1137"),
)
TAKEAWAYS.figures(
    "what_two_cores_do_to_mobilenets_stall",
    "004 5.6.5",
    "On AGX 2 cores for 8 (e to f) lengthen MobileNet's stall by 47 %",
    "F1136",
)


@TAKEAWAYS.of("004 5.6.5", "F1138", boards=(XAVIER,))
def beyond_four_cores_gains_little(view: View, views: Views) -> Finding:
    """From a (4 cores) to b (8), epochs of ResNet on CIFAR and MobileNet change by less than 8 %.

    004 calls it incremental, without a figure of epochs: 6 %, and what two single runs differ.
    """
    return Finding(step(view, "time", "a", "b", CIFAR, MOBILENET), "time at b / at a", above=0.92, below=1.08)


TAKEAWAYS.figures(
    "what_the_cpu_does_to_compute",
    "004 5.6.6",
    "On AGX compute changes with CPU clock (d, e; l, m) and cores (e, f; k, l) by 37, 46, 36 and 15 % for LeNet, "
    "by 10 % and less for MobileNet's clock and ResNet on CIFAR, and hardly with LeNet's GPU clock (m to n to g)",
    *("F1139", "F1140", "F1141", "F1142", "F1144", "F1145", "F1146", "F1147", "F1148", "F1149"),
)
TAKEAWAYS.figures(
    "what_two_cores_do_to_mobilenets_compute",
    "004 5.6.6",
    "On AGX 2 cores for 8 (e to f) lengthen MobileNet's compute by 15.6 %",
    "F1143",
)


@TAKEAWAYS.of("004 5.6.6", "F1150", boards=(XAVIER,))
def workers_compete_with_kernel_launches_for_cores(view: View, views: Views) -> Finding:
    """From 8 to 2 cores (e to f) LeNet's compute time grows by 5 % more with 4 workers than with none.

    004 has 1.36 against 1.21: 12 % more.
    """
    without, four = (step(view, "compute", "e", "f", LENET, workers=workers) for workers in (0, 4))
    cells = quotient_of(without, four, f"{LENET}, e to f")
    return Finding(cells, "growth of compute with 4 workers / with none", above=1.05)


@TAKEAWAYS.of("004 5.6.6", "F1151", boards=(XAVIER,))
def lenet_is_best_at_high_cpu_clocks(view: View, views: Views) -> Finding:
    """Of modes a to n, LeNet's shortest epoch and least energy at the greatest CPU clock are the best within 2 %."""
    found = modes(view, LENET)
    clocks = np.array([one.conditions["power_mode"]["cpu_khz"] for one in found])
    cells: List[Drawn] = []
    for quantity in ("time", "energy"):
        cells += view.drawn(
            f"{LENET} {quantity}",
            found,
            (quantity,),
            lambda values: float(values[clocks == clocks.max()].min() / values.min()),
        )
    return Finding(cells, "best at the greatest CPU clock / best", below=1.02)


@TAKEAWAYS.of("004 5.6.7", "F1158", boards=(XAVIER,))
def the_memory_clock_matters(view: View, views: Views) -> Finding:
    """From h to g (memory clock x 2) compute time falls by at least 10 %, for three workloads."""
    return Finding(step(view, "compute", "h", "g"), "compute at g / at h", below=0.9)


TAKEAWAYS.figures(
    "what_the_memory_clock_does",
    "004 5.6.7",
    "On AGX a memory clock x 2 (h to g) cuts compute of ResNet on CIFAR and MobileNet by 26 and 28 %, "
    "stalls of all three workloads by 27 to 34 %",
    *("F1153", "F1154", "F1155", "F1156", "F1157"),
)
TAKEAWAYS.figures(
    "what_the_memory_clock_does_to_lenets_compute",
    "004 5.6.7",
    "On AGX a memory clock x 2 (h to g) cuts LeNet's compute by 33 %",
    "F1152",
)


@TAKEAWAYS.of("004 A", "F1186", boards=(XAVIER,))
def the_memory_clock_does_not_dominate(view: View, views: Views) -> Finding:
    """From c to d (memory clock x 1.2) no epoch shortens by 15 % or more, and none lengthens by 3 %."""
    return Finding(step(view, "time", "c", "d"), "time at d / at c", above=0.85, below=1.03)


@TAKEAWAYS.of("004 A", "F1187", boards=(XAVIER,))
def a_faster_memory_shortens_every_epoch(view: View, views: Views) -> Finding:
    """From h to i (memory clock x 1.25) every epoch becomes shorter by 2 %, for three workloads."""
    return Finding(step(view, "time", "h", "i"), "time at i / at h", below=0.98)


@TAKEAWAYS.of("004 A", "F1182", "F1183", boards=(XAVIER,))
def cores_matter_to_lenet(view: View, views: Views) -> Finding:
    """From f (2 cores) to e (8) LeNet's epoch and its energy fall by at least 10 %."""
    cells = [*step(view, "time", "f", "e", LENET), *step(view, "energy", "f", "e", LENET)]
    return Finding(cells, "time and energy at e / at f", below=0.9)


@TAKEAWAYS.of("004 A", "F1182", boards=(XAVIER,))
def cores_matter_less_to_larger_networks(view: View, views: Views) -> Finding:
    """From f (2 cores) to e (8) epochs of ResNet on CIFAR and MobileNet fall by at least 10 % less than LeNet's."""
    return _less_than_lenet(view, "f", "e")


@TAKEAWAYS.of("004 A", "F1184", boards=(XAVIER,))
def the_cpu_clock_matters_most_to_lenet(view: View, views: Views) -> Finding:
    """From d to e (CPU clock x 1.77) epochs of ResNet on CIFAR and MobileNet fall by 10 % less than LeNet's."""
    return _less_than_lenet(view, "d", "e")


def _less_than_lenet(view: View, before: str, after: str) -> Finding:
    lenet = step(view, "time", before, after, LENET)
    others = step(view, "time", before, after, CIFAR, MOBILENET)
    if not lenet:
        return Finding([], "")
    cells = [Cell(cell.label, quotient(lenet[0].mean, cell.mean)) for cell in others]
    return Finding(cells, f"time at {after} / at {before} over the same of LeNet", above=1.1)


@TAKEAWAYS.of("004 A", "F1196", boards=(XAVIER,))
def lenet_is_fast_wherever_the_cpu_is(view: View, views: Views) -> Finding:
    """LeNet's epoch in the slowest mode at 2,265 MHz is shorter than in the fastest at 1,200 MHz or less."""
    found = modes(view, LENET)
    clocks = np.array([one.conditions["power_mode"]["cpu_khz"] for one in found])

    def slowest_over_fastest(times: np.ndarray) -> float:
        return float(times[clocks == clocks.max()].max() / times[clocks <= 1_200_000].min())

    cells = view.drawn(LENET, found, ("time",), slowest_over_fastest)
    return Finding(cells, "slowest at 2,265 MHz / fastest at 1,200 MHz", below=1.0)


@TAKEAWAYS.of("004 A", "F1185", "F1197", boards=(XAVIER,))
def the_gpu_clock_matters_most_to_resnet(view: View, views: Views) -> Finding:
    """From b to c (GPU clock x 1.34) ResNet's epoch falls by more than MobileNet's, and MobileNet's than LeNet's."""
    found = [step(view, "time", "b", "c", workload) for workload in WORKLOADS]
    if not all(found):
        return Finding([], "")
    (resnet,), (mobilenet,), (lenet,) = found
    cells = [
        Cell("MobileNet against ResNet", quotient(resnet.mean, mobilenet.mean)),
        Cell("LeNet against MobileNet", quotient(mobilenet.mean, lenet.mean)),
    ]
    return Finding(cells, "time at c / at b over the same of the next larger network", above=1.0)


@TAKEAWAYS.of("002 II.1", "F599", "F600", "F757", boards=(XAVIER,))
def kernel_launches_bind_small_networks(view: View, views: Views) -> Finding:
    """From l to m (CPU clock x 2.2) LeNet's compute time falls by at least 38 %: the CPU launches its kernels late.

    004 sec. 5.6.6 has 46 %, a ratio of 0.54: with 15 %.
    """
    return Finding(step(view, "compute", "l", "m", LENET), "compute at m / at l", below=0.62)


@TAKEAWAYS.of("002 II.1", "F599", boards=(XAVIER,))
def kernel_launches_do_not_bind_large_networks(view: View, views: Views) -> Finding:
    """From l to m (CPU clock x 2.2) compute time of ResNet on CIFAR changes by less than 5 %."""
    return Finding(step(view, "compute", "l", "m", CIFAR), "compute at m / at l", above=0.95, below=1.05)
