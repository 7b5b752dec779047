"""Every figure of the report: the experiments it shows, what makes it, and what to run where there is no data."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Tuple

from harness.report.figure import Figure
from harness.report.figures.baseload import baseload_figures
from harness.report.figures.dataset_scaling import scaling_figures
from harness.report.figures.dvfs import dvfs_figures
from harness.report.figures.extremes import extreme_figures
from harness.report.figures.loading import batch_size_figures, device_figures, worker_figures
from harness.report.figures.mode_search import search_figures
from harness.report.figures.page_cache import page_cache_figures
from harness.report.figures.pareto import front_figures
from harness.report.figures.power_modes import power_mode_figures
from harness.report.figures.prediction import prediction_figures
from harness.report.figures.profile_length import LENGTHS, profile_length_figures
from harness.report.figures.regression import regression_figures
from harness.report.figures.serving import concurrent_figures, inference_figures
from harness.report.figures.storage_media import storage_figures
from harness.report.figures.strategies import strategy_figures
from harness.report.figures.variability import variability_figures
from harness.report.selection import Material
from harness.stats.profile_length import LONG


class Kind(NamedTuple):
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


KINDS: Tuple[Kind, ...] = (
    Kind("E1", "Parallel loading", worker_figures, "cases with two or more numbers of workers: --workers 0,4"),
    Kind("E2", "Page cache", page_cache_figures, "whole epochs from a cold cache: --cache cold --epochs 3"),
    Kind("E3, E4", "Storage media", storage_figures, "cases on two or more media: --storage ssd,hdd"),
    Kind("E5", "Batch size", batch_size_figures, "cases with three or more batch sizes: --batch-size 4,16,64"),
    Kind(
        "E6", "Data-set scaling", scaling_figures, "cases of two or more sizes: --data-scale 0.25, then 1, --epochs 3"
    ),
    Kind("E7", "Variability", variability_figures, "a case with 20 or more clean minibatches: pytest benchmarks"),
    Kind("E9", "DVFS", dvfs_figures, "the same case with both: --clocks static, then --clocks dvfs"),
    Kind(
        "E10", "Baseload", baseload_figures, "idle states: pytest benchmarks/test_baseload.py, on a device with power"
    ),
    Kind("E11", "Power modes", power_mode_figures, "cases in three or more power modes: --power-mode a..n"),
    Kind("E12", "Pareto fronts", front_figures, "four or more power modes with power, or a corpus: --corpus FILE"),
    Kind(
        *("E13", "Extreme modes", extreme_figures),
        "four or more power modes with power, the greatest among them: --power-mode a..n, or --corpus FILE",
    ),
    Kind("E14", "Devices", device_figures, "the same case on several devices: --device sim:orin-agx,sim:xavier-agx"),
    Kind("E22", "Inference", inference_figures, "two or more batch sizes: pytest benchmarks/test_inference.py"),
    Kind(
        *("E21", "Training and inference together", concurrent_figures),
        "mixes of both: pytest benchmarks/test_concurrent_training_inference.py",
    ),
    Kind("E16", "Prediction", prediction_figures, "--predictors FILE, from python -m predictors evaluate --json FILE"),
    Kind(
        *("E18", "Length of a profile", profile_length_figures),
        f"a case with {max(LENGTHS)} clean minibatches, better {LONG}: pytest benchmarks/test_profile_length.py",
    ),
    Kind(
        *("E20", "Optimisation under power budgets", strategy_figures),
        "--strategies FILE, from python -m predictors strategies evaluate --json FILE",
    ),
    Kind(
        *("E22", "Search for a power mode", search_figures),
        "--strategies FILE with those that profile: python -m predictors strategies evaluate --strategies mdbs,gmd",
    ),
    Kind(
        *("E23", "Linear regression", regression_figures),
        "--predictors FILE with linear regressions: python -m predictors evaluate --predictors linear,linear-energy",
    ),
)
"""In the order of the report."""
