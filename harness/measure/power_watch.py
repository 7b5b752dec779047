"""When power has settled, and whether it was sampled often enough, while a profile runs."""

from __future__ import annotations

import math
import time
from typing import Optional

from harness.board.sampler import Sampler
from harness.core.metrics import POWER_CHANNEL, between, stable_from
from harness.core.profiles import Series

MAX_SILENCE_INTERVALS = 3
"""A power sensor that gave nothing for so many intervals is not waited for."""

MAX_SETTLING_S = 30.0
"""Power settles 2-3 s after a change of mode (001 sec. 2.5); a profile whose power has not by now goes on, flagged."""

MIN_POWER_SAMPLES = 3
"""With fewer stable samples a median of power means nothing (001 sec. 2.5: a fast mode gives few, or none)."""


class PowerWatch:
    """Whether power has settled and was sampled often enough, while a profile runs."""

    def __init__(self, sampler: Sampler, power_source: Optional[str]) -> None:
        """Watch the total power that `power_source` gives; None where there is no power sensor."""
        self._sampler = sampler
        self._source = power_source
        self._start_s = time.monotonic()  # what was drawn before training says nothing of what it draws
        self._settled_s: Optional[float] = None

    def has_settled(self, now_s: float) -> bool:
        """Whether power was stable by `now_s`; always where there is no sensor, and after `MAX_SETTLING_S`."""
        if self._settled_s is None and (
            not self._senses() or self._is_stable() or now_s > self._start_s + MAX_SETTLING_S
        ):
            self._settled_s = now_s
        return self._settled_s is not None

    def is_enough(self) -> bool:
        """Whether there are `MIN_POWER_SAMPLES` since power settled; always where there is no sensor."""
        if not self._senses() or time.monotonic() > self._settled_s + MAX_SETTLING_S:
            return True
        return sum(time_s >= self._settled_s for time_s in self._power().times_s) >= MIN_POWER_SAMPLES

    def _senses(self) -> bool:
        """Whether there is a sensor that still speaks: one may vanish, or a counter stand still."""
        self._sampler.poll()
        if self._source is None or self._source in self._sampler.missing:
            return False
        heard_s = max((self._start_s, *self._power().times_s[-1:]))
        return time.monotonic() - heard_s <= MAX_SILENCE_INTERVALS * max(self._sampler.interval_s, 1.0)

    def _power(self) -> Series:
        power = self._sampler.series(POWER_CHANNEL) or Series((), ())
        return between(power, self._start_s, math.inf)

    def _is_stable(self) -> bool:
        power = self._power()
        return stable_from(power.times_s, power.values) is not None
