"""Searches for a power mode on a device, compared with each other and, on simulated boards, with the best mode.

The goal is the least time within a share of MAXN's power; for inference, and for training with interleaved inference,
also with at most twice MAXN's latency. The papers' search, by halving, is compared with a closed loop that may profile
the same number of modes. A probe of training with interleaved inference is a plan: a mode and a batch size, in which
both kinds of work are profiled. A simulated board's best mode can be computed without noise, and with it the loss of a
search.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.boards import board_of
from harness.core.cases import CONCURRENT, INFERENCE, Case, Mix, case_duration_s, parts_of
from harness.core.device import Device
from harness.core.errors import CannotRunError, SourceUnavailableError
from harness.core.interleaving import expect
from harness.core.terminal import Progress, ReportedProgress
from harness.core.units import mw_to_w
from harness.devices.simulated import SimulatedDevice
from harness.judge.verdict import CaseFigures, Cell, exactly
from harness.measure.run import run
from harness.simulation.corpus import simulate_corpus
from harness.stats.estimates import Drawn
from predictors.choose.device_profiler import DeviceProfiler
from predictors.choose.request import Search
from predictors.goals import Goal
from predictors.plans import concurrent
from predictors.plans.choice import ConcurrentGoal
from predictors.settings import Settings
from predictors.strategies.protocol import FailedMode, History
from predictors.strategies.registry import STRATEGIES, StrategySetting

POWER_SHARES = (0.6, 0.8)
LATENCY = 2.0
HALVING, CLOSED_LOOP = "mdbs", "closed-loop"
BATCHES = (4, 16)
MOST = 40
DRAWS = 400


class SearchOutcome(NamedTuple):
    goal: str  # a short description
    strategy: str
    candidates: int  # number of modes with batch sizes to choose from
    spent: int  # number of profiled candidates
    over: float  # measured power or latency over its limit, whichever is worse
    true_over: Optional[float]  # the same without measurement noise; None unless simulated
    # the chosen mode's time over that of the best mode within the limits; None unless simulated
    slower: Optional[float]
    provenance: str  # of all of these figures


class ModeSearches:
    """The searches of a run, by device: one for each case, judged together."""

    def __init__(self) -> None:
        self._outcomes: Dict[str, List[SearchOutcome]] = {}

    def search(
        self, device: Device, case: Case, progress: Progress, *, may_lower_clocks: bool = False, **profiling: Any
    ) -> List[SearchOutcome]:
        """Search for a case's mode on a device that is held, keep the outcomes, and print a line for each.

        `may_lower_clocks`: nothing else will run afterwards on a board whose clocks may only fall. `profiling` are
        options of `DeviceProfiler`. Returns the outcomes for the goals that one of them attains, or whose best mode is
        known. Raises `CannotRunError` if no mode keeps the limits of any goal, or if the board may refuse the
        higher clocks that a search needs.
        """
        if device.clocks_only_fall and device.provenance == "measured" and not may_lower_clocks:
            raise CannotRunError(
                "a search raises clocks, which this board may refuse", "name this file to run it alone"
            )
        if case.task == CONCURRENT:
            outcomes = plan(device, case, progress.update)
        else:
            sizes = tuple(sorted({*(BATCHES if case.task == INFERENCE else ()), case.batch_size}))
            modes = device.power_modes("all", case.workload)
            profiler = DeviceProfiler(device, case, modes, batch_sizes=sizes, report=progress.update, **profiling)
            outcomes = search(profiler, truth(device, case, sizes))
        for outcome in outcomes:
            spent = f"{outcome.spent} of {outcome.candidates} modes profiled, {outcome.over:.3f} of the limit"
            slowdown = "" if outcome.slower is None else f", {outcome.slower:.3f} times as long as the best mode"
            progress.line(f"    {outcome.goal}: {outcome.strategy}: {spent}{slowdown} ({outcome.provenance})")
        self._outcomes.setdefault(case.device, []).extend(outcomes)
        attained = {outcome.goal for outcome in outcomes if outcome.over <= 1.0 or outcome.slower is not None}
        missed = dict.fromkeys(outcome.goal for outcome in outcomes if outcome.goal not in attained)
        if not attained:
            raise CannotRunError(f"no mode keeps the limits: {'; '.join(missed) or case.workload}")
        for goal in missed:
            progress.line(f"    {goal}: no mode that was profiled keeps the limits")
        return [outcome for outcome in outcomes if outcome.goal in attained]

    def of(self, device: str) -> List[SearchOutcome]:
        """The outcomes on a device; CannotRunError if there are none."""
        if not self._outcomes.get(device):
            raise CannotRunError(f"on {device} no search of this run came to an end")
        return self._outcomes[device]


Truth = Tuple[np.ndarray, np.ndarray]  # time and power of every mode with every batch size, of shape (modes, sizes)


def truth(device: Device, case: Case, sizes: Sequence[int]) -> Optional[Truth]:
    """A simulated board's figures without noise; None for other devices."""
    if not isinstance(device, SimulatedDevice) or device.identity().specification["instance"]:
        return None
    board, modes = device.identity().specification["board"], [mode for _, mode in device.power_modes("all")]
    settings: Dict[str, Any] = {"workers": case.workers, "storage": case.storage, "task": case.task, "seed": None}
    tables = [simulate_corpus(board, case.workload, modes, batch_size=size, **settings) for size in sizes]
    time_ms, power_mw = (
        np.array([[row[name] for row in rows] for rows in tables]).T for name in ("minibatch_time_ms", "power_mw")
    )
    return time_ms, power_mw


