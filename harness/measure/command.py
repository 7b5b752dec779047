"""A command's profile, from outside, from its start to its end.

The command is started unchanged, with its own input, output and errors. What is recorded of it: wall time, power and
energy of the device, memory and CPU time of its processes, temperatures, block I/O. It has no minibatches, unless lines
of its output show them. A command that fails has no profile.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import shlex
from typing import Any, Callable, Deque, List, Mapping, Optional, Sequence, Tuple

from harness.board.control_groups import GroupMemory
from harness.board.memory import PROCESSES
from harness.board.thermal import refuse_heat
from harness.core import metrics
from harness.core.cases import Case
from harness.core.errors import HarnessError
from harness.core.profiles import CLEAN, FIRST, NO_SERIES, SETTLING, Minibatch, Profile, Telemetry
from harness.core.units import ms_to_s, s_to_ms
from harness.measure.command_process import CommandEnd, CommandProcess
from harness.measure.peak_memory import PeakMemory
from harness.measure.recording import Instruments, Recorder
from harness.workloads.command import Command
from harness.workloads.command_secrets import without_secrets

BUFFERED_SHARE = 0.1  # of the lines; a reader that had no core may find two at once, now and then
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
OTHERS_ON_CPU = "cpu_other_cores"
KEPT_LINES = 8  # of a command's output, for the message of a search that it ends by failing
KEPT_CHARACTERS = 200  # of each of them


class CommandFailedError(HarnessError):
    """A command that did not end well; there is no profile of it.

    Attributes:
        exit_code: its own, as a shell has it.
        last_lines: of its output, if they were kept.
    """

    def __init__(self, what: str, hint: str, exit_code: int, last_lines: Sequence[str] = ()) -> None:
        super().__init__(what, hint)
        self.exit_code = exit_code
        self.last_lines = tuple(last_lines)


class ShownMinibatches:
    """The minibatches that lines of a command's output show."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._has_times = bool({"ms", "s"} & set(self._pattern.groupindex))
        self._last_s: Optional[float] = None
        self._at_once = 0  # lines that came with the line before, out of a buffer
        self.lines = 0  # that matched
        self._spans: List[Tuple[float, float]] = []  # start in seconds, duration in ms

    def take(self, line: str, came_s: float) -> None:
        """Take a line that came at a time; lines that do not match are passed over."""
        match = self._pattern.search(line)
        if match is None:
            return
        self.lines += 1
        groups = match.groupdict()
        time_ms = None
        for name, to_ms in (("ms", float), ("s", s_to_ms)):
            text = groups.get(name)
            if text is not None:
                time_ms = _positive(text, to_ms, is_whole=name == "ms")
        if time_ms is None and not self._has_times and self._last_s is not None:
            time_ms = s_to_ms(came_s - self._last_s)
            self._at_once += came_s == self._last_s
        if time_ms is not None and time_ms > 0:
            self._spans.append((came_s - ms_to_s(time_ms), time_ms))
        self._last_s = came_s

    @property
    def buffered_lines(self) -> int:
        """Lines whose times are not those of their minibatches, as the program buffers its output; 0 for few."""
        return self._at_once if self._at_once > BUFFERED_SHARE * self.lines else 0

    def minibatches(self, telemetry: Telemetry) -> List[Minibatch]:
        """Those shown, the first and those before power settled apart, as in every profile; their stall is unknown.

        None if the program buffers its output, so that the times between its lines are not those of minibatches.
        """
        if not self._spans or self.buffered_lines:
            return []
        began_s = self._spans[0][0]
        power = telemetry.series.get(metrics.POWER_CHANNEL)
        settled_s: Optional[float] = None
        if power is not None:
            since_first = metrics.between(power, began_s, math.inf)
            settled_s = metrics.stable_from(since_first.times_s, since_first.values)
        if settled_s is None or settled_s > min(began_s + metrics.MAX_SETTLING_S, self._spans[-1][0]):
            settled_s = -math.inf  # power does not settle while they run, or is unknown: all but the first count
        shown = []
        for index, (start_s, time_ms) in enumerate(self._spans):
            phase = FIRST if index == 0 else SETTLING if start_s < settled_s else CLEAN
            shown.append(Minibatch(0, index, phase, start_s, math.nan, math.nan, time_ms))
        return shown


