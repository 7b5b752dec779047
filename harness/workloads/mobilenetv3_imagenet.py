"""MobileNetV3-Large on the ImageNet validation set: the crossed workload MR of PowerTrain sec. 4.3.1."""

from __future__ import annotations

import dataclasses

from harness.workloads import mobilenetv3_gld23k, resnet18_imagenet
from harness.workloads.data.imagenet_val import IMAGENET_VAL

_DATA_FIGURES = {name: resnet18_imagenet.WORKLOAD.published[name] for name in ("samples", "bytes")}

WORKLOAD = dataclasses.replace(
    mobilenetv3_gld23k.WORKLOAD,
    name="mobilenetv3-imagenet",
    data_set=IMAGENET_VAL,
    published={**mobilenetv3_gld23k.WORKLOAD.published, **_DATA_FIGURES},
)
