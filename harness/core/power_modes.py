"""Power modes: their values and names, the space that a device allows, and the modes that a corpus contains."""

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
from harness.core.units import khz_to_mhz, mhz_to_khz, mw_to_w

MOST_FAILURES = 3
"""If this many modes fail one after the other, the modes are not the cause."""

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


NO_SETTINGS = PowerMode(1, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ)
"""The mode of a device that has, or reports, neither cores nor clocks."""


@dataclasses.dataclass(frozen=True)
class NamedMode:
    """A power mode and its name: that of a preset (`MODE_15W`), which may set more than the four values, or its own.

    Two with one name are equal: on a device, a name means one mode.
    """

    name: str
    mode: PowerMode = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return self.name


@functools.lru_cache(maxsize=None)  # a board has thousands of modes, but few clocks
def format_mhz(khz: int) -> str:
    """A clock as written in a mode's name: MHz, or `x` if unknown."""
    return "x" if khz == UNKNOWN_KHZ else f"{khz_to_mhz(khz):.10g}"


def name_under_limit(mode: PowerMode, limit_mw: Optional[int]) -> str:
    """A mode as text; of a discrete GPU `power limit 150 W`, after its clocks if it reports any."""
    if limit_mw is None:
        return mode.name
    limit = f"power limit {mw_to_w(limit_mw):g} W"
    has_clocks = any(khz != UNKNOWN_KHZ for khz in mode[1:])
    return f"{mode.name}, {limit}" if has_clocks else limit


def is_in_full(text: str) -> bool:
    """Whether a text is a mode with its core count and all three clocks, `12c-2201.6-1300.5-3199`."""
    match = _NAME.fullmatch(text)
    return match is not None and not {None, "x"} & set(match.group("cpu", "gpu", "mem"))


def parse_power_mode(text: str, defaults: PowerMode) -> PowerMode:
    """A mode from its name, `12c-2201.6-1300.5-3199` in MHz or `12c`; `defaults` has the clocks of `x` or left out."""
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

    A dimension that the device cannot set has its single value (`UNKNOWN_KHZ` if that cannot be read).
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

    @classmethod
    def spanned_by(cls, modes: Iterable[Sequence[int]]) -> PowerModeSpace:
        """The smallest space with all of these modes."""
        return cls(*(tuple(sorted(set(values))) for values in zip(*modes)))

    @property
    def dimensions(self) -> Tuple[Tuple[int, ...], ...]:
        """The values of each dimension, in the order of `PowerMode`."""
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
        """The mode at an index in the order of `__iter__`, computed directly."""
        values: List[int] = []
        for allowed in reversed(self.dimensions):
            index, place = divmod(index, len(allowed))
            values.append(allowed[place])
        return PowerMode(*reversed(values))

    def sample(self, count: int, seed: int = 0) -> List[PowerMode]:
        """Draw modes uniformly without replacement, in the order drawn (001 sec. 4 trains predictors on such samples).

        A seed draws the same modes from a space under every version of Python.
        """
        if not 1 <= count <= len(self):
            raise InvalidValueError(f"cannot draw {count} power modes", f"draw 1 to {len(self)} from this space")
        return [self._at(index) for index in random.Random(seed).sample(range(len(self)), count)]

    def paper_grid(self) -> PowerModeSpace:
        """The grid that the PowerTrain paper profiled (001 sec. 2.5: 4,368 modes of an Orin AGX), as a space.

        All GPU and memory clocks, even core counts (all if none is even), and every other CPU clock from the top
        without the two slowest (the greatest if there are fewer than three). The paper does not state from which end.
        """
        return PowerModeSpace(
            tuple(cores for cores in self.cpu_cores if cores % 2 == 0) or self.cpu_cores,
            self.cpu_khz[:1:-2][::-1] or self.cpu_khz[-1:],
            self.gpu_khz,
            self.mem_khz,
        )

    def nearest(self, mode: PowerMode) -> PowerMode:
        """The allowed mode nearest to a mode, in each dimension separately.

        Core counts are compared by difference, clocks by ratio (the difference of their logarithms). The lower of two
        equally near values is chosen.
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
        """The mode that results from a preset's core count and caps, by `clock_at_cap`; None is no cap."""
        cpu_cores, cpu_khz, gpu_khz, mem_khz = caps
        return PowerMode(
            cpu_cores or self.cpu_cores[-1],
            clock_at_cap(cpu_khz, self.cpu_khz),
            clock_at_cap(gpu_khz, self.gpu_khz, gpu_cap_rounds_up),
            clock_at_cap(mem_khz, self.mem_khz),
        )

    def check(self, mode: PowerMode) -> None:
        """Refuse a mode with a value that its dimension does not have, by InvalidValueError."""
        for field, value, values in zip(PowerMode._fields, mode, self.dimensions):
            if value not in values:
                allowed = ", ".join(map(str, values)) if len(values) <= 16 else f"{values[0]} ... {values[-1]}"
                raise InvalidValueError(
                    f"{field}={value} of power mode {mode.name} is not allowed here", f"allowed: {allowed}"
                )


