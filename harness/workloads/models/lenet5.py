"""LeNet-5 (LeCun et al. 1998): two convolutions and three linear layers with tanh, 61,706 parameters."""

from __future__ import annotations

import torch
from torch import nn


class LeNet5(nn.Module):
    """From pictures of shape (batch, 1, 28, 28) to scores of shape (batch, 10).

    The first convolution pads by 2: the paper's network takes MNIST's 28 x 28 digits in a field of 32 x 32.
    """

    def __init__(self) -> None:
        """Make the layers with random weights."""
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, kernel_size=5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5),
            nn.Tanh(),
            nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(16 * 5 * 5, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, 10),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Class scores."""
        return self.classifier(self.features(pictures).flatten(1))
