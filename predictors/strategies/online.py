"""Tuning while training goes on: minibatches that are trained anyway are the profiles (future work of 001 sec. 7).

The strategy runs in a thread of its own and asks for a profile as it would of any device; the training loop, which says
`step()` after each minibatch, sets the mode asked for and answers once enough minibatches have run in it:

    training loop   step step step step step step step step step ...
                      |settling  |  counted  |settling ...
    strategy        profile(7) ............. answer, think, profile(31) ...

Nothing waits: while the strategy thinks, training goes on in the mode that is set. A mode that is refused is left out;
a power meter that says nothing ends the search.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from typing import Callable, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from harness.core.errors import CannotRunError, ControlError, HarnessError, InvalidValueError
from harness.core.power_modes import PowerMode
from harness.core.units import ms_to_s, s_to_ms
from predictors.strategies.goals import Goal
from predictors.strategies.protocol import Candidates, Choice, FailedMode, History, MeasuredMode, Strategy

Power = Callable[[float, float], Optional[float]]
"""From two monotonic times in s to the median power between them in mW; None where it was not sampled."""

SILENCE_S = 30.0
"""A power meter that has said nothing for so long, once all minibatches of a mode have run, is not waited for."""


class StoppedError(HarnessError):
    """Training ended before the search did."""


class OnlineReport(NamedTuple):
    """What tuning while training came to."""

    choice: Optional[Choice]  # the mode that training ended in; None where not one profile was complete
    finished: bool  # whether the search ended before the training, and its choice was set
    minibatches: int  # how many ran during the search
    search_s: float  # how long the search went on
    # By how much those minibatches took longer than in the chosen mode, changes of mode included; below 0 where faster
    # modes were tried that break a limit.
    lost_s: Optional[float]
    profiled: Tuple[Tuple[PowerMode, MeasuredMode], ...]  # the modes that were tried, with what they gave
    failed: Tuple[Tuple[PowerMode, str], ...]  # the modes that did not take, and why

    def describe(self) -> str:
        """In two lines, for a log, and one for each mode that did not take."""
        if self.choice is None or self.lost_s is None:
            return f"no mode was profiled in {self.minibatches} minibatches"
        how = "settled on" if self.finished else "the search did not end; best so far"
        kept = "" if self.choice.feasible else " WHICH BREAKS THE LIMITS and is the nearest that was tried"
        cost = f"{self.lost_s:.1f} s longer than in that mode"
        if self.lost_s < 0:
            cost = f"{-self.lost_s:.1f} s less than in that mode: faster ones were tried that break a limit"
        lines = [
            f"{how} {self.choice.power_mode.name}{kept}: {self.choice.reason}",
            f"search: {len(self.profiled)} modes, {self.minibatches} minibatches, {self.search_s:.1f} s, {cost}",
        ]
        return "\n".join(lines + [f"failed: {mode.name}: {reason}" for mode, reason in self.failed])


@dataclasses.dataclass
class _Running:
    """The profile that is under way."""

    index: int
    set_s: float  # since when its mode is set
    times_ms: List[float]  # of the minibatches that count
    complete_s: Optional[float] = None  # since when nothing but its power is missing


class OnlineTuner:
    """Searches for a power mode while a training loop runs; `step` is all that the loop calls."""

    def __init__(
        self,
        strategy: Strategy,
        goal: Goal,
        modes: List[PowerMode],
        apply: Callable[[PowerMode], object],
        power_mw: Power,
        *,
        profiles: int = 15,
        minibatches: int = 40,
        settling_s: float = 3.0,
        silence_s: float = SILENCE_S,
        batch_size: int = 16,
        report: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin the search; the first mode is set at the first `step`.

        `apply` sets a mode and reads it back; `profiles` modes may be tried. In each, so many `minibatches` count,
        those in the first `settling_s` after a change of mode do not (001 sec. 2.5: 2-3 s).
        """
        if not modes:
            raise InvalidValueError("there is no power mode to choose from")
        self.task = "training"
        self.candidates = Candidates(np.array(modes, dtype=np.int64), np.full(len(modes), batch_size, dtype=np.int64))
        self._modes = list(modes)
        self._apply = apply
        self._power_mw = power_mw
        self._count = minibatches
        self._settling_s = settling_s
        self._silence_s = silence_s
        self._clock = clock
        self._requests: queue.Queue = queue.Queue()
        self._answers: queue.Queue = queue.Queue()
        self._history = History(self, profiles, report)
        self._goal = goal
        self._choice: Optional[Choice] = None
        self._error: Optional[BaseException] = None
        self._running: Optional[_Running] = None
        self.settled = False  # whether the search is over and the chosen mode is set
        self._began_s: Optional[float] = None
        self._last_s: Optional[float] = None
        self._ended_s: Optional[float] = None  # when the search ended, well or not
        self._minibatches = 0
        self._thread = threading.Thread(target=self._search, args=(strategy,), name="jetwatt-tuner", daemon=True)
        self._thread.start()

    def profile(self, index: int) -> Union[MeasuredMode, FailedMode]:
        """Called by the strategy, in its thread: what the training loop finds in a mode."""
        self._requests.put(index)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def step(self) -> None:
        """Called by the training loop after each minibatch, when its work on the device is done.

        Raises:
            HarnessError: modes could not be set, or power could not be measured; the search is over then.
        """
        if self._ended_s is not None:
            return
        now = self._clock()
        try:
            if self._last_s is None:
                self._began_s = now  # the first minibatch says nothing: its beginning is not known
            else:
                self._take_in(now - self._last_s, now)
            self._follow()
        except BaseException:
            self._ended_s = self._clock()
            raise
        self._last_s = self._clock()

    def close(self) -> OnlineReport:
        """End the search where it goes on, and tell what it came to; the mode stays as it is."""
        if self._thread.is_alive():
            self._answers.put(StoppedError("training ended before the search did"))
            self._thread.join()
        if self._ended_s is None:
            self._ended_s = self._clock()
        self._raise_what_broke()
        history, choice = self._history, self._choice
        if choice is None and history.taken:
            choice = history.choose_measured(self._goal, f"best of {len(history.taken)} tried")
        search_s = 0.0 if self._began_s is None else self._ended_s - self._began_s
        lost_s = None
        if choice is not None and choice.measured is not None:
            lost_s = search_s - ms_to_s(self._minibatches * choice.measured.time_ms)
        found = tuple((history.mode(index), measured) for index, measured in history.taken.items())
        failed = tuple((history.mode(index), reason) for index, reason in history.failed.items())
        return OnlineReport(choice, self.settled, self._minibatches, search_s, lost_s, found, failed)

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
        # A fast mode may end before the sensor has spoken: more minibatches then, but not for ever.
        running.complete_s = now if running.complete_s is None else running.complete_s
        silent_s = now - running.complete_s
        if silent_s >= self._silence_s:
            raise CannotRunError(
                f"the power meter has given no power above 0 for {silent_s:.0f} s in mode "
                f"{self._history.mode(running.index).name}, after {self._count} minibatches",
                "`python -m harness doctor` says what the device's sensors give; look at a meter of your own",
            )

    def _follow(self) -> None:
        """Set what the strategy asks for, or what it chose."""
        self._raise_what_broke()
        if self._running is not None:
            return
        if not self._thread.is_alive():
            if self._choice is not None:
                self._apply(self._modes[self._choice.index])
                self.settled = True
                self._ended_s = self._clock()
            return
        try:
            index = self._requests.get_nowait()
        except queue.Empty:
            return
        asked_s = self._clock()
        try:
            self._apply(self._modes[index])
            self._running = _Running(index, self._clock(), [])
        except ControlError as error:
            self._answers.put(FailedMode(str(error), self._clock() - asked_s))
