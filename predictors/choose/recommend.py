"""`recommend`: profile a few power modes on a device, or a pool of boards, and name the one that meets a goal best."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import numpy as np

from harness.core.boards import load_board
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import DEFAULT_RESULTS, Configuration, load_configuration
from harness.core.corpus import TASKS
from harness.core.device import Device, is_pool, is_real, limits_of, named_mode, rehearses_memory
from harness.core.errors import CannotRunError, HarnessError, InvalidValueError
from harness.core.files import write_output
from harness.core.mode_texts import MAXN
from harness.core.power_modes import PowerMode
from harness.core.terminal import Countdown, Progress, available_hint, counted
from harness.core.units import mw_to_w
from predictors.choose.budget import NO_BUDGET, Budget, goals_of, joined, limits_training, peak_mw_of
from predictors.choose.job import Job, JobLike, batch_sizes_of, command_of, job_of, workloads_of
from predictors.choose.on_device import MEDIAN, PowerPeak, board_of, profiler_of, storage_of
from predictors.choose.recommendation_report import (
    format_recommendation,
    format_shared,
    plain_mode,
    plain_recommendation,
    plain_spent,
)
from predictors.choose.search import (
    RISK,
    USUAL_SEARCH,
    Search,
    most_profiles,
    references_of,
    strategy_of,
)
from predictors.choose.whole_training import (
    BoardForecast,
    Training,
    feasible_boards,
    forecast,
    format_forecasts,
    on_another_board,
    plain_forecasts,
)
from predictors.goals import QUANTITIES, Goal, check_objective, note_out_of_reach
from predictors.models.base import check_kind, refuse_unread
from predictors.profiles import Profiles
from predictors.settings import Settings
from predictors.strategies.closed_loop import OneShot
from predictors.strategies.fixed import presets_of
from predictors.strategies.protocol import Choice, History, Strategy
from predictors.strategies.recommendation import Recommendation, SharedMode, shared_mode
from predictors.strategies.recommendation import recommend as choose_and_describe
from predictors.strategies.registry import STRATEGIES, StrategySetting, strategy_on_device, unfitted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from harness.store.results import ResultsStore
    from harness.workloads.command import Command

EPOCHS: Dict[str, int] = {"resnet18-imagenet": 120, "yolov8n-coco": 200, "mobilenetv3-gld23k": 148}
"""Epochs to convergence that 001 sec. 1.4 and 3.1 use."""

LEAST_GAIN = 0.002  # the search ends when another profile promises less than this share of the time

POOL, LAB = "pool:", "lab.toml"
LOCKED_CLOCKS = 8  # of a discrete GPU that are candidates, from the least to the greatest


def recommend(
    device: str,
    *,
    workload: JobLike,
    power_w: Union[float, Sequence[float], None] = None,
    time_ms: Optional[float] = None,
    goal: Union[str, Goal, None] = None,
    budget: Budget = NO_BUDGET,
    search: Search = USUAL_SEARCH,
    writes_conf: bool = False,
    progress: Optional[Progress] = None,
) -> Answer:
    """Profile a few power modes on a device and recommend the best one for a goal, as `jetwatt recommend` does.

    Args:
        device: `sim:orin-agx`, `host`, a board's name on that board, or `replay:CORPUS.csv`; `pool:NAME` for boards of
            the fleet that lab.toml describes, `pool:NAME@LAB` for that of another file.
        workload: one of the suite's, your own as `module:NAME` or as a `Workload`, or several, which are searched for
            in turn; or a `Job`, which also has batch sizes, workers, storage, epochs and task; or a `Command`, whose
            time is that of the whole command unless its output shows minibatches.
        power_w: maximum module power in W; several share one set of profiles.
        time_ms: maximum minibatch time in ms.
        goal: what to minimise: `time`, `power`, `energy`, `edp`, `throughput` or `sample-energy`; or a `Goal`.
        budget: further limits: on the peak power, or on time and energy of the whole training.
        search: how to search, and where profiles are kept.
        writes_conf: whether the mode will be written as an nvpmodel conf, which a device without one refuses.
        progress: receives the progress, and the text of each workload's recommendation when it is ready; None prints
            the progress on standard error.

    Raises:
        HarnessError: the device is not available or has no power sensor, or arguments contradict each other. If no mode
            is expected to keep the limits, the answer has the nearest one, and `keeps_limits` is false.
    """
    # What opens and measures devices is loaded when a search begins.
    from harness.measure.contention import report_others
    from harness.store.results import ResultsStore
    from predictors.choose.device_profiler import workers_of, workload_name

    check_kind(Budget, budget=budget)
    check_kind(Search, search=search)
    job, budget = job_of(workload), joined(budget, power_w, time_ms)
    _refuse(device, goal, search)
    command = command_of(job)
    if command is not None:
        _refuse_beside_command(job, device, budget, search, writes_conf)
    progress = progress or Progress(sys.stderr)
    configuration = load_configuration(Path(search.config))
    opened = _opened(device, search, configuration, progress)
    if command is not None:
        return _recommend_for_command(opened, command, goals_of(budget, goal, None, [1]), budget, search, progress)
    report_others(opened, progress.line)
    storage = storage_of(job, opened, configuration, progress.line)
    _refuse_on(opened, search, writes_conf)
    sizes = batch_sizes_of(job)
    names = [workload_name(each, opened) for each in workloads_of(job)]
    if limits_training(budget):
        _refuse_more_than_an_epoch(names, max(sizes))
    lengths = [minibatches_of_training(name, sizes[0], job.epochs) for name in names]
    minimised = _of_samples(goal, sizes, opened)
    goals = [goals_of(budget, minimised, length, sizes) for length in lengths]
    case_device = opened.name if device.startswith(POOL) else device
    answer = Answer(opened, case_device, budget)
    device_in_corpus = board_of(opened) or getattr(opened, "board", opened.name)
    references = references_of(search, names, job.task, device_in_corpus)
    settings = CaseSettings(
        minibatches=search.minibatches, seed=search.seed, max_temperature_c=search.max_temperature_c
    )
    results = None if is_pool(opened) else search.results  # a pool keeps its profiles itself
    with contextlib.nullcontext() if results is None else ResultsStore(Path(results)) as store:
        for name, length, wanted in zip(names, lengths, goals):
            where = storage, sizes[0], settings, job.task
            recommendations = recommend_mode(
                opened,
                Case(case_device, name, named_mode(opened, MAXN, name), workers_of(name, job.workers), *where),
                wanted,
                search,
                batch_sizes=sizes,
                references=(*references, *(profiles_of(earlier[0], opened) for earlier in answer.recommendations)),
                store=store,
                samples=None if length is None else length * sizes[0],
                progress=progress,
                peak_mw=peak_mw_of(budget),
            )
            training = whole_training(name, job.epochs, budget, search.risk) if limits_training(budget) else None
            progress.result(answer.add(name, recommendations, training))
    if len(names) > 1:
        answer.share()
        for text in answer.shared_texts:
            progress.result("\n" + text)
    return answer


def _recommend_for_command(
    device: Device, command: Command, goals: Sequence[Goal], budget: Budget, search: Search, progress: Progress
) -> Answer:
    """The same for a command as the workload, in whose place a workload is rehearsed on a simulated board."""
    from harness.measure.command_device import CommandDevice, command_case
    from harness.store.results import ResultsStore
    from predictors.choose.device_profiler import power_sampler

    opened = CommandDevice(device, command)
    if is_real(device):
        with power_sampler(device, 1.0, device.root):
            pass  # refuse a device without power before the first run
    case_device = device.name
    case = command_case(
        case_device, command, named_mode(opened, MAXN), max_temperature_c=search.max_temperature_c, seed=search.seed
    )
    references = references_of(search, [command.workload], TASKS[0], board_of(opened) or device.name)
    answer = Answer(opened, case_device, budget)
    with contextlib.nullcontext() if search.results is None else ResultsStore(Path(search.results)) as store:
        recommendations = recommend_mode(
            opened,
            case,
            goals,
            search,
            references=references,
            store=store,
            progress=progress,
            peak_mw=peak_mw_of(budget),
        )
        progress.result(answer.add(command.workload, recommendations))
    return answer


def _refuse_beside_command(job: Job, device: str, budget: Budget, search: Search, writes_conf: bool) -> None:
    """Refuse what a search for a command does not read."""
    refuse_unread(job, "a command", "batch_size", "workers", "storage", "task", "epochs")
    refuse_unread(search, "a command", "minibatches", "memory_limit_mib")
    refuse_unread(budget, "a command", "deadline_h", "energy_wh")
    if search.percentile not in (None, MEDIAN):
        raise InvalidValueError("a command has no percentiles", "omit percentile=")
    if device.startswith(POOL):
        raise InvalidValueError("a pool runs no commands", "search on one device")
    if writes_conf:
        raise InvalidValueError("writes_conf= does not apply to a command", "jetwatt nvpmodel-conf writes its mode")


def _refuse(device: str, goal: Union[str, Goal, None], search: Search) -> None:
    """Refuse names and combinations before anything is opened."""
    if not isinstance(device, str):
        raise InvalidValueError(f"device is a {type(device).__name__}, expected a name", "such as 'sim:orin-agx'")
    if isinstance(goal, str):
        check_objective(goal)
    if search.strategy is not None and search.strategy not in STRATEGIES:
        raise InvalidValueError(f"strategy is {search.strategy!r}", available_hint(search.strategy, STRATEGIES))
    refuse_unread(search, "recommend", "check_s")
    if device.startswith(POOL) and search.resume:
        raise InvalidValueError("resume= does not apply to a pool", "omit it, or search on one device")


def _opened(device: str, search: Search, configuration: Configuration, progress: Progress) -> Device:
    """The device, or the pool of boards, of that name."""
    if not device.startswith(POOL):
        from harness.devices.registry import open_device

        return open_device(device, configuration, Path(search.root))
    from harness.fleet.pool import open_pool

    pool, _, lab = device[len(POOL) :].partition("@")
    kept = DEFAULT_RESULTS if search.results is None else Path(search.results)
    return open_pool(Path(lab or LAB), pool, kept, configuration, progress.update)


def _refuse_on(device: Device, search: Search, writes_conf: bool) -> None:
    """Refuse what a device does not have."""
    if search.percentile not in (None, MEDIAN) and device.provenance == "replayed":
        raise InvalidValueError("a corpus has medians only", "omit percentile=")
    has_memory = device.provenance == "measured" or rehearses_memory(device)
    if search.memory_limit_mib is not None and not has_memory:
        what = f"{device.name} has no peak memory to limit: its profiles are {device.provenance}"
        where = "run on a board, on a simulated one, or with device='host', where there is a power sensor"
        raise InvalidValueError(what, f"{where}; or omit memory_limit_mib=")
    if writes_conf and not board_of(device):
        raise InvalidValueError(f"{device.name} has no nvpmodel", "omit writes_conf=")


def whole_training(workload: str, epochs: Optional[float], budget: Budget, risk: Optional[float]) -> Training:
    """The whole training of a workload on its real data set, with its limits."""
    from harness.workloads import get_workload

    return Training(
        epochs if epochs is not None else float(EPOCHS[workload]),
        get_workload(workload).real_samples,
        budget.deadline_h,
        budget.energy_wh,
        RISK if risk is None else risk,
    )


class Answer:
    """The power mode to train with, and all results of the search; printed, it is the text of `jetwatt recommend`.

    `recommendations` has a list for each workload, with a recommendation for each goal.
    """

    def __init__(self, device: Device, case_device: str, budget: Budget) -> None:
        self.device = device
        self.case_device = case_device  # as the cases name it
        self.budget = budget
        self.recommendations: List[List[Recommendation]] = []
        self.trainings: List[Optional[Training]] = []  # of each workload, if the whole training has a limit
        self.boards: List[List[BoardForecast]] = []  # of each workload, the boards that can train it within its limits
        self.shared: List[Optional[SharedMode]] = []  # for several workloads, the common mode for each goal
        self.shared_texts: List[str] = []
        self._texts: List[str] = []

    @property
    def power_mode(self) -> PowerMode:
        """The chosen mode, of the first workload and goal."""
        return self.recommendations[0][0].choice.power_mode

    @property
    def power_limit_mw(self) -> Optional[int]:
        """The power limit of the chosen mode, for a discrete GPU; None for other devices."""
        return self.recommendations[0][0].choice.power_limit_mw

    @property
    def keeps_limits(self) -> bool:
        """Whether every choice is expected to keep its limits; for a pool, on at least one of its boards."""
        return not self._missed()

    def _missed(self) -> List[Recommendation]:
        return [
            recommendation
            for recommendations, boards in zip(self.recommendations, self.boards)
            for recommendation in recommendations
            if not recommendation.choice.feasible and not (is_pool(self.device) and feasible_boards(boards))
        ]

    def __repr__(self) -> str:
        return "\n".join([*self._texts, *(f"\n{text}" for text in self.shared_texts)])

    def add(
        self,
        workload: str,
        recommendations: List[Recommendation],
        training: Optional[Training] = None,
    ) -> str:
        """Add a workload's recommendations; returns their text.

        Forecasts of `training` are for the first goal, and for minibatches within the budget's time.
        """
        self.recommendations.append(recommendations)
        self.trainings.append(training)
        boards: List[BoardForecast] = []
        if training is not None:
            boards = forecasts_of(self.device, recommendations[0], training, self.budget.time_ms)
        self.boards.append(boards)
        lines = [_text_of(self.device, workload, recommendations, peak_mw_of(self.budget))]
        if is_pool(self.device):
            lines.append(self.device.describe())
        if training is not None:
            lines.append(format_forecasts(training, self.boards[-1], self.device.provenance))
        self._texts.append("\n".join(lines))
        return self._texts[-1]

    def share(self) -> None:
        """Choose the mode that serves all workloads best, for each goal."""
        for recommendations in zip(*self.recommendations):
            self.shared.append(shared_mode(recommendations, RISK))
            self.shared_texts.append(format_shared(recommendations, self.shared[-1]))

    def front(self) -> pd.DataFrame:
        """The modes that no other is expected to beat in both time and power, by rising power; 80 % intervals."""
        import pandas as pd

        return pd.json_normalize(plain_recommendation(self.recommendations[0][0])["front"], sep="_")

    def forecasts(self) -> pd.DataFrame:
        """Which boards keep the training's deadline and energy budget: a row each, as `deadlines.BoardForecast`."""
        import pandas as pd

        if self.trainings[0] is None:
            raise CannotRunError("the whole training has no limit", "give a budget with deadline_h= or energy_wh=")
        return pd.json_normalize(plain_forecasts(self.trainings[0], self.boards[0])["boards"], sep="_")

    def plot(self, path: Union[str, Path, None] = None, ax: Optional[Axes] = None) -> Axes:
        """Plot time and power of all modes, the front, the profiled modes and the recommended one.

        Args:
            path: also save the figure as a picture.
            ax: matplotlib's Axes to draw on; None for those of a new figure.

        Returns:
            The Axes, for changes of your own.
        """
        from predictors.plots import axes_to_draw_on, draw_recommendation

        with axes_to_draw_on(ax, path) as axes:
            draw_recommendation(self.recommendations[0][0], axes, self.device.provenance)
        return axes

    def _repr_html_(self) -> str:
        from predictors.choose.notebook import html_table

        rows = [
            {
                "workload": profiler_of(recommendation.history).template.workload,
                "goal": recommendation.goal.describe(),
                "power mode": recommendation.mode.name,
                "batch size": recommendation.choice.batch_size,
                "time (ms)": recommendation.mode.time_ms.value,
                "power (W)": mw_to_w(recommendation.mode.power_mw.value),
                "keeps the limits": "yes" if recommendation.choice.feasible else "no, it is the nearest",
                "provenance": self.device.provenance,
            }
            for recommendations in self.recommendations
            for recommendation in recommendations
        ]
        return html_table(f"Recommended on {self.device.name}", rows)

    def write_conf(
        self, path: Union[str, Path], root: Union[str, Path] = "/", name: str = "JETWATT"
    ) -> Tuple[int, bool]:
        """Write an nvpmodel conf with the mode, as `--write-conf` does.

        Args:
            path: the file to write.
            root: root of the board's /etc and /var, if this is the board.
            name: of the mode in the conf.

        Returns:
            The number of the mode, and whether it was made from the board's own conf; else from its specification.

        Raises:
            HarnessError: the device has no nvpmodel, or its conf cannot be extended.
        """
        from harness.devices.nvpmodel_making import make_conf, off_board_conf, on_board_conf

        board = board_of(self.device)
        if not board:
            raise InvalidValueError(f"{self.device.name} has no nvpmodel", "a mode of a board has a conf")
        on_board = self.device.name in (board, f"emulated-{board}")
        mode = self.power_mode
        base = on_board_conf(Path(root), mode) if on_board else off_board_conf(load_board(board), mode)
        number, text = make_conf(*base, name)
        command = f"jetwatt recommend --device {self.case_device}"
        origin = f"# Chosen by `{command}`: {self.device.provenance} profiles.\n"
        write_output(Path(path), (origin + text).encode())
        return number, on_board

    def plain(self) -> Dict[str, Any]:
        """The answer as plain values, for JSON."""
        plain = _plain(self.device, self.recommendations, self.shared, peak_mw_of(self.budget))
        trainings = [
            plain_forecasts(training, boards)
            for training, boards in zip(self.trainings, self.boards)
            if training is not None
        ]
        if trainings:
            plain["training"] = trainings[0] if len(trainings) == 1 else trainings
        return plain

    def refuse_missed(self) -> None:
        """Raise a `CannotRunError` with limits that can be kept if no mode is expected to keep those of the goal."""
        missed = self._missed()
        if missed:
            raise CannotRunError(
                f"no mode meets the goal: {'; '.join(recommendation.goal.describe() for recommendation in missed)}",
                _limits_within_reach(missed[0], peak_mw_of(self.budget)),
            )


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


