"""LeNet-5 on MNIST (SIGMETRICS 2023 table 2).

The paper's 4.4 MFLOP are ten times the 0.42 M multiply-adds of this network, and fit no LeNet-5 of 60 k parameters on
28 x 28 pictures: the counted figure stands.
"""

from __future__ import annotations

from typing import Any

from harness.workloads.classification import compute_loss, forward
from harness.workloads.data.mnist import MNIST
from harness.workloads.optional_packages import require
from harness.workloads.picture_transforms import build_mnist_transform
from harness.workloads.workload import Published, Workload


def _build_model() -> Any:
    return require("harness.workloads.models.lenet5").LeNet5()


WORKLOAD = Workload(
    name="lenet-mnist",
    model_name="LeNet-5",
    data_set=MNIST,
    input_shape=(1, 28, 28),
    parameters=61_706,
    flops_forward=833_040,
    published={
        "layers": Published(7, "F828"),
        "parameters": Published(60_000, "F829"),
        "model_bytes": Published(0.35e6, "F830"),
        "flops_forward": Published(4.4e6, "F831"),
        "samples": Published(60_000, "F832"),
        "bytes": Published(46e6, "F833"),
    },
    build_model=_build_model,
    build_transform=build_mnist_transform,
    forward=forward,
    compute_loss=compute_loss,
)
