"""What a workload is made of, counted: parameters, floating-point operations, its optimizer, the size of an input."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from harness.core.errors import DependencyError
from harness.workloads.optional_packages import require
from harness.workloads.workload import Workload, move


class Counted(NamedTuple):
    """Figures of a workload."""

    parameters: int  # of the model
    # of the forward pass of one sample: 2 per multiply-add of convolutions and matrix products, nothing for the rest.
    # The papers' figures for ResNet, MobileNet and VGG are multiply-adds, so half of these.
    flops_forward: int
    optimizer: str  # its class
    input_bytes: int  # tensors of one sample, as they go to the accelerator


_known: Dict[Tuple[Workload, str], Counted] = {}


def describe(workload: Workload, samples: Any, device: str) -> Dict[str, Any]:
    """What the workload is and how it trains, as conditions of a profile; counted once in a process.

    On the CPU, so that a measurement on `device` finds nothing warmed up; there only where the CPU cannot run it.
    """
    if (workload, device) not in _known:
        try:
            _known[workload, device] = count(workload, samples)
        except Exception:
            if device == "cpu":
                raise
            _known[workload, device] = count(workload, samples, device)
    counted = _known[workload, device]._asdict()
    del counted["input_bytes"]
    return {**workload.options, **counted}


def count(workload: Workload, samples: Any, device: str = "cpu") -> Counted:
    """Build the model and run a forward pass of the first samples."""
    torch = require("torch")
    collate = workload.collate or require("torch.utils.data.dataloader").default_collate
    model = workload.model().to(device)
    # without a forward of its own the loss is run, which may need what a network gives in training only
    model.train(workload.forward is None)
    taken = 1 if workload.forward is not None else workload.smallest_batch
    batch = collate([samples[index % len(samples)] for index in range(taken)])
    tensors: List[Any] = []

    def to(value: Any) -> Any:
        tensors.append(value)
        return value.to(device)

    batch = move(batch, to)
    forward = workload.forward or workload.loss
    with torch.no_grad():
        operations = count_operations(model, lambda: forward(model, batch))
    return Counted(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        flops_forward=operations // taken,
        optimizer=type(workload.optimizer(model.parameters())).__name__,
        input_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors) // taken,
    )


def count_operations(model: Any, run: Callable[[], Any]) -> int:
    """Operations of a call as torch counts them; before torch 2.1, those of convolutions and linear layers."""
    torch = require("torch")
    try:
        counter = require("torch.utils.flop_counter").FlopCounterMode(display=False)
    except DependencyError:
        return count_layers(model, run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a flag that is set with the one that is meant
        with torch.backends.mkldnn.flags(enabled=False), counter:  # oneDNN's fused LSTM escapes the count
            run()
    return counter.get_total_flops()


def count_layers(model: Any, run: Callable[[], Any]) -> int:
    """Operations of a model's convolutions and linear layers during a call."""
    nn = require("torch.nn")
    found: List[int] = []

    def add(layer: Any, _: Any, output: Any) -> None:
        found.append(2 * output.numel() * layer.weight[0].numel())

    with contextlib.ExitStack() as hooks:
        for layer in model.modules():
            if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
                hooks.callback(layer.register_forward_hook(add).remove)
        run()
    return sum(found)
