"""The training workloads of the papers, a module each, and the data sets they train on; importing it loads no torch."""

from __future__ import annotations

from typing import Dict

from harness.core.errors import UnknownNameError
from harness.workloads import (
    bert_squad,
    lenet_mnist,
    lstm_wikitext,
    mobilenetv3_gld23k,
    mobilenetv3_imagenet,
    resnet18_cifar10,
    resnet18_gld23k,
    resnet18_imagenet,
    vgg11_cifar10,
    yolov8n_coco,
)
from harness.workloads.workload import Workload

WORKLOADS: Dict[str, Workload] = {
    module.WORKLOAD.name: module.WORKLOAD
    for module in (
        lenet_mnist,
        mobilenetv3_gld23k,
        resnet18_cifar10,
        vgg11_cifar10,
        resnet18_imagenet,
        yolov8n_coco,
        bert_squad,
        lstm_wikitext,
        resnet18_gld23k,
        mobilenetv3_imagenet,
    )
}


def get_workload(name: str) -> Workload:
    """The workload of that name.

    Raises:
        UnknownNameError: there is none; lists those that are.
    """
    try:
        return WORKLOADS[name]
    except KeyError:
        raise UnknownNameError(f"workload {name!r} is unknown", f"known: {', '.join(WORKLOADS)}") from None
