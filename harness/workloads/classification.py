"""What all workloads that classify pictures share: a batch is (pictures, labels), the loss is cross-entropy."""

from __future__ import annotations

import functools
from typing import Any, Callable

from harness.workloads.optional_packages import require


def torchvision_model(name: str) -> Callable[[], Any]:
    """What builds a model of torchvision with random weights; nothing is downloaded."""
    return functools.partial(_build, name)


def _build(name: str) -> Any:
    return getattr(require("torchvision.models"), name)()


def forward(model: Any, batch: Any) -> Any:
    """Class scores, shape (batch size, classes)."""
    pictures, _ = batch
    return model(pictures)


def compute_loss(model: Any, batch: Any) -> Any:
    """Mean cross-entropy over the batch (SIGMETRICS 2023 sec. 4.4)."""
    pictures, labels = batch
    return require("torch.nn.functional").cross_entropy(model(pictures), labels)
