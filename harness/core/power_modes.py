"""Power modes: what one is, how it is written, the space that a device allows, and the space that a corpus holds."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
import random
import re
from typing import FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.errors import InvalidValueError
from harness.core.units import khz_to_mhz, mhz_to_khz

UNKNOWN_KHZ = 0  # a clock that the device does not have or does not report; `x` in a mode's name

_CLOCK = r"\d+(?:\.\d+)?|x"
_NAME = re.compile(rf"(?P<cores>\d+)c(?:-(?P<cpu>{_CLOCK})-(?P<gpu>{_CLOCK})-(?P<mem>{_CLOCK}))?")


class PowerMode(NamedTuple):
    """Active CPU cores and three clocks in kHz, always in this order."""

    cpu_cores: int
    cpu_khz: int
    gpu_khz: int
    mem_khz: int

    @property
    def name(self) -> str:
        """The mode as text, clocks in MHz: `12c-2201.6-1300.5-3199`."""
        clocks = (format_mhz(khz) for khz in self[1:])
        return "-".join([f"{self.cpu_cores}c", *clocks])


class NamedMode(NamedTuple):
    """A power mode and its name: that of a preset (`MODE_15W`), which may set more than the four values, or its own."""

    name: str
    mode: PowerMode


def format_mhz(khz: int) -> str:
    """A clock as it stands in a mode's name: MHz, or `x` where it is unknown."""
    return "x" if khz == UNKNOWN_KHZ else f"{khz_to_mhz(khz):.10g}"


def parse_power_mode(text: str, defaults: PowerMode) -> PowerMode:
    """A mode from its name, `12c-2201.6-1300.5-3199` in MHz or `12c`; `x` and what is left out are of `defaults`."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise InvalidValueError(
            f"power mode {text!r} is not of the form CORESc-CPU-GPU-MEM in MHz",
            f"write it like {defaults.name}, or {defaults.cpu_cores}c for the core count alone",
        )
    clocks = (
        default if given in (None, "x") else mhz_to_khz(float(given))
        for given, default in zip(match.group("cpu", "gpu", "mem"), defaults[1:])
    )
    return PowerMode(int(match.group("cores")), *clocks)


@dataclasses.dataclass(frozen=True)
class PowerModeSpace:
    """The values a device allows in each dimension, ascending.

    A dimension that is no knob of the device holds the one value it has (`UNKNOWN_KHZ` where that cannot be read).
    """

    cpu_cores: Tuple[int, ...]
    cpu_khz: Tuple[int, ...]
    gpu_khz: Tuple[int, ...]
    mem_khz: Tuple[int, ...]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            values = getattr(self, field.name)
            if not values or any(low >= high for low, high in zip(values, values[1:])):
                raise InvalidValueError(f"{field.name} must be non-empty and strictly ascending, got {values!r}")

    @property
    def dimensions(self) -> Tuple[Tuple[int, ...], ...]:
        return (self.cpu_cores, self.cpu_khz, self.gpu_khz, self.mem_khz)

    @property
    def greatest(self) -> PowerMode:
        """The mode with the greatest value of every dimension (what the papers call MAXN)."""
        return PowerMode(*(values[-1] for values in self.dimensions))

    def __len__(self) -> int:
        return math.prod(map(len, self.dimensions))

    def __iter__(self) -> Iterator[PowerMode]:
        """Every mode, the last dimension changing fastest."""
        return (PowerMode(*values) for values in itertools.product(*self.dimensions))

    def __contains__(self, mode: object) -> bool:
        return isinstance(mode, tuple) and all(value in values for value, values in zip(mode, self.dimensions))

    def _at(self, index: int) -> PowerMode:
        """The mode at a place in the order of `__iter__`, without going through those before it."""
        values: List[int] = []
        for allowed in reversed(self.dimensions):
            index, place = divmod(index, len(allowed))
            values.append(allowed[place])
        return PowerMode(*reversed(values))

    def sample(self, count: int, seed: int = 0) -> List[PowerMode]:
        """Draw modes uniformly, none twice, in the order drawn (001 sec. 4 trains its predictors on such samples).

        The same seed draws the same modes from the same space under every Python.
        """
        if not 1 <= count <= len(self):
            raise InvalidValueError(f"cannot draw {count} power modes", f"this space holds 1 to {len(self)}")
        return [self._at(index) for index in random.Random(seed).sample(range(len(self)), count)]

    def paper_grid(self) -> PowerModeSpace:
        """The grid that the PowerTrain paper profiled (001 sec. 2.5: 4,368 modes of an Orin AGX), as a space.

        All GPU and memory clocks, even core counts (all where there are none), and every other CPU clock without the
        two slowest (of fewer than three the greatest), from the top: the paper does not say from which end.
        """
        return PowerModeSpace(
            tuple(cores for cores in self.cpu_cores if cores % 2 == 0) or self.cpu_cores,
            self.cpu_khz[:1:-2][::-1] or self.cpu_khz[-1:],
            self.gpu_khz,
            self.mem_khz,
        )

    def nearest(self, mode: PowerMode) -> PowerMode:
        """The allowed mode nearest to any mode, each dimension on its own.

        Core counts are compared by difference, clocks by ratio (the difference of their logarithms). Of two equally
        near values the lower is taken.
        """
        clocks = []
        for field, khz, allowed in zip(PowerMode._fields[1:], mode[1:], self.dimensions[1:]):
            if khz <= UNKNOWN_KHZ < allowed[-1]:
                raise InvalidValueError(f"{field} of power mode {mode.name} is not a clock", "give it in MHz")
            place = bisect.bisect_left(allowed, khz)
            low, high = allowed[max(place - 1, 0)], allowed[min(place, len(allowed) - 1)]
            clocks.append(low if khz * khz <= low * high else high)  # khz/low <= high/khz, in whole numbers
        return PowerMode(min(self.cpu_cores, key=lambda cores: abs(cores - mode.cpu_cores)), *clocks)

    def at_caps(self, caps: Sequence[Optional[int]], gpu_cap_rounds_up: bool = False) -> PowerMode:
        """The mode that a preset's core count and caps come to, by `clock_at_cap`; None leaves a dimension uncapped."""
        cpu_cores, cpu_khz, gpu_khz, mem_khz = caps
        return PowerMode(
            cpu_cores or self.cpu_cores[-1],
            clock_at_cap(cpu_khz, self.cpu_khz),
            clock_at_cap(gpu_khz, self.gpu_khz, gpu_cap_rounds_up),
            clock_at_cap(mem_khz, self.mem_khz),
        )

    def check(self, mode: PowerMode) -> None:
        for field, value, values in zip(PowerMode._fields, mode, self.dimensions):
            if value not in values:
                allowed = ", ".join(map(str, values)) if len(values) <= 16 else f"{values[0]} ... {values[-1]}"
                raise InvalidValueError(
                    f"{field}={value} of power mode {mode.name} is not allowed here", f"allowed: {allowed}"
                )


