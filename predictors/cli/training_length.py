"""How long a whole training is, in minibatches: what savings are counted over."""

from __future__ import annotations

from typing import Dict, Optional

from harness.workloads import get_workload

EPOCHS: Dict[str, int] = {"resnet18-imagenet": 120, "yolov8n-coco": 200, "mobilenetv3-gld23k": 148}
"""Epochs to convergence that 001 sec. 1.4 and 3.1 use."""


def minibatches_of_training(workload: str, batch_size: int, epochs: Optional[float] = None) -> Optional[float]:
    """Minibatches of a whole training on the real data set.

    Args:
        workload: its name.
        batch_size: samples per minibatch.
        epochs: of the training; None for what the papers use.

    Returns:
        None where nobody says how many epochs there are.

    Raises:
        UnknownNameError: there is no such workload.
    """
    epochs = epochs if epochs is not None else EPOCHS.get(workload)
    return None if epochs is None else epochs * (get_workload(workload).data_set.real_samples // batch_size)
