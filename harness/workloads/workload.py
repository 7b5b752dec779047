"""A workload: a model, a data set, a loss, an optimiser and what the papers say about them."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.workloads.data.data_set import DataSet, PreparedData, RawSamples, choose, open_samples
from harness.workloads.optional_packages import require


class Published(NamedTuple):
    """A figure of a paper, and its id among the papers' figures; the workload's module names the paper and table."""

    value: float
    fact: str


class TrainingData:
    """A map-style torch data set: fetches and decodes a raw sample, then applies the training transforms."""

    def __init__(self, raw: RawSamples, indices: Sequence[int], transform: Callable[[Any], Any]) -> None:
        self._raw, self._indices, self._transform = raw, indices, transform

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Any:
        return self._transform(self._raw[self._indices[index]])


@dataclasses.dataclass(frozen=True)
class Workload:
    """One training workload. Nothing imports torch before `build_model` or `build_data_set` is called."""

    name: str  # as given to `--workload`: `resnet18-cifar10`, ..
    model_name: str  # the model in words
    data_set: DataSet  # what it trains on
    input_shape: Tuple[int, ...]  # shape of one input: channels, height and width of a picture, or tokens of a text
    parameters: int  # parameters of the model, counted
    # floating-point operations of a forward pass of one sample, counted: 2 per multiply-add of convolutions and matrix
    # products, nothing for the rest. The papers' figures for ResNet, MobileNet and VGG are multiply-adds, so half of
    # these.
    flops_forward: int
    # the papers' figures by name: `parameters`, `flops_forward`, `layers`, `model_bytes`, `samples`, `bytes`. Where
    # they differ from the counted ones, the module's docstring says why.
    published: Mapping[str, Published]
    build_model: Callable[[], Any]  # makes the model with random weights drawn from torch's generator
    # makes the function from a raw sample to tensors; what it returns can be pickled
    build_transform: Callable[[], Callable[[Any], Any]]
    forward: Callable[[Any, Any], Any]  # the model's output for a batch, without a loss
    compute_loss: Callable[[Any, Any], Any]  # the model's loss for a batch: a scalar tensor
    collate: Optional[Callable[[List[Any]], Any]] = None  # makes a batch of samples; None for torch's default
    learning_rate: float = 0.01  # of SGD, for all workloads (SIGMETRICS 2023 sec. 4.4).
    momentum: float = 0.9
    smallest_batch: int = 1  # samples that a batch needs: batch normalisation over a 1 x 1 map takes two

    def build_data_set(self, prepared: PreparedData, seed: int) -> TrainingData:
        raw = open_samples(self.data_set, prepared.directory)
        return TrainingData(raw, choose(len(raw), prepared.samples, seed), self.build_transform())

    def build_optimiser(self, model: Any) -> Any:
        return require("torch").optim.SGD(model.parameters(), lr=self.learning_rate, momentum=self.momentum)


def move(batch: Any, device: Any) -> Any:
    """The batch with every tensor in it on `device`; tuples, lists and dicts are followed, other values kept."""
    if hasattr(batch, "to"):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: move(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(value, device) for value in batch)
    return batch
