"""Names of storage: a medium, and how many megabytes a second may be read from it where that is held down.

    ssd       the medium `ssd`, as fast as it is
    ssd@20    the same medium; the kernel lets 20 MB/s through

So a slow medium can be had without one. The limit is in the name, so that no figure of it goes without.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from harness.core.errors import InvalidValueError
from harness.core.units import mb_to_bytes

_LIMIT = re.compile(r"[1-9]\d*|(?:0|[1-9]\d*)\.\d{0,2}[1-9]")
"""There is one way to write a number, so that one limit has one name; the least is a thousand bytes per second."""


class StorageName(NamedTuple):
    """What the name of a storage says.

    Attributes:
        medium: which medium, as places are known by it: `ssd`.
        limit_bytes_per_s: what may be read from it in a second; None where it may be as fast as it is.
    """

    medium: str
    limit_bytes_per_s: Optional[int] = None


def parse_storage(name: str) -> StorageName:
    """The parts of a storage's name, `MEDIUM` or `MEDIUM@MB_PER_S`, a megabyte being 10^6 bytes.

    Raises:
        InvalidValueError: there is an `@`, and no medium before it or no number behind it.
    """
    medium, at, limit = name.partition("@")
    if not at:
        return StorageName(name)
    if not medium or not _LIMIT.fullmatch(limit):
        raise InvalidValueError(
            f"storage {name!r} is no MEDIUM@MB_PER_S",
            "write ssd@20 or ssd@2.5: a number above 0, at most three decimals, no zeros that could be left out",
        )
    return StorageName(medium, mb_to_bytes(float(limit)))
