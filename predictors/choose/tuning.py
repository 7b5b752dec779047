"""`with tuning(...)`: searches for a power mode while your own training loop runs (future work of 001 sec. 7).

    from jetwatt import tuning

    with tuning("xavier-agx", power_w=20) as tuner:
        for batch in loader:
            train_step(batch)          # ends with torch.cuda.synchronize() or loss.item()
            tuner.step()

The device is held while the block runs, and restored at its end, also after an error; then a report is printed.
DataLoader workers follow each change of the CPUs that this process may use.

The minibatches of the training are the profiles. The strategy runs in its own thread and requests profiles as from any
device; the training loop sets the requested mode and answers once enough minibatches have run in it:

    training loop   step step step step step step step step step ...
                      |settling  |  counted  |settling ...
    strategy        profile(7) ............. answer, think, profile(31) ...

Nothing waits: while the strategy thinks, training continues in the current mode. A mode that is refused is excluded; a
silent power meter ends the search.

A simulated board, `sim:xavier-agx`, is for rehearsing: the loop runs as without tuning, and each of its minibatches
counts as one of `workload` on that board, with the board's time and power.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import queue
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from harness.board.cpu import workers_follow
from harness.core.boards import board_of
from harness.core.cases import Case
from harness.core.configuration import load_configuration
from harness.core.corpus import TASKS
from harness.core.device import Device, is_real, named_mode
from harness.core.errors import CannotRunError, ControlError, HarnessError, InvalidValueError
from harness.core.metrics import POWER_CHANNEL, between
from harness.core.mode_texts import MAXN
from harness.core.power_modes import NamedMode, PowerMode
from harness.core.terminal import counted
from harness.core.units import ms_to_s, s_to_ms
from harness.devices.registry import open_device
from harness.devices.simulated import SimulatedDevice
from harness.measure.contention import report_others
from harness.measure.holding import held
from harness.measure.kernel_clock import refuse_another_gpu
from harness.measure.run import check
from predictors.choose.device_profiler import power_sampler, workers_of, workload_name
from predictors.choose.request import (
    USUAL_SEARCH,
    Budget,
    JobLike,
    Search,
    batch_sizes_of,
    goals_of,
    job_of,
    most_profiles,
    references_of,
    refuse_command,
    storage_of,
    workloads_of,
)
from predictors.goals import Goal, note_out_of_reach
from predictors.models.base import check_kind, check_number, checks_names, refuse_unread, unread_in
from predictors.settings import Settings
from predictors.strategies.protocol import Choice, FailedMode, History, MeasuredMode, Strategy
from predictors.strategies.registry import StrategySetting, make_closed_loop

_CLOSED = "training ended before the search did"
END_S = 30.0  # for a strategy to end after the training; it may be fitting a model

LEAST_GAIN = 0.005  # the search ends when another mode promises less than this share of the time

UNUSED = unread_in(Search, "profiles", "minibatches", "seed", "corpus", "reference", "config", "root")
"""Settings of a search that have no effect while training runs: all but these."""

Power = Callable[[float, float], Optional[float]]
"""From two monotonic times in s to the median power between them in mW; None without a sample."""

SILENCE_S = 30.0
"""How long to wait for a silent power meter after all minibatches of a mode have run."""


class StoppedError(HarnessError):
    """Training ended before the search did."""


class OnlineReport(NamedTuple):
    """The result of tuning while training."""

    choice: Optional[Choice]  # the mode that training ended in; None if no profile was complete
    finished: bool  # whether the search ended before the training, and its choice was set
    minibatches: int  # run during the search
    search_s: float  # duration of the search
    # Extra time of those minibatches over the chosen mode, mode changes included; negative if faster modes were tried
    # that break a limit.
    lost_s: Optional[float]
    profiled: Tuple[Tuple[PowerMode, MeasuredMode], ...]  # the modes that were tried, with their figures
    failed: Tuple[Tuple[PowerMode, str], ...]  # the modes that could not be applied, and why
    needed: str = ""  # how long training must be for the search to end; empty if it did, or if an error ended it

    def describe(self) -> str:
        """In two lines, for a log, one for each failed mode, and one if the training was too short."""
        if self.choice is None or self.lost_s is None:
            return "\n".join([f"no mode was profiled in {self.minibatches} minibatches", *self._too_short()])
        verb = "settled on" if self.finished else "the search did not end; best so far"
        kept = "" if self.choice.feasible else " WHICH BREAKS THE LIMITS and is the nearest that was tried"
        cost = f"{self.lost_s:.1f} s longer than in that mode"
        if self.lost_s < 0:
            cost = f"{-self.lost_s:.1f} s less than in that mode: faster ones were tried that break a limit"
        lines = [
            f"{verb} {self.choice.power_mode.name}{kept}: {self.choice.reason}",
            f"search: {len(self.profiled)} modes, {self.minibatches} minibatches, {self.search_s:.1f} s, {cost}",
        ]
        lines += [f"failed: {mode.name}: {reason}" for mode, reason in self.failed]
        return "\n".join([*lines, *self._too_short()])

    def _too_short(self) -> List[str]:
        return [f"too short: {self.needed}"] if self.needed else []


@dataclasses.dataclass
class _Running:
    """The profile in progress."""

    index: int
    set_s: float  # when its mode was set
    times_ms: List[float]  # of the minibatches that count
    complete_s: Optional[float] = None  # when only its power was missing


class OnlineTuner:
    """Searches for a power mode while a training loop runs; the loop calls `step` only."""

    def __init__(
        self,
        strategy: Strategy,
        goal: Goal,
        candidates: Settings,
        apply: Callable[[PowerMode], object],
        power_mw: Power,
        *,
        search: Search = USUAL_SEARCH,
        settling_s: float = 3.0,
        silence_s: float = SILENCE_S,
        report: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin the search; the first mode is set at the first `step`.

        `apply` sets a mode and reads it back; the `profiles` of `search` are the modes that may be tried. In each, its
        `minibatches` count; those in the first `settling_s` after a mode change do not (001 sec. 2.5: 2-3 s).
        """
        if not len(candidates):
            raise InvalidValueError("no power mode to choose from")
        self.candidates = candidates
        self._apply = apply
        self._power_mw = power_mw
        self._count = search.minibatches
        self._settling_s = settling_s
        self._silence_s = silence_s
        self._clock = clock
        self._requests: queue.Queue[Optional[int]] = queue.Queue()  # modes to profile, then None: the search is over
        self._answers: queue.Queue[Any] = queue.Queue()
        self._history = History(self, most_profiles(search), report)
        self._goal = goal
        self._choice: Optional[Choice] = None
        self._error: Optional[BaseException] = None
        self._running: Optional[_Running] = None
        self._is_closed = False
        self.settled = False  # whether the search is over and the chosen mode is set
        self._began_s: Optional[float] = None
        self._last_s: Optional[float] = None
        self._ended_s: Optional[float] = None  # when the search ended, well or not
        self._minibatches = 0
        self._thread = threading.Thread(target=self._search, args=(strategy,), name="jetwatt-tuner", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        choice, tried = self._choice, counted(len(self._history.taken), "mode")
        state = f"searching, {tried} of at most {self._history.limit} tried"
        if choice is not None:
            state = f"settled on {choice.power_mode.name} after {tried}"
        elif self._ended_s is not None:
            state = f"ended before its search, {tried} tried"
        return f"<tuner: {state}, {self._minibatches} {'minibatch' if self._minibatches == 1 else 'minibatches'}>"

    def profile(self, index: int) -> Union[MeasuredMode, FailedMode]:
        """Called by the strategy, in its thread: the figures that the training loop measures in a mode."""
        if self._is_closed:
            raise StoppedError(_CLOSED)
        self._requests.put(index)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def step(self) -> None:
        """Called by the training loop after each minibatch, when its work on the device is done.

        Raises:
            HarnessError: modes could not be set, or power could not be measured; either ends the search.
        """
        if self._ended_s is not None:
            return
        now = self._clock()
        try:
            if self._last_s is None:
                self._began_s = now  # the first minibatch does not count: its start is unknown
            else:
                self._take_in(now - self._last_s, now)
            self._follow()
        except BaseException:
            self._ended_s = self._clock()
            raise
        self._last_s = self._clock()

    def close(self) -> OnlineReport:
        """End the search if it is still running, and return its report; the mode stays as it is."""
        if self._thread.is_alive():
            self._is_closed = True
            self._answers.put(StoppedError(_CLOSED))
            self._thread.join(END_S)
            if self._thread.is_alive():
                warnings.warn(f"the search has not ended within {END_S:g} s, and is left to itself", stacklevel=2)
        is_too_short = self._ended_s is None  # else it has settled, or an error ended it
        ended_s = self._clock() if self._ended_s is None else self._ended_s
        self._ended_s = ended_s
        self._raise_what_broke()
        history, choice = self._history, self._choice
        if choice is None and history.taken:
            choice = history.choose_measured(self._goal, f"best of {len(history.taken)} tried")
        search_s = 0.0 if self._began_s is None else ended_s - self._began_s
        lost_s = None
        if choice is not None and choice.measured is not None:
            lost_s = search_s - ms_to_s(self._minibatches * choice.measured.time_ms)
        profiled = tuple((history.mode(index), measured) for index, measured in history.taken.items())
        failed = tuple((history.mode(index), reason) for index, reason in history.failed.items())
        needed = self._needed(len(profiled), search_s) if is_too_short else ""
        return OnlineReport(choice, self.settled, self._minibatches, search_s, lost_s, profiled, failed, needed)

    def _needed(self, tried: int, search_s: float) -> str:
        """How long a training must be, by the modes that were tried so far, or else by its minibatches."""
        modes = counted(self._history.limit, "mode")
        text = f"a search tries up to {modes}, in each {self._count} minibatches after {self._settling_s:g} s"
        of_a_mode: Optional[float] = None
        if tried:
            of_a_mode = self._minibatches / tried
        elif search_s > 0:
            of_a_mode = self._count + self._settling_s * self._minibatches / search_s
        if of_a_mode is not None:
            text += f": about {10 * math.ceil(of_a_mode * self._history.limit / 10):,} minibatches here"
        return f"{text}; train longer, or give search=Search(profiles=..., minibatches=...) with smaller numbers"

    def _raise_what_broke(self) -> None:
        """The strategy's error, once."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _search(self, strategy: Strategy) -> None:
        try:
            self._choice = strategy.choose(self._history, self._goal)
        except StoppedError:
            return
        except BaseException as error:  # handed to the training loop, which raises it
            self._error = error
        finally:
            self._requests.put(None)

    def _take_in(self, seconds: float, now: float) -> None:
        """One more minibatch has ended."""
        self._minibatches += 1
        running = self._running
        if running is None or now - seconds < running.set_s + self._settling_s:
            return
        running.times_ms.append(s_to_ms(seconds))
        if len(running.times_ms) < self._count:
            return
        power_mw = self._power_mw(now - ms_to_s(sum(running.times_ms)), now)
        if power_mw is not None and power_mw > 0:  # NaN is not
            self._running = None
            self._answers.put(MeasuredMode(float(np.median(running.times_ms)), power_mw, now - running.set_s))
            return
        # A fast mode may end before the sensor has a value: run more minibatches, but not for ever.
        running.complete_s = now if running.complete_s is None else running.complete_s
        silent_s = now - running.complete_s
        if silent_s >= self._silence_s:
            raise CannotRunError(
                f"the power meter has given no power above 0 for {silent_s:.0f} s in mode "
                f"{self._history.mode(running.index).name}, after {self._count} minibatches",
                "check the device's sensors with `jetwatt doctor`, or your own meter",
            )

    def _next_request(self) -> Optional[int]:
        """What the strategy requests; `queue.Empty` while it thinks, for which training does not wait."""
        return self._requests.get_nowait()

    def _follow(self) -> None:
        """Set the mode that the strategy requests or has chosen."""
        self._raise_what_broke()
        if self._running is not None:
            return
        try:
            index = self._next_request()
        except queue.Empty:
            return
        if index is None:
            self._raise_what_broke()
            if self._choice is not None:
                self._apply(self.candidates.mode(self._choice.index))
                self.settled = True
                self._ended_s = self._clock()
            return
        asked_s = self._clock()
        try:
            self._apply(self.candidates.mode(index))
            self._running = _Running(index, self._clock(), [])
        except ControlError as error:
            self._answers.put(FailedMode(str(error), self._clock() - asked_s))


@checks_names
@contextlib.contextmanager
def tuning(
    device: str,
    *,
    power_w: Optional[float] = None,
    time_ms: Optional[float] = None,
    goal: Union[str, Goal, None] = None,
    workload: JobLike = "resnet18-imagenet",
    search: Search = USUAL_SEARCH,
    interval_s: float = 1.0,
    silence_s: float = SILENCE_S,
    meter: Optional[Power] = None,
    report: Callable[[str], None] = print,
) -> Iterator[OnlineTuner]:
    """Search for a power mode while the block trains; `step()` belongs after each minibatch.

    Args:
        device: a board's name, `host`, or `sim:BOARD` to rehearse.
        power_w: maximum module power in W.
        time_ms: maximum minibatch time in ms.
        goal: what to minimise, by a name as of `recommend`, or a `Goal`; None for the time.
        workload: the workload that a simulated board runs in place of your loop; a `Job` has your loop's batch size.
        search: how many modes to try, how many minibatches count in each, and a corpus of other workloads on this
            device, which shortens the search.
        interval_s: of the power sensor.
        silence_s: the search ends if the power meter is silent for this long.
        meter: your own power meter, instead of the device's sensors: a function of two monotonic times in s that
            returns the median power between them in mW, or None without a sample.
        report: receives a line for each mode that was tried.

    Raises:
        CannotRunError: the device has no power sensor, or no goal was given; while the block runs, the power meter
            falls silent, torch trains on another GPU, or several modes in a row cannot be applied.
        ControlError: the device is in use, or the chosen mode could not be applied. However the block ends, the device
            is restored.
    """
    check_kind(Search, search=search)
    if goal is None and power_w is None and time_ms is None:
        raise CannotRunError("tuning needs a goal", "give power_w=30, time_ms=100, or goal=Goal(...)")
    refuse_unread(search, "tuning", *UNUSED)
    job = job_of(workload)
    refuse_command(job, "tuning")
    refuse_unread(job, "tuning", "epochs")
    workloads, sizes = workloads_of(job), batch_sizes_of(job)
    if len(workloads) > 1 or len(sizes) > 1 or job.task != TASKS[0]:
        raise InvalidValueError("tuning is of one training at one batch size", "give one workload= and one batch_size=")
    check_number("power_w", power_w, above=True)  # one: the training ends in one mode
    (wanted,) = goals_of(Budget(power_w, time_ms), goal, None, sizes, "power_w= or time_ms=")
    configuration = load_configuration(Path(search.config))
    root = Path(search.root)
    opened = open_device(device, configuration, root)
    if is_real(opened):
        report_others(report)
    board = board_of(opened)
    name = workload_name(workloads[0]) if isinstance(opened, SimulatedDevice) else ""
    references = references_of(search, [name], job.task, board)
    strategy = make_closed_loop(StrategySetting(board, references), search.seed, LEAST_GAIN)
    candidates = Settings.of(list(opened.power_mode_space()), sizes[0])
    options: Dict[str, Any] = {"search": search, "silence_s": silence_s, "report": report}

    def apply(mode: PowerMode) -> None:
        refuse_another_gpu(getattr(opened, "gpu_uuid", ""))
        with workers_follow():
            opened.apply(mode)

    with contextlib.ExitStack() as stack:
        stack.enter_context(held(opened))
        if isinstance(opened, SimulatedDevice):
            medium = storage_of(job, opened, configuration, report)
            at_maxn = named_mode(opened, MAXN)
            case = Case(device, name, at_maxn, workers_of(name, job.workers), medium, sizes[0])
            report(f"rehearsal on {device}, simulated: each minibatch counts as one of {case.workload}")
            tuner: OnlineTuner = RehearsedTuner(opened, case, strategy, wanted, candidates, **options)
        else:
            power_mw = meter or stack.enter_context(_sensor(opened, interval_s, root))
            tuner = OnlineTuner(strategy, wanted, candidates, apply, power_mw, **options)
        try:
            yield tuner
        finally:
            result = tuner.close()
            report(result.describe())
            greatest_mw = greatest_power_mw(result, opened.power_mode_space().greatest)
            note = "" if greatest_mw is None else note_out_of_reach(wanted, greatest_mw)
            if note:
                report(f"note: {note}")


def greatest_power_mw(result: OnlineReport, greatest: PowerMode) -> Optional[float]:
    """The greatest power of the device; None if the search did not end, or did not try the mode that may draw it."""
    powers_mw = {mode: measured.power_mw for mode, measured in result.profiled}
    return max(powers_mw.values()) if result.finished and greatest in powers_mw else None


class RehearsedTuner(OnlineTuner):
    """Tunes on a simulated board, in its time: each `step` is a minibatch of `case` there."""

    def __init__(
        self, board: SimulatedDevice, case: Case, strategy: Strategy, goal: Goal, candidates: Settings, **options: Any
    ) -> None:
        check(case, board)
        self._now_s = 0.0

        def run_in(mode: PowerMode) -> None:
            aggregates = board.profile(case.in_mode(NamedMode(mode.name, mode))).aggregates
            time_ms = aggregates["minibatch_time_ms"]
            assert time_ms is not None, "every simulated minibatch has a time"
            self._minibatch_s, self._drawn_mw = ms_to_s(time_ms), aggregates["power_mw"]

        run_in(board.power_mode_space().greatest)
        super().__init__(
            strategy,
            goal,
            candidates,
            run_in,
            lambda start_s, end_s: self._drawn_mw,
            clock=lambda: self._now_s,
            **options,
        )

    def step(self) -> None:
        self._now_s += self._minibatch_s
        super().step()

    def _next_request(self) -> Optional[int]:
        """The strategy thinks in real time: a minibatch lasts as long as on the board meanwhile, and not less."""
        return self._requests.get(timeout=self._minibatch_s)


@contextlib.contextmanager
def _sensor(device: Device, interval_s: float, root: Path) -> Iterator[Power]:
    """The device's own power sensors, sampled in a separate process."""
    if not is_real(device):
        raise CannotRunError(
            f"{device.name} does not run your training loop", "tune on host, on a board, or on sim:BOARD"
        )
    with power_sampler(device, interval_s, root, "; or give meter=, a function of your own") as sampler:

        def median_mw(start_s: float, end_s: float) -> Optional[float]:
            sampler.poll()
            series = sampler.series(POWER_CHANNEL)
            assert series is not None, "`power_sampler` waits for its first sample"
            values = between(series, start_s, end_s).values
            return float(np.median(values)) if len(values) else None

        yield median_mw
