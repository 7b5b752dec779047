"""The strategies by name, and how each is made for a target."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from predictors.models.protocol import Predictor
from predictors.models.registry import make_predictor, names_in, predictor_class
from predictors.strategies.closed_loop import ClosedLoop
from predictors.strategies.design import design_for
from predictors.strategies.fixed import Maxn, Preset, Presets
from predictors.strategies.one_shot import OneShot
from predictors.strategies.protocol import Strategy
from predictors.strategies.search import BinarySearch, BruteForce, CoordinateSearch, RandomSearch
from predictors.strategies.vendor import VendorEstimate
from predictors.tables import Table

OURS = "physical-gp"
"""The predictor behind `one-shot`, `closed-loop` and `front`."""

DEFAULT = "closed-loop"
"""What `recommend` runs where no strategy is named."""


class Setting(NamedTuple):
    """What strategies are made from.

    Attributes:
        device: name of the board, as in the corpus; strategies that know vendor figures look it up.
        references: tables of other workloads that transfer predictors may start from.
        presets: the vendor's modes.
        risk: for `one-shot`: greatest probability of breaking a limit by more than 1 W; None for none.
    """

    device: str = ""
    references: Tuple[Table, ...] = ()
    presets: Tuple[Preset, ...] = ()
    risk: Optional[float] = None


class Kind(NamedTuple):
    """A strategy as it can be asked for by name.

    Attributes:
        make: from a setting and a seed to the strategy.
        meaning: what it does, for `--help`.
        together: one set of profiles serves all budgets of a sweep; else each budget has its own.
        profiles: how many profiles it takes: `given` (as many as allowed), `none` or `all`.
    """

    make: Callable[[Setting, int], Strategy]
    meaning: str
    together: bool = False
    profiles: str = "given"


def _predictor(name: str, setting: Setting, seed: int) -> Callable[[], Predictor]:
    kind = predictor_class(name)
    return lambda: make_predictor(kind, references=setting.references, board=setting.device or None, seed=seed)


def _one_shot(name: str, predictor: str) -> Callable[[Setting, int], Strategy]:
    """The papers' road: no risk is set, a mode counts as within the limit when its predicted power is."""
    return lambda setting, seed: OneShot(_predictor(predictor, setting, seed), name=name, seed=seed)


def _with_risk(setting: Setting, seed: int) -> Strategy:
    return OneShot(_predictor(OURS, setting, seed), risk=setting.risk, seed=seed)


def _closed_loop(setting: Setting, seed: int) -> Strategy:
    return ClosedLoop(_predictor(OURS, setting, seed), design_for(setting.references, setting.device or None, seed))


STRATEGIES: Dict[str, Kind] = {
    "closed-loop": Kind(_closed_loop, "profiles where our predictor promises most, answers with a measured mode"),
    "front": Kind(_closed_loop, "the same for all budgets at once, with one set of profiles", together=True),
    "one-shot": Kind(_with_risk, "random modes, our predictor, one pick at a set risk", together=True),
    "powertrain": Kind(_one_shot("powertrain", "powertrain"), "random modes, PowerTrain, one pick", together=True),
    "nn": Kind(_one_shot("nn", "nn"), "random modes, a neural network, one pick", together=True),
    "random": Kind(lambda setting, seed: RandomSearch(seed), "best of random modes", together=True),
    "mdbs": Kind(lambda setting, seed: BinarySearch(), "multi-dimensional binary search"),
    "gmd": Kind(lambda setting, seed: CoordinateSearch(), "coordinate search from the middle"),
    "presets": Kind(lambda setting, seed: Presets(setting.presets), "the vendor's best preset", profiles="none"),
    "npe": Kind(lambda setting, seed: VendorEstimate(setting.device), "the vendor's power estimate", profiles="none"),
    "maxn": Kind(lambda setting, seed: Maxn(), "always the greatest mode", profiles="none"),
    "brute-force": Kind(lambda setting, seed: BruteForce(), "profiles every mode", together=True, profiles="all"),
}
"""Ours first, then the papers' and the plain ones."""


def strategy_names(text: str) -> List[str]:
    """The strategies in a list with commas, as `predictors.models.registry.names_in` reads it."""
    return names_in(text, STRATEGIES, "strategy")
