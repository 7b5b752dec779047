"""Strategies without profiles: the greatest mode, the vendor's presets, and the vendor's power estimate."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple, Sequence, Tuple

import numpy as np

from harness.core.boards import is_board, load_board
from harness.core.errors import InvalidValueError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.units import mw_to_w, w_to_mw
from predictors.goals import Goal
from predictors.models import vendor_estimate
from predictors.settings import Grid
from predictors.strategies.protocol import Choice, History, Strategy


class VendorPreset(NamedTuple):
    """A mode that the vendor ships."""

    name: str  # on the board
    mode: PowerMode  # that it sets
    claimed_mw: float  # the power that it claims to stay below; infinite if it claims none
    # The board switches a part of its GPU off in it. Profiles and tables are of the whole GPU, so figures of the
    # preset's mode are not those of the preset.
    has_less_gpu: bool = False


class Maxn(Strategy):
    """Always the greatest mode, regardless of the limits (001 sec. 5.1)."""

    def choose(self, history: History, goal: Goal) -> Choice:
        """The usable candidate with the greatest cores and clocks, and the greatest batch size; costs no profile.

        It promises nothing, so it counts as feasible.
        """
        greatest = Grid(history.profiler.candidates, history.usable).greatest()
        return history.choice(greatest, "the greatest mode, limits ignored", feasible=True)


class Presets(Strategy):
    """The most powerful preset that claims to meet the power budget (001 sec. 1.4)."""

    def __init__(self, presets: Sequence[VendorPreset] = ()) -> None:
        self.presets = tuple(presets)

    def choose(self, history: History, goal: Goal) -> Choice:
        """The usable candidate nearest to that preset; costs no profile.

        Presets have only a power limit: without one the most powerful preset is chosen. If none claims to meet it, the
        weakest is returned, as infeasible.
        """
        if not self.presets:
            raise InvalidValueError("the strategy presets has no presets", "use a board whose presets are known")
        ordered = sorted(self.presets, key=lambda preset: preset.claimed_mw)
        budget_mw = goal.limits.get("power_mw", float("inf"))
        meeting = [preset for preset in ordered if preset.claimed_mw <= budget_mw]
        chosen = meeting[-1] if meeting else ordered[0]
        index = Grid(history.profiler.candidates, history.usable).nearest(chosen.mode)
        # With another GPU its clocks have other figures, and so another name.
        reason = f"{'the whole GPU at the clocks of ' if chosen.has_less_gpu else ''}preset {chosen.name}"
        pairs = zip(chosen.mode, history.mode(index))
        if any(a != b for a, b in pairs if UNKNOWN_KHZ not in (a, b)):  # an unknown clock cannot be compared
            reason += ", approximated by the nearest available mode"
        return history.choice(index, reason, bool(meeting))


class GreatestEstimatedPower(Strategy):
    """The mode with the greatest power that the vendor's estimator allows within the budget (NPE, 001 sec. 1.4).

    The estimator has no time; modes are assumed faster the more power they are estimated to draw. Limits on other
    quantities than power are ignored.
    """

    def __init__(self, device: str) -> None:
        self.device = device

    def choose(self, history: History, goal: Goal) -> Choice:
        candidates = history.profiler.candidates
        board = vendor_estimate.estimated_board(self.device)
        power_mw = vendor_estimate.estimated_power_mw(board, candidates.modes)
        within = (power_mw <= goal.limits.get("power_mw", np.inf)) & history.usable
        if within.any():
            index = int(np.where(within, power_mw, -np.inf).argmax())
        else:
            index = int(np.where(history.usable, power_mw, np.inf).argmin())
        reason = f"greatest estimated power within the budget: {mw_to_w(power_mw[index]):.1f} W"
        return history.choice(index, reason, bool(within.any()))


def claimed_from_name(name: str) -> float:
    """The power in mW that a preset's name claims: 30,000 for `MODE_30W`; infinite if it contains none."""
    digits = "".join(character if character.isdigit() else " " for character in name.upper().partition("W")[0]).split()
    return w_to_mw(float(digits[-1])) if digits and "W" in name.upper() else float(np.inf)


def presets_of(device: str) -> Tuple[VendorPreset, ...]:
    """The vendor's modes of a board, with the power in their names; none for an unknown board."""
    if not is_board(device):
        return ()
    spec = load_board(device)
    masks = [preset.tpc_pg_mask or 0 for preset in spec.presets]
    lacking = functools.reduce(operator.and_, masks, ~0)  # what is off in every preset the module does not have
    return tuple(
        VendorPreset(preset.name, spec.preset_mode(preset), claimed_from_name(preset.name), bool(mask & ~lacking))
        for preset, mask in zip(spec.presets, masks)
    )
