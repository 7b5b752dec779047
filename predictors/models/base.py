"""The base class of predictors, in scikit-learn's style: `__init__`, `fit`, `predict`; fitted attributes end in `_`."""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
import math
import numbers
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ClassVar,
    Dict,
    Iterable,
    List,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    cast,
)

import numpy as np

from harness.core.errors import InvalidValueError, NotFittedError, UnknownNameError
from harness.core.power_modes import PowerMode
from harness.core.terminal import available_hint
from harness.core.units import w_to_mw
from predictors.forecast import Forecast
from predictors.profiles import Profiles
from predictors.settings import (
    DEFAULT_BATCH_SIZE,
    BatchSizes,
    ModesLike,
    PowerLimits,
    Settings,
    Tasks,
    as_numbers,
    as_positive,
)

if TYPE_CHECKING:
    from sklearn.utils import Tags

Numbers = Union[Sequence[float], np.ndarray]
Some = TypeVar("Some", bound="Predictor")
Call = TypeVar("Call", bound=Callable[..., Any])

LEAST_VARIED = 4  # profiled modes from which on a setting that never varied counts as fixed
ALL = "all"


class Predictor(abc.ABC):
    """Predicts time and power of any power mode from a few profiled ones; a dataclass of its parameters.

    Parameters, `clone`, tags and the fitted state follow scikit-learn, and its checks of them hold. Its checks of
    fitting do not, because they make tables of any shape and one target: a predictor takes four positive columns and
    two figures, returns a `Forecast`, and its errors are the suite's. `test_scikit_learn_checks.py` lists each with
    the reason, and runs them on four columns taken from such tables.
    """

    name: ClassVar[str]  # on the command line
    least_modes: ClassVar[int] = 1  # the least number of distinct modes to fit on; 0 if counts can replace them
    learns_repeats: ClassVar[bool] = False  # whether repeated rows of a mode are kept; otherwise their median is used
    training_rows_: Profiles  # what it was fitted on: distinct rows, unless the predictor `learns_repeats`

    def fit(
        self: Some,
        modes: ModesLike,
        time_ms: Optional[Numbers] = None,
        power_mw: Optional[Numbers] = None,
        *,
        batch_size: BatchSizes = DEFAULT_BATCH_SIZE,
        task: Tasks = "training",
        power_limit_mw: PowerLimits = None,
    ) -> Some:
        """Fit to profiled modes, on one BLAS thread; returns itself.

        Args:
            modes: power modes, shape (n, 4), columns as in `PowerMode`, clocks in kHz; or `Profiles` alone, which have
                all the rest.
            time_ms: minibatch times, shape (n,).
            power_mw: powers, shape (n,); None, or NaN in all rows, if only time was measured.
            batch_size: one value for all rows, or one per row.
            task: `training` or `inference`, one value for all rows, or one per row.
            power_limit_mw: power limits of a discrete GPU, likewise; None for a device without any.

        Raises:
            InvalidValueError: the shapes do not agree, a value is not a number above 0, a mode is outside the
                predictor's space, or there are fewer distinct rows than `least_modes`.
        """
        rows = self._checked(modes, batch_size, task, power_limit_mw)
        if isinstance(rows, Profiles) and time_ms is None:
            given = rows
        else:
            time_ms = as_positive(time_ms, "time_ms", len(rows), or_one=False)
            if power_mw is None or np.isnan(as_numbers(power_mw, "power_mw")).all():
                power_mw = np.full(len(rows), np.nan)
            else:
                power_mw = as_positive(power_mw, "power_mw", len(rows), or_one=False)
            given = Profiles.at(rows, time_ms, power_mw)
        merged = given.merged()
        if len(merged) < self.least_modes:
            raise InvalidValueError(
                f"{self.name} cannot learn from {len(merged)} different power modes",
                f"profile at least {self.least_modes}, or use another predictor",
            )
        learned = given.by_minibatch() if self.learns_repeats else merged
        with one_blas_thread():
            self._learn(learned, learned.time_ms, learned.power_mw)
        self.training_rows_ = learned
        return self

    def predict(
        self,
        modes: ModesLike,
        *,
        batch_size: BatchSizes = DEFAULT_BATCH_SIZE,
        task: Tasks = "training",
        power_limit_mw: PowerLimits = None,
    ) -> Forecast:
        """Predict time and power of power modes, given as in `fit`.

        A predictor without a space accepts any mode, even far from the training rows.

        Raises:
            InvalidValueError: the modes do not have that form, or are outside the predictor's space.
            NotFittedError: `fit` was not called.
        """
        rows = self._fitted_settings(modes, batch_size, task, power_limit_mw)
        with one_blas_thread():
            forecast = self._infer(rows)
        return dataclasses.replace(forecast, unprofiled=self._outside(rows))

    def draw(
        self,
        modes: ModesLike,
        count: int,
        seed: int,
        *,
        batch_size: BatchSizes = DEFAULT_BATCH_SIZE,
        task: Tasks = "training",
        power_limit_mw: PowerLimits = None,
    ) -> Forecast:
        """Draw `count` joint samples from the predictive distribution: arrays of shape (count, n).

        A predictor without a joint distribution returns its prediction, of shape (n,). Errors are those of `predict`.
        """
        rows = self._fitted_settings(modes, batch_size, task, power_limit_mw)
        with one_blas_thread():
            forecast = self._draw(rows, count, seed)
        return dataclasses.replace(forecast, unprofiled=self._outside(rows))

    def _fitted_settings(
        self, modes: ModesLike, batch_size: BatchSizes, task: Tasks, power_limit_mw: PowerLimits
    ) -> Settings:
        """The validated inputs; refused unless the predictor is fitted, with power limits or without as they are."""
        rows = self._checked(modes, batch_size, task, power_limit_mw)
        if not self.is_fitted:
            raise NotFittedError(f"{self.name} is not fitted", "call fit first, or load a model")
        learned = self.training_rows_ if hasattr(self, "training_rows_") else None
        if learned and len(learned.modes) and (learned.power_limit_mw is None) != (rows.power_limit_mw is None):
            fitted, requested = ("without", "with") if learned.power_limit_mw is None else ("with", "without")
            raise InvalidValueError(
                f"{self.name} was fitted {fitted} power limits, requested {requested}", "give power_limit_mw for both"
            )
        return rows

    def unprofiled(
        self,
        modes: ModesLike,
        *,
        batch_size: BatchSizes = DEFAULT_BATCH_SIZE,
        task: Tasks = "training",
        power_limit_mw: PowerLimits = None,
    ) -> Dict[str, np.ndarray]:
        """Inputs outside the profiled range: their names, each with the rows concerned, bool of shape (n,).

        These are a batch size beyond the profiled ones, another task, and another value of a setting that had a single
        value in `LEAST_VARIED` modes or more; with fewer modes a setting is not expected to vary.
        """
        return self._outside(self._checked(modes, batch_size, task, power_limit_mw))

    def _outside(self, requested: Settings) -> Dict[str, np.ndarray]:
        """As `unprofiled`, of validated settings."""
        if not hasattr(self, "training_rows_") or not len(self.training_rows_):
            return {}
        learned = self.training_rows_
        sizes = learned.batch_size
        outside = {
            "batch size": (requested.batch_size < sizes.min()) | (requested.batch_size > sizes.max()),
            "task": ~np.isin(requested.inference, learned.inference),
        }
        if len(learned.modes) >= LEAST_VARIED:
            settings = list(zip(PowerMode._fields, requested.modes.T, learned.modes.T))
            if requested.power_limit_mw is not None:
                settings.append(("power_limit_mw", requested.power_limit_mw, learned.power_limit_mw))
            for name, value, profiled in settings:
                outside[name] = (
                    (value != profiled[0]) if (profiled == profiled[0]).all() else np.zeros(len(value), dtype=bool)
                )
        return {name: rows for name, rows in outside.items() if rows.any()}

    def doubtful(self) -> np.ndarray:
        """Indices into `training_rows_` of outliers, if the predictor detects them."""
        return np.array([], dtype=int)

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` was called."""
        return hasattr(self, "training_rows_")

    def _checked(
        self, modes: ModesLike, batch_size: BatchSizes, task: Tasks, power_limit_mw: PowerLimits = None
    ) -> Settings:
        """The validated inputs; modes outside the predictor's `space`, if it has one, are refused."""
        rows, space = Settings.of(modes, batch_size, task, power_limit_mw), getattr(self, "space", None)
        if space is not None:
            allowed = [np.isin(column, values) for column, values in zip(rows.modes.T, space.dimensions)]
            for outside in np.flatnonzero(~np.all(allowed, axis=0))[:1]:
                space.check(PowerMode(*rows.modes[outside].astype(np.int64).tolist()))
        return rows

    @abc.abstractmethod
    def _learn(self, rows: Settings, time_ms: np.ndarray, power_mw: np.ndarray) -> None:
        """Fit to the training rows and set attributes that end in `_`; deterministic.

        Without measured power, `power_mw` is NaN in all rows, and predicted power must be NaN as well.
        """

    @abc.abstractmethod
    def _infer(self, rows: Settings) -> Forecast:
        """Predict validated rows."""

    def _draw(self, rows: Settings, count: int, seed: int) -> Forecast:
        """As `draw`, for validated rows."""
        return self._infer(rows)

    def get_params(self, deep: bool = True) -> Dict[str, Any]:
        """The parameters of `__init__` with their values, in scikit-learn's convention."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # every predictor is a dataclass, this base is none
        return {field.name: getattr(self, field.name) for field in fields}

    def set_params(self: Some, **params: Any) -> Some:
        """Change parameters, and return the predictor; InvalidValueError for an unknown one."""
        current = self.get_params()
        for name, value in params.items():
            if name not in current:
                hint = available_hint(name, current) if current else "it has none"
                raise InvalidValueError(f"{self.name} has no parameter {name!r}", hint)
            setattr(self, name, value)
        return self

    def clone(self: Some) -> Some:
        """An unfitted predictor with the same parameters."""
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn reads of an estimator from version 1.6 on: a regressor of positive inputs and targets."""
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, positive_only=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(positive_only=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted


def one_blas_thread() -> Any:
    """A context in which BLAS runs on one thread: for matrices this small more threads cost more than they save.

    On two busy cores a fit on 10 modes took 2 s on one thread and 20 s on two.
    """
    return _blas_libraries().limit(limits=1)


@functools.lru_cache(maxsize=None)
def _blas_libraries() -> Any:
    """Every BLAS of this process. Searching its libraries takes 3 to 6 ms, as long as a small fit."""
    import scipy.linalg  # noqa: F401  # has a BLAS of its own, which has to be there before the search
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def check_number(name: str, value: Any, least: float = 0, *, above: bool = False, whole: bool = False) -> None:
    """Refuse what is not a finite number.

    Args:
        name: of the argument, for the error; a command shows its option instead (`harness.cli.command_line`).
        value: what was given; None, an argument that was omitted, passes.
        least: the least allowed number.
        above: whether that number itself is refused too.
        whole: whether fractions are refused.

    Raises:
        InvalidValueError: the value is no such number.
    """
    if value is None:
        return
    is_number = _is_number(value)
    is_kind = is_number and (not whole or isinstance(value, numbers.Integral))
    if is_kind and (least < value < math.inf or (value == least and not above)):
        return
    kind = "a whole number" if whole else "a number"
    if is_number and not math.isfinite(value):
        kind = "a finite number"
    expected = f"{kind} above {least:g}" if above else f"{kind}, {least:g} or more"
    raise InvalidValueError(f"{name} is {_shown(value)}, expected {expected}")


def check_probability(name: str, value: Any, *, certain: bool = True) -> None:
    """Refuse what is not a number from 0 to 1; with `certain` false, 0 and 1 too. None passes."""
    if value is None:
        return
    is_probability = _is_number(value) and 0 <= value <= 1
    if not is_probability or (value in (0, 1) and not certain):
        raise InvalidValueError(f"{name} is {_shown(value)}, expected a probability between 0 and 1")


def check_numbers(least: float = 0, *, above: bool = False, whole: bool = False, **arguments: Any) -> None:
    """As `check_number`, of arguments by their names; each is a number, a list of numbers, or None."""
    for name, given in arguments.items():
        for value in given if isinstance(given, list) else [given]:
            check_number(name, value, least, above=above, whole=whole)


def check_kind(kind: type, **arguments: Any) -> None:
    """Refuse arguments, by their names, that are not of a class of settings, such as a number for `Runs`."""
    for name, given in arguments.items():
        if not isinstance(given, kind):
            raise InvalidValueError(
                f"{name} is {_shown(given)}, expected {kind.__name__}(...)", f"from jetwatt import {kind.__name__}"
            )


def checks_names(call: Call) -> Call:
    """A decorator: a misspelt argument of a call, or of a class, is an error with the names that there are."""
    function: Callable[..., Any] = call.__init__ if isinstance(call, type) else call  # type: ignore[misc]
    names = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def checked(*values: Any, **arguments: Any) -> Any:
        refuse_unknown_arguments(call.__name__, arguments, names)
        return function(*values, **arguments)

    if not isinstance(call, type):
        return cast(Call, checked)
    call.__init__ = checked  # type: ignore[misc]
    return call


def refuse_unknown_arguments(call: str, arguments: Iterable[str], names: Sequence[str]) -> None:
    for name in arguments:
        if name not in names:
            raise UnknownNameError(f"{call} has no argument {name!r}", available_hint(name, names))


class CallSettings:
    """The base of dataclasses that calls take: shown with what differs from the defaults only."""

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in changed_in(self).items())
        return f"{type(self).__name__}({given})"


def changed_in(settings: Any) -> Dict[str, Any]:
    """The fields of a dataclass that differ from their defaults, by name."""
    values = {field.name: (getattr(settings, field.name), field.default) for field in dataclasses.fields(settings)}
    return {name: value for name, (value, default) in values.items() if repr(value) != repr(default)}  # arrays, too


def unread_in(kind: Type[Any], *read: str) -> Tuple[str, ...]:
    """The fields of a dataclass of settings but those that a call reads: a new field is refused until it is read."""
    return tuple(field.name for field in dataclasses.fields(kind) if field.name not in read)


def refuse_unread(settings: Any, call: str, *names: str) -> None:
    """Refuse fields of a dataclass of settings that a call does not read, if one differs from its default."""
    for name in changed_in(settings):
        if name in names:
            raise InvalidValueError(f"{name}= has no effect in {call}", "omit it")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return f"{value:g}" if _is_number(value) else repr(value)


def numbers_in(given: Any) -> List[Any]:
    """A number, several, or None for none, as a list; not checked yet."""
    if given is None:
        return []
    return [given] if isinstance(given, (numbers.Real, str)) else list(given)


def names_in(text: str, available: Iterable[str], what: str) -> List[str]:
    """The names in a comma-separated list, each once; `all` means all available ones, in their order."""
    available_names, names = list(available), []
    for name in text.split(","):
        if name != ALL and name not in available_names:
            raise UnknownNameError(f"{what} {name!r} is unknown", f"{available_hint(name, available_names)}; or {ALL}")
        names += available_names if name == ALL else [name]
    return list(dict.fromkeys(names))


def usual_batch_size(predictor: Predictor) -> int:
    """The most frequent batch size among the training rows of a predictor."""
    sizes, counts = np.unique(predictor.training_rows_.batch_size, return_counts=True)
    return int(sizes[counts.argmax()]) if len(sizes) else DEFAULT_BATCH_SIZE


def limits_mw_of(predictor: Predictor, power_limit: PowerLimits) -> Optional[np.ndarray]:
    """The power limits in mW to predict, by default the profiled ones; None if the profiles have none."""
    profiled_mw = predictor.training_rows_.power_limit_mw
    if profiled_mw is None:
        if power_limit is not None:
            raise InvalidValueError("the predictor was fitted to profiles without power limits", "omit power_limit=")
        return None
    if power_limit is None:
        return np.unique(profiled_mw).astype(np.int64)
    limits_w = [power_limit] if isinstance(power_limit, (int, float)) else list(power_limit)
    if not limits_w or min(limits_w) <= 0:
        raise InvalidValueError(f"power_limit is {power_limit!r}, expected W above 0", "100, or several: [100, 150]")
    return np.array([round(w_to_mw(limit_w)) for limit_w in limits_w], dtype=np.int64)
