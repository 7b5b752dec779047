"""What a workload is made of, counted: parameters, floating-point operations, its optimizer, the size of an input."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from harness.core.errors import DependencyError
from harness.workloads.data.data_set import DataSet, PreparedData
from harness.workloads.optional_packages import require
from harness.workloads.workload import Workload, move


class Counted(NamedTuple):
    """Figures of a workload; operations and kernels are of the forward pass of one sample."""

    parameters: int  # of the model
    # floating-point operations: 2 per multiply-add of convolutions and matrix products, nothing for the rest. The
    # papers' figures for ResNet, MobileNet and VGG are multiply-adds, so half of these.
    flops_forward: int
    kernels_forward: int  # operators that compute something, each of which launches a kernel or so
    activation_bytes: int  # that these read and write, parameters and buffers apart
    optimizer: str  # its class
    input_bytes: int  # tensors of one sample, as they go to the accelerator


class MemoryFloor(NamedTuple):
    """Memory that running a workload cannot do without, in bytes."""

    fixed_bytes: float  # whatever the batch size
    sample_bytes: float  # in addition for each sample of a batch
    contents: str  # what is counted, in words


_known: Dict[Workload, Counted] = {}


def counted_once(workload: Workload, samples: Any, device: str = "cpu") -> Counted:
    """The figures of a workload, counted once, on the CPU if it can run it: then `device` is not warmed up."""
    if workload not in _known:
        try:
            _known[workload] = count(workload, samples)
        except Exception:
            if device == "cpu":
                raise
            _known[workload] = count(workload, samples, device)
    return _known[workload]


def counted_alone(workload: Workload) -> Tuple[Counted, PreparedData]:
    """The figures of a workload, and the few samples that were prepared to count them."""
    with _few_samples(workload) as data:
        return counted_once(workload, workload.build_data_set(data, 0)), data


def memory_alone(workload: Workload) -> MemoryFloor:
    """The memory that training a workload cannot do without, counted with a few samples."""
    with _few_samples(workload) as data:
        return count_memory(workload, workload.build_data_set(data, 0))


@contextlib.contextmanager
def _few_samples(workload: Workload) -> Iterator[PreparedData]:
    with tempfile.TemporaryDirectory() as written:
        if isinstance(workload.folder, DataSet):
            place, scale = Path(written), 4 / workload.real_samples
        else:  # a folder of one's own lies on its own medium, and is not copied
            place, scale = Path(workload.folder or "."), None
        yield workload.prepare(place, None, scale, 0, lambda line: None)


def describe(workload: Workload, counted: Counted, precision: str) -> Dict[str, Any]:
    """What a workload is and how it trains, as conditions of a profile; `precision` is what it trains in here."""
    return {
        "own_workload": workload.is_own,
        "precision": precision,
        "compile": workload.compile,
        "channels_last": workload.channels_last,
        "gradient_accumulation": workload.gradient_accumulation,
        "optimizer": counted.optimizer,
        "parameters": counted.parameters,
        "flops_forward": counted.flops_forward,
        **({"tokens_per_sample": workload.tokens_per_sample} if workload.tokens_per_sample else {}),
    }


def count(workload: Workload, samples: Any, device: str = "cpu") -> Counted:
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
        operations, kernels, traffic = count_forward(model, lambda: forward(model, batch))
    return Counted(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        flops_forward=operations // taken,
        kernels_forward=kernels,
        activation_bytes=traffic // taken,
        optimizer=type(workload.optimizer(model.parameters())).__name__,
        input_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors) // taken,
    )


def count_memory(
    workload: Workload, samples: Any, trains: bool = True, precision: str = "fp32", device: str = "cpu"
) -> MemoryFloor:
    """Count the memory of weights, inputs and, in training, gradients, optimizer state and kept activations.

    A forward pass of the smallest batch, in fp32, shows which activations are kept for the backward pass. In another
    `precision` they have half the size; under torch.compile, which may compute them again, they are not counted.
    """
    torch = require("torch")
    collate = workload.collate or require("torch.utils.data.dataloader").default_collate
    model = workload.model().to(device).train(trains)
    taken = workload.smallest_batch if trains else 1
    weights = [*model.parameters(), *model.buffers()]
    weight_bytes = _bytes_of({id(tensor): tensor for tensor in weights})
    seen = {tensor.data_ptr() for tensor in weights}
    inputs: Dict[int, Any] = {}

    def to(value: Any) -> Any:
        moved = value.to(device)
        inputs[moved.data_ptr()] = moved
        return moved

    batch = move(collate([samples[index % len(samples)] for index in range(taken)]), to)
    input_bytes = _bytes_of(inputs) / taken
    if not trains:
        return MemoryFloor(weight_bytes, input_bytes, "weights and inputs")
    kept: Dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        if tensor.data_ptr() not in seen and tensor.data_ptr() not in inputs:
            kept[tensor.data_ptr()] = tensor  # keeps its memory from being used again, by which it is recognised
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = workload.loss(model, batch)
    kept_bytes = 0.0 if workload.compile else _bytes_of(kept) / taken
    if precision != "fp32":
        kept_bytes /= 2
    del loss
    trained = _bytes_of({id(tensor): tensor for tensor in model.parameters() if tensor.requires_grad})
    fixed_bytes = weight_bytes + trained * (1 + _state_share(torch, workload))
    contents = "weights, gradients, optimizer, inputs and activations"
    return MemoryFloor(fixed_bytes, input_bytes + kept_bytes, contents)


def _bytes_of(tensors: Dict[int, Any]) -> float:
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))


def _state_share(torch: Any, workload: Workload) -> float:
    """Bytes that the optimizer keeps for a byte of parameters, as a step with a small parameter shows."""
    parameter = torch.nn.Parameter(torch.zeros(1024))
    parameter.grad = torch.zeros_like(parameter)
    try:
        optimizer = workload.optimizer([parameter])
        optimizer.step()
    except Exception:  # a user's optimizer may need the network's own parameters; the least that it keeps is nothing
        return 0.0
    state = [value for value in optimizer.state[parameter].values() if isinstance(value, torch.Tensor)]
    return _bytes_of(dict(enumerate(state))) / _bytes_of({0: parameter})


def count_forward(model: Any, run: Callable[[], Any]) -> Tuple[int, int, int]:
    """Operations, kernels, and bytes that these move beside the model's own; before torch 2.1 by `count_layers`."""
    torch, tree = require("torch"), require("torch.utils._pytree")
    try:
        counter = require("torch.utils.flop_counter").FlopCounterMode(display=False)
    except DependencyError:
        return count_layers(model, run)
    dispatch: Any = require("torch.utils._python_dispatch")
    kernels = traffic = 0
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}

    def moved(values: Any) -> int:
        tensors = [one for one in tree.tree_leaves(values) if isinstance(one, torch.Tensor)]
        return sum(one.numel() * one.element_size() for one in tensors if one.untyped_storage().data_ptr() not in own)

    class Kernels(dispatch.TorchDispatchMode):
        """Sees each operator that runs; a view of a tensor computes nothing."""

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal kernels, traffic
            aliases = [value.alias_info for value in operator._schema.returns if value.alias_info is not None]
            result = operator(*args, **(kwargs or {}))
            if all(alias.is_write for alias in aliases):
                kernels, traffic = kernels + 1, traffic + moved((args, kwargs, result))
            return result

    with Kernels():
        run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a flag that is set with the one that is meant
        with torch.backends.mkldnn.flags(enabled=False), counter:  # oneDNN's fused LSTM escapes the count
            run()
    return counter.get_total_flops(), kernels, traffic


def count_layers(model: Any, run: Callable[[], Any]) -> Tuple[int, int, int]:
    """Operations of a model's convolutions and linear layers during a call, how many there are, bytes in and out."""
    nn = require("torch.nn")
    layer_flops: List[int] = []
    traffic = 0

    def add(layer: Any, inputs: Any, output: Any) -> None:
        nonlocal traffic
        layer_flops.append(2 * output.numel() * layer.weight[0].numel())
        traffic += sum(one.numel() * one.element_size() for one in (*inputs, output))

    with contextlib.ExitStack() as hooks:
        for layer in model.modules():
            if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
                hooks.callback(layer.register_forward_hook(add).remove)
        run()
    return sum(layer_flops), len(layer_flops), traffic