def _positive(text: str, to_ms: Callable[[float], float], is_whole: bool) -> Optional[float]:
    """A time in ms; None if it is none.

    A comma before three digits groups thousands if a point or another comma follows, and in ms: `1,234` is 1234 ms,
    and 1.234 s.
    """
    if _THOUSANDS.fullmatch(text) and (is_whole or "." in text or text.count(",") > 1):
        text = text.replace(",", "")
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return float(to_ms(value)) if value > 0 and math.isfinite(value) else None


def measure_command(
    case: Case,
    command: Command,
    conditions: Mapping[str, Any],
    instruments: Instruments,
    keeps_lines: bool = False,
) -> Profile:
    """Run a command under telemetry from its start to its end; the power mode is set, and stays.

    With `keeps_lines`, the error of a command that fails has the last lines of its output, which then passes through
    this process, as it does for a pattern of minibatches.

    Raises:
        CommandFailedError: it ended with an exit code that is not 0.
        KeyboardInterrupt: a signal ended this run; the command has ended before.
        OverheatedError, UnwatchedError: as for a case; the command is ended.
    """
    shown = None if command.minibatch_pattern is None else ShownMinibatches(command.minibatch_pattern)
    last_lines: Deque[str] = collections.deque(maxlen=KEPT_LINES)

    def take_line(line: str, came_s: float) -> None:
        last_lines.append(line[:KEPT_CHARACTERS])
        if shown is not None:
            shown.take(line, came_s)

    takes_lines = keeps_lines or shown is not None
    with CommandProcess(command.words, take_line if takes_lines else None) as process:
        memory = PeakMemory(None, instruments.root)
        with Recorder(_of_process(instruments, process.pid), case.settings.interval_s, memory) as recorder:
            recorder.sampler.first_of(OTHERS_ON_CPU)  # rates have no value at their first reading
            group = GroupMemory(str(instruments.root), process.pid)

            def on_tick() -> None:
                refuse_heat(recorder.sampler, instruments.limits_c)
                group.sample()

            refuse_heat(recorder.sampler, instruments.limits_c)
            end = process.run(on_tick)
    refuse_failed(end, command, last_lines)
    telemetry = recorder.telemetry
    minibatches = [] if shown is None else shown.minibatches(telemetry)
    own = {
        **conditions,
        **command.identity(),
        **recorder.conditions(conditions["power_mode"], end.start_s, end.end_s),
        **({"left_behind_processes": end.left_behind} if end.left_behind else {}),
        "temperature_limits_c": dict(instruments.limits_c),
        **({} if shown is None else {"pattern_lines": shown.lines, "buffered_lines": shown.buffered_lines}),
    }
    aggregates = {
        **metrics.summarise_command(minibatches, telemetry, end.start_s, end.end_s),
        **memory.figures(telemetry),
        "cpu_time_s": end.cpu_s,
        "process_read_bytes": end.read_bytes,
        "group_memory_peak_bytes": group.peak_bytes,
    }
    sampled_bytes = telemetry.series.get(PROCESSES, NO_SERIES).values
    own_bytes = () if end.peak_bytes is None else (end.peak_bytes,)  # a short command may end before the first sample
    peak_bytes = max((*sampled_bytes, *own_bytes), default=None)
    aggregates.update(process_memory_peak_bytes=peak_bytes, memory_peak_bytes=peak_bytes)
    return Profile(case, "measured", own, minibatches, telemetry, aggregates, [], recorder.started_at)


def _of_process(instruments: Instruments, pid: int) -> Instruments:
    """The instruments with the memory of the command's processes instead of this one's."""
    sources = [
        source._replace(options={**source.options, "pid": pid}) if source.name == "memory" else source
        for source in instruments.sources
    ]
    return dataclasses.replace(instruments, sources=sources)


def refuse_failed(end: CommandEnd, command: Command, last_lines: Sequence[str] = ()) -> None:
    """Raise what a command's end means unless it ended well; no secret of its words is told."""
    name = shlex.join(without_secrets(command.words))
    if end.interrupted_by:
        raise KeyboardInterrupt(f"ended by {end.interrupted_by}")
    if end.exit_code:
        lasted_s = end.end_s - end.start_s
        what = f"{name} ended with exit code {end.exit_code} after {lasted_s:.1f} s"
        hint = "nothing is stored of a command that fails; mend it, and run again"
        raise CommandFailedError(what, hint, end.exit_code, last_lines)
