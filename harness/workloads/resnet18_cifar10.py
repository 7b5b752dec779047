"""ResNet-18 on CIFAR-10 (SIGMETRICS 2023 table 2), with pictures of 32 x 32.

The paper's 1.82 G are the multiply-adds of this network on 224 x 224 pictures, and its epoch time fits that size too,
but no paper says that CIFAR-10 was enlarged. Here it keeps its own 32 x 32, where the same network (1,000 outputs, as
the paper's 11.68 M parameters tell) needs a forty-eighth of that: do not compare its times with the paper's.
"""

from __future__ import annotations

from harness.workloads.classification import compute_loss, forward, torchvision_model
from harness.workloads.data.cifar10 import CIFAR10
from harness.workloads.picture_transforms import build_cifar10_transform
from harness.workloads.workload import Published, Workload

WORKLOAD = Workload(
    name="resnet18-cifar10",
    model_name="ResNet-18",
    data_set=CIFAR10,
    input_shape=(3, 32, 32),
    parameters=11_689_512,
    flops_forward=75_046_912,
    published={
        "layers": Published(18, "F844"),
        "parameters": Published(1.168e7, "F845"),
        "model_bytes": Published(53.89e6, "F846"),
        "flops_forward": Published(1.82e9, "F847"),
        "samples": Published(50_000, "F848"),
        "bytes": Published(150e6, "F849"),
    },
    build_model=torchvision_model("resnet18"),
    build_transform=build_cifar10_transform,
    forward=forward,
    compute_loss=compute_loss,
    smallest_batch=2,  # the last stage is one pixel wide
)
