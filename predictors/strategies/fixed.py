"""Strategies that profile nothing: the greatest mode, and the vendor's presets."""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from harness.core.errors import InvalidValueError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.units import w_to_mw
from predictors.strategies.goals import Goal
from predictors.strategies.grid import Grid
from predictors.strategies.protocol import Choice, History, Strategy


class Preset(NamedTuple):
    """A mode that the vendor ships.

    Attributes:
        name: as the board calls it.
        mode: what it sets.
        claimed_mw: the power that it claims to stay under; infinite where it claims none.
        has_less_gpu: whether the board switches a part of its GPU off in it. Profiles and tables are of the whole GPU,
            so what is told of the preset's mode is not what the preset does.
    """

    name: str
    mode: PowerMode
    claimed_mw: float
    has_less_gpu: bool = False


class Maxn(Strategy):
    """Always the greatest mode, whatever the limits say (001 sec. 5.1)."""

    name = "maxn"
    deterministic = True

    def choose(self, history: History, goal: Goal) -> Choice:
        """The usable candidate with the greatest cores and clocks, and the greatest batch size; costs no profile.

        It promises nothing, so it counts as feasible.
        """
        grid = Grid(history.profiler.candidates)
        return _unmeasured(history, grid.greatest(history.usable), "the greatest mode, limits not looked at")


class Presets(Strategy):
    """The most powerful preset that claims to meet the power budget (001 sec. 1.4)."""

    name = "presets"
    deterministic = True

    def __init__(self, presets: Sequence[Preset] = ()) -> None:
        """Choose among `presets`."""
        self.presets = tuple(presets)

    def choose(self, history: History, goal: Goal) -> Choice:
        """The usable candidate nearest to that preset; costs no profile.

        Presets know no limit but power: without one the most powerful preset is taken. Where none claims to meet it,
        the weakest is the answer, as infeasible.

        Raises:
            InvalidValueError: there are no presets.
        """
        if not self.presets:
            raise InvalidValueError("the strategy presets was given none", "it needs a board whose presets are known")
        ordered = sorted(self.presets, key=lambda preset: preset.claimed_mw)
        budget_mw = goal.limits.get("power_mw", float("inf"))
        meeting = [preset for preset in ordered if preset.claimed_mw <= budget_mw]
        chosen = meeting[-1] if meeting else ordered[0]
        index = Grid(history.profiler.candidates).nearest(chosen.mode, history.usable)
        reason = f"preset {chosen.name}" + (", with all of its GPU" if chosen.has_less_gpu else "")
        if not _is_same(chosen.mode, history.mode(index)):
            reason += ", stood for by the nearest mode there is"
        return _unmeasured(history, index, reason, feasible=bool(meeting))


def _is_same(wanted: PowerMode, mode: PowerMode) -> bool:
    """Whether two modes agree in all that both tell."""
    return all(a == b for a, b in zip(wanted, mode) if UNKNOWN_KHZ not in (a, b))


def _unmeasured(history: History, index: int, reason: str, feasible: bool = True) -> Choice:
    size = int(history.profiler.candidates.batch_size[index])
    failed = tuple(history.failed.items())
    return Choice(history.mode(index), size, feasible, None, None, history.spent, (), reason, index, failed)


def claimed_from_name(name: str) -> float:
    """The power in mW that a preset's name claims: 30,000 of `MODE_30W`; infinite where it names none."""
    digits = "".join(character if character.isdigit() else " " for character in name.upper().partition("W")[0]).split()
    return w_to_mw(float(digits[-1])) if digits and "W" in name.upper() else float(np.inf)
