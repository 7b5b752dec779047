"""LoRA on a Llama-style decoder of half a billion parameters, on WikiText in windows of 512 tokens; of no paper.

Weights are random: time, power and memory do not depend on them. All of them stay as they are but the low-rank pairs
beside the query and value projections (Hu et al. 2021, rank 8), 0.9 M parameters.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable

from harness.workloads.bert_squad import OFFLINE
from harness.workloads.data.wikitext import LONG_STEPS, VOCABULARY, WIKITEXT_LONG
from harness.workloads.lstm_wikitext import next_token_loss, split
from harness.workloads.optional_packages import require
from harness.workloads.workload import BF16_WHERE_THERE_IS, Workload, adamw, transformed

RANK = 8


def decoder(width: int, mlp: int, layers: int, heads: int, is_checkpointed: bool = False) -> Callable[[], Any]:
    """What makes a decoder with LoRA; `is_checkpointed` computes activations again on the way back, for less memory."""

    def build() -> Any:
        os.environ.update(OFFLINE)
        transformers = require("transformers")
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=width, intermediate_size=mlp, num_hidden_layers=layers,
            num_attention_heads=heads, max_position_embeddings=LONG_STEPS, use_cache=False,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config).requires_grad_(False)
        low_rank = require("harness.workloads.networks").LowRank
        for layer in model.model.layers:
            attention = layer.self_attn
            attention.q_proj, attention.v_proj = low_rank(attention.q_proj, RANK), low_rank(attention.v_proj, RANK)
        if is_checkpointed:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model

    return build


def _forward(model: Any, batch: Any) -> Any:
    """Scores of the token that follows each."""
    tokens, _ = batch
    return model(input_ids=tokens).logits


_HALF_A_BILLION = {"width": 1280, "mlp": 3456, "layers": 22, "heads": 20}

LLAMA_LORA = Workload(
    name="llama-lora-wikitext",
    model=decoder(**_HALF_A_BILLION),
    folder=WIKITEXT_LONG,
    data=transformed(WIKITEXT_LONG, lambda: split),
    loss=lambda model, batch: next_token_loss(_forward(model, batch), batch),
    forward=_forward,
    optimizer=adamw,
    precision=BF16_WHERE_THERE_IS,
    tokens_per_sample=LONG_STEPS,
)
LLAMA_LORA_CHECKPOINTED = dataclasses.replace(
    LLAMA_LORA, name="llama-lora-wikitext-checkpointed", model=decoder(**_HALF_A_BILLION, is_checkpointed=True)
)
LLAMA_LORA_TINY = dataclasses.replace(
    LLAMA_LORA, name="llama-lora-tiny-wikitext", model=decoder(width=128, mlp=352, layers=4, heads=4)
)
