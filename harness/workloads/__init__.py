"""The training workloads of the papers and the data sets they train on; importing it loads no torch."""

from __future__ import annotations

from typing import Dict

from harness.core.errors import UnknownNameError
from harness.workloads import classification
from harness.workloads.bert_squad import BERT_SQUAD
from harness.workloads.lstm_wikitext import LSTM_WIKITEXT
from harness.workloads.workload import Workload
from harness.workloads.yolov8n_coco import YOLOV8N_COCO

WORKLOADS: Dict[str, Workload] = {
    workload.name: workload
    for workload in (
        classification.LENET_MNIST,
        classification.MOBILENETV3_GLD23K,
        classification.RESNET18_CIFAR10,
        classification.VGG11_CIFAR10,
        classification.RESNET18_IMAGENET,
        YOLOV8N_COCO,
        BERT_SQUAD,
        LSTM_WIKITEXT,
        classification.RESNET18_GLD23K,
        classification.MOBILENETV3_IMAGENET,
    )
}


def get_workload(name: str) -> Workload:
    try:
        return WORKLOADS[name]
    except KeyError:
        raise UnknownNameError(f"workload {name!r} is unknown", f"known: {', '.join(WORKLOADS)}") from None
