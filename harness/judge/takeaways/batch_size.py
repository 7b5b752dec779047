"""What the minibatch size does to compute and stall (004 sec. 5.3)."""

from __future__ import annotations

from harness.judge.evidence import WARM
from harness.judge.findings import Cell, Drawn, Finding
from harness.judge.takeaway import CIFAR, LENET, MOBILENET, ORIN, XAVIER, Takeaways, Views
from harness.judge.view import View
from harness.stats.estimates import quotient

TAKEAWAYS = Takeaways("batch_size")

ALIKE = {"cache": "warm", "clocks": "static"}
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
TRAINED = (LENET, MOBILENET, CIFAR)


@TAKEAWAYS.of("004 5.3.1", "F977", boards=(XAVIER, ORIN))
def compute_per_epoch_falls_with_the_batch_size(view: View, views: Views) -> Finding:
    """The compute time of an epoch is lower with 16 samples than with 2, by at least 20 %, for every workload.

    004 says that it falls sharply; the lines that it prints for MobileNet make it a tenth at 16 samples of that at 1.
    """
    cells = view.compare("compute", {"batch_size": 2}, {"batch_size": 16}, per_sample=True, workload=TRAINED, **ALIKE)
    return Finding(cells, "compute per sample at 16 / at 2", below=0.8)


TAKEAWAYS.figures(
    "a_minibatch_grows_slowly_until_the_gpu_is_full",
    "004 5.3.1",
    "On AGX a minibatch of 16 samples computes 1.56 times as long as one, and of 32 nearly twice as long as of 16",
    *("F973", "F976/F975"),
)
TAKEAWAYS.figures(
    "a_minibatch_of_eight_computes_longer_than_one",
    "004 5.3.1",
    "On AGX a minibatch of 8 samples computes 1.4 times as long as one",
    "F972",
)


@TAKEAWAYS.of("004 5.3.1", "F977", boards=(XAVIER, ORIN))
def no_doubling_costs_compute(view: View, views: Views) -> Finding:
    """No doubling of the minibatch size raises the compute time of an epoch by 3 % or more."""
    cells = [
        cell
        for low, high in zip(SIZES, SIZES[1:])
        for cell in view.compare(
            "compute", {"batch_size": low}, {"batch_size": high}, per_sample=True, workload=TRAINED, **ALIKE
        )
    ]
    return Finding(cells, "compute per sample / at half the size", below=1.03)


@TAKEAWAYS.of("004 5.3.1", "F978", boards=(XAVIER,))
def gains_level_off_at_sixteen(view: View, views: Views) -> Finding:
    """From 16 to 128 samples compute of ResNet on CIFAR and of MobileNet falls by less than 12 % per epoch."""
    cells = view.compare(
        "compute", {"batch_size": 16}, {"batch_size": 128}, per_sample=True, workload=(CIFAR, MOBILENET), **ALIKE
    )
    return Finding(cells, "compute per sample at 128 / at 16", above=0.88)


@TAKEAWAYS.of("004 5.3.1", "F978", boards=(XAVIER,))
def lenet_gains_beyond_sixteen(view: View, views: Views) -> Finding:
    """From 16 to 128 samples compute of LeNet, which uses little of the GPU, falls by more than 12 % per epoch."""
    cells = view.compare("compute", {"batch_size": 16}, {"batch_size": 128}, per_sample=True, workload=LENET, **ALIKE)
    return Finding(cells, "compute per sample at 128 / at 16", below=0.88)


@TAKEAWAYS.of("004 5.3.2", "F982", boards=(XAVIER, ORIN))
def stall_per_minibatch_rises_with_the_batch_size(view: View, views: Views) -> Finding:
    """A minibatch of 128 samples stalls longer than one of 2, for every workload."""
    cells = view.compare("stall", {"batch_size": 2}, {"batch_size": 128}, workload=TRAINED, **ALIKE)
    return Finding(cells, "stall at 128 / at 2", above=1.0)


@TAKEAWAYS.of("004 5.3.2", "F983", boards=(XAVIER, ORIN))
def stall_per_epoch_falls_with_the_batch_size(view: View, views: Views) -> Finding:
    """An epoch in minibatches of 128 samples stalls for less time than one of 2, for every workload."""
    cells = view.compare("stall", {"batch_size": 2}, {"batch_size": 128}, per_sample=True, workload=TRAINED, **ALIKE)
    return Finding(cells, "stall per sample at 128 / at 2", below=1.0)


@TAKEAWAYS.of("004 5.3.2", "F981", boards=(XAVIER, ORIN))
def stall_and_compute_are_most_of_an_epoch(view: View, views: Views) -> Finding:
    """Stall and compute are more than 90 % of the time of a minibatch of 16, for every workload."""
    cells = []
    for one in view.where(workload=TRAINED, workers=4, batch_size=16, power_mode="maxn", **ALIKE):
        if {("stall", WARM), ("compute", WARM), ("time", WARM)} <= set(one.figures):
            stall, compute, time = (one.figures[name, WARM] for name in ("stall", "compute", "time"))
            busy = (stall.value + compute.value) / time.value  # of the same minibatches: their noise cancels
            cells.append(Drawn(one.case.id, busy, ()))
    return Finding(cells, "stall and compute / time", above=0.9)


@TAKEAWAYS.of("004 5.3.2", "F984", boards=(XAVIER,))
def larger_networks_are_bound_by_compute(view: View, views: Views) -> Finding:
    """At 128 samples ResNet on CIFAR and MobileNet compute at least 5 times as long as they stall."""
    return Finding(_stall_over_compute(view, CIFAR, MOBILENET), "stall / compute", below=0.2)


@TAKEAWAYS.of("004 5.3.2", "F984", boards=(XAVIER,))
def lenet_is_bound_by_stalls(view: View, views: Views) -> Finding:
    """At 128 samples LeNet stalls for longer than it computes."""
    return Finding(_stall_over_compute(view, LENET), "stall / compute", above=1.0)


def _stall_over_compute(view: View, *workloads: str) -> list:
    stalls = view.figures("stall", workload=workloads, batch_size=128, **ALIKE)
    computes = {cell.label: cell.mean for cell in view.figures("compute", workload=workloads, batch_size=128, **ALIKE)}
    return [Cell(cell.label, quotient(computes[cell.label], cell.mean)) for cell in stalls if cell.label in computes]
