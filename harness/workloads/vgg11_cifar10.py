"""VGG-11 on CIFAR-10 (SIGMETRICS 2023 table 2), with pictures of 32 x 32.

The paper uses it once, to test its time model. Its 7.63 G are the multiply-adds on 224 x 224 pictures, more than its
hours of training allow at the peak of its device. Here CIFAR-10 keeps its 32 x 32, as in `resnet18_cifar10`.
"""

from __future__ import annotations

from harness.workloads.classification import compute_loss, forward, torchvision_model
from harness.workloads.data.cifar10 import CIFAR10
from harness.workloads.picture_transforms import build_cifar10_transform
from harness.workloads.workload import Published, Workload

WORKLOAD = Workload(
    name="vgg11-cifar10",
    model_name="VGG-11",
    data_set=CIFAR10,
    input_shape=(3, 32, 32),
    parameters=132_863_336,
    flops_forward=552_796_160,
    published={
        "layers": Published(11, "F852"),
        "parameters": Published(1.3286e8, "F853"),
        "model_bytes": Published(509.78e6, "F854"),
        "flops_forward": Published(7.63e9, "F855"),
        "samples": Published(50_000, "F848"),
        "bytes": Published(150e6, "F849"),
    },
    build_model=torchvision_model("vgg11"),
    build_transform=build_cifar10_transform,
    forward=forward,
    compute_loss=compute_loss,
)
