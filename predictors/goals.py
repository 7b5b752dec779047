"""Goals: a quantity to minimise, and limits on others.

Quantities are products of powers of time, power and batch size, so their logarithms are sums:

    log quantity = a * log time_ms + b * log power_mw + c * log batch_size + constant

A predictor with normal distributions of log time and log power thus gives the probability that a limit is kept.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint
from harness.core.units import mw_to_w, w_to_mw

Figures = Union[float, np.ndarray]  # of one candidate, or of shape (n,)
LogFigures = Tuple[np.ndarray, np.ndarray]  # mean and standard deviation of the logarithms of n figures

MAX_POWER_BUDGET_W = 5000.0  # more than any device draws

BREAKING_SHARE = 0.02
"""A limit counts as broken if it is exceeded by more than this share of it, and by more than the sensor's noise."""

SENSOR_NOISE = {"power_mw": 150.0}
"""By quantity, in its unit: an INA3221 resolves 40 uV, which across 5 mOhm at 19 V is 0.15 W."""


class Quantity(NamedTuple):
    """A quantity that a goal minimises or limits."""

    time: int  # exponent of the minibatch time
    power: int  # exponent of the module power
    batch: int  # exponent of the batch size
    per_unit: float  # conversion factor from ms, mW and samples to the unit of the quantity's name
    words: str  # its name in messages
    shown_in: Tuple[str, float]  # the unit that it is shown in, and the factor from its own unit

    @property
    def lowered_by(self) -> Tuple[str, str]:
        """The direction in which clocks and cores, and the batch size, lower it: `up` or `down`.

        Energy falls with time, because a board draws most of its power at any clock. A larger batch takes longer and
        draws more, and less of both per sample.
        """
        return "up" if self.time else "down", "up" if self.batch < 0 else "down"


QUANTITIES: Dict[str, Quantity] = {
    "time_ms": Quantity(1, 0, 0, 1.0, "minibatch time", ("ms", 1.0)),  # the latency of an inference batch
    "power_mw": Quantity(0, 1, 0, 1.0, "power", ("W", 1e-3)),
    "energy_mws": Quantity(1, 1, 0, 1e-3, "energy of a minibatch", ("J", 1e-3)),
    "energy_delay_mws_ms": Quantity(2, 1, 0, 1e-3, "energy-delay product", ("J s", 1e-6)),
    "sample_time_ms": Quantity(1, 0, -1, 1.0, "time of a sample", ("ms", 1.0)),  # the inverse of the throughput
    "sample_energy_mws": Quantity(1, 1, -1, 1e-3, "energy of a sample", ("J", 1e-3)),
}


OBJECTIVES = {
    "time": "time_ms", "power": "power_mw", "energy": "energy_mws", "edp": "energy_delay_mws_ms",
    "throughput": "sample_time_ms", "sample-energy": "sample_energy_mws",
}  # fmt: skip
"""The objectives of the command line, and the quantities that they minimise."""


def check_objective(name: str) -> None:
    """Refuse the name of no objective."""
    if name not in OBJECTIVES:
        raise UnknownNameError(f"goal is {name!r}", available_hint(str(name), OBJECTIVES))


