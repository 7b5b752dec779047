"""Defines the suite's fixtures, each under a short and a prefixed name, and tells them from others' of the same name.

pytest has no public way to ask whose definition of `device` a test uses, but it lists all fixtures that a test needs.
So each definition depends on fixtures whose names nobody else has:

    device          ->  _jetwatt_short_device, _jetwatt_device
    jetwatt_device  ->  _jetwatt_device  ->  the same of other fixtures of the suite
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Callable, Container, Dict, FrozenSet, Iterable, List, Sequence, Set, Tuple, TypeVar, overload

import pytest

Function = TypeVar("Function", bound=Callable[..., Any])

PREFIX = "jetwatt_"
_SHORT: Dict[str, Any] = {}  # the fixtures that have short names, by these
_DEPENDENCIES: Dict[str, FrozenSet[str]] = {}  # by short name: the suite's fixtures that one takes


def hidden(name: str) -> str:
    """The fixture that does the work of a public one, whatever definitions others have of its public name."""
    return f"_{PREFIX}{name}"


def _mark_of_short(name: str) -> str:
    return f"_{PREFIX}short_{name}"


@overload
def fixture(function: Function) -> Function: ...


@overload
def fixture(*, scope: str) -> Callable[[Function], Function]: ...


def fixture(function: Any = None, *, scope: str = "function") -> Any:
    """Define a fixture of the suite, as `pytest.fixture` does. It takes other ones by their short names.

    The function stays what it is: `short_fixtures` has the fixture of its name.
    """
    if function is None:
        return functools.partial(fixture, scope=scope)
    name, parameters = function.__name__, list(inspect.signature(function).parameters)
    taken = {parameter: hidden(parameter) if parameter in _DEPENDENCIES else parameter for parameter in parameters}
    _DEPENDENCIES[name] = frozenset(parameters) & set(_DEPENDENCIES)
    mark, module = _mark_of_short(name), function.__globals__

    def define(fixture_name: str, body: Callable[..., Any]) -> Any:
        return pytest.fixture(scope=scope, name=fixture_name)(body)  # type: ignore[call-overload]

    module[hidden(name)] = define(hidden(name), _with_names(function, taken))
    module[mark] = define(mark, lambda: None)
    prefixed = _handing_on(name, [hidden(name)], f"`{name}`, under a name that no other plugin has.")
    module[PREFIX + name] = define(PREFIX + name, prefixed)
    short = _handing_on(name, [hidden(name), mark], function.__doc__)
    short.__wrapped__ = function  # type: ignore[attr-defined] # where `pytest --fixtures` says that it is
    _SHORT[name] = define(name, short)
    return function


def short_fixtures(pluginmanager: pytest.PytestPluginManager) -> Tuple[types.ModuleType, Dict[str, str]]:
    """A plugin of the fixtures by short names, less those that another plugin has too, and its name for each of these.

    Of two plugins' fixtures pytest takes those that were registered last, also for the other plugin's own fixtures.
    Those of conftest files and test files go before both.
    """
    plugin, taken = types.ModuleType("jetwatt_short_fixtures"), {}
    others = [(name, other) for name, other in pluginmanager.list_name_plugin() if not name.endswith("conftest.py")]
    for name, fixture_of_name in _SHORT.items():
        owners = [owner for owner, other in others if _is_fixture(getattr(other, name, None))]
        if owners:
            taken[name] = owners[0]
        else:
            setattr(plugin, name, fixture_of_name)
    return plugin, taken


def _is_fixture(value: Any) -> bool:
    """Whether a value is what `pytest.fixture` returns: a function with a mark before pytest 8.4, then an object."""
    return hasattr(value, "_pytestfixturefunction") or hasattr(value, "_fixture_function_marker")


def public_fixtures(module: types.ModuleType) -> Dict[str, Any]:
    """The fixtures that a module defines, by short name."""
    return {name: one for name, one in _SHORT.items() if getattr(module, hidden(name), None) is not None}


def _with_names(function: Callable[..., Any], taken: Dict[str, str]) -> Callable[..., Any]:
    """A function whose parameters have other names: those of fixtures."""

    def call(values: Dict[str, Any]) -> Any:
        return function(**{parameter: values[name] for parameter, name in taken.items()})

    def generating(**values: Any) -> Any:
        yield from call(values)

    def returning(**values: Any) -> Any:
        return call(values)

    body: Callable[..., Any] = generating if inspect.isgeneratorfunction(function) else returning
    functools.update_wrapper(body, function)
    body.__signature__ = _signature(taken.values())  # type: ignore[attr-defined]
    return body


def _handing_on(name: str, taken: Sequence[str], text: Any) -> Callable[..., Any]:
    def body(**values: Any) -> Any:
        return values[taken[0]]

    body.__name__, body.__doc__ = name, text
    body.__signature__ = _signature(taken)  # type: ignore[attr-defined]
    return body


def _signature(names: Iterable[str]) -> inspect.Signature:
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])


def public_names_used(fixturenames: Container[str], replaced: Container[str] = ()) -> Set[str]:
    """The suite's fixtures that a test or its fixtures take by a public name, as short names.

    Args:
        fixturenames: all fixtures that pytest prepares for the test.
        replaced: names for which the test's own `parametrize` has values.
    """
    return {
        name
        for name in _DEPENDENCIES
        if (_mark_of_short(name) in fixturenames and name not in replaced)
        or (PREFIX + name in fixturenames and PREFIX + name not in replaced)
    }


def takes(name: str, node: Any) -> bool:
    """Whether a test needs one of the suite's fixtures, itself or through another fixture."""
    return hidden(name) in getattr(node, "fixturenames", ())


def need(names: Iterable[str], name: str) -> bool:
    """Whether one of the suite's fixtures is among some, or needed by one of them."""
    waiting: List[str] = list(names)
    while waiting:
        one = waiting.pop()
        if one == name:
            return True
        waiting += _DEPENDENCIES[one]
    return False


def short_name(name: str) -> str:
    """`device` for `jetwatt_device`; any other name as it is."""
    short = name[len(PREFIX) :]
    return short if name.startswith(PREFIX) and short in _DEPENDENCIES else name
