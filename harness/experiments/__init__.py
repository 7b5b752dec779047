"""The papers' experiments: what a run's profiles say to what the papers found."""

from __future__ import annotations

from harness.experiments.verdicts import Verdict, verdicts

__all__ = ["Verdict", "verdicts"]
