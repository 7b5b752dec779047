"""What a conf file of nvpmodel holds: parameters, power modes, the default mode.

    < PARAM TYPE=CLOCK NAME=GPU >            something that can be set: its arguments and the kernel files behind them
    MAX_FREQ /sys/devices/.../max_freq
    < POWER_MODEL ID=2 NAME=MODE_30W >       a mode: its settings, made in the order of the lines
    GPU MAX_FREQ 612000000
    < PM_CONFIG DEFAULT=2 >                  the mode of a board that was never set to one

`nvpmodel_grammar` reads and writes such files, `nvpmodel_modes` knows what the settings mean.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.errors import InvalidValueError, UnknownNameError

CLOCK = "CLOCK"
"""The type of PARAM whose values are whole numbers; -1 is no limit."""

HWMON = "HWMON"
"""The type of PARAM whose lines have a third word: the file below the directory."""

Attributes = Tuple[Tuple[str, str], ...]
"""KEY=VALUE pairs of a section's head, other than those that every such section has."""


class Argument(NamedTuple):
    """One thing of a PARAM that can be set, and the kernel file behind it (`node`: below `path`, for HWMON)."""

    name: str
    path: str
    node: str = ""


class Setting(NamedTuple):
    """One line of a mode."""

    param: str
    argument: str
    value: str


@dataclasses.dataclass(frozen=True)
class Param:
    """A PARAM section; its type is FILE (values are text), CLOCK (whole numbers), HWMON, or one not known here."""

    type: str
    name: str
    arguments: Tuple[Argument, ...] = ()
    attributes: Attributes = ()


@dataclasses.dataclass(frozen=True)
class PowerModel:
    """A POWER_MODEL section: a mode, its settings in the order in which they are made."""

    id: int
    name: str
    settings: Tuple[Setting, ...] = ()
    attributes: Attributes = ()

    def value(self, param: str, argument: str) -> Optional[str]:
        """What the mode sets an argument to in the end; None where it leaves it alone."""
        values = [setting.value for setting in self.settings if setting[:2] == (param, argument)]
        return values[-1] if values else None


@dataclasses.dataclass(frozen=True)
class OtherSection:
    """A section of a kind that nvpmodel has beside the three (FAN_CONFIG, ...), kept as it is."""

    kind: str
    attributes: Attributes = ()
    lines: Tuple[Tuple[str, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class Conf:
    """A whole file; `default` is None where the mandatory PM_CONFIG is missing."""

    params: Tuple[Param, ...] = ()
    models: Tuple[PowerModel, ...] = ()
    default: Optional[int] = None
    default_attributes: Attributes = ()
    others: Tuple[OtherSection, ...] = ()

    def param(self, name: str) -> Optional[Param]:
        """The PARAM of that name, if there is one."""
        return next((param for param in self.params if param.name == name), None)

    def model(self, name: str) -> PowerModel:
        """The mode of that name.

        Raises:
            UnknownNameError: there is none; lists those that there are.
            InvalidValueError: there are several.
        """
        named = [model for model in self.models if model.name == name]
        if not named:
            known = ", ".join(model.name for model in self.models)
            raise UnknownNameError(f"there is no power mode {name!r} in this conf", f"known: {known}")
        if len(named) > 1:
            raise InvalidValueError(
                f"power mode {name!r} stands {len(named)} times in this conf", "give each a name of its own"
            )
        return named[0]

    def declares(self, setting: Setting) -> bool:
        """Whether a PARAM section has the argument that a setting sets."""
        param = self.param(setting.param)
        return param is not None and any(argument.name == setting.argument for argument in param.arguments)

    def flaws(self) -> Iterator[str]:
        """What makes the file ambiguous, or points nowhere."""
        for what, names in (
            ("PARAM", [param.name for param in self.params]),
            ("power mode", [model.name for model in self.models]),
            ("power mode ID", [model.id for model in self.models]),
            *((f"argument of {param.name}", [argument.name for argument in param.arguments]) for param in self.params),
        ):
            for name in _repeated(names):
                yield f"{what} {name} stands there more than once"
        if self.default is None:
            yield "the mandatory < PM_CONFIG DEFAULT=n > is missing"
        elif all(model.id != self.default for model in self.models):
            yield f"the default mode {self.default} is none of the modes"


def _repeated(names: Sequence[Any]) -> List[Any]:
    return sorted({name for name in names if names.count(name) > 1})
