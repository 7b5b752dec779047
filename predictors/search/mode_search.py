"""Searches for a power mode on a device, held against each other and against the best mode where that is known.

The goal is the least time within a share of the power that MAXN draws; of inference, and of training with inference in
between, with at most twice the latency that MAXN has. The papers' search, by halving, is held against a closed loop
that may profile as many modes. A probe of training with inference in between is a plan: a mode and a batch size, which
both kinds of work are profiled in. Of a simulated board the best mode is known without noise, and so is by how much a
search misses it.
"""

from __future__ import annotations

import io
import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.cases import CONCURRENT, INFERENCE, Case, Mix, parts_of
from harness.core.device import Device
from harness.core.errors import CannotRunError, SourceUnavailableError
from harness.core.interleaving import expect
from harness.core.terminal import Progress
from harness.core.units import mw_to_w
from harness.devices.simulated import SimulatedDevice
from harness.judge.figures import CONFIRMED, Bounds, Cell, exactly, judge_cells
from harness.measure.run import run
from harness.simulation.corpus import simulate_corpus
from harness.stats.estimates import Drawn
from predictors.search import concurrent
from predictors.search.device_profiler import DeviceProfiler, board_of
from predictors.strategies.concurrent import ConcurrentGoal
from predictors.strategies.goals import Goal
from predictors.strategies.protocol import FailedMode, History
from predictors.strategies.registry import STRATEGIES, StrategySetting

POWER_SHARES = (0.6, 0.8)
LATENCY = 2.0
HALVING, CLOSED_LOOP = "mdbs", "closed-loop"
BATCHES = (4, 16)
MOST = 40
DRAWS = 400


class SearchOutcome(NamedTuple):
    goal: str  # what was searched for, in short
    strategy: str  # by what
    candidates: int  # how many modes, each with a batch size, could be chosen
    spent: int  # how many of them were profiled
    over: float  # power or latency as measured over its limit, whichever is worse
    true_over: Optional[float]  # the same without the noise of measuring; None where nobody knows
    slower: Optional[float]  # the chosen mode's time over that of the best mode within the limits, likewise
    provenance: str  # of all of these figures


class ModeSearches:
    """The searches of a run, by device: one for each case, judged together at the end."""

    def __init__(self) -> None:
        self._outcomes: Dict[str, List[SearchOutcome]] = {}

    def search(
        self, device: Device, case: Case, progress: Progress, *, may_lower_clocks: bool = False, **profiling: Any
    ) -> List[SearchOutcome]:
        """Search for a case's mode on a device that is held, and keep what came of it; a line each is told.

        `may_lower_clocks`: nothing else is to run afterwards on a board whose clocks may only fall. `profiling` are
        options of `DeviceProfiler`. A `CannotRunError` says that no mode is known to keep the limits, or that a search
        raises clocks, which this board may refuse.
        """
        if device.clocks_only_fall and device.provenance == "measured" and not may_lower_clocks:
            raise CannotRunError(
                "a search raises clocks, which this board may refuse", "name this file to run it alone"
            )
        if case.task == CONCURRENT:
            found = plan(device, case, progress.update)
        else:
            sizes = BATCHES if case.task == INFERENCE else (case.batch_size,)
            modes = device.power_modes("all", case.workload)
            profiler = DeviceProfiler(device, case, modes, batch_sizes=sizes, report=progress.update, **profiling)
            found = search(profiler, truth(device, case, sizes))
        for one in found:
            spent = f"{one.spent} of {one.candidates} modes profiled, {one.over:.3f} of the limit"
            known = "" if one.slower is None else f", {one.slower:.3f} times as long as the best mode"
            progress.line(f"    {one.goal}: {one.strategy}: {spent}{known} ({one.provenance})")
        self._outcomes.setdefault(case.device, []).extend(found)
        missed = [one.goal for one in found if one.over > 1.0 and one.slower is None]
        if missed or not found:
            raise CannotRunError(f"no mode is known to keep the limits: {'; '.join(missed) or case.workload}")
        return found

    def judge(self, device: str) -> List[Tuple[str, bool]]:
        """Those of `claims` that a device's searches can judge: a line each, and whether it is wrong unexpectedly."""
        told, outcomes = [], self._outcomes.get(device, [])
        judged = {name: judge_cells(*claim) for name, claim in claims(outcomes).items()}
        for name, one in ((name, one) for name, one in judged.items() if one is not None):
            is_known = one.verdict != CONFIRMED and name in NOT_SO
            line = (
                f"{one.verdict} ({outcomes[0].provenance}): {name}, {device}: {one.effect:.3g}"
                f" ({one.low:.3g} to {one.high:.3g}), n = {one.n}, {one.case}"
                + (f"; known: {NOT_SO[name]}" if is_known else "")
            )
            told.append((line, one.verdict != CONFIRMED and not is_known))
        return told


