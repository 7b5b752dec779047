"""What a board of no prior may be like: alternatives to the physical form, weighed by the evidence of the rows.

The form and its prior were learned from networks on a few boards, whose power was sampled while they trained. Another
board or program may differ in ways that no single prior covers:

- single clocks have timings and voltages of their own (`clocks.py`);
- power departs further from the form;
- power is an average over more than the minibatches, as where samples include pauses between short runs, in which the
  GPU is off: a faster mode then has a smaller share of busy time;
- a program overlaps its parts less, or draws less, than any network does: the prior is too narrow.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence, Tuple

import numpy as np

AMPLITUDE = (0.03, 0.04)
"""Standard deviation of the smooth part of log time and log power. Set by hand on the measured tables of an Orin AGX;
amplitudes of 0.05 change errors by less than 0.3 points."""


class Alternative(NamedTuple):
    """One belief about a board; by default, that the form and its prior hold."""

    # standard deviations of the free values e_mem; u_mem, u_gpu, u_cpu; w_mem, w_gpu, w_cpu of `clocks.py`
    free_sd: Tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    power_sd: float = AMPLITUDE[1]  # standard deviation of the smooth part of log power
    pause: float = 0.0  # in geometric mean times of the rows, as of `power_w`
    prior_width: float = 1.0  # factor on the standard deviations of the prior


class Alternatives(NamedTuple):
    """Alternatives, s of them, as arrays; the fields are those of `Alternative`."""

    free_sd: np.ndarray  # shape (s, 7)
    power_sd: np.ndarray  # (s,)
    pause: np.ndarray  # (s,)
    prior_width: np.ndarray  # (s,)

    @property
    def smooth_sd(self) -> np.ndarray:
        """Standard deviations of the smooth part of log time and log power, shape (s, 2)."""
        return np.column_stack([np.full(len(self.power_sd), AMPLITUDE[0]), self.power_sd])

    def take(self, places: Any) -> Alternatives:
        return Alternatives(*(part[places] for part in self))

    def are_equal(self, place: int, other: int) -> bool:
        return all(np.array_equal(part[place], part[other]) for part in self)


def stack(alternatives: Sequence[Alternative]) -> Alternatives:
    return Alternatives(*map(np.array, zip(*alternatives)))


FORM_ALONE = stack([Alternative()])
"""On the boards of a prior the form was seen to hold: there free values made the power of ten modes 7 % less exact, and
power further from the form changes mean errors by less than 0.1 points."""

_OWN_CLOCKS = Alternative(free_sd=(0.1, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0))
_STRAY_POWER = 6 * AMPLITUDE[1]

OTHER_BOARDS = (
    _OWN_CLOCKS,
    _OWN_CLOCKS._replace(free_sd=(0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)),  # steps of all power
    _OWN_CLOCKS._replace(power_sd=_STRAY_POWER),
    _OWN_CLOCKS._replace(power_sd=_STRAY_POWER, pause=0.5),
    _OWN_CLOCKS._replace(power_sd=_STRAY_POWER, pause=2.0),
    _OWN_CLOCKS._replace(prior_width=2.0),
)
"""Set by hand on made-up boards, some of which average power over pauses or windows: there the power errors of 10 and
50 modes fall by about a third. Mean errors of the measured tables, each under a prior without its board, change by at
most 0.2 points."""

FURTHER_ODDS = 0.1
"""Of each alternative after the first, before the first profile: no board of the measured tables is such a board. With
even odds the power of three and five modes of two of them was up to 1 point less exact."""

MANY_CLOCKS, MANY_ROWS = 5, 10
STRAY_TRAFFIC = (
    _OWN_CLOCKS._replace(free_sd=(0.5, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0)),
    _OWN_CLOCKS._replace(free_sd=(0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)),
)
"""Further ones with so many memory clocks and rows, or more: such a board reaches far down, where the latency of a
clock may be off the power law by a factor, and its two parameters cannot follow. Fewer rows cannot show it, and lost
precision."""


def of_other_board(mem_khz: np.ndarray) -> Alternatives:
    """The alternatives of a board of no prior whose profiles have the memory clocks `mem_khz`, shape (n,)."""
    has_many = len(np.unique(mem_khz)) >= MANY_CLOCKS and len(mem_khz) >= MANY_ROWS
    return stack((*OTHER_BOARDS, *STRAY_TRAFFIC) if has_many else OTHER_BOARDS)
