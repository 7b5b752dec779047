"""The clock of a simulated board: it goes on when it is told to, and never waits."""

from __future__ import annotations

import datetime

BEGINNING = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)
"""When every simulated board is switched on: no date on which anything here was really measured."""


class VirtualClock:
    """Virtual time since a board was switched on."""

    def __init__(self) -> None:
        """It is switched on now."""
        self.now_s = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def date(self) -> str:
        """Now, as ISO 8601 with offset."""
        return (BEGINNING + datetime.timedelta(seconds=self.now_s)).isoformat(timespec="milliseconds")
