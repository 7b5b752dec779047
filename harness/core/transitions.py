"""How long a change of power mode takes to come into effect, from what was recorded around it: pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from harness.core.cases import Case
from harness.core.metrics import POWER_CHANNEL
from harness.core.power_modes import PowerMode
from harness.core.profiles import Minibatch, Series
from harness.core.units import s_to_ms

NEAR_SHARE = 0.05
"""A series is at its new level if it differs from it by no more than this share of the step."""

NOISE_SDS = 3.0  # or by no more than so many standard deviations of its noise
SMOOTHED = 5  # neighbours whose median is taken, which leaves a step where it is: of many values some are far off
LEVEL_SHARE = 1 / 3  # of the time after the change, at its end, shows the new level
SD_OF_MAD = 1.4826  # of normal values: the standard deviation over the median absolute deviation
FEWEST = 3  # values before the change, and at the new level


class RecordedTransition(NamedTuple):
    """What was recorded around a change of mode, on one clock."""

    changed_s: float  # when the change was requested
    set_s: Optional[float]  # how long setting and reading back took; None if nothing was set
    minibatches: Sequence[Minibatch]
    series: Dict[str, Series]  # by channel


class Transition(NamedTuple):
    """How long after it was requested a mode was in effect, in ms; None if a figure does not show it."""

    set_ms: Optional[float]  # until it was set and read back
    clock_ms: Optional[float]  # until every clock that changes was sampled at its new frequency
    minibatch_ms: Optional[float]  # until a minibatch began that took as long as later ones
    power_ms: Optional[float]  # until power was at its new level
    sampled_ms: Optional[float]  # interval of the samples of power

    @property
    def shows_something(self) -> bool:
        """Whether clocks, minibatches or power followed."""
        return bool(self._shown)

    @property
    def in_effect_ms(self) -> float:
        """How long until clocks, minibatches and power had followed, those of them that show it; at least one does."""
        return max(self._shown)

    @property
    def _shown(self) -> List[float]:
        return [value for value in (self.clock_ms, self.minibatch_ms, self.power_ms) if value is not None]


class MeasuredTransition(NamedTuple):
    """A change from the mode of a case to another, and how long it took."""

    case: Case
    to: PowerMode
    transition: Transition

    def plain(self) -> Dict[str, Any]:
        """Case, mode and the figures that show the change, as plain values."""
        figures = {name: value for name, value in self.transition._asdict().items() if value is not None}
        return {"case": self.case.id, "to": self.to.name, **figures}


def transition_of(recorded: RecordedTransition) -> Transition:
    """The figures of a transition; clocks are known no better than the samples are apart."""
    clocks_ms = []
    for channel, series in recorded.series.items():
        settled_ms = _settled_ms(series.times_s, series.values, recorded.changed_s) if is_clock(channel) else None
        if settled_ms is not None:
            clocks_ms.append(max(settled_ms, _interval_ms(series)))
    starts_s = [each.start_s for each in recorded.minibatches]
    times_ms = [each.e2e_ms for each in recorded.minibatches]
    power = recorded.series.get(POWER_CHANNEL)
    return Transition(
        None if recorded.set_s is None else s_to_ms(recorded.set_s),
        max(clocks_ms, default=None),
        _settled_ms(starts_s, times_ms, recorded.changed_s),
        None if power is None else _settled_ms(power.times_s, power.values, recorded.changed_s),
        None if power is None else _interval_ms(power),
    )


def _interval_ms(series: Series) -> float:
    return s_to_ms(float(np.median(np.diff(series.times_s)))) if len(series.times_s) > 1 else 0.0


def is_clock(channel: str) -> bool:
    return channel.endswith("_khz")


def _settled_ms(times_s: Sequence[float], values: Sequence[float], changed_s: float) -> Optional[float]:
    settled_s = settling_s(np.asarray(times_s, dtype=float), np.asarray(values, dtype=float), changed_s)
    return None if settled_s is None else s_to_ms(settled_s)


def running_median(values: np.ndarray) -> np.ndarray:
    """The median of each value and its nearest `SMOOTHED` - 1 neighbours; fewer at both ends."""
    reach = SMOOTHED // 2
    return np.array([np.median(values[max(place - reach, 0) : place + reach + 1]) for place in range(len(values))])


def noise_of(values: np.ndarray) -> float:
    """The standard deviation of values about a trend, from the differences of neighbours; outliers do not count."""
    differences = np.diff(values)
    spread = np.median(np.abs(differences - np.median(differences)))
    return float(SD_OF_MAD * spread / np.sqrt(2))


def settling_s(times_s: np.ndarray, values: np.ndarray, changed_s: float) -> Optional[float]:
    """How long after a change a series reaches its new level and stays there, in s.

    `times_s` ascend. The levels are the medians before the change and of the last `LEVEL_SHARE` of the time after it.
    None if there are too few values, if the noise hides the step, or if the new level is reached only where it is
    taken from.
    """
    before, after = values[times_s < changed_s], times_s >= changed_s
    if len(before) < FEWEST or not after.any():
        return None
    level_from_s = times_s[-1] - LEVEL_SHARE * (times_s[-1] - changed_s)
    later = values[times_s >= level_from_s]
    if len(later) < FEWEST:
        return None
    level, noise = float(np.median(later)), noise_of(later)
    step = abs(level - float(np.median(before)))
    near = max(NEAR_SHARE * step, NOISE_SDS * noise)
    if step <= 2 * near or step == 0:
        return None
    is_away = after & (np.abs(running_median(values) - level) > near) & (times_s < level_from_s)
    first = int(np.flatnonzero(is_away)[-1]) + 1 if is_away.any() else int(np.argmax(after))
    return None if times_s[first] >= level_from_s else float(times_s[first] - changed_s)