Truth = Tuple[np.ndarray, np.ndarray]  # time and power of every mode with every batch size, of shape (modes, sizes)


def truth(device: Device, case: Case, sizes: Sequence[int]) -> Optional[Truth]:
    """What a simulated board does without noise; None where nobody knows."""
    if not isinstance(device, SimulatedDevice) or device.identity().specification["instance"]:
        return None
    board, modes = device.identity().specification["board"], [mode for _, mode in device.power_modes("all")]
    how: Dict[str, Any] = {"workers": case.workers, "storage": case.storage, "task": case.task, "noise": False}
    tables = [simulate_corpus(board, case.workload, modes, batch_size=size, **how) for size in sizes]
    time_ms, power_mw = (
        np.array([[row[name] for row in rows] for rows in tables]).T for name in ("minibatch_time_ms", "power_mw")
    )
    return time_ms, power_mw


def search(profiler: DeviceProfiler, known: Optional[Truth]) -> List[SearchOutcome]:
    """Search for the mode with the least time per sample for each budget, by halving and in a closed loop.

    A budget that no mode is known to keep is left out.
    """
    device, case, batch_size = profiler.device, profiler.template, profiler.candidates.batch_size
    greatest = (*device.power_mode_space().greatest, case.batch_size)
    rows = np.column_stack([profiler.candidates.modes, batch_size])
    at_maxn = profiler.profile(int((rows == greatest).all(axis=1).argmax()))
    if isinstance(at_maxn, FailedMode):
        raise CannotRunError(f"{case.id}: {at_maxn.reason}")
    outcomes = []
    for share in POWER_SHARES:
        limits = {"power_mw": share * at_maxn.power_mw}
        if case.task == INFERENCE:
            limits["time_ms"] = LATENCY * at_maxn.time_ms
        goal, spent, best = Goal("sample_time_ms", limits), MOST, None
        if known is not None:
            time_ms, power_mw = (figure.ravel() for figure in known)
            excess, objective = goal.excess(time_ms, power_mw, batch_size), time_ms / batch_size
            if not (excess <= 0).any():
                continue
            best = objective[excess <= 0].min()
        for name in (HALVING, CLOSED_LOOP):
            history = History(profiler, spent)
            strategy = STRATEGIES[name].make(StrategySetting(device=board_of(device)), case.settings.seed)
            choice = strategy.choose(history, goal)
            spent, place = choice.spent.profiles, choice.index
            over = history.figures(place, goal)[1] + 1
            true_over, slower = (None, None) if best is None else (excess[place] + 1, objective[place] / best)
            label = f"{case.workload} {case.task}, {mw_to_w(limits['power_mw']):.1f} W"
            outcomes.append(SearchOutcome(label, name, len(rows), spent, over, true_over, slower, device.provenance))
    return outcomes


