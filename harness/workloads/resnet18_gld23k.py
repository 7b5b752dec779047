"""ResNet-18 on GLD-23k: the crossed workload RM of PowerTrain sec. 4.3.1."""

from __future__ import annotations

import dataclasses

from harness.workloads import mobilenetv3_gld23k, resnet18_imagenet
from harness.workloads.data.gld23k import GLD23K

_DATA_FIGURES = {name: mobilenetv3_gld23k.WORKLOAD.published[name] for name in ("samples", "bytes")}

WORKLOAD = dataclasses.replace(
    resnet18_imagenet.WORKLOAD,
    name="resnet18-gld23k",
    data_set=GLD23K,
    published={**resnet18_imagenet.WORKLOAD.published, **_DATA_FIGURES},
)