def search(profiler: DeviceProfiler, true_figures: Optional[Truth]) -> List[SearchOutcome]:
    """Search for the mode with the least time per sample for each budget, by halving and in a closed loop.

    A budget that no mode can keep is skipped.
    """
    device, case, batch_size = profiler.device, profiler.template, profiler.candidates.batch_size
    greatest = Settings.of([device.power_mode_space().greatest], case.batch_size)
    is_maxn = (profiler.candidates.modes == greatest.modes).all(axis=1) & (batch_size == greatest.batch_size)
    if not is_maxn.any():
        raise CannotRunError(f"{case.id}: {device.name} has no profile of its greatest mode, which sets the budgets")
    at_maxn = profiler.profile(int(is_maxn.argmax()))
    if isinstance(at_maxn, FailedMode):
        raise CannotRunError(f"{case.id}: {at_maxn.reason}")
    outcomes = []
    for share in POWER_SHARES:
        limits = {"power_mw": share * at_maxn.power_mw}
        if case.task == INFERENCE:
            limits["time_ms"] = LATENCY * at_maxn.time_ms
        goal, spent, best = Goal("sample_time_ms", limits), MOST, None
        if true_figures is not None:
            time_ms, power_mw = (figure.ravel() for figure in true_figures)
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
            label = f"{case.id}, {mw_to_w(limits['power_mw']):.1f} W"
            outcomes.append(
                SearchOutcome(label, name, len(batch_size), spent, over, true_over, slower, device.provenance)
            )
    return outcomes


def plan(device: Device, case: Case, report: Callable[[str], None]) -> List[SearchOutcome]:
    """Plan training with interleaved inference for each budget, by halving and in a closed loop, and run the plans.

    A budget that no mode can keep is skipped.
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
        budget_mw = share * at_maxn["power_mw"]
        goal = ConcurrentGoal(mix.arrivals_per_s, LATENCY * at_maxn["latency_p95_ms"], budget_mw)
        expected = best = None
        if trained is not None and served is not None:
            expected = expect(*trained, *served, np.array(BATCHES), mix.arrivals_per_s)
            worst = np.maximum(expected.latency_ms / goal.latency_ms, expected.power_mw / budget_mw)
            best = expected.training_per_s[worst <= 1].max(initial=0.0)
            if not best:
                continue
        label = f"{case.id}, {mw_to_w(budget_mw):.1f} W and {goal.latency_ms:.0f} ms"
        for name in (HALVING, CLOSED_LOOP):
            progress = ReportedProgress(report)
            histories = concurrent.histories_of(device, training, mix.inference, goal, BATCHES, progress)
            how = Search(strategy=name, check_s=case_duration_s(case))
            attempts = concurrent.find_plan(histories, goal, progress, how)
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


# -- figures of searches, for claims -----------------------------------------------------------------------------------

_NO_TRUTH = "the best mode is known only on simulated boards, and not on further boards of a type"


def profiles_of_halving(outcomes: Sequence[SearchOutcome]) -> CaseFigures:
    """Profiles of each search by halving over the logarithm to base 2 of its number of candidates."""
    by_halving = _outcomes_of(HALVING, outcomes)
    cells = [exactly(outcome.goal, outcome.spent / math.log2(outcome.candidates)) for outcome in by_halving]
    return CaseFigures(cells, "profiles / log2 of the number of modes")


def excess_of_chosen(outcomes: Sequence[SearchOutcome], strategy: str) -> CaseFigures:
    """Power or latency of each mode that a strategy chose over its limit, without noise."""
    own = _outcomes_of(strategy, outcomes)
    cells = [exactly(outcome.goal, outcome.true_over) for outcome in own if outcome.true_over is not None]
    return CaseFigures(cells, f"power or latency of the mode that {strategy} chose / its limit", _NO_TRUTH)


def slowdown_by_halving(outcomes: Sequence[SearchOutcome]) -> CaseFigures:
    """Time of each mode that halving chose over that of the best mode, without noise."""
    cells = [exactly(goal, slower) for goal, slower in _slowdowns(outcomes, HALVING).items()]
    return CaseFigures(cells, "time of the mode that halving chose / of the best mode", _NO_TRUTH)


def closed_loop_over_halving(outcomes: Sequence[SearchOutcome]) -> CaseFigures:
    """Time of the modes that a closed loop chose over those that halving chose: the mean over the goals."""
    halving, closed_loop = (_slowdowns(outcomes, strategy) for strategy in (HALVING, CLOSED_LOOP))
    ratios = np.array([closed_loop[goal] / slower for goal, slower in halving.items()])
    cells = []
    if len(ratios) > 1:
        drawn = ratios[np.random.default_rng(0).integers(len(ratios), size=(DRAWS, len(ratios)))].mean(axis=1)
        cells = [Cell(f"{len(ratios)} goals", Drawn(float(ratios.mean()), tuple(drawn.tolist())))]
    missing = f"{_NO_TRUTH}, and a mean needs two goals"
    return CaseFigures(cells, "time of the mode that a closed loop chose / that halving chose, mean", missing)


def _slowdowns(outcomes: Sequence[SearchOutcome], strategy: str) -> Dict[str, float]:
    own = _outcomes_of(strategy, outcomes)
    return {outcome.goal: outcome.slower for outcome in own if outcome.slower is not None}


def _outcomes_of(strategy: str, outcomes: Sequence[SearchOutcome]) -> List[SearchOutcome]:
    return [outcome for outcome in outcomes if outcome.strategy == strategy]