def plan(device: Device, case: Case, report: Callable[[str], None]) -> List[SearchOutcome]:
    """Plan training with inference in between for each budget, by halving and in a closed loop, and run the plans.

    A budget that no mode is known to keep is left out.
    """
    mix, (training, inference) = Mix.parse(case.workload), parts_of(case)
    at_maxn = run(case, device, report).aggregates
    if at_maxn["power_mw"] is None or at_maxn["latency_p95_ms"] is None:
        lacking = "gave no power" if at_maxn["power_mw"] is None else "served no request"
        raise SourceUnavailableError(f"{case.id} {lacking}", "search on a device that measures power, and for longer")
    trained, served = truth(device, training, [case.batch_size]), truth(device, inference, BATCHES)
    modes = len(device.power_modes("all"))
    outcomes = []
    for share in POWER_SHARES:
        goal = ConcurrentGoal(mix.arrivals_per_s, LATENCY * at_maxn["latency_p95_ms"], share * at_maxn["power_mw"])
        expected = best = None
        if trained is not None and served is not None:
            expected = expect(*trained, *served, np.array(BATCHES), mix.arrivals_per_s)
            worst = np.maximum(expected.latency_ms / goal.latency_ms, expected.power_mw / goal.power_mw)
            best = expected.training_per_s[worst <= 1].max(initial=0.0)
            if not best:
                continue
        label = f"{case.workload}, {mw_to_w(goal.power_mw):.1f} W and {goal.latency_ms:.0f} ms"
        for name in (HALVING, CLOSED_LOOP):
            progress = Progress(io.StringIO())
            histories = concurrent.histories_of(device, training, mix.inference, goal, BATCHES, progress)
            attempts = concurrent.find_plan(histories, goal, case.settings.duration_s, progress, search=name)
            attempt, spent = concurrent.best_of(goal, attempts), attempts[-1].choice.profiles
            among = modes * (1 + len(BATCHES))
            true_over = slower = None
            if expected is not None:
                place = attempt.choice.training, attempt.choice.inference % len(BATCHES)
                true_over, slower = float(worst[place]), float(best / expected.training_per_s[place])
            if name == HALVING:  # counted in plans, each of two profiles
                spent, among = math.ceil(spent / 2), modes * len(BATCHES)
            over = max(attempt.shortfalls(goal))
            outcomes.append(SearchOutcome(label, name, among, spent, over, true_over, slower, device.provenance))
    return outcomes


def claims(outcomes: Sequence[SearchOutcome]) -> Dict[str, Tuple[List[Cell], Bounds]]:
    """What the paper says of its search, and what is said of the closed loop here, on a device."""
    halved = [one for one in outcomes if one.strategy == HALVING]
    known = [one for one in outcomes if one.slower is not None and one.true_over is not None]
    share = [exactly(one.goal, one.spent / math.log2(one.candidates)) for one in halved]
    over = [exactly(f"{one.strategy}, {one.goal}", one.true_over) for one in known]
    slower = [exactly(one.goal, one.slower) for one in known if one.strategy == HALVING]
    times = {(one.goal, one.strategy): one.slower for one in known}
    ratios = np.array([times[one.goal, CLOSED_LOOP] / one.slower for one in known if one.strategy == HALVING])
    mean = []
    if len(ratios) > 1:
        drawn = ratios[np.random.default_rng(0).integers(len(ratios), size=(DRAWS, len(ratios)))].mean(axis=1)
        mean = [Cell(f"{len(ratios)} goals", Drawn(float(ratios.mean()), tuple(drawn.tolist())))]
    return {
        "halving takes about log2 N profiles (000 4.2)": (share, Bounds(above=0.5, below=1.2)),
        "what is found keeps the limits (000 4.2)": (over, Bounds(below=1.03)),
        "halving finds the best mode (000 abstract)": (slower, Bounds(below=1.05)),
        "a closed loop is no slower, on average": (mean, Bounds(below=1.05)),
    }


# What is not so on simulated boards, and why.
NOT_SO = {"halving finds the best mode (000 abstract)": "what one profile ruled out is never tried again"}
