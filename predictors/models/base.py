"""What every predictor is, scikit-learn's way: parameters in `__init__`, `fit`, `predict`; and the predictors by name.

What a predictor has learned is in attributes that end in `_`. Its module is imported when it is first asked for.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import inspect
from typing import Any, ClassVar, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np

from harness.core.corpus import TASKS
from harness.core.errors import InvalidValueError, NotFittedError, UnknownNameError
from harness.core.pareto import pareto_front
from harness.core.power_modes import PowerMode

ModesLike = Union[np.ndarray, Sequence[Sequence[int]]]
BatchSizes = Union[int, Sequence[int]]
Tasks = Union[str, Sequence[str]]
Some = TypeVar("Some", bound="Predictor")

DEFAULT_BATCH_SIZE = 16  # 001 sec. 2.3
LEAST_VARIED = 4  # profiled modes in which a setting of interest would have varied
ALL = "all"
DEFAULT = "physical-gp"  # where no predictor is named
MODULES: Dict[str, str] = {
    DEFAULT: "predictors.models.physical_gp",
    "powertrain": "predictors.models.powertrain",
    "nn": "predictors.models.networks",
    "ridge": "predictors.models.linear",
    "gbr": "predictors.models.scikit_learn",
    "random-forest": "predictors.models.scikit_learn",
    "decision-tree": "predictors.models.scikit_learn",
    "mlp": "predictors.models.scikit_learn",
    "linear": "predictors.models.linear",
    "linear-energy": "predictors.models.linear",
    "npe": "predictors.models.vendor_estimate",
}


class Inputs(NamedTuple):
    """What a predictor is asked for, checked."""

    modes: np.ndarray  # power modes as float64 of shape (n, 4), columns as in `PowerMode`, clocks in kHz
    batch_size: np.ndarray  # samples per minibatch, float64 of shape (n,)
    inference: np.ndarray  # whether the row is inference, bool of shape (n,)

    def take(self, rows: Any) -> Inputs:
        return Inputs(*(values[rows] for values in self))


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Time and power of n power modes with their uncertainty."""

    time_ms: np.ndarray  # median of the predictive distribution of the minibatch time, shape (n,)
    power_mw: np.ndarray  # the same of power
    time_log_sd: np.ndarray  # standard deviation of the natural logarithm of the time, shape (n,)
    power_log_sd: np.ndarray  # the same of power
    # degrees of freedom of the Student t distribution of log time and log power; infinite for a normal one
    freedom: float = float("inf")

    def time_interval_ms(self, level: float = 0.8) -> Tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the interval that holds a share `level` of the times to be measured."""
        return self._interval(self.time_ms, self.time_log_sd, level)

    def power_interval_mw(self, level: float = 0.8) -> Tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the interval that holds a share `level` of the powers to be measured."""
        return self._interval(self.power_mw, self.power_log_sd, level)

    def front(self, admitted: np.ndarray) -> np.ndarray:
        """The places of those admitted modes, bool of shape (n,), that no other of them is expected to beat."""
        return pareto_front(np.where(admitted, self.time_ms, np.nan), self.power_mw)

    def _interval(self, middle: np.ndarray, log_sd: np.ndarray, level: float) -> Tuple[np.ndarray, np.ndarray]:
        if not 0 < level < 1:
            raise InvalidValueError(f"the level of an interval lies between 0 and 1, got {level}")
        from scipy.stats import norm, t

        quantile = (1 + level) / 2
        reach = norm.ppf(quantile) if np.isinf(self.freedom) else t.ppf(quantile, self.freedom)
        factor = np.exp(reach * log_sd)
        return middle / factor, middle * factor


class TrainingRows(NamedTuple):
    """What a predictor was fitted on: checked rows with their times and powers, shape (n,).

    None is there twice, unless the predictor `learns_repeats`.
    """

    inputs: Inputs
    time_ms: np.ndarray
    power_mw: np.ndarray


