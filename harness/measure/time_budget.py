"""The time budget of a whole run: its cases share the time left, and cases that do not fit are skipped.

A case takes fewer minibatches if necessary, but at least `CUT_MINIBATCHES`. If even these do not fit into the time
left, the case is skipped as soon as this can be estimated: from the pace of a network measured before it, from its own
first minibatch, or from any later one until there are enough.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from harness.core.cases import CONCURRENT, CUT_MINIBATCHES, IDLE, TRAINING, Case, Mix, case_duration_s
from harness.core.device import Report
from harness.core.errors import OverBudgetError
from harness.core.interleaving import alone_s
from harness.core.profiles import CLEAN, FIRST, Minibatch
from harness.core.terminal import format_duration
from harness.core.units import ms_to_s
from harness.workloads.forward_work import minibatch_flops

RESERVED_S, RESERVED_STARTS, MOST_RESERVED_SHARE = 15.0, 2.0, 0.2
"""Time after the cases: claims, the summary, restoring, Python's exit. At least `RESERVED_S`, or `RESERVED_STARTS`
times as long as the start took, as other processes slow both; at most a share of the budget."""

FLOPS_PER_S, OVERHEAD_S = 20e9, 0.005
"""Nominal cost of a minibatch on two cores, for weighing cases before anything is measured."""

CASE_S = 5.0  # time of a case besides its minibatches: the data set, workers, the sampler
EPOCH_MINIBATCHES = 100  # minibatches of an epoch until its data set is prepared
TELLING_S = 0.05
"""The shortest minibatch that shows how fast this machine computes; one of LeNet is mostly overhead."""

ROUGH = 3.0  # a network may be three times as slow or as fast as estimated from another one's operations
WARM_UP = 3.0  # the first minibatch chooses kernels and starts workers; later ones may take a third of its time


def nominal_s(case: Case) -> float:
    """Nominal seconds of one minibatch; 1 for a network whose operations are not counted."""
    flops = minibatch_flops(case.workload, case.batch_size, case.task == TRAINING)
    return 1.0 if flops is None else OVERHEAD_S + flops / FLOPS_PER_S


def fixed_s(case: Case) -> Optional[float]:
    """Duration of a case with a fixed duration; None if it runs minibatches or epochs."""
    if case.task == IDLE:
        return case_duration_s(case)
    if case.task == CONCURRENT:
        mix, both_s = Mix.parse(case.workload), case_duration_s(case)
        return both_s + 2 * alone_s(both_s, mix.arrivals_per_s, mix.batch_size)
    return None


def weight_s(case: Case) -> float:
    """Nominal seconds of a whole case."""
    duration_s = fixed_s(case)
    if duration_s is not None:
        return CASE_S + duration_s
    count = case.settings.minibatches or (case.settings.epochs or 1) * EPOCH_MINIBATCHES
    return CASE_S + count * nominal_s(case)


def size_of(case: Case) -> float:
    """Sort key of cases: the largest goes last, after it those whose operations are not counted."""
    is_counted = fixed_s(case) is not None or minibatch_flops(case.workload, case.batch_size) is not None
    return weight_s(case) if is_counted else math.inf


def portions(weights: Sequence[float]) -> List[float]:
    """For each case, by their weights in order, its share of the time left when it begins."""
    shares, behind_s = [], 0.0
    for weight in reversed(weights):
        behind_s += weight
        shares.append(weight / behind_s)
    return shares[::-1]


def process_age_s(stat: Path = Path("/proc/self/stat")) -> float:
    """Age of this process in seconds; 0 if the kernel does not report it."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # proc(5): starttime, the 22nd, since boot
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started_s, 0.0)
    except (OSError, AttributeError):
        return 0.0


