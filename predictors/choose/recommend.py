"""`recommend`: profile a few power modes on a device, or a pool of boards, and name the one that meets a goal best."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import numpy as np

from harness.core.boards import load_board
from harness.core.campaigns import check_media, default_medium
from harness.core.cases import DEFAULT_MINIBATCHES, Case, CaseSettings
from harness.core.configuration import DEFAULT_RESULTS, DEFAULT_STORAGE, FILE_NAME, load_configuration
from harness.core.corpus import TASKS
from harness.core.device import Device, is_pool, is_real, limits_of, named_mode
from harness.core.errors import CannotRunError, HarnessError, InvalidValueError
from harness.core.files import write_output
from harness.core.mode_texts import MAXN
from harness.core.power_modes import PowerMode
from harness.core.terminal import Countdown, Progress, available_hint, counted
from harness.core.units import S_PER_HOUR, mib_to_bytes, mw_to_w, s_to_ms, w_to_mw
from predictors.choose.on_device import MEDIAN, PowerPeak, board_of, profiler_of
from predictors.choose.recommendation_report import (
    format_recommendation,
    format_shared,
    plain_mode,
    plain_recommendation,
    plain_spent,
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
from predictors.goals import OBJECTIVES, QUANTITIES, Goal, budget_in_mw
from predictors.models.base import check_options, check_probability
from predictors.profiles import Profiles
from predictors.settings import DEFAULT_BATCH_SIZE, Settings
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

EPOCHS: Dict[str, int] = {"resnet18-imagenet": 120, "yolov8n-coco": 200, "mobilenetv3-gld23k": 148}
"""Epochs to convergence that 001 sec. 1.4 and 3.1 use."""

LEAST_GAIN = 0.002  # the search ends when another profile promises less than this share of the time

ON_DEVICE = "closed-loop"
LOCKED_CLOCKS = 8  # of a discrete GPU that are candidates, from the least to the greatest
RISK = 0.05  # of `one-shot`, unless given


@dataclasses.dataclass(frozen=True)
class Search:
    """How power modes are searched for on a device."""

    strategy: Optional[str] = None  # None for the default, or for `one-shot` if a risk is given
    profiles: int = 15  # that may be taken
    risk: Optional[float] = None  # of a choice by prediction: the greatest probability of breaking a limit
    batch: Optional[int] = None  # modes chosen at once; None for 1, or for one per board of a pool
    unprofiled: bool = False  # whether settings outside the profiled range may be chosen
    percentile: float = MEDIAN  # of the times of minibatches
    memory_limit_bytes: Optional[float] = None  # batch sizes that need more are not started
    resume: bool = False  # whether stored profiles of the same conditions are taken

    @property
    def strategy_name(self) -> str:
        return self.strategy or (ON_DEVICE if self.risk is None else "one-shot")


def recommend(
    device: Optional[str] = None,
    *,
    workload: Union[str, Sequence[str]],
    pool: Optional[str] = None,
    lab: Union[str, Path] = "lab.toml",
    task: str = TASKS[0],
    batch_size: Union[int, Sequence[int]] = DEFAULT_BATCH_SIZE,
    workers: Optional[int] = None,
    storage: Optional[str] = None,
    epochs: Optional[float] = None,
    goal: Optional[str] = None,
    power_budget: Union[float, Sequence[float], None] = None,
    peak_budget: Optional[float] = None,
    time_limit: Optional[float] = None,
    percentile: float = MEDIAN,
    deadline: Optional[float] = None,
    energy_budget: Optional[float] = None,
    profiles: int = 15,
    minibatches: int = DEFAULT_MINIBATCHES,
    seed: int = 0,
    strategy: Optional[str] = None,
    risk: Optional[float] = None,
    unprofiled: bool = False,
    batch: Optional[int] = None,
    corpus: Union[str, Path, None] = None,
    reference: Sequence[str] = (),
    max_temperature: Optional[float] = None,
    memory_limit: Optional[float] = None,
    results: Union[str, Path, None] = None,
    resume: bool = False,
    config: Union[str, Path] = FILE_NAME,
    device_root: Union[str, Path] = "/",
    writes_conf: bool = False,
    show: Callable[[str], None] = lambda text: None,
    progress: Optional[Progress] = None,
) -> Answer:
    """Profile a few power modes on a device and recommend the best one for a goal, as `jetwatt recommend` does.

    Args:
        device: `sim:orin-agx`, `host`, a board's name on that board, or `replay:CORPUS.csv`.
        workload: one of the suite's, or your own as `module:NAME`; several are searched for in turn.
        pool: instead of `device`, boards of the fleet in `lab`.
        lab: the fleet's lab.toml.
        task: `training` or `inference`.
        batch_size: samples per minibatch; several to choose from, by time per sample. The batch size changes how a
            network learns.
        workers: of the DataLoader; None for the papers' default: 4, or 0 for YOLO.
        storage: medium of the data set; None for `ssd`, or for the board's own medium if it has no SSD.
        epochs: of the whole training; None for the papers' number.
        goal: what to minimise: `time`, `power`, `energy`, `edp`, `throughput` or `sample-energy`.
        power_budget: maximum module power in W; several share one set of profiles.
        peak_budget: maximum power sample in W in the chosen mode's profile.
        time_limit: maximum minibatch time in ms.
        percentile: of minibatch times, also for limits.
        deadline: maximum time of the whole training in hours.
        energy_budget: maximum energy of the whole training in Wh.
        profiles: power modes that may be profiled.
        minibatches: per profile.
        seed: the same seed starts with the same modes.
        strategy: how to search: `closed-loop`, `mdbs`, `presets` or another of docs/strategies.md.
        risk: choose a mode by prediction, from profiles of random modes, at this probability of breaking a limit.
        unprofiled: also choose modes with settings outside the profiled range.
        batch: modes chosen at once, at most `profiles`; None for 1, or for one per board of a pool.
        corpus: a file with profiles of other workloads to start from.
        reference: which of its workloads; empty for all except the requested ones.
        max_temperature: modes in which a sensor exceeds it, in degrees Celsius, are excluded.
        memory_limit: maximum peak memory in MiB; a batch size that needs more, as predicted from smaller ones, is never
            started.
        results: a file that keeps the profiles; None keeps none, or for a pool uses its default file.
        resume: use profiles of the same conditions in `results`.
        config: paths of storage media and data sets.
        device_root: root of an emulated board's /sys, /proc and /etc.
        writes_conf: whether the mode will be written as an nvpmodel conf, which a device without one refuses.
        show: receives the text of each workload's recommendation when it is ready.
        progress: receives the progress; None prints it on standard error.

    Raises:
        HarnessError: the device is not available or has no power sensor, or options contradict each other. If no mode
            is expected to keep the limits, the answer has the nearest one, and `keeps_limits` is false.
    """
    # What opens and measures devices is loaded when a search begins.
    from harness.devices.registry import open_device
    from harness.measure.contention import report_others
    from harness.store.results import ResultsStore
    from harness.workloads import get_workload
    from predictors.choose.device_profiler import workers_of, workload_name

    sizes, budgets = _numbers_of(batch_size), _numbers_of(power_budget)
    check_options(above=True, whole=True, profiles=profiles, batch=batch, minibatches=minibatches, batch_size=sizes)
    check_options(whole=True, seed=seed, workers=workers)
    check_options(above=True, epochs=epochs, deadline=deadline, energy_budget=energy_budget, percentile=percentile)
    check_options(above=True, power_budget=budgets, peak_budget=peak_budget, time_limit=time_limit)
    check_options(above=True, max_temperature=max_temperature, memory_limit=memory_limit)
    sizes = list(dict.fromkeys(map(int, sizes)))
    limit_bytes = None if memory_limit is None else mib_to_bytes(memory_limit)
    search = Search(strategy, profiles, risk, batch, unprofiled, percentile, limit_bytes, resume)
    _refuse(device, pool, task, goal, search, reference, corpus, sizes)
    progress = progress or Progress(sys.stderr)
    configuration = load_configuration(Path(config))
    if pool is None:
        opened: Device = open_device(str(device), configuration, Path(device_root))
    else:
        kept = DEFAULT_RESULTS if results is None else Path(results)
        from harness.fleet.pool import open_pool

        opened = open_pool(Path(lab), pool, kept, configuration, progress.update)
    report_others(opened, progress.line)
    case_device = opened.name if pool is not None else str(device)
    if percentile != MEDIAN and opened.provenance == "replayed":
        raise InvalidValueError("a corpus has medians only", "omit --percentile")
    if storage is not None and opened.provenance != "replayed":
        check_media([storage], configuration)
    if storage is None:
        storage = default_medium(board_of(opened), configuration)
        if storage != DEFAULT_STORAGE:
            progress.line(f"--storage {storage}: {opened.name} has no {DEFAULT_STORAGE}")
    if memory_limit is not None and opened.provenance != "measured":
        what = f"{opened.name} has no peak memory to limit: its profiles are {opened.provenance}"
        raise InvalidValueError(
            what, "run on a board or with --device host, where there is a power sensor; or omit --memory-limit"
        )
    names = [workload_name(name, opened) for name in ([workload] if isinstance(workload, str) else workload)]
    if deadline is not None or energy_budget is not None:
        _refuse_more_than_an_epoch(names, max(sizes))
    lengths = [minibatches_of_training(name, sizes[0], epochs) for name in names]
    budgets_mw = [budget_in_mw(budget) for budget in budgets]
    peak_mw = None if peak_budget is None else budget_in_mw(peak_budget, "peak budget")
    minimised = _of_samples(goal, sizes, opened)
    limits = budgets_mw, peak_mw, time_limit, deadline, energy_budget
    goals = [goals_of(minimised, *limits, length, sizes) for length in lengths]
    if writes_conf and not board_of(opened):
        raise InvalidValueError(f"{device} has no nvpmodel", "omit --write-conf")
    answer = Answer(opened, case_device, peak_mw)
    device_in_corpus = board_of(opened) or getattr(opened, "board", opened.name)
    references = _references(corpus, reference, names, task, device_in_corpus)
    settings = CaseSettings(minibatches=minibatches, seed=seed, max_temperature_c=max_temperature)
    with ResultsStore(Path(results)) if pool is None and results is not None else contextlib.nullcontext() as store:
        for name, length, wanted in zip(names, lengths, goals):
            where = storage, sizes[0], settings, task
            recommendations = recommend_mode(
                opened,
                Case(case_device, name, named_mode(opened, MAXN, name), workers_of(name, workers), *where),
                wanted,
                search,
                batch_sizes=sizes,
                references=(*references, *(profiles_of(earlier[0], opened) for earlier in answer.recommendations)),
                store=store,
                samples=None if length is None else length * sizes[0],
                progress=progress,
                peak_mw=answer.peak_mw,
            )
            training = None
            if deadline is not None or energy_budget is not None:
                taken = epochs if epochs is not None else float(EPOCHS[name])
                samples = get_workload(name).real_samples
                training = Training(taken, samples, deadline, energy_budget, RISK if risk is None else risk)
            show(answer.add(name, recommendations, training, time_limit))
    if len(names) > 1:
        answer.share()
        for text in answer.shared_texts:
            show("\n" + text)
    return answer


class Answer:
    """The power mode to train with, and all results of the search; printed, it is the text of `jetwatt recommend`.

    `recommendations` has a list for each workload, with a recommendation for each goal.
    """

    def __init__(self, device: Device, case_device: str, peak_mw: Optional[float] = None) -> None:
        self.device = device
        self.case_device = case_device  # as the cases name it
        self.peak_mw = peak_mw
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
        time_limit: Optional[float] = None,
    ) -> str:
        """Add a workload's recommendations; returns their text.

        Forecasts of `training` are for the first goal, and for minibatches that take at most `time_limit`, in ms.
        """
        self.recommendations.append(recommendations)
        self.trainings.append(training)
        boards = [] if training is None else forecasts_of(self.device, recommendations[0], training, time_limit)
        self.boards.append(boards)
        lines = [_text_of(self.device, workload, recommendations, self.peak_mw)]
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
            raise CannotRunError("no limit of the whole training was given", "give deadline= or energy_budget=")
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
        from harness.board.nvpmodel_making import make_conf, off_board_conf, on_board_conf

        board = board_of(self.device)
        if not board:
            raise InvalidValueError(f"{self.device.name} has no nvpmodel", "omit write_conf")
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
        plain = _plain(self.device, self.recommendations, self.shared, self.peak_mw)
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
                _limits_within_reach(missed[0], self.peak_mw),
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
                "a smaller --batch-size, or neither --deadline nor --energy-budget",
            )


def minibatches_of_training(workload: str, batch_size: int, epochs: Optional[float] = None) -> Optional[float]:
    """Minibatches of a whole training on the real data set, by default of as many epochs as the papers use.

    None if the number of epochs is unknown.
    """
    from harness.workloads import get_workload

    epochs = epochs if epochs is not None else EPOCHS.get(workload)
    return None if epochs is None else epochs * (get_workload(workload).real_samples // batch_size)


def _numbers_of(given: Any) -> List[Any]:
    """A number, several, or None for none, as a list; not checked yet."""
    if given is None:
        return []
    return [given] if isinstance(given, (numbers.Real, str)) else list(given)


def _refuse(
    device: Optional[str],
    pool: Optional[str],
    task: str,
    goal: Optional[str],
    search: Search,
    reference: Sequence[str],
    corpus: Union[str, Path, None],
    sizes: Sequence[int],
) -> None:
    """Refuse invalid options and combinations."""
    if not sizes:
        raise InvalidValueError("no --batch-size was given", f"omit it for {DEFAULT_BATCH_SIZE}")
    strategy, risk, batch, profiles = search.strategy, search.risk, search.batch, search.profiles
    for option, name, names in (("task", task, TASKS), ("goal", goal, OBJECTIVES), ("strategy", strategy, STRATEGIES)):
        if name is not None and name not in names:
            raise InvalidValueError(f"--{option} is {name!r}", available_hint(str(name), names))
    if batch is not None and batch > profiles:
        hint = f"for samples per minibatch, give --batch-size {batch}; otherwise, more --profiles"
        raise InvalidValueError(f"--batch is {batch}, more than the {counted(profiles, 'profile')} allowed", hint)
    if search.percentile >= 100:
        raise InvalidValueError(f"--percentile is {search.percentile:g}, expected less than 100")
    check_probability("--risk", risk, certain=False)
    if risk is not None and strategy not in (None, "one-shot"):
        raise InvalidValueError(f"--risk applies to one-shot only, and --strategy is {strategy}", "omit one of them")
    if reference and corpus is None:
        raise InvalidValueError("--reference names a workload of a corpus", "add --corpus FILE")
    if (device is None) == (pool is None):
        raise InvalidValueError("the search needs either --device or --pool", "give one of the two")
    if pool is not None and search.resume:
        raise InvalidValueError("--resume does not apply to a pool", "omit --resume or --pool")


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
        return f"{unsure}: allow more --profiles or a greater --risk"
    else:
        reachable, is_near = _least_within_reach(recommendation, medians)
    allowed = reachable or f"the nearest mode, {near.name}, has {figures}"
    known = f"as far as {counted(recommendation.choice.spent.profiles, 'profile')} tell, {allowed}"
    return f"{known}: allow that, {'more --profiles, ' if is_near else ''}or try another board or batch size"


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
    from predictors.choose.device_profiler import DeviceProfiler, power_sampler

    if is_real(device):
        with power_sampler(device, 1.0, device.root):
            pass  # refuse a device without power before the first profile
    if device.clocks_only_fall and device.provenance == "measured":
        progress.line(
            f"note: some releases of {device.name} can only lower clocks; if a mode is refused, reboot and use --resume"
        )
    board = board_of(device)
    limits_mw = limits_of(device)
    presets, modes = presets_of(board), device.power_modes("all", case.workload)
    if limits_mw and device.provenance != "replayed":
        modes = locked_clocks(device)
    if search.strategy_name == "presets" and device.provenance != "replayed":
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
    chooser = strategy_on_device(search.strategy_name, setting, seed, LEAST_GAIN, batch)
    with device.session():
        profiler = DeviceProfiler(
            device,
            case,
            modes,
            batch_sizes=batch_sizes,
            power_limits_mw=limits_mw,
            store=store,
            resume=search.resume,
            percentile=search.percentile,
            memory_limit_bytes=search.memory_limit_bytes,
            report=progress.update,
        )
        countdown = Countdown(min(search.profiles, len(profiler.candidates.modes)))

        def show(line: str) -> None:
            countdown.start_one()
            countdown.finish_one()
            left = countdown.left()
            progress.line(f"{line}{left and f' ({left})'}")

        history = History(profiler, search.profiles, show)
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
                progress.line(f"{kept} kept in {store.path}: --resume continues from there")
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
                raise CannotRunError(f"the profile of {name} has no peak power", "omit --peak-budget")
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


def _of_samples(goal: Optional[str], sizes: Sequence[int], device: Device) -> Optional[str]:
    """On a discrete GPU `energy` with several batch sizes is the energy to the end of an epoch, so that of a sample."""
    return "sample-energy" if goal == "energy" and len(sizes) > 1 and limits_of(device) else goal


def goals_of(
    goal: Optional[str],
    power_budgets_mw: Sequence[float],
    peak_mw: Optional[float],
    time_limit: Optional[float],
    deadline: Optional[float],
    energy_budget: Optional[float],
    minibatches: Optional[float],
    sizes: Sequence[int],
) -> List[Goal]:
    """The goals of `recommend`'s options, one for each budget; `minibatches` of the whole training, or None.

    With several batch sizes to choose from, the time of a sample replaces that of a minibatch.
    """
    limits, several = {}, len(sizes) > 1
    name = goal or ("throughput" if several else "time")
    if several and name in ("time", "energy", "edp"):
        raise InvalidValueError(
            f"--goal {name} is per minibatch, so the smallest batch size always wins",
            "use throughput, sample-energy, or one --batch-size",
        )
    if time_limit is not None:
        limits["time_ms"] = time_limit
    whole = {"deadline": ("time_ms", "sample_time_ms"), "energy-budget": ("energy_mws", "sample_energy_mws")}
    for option, value in (("deadline", deadline), ("energy-budget", energy_budget)):
        if value is None:
            continue
        if minibatches is None:
            raise InvalidValueError(f"--{option} limits the whole training, whose length is unknown", "give --epochs")
        total = s_to_ms(value * S_PER_HOUR) if option == "deadline" else w_to_mw(value * S_PER_HOUR)
        quantity, least = whole[option][several], total / minibatches / (sizes[0] if several else 1)
        limits[quantity] = min(limits.get(quantity, math.inf), least)
    if power_budgets_mw:
        return [Goal(OBJECTIVES[name], {"power_mw": budget_mw, **limits}) for budget_mw in power_budgets_mw]
    if peak_mw is not None:
        limits["power_mw"] = peak_mw  # a peak is no less than the power
    if not limits and name in ("time", "power"):
        extreme = "greatest" if name == "time" else "least"
        raise InvalidValueError(
            f"the least {name} without any limit is always that of the {extreme} mode",
            "give --power-budget, --peak-budget, --time-limit, --deadline or --energy-budget",
        )
    return [Goal(OBJECTIVES[name], limits)]


def _references(
    corpus: Union[str, Path, None], reference: Sequence[str], workloads: Sequence[str], task: str, device: str
) -> Tuple[Profiles, ...]:
    """The tables of the task to start from: of the named workloads, or of all that are not searched for."""
    if corpus is None:
        return ()
    from predictors.choose.corpora import load_tables
    from predictors.choose.targets import find_reference

    tables = load_tables(corpus)
    if reference:
        return tuple(find_reference(tables, name, task, device) for name in reference)
    others = [table for table in tables if table.task == task and table.workload not in workloads]
    here = {table.workload for table in others if table.device == device}
    kept = [table for table in others if table.device == device or table.workload not in here]
    return tuple(table.usable() for table in kept)