def _refuse_more_than_an_epoch(workloads: Sequence[str], batch_size: int) -> None:
    """A training whose epochs have no whole minibatch takes no time, and would keep any limit."""
    from harness.workloads import get_workload

    for name in workloads:
        samples = get_workload(name).real_samples
        if samples < batch_size:
            raise InvalidValueError(
                f"a minibatch of {batch_size} samples is more than an epoch of {name}, which has {samples}",
                "a smaller batch_size=, or neither deadline_h= nor energy_wh=",
            )


def minibatches_of_training(workload: str, batch_size: int, epochs: Optional[float] = None) -> Optional[float]:
    """Minibatches of a whole training on the real data set, by default of as many epochs as the papers use.

    None if the number of epochs is unknown.
    """
    from harness.workloads import get_workload

    epochs = epochs if epochs is not None else EPOCHS.get(workload)
    return None if epochs is None else epochs * (get_workload(workload).real_samples // batch_size)


def _plain(
    device: Device,
    recommendations: Sequence[Sequence[Recommendation]],
    shared: Sequence[Optional[SharedMode]],
    peak_mw: Optional[float],
) -> Dict[str, Any]:
    """The values of the JSON file: a recommendation, or a list of several with their total cost."""
    flat = [recommendation for for_workload in recommendations for recommendation in for_workload]
    plain = [plain_recommendation(recommendation) for recommendation in flat]
    if peak_mw is not None:
        for values, recommendation in zip(plain, flat):
            peak = _peak_of(recommendation)
            values["peak"] = {"budget_mw": peak_mw, **(peak._asdict() if peak else {})}
    if len(plain) == 1:
        return plain[0]
    if not shared:
        return {"recommendations": plain, "spent": plain[0]["spent"]}
    modes = [
        choice and {"modes": [plain_mode(mode, device.provenance) for mode in choice.modes], "longer": choice.longer}
        for choice in shared
    ]
    return {
        "recommendations": plain,
        "spent": plain_spent([for_workload[0] for for_workload in recommendations]),
        "shared": modes,
    }


def _text_of(device: Device, workload: str, recommendations: Sequence[Recommendation], peak_mw: Optional[float]) -> str:
    lines = [format_recommendation(*recommendations)]
    for recommendation in recommendations:
        peak = _peak_of(recommendation)
        if peak and (peak_mw is not None or peak.exceeded):
            apart = "" if peak.window_s is None else f" in samples {peak.window_s:.2g} s apart"
            allowed = "" if peak_mw is None else f", limit {mw_to_w(peak_mw):.4g} W"
            exceeded = f"; {peak.exceeded}" if peak.exceeded else ""
            lines.append(f"peak:        {mw_to_w(peak.peak_mw):.4g} W{apart}{allowed}{exceeded}")
    for recommendation in recommendations:
        note = note_out_of_reach(recommendation.goal, recommendation.posterior.greatest_power_mw)
        lines += [f"note:        {note}"] if note else []
    case = profiler_of(recommendations[0].history).case(recommendations[0].choice.index)
    scaled_from = device.conditions(case).get("scaled_from") if device.provenance == "simulated" else None
    if scaled_from:
        lines.append(
            f"rough:       {workload} is not calibrated on {device.name}: scaled from {scaled_from}, to a factor of 2.2"
        )
    return "\n".join(lines)


def _limits_within_reach(recommendation: Recommendation, peak_mw: Optional[float]) -> str:
    """The hint on limits that no mode keeps: the least values that modes have, or else the nearest mode."""
    near, limits = recommendation.mode, recommendation.goal.limits
    medians = {name: np.exp(recommendation.posterior.log_quantity(name)[0]) for name in limits}
    is_uncertain = all(medians[name][recommendation.choice.index] <= limit for name, limit in limits.items())
    peak = _peak_of(recommendation)
    figures = f"{near.time_ms.value:.4g} ms at {mw_to_w(near.power_mw.value):.4g} W"
    if peak_mw is not None and peak is not None and peak.peak_mw > peak_mw:
        figures += f", with peaks of {_rounded_up(mw_to_w(peak.peak_mw))} W"
        reachable, is_near = "", False
    elif is_uncertain:
        unsure = f"the nearest mode, {near.name}, has {figures}, but not surely enough"
        return f"{unsure}: allow more profiles= or a greater risk="
    else:
        reachable, is_near = _least_within_reach(recommendation, medians)
    allowed = reachable or f"the nearest mode, {near.name}, has {figures}"
    known = f"as far as {counted(recommendation.choice.spent.profiles, 'profile')} tell, {allowed}"
    return f"{known}: allow that, {'more profiles=, ' if is_near else ''}or try another board or batch size"


NEAR_LIMIT = 1.25  # the ratio to a limit up to which more profiles may find a mode that keeps it


def _least_within_reach(recommendation: Recommendation, medians: Mapping[str, np.ndarray]) -> Tuple[str, bool]:
    """The least value of each limited quantity above its limit, among the modes that keep all other limits if any does.

    `medians` has an array over all candidates for each limited quantity. Any one of the limits is enough to relax where
    modes keep the others. Empty if each limit is kept by some mode, or the other limits exclude all. Second, whether
    what has to be allowed is within `NEAR_LIMIT` of its limits.
    """
    limits, least, ratios, is_one_enough = recommendation.goal.limits, [], [], False
    others_kept = "that keeps the other limit" if len(limits) == 2 else "that keeps all other limits"
    for name, limit in limits.items():
        keeps_others = recommendation.pickable.copy()
        for other in limits:
            keeps_others &= (other == name) | (medians[other] <= limits[other])
        relaxes = len(limits) > 1 and bool(keeps_others.any())
        candidates = keeps_others if relaxes else recommendation.pickable
        index = int(np.where(candidates, medians[name], np.inf).argmin())
        value, quantity = float(medians[name][index]), QUANTITIES[name]
        if value > limit:
            unit, factor = quantity.shown_in
            predicted = "" if recommendation.posterior.measured[index] else " (predicted)"
            ratios.append(value / limit)
            where = others_kept if relaxes else "within reach"
            least.append(f"the least {quantity.words} {where} is {_rounded_up(value * factor)} {unit}{predicted}")
            is_one_enough = is_one_enough or relaxes
    is_near = bool(ratios) and (min if is_one_enough else max)(ratios) <= NEAR_LIMIT
    return (", or " if is_one_enough else " and ").join(least), is_near


def _rounded_up(value: float) -> str:
    """A value above 0 in four significant digits that is no less, so that a limit of it is kept."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / unit) * unit:.4g}"


def profiles_of(recommendation: Recommendation, device: Device) -> Profiles:
    """The profiles of a recommendation, as a table that other searches may start from."""
    history = recommendation.history
    return dataclasses.replace(
        history.profiles,
        device=board_of(device),
        workload=profiler_of(history).template.workload,
        provenance=device.provenance,
    )


def recommend_mode(
    device: Device,
    case: Case,
    goals: Sequence[Goal],
    search: Search,
    *,
    batch_sizes: Sequence[int] = (),
    references: Tuple[Profiles, ...] = (),
    store: Optional[ResultsStore] = None,
    samples: Optional[float] = None,
    progress: Progress,
    peak_mw: Optional[float] = None,
) -> List[Recommendation]:
    """Hold a device, profile some of its modes, and recommend the best one for each goal.

    `case` is profiled with its power mode and, if there are `batch_sizes`, its batch size replaced. `samples` are those
    of the whole training; None counts savings over an hour.
    """
    from predictors.choose.device_profiler import DeviceProfiler, RunResults, power_sampler

    if is_real(device):
        with power_sampler(device, 1.0, device.root):
            pass  # refuse a device without power before the first profile
    if device.clocks_only_fall and device.provenance == "measured":
        progress.line(
            f"note: some releases of {device.name} can only lower clocks; if a mode is refused, reboot and resume"
        )
    board = board_of(device)
    limits_mw = limits_of(device)
    presets, modes = presets_of(board), device.power_modes("all", case.workload)
    if limits_mw and device.provenance != "replayed":
        modes = locked_clocks(device)
    if strategy_of(search) == "presets" and device.provenance != "replayed":
        # By name they are the vendor's complete modes: GPU clusters that a preset switches off are off.
        presets = tuple(preset._replace(has_less_gpu=False) for preset in presets)
        modes = [mode for preset in presets for mode in device.power_modes(preset.name, case.workload)]
    setting = StrategySetting(
        board, references, presets, RISK if search.risk is None else search.risk, search.unprofiled
    )
    if limits_mw:
        setting = setting._replace(
            device=getattr(device, "board", device.name),
            space=Settings.of([mode for _, mode in modes]).space(),
            workload=case.workload,
        )
    seed = case.settings.seed
    batch = search.batch or (len(device.boards) if is_pool(device) else 1)
    chooser = strategy_on_device(strategy_of(search), setting, seed, LEAST_GAIN, batch)
    with device.session():
        profiler = DeviceProfiler(
            device,
            case,
            modes,
            batch_sizes=batch_sizes,
            power_limits_mw=limits_mw,
            results=None if store is None else RunResults(store),
            search=search,
            report=progress.update,
        )
        profiles = most_profiles(search)
        countdown = Countdown(min(profiles, len(profiler.candidates.modes)))

        def show(line: str) -> None:
            countdown.start_one()
            countdown.finish_one()
            left = countdown.left()
            progress.line(f"{line}{left and f' ({left})'}")

        history = History(profiler, profiles, show)
        try:
            predictor = unfitted(setting, seed)()
            if peak_mw is not None:
                chooser = WithinPeak(chooser, peak_mw, profiler.peaks)
            recommendations = choose_and_describe(
                history, goals, chooser, predictor, setting.presets, samples, search.unprofiled
            )
        except (KeyboardInterrupt, HarnessError):
            if history.taken and store is not None:
                kept = counted(len(history.taken), "profile")
                progress.line(f"{kept} kept in {store.path}: resume to continue from there")
            raise
    progress.clear()
    return recommendations


def locked_clocks(device: Device) -> List[Tuple[str, PowerMode]]:
    """The modes of a discrete GPU to choose from beside its power limit: up to `LOCKED_CLOCKS` of its GPU clocks.

    CPU and memory keep their greatest clocks: they would hold the GPU up, and save little of its power.
    """
    space = device.power_mode_space()
    last, count = len(space.gpu_khz) - 1, min(LOCKED_CLOCKS, len(space.gpu_khz))
    places = [round(last * (number + 1) / count) if last else 0 for number in range(count)]
    modes = [space.greatest._replace(gpu_khz=space.gpu_khz[place]) for place in sorted(set(places))]
    return [(mode.name, mode) for mode in modes]


PEAK_CHECKS = 2  # profiles for each goal that a strategy which chooses by prediction leaves, to check its choices


class WithinPeak(Strategy):
    """A strategy whose choice is profiled and keeps a peak limit; if it does not, the power limit is lowered.

    The profile that broke the limit determines by how much: no predictor models peaks. If no profile is left for a
    choice, it is not feasible.
    """

    def __init__(self, strategy: Strategy, limit_mw: float, peaks: Mapping[int, PowerPeak]) -> None:
        self._strategy = strategy
        self._limit_mw = limit_mw
        self._peaks = peaks

    def choose_all(self, history: History, goals: Sequence[Goal]) -> List[Choice]:
        goals = [self._at_most(goal, self._limit_mw) for goal in goals]
        self._keep_back(min(PEAK_CHECKS * len(goals), history.left - 1))
        choices = self._strategy.choose_all(history, goals)
        self._keep_back(history.left)
        return [self._checked(history, *each) for each in zip(goals, choices)]

    def _keep_back(self, profiles: int) -> None:
        if isinstance(self._strategy, OneShot):
            self._strategy.kept_back = profiles

    def _checked(self, history: History, goal: Goal, choice: Choice) -> Choice:
        refused: Set[int] = set()
        while choice.feasible:
            name = history.profiler.candidates.name(choice.index)
            if choice.index not in history.taken and history.left <= 0:
                reason = f"{choice.reason}; no profile is left to check its peak"
                return dataclasses.replace(choice, feasible=False, reason=reason)
            if history.profile(choice.index) is None:
                raise CannotRunError(f"{name} cannot be profiled: {history.failed[choice.index]}")
            if choice.index not in self._peaks:
                raise CannotRunError(f"the profile of {name} has no peak power", "omit peak_w=")
            is_within = choice.index not in refused and history.figures(choice.index, goal)[1] <= 0
            choice = history.choice(choice.index, choice.reason, is_within)
            peak_mw = self._peaks[choice.index].peak_mw
            if peak_mw <= self._limit_mw or not is_within:
                break
            refused.add(choice.index)
            drawn_mw = history.taken[choice.index].power_mw
            goal = self._at_most(goal, drawn_mw * self._limit_mw / peak_mw)
            choice = self._strategy.choose(history, goal)
        return choice

    @staticmethod
    def _at_most(goal: Goal, power_mw: float) -> Goal:
        return Goal(goal.minimise, {**goal.limits, "power_mw": min(power_mw, goal.limits.get("power_mw", math.inf))})


def _peak_of(recommendation: Recommendation) -> Optional[PowerPeak]:
    return profiler_of(recommendation.history).peaks.get(recommendation.choice.index)


def _of_samples(goal: Union[str, Goal, None], sizes: Sequence[int], device: Device) -> Union[str, Goal, None]:
    """On a discrete GPU `energy` with several batch sizes is the energy to the end of an epoch, so that of a sample."""
    return "sample-energy" if goal == "energy" and len(sizes) > 1 and limits_of(device) else goal