class Predictor(abc.ABC):
    """From some profiled power modes to time and power of any power mode; a dataclass of its parameters."""

    name: ClassVar[str]  # what the command line calls it
    least_modes: ClassVar[int] = 1  # with fewer different modes it cannot be fitted; 0 where counts may do
    learns_repeats: ClassVar[bool] = False  # whether rows of one mode are entries of their own; else their medians are
    training_rows_: TrainingRows  # what it was fitted on

    def fit(
        self: Some,
        modes: ModesLike,
        time_ms: Sequence[float],
        power_mw: Optional[Sequence[float]] = None,
        *,
        batch_size: BatchSizes = DEFAULT_BATCH_SIZE,
        task: Tasks = "training",
    ) -> Some:
        """Learn from profiled modes, on one BLAS thread; returns itself.

        Args:
            modes: power modes, shape (n, 4), columns as in `PowerMode`, clocks in kHz.
            time_ms: minibatch times, shape (n,).
            power_mw: powers, shape (n,); None, or NaN in all rows, where only time was measured.
            batch_size: of all rows, or one for each.
            task: `training` or `inference`, of all rows, or one for each.

        Raises:
            InvalidValueError: the shapes do not agree, a value is not a number above 0, a mode is outside the
                predictor's space, or there are fewer different rows than `least_modes`.
        """
        rows = self._checked(modes, batch_size, task)
        time_ms = _positive(time_ms, "time_ms", len(rows.modes), or_one=False)
        if power_mw is None or np.isnan(_numbers(power_mw, "power_mw")).all():
            power_mw = np.full(len(rows.modes), np.nan)
        else:
            power_mw = _positive(power_mw, "power_mw", len(rows.modes), or_one=False)
        given = TrainingRows(rows, time_ms, power_mw)
        merged = TrainingRows(*merge_repeated(*given))
        if len(merged.time_ms) < self.least_modes:
            raise InvalidValueError(
                f"{self.name} cannot learn from {len(merged.time_ms)} different power modes",
                f"profile at least {self.least_modes}, or take another predictor",
            )
        learned = given if self.learns_repeats else merged
        with one_blas_thread():
            self._learn(*learned)
        self.training_rows_ = learned
        return self

    def predict(
        self, modes: ModesLike, *, batch_size: BatchSizes = DEFAULT_BATCH_SIZE, task: Tasks = "training"
    ) -> Prediction:
        """Time and power of power modes, given as in `fit`.

        Without a space any mode is answered, also one far from what was learned.

        Raises:
            InvalidValueError: the modes are not of that form, or outside the predictor's space.
            NotFittedError: nothing was learned yet.
        """
        rows = self._asked(modes, batch_size, task)
        with one_blas_thread():
            return self._infer(rows)

    def draw(
        self,
        modes: ModesLike,
        count: int,
        seed: int,
        *,
        batch_size: BatchSizes = DEFAULT_BATCH_SIZE,
        task: Tasks = "training",
    ) -> Prediction:
        """As `predict`, in `count` versions, each of which may be true as a whole: arrays of shape (count, n).

        Of a predictor that knows no more than its prediction, that alone, of shape (n,). Errors are as of `predict`.
        """
        rows = self._asked(modes, batch_size, task)
        with one_blas_thread():
            return self._draw(rows, count, seed)

    def _asked(self, modes: ModesLike, batch_size: BatchSizes, task: Tasks) -> Inputs:
        """The checked rows that a fitted predictor is asked for."""
        rows = self._checked(modes, batch_size, task)
        if not self.is_fitted:
            raise NotFittedError(f"{self.name} has learned nothing yet", "call fit first, or load a model")
        return rows

    def unprofiled(
        self, modes: ModesLike, *, batch_size: BatchSizes = DEFAULT_BATCH_SIZE, task: Tasks = "training"
    ) -> Dict[str, np.ndarray]:
        """What is asked, as in `predict`, that no profile tells of, and in which rows, bool of shape (n,).

        That is a batch size beyond those profiled, another task, and another value of a setting that never varied in
        `LEAST_VARIED` modes or more: of fewer, nothing else is to be expected.
        """
        if not hasattr(self, "training_rows_") or not len(self.training_rows_.time_ms):
            return {}
        asked, learned = self._checked(modes, batch_size, task), self.training_rows_.inputs
        sizes = learned.batch_size
        found = {
            "batch size": (asked.batch_size < sizes.min()) | (asked.batch_size > sizes.max()),
            "task": ~np.isin(asked.inference, learned.inference),
        }
        if len(learned.modes) >= LEAST_VARIED:
            for name, value, known in zip(PowerMode._fields, asked.modes.T, learned.modes.T):
                found[name] = (value != known[0]) if (known == known[0]).all() else np.zeros(len(value), dtype=bool)
        return {name: rows for name, rows in found.items() if rows.any()}

    def doubtful(self) -> np.ndarray:
        """Places, among `training_rows_`, of rows that all others contradict, where a predictor can tell."""
        return np.array([], dtype=int)

    @property
    def is_fitted(self) -> bool:
        return hasattr(self, "training_rows_")

    def _checked(self, modes: ModesLike, batch_size: BatchSizes, task: Tasks) -> Inputs:
        """The inputs, none outside the parameter `space` where a predictor has it and was given one."""
        rows, space = check_inputs(modes, batch_size, task), getattr(self, "space", None)
        if space is not None:
            allowed = [np.isin(column, values) for column, values in zip(rows.modes.T, space.dimensions)]
            for outside in np.flatnonzero(~np.all(allowed, axis=0))[:1]:
                space.check(PowerMode(*rows.modes[outside].astype(np.int64).tolist()))
        return rows

    @abc.abstractmethod
    def _learn(self, rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        """Learn from the training rows; set attributes that end in `_`. The same rows give the same result.

        Where no power was measured it is NaN in all rows, and so has what is predicted of it to be.
        """

    @abc.abstractmethod
    def _infer(self, rows: Inputs) -> Prediction:
        """Predict checked rows."""

    def _draw(self, rows: Inputs, count: int, seed: int) -> Prediction:
        """As `draw`, of checked rows."""
        return self._infer(rows)

    def get_params(self, deep: bool = True) -> Dict[str, Any]:
        """The parameters of `__init__` with their values, as scikit-learn asks for them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self: Some, **params: Any) -> Some:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidValueError(
                    f"{self.name} has no parameter {name!r}", f"it has {', '.join(known) or 'none'}"
                )
            setattr(self, name, value)
        return self

    def clone(self: Some) -> Some:
        """A predictor with the same parameters that has learned nothing."""
        return type(self)(**self.get_params())


def one_blas_thread() -> Any:
    """A context in which BLAS computes on one thread: its threads cost matrices this small more than they save.

    On two busy cores a fit on 10 modes took 2 s on one thread and 20 s on two.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


def check_inputs(modes: ModesLike, batch_size: BatchSizes, task: Tasks) -> Inputs:
    """Power modes, batch sizes and tasks in the form that predictors work with; refused where they make no sense."""
    table = _numbers(modes, "power modes")
    if table.ndim != 2 or table.shape[1] != len(PowerMode._fields):
        raise InvalidValueError(
            f"power modes have shape {table.shape}, expected (n, 4)", f"columns are {', '.join(PowerMode._fields)}"
        )
    wrong = ~(np.isfinite(table) & (table > 0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InvalidValueError(
            f"power mode number {row} has {PowerMode._fields[column]} {table[row, column]:g}",
            "predictors need every core count and clock to be known: a number above 0",
        )
    sizes = _positive(batch_size, "batch_size", len(table))
    tasks = _one_each(np.asarray(task, dtype=object), "task", len(table))
    unknown = sorted({str(name) for name in tasks} - set(TASKS))
    if unknown:
        raise InvalidValueError(f"task {unknown[0]!r} is unknown", f"available: {', '.join(TASKS)}")
    return Inputs(table, sizes, np.array([name == "inference" for name in tasks], dtype=bool))


def merge_repeated(rows: Inputs, time_ms: np.ndarray, power_mw: np.ndarray) -> Tuple[Inputs, np.ndarray, np.ndarray]:
    """Rows that were profiled more than once become one with the median of what was measured; order is kept."""
    places = places_of_equals(np.column_stack([rows.modes, rows.batch_size, rows.inference]))
    if len(places) == len(time_ms):
        return rows, time_ms, power_mw
    time_ms, power_mw = (np.array([np.median(values[one]) for one in places]) for values in (time_ms, power_mw))
    return rows.take([one[0] for one in places]), time_ms, power_mw


def places_of_equals(rows: np.ndarray) -> List[np.ndarray]:
    """Where each different row of (n, d) stands, in the order in which they first appear."""
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    ends = np.cumsum(np.bincount(group.reshape(-1)))[:-1]
    places = np.split(np.argsort(group.reshape(-1), kind="stable"), ends)
    return [places[number] for number in np.argsort(first)]


def _one_each(values: np.ndarray, what: str, count: int, or_one: bool = True) -> np.ndarray:
    if values.shape != (count,) and not (or_one and values.shape == ()):
        hint = "or give one value for all" if or_one else ""
        raise InvalidValueError(f"{what} has shape {values.shape}, expected one for each of {count} modes", hint)
    return np.broadcast_to(values, (count,)).copy()


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"{what} are no table of numbers: {error}", "give them as arrays") from error


def _positive(values: Any, what: str, count: int, or_one: bool = True) -> np.ndarray:
    numbers = _one_each(_numbers(values, what), what, count, or_one)
    wrong = ~(np.isfinite(numbers) & (numbers > 0))
    if wrong.any():
        raise InvalidValueError(
            f"{what} holds {numbers[wrong][0]:g}, expected numbers above 0", "leave out modes without a figure"
        )
    return numbers


def predictor_names(text: str) -> List[str]:
    return names_in(text, MODULES, "predictor")


def names_in(text: str, known: Iterable[str], what: str) -> List[str]:
    """The names in a list with commas, each once; `all` stands for all known ones, in their order."""
    every, names = list(known), []
    for name in text.split(","):
        if name != ALL and name not in every:
            raise UnknownNameError(f"{what} {name!r} is unknown", f"available: {', '.join(every)}; or {ALL}")
        names += every if name == ALL else [name]
    return list(dict.fromkeys(names))


def predictor_class(name: str) -> Type[Predictor]:
    if name not in MODULES:
        raise UnknownNameError(f"predictor {name!r} is unknown", f"available: {', '.join(MODULES)}")
    module = importlib.import_module(MODULES[name])
    return next(
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Predictor) and getattr(value, "name", None) == name
    )


def usual_batch_size(predictor: Predictor) -> int:
    """The batch size of most profiles that a predictor learned from."""
    sizes, counts = np.unique(predictor.training_rows_.inputs.batch_size, return_counts=True)
    return int(sizes[counts.argmax()]) if len(sizes) else DEFAULT_BATCH_SIZE


def admitted_rows(unprofiled: Dict[str, np.ndarray], count: int) -> np.ndarray:
    """Which of `count` rows are none that `Predictor.unprofiled` found, bool of shape (count,)."""
    return ~np.any([np.zeros(count, dtype=bool), *unprofiled.values()], axis=0)


def described_unprofiled(unprofiled: Dict[str, np.ndarray], left_out: bool = True) -> str:
    """A sentence on what `Predictor.unprofiled` found, and whether it is left out of the front."""
    asked = ", ".join(f"{name} ({rows.sum()} of {len(rows)} modes)" for name, rows in unprofiled.items())
    no_front = ", and no such mode is on the front" if left_out else ""
    return f"no profile tells of what is asked: {asked}; intervals are wide there{no_front}"


def make_predictor(kind: Type[Predictor], **offered: Any) -> Predictor:
    """A predictor with those of the offered parameters (`references`, `space`, `seed`, ...) that it has."""
    known = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in offered.items() if name in known})
