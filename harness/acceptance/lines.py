"""What a line of the acceptance test yields: a verdict, its evidence, and what to do."""

from __future__ import annotations

from typing import Any, Dict, List

import msgspec

PASS, FAIL, SKIP = "PASS", "FAIL", "SKIP"


class LineResult(msgspec.Struct):
    """The outcome of one line; plain values only, as it is stored and printed."""

    name: str
    verdict: str  # `PASS`, `FAIL`, or `SKIP` for a line that does not apply here
    evidence: Dict[str, Any]  # figures and texts by name; the unit ends the name
    reasons: List[str] = []  # why it failed or was skipped, a sentence each
    hints: List[str] = []


class Findings:
    """Collects evidence and failures of a line while it is checked."""

    def __init__(self) -> None:
        self.evidence: Dict[str, Any] = {}
        self.failures: List[str] = []
        self.hints: List[str] = []

    def fail(self, why: str, hint: str = "") -> None:
        self.failures.append(why)
        self.advise(hint)

    def advise(self, hint: str) -> None:
        if hint and hint not in self.hints:
            self.hints.append(hint)

    def result(self, name: str) -> LineResult:
        return LineResult(name, FAIL if self.failures else PASS, self.evidence, self.failures, self.hints)


class DoesNotApplyError(Exception):
    """Ends the check of a line that does not apply to this device; its text says why."""
