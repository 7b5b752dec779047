"""Turns counters that only grow into rates over the time between two readings."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Tuple

from harness.board.source import MIN_WINDOW_S


class Counters:
    """Remembers the last totals of a set of counters.

    Two readings that are closer than `MIN_WINDOW_S` count as one: the later then belongs to the next window.
    """

    def __init__(self) -> None:
        """No reading yet."""
        self._last: Optional[Tuple[float, Mapping[str, float]]] = None

    def growth(self, now_s: float, totals: Mapping[str, float]) -> Optional[Tuple[float, Dict[str, float]]]:
        """How much each counter grew since the last reading.

        Args:
            now_s: when `totals` were read, in monotonic seconds.
            totals: counter name to its value.

        Returns:
            The time since the last reading in seconds, and the growth of each counter that both readings have; None
            where there is no earlier reading, or one too close. Of a counter that was reset or wrapped it is
            negative.
        """
        if self._last is None:
            self._last = (now_s, totals)
            return None
        last_s, last_totals = self._last
        window_s = now_s - last_s
        if window_s < MIN_WINDOW_S:
            return None
        self._last = (now_s, totals)
        return window_s, {name: total - last_totals[name] for name, total in totals.items() if name in last_totals}