class TimeBudget:
    """The time left of a run.

    Args:
        total_s: the time of the run, in seconds.
        text: the user's spelling of it, for messages.
        began_s: start of the process, in monotonic seconds.
    """

    def __init__(self, total_s: float, text: str, began_s: float) -> None:
        self.text = text
        starting_s = time.monotonic() - began_s
        reserved_s = min(max(RESERVED_S, RESERVED_STARTS * starting_s), MOST_RESERVED_SHARE * total_s)
        self._end_s = began_s + total_s - reserved_s
        self._slowness: Dict[str, float] = {}  # by device: measured over nominal time of a minibatch

    def left_s(self) -> float:
        return self._end_s - time.monotonic()

    def allot(self, case: Case, portion: float = 1.0) -> Allotment:
        return Allotment(self, case, portion)

    def learn(self, case: Case, minibatch_s: float) -> None:
        """Remember the pace of this machine, from a case that shows it."""
        if minibatch_s >= TELLING_S and fixed_s(case) is None:
            self._slowness[case.device] = minibatch_s / nominal_s(case)

    def forecast_s(self, case: Case) -> Optional[float]:
        """Seconds of a minibatch, estimated from a network measured before on the device; None without one."""
        slowness = self._slowness.get(case.device)
        is_counted = minibatch_flops(case.workload, case.batch_size) is not None
        return slowness * nominal_s(case) if slowness is not None and is_counted else None

    def watched(self, report: Report, doing: str, portion: float = 1.0) -> Report:
        """A report that ends work of unknown length once its share of the time left is used up."""
        end_s = time.monotonic() + portion * self.left_s()
        share = "" if portion == 1.0 else "its share of "

        def reported(line: str) -> None:
            report(line)
            if time.monotonic() >= end_s:
                raise OverBudgetError(f"{doing} ({line.strip()}) when {share}--time-budget {self.text} was spent")

        return reported

    def refuse_if_spent(self) -> None:
        if self.left_s() <= 0:
            raise OverBudgetError(f"--time-budget {self.text} is spent")


class Allotment:
    """The time that one case may take: its share, but all of the time left for its minimum of minibatches."""

    def __init__(self, budget: TimeBudget, case: Case, portion: float) -> None:
        self._budget, self._case = budget, case
        self._portion = portion
        self._share_end_s = math.inf
        self._least = (
            CUT_MINIBATCHES if case.settings.minibatches is None else min(case.settings.minibatches, CUT_MINIBATCHES)
        )
        self._times_s: List[float] = []  # of minibatches in order, the first one included
        self._clean = 0

    def refuse_early(self) -> None:
        """Raise `OverBudgetError` before anything is done, if the case cannot fit by its duration or forecast."""
        self._budget.refuse_if_spent()
        duration_s, forecast_s = fixed_s(self._case), self._budget.forecast_s(self._case)
        if duration_s is not None and duration_s > self._budget.left_s():
            raise OverBudgetError(f"{self._case.workload} takes {format_duration(duration_s)}; {self._left()}")
        if duration_s is None and forecast_s is not None:
            self._refuse(forecast_s / ROUGH, shown_s=forecast_s, basis="by the networks measured before it")

    def watched(self, report: Report) -> Report:
        """A report for the preparation that also ends it when the time is up."""
        return self._budget.watched(report, f"{self._case.workload} was still being prepared")

    def begin(self, epoch_minibatches: int) -> float:
        """Begin the minibatches; an epoch has `epoch_minibatches`. Returns the case's share of time, in seconds."""
        if self._case.settings.epochs is not None:  # only whole epochs count
            self._least = max(self._case.settings.epochs * epoch_minibatches - 1, 1)
        self.refuse_early()
        share_s = self._portion * self._budget.left_s()
        self._share_end_s = time.monotonic() + share_s
        return share_s

    def is_used_up(self) -> bool:
        """Whether another minibatch would exceed the case's share if it is as slow as the slowest so far."""
        return time.monotonic() + max(self._times_s[1:], default=0.0) > self._share_end_s

    def on_minibatch(self, minibatch: Minibatch) -> None:
        """Raise `OverBudgetError` if the minimum of minibatches does not fit any more."""
        self._times_s.append(ms_to_s(minibatch.e2e_ms))
        self._clean += minibatch.phase == CLEAN
        if minibatch.phase == FIRST:
            self._refuse(self._times_s[0] / WARM_UP, shown_s=self._times_s[0], basis="by its first")
        elif self._clean < self._least:
            self._refuse(self._pace_s(), shown_s=self._pace_s(), basis=f"by its first {len(self._times_s)}")

    def learn(self, minibatch_s: float) -> None:
        """Remember the pace of this machine, by the case's minibatches, for later cases."""
        self._budget.learn(self._case, minibatch_s)

    def _pace_s(self) -> float:
        few = len(self._times_s) <= 3
        return min(self._times_s) if few else statistics.median(self._times_s[1:])

    def _refuse(self, pace_s: float, shown_s: float, basis: str) -> None:
        missing = self._least - self._clean
        if missing * pace_s > self._budget.left_s():
            needed = f"{missing} {'more ' if self._clean else ''}minibatches, {format_duration(missing * shown_s)}"
            raise OverBudgetError(
                f"{self._case.workload} needs {needed} {basis} ({shown_s:.2g} s each); {self._left()}"
            )

    def _left(self) -> str:
        return f"{format_duration(max(self._budget.left_s(), 0.0))} left of --time-budget {self._budget.text}"
