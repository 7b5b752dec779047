"""What the kernel makes of a write: the value that the file then shows, or an error number."""

from __future__ import annotations

import errno
from typing import Any, Callable, Dict, List

Read = Callable[[str], str]
"""Gives the text of another file of the tree."""


class RefusedError(Exception):
    """The kernel refuses a value."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.number = number


def accept(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    """The value that a file has after a write."""
    return _RULES[rule["kind"]](rule, text, read, state)


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise RefusedError(errno.EINVAL) from None


def at_most(table: List[int], value: int) -> int:
    """The greatest of the table that is not above a value; its lowest where all are."""
    return max((entry for entry in table if entry <= value), default=table[0])


def at_least(table: List[int], value: int) -> int:
    """The lowest of the table that is not below a value; its greatest where all are."""
    return min((entry for entry in table if entry >= value), default=table[-1])


def _rounded(rule: Dict[str, Any], value: int) -> int:
    """The clock of the table that a limit means: the same for minimum and maximum, so that a clock can be pinned."""
    return (at_least if rule["up"] else at_most)(rule["table"], value)


def _minimum(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    value = _integer(text)
    if value < 0:
        raise RefusedError(errno.EINVAL)
    rounded = _rounded(rule, value)
    if rounded > int(read(rule["other"])):
        # As 4.9 does; kernels since 5.4 show the maximum instead, but the papers saw errors on Orin too.
        raise RefusedError(errno.EINVAL)
    return str(rounded)


def _maximum(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    value = _integer(text)
    if value < 0:
        raise RefusedError(errno.EINVAL)
    rounded = rule["table"][-1] if value == 0 and rule.get("zero_is_none") else _rounded(rule, value)
    if rounded < int(read(rule["other"])):
        raise RefusedError(errno.EINVAL)
    return str(rounded)


def _choice(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    if text not in rule["of"]:
        raise RefusedError(errno.EINVAL)
    return text


def _online(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    if text not in ("0", "1"):
        raise RefusedError(errno.EINVAL)
    if rule["core"] == 0 and text == "0":
        raise RefusedError(errno.EPERM)
    if text == "1" and rule["core"] in state["stuck_cores"]:
        raise RefusedError(errno.EIO)
    return text


def _mask(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    value = _integer(text)
    if value < 0:
        raise RefusedError(errno.EINVAL)
    if state["gpu_context"] and str(value) != state["masks"][rule["path"]]:
        raise RefusedError(errno.ENODEV)  # nvpmodel then prints `Error writing 2 to .../fbp_pg_mask: 19`
    return "0" if rule["fixed"] else str(value)


def _memory_rate(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    return str(at_least(rule["table"], max(_integer(text), 0)))


def _memory_cap(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    value = _integer(text)
    return str(rule["highest"] if value <= 0 else min(value, rule["highest"]))


def _number(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    value = _integer(text)
    if value < 0:
        raise RefusedError(errno.EINVAL)
    return str(value)


def _pwm(rule: Dict[str, Any], text: str, read: Read, state: Dict[str, Any]) -> str:
    value = _integer(text)
    if not 0 <= value <= 255:
        raise RefusedError(errno.EINVAL)
    return str(value)


_RULES = {
    "minimum": _minimum,
    "maximum": _maximum,
    "choice": _choice,
    "online": _online,
    "mask": _mask,
    "memory_rate": _memory_rate,
    "memory_cap": _memory_cap,
    "number": _number,
    "pwm": _pwm,
}
