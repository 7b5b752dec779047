"""The gated quantities: one table for baselines, comparisons and histories.

A further quantity is a line of `QUANTITIES`: a column of `harness.store.frames.profiles`, with its noise, its
tolerance and which way it becomes worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.errors import UnknownNameError
from harness.core.profiles import POWER_IS_UNSURE, flag_kinds
from harness.core.terminal import available_hint
from harness.core.units import bytes_to_mib, mw_to_w
from harness.stats import noise

if TYPE_CHECKING:
    import pandas as pd

MIN_MINIBATCHES = 10  # with fewer clean minibatches on a side, noise cannot be distinguished from a change


class GatedQuantity(NamedTuple):
    name: str  # as tables and JSON have it
    column: str  # of a profile's aggregates and of frames; ends in the unit
    unit: str  # of the column
    noise: str  # which noise between runs it has: a quantity of `harness.stats.noise`
    worse: str  # the verdicts
    better: str
    tolerance: float  # how much worse than a baseline it may be by default, as a share
    more_is_worse: bool = True
    of_minibatches: bool = False  # whether it has a raw series of minibatches; others have a figure a run
    fewest: int = 0  # values that each side needs
    unsure_flags: Tuple[str, ...] = ()  # kinds of flags with which a run's figure does not count
    shown_unit: str = ""  # for people; the unit itself where it is empty
    to_shown: Callable[[float], float] = float
    decimals: int = 3  # of what is shown

    def is_worse(self, ratio: float) -> bool:
        """Whether a ratio after / before lies on the wrong side of 1."""
        return ratio > 1 if self.more_is_worse else ratio < 1

    @property
    def unit_shown(self) -> str:
        return self.shown_unit or self.unit

    def shown(self, value: float) -> str:
        return f"{self.to_shown(value):.{self.decimals}f} {self.unit_shown}"

    def sure(self, flags: Sequence[str], value: Optional[float]) -> Optional[float]:
        """The figure of a run; None if it is missing, NaN, or unreliable according to its flags."""
        is_there = value is not None and value > 0 and not set(flag_kinds(flags)) & set(self.unsure_flags)
        return value if is_there else None

    def of(self, frame: pd.DataFrame) -> Any:
        """The figures of profiles, as an array; NaN without a reliable one."""
        values = [self.sure(flags, value) for flags, value in zip(frame["flag_list"], frame[self.column])]
        return np.array(values, dtype=float)


TIME = GatedQuantity(
    "minibatch time",
    "minibatch_time_ms",
    "ms",
    noise.TIME,
    worse="slower",
    better="faster",
    tolerance=0.05,
    of_minibatches=True,
    fewest=MIN_MINIBATCHES,
)
FAST_TIME = TIME._replace(name="fast minibatch time")  # of the fast minibatches of the fast runs, not of all
POWER = GatedQuantity(
    "power",
    "power_mw",
    "mW",
    noise.POWER,
    worse="more power",
    better="less power",
    tolerance=0.05,
    unsure_flags=POWER_IS_UNSURE,
    shown_unit="W",
    to_shown=mw_to_w,
)

MEMORY = GatedQuantity(
    "peak memory",
    "memory_peak_bytes",
    "bytes",
    noise.PEAK_MEMORY,
    worse="more memory",
    better="less memory",
    tolerance=0.1,
    shown_unit="MiB",
    to_shown=bytes_to_mib,
    decimals=0,
)

WALL_TIME = GatedQuantity(
    "wall time",
    "wall_time_s",
    "s",
    noise.TIME,
    worse="slower",
    better="faster",
    tolerance=0.05,
)

QUANTITIES = (TIME, POWER, MEMORY, WALL_TIME)
"""Each is compared where a profile has it: the wall time is that of commands."""


def quantity_named(name: str) -> GatedQuantity:
    """By its name or its column."""
    quantities = {text: quantity for quantity in QUANTITIES for text in (quantity.name, quantity.column)}
    if name not in quantities:
        hint = available_hint(name, [quantity.column for quantity in QUANTITIES])
        raise UnknownNameError(f"{name!r} is not compared", hint)
    return quantities[name]
