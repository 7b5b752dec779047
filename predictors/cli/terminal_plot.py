"""Scatter plots in plain text, for terminals and logs."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy as np

Layer = Tuple[str, np.ndarray, np.ndarray]
"""A mark (one character) with the x and y of its points."""


def scatter(layers: Sequence[Layer], x_label: str, y_label: str, width: int = 64, height: int = 16) -> str:
    """Draw layers over each other, the last on top, with a scale on both axes.

    Args:
        layers: what to draw; arrays of shape (n,), finite.
        x_label: name and unit of x.
        y_label: name and unit of y.
        width: columns of the plot itself.
        height: its lines.
    """
    x_all = np.concatenate([layer[1] for layer in layers])
    y_all = np.concatenate([layer[2] for layer in layers])
    (x_low, x_high), (y_low, y_high) = ((values.min(), values.max()) for values in (x_all, y_all))
    canvas: List[List[str]] = [[" "] * width for _ in range(height)]
    for mark, x, y in layers:
        columns = _places(x, x_low, x_high, width)
        lines = _places(y, y_low, y_high, height)
        for column, line in zip(columns, lines):
            canvas[height - 1 - line][column] = mark
    margin = max(len(f"{value:.4g}") for value in (y_low, y_high))
    rows = [f"{y_label}"]
    for number, line in enumerate(canvas):
        label = f"{y_high:.4g}" if number == 0 else f"{y_low:.4g}" if number == height - 1 else ""
        rows.append(f"{label:>{margin}} |{''.join(line).rstrip()}")
    rows.append(" " * margin + " +" + "-" * width)
    ends = f"{x_low:.4g}".ljust(width - len(f"{x_high:.4g}")) + f"{x_high:.4g}"
    rows.append(" " * (margin + 2) + ends)
    rows.append(" " * (margin + 2) + x_label.center(width).rstrip())
    return "\n".join(rows)


def _places(values: np.ndarray, low: float, high: float, count: int) -> np.ndarray:
    share = np.zeros(len(values)) if high <= low else (values - low) / (high - low)
    return np.minimum((share * count).astype(int), count - 1)
