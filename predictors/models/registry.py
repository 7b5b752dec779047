"""The predictors by name: the suite's, and those that installed packages bring by entry points."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Dict, List, Type

from harness.core.entry_points import EntryPoint, entry_points
from harness.core.errors import DependencyError, InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint
from predictors.models.base import Predictor, names_in

ENTRY_POINTS = "jetwatt.predictors"  # the group of entry points: `my-model = "my_package.models:MyModel"`
DEFAULT = "physical-gp"  # if no predictor is named
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
"""Modules of the suite's predictors, each imported on first use."""

OFFERED = ("references", "space", "board", "workload", "hierarchy", "counts", "seed")
"""Parameters that are offered to every predictor, and dropped where it has none of the name."""


def known_predictors() -> List[str]:
    """All names, the suite's own first; nothing is imported."""
    return list(dict.fromkeys([*MODULES, *(point.name for point in entry_points(ENTRY_POINTS))]))


def predictor_names(text: str) -> List[str]:
    """The predictors in a comma-separated list, as of `names_in`."""
    return names_in(text, known_predictors(), "predictor")


def predictor_class(name: str) -> Type[Predictor]:
    """The class of a predictor by its name, such as `physical-gp`; UnknownNameError lists the names."""
    if name in MODULES:
        module = importlib.import_module(MODULES[name])
        return next(
            value
            for value in vars(module).values()
            if inspect.isclass(value) and issubclass(value, Predictor) and getattr(value, "name", None) == name
        )
    points = [point for point in entry_points(ENTRY_POINTS) if point.name == name]
    if not points:
        raise UnknownNameError(f"predictor {name!r} is unknown", available_hint(name, known_predictors()))
    if len(points) > 1:
        packages = " and ".join(f"{point.package} ({point.value})" for point in points)
        raise InvalidValueError(f"predictor {name!r} is declared by {packages}", "uninstall one of them")
    return _loaded(points[0])


def _loaded(point: EntryPoint) -> Type[Predictor]:
    what = f"predictor {point.name!r} of package {point.package}"
    try:
        kind = point.load()
    except (Exception, SystemExit) as error:
        raise DependencyError(
            f"{what} cannot be loaded: {point.value}: {type(error).__name__}: {error}", "fix or uninstall that package"
        ) from error
    if not (inspect.isclass(kind) and issubclass(kind, Predictor)):
        raise InvalidValueError(f"{what}: {point.value} is not a predictor", "NAME = a subclass of Predictor")
    if getattr(kind, "name", None) != point.name:
        own = getattr(kind, "name", None)
        raise InvalidValueError(f"{what} has the name {own!r}", f"its attribute name must be {point.name!r}")
    return kind


def parameters_of(kind: Type[Predictor]) -> List[str]:
    """The parameters of a predictor's `__init__`."""
    return list(inspect.signature(kind.__init__).parameters)[1:]  # that of a class is its __new__'s in Python 3.8


def make_predictor(kind: Type[Predictor], **parameters: Any) -> Predictor:
    """A predictor with the given parameters; those of `OFFERED` are dropped where it has none of the name.

    Raises:
        InvalidValueError: the predictor has no such parameter.
    """
    own = parameters_of(kind)
    for name in parameters:
        if name not in own and name not in OFFERED:
            hint = available_hint(name, own) if own else "it has none"
            raise InvalidValueError(f"{kind.name} has no parameter {name!r}", hint)
    return kind(**{name: value for name, value in parameters.items() if name in own})


def own_parameters(predictor: Predictor) -> Dict[str, Any]:
    """The parameters that a predictor was made with, by name, except those of `OFFERED`."""
    own = [name for name in parameters_of(type(predictor)) if name not in OFFERED]
    return {name: getattr(predictor, name) for name in own}
