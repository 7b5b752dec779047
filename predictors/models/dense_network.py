"""Dense networks as plain arrays: how they start, what they answer, how they are kept. Training is elsewhere."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.errors import InvalidValueError


class Networks(NamedTuple):
    """Networks of one shape side by side: ReLU after each layer but the last, which is linear.

    Attributes:
        weights: of each layer, shape (networks, inputs, outputs).
        biases: of each layer, shape (networks, 1, outputs).
    """

    weights: Tuple[np.ndarray, ...]
    biases: Tuple[np.ndarray, ...]


class Scale(NamedTuple):
    """A shift and a width for each column, so that (value - shift) / width is of order 1.

    Attributes:
        shift: shape (columns,).
        width: shape (columns,); 0 where a column is constant, whose values then all become 0: nothing is known of what
            others would do.
    """

    shift: np.ndarray
    width: np.ndarray

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Values to scaled ones."""
        shifted = np.asarray(values, dtype=float) - self.shift
        return np.divide(
            shifted, self.width, out=np.zeros_like(shifted), where=np.broadcast_to(self.width > 0, shifted.shape)
        )

    def undo(self, scaled: np.ndarray) -> np.ndarray:
        """Scaled values to values."""
        return scaled * self.width + self.shift


def standard_scale(values: np.ndarray) -> Scale:
    """To mean 0 and variance 1, as scikit-learn's StandardScaler."""
    return Scale(values.mean(axis=0), _width(values, values.std(axis=0)))


def min_max_scale(values: np.ndarray) -> Scale:
    """To the range from 0 to 1, as scikit-learn's MinMaxScaler."""
    return Scale(values.min(axis=0), _width(values, np.ptp(values, axis=0)))


SCALES = {"standard": standard_scale, "min-max": min_max_scale}


def fresh_layer(networks: int, inputs: int, outputs: int, random: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
    """Weights and biases of an untrained layer, uniform up to 1 / sqrt(inputs), as torch starts a linear layer."""
    reach = inputs**-0.5
    weights = random.uniform(-reach, reach, (networks, inputs, outputs))
    return weights, random.uniform(-reach, reach, (networks, 1, outputs))


def fresh_networks(networks: int, sizes: Sequence[int], random: np.random.Generator) -> Networks:
    """Untrained networks.

    Args:
        networks: how many.
        sizes: of the input, of each layer, of the output.
        random: draws the weights.
    """
    layers = [fresh_layer(networks, inputs, outputs, random) for inputs, outputs in zip(sizes, sizes[1:])]
    return Networks(tuple(weights for weights, _ in layers), tuple(biases for _, biases in layers))


def answers(networks: Networks, inputs: np.ndarray) -> np.ndarray:
    """What each network says of each row.

    Args:
        networks: with one output each.
        inputs: scaled, shape (n, inputs).

    Returns:
        Shape (n, networks).
    """
    columns: List[np.ndarray] = []
    for network in range(len(networks.weights[0])):
        values = inputs
        for layer, (weights, biases) in enumerate(zip(networks.weights, networks.biases)):
            values = values @ weights[network] + biases[network]
            if layer < len(networks.weights) - 1:
                values = np.maximum(values, 0)
        columns.append(values[:, 0])
    return np.column_stack(columns)


def network_arrays(networks: Networks) -> Dict[str, np.ndarray]:
    """Named arrays, for a file."""
    weights = {f"weights_{layer}": values for layer, values in enumerate(networks.weights)}
    return {**weights, **{f"biases_{layer}": values for layer, values in enumerate(networks.biases)}}


def networks_of(arrays: Mapping[str, np.ndarray]) -> Networks:
    """The networks that `network_arrays` named.

    Raises:
        InvalidValueError: there are none among the arrays.
    """
    layers = sum(name.startswith("weights_") for name in arrays)
    try:
        weights = tuple(arrays[f"weights_{layer}"] for layer in range(layers))
        biases = tuple(arrays[f"biases_{layer}"] for layer in range(layers))
    except KeyError as error:
        raise InvalidValueError(f"the arrays hold no whole network: {error.args[0]} is missing") from error
    if not layers:
        raise InvalidValueError(f"the arrays hold no network: {', '.join(arrays) or 'there are none'}")
    return Networks(weights, biases)


def scale_values(scale: Scale) -> Dict[str, Any]:
    """A scale as plain values."""
    return {"shift": scale.shift.tolist(), "width": scale.width.tolist()}


def scale_of(values: Mapping[str, Any]) -> Scale:
    """The scale that `scale_values` gave."""
    return Scale(np.array(values["shift"]), np.array(values["width"]))


def _width(values: np.ndarray, widths: np.ndarray) -> np.ndarray:
    rounding = 1e-9 * np.abs(values).max(axis=0)
    return np.where(np.ptp(values, axis=0) > rounding, widths, 0.0)
