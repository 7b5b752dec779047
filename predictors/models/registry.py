"""The predictors by name; each is imported when it is first asked for, so that torch loads for neural ones only."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Dict, Iterable, List, Type

from harness.core.errors import UnknownNameError
from predictors.models.protocol import Predictor

DEFAULT = "physical-gp"
"""The predictor that commands take where none is named."""

MODULES: Dict[str, str] = {
    DEFAULT: "predictors.models.physical_gp",
    "powertrain": "predictors.models.powertrain",
    "nn": "predictors.models.neural",
    "ridge": "predictors.models.ridge",
    "gbr": "predictors.models.boosting",
    "mlp": "predictors.models.perceptron",
    "linear": "predictors.models.linear",
    "linear-energy": "predictors.models.linear",
    "npe": "predictors.models.vendor_estimate",
}
"""The module of each predictor."""

ALL = "all"


def predictor_names(text: str) -> List[str]:
    """The predictors in a list with commas, as `names_in` reads it."""
    return names_in(text, MODULES, "predictor")


def names_in(text: str, known: Iterable[str], what: str) -> List[str]:
    """The names in a list with commas, each once; `all` stands for every one that is known.

    Args:
        text: the list.
        known: every name, in the order in which `all` gives them.
        what: what they are names of, for the message.

    Raises:
        UnknownNameError: one is unknown; lists the known ones.
    """
    every, names = list(known), []
    for name in text.split(","):
        if name != ALL and name not in every:
            raise UnknownNameError(f"{what} {name!r} is unknown", f"known: {', '.join(every)}; or {ALL}")
        names += every if name == ALL else [name]
    return list(dict.fromkeys(names))


def predictor_class(name: str) -> Type[Predictor]:
    """The class of a predictor.

    Raises:
        UnknownNameError: there is no such predictor; lists the known ones.
    """
    if name not in MODULES:
        raise UnknownNameError(f"predictor {name!r} is unknown", f"known: {', '.join(MODULES)}")
    module = importlib.import_module(MODULES[name])
    return next(
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Predictor) and getattr(value, "name", None) == name
    )


def make_predictor(kind: Type[Predictor], **offered: Any) -> Predictor:
    """A predictor with those of the offered parameters that it has, and its own defaults for the rest.

    Args:
        kind: its class.
        offered: `references`, `space`, `seed`, ...: what any predictor may want.
    """
    known = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in offered.items() if name in known})
