"""Bisects package versions: measures in installed environments to find the version that made training slower."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from harness.core.errors import CannotRunError, DependencyError, InvalidValueError, UnknownNameError
from harness.core.terminal import format_table, shown
from harness.judge.case_frame import SOFTWARE
from harness.judge.compare import TwoSides, compare_files
from harness.judge.comparison import DEFAULT_TOLERANCE, OVERALL
from harness.judge.quantities import TIME
from harness.stats.comparison import Change
from harness.stats.noise import RunNoise, prior, runs_needed
from harness.store.conditions import differences

MOST_RUNS = 12  # of an environment: if the noise needs more, the verdict is marked as unsure
BENCHMARKS = "benchmarks/test_training.py"  # what is measured unless a file is named
_SUITE = Path(__file__).resolve().parents[2]
ASK_S = 300.0  # most that an interpreter takes to import the suite, from a slow disk too
_ASK = "import json; from harness.core.environment import describe_environment as d; print(json.dumps(d()))"


class Installed(NamedTuple):
    python: str
    environment: Dict[str, Any]

    def version(self, package: str) -> str:
        version = {"python": self.environment["python"], **self.environment["packages"]}.get(package)
        if version is None:
            raise UnknownNameError(f"{self.python} has no {package}", "install it there, or name another package=")
        return str(version)


class Tried(NamedTuple):
    place: int  # among the environments, oldest version first
    runs: int
    change: Optional[Change]  # of the minibatch time over the good environment; None for that one
    is_bad: bool
    is_sure: bool  # whether the interval excludes the middle between good and bad


Measure = Callable[[Installed, int], Path]
"""Adds a number of runs with an environment, and returns the results file with all of its runs."""


class Bisection(NamedTuple):
    """Which version made training slower; printed, it is the text of `jetwatt bisect-versions`."""

    environments: Tuple[Installed, ...]  # from the good to the bad one
    verdicts: Tuple[Tried, ...]  # in the order of measurement
    package: str  # that differs between the environments
    threshold: float  # how much slower counts, as a share: the one given, else the board's, else 2 %
    origin: str = ""  # of a board's threshold, in words

    def __repr__(self) -> str:
        return format_verdicts(*self)

    @property
    def first_bad(self) -> Optional[str]:
        """The first slow version of the package; None if the last one is not slower than the first."""
        if not self.verdicts[1].is_bad:
            return None
        return self.environments[min(tried.place for tried in self.verdicts if tried.is_bad)].version(self.package)


def bisect_versions(
    good: str,
    bad: str,
    *,
    among: Sequence[str] = (),
    package: Optional[str] = None,
    device: str = "host",
    threshold: Optional[float] = None,
    repetitions: Optional[int] = None,
    keep: Union[str, Path, None] = None,
    arguments: Sequence[str] = (),
) -> Bisection:
    """Find the package version that made training slower, as `jetwatt bisect-versions` does.

    Args:
        good: the fast environment: an interpreter, or NAME==VERSION of one in `among`.
        bad: the slow one.
        among: interpreters of the environments in between.
        package: the package to bisect; None for that of `good` or `bad`, or torch.
        device: as for `pytest benchmarks`.
        threshold: share below which slowdowns are ignored; None for that of the board (`doctor --accept`), else 2 %.
            The command takes percent.
        repetitions: runs of each environment; None for as many as the noise requires, up to `MOST_RUNS`.
        keep: a folder for the results file of each environment; None keeps none.
        arguments: for `pytest benchmarks`: test files, axes, settings.

    Raises:
        HarnessError: this is no clone of the project, an interpreter cannot import the suite, the benchmarks fail, or
            results cannot be compared.
    """
    if not (_SUITE / BENCHMARKS).is_file():
        raise DependencyError(
            f"`bisect-versions` needs a clone of the project: {BENCHMARKS} is not installed",
            "run it in the root of a clone, as `python -m harness bisect-versions ...`",
        )
    if repetitions is not None and repetitions < 1:
        raise InvalidValueError(f"repetitions is {repetitions}", "give a number from 1")
    versions = [text for text in (good, bad) if "==" in text]
    name = package or (versions[0].partition("==")[0] if versions else "torch")
    paths = [text for text in (good, bad) if "==" not in text]
    candidates = [inspect_interpreter(path) for path in dict.fromkeys(map(_absolute, [*paths, *among]))]
    first, last = (select_environment(text, candidates) for text in (good, bad))
    environments = between(candidates, first, last, name)
    with tempfile.TemporaryDirectory() as folder:
        measure = measuring(Path(keep or folder), device, arguments)
        bisected = bisect(environments, measure, threshold, prior(device), repetitions)
    return Bisection(tuple(environments), tuple(bisected.verdicts), name, bisected.threshold, bisected.origin)


def _absolute(python: str) -> str:
    """The absolute path of an interpreter; links are kept, because they identify an environment."""
    return os.path.abspath(os.path.expanduser(python)) if os.sep in python else python


def inspect_interpreter(python: str) -> Installed:
    """The packages in the environment of an interpreter, which must be able to import the suite."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            cwd=_SUITE, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=ASK_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        what = f"{python} did not tell its packages within {ASK_S:g} s"
        raise CannotRunError(what, "name the interpreter of an environment") from error
    except OSError as error:
        raise CannotRunError(f"cannot start {python}: {error}", "name the interpreter of an environment") from error
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise CannotRunError(f"{python} cannot import the suite: {why}", "install jetwatt's requirements there")
    return Installed(python, json.loads(done.stdout))


