"""Bookings of boards by people: Slurm reservations, made by the fleet's user; people run nothing on the lab host."""

from __future__ import annotations

import math
import pwd
import re
from typing import Dict, List

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint
from harness.fleet.lab import Fleet
from harness.fleet.slurm import Slurm

MOST_HOURS = 168.0  # a week; reservations by scontrol have no limit
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def book(fleet: Fleet, slurm: Slurm, board: str, person: str, hours: float) -> Dict[str, str]:
    """Reserve a board from now on; a running slice still finishes, and no other starts.

    Returns the reservation by keyword, as `Slurm.reservations`. Raises an UnknownNameError for a board that is not in
    the lab, an InvalidValueError for a person without an account on this machine, a time out of range, and a board that
    is booked already.
    """
    name = _name(fleet, board, person)
    if not 0 < hours <= MOST_HOURS:
        raise InvalidValueError(f"a booking of {hours:g} hours", f"expected more than 0 and at most {MOST_HOURS:g}")
    for booking in _bookings(slurm, board):
        what = f"{board} is booked by {booking.get('Users')} until {booking.get('EndTime')}"
        raise InvalidValueError(what, "fleet status shows all bookings; book --end ends one of yours")
    words = [f"ReservationName={name}", f"Nodes={board}", f"Users={person}", "StartTime=now"]
    words += [f"Duration={math.ceil(hours * 60)}", "Flags=IGNORE_JOBS"]
    slurm.call("scontrol", "create", "reservation", *words)
    return next(booking for booking in _bookings(slurm, board) if booking["ReservationName"] == name)


def end_booking(fleet: Fleet, slurm: Slurm, board: str, person: str) -> None:
    """End a person's booking of a board; an UnknownNameError if there is none."""
    name = _name(fleet, board, person)
    bookings = _bookings(slurm, board)
    if name not in [booking["ReservationName"] for booking in bookings]:
        others = ", ".join(f"{booking['ReservationName']} by {booking.get('Users')}" for booking in bookings)
        raise UnknownNameError(f"{person} has no booking of {board}", f"available: {others or 'none'}")
    slurm.call("scontrol", "delete", f"ReservationName={name}")


def _name(fleet: Fleet, board: str, person: str) -> str:
    names = [entry.name for entry in fleet.lab.board]
    if board not in names:
        raise UnknownNameError(f"there is no board {board!r}", available_hint(board, names))
    try:
        if not _ACCOUNT.fullmatch(person):
            raise KeyError(person)
        pwd.getpwnam(person)
    except KeyError:
        hint = "a booking is for an account of the lab host: --person NAME"
        raise InvalidValueError(f"there is no account {person!r} that can book", hint) from None
    return f"{person}_{board}"


def _bookings(slurm: Slurm, board: str) -> List[Dict[str, str]]:
    return [booking for booking in slurm.reservations() if booking.get("Nodes") == board]
