"""Forecasts: distributions of the time and power of settings, and the choice by a goal."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, Union

import numpy as np

from harness.core.corpus import POWER_LIMIT
from harness.core.errors import InvalidValueError
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode, name_under_limit
from predictors.goals import Goal, LogFigures, exceedance, log_distribution, standardised
from predictors.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.8  # share of measurements that intervals contain, unless another is given


@dataclasses.dataclass(frozen=True, eq=False)
class Forecast:
    """Distributions of log time (ms) and log power (mW) of n settings: medians and deviations, arrays of shape (n,).

    With draws from the posterior, the four arrays and all that follows from them have a row per draw.
    """

    settings: Settings
    log_time: np.ndarray  # NaN if unknown, as the other three
    log_time_sd: np.ndarray  # standard deviation
    log_power: np.ndarray
    log_power_sd: np.ndarray
    # degrees of freedom of the Student t distribution of both logarithms; infinite for a normal one
    freedom: float = float("inf")
    # which rows are measurements, whose distribution is normal, bool of shape (n,); None for none
    measured: np.ndarray = dataclasses.field(default=None)  # type: ignore[arg-type]
    # inputs outside the profiled range, as of `Predictor.unprofiled`
    unprofiled: Dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    # the power in mW that the device does not let each row exceed, of shape (n,), infinite if unknown; None for all
    most_mw: Optional[np.ndarray] = None

    def __post_init__(self) -> None:
        """Without `measured`, every row is predicted."""
        if self.measured is None:
            object.__setattr__(self, "measured", np.zeros(len(self.settings), dtype=bool))

    @staticmethod
    def of_medians(
        settings: Settings,
        time_ms: np.ndarray,
        power_mw: np.ndarray,
        log_time_sd: np.ndarray,
        log_power_sd: np.ndarray,
        freedom: float = float("inf"),
    ) -> Forecast:
        """A forecast of predicted times and powers."""
        return Forecast(settings, np.log(time_ms), log_time_sd, np.log(power_mw), log_power_sd, freedom)

    def __len__(self) -> int:
        return len(self.settings)

    def take(self, rows: Any) -> Forecast:
        """Some rows, given as an index of arrays."""
        logs = (self.log_time, self.log_time_sd, self.log_power, self.log_power_sd)
        log_time, log_time_sd, log_power, log_power_sd = (values[..., rows] for values in logs)
        unprofiled = {name: concerned[rows] for name, concerned in self.unprofiled.items()}
        return Forecast(
            self.settings.take(rows), log_time, log_time_sd, log_power, log_power_sd,
            self.freedom, self.measured[rows], unprofiled, None if self.most_mw is None else self.most_mw[rows],
        )  # fmt: skip

    @functools.cached_property
    def time_ms(self) -> np.ndarray:
        """Median of the minibatch time."""
        return np.exp(self.log_time)

    @functools.cached_property
    def power_mw(self) -> np.ndarray:
        """Median of the power."""
        return np.exp(self.log_power)

    @property
    def greatest_power_mw(self) -> float:
        """The greatest median of the power; at least one row has to have one."""
        return float(np.exp(np.nanmax(self.log_power)))

    @property
    def batch_size(self) -> np.ndarray:
        return self.settings.batch_size

    @functools.cached_property
    def admitted(self) -> np.ndarray:
        """Which rows were measured or have nothing outside the profiled range, bool of shape (n,)."""
        return self.measured | ~np.any([np.zeros(len(self), dtype=bool), *self.unprofiled.values()], axis=0)

    def admitting_all(self) -> Forecast:
        """The same, with settings outside the profiled range admitted."""
        return dataclasses.replace(self, unprofiled={})

    def keeping_limits_from(self, limit_mw: float) -> Forecast:
        """The same of a device that keeps the power limits from one on: under such a limit no mode draws more."""
        limits_mw = self.settings.power_limit_mw
        assert limits_mw is not None, "settings without power limits"
        most_mw = np.where(limits_mw >= limit_mw, limits_mw, np.inf)
        return dataclasses.replace(self, log_power=np.minimum(self.log_power, np.log(most_mw)), most_mw=most_mw)

    def draw(self, place: int) -> Forecast:
        """One of the draws, cyclic; itself without draws."""
        if self.log_time.ndim == 1:
            return self
        names = ("log_time", "log_time_sd", "log_power", "log_power_sd")
        drawn = {name: getattr(self, name)[place % len(self.log_time)] for name in names}
        return dataclasses.replace(self, **drawn)

    def over_draws(self) -> Forecast:
        """The draws combined into one normal distribution of each figure."""
        if self.log_time.ndim == 1:
            return self
        return dataclasses.replace(
            self,
            log_time=self.log_time.mean(axis=0),
            log_time_sd=np.hypot(self.log_time.std(axis=0), self.log_time_sd.mean(axis=0)),
            log_power=self.log_power.mean(axis=0),
            log_power_sd=np.hypot(self.log_power.std(axis=0), self.log_power_sd.mean(axis=0)),
        )

    @property
    def _figures(self) -> Tuple[LogFigures, LogFigures, np.ndarray]:
        """Log time, log power and batch size, as the functions of goals take them."""
        return (self.log_time, self.log_time_sd), (self.log_power, self.log_power_sd), self.batch_size

    def log_quantity(self, name: str) -> Tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the logarithm of a quantity, a name of `goals.QUANTITIES`."""
        return log_distribution(name, *self._figures)

    def interval(self, name: str, level: float = LEVEL) -> Tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the interval of a quantity that contains a share `level` of measurements."""
        if not 0 < level < 1:
            raise InvalidValueError(f"the level of an interval must be between 0 and 1, got {level}")
        mean, sd = self.log_quantity(name)
        median, factor = np.exp(mean), np.exp(self.reach((1 - level) / 2) * sd)
        high = median * factor
        if name == "power_mw" and self.most_mw is not None:
            high = np.minimum(high, self.most_mw)
        return median / factor, high

    def reach(self, exceeded: float) -> np.ndarray:
        """The distance from the median, in standard deviations, exceeded with probability `exceeded`, shape (n,)."""
        noise, predicted = standardised(math.inf), standardised(self.freedom)
        return np.where(self.measured, noise.isf(exceeded), predicted.isf(exceeded))

    def front(self) -> np.ndarray:
        """The indices of the Pareto front of time and power among the admitted rows."""
        return pareto_front(np.where(self.admitted, self.time_ms, np.nan), self.power_mw)

    def is_on_front(self, place: int) -> bool:
        """Whether a row is on the `front`, without computing the whole front."""
        time_ms, power_mw = self.time_ms[place], self.power_mw[place]
        is_no_worse = self.admitted & (self.time_ms <= time_ms) & (self.power_mw <= power_mw)
        is_better = is_no_worse & ((self.time_ms < time_ms) | (self.power_mw < power_mw))
        return bool(is_no_worse[place] and not is_better.any() and is_no_worse.argmax() == place)

    def log_objective(self, goal: Goal) -> Tuple[np.ndarray, np.ndarray]:
        return self.log_quantity(goal.minimise)

    def objective(self, goal: Goal) -> np.ndarray:
        """The objective at the medians."""
        return goal.objective(self.time_ms, self.power_mw, self.batch_size)

    def excess(self, goal: Goal) -> np.ndarray:
        """The excess over the limits at the medians."""
        return goal.excess(self.time_ms, self.power_mw, self.batch_size)

    def chance(self, goal: Goal) -> np.ndarray:
        """The probability that each row keeps all limits: that of its least likely one.

        The limits' probabilities are not multiplied, because they are not independent.
        """
        from scipy.special import ndtr

        least = np.ones(np.shape(self.log_time))
        for name, limit in goal.limits.items():
            mean, sd = self.log_quantity(name)
            least = np.minimum(least, ndtr((np.log(limit) - mean) / sd))
        return least

    def risk(self, goal: Goal) -> np.ndarray:
        """The probability that each row breaks a limit, as of `Goal.risk`; if measured, by noise alone."""
        risk = np.where(self.measured, goal.risk(*self._figures), goal.risk(*self._figures, self.freedom))
        power_mw = goal.limits.get("power_mw")
        if self.most_mw is None or power_mw is None:
            return risk
        others = {name: limit for name, limit in goal.limits.items() if name != "power_mw"}
        of_others = dataclasses.replace(self, most_mw=None).risk(Goal(goal.minimise, others))
        return np.where(self.most_mw <= power_mw, of_others, risk)

    def keeps(self, goal: Goal, risk: Optional[float]) -> np.ndarray:
        """Which rows keep all limits by their medians, and unless `risk` is None or they were measured, at that risk.

        The rule of every choice: neither a measured nor a predicted figure of the mode exceeds its limit.
        """
        within = self.excess(goal) <= 0
        return within if risk is None else within & (self.measured | (self.risk(goal) <= risk))

    def exceeding(self, name: str, limit: Union[float, np.ndarray]) -> np.ndarray:
        """The probability that a quantity exceeds a limit, shared or one per row, shape (n,)."""
        noise = exceedance(name, limit, *self._figures)
        return np.where(self.measured, noise, exceedance(name, limit, *self._figures, self.freedom))

    def best(self, goal: Goal, risk: Optional[float] = None) -> Optional[int]:
        """The admitted row with the least objective that keeps the goal's limits, as of `keeps`; None if none does."""
        kept = self.admitted & self.keeps(goal, risk)
        return int(np.where(kept, self.objective(goal), np.inf).argmin()) if kept.any() else None

    def nearest_miss(self, goal: Goal, risk: Optional[float] = None) -> int:
        """The admitted row that breaks the limits least: by the medians, or the one with the least risk."""
        misses = self.excess(goal) if risk is None else self.risk(goal)
        return int(np.where(self.admitted, misses, np.inf).argmin())

    def to_frame(self, level: float = LEVEL, on_front: Optional[np.ndarray] = None) -> pd.DataFrame:
        """A row for each setting: mode, power limit if there is one, batch size, medians, intervals, `on_front`.

        Some rows of a larger forecast give `on_front`, bool of shape (n,): what they alone have as a front is another.
        """
        import pandas as pd

        settings = self.settings
        modes = [settings.mode(index) for index in range(len(self))]
        limits_mw = [settings.limit_mw(index) for index in range(len(self))]
        frame = pd.DataFrame(modes, columns=list(PowerMode._fields))
        frame.insert(0, "power_mode", list(map(name_under_limit, modes, limits_mw)))
        if settings.power_limit_mw is not None:
            frame[POWER_LIMIT.name] = settings.power_limit_mw.astype(np.int64)
        frame["batch_size"] = settings.batch_size.astype(np.int64)
        for what, name in (("time", "time_ms"), ("power", "power_mw")):
            unit = name[len(what) :]
            frame[name] = getattr(self, name)
            frame[f"{what}_low{unit}"], frame[f"{what}_high{unit}"] = self.interval(name, level)
        frame["on_front"] = np.isin(np.arange(len(self)), self.front()) if on_front is None else on_front
        return frame


def describe_unprofiled(unprofiled: Dict[str, np.ndarray], left_out: bool = True) -> str:
    """A sentence that lists what is outside the profiled range, and whether the front excludes it."""
    settings = ", ".join(f"{name} ({rows.sum()} of {len(rows)} modes)" for name, rows in unprofiled.items())
    excluded = ", and such modes are excluded from the front" if left_out else ""
    return f"outside the profiled range: {settings}; intervals are wide there{excluded}"