@dataclasses.dataclass(frozen=True)
class Goal:
    """Minimise one quantity subject to upper limits on others."""

    minimise: str = "time_ms"  # a name of `QUANTITIES`
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)  # the greatest value allowed, by name

    def __post_init__(self) -> None:
        """Refuse unknown quantities and limits that no candidate can meet."""
        for name in (self.minimise, *self.limits):
            if name not in QUANTITIES:
                raise UnknownNameError(f"quantity {name!r} is unknown", available_hint(name, QUANTITIES))
        for name, limit in self.limits.items():
            if not (limit > 0 and math.isfinite(limit)):
                raise InvalidValueError(f"the limit of {name} is {limit}, expected a number above 0")

    def objective(self, time_ms: Figures, power_mw: Figures, batch_size: Figures) -> np.ndarray:
        """The quantity to minimise, shape (n,), in the unit that its name ends in."""
        return value_of(self.minimise, time_ms, power_mw, batch_size)

    def excess(self, time_ms: Figures, power_mw: Figures, batch_size: Figures) -> np.ndarray:
        """The share by which the worst limit is exceeded, shape (n,): 0.1 is 10 % above it, 0 or less is within all."""
        used = self._used(time_ms, power_mw, batch_size)
        return np.maximum.reduce([np.zeros(np.shape(time_ms)), *used.values()]) - 1

    def _used(self, time_ms: Figures, power_mw: Figures, batch_size: Figures) -> Dict[str, np.ndarray]:
        """The used share of each limit."""
        return {name: value_of(name, time_ms, power_mw, batch_size) / limit for name, limit in self.limits.items()}

    def worst(self, time_ms: float, power_mw: float, batch_size: float) -> str:
        """The quantity whose limit a candidate exceeds most; the objective if it keeps all."""
        used = self._used(time_ms, power_mw, batch_size)
        worst = max(used, key=used.__getitem__, default=self.minimise)
        return worst if used.get(worst, 0.0) > 1 else self.minimise

    def slack(self, name: str) -> float:
        """The excess of a limit up to which it does not count as broken, in the unit of the quantity's name."""
        return max(BREAKING_SHARE * self.limits[name], SENSOR_NOISE.get(name, 0.0))

    def breaks(self, time_ms: Figures, power_mw: Figures, batch_size: Figures) -> np.ndarray:
        """Whether any limit is broken, bool of shape (n,)."""
        broken = [
            value_of(name, time_ms, power_mw, batch_size) > limit + self.slack(name)
            for name, limit in self.limits.items()
        ]
        return np.logical_or.reduce([np.zeros(np.shape(time_ms), dtype=bool), *broken])

    def risk(
        self, log_time: LogFigures, log_power: LogFigures, batch_size: np.ndarray, freedom: float = math.inf
    ) -> np.ndarray:
        """The probability that any limit is broken, as of `breaks`, shape (n,): that of the likeliest one.

        The arguments are those of `exceedance`.
        """
        likeliest = np.zeros(len(batch_size))
        for name, limit in self.limits.items():
            broken_above = limit + self.slack(name)
            probability = exceedance(name, broken_above, log_time, log_power, batch_size, freedom)
            likeliest = np.maximum(likeliest, probability)
        return likeliest

    def describe(self) -> str:
        """The goal in words: `least minibatch time with power at most 30 W`."""
        limits = self.describe_limits()
        return f"least {QUANTITIES[self.minimise].words}" + (f" with {limits}" if limits else "")

    def describe_limits(self) -> str:
        """The limits in words: `power at most 30 W`; empty without any."""
        limits = []
        for name, limit in self.limits.items():
            unit, factor = QUANTITIES[name].shown_in
            limits.append(f"{QUANTITIES[name].words} at most {limit * factor:.4g} {unit}")
        return " and ".join(limits)


def budget_in_mw(budget_w: float, name: str = "power budget") -> float:
    """A budget given in W; InvalidValueError if it is more than any device draws, so probably in mW already."""
    if budget_w > MAX_POWER_BUDGET_W:
        raise InvalidValueError(
            f"{name} {budget_w:g} W, expected at most {MAX_POWER_BUDGET_W:g} W",
            f"budgets are in W; {budget_w:g} mW are {mw_to_w(budget_w):g} W",
        )
    return w_to_mw(budget_w)


def power_budget(budget_mw: float) -> Goal:
    """The papers' problem (001 sec. 5): the least time at a power of at most `budget_mw`."""
    return Goal("time_ms", {"power_mw": budget_mw})


def within(power_w: Optional[float], time_ms: Optional[float], per_sample: bool = False) -> Goal:
    """The least time within a power, the least power within a time, the least energy of a minibatch within both.

    With `per_sample`, for a choice among batch sizes, time and energy are those of a sample.
    """
    limits = {"power_mw": None if power_w is None else budget_in_mw(power_w), "time_ms": time_ms}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if not given:
        raise InvalidValueError("no limit was given to choose a power mode by", "give power_w= or time_ms=")
    what = "energy" if len(given) == 2 else "power" if power_w is None else "time"
    of_a_sample = {"energy": "sample-energy", "time": "throughput"} if per_sample else {}
    return Goal(OBJECTIVES[of_a_sample.get(what, what)], given)


