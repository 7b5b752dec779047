"""MobileNetV3-Large on GLD-23k (SIGMETRICS 2023 table 2, PowerTrain table 3).

The papers count 5.48 M parameters, which is the network with its 1,000 outputs, though GLD-23k has 203 classes.
"""

from __future__ import annotations

from harness.workloads.classification import compute_loss, forward, torchvision_model
from harness.workloads.data.gld23k import GLD23K
from harness.workloads.picture_transforms import build_imagenet_transform
from harness.workloads.workload import Published, Workload

WORKLOAD = Workload(
    name="mobilenetv3-gld23k",
    model_name="MobileNetV3-Large",
    data_set=GLD23K,
    input_shape=(3, 224, 224),
    parameters=5_483_032,
    flops_forward=433_179_520,
    published={
        "layers": Published(20, "F836"),
        "parameters": Published(5.48e6, "F837"),
        "model_bytes": Published(124.73e6, "F838"),
        "flops_forward": Published(225.4e6, "F839"),
        "samples": Published(23_080, "F840"),
        "bytes": Published(2_827e6, "F841"),
    },
    build_model=torchvision_model("mobilenet_v3_large"),
    build_transform=build_imagenet_transform,
    forward=forward,
    compute_loss=compute_loss,
)
