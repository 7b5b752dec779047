"""Which profiles are left out of baselines, corpora, comparisons and verdicts because of their flags, and why."""

from __future__ import annotations

from typing import Iterable, List, Sequence

DISQUALIFYING = ("disturbed", "throttled")
"""What came from outside, made time and power wrong, and may be gone when the case is measured again.

Other processes that took CPU time, and heat or current that held clocks below those in the record. Left in are flags
that hold for every run of their kind (`cpu-quota`, `in-memory`, `storage-unverified`, `storage-throttled`), that the
interval of a median tells anyway (`noisy`), or that concern the power alone (`power-unsettled`, `lost-samples`): the
time is right.
"""

POWER_IS_UNSURE = ("power-unsettled", "telemetry-lost")
"""Flags with which a profile's time is compared and its power is not."""

LEFT_OUT = f"profiles flagged {' or '.join(DISQUALIFYING)} (--include-flagged keeps them)"
"""What was left out, after its number."""


def kinds(flags: Iterable[str]) -> List[str]:
    """The kind of each flag: `disturbed` of `disturbed: other processes used ...`."""
    return [flag.partition(":")[0] for flag in flags]


def is_disqualified(flags: Sequence[str]) -> bool:
    """Whether a profile with these flags has to be measured again before it counts."""
    return any(kind in DISQUALIFYING for kind in kinds(flags))
