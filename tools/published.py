"""What simulated boards answer where the papers have a figure."""

from __future__ import annotations

from typing import List, Optional, Sequence

import numpy as np

from harness.core.units import MS_PER_S, MW_PER_W, MWH_PER_WH, S_PER_HOUR, S_PER_MINUTE
from harness.judge.published_figures import CHANGE, Condition, Figure, load_figures
from tools.quantities import Boards, Parameters, Plan

__all__ = ["Evaluator", "Parameters", "answer", "load_figures"]

INTERNAL = {
    "s": MS_PER_S,
    "min": MS_PER_S * S_PER_MINUTE,
    "h": MS_PER_S * S_PER_HOUR,
    "ms": 1.0,
    "W": MW_PER_W,
    "Wh": MWH_PER_WH,
    "%": 0.01,
    "x": 1.0,
}
"""What one of a printed unit is inside the suite: in ms, mW, mWh or a share."""


class Evaluator:
    """Answers figures, many times over: which power modes go into one simulation is planned once."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        """Collect the power modes that each load is asked for."""
        self.figures = list(figures)
        self._plan = Plan()
        for figure in self.figures:
            for condition in filter(None, (figure.condition, figure.versus)):
                for one in _devices(condition) if condition.workload else []:
                    self._plan.add(one)

    def answers(self, parameters: Optional[Parameters] = None, *, rough: bool = True) -> List[float]:
        """What simulated boards answer to each figure, in the figure's unit."""
        boards = Boards(parameters, rough=rough, plan=self._plan)
        return [_answer(figure, boards) for figure in self.figures]


def answer(figure: Figure, parameters: Optional[Parameters] = None, *, rough: bool = True) -> float:
    """What simulated boards answer to one figure; arguments and errors as of `Evaluator.answers`."""
    return Evaluator([figure]).answers(parameters, rough=rough)[0]


def _devices(condition: Condition) -> List[Condition]:
    return [condition._replace(device=device) for device in condition.device.split(",")]


def _answer(figure: Figure, boards: Boards) -> float:
    answers = [_answer_of(figure, one, boards) for one in _devices(figure.condition)]
    return float(np.mean(answers)) / INTERNAL[figure.unit]


def _answer_of(figure: Figure, condition: Condition, boards: Boards) -> float:
    """A figure of one device, in ms, mW, mWh or a share."""
    values = boards.values(condition, figure.metric)
    if figure.relation == "least":
        return float(values.min())
    if figure.relation == "greatest":
        return float(values.max())
    if figure.relation == "spread":
        return float(np.ptp(values) / values.max())
    if figure.versus is None:
        return float(values[0])
    is_same = figure.versus.device == figure.condition.device
    versus = figure.versus._replace(device=condition.device) if is_same else figure.versus
    ratio = float(values[0] / boards.values(versus, figure.metric)[0])
    return ratio - 1.0 if figure.relation == CHANGE else ratio
