"""Plots: axes, colours, scales and files, and the plot of a recommendation."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Optional, Tuple, Union

import numpy as np

from harness.core.errors import DependencyError, StoreError
from harness.core.units import mw_to_w
from predictors.strategies.recommendation import Recommendation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

DPI = 130
_COLOURS = ("#0b6e99", "#d1662e", "#5a8f3c", "#8a5aa8", "#b3a12c", "#7a7a7a", "#c2477f", "#3c8f86", "#8f5b3c")


@contextlib.contextmanager
def panels(
    path: Path, title: str, lines: int, columns: int, panel: Tuple[float, float], **shared: bool
) -> Iterator[np.ndarray]:
    """A grid of panels, shape (lines, columns), each of a size in inches: drawn in the block, then saved."""
    size = (panel[0] * columns + 0.6, panel[1] * lines + 0.6)
    figure, grid = pyplot().subplots(lines, columns, figsize=size, squeeze=False, constrained_layout=True, **shared)
    yield grid
    figure.suptitle(title, wrap=True)
    save(figure, path)


def use_log_scale(axes: Any, *directions: str) -> None:
    """Logarithmic axes with few ticks, written as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    for direction in directions:
        axes.set(**{f"{direction}scale": "log"})
        axis = getattr(axes, f"{direction}axis")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())


def colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


@contextlib.contextmanager
def axes_to_draw_on(ax: Optional[Axes], path: Union[str, Path, None]) -> Iterator[Axes]:
    """`ax`, or the axes of a new figure; what is drawn in the block is then saved if there is a path.

    A new figure belongs to pyplot, so that notebooks show it; once saved it is closed.
    """
    if ax is not None:
        yield ax
        if path is not None:
            save(ax.figure, Path(path), closes=False)
        return
    figure, axes = pyplot(for_files=path is not None).subplots(figsize=(7.8, 5), constrained_layout=True)
    yield axes
    if path is not None:
        save(figure, Path(path))


def draw_time_and_power(axes: Axes, watts: ArrayLike, time_ms: ArrayLike, label: str) -> None:
    """All power modes as a point cloud."""
    axes.plot(watts, time_ms, ".", color="#cccccc", markersize=2, label=label, rasterized=True)
    axes.set_yscale("log")
    axes.set_xlabel("power (W)")
    axes.set_ylabel("minibatch time (ms)")


def pyplot(for_files: bool = True) -> Any:
    """The module `matplotlib.pyplot`; for files, without a display unless the caller has chosen a backend."""
    try:
        import matplotlib
    except ImportError as error:
        raise DependencyError(
            "plots need matplotlib, which is not installed", "pip install matplotlib, or leave the plot out"
        ) from error
    if for_files and "matplotlib.pyplot" not in sys.modules and "MPLBACKEND" not in os.environ:
        matplotlib.use("Agg")
    from matplotlib import pyplot as drawing

    return drawing


def save(figure: Any, path: Path, closes: bool = True) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DPI)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}", "free space, grant access, or name another folder") from error
    finally:
        if closes:
            pyplot().close(figure)


def draw_recommendation(recommendation: Recommendation, axes: Axes, provenance: str) -> None:
    """Predicted time and power of all modes, the front, the profiled modes, and the recommended one."""
    time_ms, watts = np.exp(recommendation.posterior.log_time), mw_to_w(np.exp(recommendation.posterior.log_power))
    draw_time_and_power(axes, watts, time_ms, "predicted")
    axes.set_title(f"{recommendation.goal.describe()}, {provenance}", fontsize=10)
    front = [(mw_to_w(mode.power_mw.value), mode.time_ms.value) for mode in recommendation.front]
    axes.step(*zip(*front), "k-", where="post", linewidth=1.2, label="front")
    profiled = recommendation.posterior.measured
    axes.plot(watts[profiled], time_ms[profiled], "o", color=colour(0), markersize=5, label="profiled")
    mode = recommendation.mode
    label = f"recommended: {mode.name}, batch size {mode.batch_size}"
    axes.plot([mw_to_w(mode.power_mw.value)], [mode.time_ms.value], "*", color=colour(1), markersize=15, label=label)
    limit = recommendation.goal.limits.get("power_mw")
    if limit is not None:
        axes.axvline(
            mw_to_w(limit), color=colour(1), linewidth=0.9, linestyle="--", label=f"budget {mw_to_w(limit):g} W"
        )
    axes.legend(fontsize=8)
