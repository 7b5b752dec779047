"""How much the suite's networks compute and keep, so that runs can be planned before torch is loaded."""

from __future__ import annotations

from typing import Dict, Optional

_RESNET18, _MOBILENETV3, _LLAMA_HALF_BILLION = 3_628_146_688.0, 433_179_520.0, 4.6e11

FLOPS_FORWARD: Dict[str, float] = {
    "lenet-mnist": 833_040.0,
    "resnet18-cifar10-32": 75_046_912.0,
    "mobilenetv3-gld23k": _MOBILENETV3,
    "mobilenetv3-imagenet": _MOBILENETV3,
    "vgg11-cifar10": 552_796_160.0,
    "lstm-wikitext": 995_474_880.0,
    "vit-ti16-imagenet": 2_507_366_400.0,
    "resnet18-cifar10": _RESNET18,
    "resnet18-imagenet": _RESNET18,
    "resnet18-gld23k": _RESNET18,
    "llama-lora-tiny-wikitext": 5_737_545_728.0,
    "yolov8n-coco": 8_743_987_200.0,
    "bert-squad-128": 22_347_644_928.0,
    "vit-b16-imagenet": 3.5e10,
    "bert-squad": 70_667_000_000.0,
    "llama-lora-wikitext": _LLAMA_HALF_BILLION,
    "llama-lora-wikitext-checkpointed": _LLAMA_HALF_BILLION,
}
"""Floating-point operations of one sample's forward pass, 2 per multiply-add, as `harness.workloads.counting` has them;
of the three networks that are too large to be made in a test, by their layers."""

_RESNET18_KEPT, _MOBILENETV3_KEPT = 22_222_252, 44_215_564

KEPT_BYTES: Dict[str, int] = {
    "lenet-mnist": 35_524,
    "vgg11-cifar10": 1_195_948,
    "lstm-wikitext": 9_838_804,
    "resnet18-cifar10": 22_234_540,
    "resnet18-imagenet": _RESNET18_KEPT,
    "resnet18-gld23k": _RESNET18_KEPT,
    "mobilenetv3-gld23k": _MOBILENETV3_KEPT,
    "mobilenetv3-imagenet": _MOBILENETV3_KEPT,
    "yolov8n-coco": 196_357_468,
    "bert-squad": 513_236_008,
}
"""Memory that training takes for each sample of a batch, as `count_memory` of `harness.workloads.counting` counts it:
the input, and the activations kept for the backward pass; of the networks that simulated boards are calibrated for."""

BACKWARD = 2.0  # operations of the backward pass over those of the forward pass


def minibatch_flops(workload: str, batch_size: int, trains: bool = True) -> Optional[float]:
    """Operations of one minibatch; None of a user's own workload, which has not been counted yet."""
    forward = FLOPS_FORWARD.get(workload)
    return None if forward is None else forward * batch_size * (1 + BACKWARD * trains)
