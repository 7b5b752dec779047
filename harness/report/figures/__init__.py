"""All kinds of figures of the report: their texts, and the functions that make them."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Iterable, List, NamedTuple

from harness.report.figure import TEXTS, Figure
from harness.report.figures import data_sets, epochs, evaluations, mode_scatters, power, repetition, serving, tails
from harness.report.material import Material
from harness.stats.experiments import LONG


class FigureKind(NamedTuple):
    experiments: str  # ids of the papers'
    title: str
    question: str
    claim: str  # the claim whose verdict answers the question, or empty
    maker: Callable[[Material], Iterable[Figure]]
    needs: str

    def make(self, material: Material) -> List[Figure]:
        return [figure for figure in self.maker(material) if figure.panels]


MAKERS: Dict[str, Callable[[Material], Iterable[Figure]]] = {
    "workers": partial(epochs.sweep_figures, kind="workers", varied="workers", x_label="workers"),
    "page-cache": epochs.page_cache_figures,
    "storage": epochs.storage_figures,
    "batch-size": partial(
        epochs.sweep_figures, kind="batch-size", varied="batch_size", x_label="samples per minibatch", least=3
    ),
    "scaling": data_sets.scaling_figures,
    "variability": repetition.variability_figures,
    "tail": tails.tail_figures,
    "dvfs": power.dvfs_figures,
    "baseload": power.baseload_figures,
    "power-modes": power.power_mode_figures,
    "front": mode_scatters.front_figures,
    "extremes": mode_scatters.extreme_figures,
    "devices": epochs.device_figures,
    "inference": serving.inference_figures,
    "concurrent": serving.concurrent_figures,
    "prediction": evaluations.prediction_figures,
    "profile-length": repetition.profile_length_figures,
    "strategies": evaluations.strategy_figures,
    "search": evaluations.search_figures,
    "regression": evaluations.regression_figures,
}
"""By their names in `figures.toml`, in the order of the report."""

KINDS = tuple(
    FigureKind(
        *(texts["experiments"], texts["section"], texts["question"], texts.get("claim", ""), make),
        texts["needs"].format(least=max(repetition.LENGTHS), long=LONG),
    )
    for make, texts in ((make, TEXTS[name]) for name, make in MAKERS.items())
)