def select_environment(text: str, candidates: Sequence[Installed]) -> Installed:
    """The environment that `--good` or `--bad` names, by interpreter or by version: 2.8 also matches 2.8.1."""
    name, is_version, version = text.partition("==")
    if not is_version:
        return next(candidate for candidate in candidates if candidate.python == _absolute(text))
    fitting = [
        candidate
        for candidate in candidates
        if _number(candidate.version(name))[: len(_number(version))] == _number(version)
    ]
    if len(fitting) != 1:
        there = (
            ", ".join(f"{candidate.version(name)} ({candidate.python})" for candidate in fitting or candidates)
            or "none"
        )
        raise UnknownNameError(f"{len(fitting)} environments have {text}", f"available: {there}; add with among=")
    return fitting[0]


def between(candidates: Sequence[Installed], good: Installed, bad: Installed, package: str) -> List[Installed]:
    first, last = (_number(candidate.version(package)) for candidate in (good, bad))
    if first == last:
        raise InvalidValueError(f"good and bad both have {package} {good.version(package)}", "name another package=")
    low, high = sorted((first, last))
    inside = [candidate for candidate in candidates if low < _number(candidate.version(package)) < high]
    inside.sort(key=lambda candidate: _number(candidate.version(package)), reverse=first > last)
    return [good, *inside, bad]


