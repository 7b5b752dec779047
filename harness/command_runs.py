"""`run`: a command on a device, once or several times, in one power mode or in several; kept, compared, tabled."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

from harness.board.lock import run_is_ending
from harness.core.cases import COMMAND, STATIC, Case, CaseSettings
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.corpus import TASKS, write_corpus
from harness.core.device import Device
from harness.core.environment import describe_environment, requeued_job
from harness.core.errors import InvalidValueError, StoreError
from harness.core.metrics import unit_time_ms
from harness.core.mode_orders import SAFE, order_passes
from harness.core.mode_texts import MAXN
from harness.core.power_modes import MOST_FAILURES, NamedMode, PowerMode
from harness.core.profiles import Profile, is_disqualified
from harness.core.terminal import Countdown, counted, format_table
from harness.core.units import bytes_to_mib, mw_to_w, mwh_to_j
from harness.devices.registry import open_device
from harness.measure.command import CommandFailedError
from harness.measure.command_device import CommandDevice, command_case
from harness.stats.comparison import median_of_runs
from harness.stats.estimates import CONFIDENCE, Interval
from harness.stats.noise import PEAK_MEMORY, POWER, TIME, prior
from harness.store import corpora, frames
from harness.store.conditions import comparable_conditions, key, with_job
from harness.store.results import ResultsStore, stored_by
from harness.workloads.command import Command

if TYPE_CHECKING:
    from harness.judge.compare import TwoSides


class _Figure(NamedTuple):
    words: str
    unit: str
    shown: Callable[[float], float]  # from the unit of the suite
    noise: str = ""  # between runs; empty for a figure that has none of its own


_FIGURES = {
    "wall_time_s": _Figure("wall time", "s", float, TIME),
    "minibatch_time_ms": _Figure("minibatch", "ms", float, TIME),
    "energy_mwh": _Figure("energy", "J", mwh_to_j, POWER),
    "power_mean_mw": _Figure("mean power", "W", mw_to_w, POWER),
    "power_mw": _Figure("median power", "W", mw_to_w, POWER),
    "power_peak_mw": _Figure("peak power", "W", mw_to_w, POWER),
    "memory_peak_bytes": _Figure("peak memory", "MiB", bytes_to_mib, PEAK_MEMORY),
    "group_memory_peak_bytes": _Figure("of its group", "MiB", bytes_to_mib, PEAK_MEMORY),
    "cpu_time_s": _Figure("CPU time", "s", float, TIME),
    "other_cpu_time_s": _Figure("CPU of others", "s", float),
    "process_read_bytes": _Figure("storage read", "MiB", bytes_to_mib),
    "disk_read_bytes": _Figure("read by all", "MiB", bytes_to_mib),
}
"""The figures of a report, by the aggregates that they are."""


@dataclasses.dataclass(frozen=True)
class ModeRuns:
    """The runs of a command in one power mode."""

    power_mode: NamedMode
    profiles: List[Profile]
    numbers: List[int]  # of the profiles in the results file

    def figures(self) -> Dict[str, Interval]:
        """The median over the runs of each figure that all of them have, with its interval."""
        estimates = {}
        for name, figure in _FIGURES.items():
            values = [profile.aggregates.get(name) for profile in self.profiles]
            known = [value for value in values if value is not None and value > 0]
            if len(known) < len(values):
                continue
            if figure.noise:
                device = self.profiles[0].case.device
                estimate = median_of_runs([(value,) for value in known], prior(device, figure.noise))
                estimates[name] = estimate.interval()
            else:
                estimates[name] = Interval(statistics.median(known), min(known), max(known))
        return estimates


class FailedCommandMode(NamedTuple):
    """A power mode of several in which a command failed; it is tried again when the sweep is resumed."""

    power_mode: NamedMode
    exit_code: int
    reason: str


class CommandRuns:
    """What a command took; printed, it is the text of `jetwatt run`.

    Attributes:
        name: of the command in results.
        modes: its runs in each power mode in which it did not fail.
        resumed: power modes whose profile was in the results file already.
        failed: power modes of several in which it failed.
    """

    def __init__(
        self, name: str, modes: List[ModeRuns], resumed: int, failed: Sequence[FailedCommandMode] = ()
    ) -> None:
        self.name = name
        self.modes = modes
        self.resumed = resumed
        self.failed = list(failed)

    @property
    def profiles(self) -> List[Profile]:
        """All profiles, in the order of the power modes."""
        return [profile for runs in self.modes for profile in runs.profiles]

    def plain(self) -> Dict[str, Any]:
        """The record as plain values, for JSON."""
        return {
            "command": self.name,
            "resumed": self.resumed,
            "modes": [
                {
                    "power_mode": runs.power_mode.name,
                    "figures": {name: each._asdict() for name, each in runs.figures().items()},
                    "runs": [_plain_profile(profile) for profile in runs.profiles],
                }
                for runs in self.modes
            ],
            "failed": [
                {"power_mode": mode.name, "exit_code": exit_code, "reason": reason}
                for mode, exit_code, reason in self.failed
            ],
        }

    def __repr__(self) -> str:
        if len(self.modes) == 1 and not self.failed:
            return _text_of(self.name, self.modes[0])
        rows = []
        for runs in self.modes:
            figures = runs.figures()
            power = figures.get("power_mean_mw")
            energy = figures.get("energy_mwh")
            rows.append(
                [
                    runs.power_mode.name,
                    f"{figures['wall_time_s'].value:.4g}",
                    "" if power is None else f"{mw_to_w(power.value):.4g}",
                    "" if energy is None else f"{mwh_to_j(energy.value):.4g}",
                ]
            )
        rows += [[mode.name, f"failed: exit code {exit_code}", "", ""] for mode, exit_code, _ in self.failed]
        return format_table(["power mode", "time (s)", "mean power (W)", "energy (J)"], rows)


def _plain_profile(profile: Profile) -> Dict[str, Any]:
    return {
        "case": profile.case.id,
        "started_at": profile.started_at,
        "provenance": profile.provenance,
        "aggregates": profile.aggregates,
        "flags": list(profile.flags),
        "conditions": profile.conditions,
    }


def _text_of(name: str, runs: ModeRuns) -> str:
    profiles = runs.profiles
    figures = runs.figures()
    several = f", medians with their {CONFIDENCE:.0%} intervals" if len(profiles) > 1 else ""
    lines = [f"{name} in {runs.power_mode.name}: {counted(len(profiles), 'run')}{several}, {profiles[0].provenance}"]
    for name_of_figure, interval in figures.items():
        figure = _FIGURES[name_of_figure]
        value, low, high = (f"{figure.shown(end):.4g}" for end in interval)
        spread = f" ({low} to {high})" if len(profiles) > 1 else ""
        lines.append(f"  {figure.words:<14}{value} {figure.unit}{spread}")
    if "power_mw" not in figures:
        lines.append(f"  power         {profiles[0].conditions.get('power_definition', 'not measured')}")
    lines += [f"  {flag}" for flag in dict.fromkeys(flag for profile in profiles for flag in profile.flags)]
    return "\n".join(lines)


def run_command(
    command: Union[str, Sequence[str], Command],
    *,
    device: Union[str, Device] = "host",
    power_mode: str = MAXN,
    clocks: str = STATIC,
    repeat: int = 1,
    resume: bool = False,
    results: Union[str, Path, None] = None,
    interval_s: float = 1.0,
    disturbance_cores: Optional[float] = None,
    report: Callable[[str], None] = lambda line: None,
) -> CommandRuns:
    """Run a command on a device as it is, and measure it from outside, as `jetwatt run` does.

    Args:
        command: its words, or one text; or a `Command`, which also has a name and a pattern of its minibatches.
        device: `host`, a board's name on that board, or `sim:orin-agx` for a rehearsal.
        power_mode: one or several modes: `maxn`, `sample:20`, a `FILE.csv`, or a text file with a mode a line.
        clocks: `static` holds the mode's, `dvfs` lets them go lower.
        repeat: runs in each mode.
        resume: do not run again in modes of which `results` has as many undisturbed profiles.
        results: the results file that keeps the profiles; None keeps none.
        interval_s: seconds between telemetry samples.
        disturbance_cores: how many cores other processes may use before a profile is flagged disturbed; None for 0.1.
        report: takes a line of progress before each run, and of each failure in one mode of several.

    Raises:
        CommandFailedError: the command ended with an exit code other than 0, which the error has: in its one power
            mode, or in each of the first three of several.
        HarnessError: the device is not available, a mode cannot be set, or there is no such program.
        KeyboardInterrupt: a signal ended this; the command has ended before, and the device is restored.
    """
    if repeat < 1:
        raise InvalidValueError(f"repeat is {repeat}, expected 1 or more")
    described = command if isinstance(command, Command) else Command(command)
    machine = open_device(device, load_configuration(Path(FILE_NAME))) if isinstance(device, str) else device
    opened = CommandDevice(machine, described)
    modes = _in_order(opened, _modes_of(opened, power_mode))
    asked = CaseSettings(clocks=clocks, interval_s=interval_s, disturbance_cores=disturbance_cores)
    cases = [command_case(opened.name, described, mode, asked) for mode in modes]
    for case in cases:
        opened.check(case)
    run_id = uuid.uuid4().hex
    environment = describe_environment()
    job = requeued_job()
    done: List[ModeRuns] = []
    failed: List[FailedCommandMode] = []
    resumed = 0
    with _kept_in(results) as store, opened.session():
        of_job = stored_by(store, job) if job else ()
        try:
            kept: List[List[int]] = []
            for case in cases:
                numbers = _numbers_in(store, opened, case) if resume or job else []
                kept.append([number for number in numbers if resume or number in of_job][-repeat:])
            countdown = Countdown(sum(repeat - len(numbers) for numbers in kept))
            for case, numbers in zip(cases, kept):
                profiles = [store.profile(number) for number in numbers]
                resumed += len(profiles) == repeat
                try:
                    while len(profiles) < repeat:
                        countdown.start_one()
                        report(_what_runs(case, len(profiles), repeat, countdown.left()))
                        profile = with_job(opened.profile(case))
                        countdown.finish_one()
                        numbers.append(store.add(profile, environment, run_id))
                        profiles.append(profile)
                except CommandFailedError as error:
                    failed.append(FailedCommandMode(case.power_mode, error.exit_code, error.what))
                    if len(cases) == 1 or (not done and len(failed) == MOST_FAILURES):
                        raise
                    report(f"{case.power_mode.name}: {error.what}")
                else:
                    done.append(ModeRuns(case.power_mode, profiles, numbers))
        except KeyboardInterrupt:
            run_is_ending()
            raise
    return CommandRuns(described.workload, done, resumed, failed)


def _what_runs(case: Case, number: int, repeat: int, left: str) -> str:
    run = f", run {number + 1} of {repeat}" if repeat > 1 else ""
    return f"{case.id}{run}{left and f' ({left})'}"


def _modes_of(device: CommandDevice, text: str) -> List[NamedMode]:
    """The modes that a text or a text file names, each once."""
    path = Path(text)
    texts = [text]
    if path.suffix == ".txt" and path.is_file():
        lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
        texts = [line for line in lines if line]
        if not texts:
            raise InvalidValueError(f"{path} names no power mode", "write one a line: maxn, 12c-2201.6-1300.5-3199")
    modes: Dict[PowerMode, NamedMode] = {}
    for each in texts:
        for name, mode in device.power_modes(each):
            modes.setdefault(mode, NamedMode(name, mode))
    return list(modes.values())


def _in_order(device: CommandDevice, modes: Sequence[NamedMode]) -> List[NamedMode]:
    """The order in which no clock rises where that may need a reboot; else as given."""
    if not device.clocks_only_fall:
        return list(modes)
    passes = order_passes(list(modes), SAFE, lambda named: named.mode)
    return [named for each in passes for named in each]


@contextlib.contextmanager
def _kept_in(results: Union[str, Path, None]) -> Iterator[ResultsStore]:
    """The results file; without one a file that is dropped at the end."""
    with contextlib.ExitStack() as stack:
        if results is None:
            results = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "results.sqlite"
        yield stack.enter_context(ResultsStore(Path(results)))


def _numbers_in(store: ResultsStore, device: CommandDevice, case: Case) -> List[int]:
    """The numbers of the undisturbed profiles of a case in a results file, oldest first."""
    wanted = key(comparable_conditions(device.conditions(case), case, device.provenance))
    usable = frames.profiles(store, tasks=[COMMAND])
    return [int(number) for number in usable.index[usable["key"] == wanted]]


def write_command_table(results: Union[str, Path], runs: CommandRuns, out: Union[str, Path]) -> int:
    """Write the newest profile of a command in each power mode of some runs as a corpus; returns the rows.

    A corpus, which `fit` takes, has times of minibatches of a training: here the whole command is one, of batch size 1,
    unless a pattern shows its minibatches; then modes of which it showed none are left out. Other commands, devices and
    clocks of the same name are not in it.

    Raises:
        StoreError: the runs have no undisturbed profile, or none with a minibatch although there is a pattern.
    """
    wanted = {_key_of(profile) for profile in runs.profiles}
    has_pattern = any(profile.conditions.get("minibatch_pattern") is not None for profile in runs.profiles)
    with ResultsStore(Path(results), read_only=True) as store:
        usable = frames.profiles(store, tasks=[COMMAND])
        of_command = usable[usable["key"].isin(wanted)]
        if of_command.empty:
            what = f"{results} has no undisturbed profile of the command {runs.name!r} in these power modes"
            flags = dict.fromkeys(
                flag for profile in runs.profiles for flag in profile.flags if is_disqualified([flag])
            )
            if flags:
                raise StoreError(f"{what}: {'; '.join(flags)}", "a quieter machine, or a greater disturbance_cores=")
            raise StoreError(what, "run it in some power modes: jetwatt run --sample 20 -- COMMAND")
        newest = corpora.newest(of_command)
        aggregates = newest[["minibatch_time_ms", "wall_time_s"]].to_dict("records")
        times_ms = [unit_time_ms(each, has_pattern) for each in aggregates]
        rows = newest.assign(task=TASKS[0], minibatch_time_ms=times_ms).dropna(subset=["minibatch_time_ms"])
        if rows.empty:
            what = f"the output of the command {runs.name!r} showed no minibatches in any power mode"
            raise StoreError(what, "mend the pattern, or omit it: then the whole command counts as a minibatch")
    write_corpus(Path(out), corpora.corpus_rows(rows), frames.FURTHER)
    return len(rows)


def _key_of(profile: Profile) -> str:
    return key(comparable_conditions(profile.conditions, profile.case, profile.provenance))


def compare_command(
    baseline: Union[str, Path],
    results: Union[str, Path],
    runs: CommandRuns,
    by: Sequence[str] = (),
    include_flagged: bool = False,
) -> TwoSides:
    """Compare the profiles of some runs with a baseline, or with another results file, as `compare` does."""
    from harness.judge.compare import compare_sides
    from harness.judge.sides import comparable_profiles, read_side, side_of

    with ResultsStore(Path(results), read_only=True) as store:
        stored = comparable_profiles(store)
        numbers = [number for each in runs.modes for number in each.numbers]
        after = side_of(store, stored.loc[numbers], include_flagged)
    before = read_side(Path(baseline), include_flagged)
    ids = {case.case_id for case in after.cases}
    same = [case for case in before.cases if case.case_id in ids]
    return compare_sides(before._replace(cases=same if after.cases else before.cases), after, by)
