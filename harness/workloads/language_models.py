"""The workloads on text: BERT on SQuAD, an LSTM on WikiText, and LoRA on a Llama-style decoder."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

from harness.workloads.data.squad import SQUAD, Question, encode
from harness.workloads.data.wikitext import LONG_STEPS, VOCABULARY, WIKITEXT, WIKITEXT_LONG
from harness.workloads.optional_packages import require
from harness.workloads.workload import BF16_WHERE_THERE_IS, Workload, adamw, transformed

OFFLINE = dict.fromkeys(
    ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY"), "1"
)


def _build_bert() -> Any:
    """BERT-base as its configuration class has it by default, with random weights; no hub is asked."""
    os.environ.update(OFFLINE)
    transformers = require("transformers")
    return transformers.BertForQuestionAnswering(transformers.BertConfig())


def as_tensors(sample: Question, tokens: int) -> Dict[str, Any]:
    torch = require("torch")
    encoding = encode(*sample, length=tokens)
    return {name: torch.tensor(value) if isinstance(value, list) else value for name, value in encoding.items()}


def _squad(tokens: int) -> Callable[[Path], Any]:
    return transformed(SQUAD, lambda: functools.partial(as_tensors, tokens=tokens))


def _answer_scores(model: Any, batch: Any) -> Any:
    """Scores of every token as the answer's beginning and as its end."""
    inputs = {name: value for name, value in batch.items() if not name.endswith("_positions")}
    output = model(**inputs)
    return output.start_logits, output.end_logits


# PowerTrain table 3, at 384 tokens per sample, SQuAD's usual length. The paper's 11.5 TFLOP per sample are impossible:
# its epoch of 68.6 minutes (F304) would need a hundred times the device's peak. With 384 tokens (70.7 GFLOP counted
# here) that epoch takes 3.6 of its 5.3 TFLOP/s, as matrix products do. 128 tokens are the 11.5 G, as multiply-adds, and
# would take a fifth of the peak, less than any other network there: they are a workload of their own. The paper counts
# 70 k samples, SQuAD v2 has 130,319 questions: a real file is used whole. The parameters are those of BERT with the
# head for answers, without the pooler, which that head does not use.
BERT_SQUAD = Workload(
    name="bert-squad",
    model=_build_bert,
    folder=SQUAD,
    data=_squad(384),
    loss=lambda model, batch: model(**batch).loss,  # mean cross-entropy of the answer's beginning and its end
    forward=_answer_scores,
)

BERT_SQUAD_128 = dataclasses.replace(BERT_SQUAD, name="bert-squad-128", data=_squad(128))


def split(window: Any) -> Tuple[Any, Any]:
    """A window of token numbers to what is read and what is to be predicted, one step ahead."""
    tokens = require("torch").from_numpy(window)
    return tokens[:-1], tokens[1:]


def _lstm_scores(model: Any, batch: Any) -> Any:
    tokens, _ = batch
    return model(tokens)


def next_token_loss(scores: Any, batch: Any) -> Any:
    _, following = batch
    return require("torch.nn.functional").cross_entropy(scores.flatten(0, 1), following.flatten())


# PowerTrain table 3 gives 2 layers and 8.6 M parameters, and no sizes. Its 36 k samples tell of WikiText-2 (36,718
# lines). With that text's vocabulary of 33,278 and weights shared between input and output, as is usual, a width of 232
# gives 8.62 M; a sample is a window of 58 tokens, which makes 36 k of them. The paper's 3.9 GFLOP per sample would need
# 17.6 TFLOP/s on a device of 5.3: the counted 1.0 GFLOP stands.
LSTM_WIKITEXT = Workload(
    name="lstm-wikitext",
    model=lambda: require("harness.workloads.networks").LanguageModel(VOCABULARY, width=232, layers=2, dropout=0.2),
    folder=WIKITEXT,
    data=transformed(WIKITEXT, lambda: split),
    loss=lambda model, batch: next_token_loss(_lstm_scores(model, batch), batch),
    forward=_lstm_scores,
)


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


def _decoder_scores(model: Any, batch: Any) -> Any:
    tokens, _ = batch
    return model(input_ids=tokens).logits


_HALF_A_BILLION = functools.partial(decoder, width=1280, mlp=3456, layers=22, heads=20)
# LoRA on a Llama-style decoder of half a billion parameters, on WikiText in windows of 512 tokens; of no paper.
# Weights are random: time, power and memory do not depend on them. All of them stay as they are but the low-rank pairs
# beside the query and value projections (Hu et al. 2021, rank 8), 0.9 M parameters.
LLAMA_LORA = Workload(
    name="llama-lora-wikitext",
    model=_HALF_A_BILLION(),
    folder=WIKITEXT_LONG,
    data=transformed(WIKITEXT_LONG, lambda: split),
    loss=lambda model, batch: next_token_loss(_decoder_scores(model, batch), batch),
    forward=_decoder_scores,
    optimizer=adamw,
    precision=BF16_WHERE_THERE_IS,
    tokens_per_sample=LONG_STEPS,
)
LLAMA_LORA_CHECKPOINTED = dataclasses.replace(
    LLAMA_LORA, name="llama-lora-wikitext-checkpointed", model=_HALF_A_BILLION(is_checkpointed=True)
)
LLAMA_LORA_TINY = dataclasses.replace(
    LLAMA_LORA, name="llama-lora-tiny-wikitext", model=decoder(width=128, mlp=352, layers=4, heads=4)
)