def budget_goals(text: str, minimise: str = "time_ms", latencies_ms: Sequence[float] = ()) -> List[Goal]:
    """The papers' goals for power budgets written as `17:50:1` (first, last, step) or as a comma list, in W.

    With latencies, each budget is combined with each of them as a second limit.
    """
    try:
        if ":" in text:
            first, last, step = (float(part) for part in text.split(":"))
            watts = np.arange(first, last + step / 1e6, step)
        else:
            watts = np.array([float(part) for part in text.split(",")])
    except (ValueError, ZeroDivisionError):
        watts = np.array([])
    if not len(watts) or not (watts > 0).all():
        raise InvalidValueError(
            f"budgets {text!r} are not valid", "write FIRST:LAST:STEP or a comma list, in W: 17:50:1"
        )
    others = [{"time_ms": latency_ms} for latency_ms in latencies_ms] or [{}]
    return [Goal(minimise, {"power_mw": budget_in_mw(float(value)), **other}) for value in watts for other in others]


def value_of(name: str, time_ms: Figures, power_mw: Figures, batch_size: Figures) -> np.ndarray:
    """A quantity, of shape (n,), in the unit that its name ends in."""
    quantity = QUANTITIES[name]
    size = np.asarray(batch_size, dtype=float)
    return quantity.per_unit * time_ms**quantity.time * power_mw**quantity.power * size**quantity.batch


def exceedance(
    name: str,
    limit: Figures,
    log_time: LogFigures,
    log_power: LogFigures,
    batch_size: np.ndarray,
    freedom: float = math.inf,
) -> np.ndarray:
    """The probability that a quantity exceeds a limit, shared or one per candidate, shape (n,).

    The other arguments are those of `log_distribution`; `freedom` is the number of degrees of freedom of the Student t
    distribution that both logarithms have, infinite for a normal one.
    """
    mean, sd = log_distribution(name, log_time, log_power, batch_size)
    return standardised(freedom).sf((np.log(limit) - mean) / sd)


@functools.lru_cache(maxsize=None)  # scipy takes 0.2 ms to make one
def standardised(freedom: float) -> Any:
    """The distribution of a logarithm less its mean, in standard deviations: Student t, normal where infinite."""
    from scipy.stats import norm, t

    return norm if np.isinf(freedom) else t(freedom)


def log_distribution(
    name: str,
    log_time: LogFigures,
    log_power: LogFigures,
    batch_size: np.ndarray,
) -> Tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a quantity's natural logarithm, assuming independent time and power.

    `log_time` and `log_power` are such pairs for ms and mW; all arrays have shape (n,).
    """
    quantity = QUANTITIES[name]
    # A figure that the quantity does not depend on may be unknown (NaN).
    figures = [(share, *log) for share, log in ((quantity.time, log_time), (quantity.power, log_power)) if share]
    mean = np.sum([share * log_mean for share, log_mean, _ in figures], axis=0)
    sd = functools.reduce(np.hypot, [share * log_sd for share, _, log_sd in figures])
    mean = mean + quantity.batch * np.log(np.asarray(batch_size, dtype=float)) + math.log(quantity.per_unit)
    return mean, sd


OUT_OF_REACH = 2.0  # the ratio of a power limit to the greatest power from which on it is noted


def note_out_of_reach(goal: Goal, greatest_mw: float) -> str:
    """A note on a power limit far above what any mode draws, which may be meant in another unit; empty for others."""
    limit_mw = goal.limits.get("power_mw")
    if limit_mw is None or limit_mw <= OUT_OF_REACH * greatest_mw:
        return ""
    limit_w = mw_to_w(limit_mw)
    return (
        f"no mode draws over {mw_to_w(greatest_mw):.2g} W, so the power limit of {limit_w:g} W excludes none;"
        f" it is in W, and {limit_w:g} mW are {mw_to_w(limit_w):g} W"
    )