def _number(version: str) -> Tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def measuring(folder: Path, device: str, further: Sequence[str]) -> Measure:
    """A function that runs the benchmarks with an interpreter, with a results file per environment in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    files: Dict[str, Path] = {}

    def measure(environment: Installed, runs: int) -> Path:
        path = files.setdefault(environment.python, (folder / f"environment-{len(files) + 1}.sqlite").absolute())
        names_a_file = any(argument.partition("::")[0].endswith(".py") for argument in further)
        command = [
            environment.python,
            "-m",
            "pytest",
            *([] if names_a_file else [BENCHMARKS]),
            *further,
        ]
        for _ in range(runs):
            print(f"measuring with {environment.python}", file=sys.stderr, flush=True)
            done = subprocess.run(
                [*command, "--device", device, "--results", str(path), "-p", "no:cacheprovider", "-q"],
                cwd=_SUITE, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            if done.returncode:
                tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
                raise CannotRunError(f"the benchmarks failed with {environment.python}:\n{tail}", "fix that first")
        return path

    return measure


class TimeChange(NamedTuple):
    sides: TwoSides
    change: Change  # of the time of all cases
    status: str


class Bisected(NamedTuple):
    verdicts: List[Tried]  # in the order of measurement, good and bad first
    threshold: float  # the share in use
    origin: str  # of a board's threshold, in words


def bisect(
    environments: Sequence[Installed],
    measure: Measure,
    given: Optional[float],
    run_noise: RunNoise,
    repetitions: Optional[int] = None,
) -> Bisected:
    """Bisect the environments, of which the first is good and the last bad, until two neighbours are left.

    Good and bad are measured alternately, so that drift affects both sides. An environment between them is bad if its
    time is nearer to that of the bad one; it is measured again while its interval contains the middle, at most
    `MOST_RUNS` times. Only good and bad have verdicts if bad is not slower. `given` is the threshold as a share; None
    for that of the board, which the first profiles carry, else 2 %.
    """
    last = len(environments) - 1
    good, bad = (measure(environments[place], 1) for place in (0, last))
    threshold, origin = (given, "") if given is not None else _own_threshold(_compared(good, bad, None).sides)
    count = repetitions or min(runs_needed(threshold, run_noise), MOST_RUNS)
    for _ in range(count - 1):
        for place in (0, last):
            measure(environments[place], 1)
    _, change, status = _compared(good, bad, threshold)
    verdicts = [Tried(0, count, None, False, True), Tried(last, count, change, status == TIME.worse, True)]
    if status != TIME.worse:
        return Bisected(verdicts, threshold, origin)
    low, high, middle = 0, last, change.ratio**0.5
    while high - low > 1:
        place = (low + high) // 2
        # The middle is apart from either end by half the change.
        runs = repetitions or min(runs_needed(middle - 1, run_noise), MOST_RUNS)
        own = _compared(good, measure(environments[place], runs), threshold).change
        while own.low <= middle <= own.high and repetitions is None and runs < MOST_RUNS:
            own = _compared(good, measure(environments[place], 1), threshold).change
            runs += 1
        verdicts.append(Tried(place, runs, own, own.ratio > middle, not own.low <= middle <= own.high))
        low, high = (low, place) if verdicts[-1].is_bad else (place, high)
    return Bisected(verdicts, threshold, origin)


def _own_threshold(compared: TwoSides) -> Tuple[float, str]:
    """The share in use for times without a given one, and where that of a board comes from."""
    share = DEFAULT_TOLERANCE.share(compared.compared, TIME)
    return share, DEFAULT_TOLERANCE.describe(compared.pairs) if compared.board_thresholds else ""


def _compared(before: Path, after: Path, threshold: Optional[float]) -> TimeChange:
    """The comparison of two environments; CannotRunError if no times can be compared."""
    result = compare_files(before, after, SOFTWARE, threshold)
    for overall in result.of(OVERALL):
        if overall.quantity == TIME and overall.change is not None:
            return TimeChange(result, overall.change, overall.status)
    why = "; ".join(line for refused in result.refused for line in refused.differ[:1]) or "they have no case in common"
    raise CannotRunError(f"two environments cannot be compared: {why}", "only versions of software may differ")


def format_verdicts(
    environments: Sequence[Installed], verdicts: Sequence[Tried], package: str, threshold: float, origin: str = ""
) -> str:
    rows = []
    for tried in sorted(verdicts, key=lambda tried: tried.place):
        own, verdict = environments[tried.place], "bad" if tried.is_bad else "good"
        time = str(tried.change) if tried.change else "-"
        rows.append(
            [own.version(package), str(tried.runs), time, verdict if tried.is_sure else f"{verdict}?", own.python]
        )
    lines = [format_table([package, ">runs", ">minibatch time", "verdict", "interpreter"], rows), ""]
    lines += [f"tolerance: {origin}"] if origin else []
    if not verdicts[1].is_bad:
        bad = environments[-1].version(package)
        return "\n".join(
            [*lines, f"{package} {bad} is not significantly slower by more than {threshold:.1%}: nothing to bisect"]
        )
    first = environments[min(tried.place for tried in verdicts if tried.is_bad)]
    before = environments[max(tried.place for tried in verdicts if not tried.is_bad)]
    lines.append(f"slower since {package} {first.version(package)}; {before.version(package)} is the last good version")
    also = differences(before.environment, first.environment)
    lines += [f"also differs: {shown(line)}" for line in also]
    if not all(tried.is_sure for tried in verdicts):
        lines.append(f"?: unsure, the interval still contains the middle after {MOST_RUNS} runs")
    return "\n".join(lines)
