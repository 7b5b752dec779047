"""Pairs of power modes that differ in one resource, and what that resource does (E11; 004 sec. 5.6)."""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Tuple

from harness.core.power_modes import PowerMode


class Step(NamedTuple):
    """Two power modes that differ in one dimension, the lower one first.

    Attributes:
        dimension: `cpu_cores`, `cpu_khz`, `gpu_khz` or `mem_khz`.
        low: the mode with less of it.
        high: the mode with more.
    """

    dimension: str
    low: PowerMode
    high: PowerMode


def one_factor_steps(modes: Iterable[PowerMode]) -> List[Step]:
    """Every pair of modes that differ in exactly one dimension, by dimension, then by mode."""
    ordered = sorted(set(modes))
    steps = []
    for place, first in enumerate(ordered):
        for second in ordered[place + 1 :]:
            differing = [name for name in PowerMode._fields if getattr(first, name) != getattr(second, name)]
            if len(differing) == 1:
                steps.append(Step(differing[0], first, second))
    return sorted(steps, key=lambda step: (PowerMode._fields.index(step.dimension), step.low, step.high))


def chain(modes: Iterable[Tuple[str, PowerMode]]) -> List[Tuple[str, str, str]]:
    """One-factor steps by the modes' names: dimension, name of the lower mode, name of the higher one."""
    named = {mode: name for name, mode in modes}
    return [(step.dimension, named[step.low], named[step.high]) for step in one_factor_steps(named)]
