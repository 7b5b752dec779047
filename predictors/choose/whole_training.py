"""Whole trainings under a deadline and an energy budget: which boards keep both, in which mode, at what risk.

A training takes epochs x minibatches of an epoch x the minibatch time, and its energy is that times the power. The
predictor's distribution of both figures is that of a search's candidates (`Forecast`), so a risk is the same
as in a search: the probability of the limit more likely to be missed. A board of a pool has the first board's figures
times its own scales of time and power (`harness.fleet.pool`); mode-dependent differences between boards are ignored.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from harness.core.device import Device, is_pool
from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode
from harness.core.terminal import format_table
from harness.core.units import S_PER_HOUR, mw_to_w, mwh_to_wh, mws_to_mwh, s_to_ms, share_to_percent
from predictors.choose.request import EPOCHS, RISK, Budget
from predictors.forecast import LEVEL, Forecast
from predictors.goals import Goal
from predictors.settings import Settings
from predictors.strategies.closed_loop import MEASURED_LOG_SD
from predictors.strategies.recommendation import FigureInterval, Recommendation

MS_PER_HOUR = s_to_ms(S_PER_HOUR)
NO_LIMITS: Mapping[str, float] = MappingProxyType({})


class Training(NamedTuple):
    """A whole training and its limits."""

    epochs: float
    samples: int  # of an epoch; an incomplete last minibatch is dropped
    deadline_h: Optional[float] = None  # None for any time
    energy_budget_wh: Optional[float] = None  # None for any energy
    risk: float = 0.05  # greatest probability of missing a limit

    def minibatches(self, batch_size: np.ndarray) -> np.ndarray:
        return self.epochs * (self.samples // batch_size)

    def describe(self) -> str:
        """In words: `20 epochs in at most 6 h with at most 200 Wh, each missed with at most 5 %`."""
        deadline = "" if self.deadline_h is None else f" in at most {self.deadline_h:g} h"
        energy = "" if self.energy_budget_wh is None else f" with at most {self.energy_budget_wh:g} Wh"
        return f"{self.epochs:g} epochs{deadline}{energy}, each missed with at most {share_to_percent(self.risk):g} %"


class TrainingForecast(NamedTuple):
    """Time and energy of a training in a mode, with 80 % intervals."""

    power_mode: PowerMode
    name: str  # of the mode, with the power limit of a discrete GPU and the batch size if there are several
    batch_size: int
    epoch_s: FigureInterval
    hours: FigureInterval
    energy_wh: FigureInterval
    deadline_risk: float  # the probability that the deadline is missed; 0 without one
    energy_risk: float  # the same of the energy budget

    @property
    def risk(self) -> float:
        return max(self.deadline_risk, self.energy_risk)


class BoardForecast(NamedTuple):
    """Whether a board can train in time; without a feasible mode both are None, and `why_not` has the reason."""

    board: str
    device: str
    fastest: Optional[TrainingForecast] = None  # the feasible mode with the least time
    cheapest: Optional[TrainingForecast] = None  # the feasible mode with the least energy
    why_not: str = ""

    @property
    def feasible(self) -> bool:
        return self.fastest is not None


def training_of(workload: str, epochs: Optional[float], budget: Budget, risk: Optional[float]) -> Training:
    """The whole training of a workload on its real data set, with its limits."""
    from harness.workloads import get_workload

    return Training(
        epochs if epochs is not None else float(EPOCHS[workload]),
        get_workload(workload).real_samples,
        budget.deadline_h,
        budget.energy_wh,
        RISK if risk is None else risk,
    )


def refuse_more_than_an_epoch(workloads: Sequence[str], batch_size: int) -> None:
    """A training whose epochs have no whole minibatch takes no time, and would keep any limit."""
    from harness.workloads import get_workload

    for name in workloads:
        samples = get_workload(name).real_samples
        if samples < batch_size:
            raise InvalidValueError(
                f"a minibatch of {batch_size} samples is more than an epoch of {name}, which has {samples}",
                "a smaller batch_size=, or neither deadline_h= nor energy_wh=",
            )


def on_another_board(posterior: Forecast, time_scale: float, power_scale: float) -> Forecast:
    """The posterior of the first board, scaled to another board; each scale is the ratio of two profiles."""
    of_scale = np.sqrt(2) * MEASURED_LOG_SD
    return dataclasses.replace(
        posterior,
        log_time=posterior.log_time + np.log(time_scale),
        log_power=posterior.log_power + np.log(power_scale),
        log_time_sd=np.hypot(posterior.log_time_sd, of_scale),
        log_power_sd=np.hypot(posterior.log_power_sd, of_scale),
    )


def forecast(
    posterior: Forecast,
    candidates: Settings,
    pickable: np.ndarray,
    training: Training,
    board: str,
    device: str,
    limits: Mapping[str, float] = NO_LIMITS,
) -> BoardForecast:
    """Whether a training keeps its limits in any candidate, with the fastest and the cheapest feasible ones.

    Args:
        posterior: of n candidates.
        candidates: their power modes, power limits and batch sizes.
        pickable: those that may be chosen, bool of shape (n,).
        training: the training and its limits.
        board: name of the board.
        device: its device name.
        limits: of a mode's own figures, as of `Goal`, beside those of the training.
    """
    others = Goal(limits=limits)
    within = pickable & posterior.keeps(others, training.risk)
    minibatches = training.minibatches(posterior.batch_size)
    deadline_risk, energy_risk = np.zeros((2, len(candidates.modes)))
    if training.deadline_h is not None:
        deadline_risk = posterior.exceeding("time_ms", training.deadline_h * MS_PER_HOUR / minibatches)
    if training.energy_budget_wh is not None:
        energy_mws = training.energy_budget_wh / mwh_to_wh(mws_to_mwh(1.0)) / minibatches
        energy_risk = posterior.exceeding("energy_mws", energy_mws)
    risk = np.maximum(deadline_risk, energy_risk)
    hours = np.exp(posterior.log_time) * minibatches / MS_PER_HOUR
    energy_wh = hours * mw_to_w(np.exp(posterior.log_power))

    def of(index: int) -> TrainingForecast:
        reach = posterior.reach((1 - LEVEL) / 2)[index]

        def interval(value: float, quantity: str) -> FigureInterval:
            factor = float(np.exp(reach * posterior.log_quantity(quantity)[1][index]))
            return FigureInterval(float(value), value / factor, value * factor, bool(posterior.measured[index]))

        return TrainingForecast(
            candidates.mode(index),
            candidates.name(index),
            int(posterior.batch_size[index]),
            interval(hours[index] * S_PER_HOUR / training.epochs, "time_ms"),
            interval(hours[index], "time_ms"),
            interval(energy_wh[index], "energy_mws"),
            float(deadline_risk[index]),
            float(energy_risk[index]),
        )

    feasible = within & (risk <= training.risk)
    if feasible.any():
        fastest, cheapest = (int(np.where(feasible, figure, np.inf).argmin()) for figure in (hours, energy_wh))
        return BoardForecast(board, device, of(fastest), of(cheapest))
    if not pickable.any():
        return BoardForecast(board, device, why_not="no mode could be profiled or predicted")
    if not within.any():
        return BoardForecast(board, device, why_not=f"no mode is likely to keep {others.describe_limits()}")
    best = [of(int(np.where(within, figure, np.inf).argmin())) for figure in (hours, energy_wh, risk)]
    return BoardForecast(board, device, why_not=_why_not(training, *best))


def forecasts_of(
    device: Device, recommendation: Recommendation, training: Training, time_limit: Optional[float] = None
) -> List[BoardForecast]:
    """Forecasts of the boards of a pool, by their scales, or of the device alone.

    The goal's power limit holds too, and so does `time_limit` of a minibatch, in ms.
    """
    posterior, pickable = recommendation.posterior, recommendation.pickable
    limits = {name: limit for name, limit in recommendation.goal.limits.items() if name == "power_mw"}
    if time_limit is not None:
        limits["time_ms"] = time_limit
    candidates = recommendation.history.profiler.candidates
    if not is_pool(device):
        return [forecast(posterior, candidates, pickable, training, device.name, device.name, limits)]
    boards = []
    for board, (instance, scales, why) in device.measured_scales().items():
        if scales is None:
            boards.append(BoardForecast(board, instance, why_not=why))
            continue
        own = posterior if scales == (1.0, 1.0) else on_another_board(posterior, *scales)
        boards.append(forecast(own, candidates, pickable, training, board, instance, limits))
    return boards


def _why_not(
    training: Training, fastest: TrainingForecast, cheapest: TrainingForecast, safest: TrainingForecast
) -> str:
    reasons = []
    if training.deadline_h is not None and fastest.hours.value > training.deadline_h:
        reasons.append(f"its fastest mode, {fastest.name}, takes {_figure(fastest.hours, 'h')}")
    if training.energy_budget_wh is not None and cheapest.energy_wh.value > training.energy_budget_wh:
        reasons.append(f"its cheapest mode, {cheapest.name}, takes {_figure(cheapest.energy_wh, 'Wh')}")
    nearest = (
        f"the safest mode, {safest.name}, takes {_figure(safest.hours, 'h')} and "
        f"{_figure(safest.energy_wh, 'Wh')} and misses a limit with {share_to_percent(safest.risk):.2g} %"
    )
    return "; ".join(reasons or [nearest])


def _figure(figure: FigureInterval, unit: str) -> str:
    return f"{figure.value:.3g} {unit} ({figure.low:.3g} to {figure.high:.3g})"


def format_forecasts(training: Training, boards: Sequence[BoardForecast], provenance: str) -> str:
    """A table: each board with its fastest and its cheapest mode, or the reason why none is feasible."""
    rows = []
    for board in boards:
        if board.fastest is None or board.cheapest is None:
            rows.append([board.board, "no", *[""] * 5, board.why_not])
            continue
        same = board.fastest.name == board.cheapest.name
        modes = {"fastest, cheapest" if same else "fastest": board.fastest, "cheapest": board.cheapest}
        for name, mode in list(modes.items())[: 1 if same else 2]:
            epoch = mode.epoch_s
            rows.append([
                board.board,
                name,
                f"{epoch.value:.4g}",
                f"{epoch.low:.4g} to {epoch.high:.4g}",
                f"{mode.hours.value:.3g}",
                f"{mode.energy_wh.value:.4g}",
                f"{share_to_percent(mode.risk):.2g} %",
                mode.name + ("" if epoch.profiled else " (predicted)"),
            ])  # fmt: skip
    header = ["board", "in time", ">epoch s", ">80 %", ">hours", ">Wh", ">risk", "mode"]
    return f"training:    {training.describe()}; {provenance}\n{format_table(header, rows)}"


def plain_forecasts(training: Training, boards: Sequence[BoardForecast]) -> Dict[str, Any]:
    """The same as plain values, for JSON."""
    return {
        **training._asdict(),
        "boards": [
            {
                "board": board.board,
                "device": board.device,
                "feasible": board.feasible,
                "fastest": board.fastest and _plain(board.fastest),
                "cheapest": board.cheapest and _plain(board.cheapest),
                "why_not": board.why_not,
            }
            for board in boards
        ],
    }


def _plain(mode: TrainingForecast) -> Dict[str, Any]:
    figures = {name: getattr(mode, name)._asdict() for name in ("epoch_s", "hours", "energy_wh")}
    risks = {name: getattr(mode, name) for name in ("deadline_risk", "energy_risk", "risk")}
    return {"mode": mode.power_mode.name, "batch_size": mode.batch_size, **figures, **risks}


def feasible_boards(boards: Sequence[BoardForecast]) -> List[str]:
    return [board.board for board in boards if board.feasible]
