"""What the minibatch size does to compute and stall (004 sec. 5.3)."""

from __future__ import annotations

from harness.analysis.means import quotient
from harness.experiments.findings import Cell, Finding
from harness.experiments.takeaway import CIFAR, LENET, MOBILENET, ORIN, XAVIER, Takeaways, Views
from harness.experiments.view import View

TAKEAWAYS = Takeaways("batch_size")

ALIKE = {"cache": "warm", "clocks": "static"}
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
TRAINED = (LENET, MOBILENET, CIFAR)


@TAKEAWAYS.of("004 5.3.1", "F977", boards=(XAVIER, ORIN))
def compute_per_epoch_falls_with_the_batch_size(view: View, views: Views) -> Finding:
    """The compute time of an epoch is lower with 16 samples than with 2, by at least 10 %, for every workload."""
    cells = view.compare("compute", {"batch_size": 2}, {"batch_size": 16}, per_sample=True, workload=TRAINED, **ALIKE)
    return Finding(cells, "compute per sample at 16 / at 2", below=0.9)


@TAKEAWAYS.of("004 5.3.1", "F977", boards=(XAVIER, ORIN))
def no_doubling_costs_compute(view: View, views: Views) -> Finding:
    """No doubling of the minibatch size raises the compute time of an epoch by 5 % or more."""
    cells = [
        cell
        for low, high in zip(SIZES, SIZES[1:])
        for cell in view.compare(
            "compute", {"batch_size": low}, {"batch_size": high}, per_sample=True, workload=TRAINED, **ALIKE
        )
    ]
    return Finding(cells, "compute per sample / at half the size", below=1.05)


@TAKEAWAYS.of("004 5.3.1", "F978", boards=(XAVIER,))
def gains_level_off_at_sixteen(view: View, views: Views) -> Finding:
    """From 16 to 128 samples compute of ResNet on CIFAR and of MobileNet falls by less than 15 % per epoch."""
    cells = view.compare(
        "compute", {"batch_size": 16}, {"batch_size": 128}, per_sample=True, workload=(CIFAR, MOBILENET), **ALIKE
    )
    return Finding(cells, "compute per sample at 128 / at 16", above=0.85)


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
