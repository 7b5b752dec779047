"""A 2-layer LSTM that predicts the next word of WikiText (PowerTrain table 3).

The paper gives 2 layers and 8.6 M parameters, and no sizes. Its 36 k samples tell of WikiText-2 (36,718 lines). With
that text's vocabulary of 33,278 and weights shared between input and output, as is usual, a width of 232 gives 8.62 M;
a sample is a window of 58 tokens, which makes 36 k of them. The paper's 3.9 GFLOP per sample would need 17.6 TFLOP/s on
a device of 5.3: the counted 1.0 GFLOP stands.
"""

from __future__ import annotations

from typing import Any, Tuple

from harness.workloads.data.wikitext import VOCABULARY, WIKITEXT
from harness.workloads.optional_packages import require
from harness.workloads.workload import Workload, transformed


def split(window: Any) -> Tuple[Any, Any]:
    """A window of token numbers to what is read and what is to be predicted, one step ahead."""
    tokens = require("torch").from_numpy(window)
    return tokens[:-1], tokens[1:]


def _forward(model: Any, batch: Any) -> Any:
    tokens, _ = batch
    return model(tokens)


def next_token_loss(scores: Any, batch: Any) -> Any:
    """Mean cross-entropy of the next token over all steps."""
    _, following = batch
    return require("torch.nn.functional").cross_entropy(scores.flatten(0, 1), following.flatten())


LSTM_WIKITEXT = Workload(
    name="lstm-wikitext",
    model=lambda: require("harness.workloads.networks").LanguageModel(VOCABULARY, width=232, layers=2, dropout=0.2),
    folder=WIKITEXT,
    data=transformed(WIKITEXT, lambda: split),
    loss=lambda model, batch: next_token_loss(_forward(model, batch), batch),
    forward=_forward,
)
