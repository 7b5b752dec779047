"""From the tables of a spec file to a `BoardSpec`: keys are known and values of their kind, or the error names them."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, get_type_hints

from harness.core.boards.spec import BoardSpec, ClockLists, CpuCluster, Gpu, Memory, Preset, Rails
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.power_modes import PowerMode
from harness.core.units import mhz_to_khz

_RANGE = {"from", "to", "step"}
_LISTS = ("cpu_khz", "gpu_khz", "mem_khz")

Made = TypeVar("Made")


def variants_of(content: Mapping[str, Any]) -> List[str]:
    """The names of the variants in a spec file, the default one first.

    Raises:
        InvalidValueError: the file names none.
    """
    if not isinstance(content.get("variant"), str):
        raise InvalidValueError("variant is missing", "give the default variant a name")
    return [content["variant"], *_table(content.get("variants", {}), "variants")]


def parse_board(name: str, content: Mapping[str, Any], variant: str = "") -> BoardSpec:
    """Make the spec of a variant out of a file's content.

    The top level describes the default variant. A table `[variants.NAME]` has what differs: a value or a list replaces
    the one above, a table replaces key by key. A list of clocks may hold ranges `{ from, to, step }`, ends included.

    Args:
        name: the board's.
        content: what the file holds.
        variant: which one; empty for the default.

    Raises:
        UnknownNameError: there is no such variant, or a key is unknown; lists the known ones.
        InvalidValueError: a key is missing or a value is not what it should be; names it.
    """
    known = variants_of(content)
    variant = variant or known[0]
    if variant not in known:
        raise UnknownNameError(f"variant {variant!r} of {name} is unknown", f"known: {', '.join(known)}")
    table = {key: value for key, value in content.items() if key not in ("variant", "variants")}
    if variant != known[0]:
        own = _table(content["variants"][variant], f"variants.{variant}")
        if not {"part_numbers", "marks"} & set(own):
            raise InvalidValueError(f"variants.{variant} has neither part_numbers nor marks to tell it by")
        table = _overlaid(table, own)
    spec = _parse(name, variant, table)
    _check(spec)
    return spec


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> Dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(below.get(key), dict)
        merged[key] = _overlaid(below[key], value) if both else value
    return merged


def _parse(name: str, variant: str, table: Dict[str, Any]) -> BoardSpec:
    cpu = dict(_table(table.pop("cpu", None), "cpu"))
    clusters = _tables(cpu.pop("clusters", None), "cpu.clusters")
    parts = {
        "name": name,
        "variant": variant,
        "cpu_name": cpu.pop("name", None),
        "cpu_clusters": tuple(_fill(CpuCluster, cluster, f"cpu.clusters {n}") for n, cluster in enumerate(clusters)),
        "gpu": _fill(Gpu, table.pop("gpu", None), "gpu"),
        "memory": _fill(Memory, table.pop("memory", None), "memory"),
        "clocks": _fill(ClockLists, table.pop("clocks", None), "clocks"),
        "rails": _fill(Rails, table.pop("rails", None), "rails"),
        "presets": tuple(
            _fill(Preset, preset, f"presets {n}")
            for n, preset in enumerate(_tables(table.pop("presets", []), "presets"))
        ),
        "named_modes": tuple(
            (key, _named_mode(key, value)) for key, value in _table(table.pop("named_modes", {}), "named_modes").items()
        ),
    }
    _refuse_unknown(cpu, ("name", "clusters"), "cpu")
    return _fill(BoardSpec, {**table, **parts}, "the file")


def _fill(made: Type[Made], table: Any, where: str) -> Made:
    """An instance of a dataclass from a table with its fields as keys."""
    values = dict(_table(table, where))
    fields = {field.name: field for field in dataclasses.fields(made)}
    _refuse_unknown(values, tuple(fields), where)
    kinds = get_type_hints(made)
    for key, field in fields.items():
        if key in values:
            values[key] = _value(values[key], kinds[key], f"{key} in {where}")
        elif field.default is dataclasses.MISSING:
            raise InvalidValueError(f"{key} is missing in {where}")
    return made(**values)


def _value(value: Any, kind: Any, where: str) -> Any:
    if kind == Tuple[int, ...]:
        return _numbers(value, where)
    if kind == Tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise InvalidValueError(f"{where} must be a list of texts, got {value!r}")
        return tuple(value)
    if kind in (int, Optional[int]):
        return _number(value, where)
    if kind in (bool, Optional[bool]):
        if not isinstance(value, bool):
            raise InvalidValueError(f"{where} must be true or false, got {value!r}")
    elif kind is str and not isinstance(value, str):
        raise InvalidValueError(f"{where} must be a text, got {value!r}")
    return value


def _number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValueError(f"{where} must be a whole number from 0 up, got {value!r}")
    return value


def _numbers(value: Any, where: str) -> Tuple[int, ...]:
    if not isinstance(value, list):
        raise InvalidValueError(f"{where} must be a list, got {value!r}")
    numbers: List[int] = []
    for entry in value:
        if isinstance(entry, dict):
            if set(entry) != _RANGE:
                raise InvalidValueError(f"{where}: a range has the keys from, to and step, got {entry!r}")
            first, last, step = (_number(entry[key], where) for key in ("from", "to", "step"))
            if step == 0 or last < first or (last - first) % step:
                raise InvalidValueError(f"{where}: no whole number of steps leads from {first} to {last} in {step}")
            numbers += range(first, last + 1, step)
        else:
            numbers.append(_number(entry, where))
    if any(low >= high for low, high in zip(numbers, numbers[1:])):
        raise InvalidValueError(f"{where} must be strictly ascending, got {numbers}")
    return tuple(numbers)


def _named_mode(name: str, value: Any) -> PowerMode:
    if not isinstance(value, list) or len(value) != len(PowerMode._fields):
        raise InvalidValueError(f"named mode {name} must be cores and the MHz of CPU, GPU and memory, got {value!r}")
    cores, *clocks = (_number(number, f"named mode {name}") for number in value)
    return PowerMode(cores, *map(mhz_to_khz, clocks))


def _check(spec: BoardSpec) -> None:
    """Refuse what contradicts itself."""
    cores = [core for cluster in spec.cpu_clusters for core in cluster.cores]
    if sorted(cores) != list(range(len(cores))) or not cores:
        raise InvalidValueError(f"the clusters must hold each core from 0 up once, got {cores}")
    names = [preset.name.lower() for preset in spec.presets]
    for preset in spec.presets:
        if not 1 <= preset.cpu_cores <= len(cores):
            raise InvalidValueError(f"preset {preset.name} has {preset.cpu_cores} cores, the board has {len(cores)}")
        if names.count(preset.name.lower()) > 1:
            raise InvalidValueError(f"preset {preset.name} stands there twice")
    for key in ("default_preset", "papers_mode"):
        name = getattr(spec, key)
        if name and name.lower() not in names:
            raise InvalidValueError(f"{key} {name!r} is no preset", f"there are {', '.join(names)}")
    _refuse_unknown(dict.fromkeys(spec.clocks.incomplete), _LISTS, "clocks.incomplete")
    _refuse_unknown(dict.fromkeys(spec.rails.total), spec.rails.labels, "rails.total")


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidValueError(f"{where} must be a table, got {value!r}")
    return value


def _tables(value: Any, where: str) -> List[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise InvalidValueError(f"{where} must be a list of tables, got {value!r}")
    return [_table(entry, where) for entry in value]


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        raise UnknownNameError(f"{unknown[0]!r} in {where} is unknown", f"known: {', '.join(known)}")
