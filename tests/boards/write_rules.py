"""What the kernel makes of a write: the value that the file then shows, or an error number."""

from __future__ import annotations

import errno
from typing import Any, Callable, Dict, List


class RefusedError(Exception):
    """The kernel refuses a value."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.number = number


def at_most(table: List[int], value: int) -> int:
    """The greatest of the table that is not above a value; its lowest where all are."""
    return max((entry for entry in table if entry <= value), default=table[0])


def at_least(table: List[int], value: int) -> int:
    """The lowest of the table that is not below a value; its greatest where all are."""
    return min((entry for entry in table if entry >= value), default=table[-1])


def accept(rule: Dict[str, Any], text: str, read: Callable[[str], str], state: Dict[str, Any]) -> str:
    """The value that a file has after a write; `read` gives the text of another file of the tree."""
    kind = rule["kind"]
    if kind == "choice":
        _refuse(text not in rule["of"])
        return text
    if kind == "online":
        _refuse(text not in ("0", "1"))
        _refuse(rule["core"] == 0 and text == "0", errno.EPERM)
        _refuse(text == "1" and rule["core"] in state["stuck_cores"], errno.EIO)
        return text
    value = _integer(text)
    if kind == "memory_rate":
        return str(at_least(rule["table"], max(value, 0)))
    if kind == "memory_cap":
        return str(rule["highest"] if value <= 0 else min(value, rule["highest"]))
    _refuse(value < 0)
    if kind == "mask":  # nvpmodel then prints `Error writing 2 to .../fbp_pg_mask: 19`
        _refuse(state["gpu_context"] and str(value) != state["masks"][rule["path"]], errno.ENODEV)
        return "0" if rule["fixed"] else str(value)
    if kind in ("minimum", "maximum"):
        return str(_limit(rule, value, int(read(rule["other"]))))
    _refuse(kind == "pwm" and value > 255)
    return str(value)


def _refuse(condition: bool, number: int = errno.EINVAL) -> None:
    if condition:
        raise RefusedError(number)


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise RefusedError(errno.EINVAL) from None


def _limit(rule: Dict[str, Any], value: int, other: int) -> int:
    """The clock of the table that a limit means: the same for minimum and maximum, so that a clock can be pinned."""
    rounded = (at_least if rule["up"] else at_most)(rule["table"], value)
    if rule["kind"] == "maximum":
        rounded = rule["table"][-1] if value == 0 and rule.get("zero_is_none") else rounded
        _refuse(rounded < other)
    else:  # as 4.9 does; kernels since 5.4 show the maximum instead, but the papers saw errors on Orin too
        _refuse(rounded > other)
    return rounded
