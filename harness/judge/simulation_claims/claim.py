"""A claim of the papers as a statistic on simulated boards, with the tolerance it is judged by."""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Tuple

import numpy as np

from harness.judge.published_figures import Condition
from tools.quantities import Boards


class Finding(NamedTuple):
    """What a claim's statistic came to: whether the claim holds, and the figures that say so."""

    holds: bool
    found: str


Check = Callable[[Boards], Finding]


class Claim(NamedTuple):
    """A qualitative statement of the papers.

    Attributes:
        name: of its check.
        facts: ids of the statements, as in `baselines/published/claims.csv`.
        says: what is claimed and how it is judged, in a sentence.
        check: asks simulated boards.
    """

    name: str
    facts: Tuple[str, ...]
    says: str
    check: Check


class Claims(List[Claim]):
    """The claims of a module, in the order they stand in."""

    def of(self, *facts: str) -> Callable[[Check], Check]:
        """Take a check into the list: the function's name and docstring become the claim's."""

        def take(check: Check) -> Check:
            self.append(Claim(check.__name__, facts, " ".join((check.__doc__ or "").split()), check))
            return check

        return take


LENET, MOBILENET, CIFAR = "lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"
RESNET, YOLO = "resnet18-imagenet", "yolov8n-coco"
XAVIER, NX, NANO, ORIN = "xavier-agx", "xavier-nx", "nano", "orin-agx"
MEDIA = ("ssd", "sd", "hdd")
PROFILED = ((ORIN, RESNET, 4), (ORIN, MOBILENET, 4), (ORIN, YOLO, 0))
"""Workloads that 001 profiled on the whole grid, with their workers."""

TRAINED = ((XAVIER, LENET), (XAVIER, MOBILENET), (XAVIER, CIFAR), (NX, LENET), (NX, MOBILENET), (NANO, LENET))
"""Boards with the workloads that fit them (004 Table 2)."""


def values(
    boards: Boards, metric: str, device: str, workload: str, power_mode: str = "default", **others: Any
) -> np.ndarray:
    """A quantity per power mode; other fields of the condition by name."""
    return boards.values(Condition(device, workload, power_mode, **others), metric)


def value(boards: Boards, metric: str, device: str, workload: str, power_mode: str = "default", **others: Any) -> float:
    """A quantity in one power mode."""
    return float(values(boards, metric, device, workload, power_mode, **others)[0])


def percent(share: float) -> str:
    """A share as text in %."""
    return f"{100.0 * share:.3g} %"


def listed(numbers: Any, form: str = ".3g") -> str:
    """Numbers as text; those of a dictionary with their names."""
    if isinstance(numbers, dict):
        return ", ".join(f"{name} {format(float(number), form)}" for name, number in numbers.items())
    return ", ".join(format(float(number), form) for number in numbers)
