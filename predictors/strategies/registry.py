"""The strategies by name, and their construction for a target."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerModeSpace
from predictors.models.base import Predictor, names_in
from predictors.models.registry import make_predictor, predictor_class
from predictors.profiles import Profiles
from predictors.strategies.closed_loop import ClosedLoop, OneShot, design_for
from predictors.strategies.fixed import GreatestEstimatedPower, Maxn, Presets, VendorPreset
from predictors.strategies.power_limits import PowerLimits
from predictors.strategies.protocol import Strategy
from predictors.strategies.search import BinarySearch, BruteForce, CoordinateSearch, RandomSearch

if TYPE_CHECKING:
    from predictors.models.physical_gp.prior import Hierarchy

OURS = "physical-gp"  # the predictor behind `one-shot`, `closed-loop` and `front`


class StrategySetting(NamedTuple):
    """The inputs that strategies are made from."""

    device: str = ""  # name of the board, as in the corpus; strategies that use vendor figures look it up
    references: Tuple[Profiles, ...] = ()  # tables of other workloads that transfer predictors may start from
    presets: Tuple[VendorPreset, ...] = ()  # the vendor's modes
    risk: Optional[float] = None  # of `one-shot`: greatest probability of breaking a limit
    unprofiled: bool = False  # whether the pick may lie outside the profiled range
    hierarchy: Optional[Hierarchy] = None  # the prior of our predictor; None for the suite's
    # of a discrete GPU, whose clocks count relative to the greatest one, also if that was not profiled
    space: Optional[PowerModeSpace] = None
    workload: str = ""  # on a discrete GPU, whose prior takes the same workload on other GPUs into account


class StrategyKind(NamedTuple):
    """A strategy that can be selected by name."""

    make: Callable[[StrategySetting, int], Strategy]  # from a setting and a seed to the strategy
    meaning: str  # a description for `--help`
    together: bool = False  # one set of profiles serves all budgets of a sweep; otherwise each budget has its own
    profiles: str = "given"  # the number of profiles it takes: `given` (as many as allowed), `none` or `all`
    deterministic: bool = False  # whether all seeds give the same choice, as is always so with `none` and `all`


def unfitted(setting: StrategySetting, seed: int, name: str = OURS) -> Callable[[], Predictor]:
    """A factory of unfitted predictors of a name, with the setting's board and references."""
    kind = predictor_class(name)
    offered: Dict[str, Any] = {
        "references": setting.references,
        "board": setting.device or None,
        "hierarchy": setting.hierarchy,
    }
    offered.update(space=setting.space, workload=setting.workload or None)
    return lambda: make_predictor(kind, seed=seed, **offered)


def make_closed_loop(setting: StrategySetting, seed: int, least_gain: float = 0.0, batch: int = 1) -> ClosedLoop:
    return ClosedLoop(unfitted(setting, seed), design_for(seed, all_sizes=True), least_gain=least_gain, batch=batch)


def make_one_shot(setting: StrategySetting, seed: int, papers: str = "") -> OneShot:
    """One pick at the setting's risk; or, with a predictor of the papers, their rule: within the limit as predicted."""
    if papers:
        return OneShot(unfitted(setting, seed, papers), seed=seed)
    return OneShot(unfitted(setting, seed), risk=setting.risk, seed=seed, unprofiled=setting.unprofiled)


STRATEGIES: Dict[str, StrategyKind] = {
    "closed-loop": StrategyKind(make_closed_loop, "profiles the most promising mode next, returns a measured mode"),
    "front": StrategyKind(
        make_closed_loop, "the same for all budgets at once, with one set of profiles", together=True
    ),
    "one-shot": StrategyKind(make_one_shot, "random modes, our predictor, one pick at a set risk", together=True),
    "powertrain": StrategyKind(
        partial(make_one_shot, papers="powertrain"), "random modes, PowerTrain, one pick", together=True
    ),
    "nn": StrategyKind(partial(make_one_shot, papers="nn"), "random modes, a neural network, one pick", together=True),
    "zeus": StrategyKind(
        lambda setting, seed: PowerLimits(),
        "every power limit at each batch size in turn, by the cost of Zeus",
        deterministic=True,
    ),
    "random": StrategyKind(lambda setting, seed: RandomSearch(seed), "best of random modes", together=True),
    "mdbs": StrategyKind(lambda setting, seed: BinarySearch(), "multi-dimensional binary search", deterministic=True),
    "gmd": StrategyKind(
        lambda setting, seed: CoordinateSearch(), "coordinate search from the middle", deterministic=True
    ),
    "presets": StrategyKind(
        lambda setting, seed: Presets(setting.presets), "the vendor's best preset", profiles="none"
    ),
    "npe": StrategyKind(
        lambda setting, seed: GreatestEstimatedPower(setting.device), "the vendor's power estimate", profiles="none"
    ),
    "maxn": StrategyKind(lambda setting, seed: Maxn(), "always the greatest mode", profiles="none"),
    "brute-force": StrategyKind(
        lambda setting, seed: BruteForce(), "profiles every mode", together=True, profiles="all"
    ),
}
"""Ours first, then the papers' and the plain ones."""


def strategy_on_device(name: str, setting: StrategySetting, seed: int, least_gain: float, batch: int = 1) -> Strategy:
    """A strategy for a search on a device, which ends if no profile is expected to gain at least `least_gain`."""
    if name == "powertrain" and not setting.references:
        raise InvalidValueError("powertrain starts from a reference workload", "give corpus='FILE' and reference='W'")
    if STRATEGIES[name].make is make_closed_loop:
        return make_closed_loop(setting, seed, least_gain, batch)
    return STRATEGIES[name].make(setting, seed)


def strategy_names(text: str) -> List[str]:
    """The strategies in a comma-separated list, as of `predictors.models.base.names_in`."""
    return names_in(text, STRATEGIES, "strategy")
