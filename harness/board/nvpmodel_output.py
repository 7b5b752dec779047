"""What nvpmodel prints: the mode in effect, the modes of a conf file, and why a mode was not set."""

from __future__ import annotations

import errno
import os
import re
from typing import List, NamedTuple, Optional, Tuple


class InEffect(NamedTuple):
    """The answer to a query; the ID is None where only the name was printed."""

    name: str
    id: Optional[int]


class Refusal(NamedTuple):
    """Why a mode was not set, and what to do about it."""

    reason: str
    hint: str


_MODE = re.compile(r"NV Power Mode:[ \t]*(\S+)")
_LISTED = re.compile(r"POWER_MODEL:[ \t]*ID=(\d+)[ \t]+NAME=(\S+)")
_REBOOT = re.compile(r"reboot required|reboot now", re.IGNORECASE)
_FILE_ERROR = re.compile(r"Error (?:writing (?P<value>\S+) to|opening) (?P<path>\S+): (?P<number>\d+)")
_NOT_SET = re.compile(r"failed to (?:write|set)|Error writing|bad power mode|no request for power mode")


def parse_query(text: str) -> Optional[InEffect]:
    """The answer of `nvpmodel -q`: `NV Power Mode: NAME`, and the ID alone on a later line.

    Warnings may stand before, after and between, and without root errors do beside a valid answer.
    """
    match = _MODE.search(text)
    if match is None:
        return None
    lines = (line.strip() for line in text[match.end() :].splitlines())
    return InEffect(match[1], next((int(line) for line in lines if re.fullmatch(r"\d{1,9}", line, re.ASCII)), None))


def parse_listing(text: str) -> List[Tuple[int, str]]:
    """ID and name of each mode that `nvpmodel -p --verbose` found in a conf file."""
    return [(int(match[1]), match[2]) for match in _LISTED.finditer(text)]


def asks_for_reboot(text: str) -> bool:
    """Whether `nvpmodel -m` wanted to reboot: power-gating masks change, and the GPU was in use since the boot."""
    return _REBOOT.search(text) is not None


def find_refusal(text: str) -> Optional[Refusal]:
    """Why `nvpmodel -m` did not set the mode, or not all of it; None where it does not say so."""
    if not _NOT_SET.search(text):
        return None
    match = _FILE_ERROR.search(text)
    if match is None:
        return Refusal(f"nvpmodel says: {quote(text)}", "")
    number = int(match["number"])
    action = f"writing {match['value']} to" if match["value"] else "opening"
    reason = f"{action} {match['path']} was refused: {os.strerror(number)}"
    if match["path"].endswith("_pg_mask"):
        # Seen on Orin when switching back to a mode with other masks; only the next boot takes them.
        return Refusal(reason, "the GPU takes power-gating masks at boot only: reboot, then try again")
    if number in (errno.EACCES, errno.EPERM):
        return Refusal(reason, "only root may set modes")
    return Refusal(reason, "")


def quote(text: str) -> str:
    """What was printed, as one short line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "NVPM ERROR" in line]
    line = " / ".join(errors or lines) or "nothing"
    return line if len(line) <= 300 else f"{line[:300]} ..."