def clock_at_cap(cap: Optional[int], allowed: Sequence[int], rounds_up: bool = False) -> int:
    """The greatest allowed clock not above a cap, with `rounds_up` the least not below it, in kHz; None is no cap."""
    if cap is None:
        return allowed[-1]
    if rounds_up:
        return next((khz for khz in allowed if khz >= cap), allowed[-1])
    return max((khz for khz in allowed if khz <= cap), default=allowed[0])


NEAREST = 3  # number of available modes that an error suggests


@dataclasses.dataclass(frozen=True)
class RecordedSpace(PowerModeSpace):
    """A set of power modes; its dimensions list the values that occur, of which not all combinations need exist."""

    modes: Tuple[PowerMode, ...] = ()  # all of them, ascending, none twice

    @classmethod
    def of(cls, modes: Iterable[PowerMode]) -> RecordedSpace:
        kept = tuple(sorted(set(modes)))
        if not kept:
            raise InvalidValueError("none of these power modes is recorded", "choose others")
        dimensions = (tuple(sorted(set(values))) for values in zip(*kept))
        return cls(*dimensions, modes=kept)  # type: ignore[misc]  # there are as many as fields before `modes`

    @functools.cached_property
    def _mode_set(self) -> FrozenSet[PowerMode]:
        return frozenset(self.modes)

    @property
    def greatest(self) -> PowerMode:
        """The mode with the greatest value of every dimension, or the recorded mode nearest to it."""
        corner = PowerMode(*(values[-1] for values in self.dimensions))
        return corner if corner in self else self.nearest(corner)

    def __len__(self) -> int:
        return len(self.modes)

    def __iter__(self) -> Iterator[PowerMode]:
        return iter(self.modes)

    def __contains__(self, mode: object) -> bool:
        return mode in self._mode_set

    def _at(self, index: int) -> PowerMode:
        return self.modes[index]

    def paper_grid(self) -> RecordedSpace:
        """The modes in the grid of the PowerTrain paper, made of the values that occur here."""
        grid = PowerModeSpace(*self.dimensions).paper_grid()
        return RecordedSpace.of([mode for mode in self.modes if mode in grid])

    def nearest(self, mode: PowerMode) -> PowerMode:
        return self.nearest_ones(mode, 1)[0]

    def nearest_ones(self, mode: PowerMode, count: int = NEAREST) -> List[PowerMode]:
        """The recorded modes nearest to a mode, by the sum of the ratios' absolute logarithms over four dimensions."""

        def distance(other: PowerMode) -> float:
            return sum(abs(math.log(max(here, 1) / max(there, 1))) for here, there in zip(other, mode))

        return sorted(self.modes, key=lambda other: (distance(other), other))[:count]

    def check(self, mode: PowerMode) -> None:
        """Refuse a mode that was not recorded, by InvalidValueError."""
        if mode not in self:
            near = ", ".join(other.name for other in self.nearest_ones(mode))
            raise InvalidValueError(
                f"power mode {mode.name} is not among the {len(self)} recorded ones", f"the nearest are {near}"
            )
