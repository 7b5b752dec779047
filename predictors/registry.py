"""The predictors by name; each is imported when it is first asked for, so that torch loads for neural ones only."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Dict, List, Type

from harness.errors import UnknownNameError
from predictors.protocol import Predictor

DEFAULT = "physical-gp"
"""The predictor that commands take where none is named."""

MODULES: Dict[str, str] = {
    DEFAULT: "predictors.physical_gp",
    "powertrain": "predictors.powertrain",
    "nn": "predictors.neural",
    "ridge": "predictors.ridge",
    "gbr": "predictors.boosting",
    "mlp": "predictors.perceptron",
    "linear": "predictors.linear",
    "linear-energy": "predictors.linear",
    "npe": "predictors.vendor_estimate",
}
"""The module of each predictor."""

ALL = "all"


def predictor_names(text: str) -> List[str]:
    """The names in a list with commas, each once; `all` stands for every predictor.

    Raises:
        UnknownNameError: one is unknown; lists the known ones.
    """
    names: List[str] = []
    for name in text.split(","):
        if name == ALL:
            names += MODULES
        elif name in MODULES:
            names.append(name)
        else:
            raise UnknownNameError(f"predictor {name!r} is unknown", f"known: {', '.join(MODULES)}; or {ALL}")
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
