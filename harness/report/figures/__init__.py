"""Every figure of the report: the experiments it shows, what makes it, and what to run where there is no data."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Tuple

from harness.report.figure import Figure
from harness.report.figures.data_sets import scaling_figures
from harness.report.figures.epochs import (
    batch_size_figures,
    device_figures,
    page_cache_figures,
    storage_figures,
    worker_figures,
)
from harness.report.figures.evaluations import (
    prediction_figures,
    regression_figures,
    search_figures,
    strategy_figures,
)
from harness.report.figures.mode_scatters import extreme_figures, front_figures
from harness.report.figures.power import baseload_figures, dvfs_figures, power_mode_figures
from harness.report.figures.repetition import LENGTHS, profile_length_figures, variability_figures
from harness.report.figures.serving import concurrent_figures, inference_figures
from harness.report.material import Material
from harness.stats.profile_length import LONG


class FigureKind(NamedTuple):
    """A kind of figure.

    Attributes:
        experiments: ids of the papers' experiments.
        title: of its section.
        make: its figures; none where there is no data.
        needs: what would bring the data.
    """

    experiments: str
    title: str
    make: Callable[[Material], List[Figure]]
    needs: str


KINDS: Tuple[FigureKind, ...] = (
    FigureKind("E1", "Parallel loading", worker_figures, "cases with two or more numbers of workers: --workers 0,4"),
    FigureKind("E2", "Page cache", page_cache_figures, "whole epochs from a cold cache: --cache cold --epochs 3"),
    FigureKind("E3, E4", "Storage media", storage_figures, "cases on two or more media: --storage ssd,hdd"),
    FigureKind("E5", "Batch size", batch_size_figures, "cases with three or more batch sizes: --batch-size 4,16,64"),
    FigureKind(
        "E6", "Data-set scaling", scaling_figures, "cases of two or more sizes: --data-scale 0.25, then 1, --epochs 3"
    ),
    FigureKind("E7", "Variability", variability_figures, "a case with 20 or more clean minibatches: pytest benchmarks"),
    FigureKind("E9", "DVFS", dvfs_figures, "the same case with both: --clocks static, then --clocks dvfs"),
    FigureKind(
        "E10", "Baseload", baseload_figures, "idle states: pytest benchmarks/test_baseload.py, on a device with power"
    ),
    FigureKind("E11", "Power modes", power_mode_figures, "cases in three or more power modes: --power-mode a..n"),
    FigureKind(
        "E12", "Pareto fronts", front_figures, "four or more power modes with power, or a corpus: --corpus FILE"
    ),
    FigureKind(
        *("E13", "Extreme modes", extreme_figures),
        "four or more power modes with power, the greatest among them: --power-mode a..n, or --corpus FILE",
    ),
    FigureKind(
        "E14", "Devices", device_figures, "the same case on several devices: --device sim:orin-agx,sim:xavier-agx"
    ),
    FigureKind("E22", "Inference", inference_figures, "two or more batch sizes: pytest benchmarks/test_inference.py"),
    FigureKind(
        *("E21", "Training and inference together", concurrent_figures),
        "mixes of both: pytest benchmarks/test_concurrent_training_inference.py",
    ),
    FigureKind(
        "E16", "Prediction", prediction_figures, "--predictors FILE, from python -m predictors evaluate --json FILE"
    ),
    FigureKind(
        *("E18", "Length of a profile", profile_length_figures),
        f"a case with {max(LENGTHS)} clean minibatches, better {LONG}: pytest benchmarks/test_profile_length.py",
    ),
    FigureKind(
        *("E20", "Optimisation under power budgets", strategy_figures),
        "--strategies FILE, from python -m predictors strategies evaluate --json FILE",
    ),
    FigureKind(
        *("E22", "Search for a power mode", search_figures),
        "--strategies FILE with those that profile: python -m predictors strategies evaluate --strategies mdbs,gmd",
    ),
    FigureKind(
        *("E23", "Linear regression", regression_figures),
        "--predictors FILE with linear regressions: python -m predictors evaluate --predictors linear,linear-energy",
    ),
)
"""In the order of the report."""
