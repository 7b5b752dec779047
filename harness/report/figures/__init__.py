"""Every figure of the report: the experiments it shows, what makes it, and what to run where there is no data."""

from __future__ import annotations

from typing import Callable, List, NamedTuple

from harness.report.figure import Figure
from harness.report.figures import data_sets, epochs, evaluations, mode_scatters, power, repetition, serving
from harness.report.material import Material
from harness.stats.experiments import LONG


class FigureKind(NamedTuple):
    """A kind of figure: ids of the papers' experiments, title of its section, what makes it, what would bring data."""

    experiments: str
    title: str
    make: Callable[[Material], List[Figure]]
    needs: str


# fmt: off
KINDS = tuple(FigureKind(*kind) for kind in (
    ("E1", "Parallel loading", epochs.worker_figures, "cases with two or more numbers of workers: --workers 0,4"),
    ("E2", "Page cache", epochs.page_cache_figures, "whole epochs from a cold cache: --cache cold --epochs 3"),
    ("E3, E4", "Storage media", epochs.storage_figures, "cases on two or more media: --storage ssd,hdd"),
    ("E5", "Batch size", epochs.batch_size_figures, "cases with three or more batch sizes: --batch-size 4,16,64"),
    ("E6", "Data-set scaling", data_sets.scaling_figures,
     "cases of two or more sizes: --data-scale 0.25, then 1, --epochs 3"),
    ("E7", "Variability", repetition.variability_figures,
     "a case with 20 or more clean minibatches: pytest benchmarks"),
    ("E9", "DVFS", power.dvfs_figures, "the same case with both: --clocks static, then --clocks dvfs"),
    ("E10", "Baseload", power.baseload_figures,
     "idle states: pytest benchmarks/test_baseload.py, on a device with power"),
    ("E11", "Power modes", power.power_mode_figures, "cases in three or more power modes: --power-mode a..n"),
    ("E12", "Pareto fronts", mode_scatters.front_figures,
     "four or more power modes with power, or a corpus: --corpus FILE"),
    ("E13", "Extreme modes", mode_scatters.extreme_figures,
     "four or more power modes with power, the greatest among them: --power-mode a..n, or --corpus FILE"),
    ("E14", "Devices", epochs.device_figures,
     "the same case on several devices: --device sim:orin-agx,sim:xavier-agx"),
    ("E22", "Inference", serving.inference_figures, "two or more batch sizes: pytest benchmarks/test_inference.py"),
    ("E21", "Training and inference together", serving.concurrent_figures,
     "mixes of both: pytest benchmarks/test_concurrent_training_inference.py"),
    ("E16", "Prediction", evaluations.prediction_figures,
     "--predictors FILE, from python -m predictors evaluate --json FILE"),
    ("E18", "Length of a profile", repetition.profile_length_figures,
     f"a case with {max(repetition.LENGTHS)} clean minibatches, better {LONG}:"
     " pytest benchmarks/test_profile_length.py"),
    ("E20", "Optimisation under power budgets", evaluations.strategy_figures,
     "--strategies FILE, from python -m predictors strategies evaluate --json FILE"),
    ("E22", "Search for a power mode", evaluations.search_figures,
     "--strategies FILE with those that profile: python -m predictors strategies evaluate --strategies mdbs,gmd"),
    ("E23", "Linear regression", evaluations.regression_figures,
     "--predictors FILE with linear regressions: python -m predictors evaluate --predictors linear,linear-energy"),
))
# fmt: on
"""In the order of the report."""
