"""Settings: the candidates of a choice as arrays, each a power mode with a batch size, a task and a power limit."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, List, Optional, Sequence, TypeVar, Union

import numpy as np

from harness.core.corpus import TASKS
from harness.core.errors import InvalidValueError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace, name_under_limit
from harness.core.terminal import available_hint

ModesLike = Union[np.ndarray, Sequence[Sequence[int]], "Settings"]
BatchSizes = Union[int, Sequence[int], np.ndarray]
Tasks = Union[str, Sequence[str], np.ndarray]
PowerLimits = Union[None, float, Sequence[float], np.ndarray]
SettingsType = TypeVar("SettingsType", bound="Settings")

DEFAULT_BATCH_SIZE = 16  # 001 sec. 2.3

DIMENSIONS = (*PowerMode._fields, "batch_size", "power_limit_mw")
"""The columns of `Settings.table`."""

STAND_IN_KHZ = 1
"""What predictors take for a clock that the device does not report: equal in all rows, any number above 0 will do."""


@dataclasses.dataclass(frozen=True, eq=False)
class Settings:
    """n candidates as arrays; `Settings.of` checks them, everything behind it relies on that."""

    # power modes as float64 of shape (n, 4), columns as in `PowerMode`, clocks above 0
    modes: np.ndarray = dataclasses.field(repr=False)
    batch_size: np.ndarray = dataclasses.field(repr=False)  # samples per minibatch, float64 of shape (n,)
    task: Any = dataclasses.field(repr=False)  # `training` or `inference`: a text for all rows, or one for each
    # of a discrete GPU, float64 of shape (n,); None if the device has none
    power_limit_mw: Optional[np.ndarray] = dataclasses.field(repr=False)

    @staticmethod
    def of(
        modes: ModesLike,
        batch_size: BatchSizes = DEFAULT_BATCH_SIZE,
        task: Tasks = TASKS[0],
        power_limit_mw: PowerLimits = None,
    ) -> Settings:
        """The settings of power modes, with one batch size, task and power limit for all rows or one for each.

        A clock that is unknown (`UNKNOWN_KHZ`) in every row is one that the device does not report. Settings are
        returned as they are.

        Raises:
            InvalidValueError: the shapes do not agree, a value is not a number above 0, or a task is unknown.
        """
        if isinstance(modes, Settings):
            return modes
        table = as_numbers(modes, "power modes")
        if table.ndim != 2 or table.shape[1] != len(PowerMode._fields):
            raise InvalidValueError(
                f"power modes have shape {table.shape}, expected (n, 4)", f"columns are {', '.join(PowerMode._fields)}"
            )
        unreported = (table == UNKNOWN_KHZ).all(axis=0) & (np.arange(len(PowerMode._fields)) > 0)
        table = np.where(unreported, STAND_IN_KHZ, table)
        wrong = ~(np.isfinite(table) & (table > 0))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise InvalidValueError(
                f"power mode number {row} has {PowerMode._fields[column]} {table[row, column]:g}",
                "predictors need every core count and clock as a number above 0",
            )
        sizes = as_positive(batch_size, "batch_size", len(table))
        tasks = np.asarray(task, dtype=object)
        unknown = sorted({str(name) for name in _one_per_row(tasks, "task", len(table))} - set(TASKS))
        if unknown:
            raise InvalidValueError(f"task {unknown[0]!r} is unknown", available_hint(unknown[0], TASKS))
        limits_mw = None if power_limit_mw is None else as_positive(power_limit_mw, "power_limit_mw", len(table))
        return Settings(table, sizes, str(task) if tasks.ndim == 0 else tasks, limits_mw)

    def __len__(self) -> int:
        return len(self.modes)

    def take(self: SettingsType, rows: Any) -> SettingsType:
        """Some rows, given as an index of arrays."""
        arrays = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        kept = {name: values[rows] for name, values in arrays.items() if isinstance(values, np.ndarray)}
        return dataclasses.replace(self, **kept)

    @functools.cached_property
    def inference(self) -> np.ndarray:
        """Whether each row is inference, bool of shape (n,)."""
        return np.full(len(self), False) | (np.asarray(self.task, dtype=object) == TASKS[1]).astype(bool)

    @property
    def table(self) -> np.ndarray:
        """What tells rows of one task apart, shape (n, 6), columns as in `DIMENSIONS`; 0 without a power limit."""
        limits_mw = np.zeros(len(self)) if self.power_limit_mw is None else self.power_limit_mw
        return np.column_stack([self.modes, self.batch_size, limits_mw])

    @property
    def has_clocks(self) -> bool:
        """Whether the device reports any clock."""
        return bool((self.modes[:, 1:] > STAND_IN_KHZ).any())

    @property
    def has_several_sizes(self) -> bool:
        return bool((self.batch_size != self.batch_size[:1]).any())

    def space(self) -> PowerModeSpace:
        """The values that each dimension of a mode has in these rows; `STAND_IN_KHZ` for what is not reported."""
        return PowerModeSpace.spanned_by(self.modes.astype(np.int64).tolist())

    def mode(self, index: int) -> PowerMode:
        """The power mode of a row, with unknown clocks as the device has them."""
        cores, *clocks = map(int, self.modes[index])
        return PowerMode(cores, *(UNKNOWN_KHZ if khz == STAND_IN_KHZ else khz for khz in clocks))

    def limit_mw(self, index: int) -> Optional[int]:
        return None if self.power_limit_mw is None else int(self.power_limit_mw[index])

    def mode_name(self, index: int) -> str:
        """The mode of a row as text, with its power limit."""
        return name_under_limit(self.mode(index), self.limit_mw(index))

    def name(self, index: int) -> str:
        """As `mode_name`, with the batch size if there are several."""
        size = f", batch size {int(self.batch_size[index])}" if self.has_several_sizes else ""
        return self.mode_name(index) + size


def places_of_equals(rows: np.ndarray) -> List[np.ndarray]:
    """The indices of each distinct row of (n, d), in order of first appearance."""
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    ends = np.cumsum(np.bincount(group.reshape(-1)))[:-1]
    places = np.split(np.argsort(group.reshape(-1), kind="stable"), ends)
    return [places[number] for number in np.argsort(first)]


def as_numbers(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"{what} are not a table of numbers: {error}", "give them as arrays") from error


def as_positive(values: Any, what: str, count: int, or_one: bool = True) -> np.ndarray:
    """`count` numbers above 0; with `or_one`, a single one counts for all rows."""
    numbers = _one_per_row(as_numbers(values, what), what, count, or_one)
    wrong = ~(np.isfinite(numbers) & (numbers > 0))
    if wrong.any():
        raise InvalidValueError(
            f"{what} contains {numbers[wrong][0]:g}, expected numbers above 0", "drop modes without a figure"
        )
    return numbers


def _one_per_row(values: np.ndarray, what: str, count: int, or_one: bool = True) -> np.ndarray:
    if values.shape != (count,) and not (or_one and values.shape == ()):
        hint = "or give one value for all" if or_one else ""
        raise InvalidValueError(f"{what} has shape {values.shape}, expected one value for each of {count} modes", hint)
    return np.broadcast_to(values, (count,)).copy()


class Grid:
    """The distinct values of each of `DIMENSIONS` that the candidates have; a single one of what the device lacks.

    A combination that is not a candidate, or not `usable` (bool of shape (n,), all by default), is replaced by the
    nearest one. Later changes to `usable` count, too.
    """

    def __init__(self, candidates: Settings, usable: Optional[np.ndarray] = None) -> None:
        self.usable = np.ones(len(candidates.modes), dtype=bool) if usable is None else usable
        self._rows = candidates.table
        self._values = [np.unique(column) for column in self._rows.T]
        self.steps = np.column_stack([np.searchsorted(*pair) for pair in zip(self._values, self._rows.T)])
        self.shape = tuple(len(values) for values in self._values)  # number of values in each dimension

    def at(self, step: Sequence[float], among: Optional[np.ndarray] = None) -> int:
        """The candidate at a step of each dimension, or the nearest one: by steps, each as a share of its dimension.

        `among` restricts the choice, bool of shape (n,); all by default.
        """
        scale = np.maximum(np.array(self.shape) - 1.0, 1.0)
        distance = (np.abs(self.steps - np.asarray(step)) / scale).sum(axis=1)
        usable = self.usable if among is None else self.usable & among
        return int(np.where(usable, distance, np.inf).argmin())

    def greatest(self) -> int:
        """The candidate with the greatest value of every dimension, or the nearest to it."""
        return self.at([size - 1 for size in self.shape])

    def nearest(self, mode: Sequence[int]) -> int:
        """The candidate nearest to a mode, with the greatest batch size: clocks by ratio, cores by difference."""
        cores = np.abs(self._rows[:, 0] - mode[0]) / self._values[0][-1]
        clocks = np.abs(np.log(self._rows[:, 1:4] / Settings.of([mode]).modes[0, 1:])).sum(axis=1)
        ordered = np.lexsort((-self._rows[:, 4], cores + clocks))
        return int(ordered[self.usable[ordered]][0])
