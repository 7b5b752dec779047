"""ResNet-18 on the ImageNet validation set: PowerTrain's reference workload (table 3)."""

from __future__ import annotations

from harness.workloads.classification import compute_loss, forward, torchvision_model
from harness.workloads.data.imagenet_val import IMAGENET_VAL
from harness.workloads.picture_transforms import build_imagenet_transform
from harness.workloads.workload import Published, Workload

WORKLOAD = Workload(
    name="resnet18-imagenet",
    model_name="ResNet-18",
    data_set=IMAGENET_VAL,
    input_shape=(3, 224, 224),
    parameters=11_689_512,
    flops_forward=3_628_146_688,
    published={
        "layers": Published(18, "F287"),
        "parameters": Published(11.7e6, "F288"),
        "flops_forward": Published(1.8e9, "F289"),
        "samples": Published(50_000, "F290"),
        "bytes": Published(6.7e9, "F291"),
    },
    build_model=torchvision_model("resnet18"),
    build_transform=build_imagenet_transform,
    forward=forward,
    compute_loss=compute_loss,
)
