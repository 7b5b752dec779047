"""The power modes that a corpus holds, as a space: no full grid, so a mode is there or it is not."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import FrozenSet, Iterable, Iterator, List, Tuple

from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode, PowerModeSpace

NEAREST = 3
"""How many modes an error names in the place of one that is not there."""


@dataclasses.dataclass(frozen=True)
class RecordedSpace(PowerModeSpace):
    """Some power modes; the dimensions list the values that occur, not every crossing of them is there.

    Attributes:
        modes: all of them, ascending, none twice.
    """

    modes: Tuple[PowerMode, ...] = ()

    @classmethod
    def of(cls, modes: Iterable[PowerMode]) -> RecordedSpace:
        """The space of some modes.

        Raises:
            InvalidValueError: there is none.
        """
        kept = tuple(sorted(set(modes)))
        if not kept:
            raise InvalidValueError("no such power mode is recorded", "choose others")
        return cls(*(tuple(sorted(set(values))) for values in zip(*kept)), modes=kept)

    @functools.cached_property
    def _known(self) -> FrozenSet[PowerMode]:
        return frozenset(self.modes)

    @property
    def greatest(self) -> PowerMode:
        """The mode with the greatest value of every dimension where it is there, else the one nearest to it."""
        corner = PowerMode(*(values[-1] for values in self.dimensions))
        return corner if corner in self else self.nearest(corner)

    def __len__(self) -> int:
        return len(self.modes)

    def __iter__(self) -> Iterator[PowerMode]:
        return iter(self.modes)

    def __contains__(self, mode: object) -> bool:
        return mode in self._known

    def at(self, index: int) -> PowerMode:
        """The mode at a place in the order of `__iter__`.

        Raises:
            InvalidValueError: there is no such place.
        """
        if not 0 <= index < len(self):
            raise InvalidValueError(f"power mode number {index} does not exist", f"there are 0 to {len(self) - 1}")
        return self.modes[index]

    def paper_grid(self) -> RecordedSpace:
        """The modes that lie in the grid of the PowerTrain paper over the values that occur here."""
        grid = PowerModeSpace(*self.dimensions).paper_grid()
        return RecordedSpace.of([mode for mode in self.modes if mode in grid])

    def nearest(self, mode: PowerMode) -> PowerMode:
        """The recorded mode nearest to any mode."""
        return self.nearest_ones(mode, 1)[0]

    def nearest_ones(self, mode: PowerMode, count: int = NEAREST) -> List[PowerMode]:
        """The recorded modes nearest to any mode, by the sum of the ratios' logarithms over the four dimensions."""
        return sorted(self.modes, key=lambda other: (_distance(other, mode), other))[:count]

    def check(self, mode: PowerMode) -> None:
        """Refuse a mode that is not recorded.

        Raises:
            InvalidValueError: names the nearest ones.
        """
        if mode not in self:
            near = ", ".join(other.name for other in self.nearest_ones(mode))
            raise InvalidValueError(
                f"power mode {mode.name} is not among the {len(self)} recorded ones", f"the nearest are {near}"
            )


def _distance(one: PowerMode, other: PowerMode) -> float:
    return sum(abs(math.log(max(here, 1) / max(there, 1))) for here, there in zip(one, other))
