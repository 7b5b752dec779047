"""A word-level language model: embedding, LSTM layers, and scores for the next token by the transposed embedding."""

from __future__ import annotations

import torch
from torch import nn


class LanguageModel(nn.Module):
    """From token numbers of shape (batch, tokens) to scores of shape (batch, tokens, vocabulary).

    Input and output embedding share their weights (Press and Wolf 2017).
    """

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        """Make the layers with random weights.

        Args:
            vocabulary: number of distinct tokens.
            width: size of the embedding and of each layer's state.
            layers: number of LSTM layers.
            dropout: share of values dropped after the embedding and after each layer.
        """
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout, batch_first=True)
        self.scores = nn.Linear(width, vocabulary)
        self.scores.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.scores.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of every token of the vocabulary as the next one, at every step."""
        states, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.scores(self.dropout(states))
