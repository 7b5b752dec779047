"""Words of the papers in which claims are written: their workloads, power modes, settings."""

from __future__ import annotations

from typing import Any, Dict

from harness.judge.case_frame import Row

LENET, MOBILENET, RESNET = "lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"
PAPERS = [LENET, MOBILENET, RESNET]  # what 004 trains
LARGER = [MOBILENET, RESNET]
SMALL_DATA = [LENET, RESNET]

RESNET_IMAGENET, YOLO, LSTM, BERT = "resnet18-imagenet", "yolov8n-coco", "lstm-wikitext", "bert-squad"  # of 001
TRAINED_ANYWHERE = [RESNET_IMAGENET, MOBILENET, YOLO, LSTM]  # in its appendix, on every device

A_TO_J, A_TO_N = list("abcdefghij"), list("abcdefghijklmn")  # power modes of 004 Table 3

USUAL: Dict[str, Any] = {"workers": 4, "batch_size": 16, "storage": "ssd", "clocks": "static", "cache": "warm"}
"""What the papers hold fixed where they vary the power mode."""

COLD_OR_EVICTED = ["cold", "evicted"]  # where dropping the whole page cache is not allowed


def a_core_for_each_worker(row: Row) -> bool:
    """The papers' boards have four cores or more; with fewer than workers these suffer (004 sec. 5.6.5)."""
    return bool(row.case.workers <= row.conditions["power_mode"]["cpu_cores"])