def clock_at_cap(cap: Optional[int], allowed: Sequence[int], rounds_up: bool = False) -> int:
    """The greatest allowed clock not above a cap, or the least not below it, in kHz; None is no cap."""
    if cap is None:
        return allowed[-1]
    if rounds_up:
        return next((khz for khz in allowed if khz >= cap), allowed[-1])
    return max((khz for khz in allowed if khz <= cap), default=allowed[0])


NEAREST = 3  # number of available modes that an error suggests


@dataclasses.dataclass(frozen=True)
class RecordedSpace(PowerModeSpace):
    """Some power modes; the dimensions list the values that occur, not every crossing of them is there."""

    modes: Tuple[PowerMode, ...] = ()  # all of them, ascending, none twice

    @classmethod
    def of(cls, modes: Iterable[PowerMode]) -> RecordedSpace:
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

    def _at(self, index: int) -> PowerMode:
        return self.modes[index]

    def paper_grid(self) -> RecordedSpace:
        """The modes that lie in the grid of the PowerTrain paper over the values that occur here."""
        grid = PowerModeSpace(*self.dimensions).paper_grid()
        return RecordedSpace.of([mode for mode in self.modes if mode in grid])

    def nearest(self, mode: PowerMode) -> PowerMode:
        return self.nearest_ones(mode, 1)[0]

    def nearest_ones(self, mode: PowerMode, count: int = NEAREST) -> List[PowerMode]:
        """The recorded modes nearest to any mode, by the sum of the ratios' logarithms over the four dimensions."""

        def distance(other: PowerMode) -> float:
            return sum(abs(math.log(max(here, 1) / max(there, 1))) for here, there in zip(other, mode))

        return sorted(self.modes, key=lambda other: (distance(other), other))[:count]

    def check(self, mode: PowerMode) -> None:
        if mode not in self:
            near = ", ".join(other.name for other in self.nearest_ones(mode))
            raise InvalidValueError(
                f"power mode {mode.name} is not among the {len(self)} recorded ones", f"the nearest are {near}"
            )
