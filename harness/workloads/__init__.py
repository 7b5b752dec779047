"""What is trained: the papers' networks and their data sets, and a user's own; importing it loads no torch."""

from __future__ import annotations

from harness.workloads.registry import WORKLOADS, get_workload
from harness.workloads.workload import Workload

__all__ = ["WORKLOADS", "Workload", "get_workload"]
