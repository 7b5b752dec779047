"""Networks of our own: those that no package brings."""

from __future__ import annotations

import torch
from torch import nn


class LeNet5(nn.Module):
    """From pictures of shape (batch, 1, 28, 28) to scores of shape (batch, 10).

    The first convolution pads by 2: the paper's network takes MNIST's 28 x 28 digits in a field of 32 x 32.
    """

    def __init__(self) -> None:
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
            nn.Linear(16 * 5 * 5, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(pictures).flatten(1))


class LanguageModel(nn.Module):
    """From (batch, tokens) to scores (batch, tokens, vocabulary); embeddings are shared (Press and Wolf 2017)."""

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout, batch_first=True)
        self.scores = nn.Linear(width, vocabulary)
        self.scores.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.scores.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.scores(self.dropout(states))


class LowRank(nn.Module):
    """A linear layer that stays as it is, and beside it the product of two narrow ones that learn (LoRA)."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(inputs) + self.up(self.down(inputs))
